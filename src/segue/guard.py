"""Errors at the command line: one message on standard error, and the right exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from segue.errors import SegueError, nearest

_UsageError: Any = typer.BadParameter.__base__  # click's own, or that of the click inside typer


def guarded(work: Callable[[], Any], verbs: Sequence[str], debug: bool = False) -> int:
    """Does the work and returns its exit code: 0 done, 1 failed, 2 the input is wrong."""
    try:
        work()
        sys.stdout.flush()
        return 0
    except typer.Exit as done:  # the help has been shown
        return done.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read us has left
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _say("Interrupted. A run that had begun goes on with: segue train --out RUN --resume", 1)
    except Exception as error:
        if debug:
            raise
        return _say(*_message(error, verbs))


def _message(error: Exception, verbs: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, SegueError):
        return str(error), error.exit_code
    if isinstance(error, _UsageError):
        return _usage(error, verbs), 2
    if type(error).__name__ == "OutOfMemoryError":
        return _out_of_memory(str(error)), 1
    if isinstance(error, MemoryError) or re.search("can't allocate memory|could not create a primitive", str(error)):
        return (
            "The memory of this machine is full. Turn one of these down: batches.size, batches.length, model.width; "
            "of generate, -n, --beam and --max-tokens."
        ), 1
    if _is_full(error):
        name = getattr(error, "filename", None) or "a file"
        return f"The disk is full: {name} could not be written. Free some space and try again.", 2
    if isinstance(error, PermissionError):
        return f"No permission for {error.filename}. Choose another place, or change its permissions.", 2
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be read or written: {error.strerror}. Check the path.", 2
    return f"Something went wrong inside Segue: {type(error).__name__}: {error}. With --debug it says where.", 1


def _is_full(error: Exception) -> bool:
    """A full disk, as Python says it or, in words alone, a library below it."""
    from segue.runs.folder import FULL

    words = r"No space left on device|File too large|\d+ requested and \d+ written"
    return getattr(error, "errno", None) in FULL or re.search(words, str(error)) is not None


def _out_of_memory(message: str) -> str:
    """What the GPU lacked, in the words of torch's message, and what makes a model or a batch smaller."""
    sizes = [
        re.search(pattern + r"([\d.]+) ([KMG]i?B|bytes)", message)
        for pattern in ("allocate ", "total capacity of ", "of which ")
    ]
    found = ""
    if all(sizes):
        asked, total, free = (f"{size[1]} {size[2]}" for size in sizes if size)
        found = f": {asked} more were asked for, and of its {total} only {free} were free"
    return (
        f"The GPU's memory is full{found}. Turn one of these down: batches.size, batches.length, model.width; or "
        "turn batches.accumulate up, which reads a batch in so many parts and learns the same from it. "
        "Of generate, that is -n and --max-tokens; --device cpu needs no GPU."
    )


def _usage(error: Any, verbs: Sequence[str]) -> str:
    message = error.format_message()
    word = message.partition("No such command '")[2].partition("'")[0]
    if word:
        return f"There is no verb '{word}'.{nearest(word, verbs)} `segue --help` shows them all."
    verb = error.ctx.command_path if error.ctx else "segue"
    return f"{message.rstrip('.')}. `{verb} --help` shows what is expected."


def _say(message: str, code: int) -> int:
    print(f"segue: {message}", file=sys.stderr)
    return code

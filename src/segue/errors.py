"""Errors, and the messages and exit codes that users see."""

from __future__ import annotations

import difflib
import errno
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from segue.output.streams import ClosedPipeError
from segue.output.visible import visible


class SegueError(Exception):
    """The work failed (exit code 1)."""

    exit_code = 1


class InputError(SegueError):
    """The user's input is wrong (exit code 2): what was found, where, what was expected, what to do."""

    exit_code = 2


class BadSourceError(ValueError):
    """A sound or a picture cannot be read: says what is wrong with it, without its name, which the caller knows."""


_MOST = 100
"""List at most this many choices: nobody reads a whole vocabulary."""


def closest(word: str, choices: Iterable[str]) -> str:
    """Return the choice that is spelt most like a word, first one with the same letters; empty if none is near."""
    near = difflib.get_close_matches(word, sorted(choices), n=5, cutoff=0.5)
    return next((choice for choice in near if sorted(choice) == sorted(word)), near[0] if near else "")


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?`, or the list of choices if none is near, or nothing if they are too many."""
    names = sorted(choices)
    if close := closest(word, names):
        return f" Did you mean '{close}'?"
    return f" Choose from: {', '.join(names)}." if 0 < len(names) <= _MOST else ""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk."""


def exit_code(error: BaseException, verbs: Sequence[str], debug: bool = False) -> int:
    """Print one error message on standard error; return the exit code: 1 failed, 2 wrong input."""
    import typer

    if isinstance(error, typer.Exit):  # typer has printed the help
        return error.exit_code
    if isinstance(error, ClosedPipeError):
        return 0
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        number = next(iter(error.args), signal.SIGINT)
        return _say(f"Interrupted.{_notes(error)}", 1 if number == signal.SIGINT else 128 + number)
    if isinstance(error.__context__, KeyboardInterrupt) and not isinstance(error, SegueError):
        return _say(f"Interrupted.{_notes(error)}", 1)  # numba makes an error of its own of it
    if debug or not isinstance(error, Exception):
        raise error
    message, code = _message(error, verbs)
    return _say(message + _notes(error), code)


def goes_on(error: BaseException, command: str, kept: str = "What is finished is kept. ") -> None:
    """Note on an error, for its message, the command that goes on with what was begun, and what of it is kept."""
    error.__notes__ = [f"{kept}Go on with: {command}"]


def _notes(error: BaseException) -> str:
    return "".join(f" {note}" for note in getattr(error, "__notes__", ()))


def _usage_error() -> type[Exception]:
    """Return the class of click's usage errors, wherever this version of typer keeps click."""
    import typer

    found: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]
    return found


def _message(error: Exception, verbs: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, SegueError):
        return str(error), error.exit_code
    if isinstance(error, _usage_error()):
        return _usage(error, verbs), 2
    if type(error).__name__ == "OutOfMemoryError":
        return _out_of_memory(str(error)), 1
    if re.search("can't allocate memory|could not create a primitive", str(error)):  # torch's words
        return f"The memory of this machine is full. {_LESS}.", 1
    if isinstance(error, MemoryError):
        asked = re.search(r"Unable to allocate ([\d.]+ [KMGTPE]?i?B)", str(error))  # numpy's words
        found = f": {asked[1]} more were asked for" if asked else ""
        return f"The memory of this machine is full{found}. Give it less to read, or smaller settings.", 1
    if _is_full(error):
        name = getattr(error, "filename", None) or "a file"
        return f"The disk is full: {name} could not be written. Free some space and try again.", 2
    if isinstance(error, PermissionError):
        return f"No permission for {error.filename}. Choose another place, or change its permissions.", 2
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be read or written: {error.strerror}. Check the path.", 2
    return f"Something went wrong inside Segue: {type(error).__name__}: {error}. With --debug it says where.", 1


def _is_full(error: Exception) -> bool:
    """Recognise a full disk by Python's error number, or by the message of a library."""
    words = r"No space left on device|File too large|\d+ requested and \d+ written"
    return getattr(error, "errno", None) in FULL or re.search(words, str(error)) is not None


def _out_of_memory(message: str) -> str:
    """Explain that the GPU's memory is full: torch's numbers, and settings that need less memory."""
    sizes = [
        re.search(pattern + r"([\d.]+) ([KMG]i?B|bytes)", message)
        for pattern in ("allocate ", "total capacity of ", "of which ")
    ]
    found = ""
    if all(sizes):
        asked, total, free = (f"{size[1]} {size[2]}" for size in sizes if size)
        found = f": {asked} more were asked for, and of its {total} only {free} were free"
    return (
        f"The GPU's memory is full{found}. {_LESS}; or turn batches.accumulate up, which reads a batch in parts; or "
        "use --device cpu."
    )


_LESS = "Turn one of these down: batches.size, batches.length, model.width; of generate, -n, --beam and --max-tokens"


def _usage(error: Any, verbs: Sequence[str]) -> str:
    message = error.format_message()
    word = message.partition("No such command '")[2].partition("'")[0]
    if word:
        return f"There is no verb '{word}'.{nearest(word, verbs)} `segue --help` shows them all."
    verb = error.ctx.command_path if error.ctx else "segue"
    return f"{message.rstrip('.')}. `{verb} --help` shows what is expected."


def _say(message: str, code: int) -> int:
    print(_fitted(f"segue: {message}", 4 * _width()), file=sys.stderr)
    return code


def _width() -> int:
    """Return the columns of the terminal that standard error writes to; a file or a pipe counts as 160."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 160


def _fitted(message: str, most: int) -> str:
    """Make one line of at most so many characters: shorten long words in the middle first, then the message."""
    line = visible(message.rstrip("\n")).replace("\n", "\\n").replace("\t", "\\t")
    if len(line) <= most:
        return line
    words = line.split(" ")
    short = " ".join(_shortened(word, max(20, most // 4)) for word in words)
    return _shortened(short, most)


def _shortened(text: str, most: int) -> str:
    """Cut out of the middle what is beyond so many characters."""
    if len(text) <= most:
        return text
    head = most // 2
    tail = most - head - 1
    return f"{text[:head]}…{text[len(text) - tail :]}"

"""Atomic writing: a file or folder is written beside its place and renamed, so that it is whole or not there.

Who is killed in the middle leaves only what stands beside; who fails removes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from segue.errors import InputError


@contextmanager
def atomic_file(path: Path, beside: Path | None = None) -> Iterator[Path]:
    """Gives a path to write to, by default .NAME.writing in the same folder, and renames it to `path` afterwards."""
    beside = beside or path.with_name(f".{path.name}.writing")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(path: Path, beside: Path | None = None) -> Iterator[Path]:
    """Makes a folder to write into, beside `path`, and renames it to that afterwards.

    Where writing fails, the folder and those above it that were made for it are removed."""
    beside = beside or of_process(path)
    made = [folder for folder in beside.parents if not folder.exists()]
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.replace(path)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        with suppress(OSError):  # someone else may have put something there
            for folder in made:
                folder.rmdir()
        if isinstance(error, InputError) and str(beside) in str(error):
            raise InputError(str(error).replace(str(beside), str(path))) from None  # the reader knows only `path`
        raise


def of_process(path: Path) -> Path:
    """A name beside `path` with the number of this process in it: several processes may write the same at once."""
    return path.with_name(f".{path.name}.{os.getpid()}.writing")

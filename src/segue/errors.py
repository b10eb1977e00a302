"""What went wrong, in words for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SegueError(Exception):
    """The work failed (exit code 1)."""

    exit_code = 1


class InputError(SegueError):
    """The user's input is wrong (exit code 2): what was found, where, what was expected, what to do."""

    exit_code = 2


_MOST = 100
"""Choices that are listed at the most: nobody reads a whole vocabulary."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or the list of choices where nothing is near; nothing at all where they are too many."""
    names = sorted(choices)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Choose from: {', '.join(names)}." if 0 < len(names) <= _MOST else ""

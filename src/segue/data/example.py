"""An example: one row, or one piece of running text, as it comes from a file."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """What a reader gives. Which fields are filled depends on the task; `path` and `line` say where it stood."""

    text: str = ""
    """Running text, the sentence to classify or tag, or the source sentence."""
    label: str = ""
    words: tuple[str, ...] = ()
    """Tagging: the words as they were given."""
    tags: tuple[str, ...] = ()
    target: str = ""
    ends: bool = True
    """False where a long document goes on in the next example."""
    path: str = ""
    line: int = 0

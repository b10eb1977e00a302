"""An example: one row, or one piece of running text, as it comes from a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NOTHING = "_"
"""What stands where a word has none of several tags."""


def names_of(tag: str) -> tuple[str, ...]:
    """The tags of a word that may have several: A|B is two of them, _ is none."""
    return () if tag == NOTHING else tuple(sorted({name for name in tag.split("|") if name}))


def joined(names: Iterable[str]) -> str:
    """Several tags of a word as one, always in the same order."""
    return "|".join(sorted(names)) or NOTHING


class Example(NamedTuple):
    """What a reader gives. The shape of the data decides which fields are filled; `path` and `line` say where it stood."""

    text: str = ""
    """Running text, the sentence to classify or tag, or the source sentence."""
    label: str = ""
    words: tuple[str, ...] = ()
    """Tagging: the words as they were given."""
    tags: tuple[str, ...] = ()
    """Of each word; or the classes of the text, where it may have several."""
    target: str = ""
    """The translation, or the second text of a pair."""
    ends: bool = True
    """False where a long document goes on in the next example."""
    path: str = ""
    line: int = 0

    def at(self, path: str, line: int) -> Example:
        """The same example, found there; faster than `_replace`, which shows in a million rows."""
        return Example(*self[:6], path, line)

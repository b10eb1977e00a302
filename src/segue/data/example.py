"""An example: one row, or one piece of running text, as it comes from a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NOTHING = "_"
"""The tag of a word that could have several tags and has none."""


def names_of(tag: str) -> tuple[str, ...]:
    """The tags of a word that may have several: A|B is two of them, _ is none."""
    return () if tag == NOTHING else tuple(sorted({name for name in tag.split("|") if name}))


def joined(names: Iterable[str]) -> str:
    """Several tags of a word as one, always in the same order."""
    return "|".join(sorted(names)) or NOTHING


class Answer(NamedTuple):
    """An answer that stands in a text."""

    begin: int
    """The place of its first character."""
    text: str


class Example(NamedTuple):
    """What a reader gives. The shape of the data decides which fields are filled; `path` and `line` say where from."""

    text: str = ""
    """Running text, the text of a labelled row, the words of a tagged one, the source of a translation, or a
    question."""
    label: str = ""
    words: tuple[str, ...] = ()
    """The words of a tagged sentence, as the file has them."""
    tags: tuple[str, ...] = ()
    """The tag of each word; or the classes of the text, if it may have several."""
    target: str = ""
    """The translation, the second text of a pair, or the text in which a question is answered."""
    ends: bool = True
    """False if a long document continues in the next example."""
    path: str = ""
    line: int = 0
    content: str = ""
    """A checksum of the sound or the picture that `text` names; empty: the text is its own content."""
    also: tuple[str, ...] = ()
    """Other targets that are as right as `target`."""
    answers: tuple[Answer, ...] = ()
    """The answers to a question that stand in `target`, each as right as the others; empty: it has none."""

    def at(self, path: str, line: int) -> Example:
        """The same example, found there; faster than `_replace`, which shows in a million rows."""
        return Example(*self[:6], path, line, *self[8:])

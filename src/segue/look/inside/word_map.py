"""A map of words: each with its nearest neighbours, on the plane in which their vectors differ most."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.inference.words import FIRST, Words, words_of
from segue.look.inside.view import View
from segue.look.page.projection import Place, placed, word_map
from segue.models.base import WordVectors


def applies(model: Any) -> bool:
    """Models that have vectors of words."""
    return isinstance(model, WordVectors)


def view(opened: Opened, text: str, top: int = 9) -> View:
    """The words of a text with their `top` nearest; without a text, frequent words that are unlike one another."""
    words = words_of(opened)
    groups = _asked(words, text.split(), top) if text.strip() else _frequent(words, opened.model.counts[FIRST:])
    places = [(place, number) for number, group in enumerate(groups) for place in group]
    return View(
        kind="points",
        title="Map of the words",
        note="Words with their nearest neighbours, on the two directions in which these vectors differ most.",
        panels=("words",),
        rows=tuple(place.word for place, _ in places),
        columns=("x", "y", "group"),
        values_PRC=np.array([[place.x, place.y, float(number)] for place, number in places]).reshape(1, -1, 3),
    )


def _asked(words: Words, asked: list[str], top: int) -> list[list[Place]]:
    """A group a word: the word itself, and those nearest to it that are in no group yet."""
    groups: list[list[str]] = []
    taken: set[str] = set()
    for word in dict.fromkeys(asked):
        found = [words.names[words.place(word)], *(name for name, _ in words.nearest(word, top))]
        groups.append([name for name in found if name not in taken])
        taken.update(groups[-1])
    return placed(words, groups)


def _frequent(words: Words, counts: Any) -> list[list[Place]]:
    found = word_map(words, counts)
    if found is None:
        raise InputError('There are too few words for a map. Name some: segue look RUN "king queen"')
    return found.groups

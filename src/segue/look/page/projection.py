"""Vectors of words on a plane: some words with their nearest neighbours, and pairs that stand in the same relation.

The plane is that of the two directions in which the vectors that are shown differ most (principal components).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.inference.words import Words

GROUPS, NEIGHBOURS = 10, 9
FREQUENT = 1500
"""Words to choose from: beyond the first few, which stand next to everything, the most frequent ones."""
_SKIPPED = 100
LEAST_PAIRS = 3
RELATIONS: dict[str, str] = {
    "a man and a woman": "man woman king queen boy girl father mother brother sister son daughter husband wife he she",
    "a country and its capital": "France Paris Japan Tokyo Germany Berlin Italy Rome Russia Moscow China Beijing",
    "one and more": "large larger small smaller high higher low lower long longer short shorter old older",
    "now and then": "is was are were has had do did go went make made take took come came see saw",
}
"""Pairs that English text is likely to hold; what a text does not hold is not shown."""


@dataclass(frozen=True)
class Place:
    """A word, and where it stands."""

    word: str
    x: float
    y: float


@dataclass(frozen=True)
class WordMap:
    """What is drawn: groups of words that are near one another, and pairs in a relation."""

    groups: list[list[Place]]
    """In each, the first is the word that the others are nearest to."""
    relation: str = ""
    pairs: tuple[tuple[Place, Place], ...] = ()


def word_map(words: Words, counts: NDArray[np.int64]) -> WordMap | None:
    """The map of some words; None of too few. `counts` say how often each was seen."""
    chosen = _anchors(words, counts)
    if len(chosen) < 2:
        return None
    taken: set[str] = set()
    groups: list[list[str]] = []
    for anchor in chosen:
        near = [name for name, _ in words.nearest(anchor, 4 * NEIGHBOURS) if _is_word(name) and name not in taken]
        groups.append([anchor, *[name for name in near if name not in chosen][:NEIGHBOURS]])
        taken.update(groups[-1])
    relation, pairs = _relation(words)
    return WordMap(
        placed(words, groups), relation, tuple((pair[0], pair[1]) for pair in placed(words, [list(p) for p in pairs]))
    )


def _is_word(name: str) -> bool:
    return name.strip().isalpha()


def _anchors(words: Words, counts: NDArray[np.int64]) -> list[str]:
    """Frequent words that are as unlike one another as can be, chosen one by one: next comes the one whose nearest
    among those chosen is farthest."""
    order = [i for i in np.argsort(-counts, kind="stable").tolist() if _is_word(words.names[i]) and counts[i]]
    order = order[_SKIPPED:FREQUENT] or order
    if not order:
        return []
    unit = words.unit[order]
    best = unit @ unit[0]
    chosen = [0]
    while len(chosen) < min(GROUPS, len(order)):
        chosen.append(int(best.argmin()))
        best = np.maximum(best, unit @ unit[chosen[-1]])
    return [words.names[order[i]] for i in dict.fromkeys(chosen)]


def _relation(words: Words) -> tuple[str, list[tuple[str, str]]]:
    """The relation of which most pairs are known."""
    found: tuple[str, list[tuple[str, str]]] = ("", [])
    for name, flat in RELATIONS.items():
        parts = flat.split()
        pairs = [(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True) if a in words.index and b in words.index]
        if len(pairs) >= LEAST_PAIRS and len(pairs) > len(found[1]):
            found = name, pairs
    return found


def placed(words: Words, groups: Sequence[Sequence[str]]) -> list[list[Place]]:
    """Every word on the plane of those given."""
    names = [name for group in groups for name in group]
    if not names:
        return []
    vectors = words.unit[[words.index[name] for name in names]].astype(np.float64)
    plane = on_plane(vectors)
    places = iter([Place(name.strip(), float(x), float(y)) for name, (x, y) in zip(names, plane, strict=True)])
    return [[next(places) for _ in group] for group in groups]


def on_plane(vectors_ND: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, 2) the vectors on the two directions in which they differ most."""
    centred = vectors_ND - vectors_ND.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((len(vectors_ND), 2))
    flat = centred @ directions[:2].T
    plane[:, : flat.shape[1]] = flat
    return plane

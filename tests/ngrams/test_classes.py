"""Exchange against its own likelihood, added up from the text by hand."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.errors import InputError
from segue.ngrams.classes import cluster


def likelihood(text: list[int], classes: list[int]) -> float:
    """What the head of the file says, up to what no class changes."""
    pairs = list(pairwise(text))
    forwards = Counter((v, classes[w]) for v, w in pairs)
    backwards = Counter((classes[v], w) for v, w in pairs)
    masses = Counter(classes[w] for w in text)
    plogp = [sum(n * math.log(n) for n in counts.values()) for counts in (forwards, backwards, masses)]
    return plogp[0] + plogp[1] - 2 * plogp[2]


def moved(classes: list[int], word: int, to: int) -> list[int]:
    return [*classes[:word], to, *classes[word + 1 :]]


def test_words_in_the_same_company_share_a_class() -> None:
    draw = np.random.default_rng(0)
    kinds = np.array([0, *[1] * 4, *[2] * 4, *[3] * 4])  # determiner, noun and verb: 1 2 3 and STOP, again and again
    text = np.concatenate([[*(draw.integers(4 * k, 4 * k + 4) + 1 for k in range(3)), 0] for _ in range(400)])
    found = cluster(text, 13, 4, 20)
    assert len(set(zip(kinds, found, strict=True))) == 4 and len(set(found)) == 4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(1, 5))
def test_no_single_move_makes_the_text_likelier(text: list[int], classes: int) -> None:
    found = cluster(np.array(text), 9, classes, 100)
    assert sorted(set(found)) == list(range(max(found) + 1)) and max(found) < classes
    best = likelihood(text, list(found))
    for word in range(9):
        for to in range(max(found) + 1):
            assert likelihood(text, moved(list(found), word, to)) <= best + 1e-6


def test_a_sweep_only_makes_it_likelier_and_sweeps_are_told() -> None:
    text = np.random.default_rng(1).zipf(1.5, 3000) % 40
    told: list[float] = []
    scores = [likelihood(list(text), list(cluster(text, 40, 6, sweeps, told.append))) for sweeps in range(5)]
    assert scores == sorted(scores) and scores[0] < scores[-1]
    assert told[-1] <= 1 and told[0] == 1 and told[1:3] == [0.5, 1]


@pytest.mark.parametrize("text", [[0], [1], [1] * 20, [0, 1]])
def test_small_texts_have_a_class_for_every_word(text: list[int]) -> None:
    found = cluster(np.array(text), 3, 100, 10)
    assert len(found) == 3 and sorted(set(found)) == list(range(max(found) + 1))


def test_too_large_tables_are_refused_with_what_would_do() -> None:
    with pytest.raises(InputError, match=r"4\.0 GB.*model\.classes=268"):
        cluster(np.array([0, 1]), 1_000_000, 500, 1)

"""The cache against its equation, with a list of all that was read."""

from __future__ import annotations

import numpy as np
import pytest

from segue.batches.batch import Batch
from segue.ngrams import cache
from segue.ngrams.cache import DECAY, LONGEST, CacheLm

V = 7


def stream(text, fresh: bool, first: int) -> Batch:
    tokens = np.concatenate(([first], text[:-1]))[None]
    return Batch(tokens, np.asarray(text)[None], np.ones(tokens.shape, bool), np.array([fresh]))


def slow(text: list[int], place: int, word: int) -> float:
    """p of a word at a place, from all the places before it."""
    padded = [0] * LONGEST + text
    p = 1 / V
    for k in range(LONGEST + 1):
        here = padded[place + LONGEST - k : place + LONGEST]
        same = [i for i in range(place) if padded[i + LONGEST - k : i + LONGEST] == here]
        total = sum(DECAY ** (place - i) for i in same)
        own = sum(DECAY ** (place - i) for i in same if text[i] == word)
        p = (own + p) / (total + 1)
    return p


def test_equals_its_equation_in_any_pieces(monkeypatch):
    text = np.random.default_rng(0).integers(0, V, 300).tolist()
    expected = [slow(text, i, word) for i, word in enumerate(text)]
    whole, _ = CacheLm(V).logprobs(stream(text, True, 0))
    assert np.exp(whole[0]) == pytest.approx(expected, abs=1e-12)
    monkeypatch.setattr(cache, "_AT_ONCE", 10)
    one, parts = CacheLm(V), []
    one._make(2)  # and the table grows
    for begin in (0, 100):
        end = 100 if begin == 0 else 300
        parts.append(one.logprobs(stream(text[begin:end], begin == 0, text[begin - 1] if begin else 0))[0][0])
    assert np.array_equal(np.concatenate(parts), whole[0])


def test_sums_to_one():
    text = np.random.default_rng(1).integers(0, V, 50).tolist()
    assert sum(slow(text, 40, word) for word in range(V)) == pytest.approx(1, abs=1e-12)
    found = [np.exp(CacheLm(V).logprobs(stream([*text[:40], w], True, 0))[0][0, -1]) for w in range(V)]
    assert sum(found) == pytest.approx(1, abs=1e-12)


def test_one_row():
    with pytest.raises(ValueError, match="one text"):
        CacheLm(V).logprobs(Batch(np.zeros((2, 3)), np.zeros((2, 3)), np.ones((2, 3), bool)))

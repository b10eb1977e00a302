"""Draws: chances as they were asked for, never the unwanted word, and whole numbers below a bound."""

from __future__ import annotations

import numpy as np
from numba import njit

from segue.word_vectors.noise_words import WHOLE, below, draw, kept, noise_chances, noise_table, noise_word, seeds


@njit
def drawn(mark, other, unwanted, state, count):  # type: ignore[no-untyped-def]
    out = np.zeros(len(mark), np.int64)
    for _ in range(count):
        out[noise_word(mark, other, unwanted, state)] += 1
    return out


def test_noise_comes_with_its_chances() -> None:
    counts = np.array([0, 0, 1000, 300, 20, 1, 0, 50])
    chances = noise_chances(counts, 0.75)
    np.testing.assert_allclose(chances[[0, 1, 6]], 0)
    np.testing.assert_allclose(chances[2] / chances[3], (1000 / 300) ** 0.75)
    table, size = noise_table(chances), 400_000
    found = drawn(table.mark, table.other, -1, seeds(0, 1), size) / size
    assert (found[chances == 0] == 0).all()
    np.testing.assert_allclose(found, chances, atol=5 * np.sqrt(0.25 / size))
    without = drawn(table.mark, table.other, 2, seeds(0, 1), size) / size
    rest = np.where(np.arange(8) == 2, 0, chances)
    np.testing.assert_allclose(without, rest / rest.sum(), atol=5 * np.sqrt(0.25 / size))


def test_an_even_table_and_one_of_a_single_word() -> None:
    even = noise_table(np.full(4, 0.25))
    assert (drawn(even.mark, even.other, -1, seeds(1, 1), 4000) > 800).all()
    single = noise_table(np.array([0.0, 0.0, 1.0]))
    assert drawn(single.mark, single.other, -1, seeds(1, 1), 1000).tolist() == [0, 0, 1000]


def test_frequent_words_are_passed_over() -> None:
    counts = np.array([0, 0, 10_000, 100, 10])
    share = counts[2:] / counts.sum()
    expected = np.minimum(1, (np.sqrt(share / 0.01) + 1) * 0.01 / share)
    np.testing.assert_allclose(kept(counts, 0.01)[2:] / WHOLE, expected, rtol=1e-6)
    assert expected[0] < 0.2 and expected[2] == 1
    assert (kept(counts, 0.0) == WHOLE).all()


def test_whole_numbers_below_a_bound_are_even() -> None:
    state = seeds(2, 1)
    found = np.bincount([below(draw(state) >> np.uint64(32), 5) for _ in range(5000)], minlength=5)
    assert len(found) == 5 and (abs(found - 1000) < 150).all()


def test_threads_begin_apart() -> None:
    assert len(set(seeds(0, 8).tolist())) == 8 and (seeds(0, 8) > 0).all()
    assert seeds(0, 2).tolist() != seeds(1, 2).tolist()

"""Intervals and paired tests: hand-worked cases, and coverage on made data."""

from __future__ import annotations

import math

import numpy as np
import pytest

import segue.inference.statistics as statistics
from segue.inference.statistics import (
    FEWEST,
    bootstrap,
    corpus_bootstrap,
    corpus_paired,
    paired,
    share_interval,
    wilson,
)


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    x = np.random.default_rng(1).normal(3.0, 2.0, 400)
    lo, hi = bootstrap(x, np.ones(400), resamples=4000)
    half = 1.96 * x.std() / math.sqrt(400)
    assert lo == pytest.approx(x.mean() - half, abs=0.15 * half)
    assert hi == pytest.approx(x.mean() + half, abs=0.15 * half)


def test_coverage_of_the_interval_of_a_ratio() -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for trial in range(300):
        lengths = rng.integers(500, 2048, 60).astype(float)
        bits = lengths * rng.gamma(8.0, 2.0 / 8.0, 60)  # two bits a byte on average
        lo, hi = bootstrap(bits, lengths, resamples=300, seed=trial)
        inside += lo <= 2.0 <= hi
    assert 0.89 <= inside / 300 <= 0.985  # 0.95, less what percentiles lose on 60 pieces; 3.5 deviations each way


def test_level_seed_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(3).random(50)
    ones = np.ones(50)
    narrow, wide = bootstrap(x, ones, level=0.5), bootstrap(x, ones, level=0.99)
    assert wide[0] < narrow[0] < x.mean() < narrow[1] < wide[1]
    assert bootstrap(x, ones, seed=1) == bootstrap(x, ones, seed=1) != bootstrap(x, ones, seed=2)
    with pytest.raises(ValueError, match="level is 95"):
        bootstrap(x, ones, level=95)
    sizes = []
    monkeypatch.setattr(statistics, "CHUNK", 120)
    monkeypatch.setattr(statistics, "ratio", lambda sums: sizes.append(len(sums)) or sums[:, 0] / sums[:, 1])
    lo, hi = bootstrap(x, ones, resamples=501)
    assert sizes == [501]  # in pieces of two resamples, put together again
    assert lo < x.mean() < hi


def test_infinities_have_no_warnings() -> None:
    ones = np.ones(30)
    one = np.ones(30)
    one[4] = math.inf
    lo, hi = bootstrap(one, ones)
    assert (lo, hi) == (1.0, math.inf)
    assert bootstrap(np.full(30, math.inf), ones) == (math.inf, math.inf)


@pytest.mark.parametrize("pieces", range(1, 9))
def test_p_can_fall_below_a_twentieth_from_the_fewest_pieces_on(pieces: int) -> None:
    """One model is far better on every piece: as clear as a difference can be."""
    ones = np.ones(pieces)
    assert (paired(ones, 9 * ones, ones, resamples=20_000).p < 0.05) == (pieces >= FEWEST)


def test_one_piece_tells_nothing_and_none_is_refused() -> None:
    assert bootstrap([3.0], [1.0]) == (-math.inf, math.inf)
    assert paired([3.0], [2.0], [1.0]) == (1.0, -math.inf, math.inf, 1.0)
    with pytest.raises(ValueError):
        bootstrap([], [])
    with pytest.raises(ValueError, match="not all 0"):
        bootstrap([1.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="one length"):
        bootstrap([1.0, 2.0], [1.0])


def test_pieces_without_a_denominator() -> None:
    lo, hi = bootstrap([0.0, 0.0, 1.0], [0.0, 0.0, 2.0])
    assert (lo, hi) == (0.5, 0.5)


def test_wilson_by_hand() -> None:
    """8 of 16 with z = 2: the middle is 1/2, half the width 2 · sqrt(1/4 / 16 + 4 / (4 · 16 · 16)) / (1 + 4 / 16)."""
    low, high = wilson(8, 16, z=2.0)
    assert low + high == pytest.approx(1.0)
    assert high - low == pytest.approx(2 * 2 * (1 / 64 + 1 / 256) ** 0.5 / 1.25)
    assert wilson(10, 10)[1] == 1 and 0.6 < wilson(10, 10)[0] < 0.8
    assert wilson(4, 4)[1] == 1 and wilson(0, 10)[0] == 0  # the share itself is inside, whatever the rounding


def test_a_share_that_is_the_same_in_every_resample_has_an_interval() -> None:
    ones = np.ones(30)
    assert share_interval(ones, ones) == wilson(30, 30) == pytest.approx((0.88, 1), abs=0.01)  # exactly: 0.884
    assert share_interval(0 * ones, ones) == wilson(0, 30) == pytest.approx((0, 0.12), abs=0.01)
    assert share_interval(2 * ones, 4 * ones) == wilson(15, 30)  # a sentence is a piece, whatever its words
    assert share_interval([1, 1, 0], [1, 1, 0]) == wilson(2, 2)  # and what has no answer is none
    some = np.arange(30) % 3 / 2
    assert share_interval(some, ones) == bootstrap(some, ones)
    assert share_interval([1], [1]) == (-math.inf, math.inf)


def test_the_same_model_does_not_differ_from_itself() -> None:
    x = np.random.default_rng(4).random(80)
    assert paired(x, x, np.ones(80)) == (0.0, 0.0, 0.0, 1.0)


def test_p_of_all_swaps_by_hand() -> None:
    # Differences 1, 2, 3, 4 of four pieces: of the 16 sign patterns sums of size >= 10 are two, so p is 1/8.
    found = paired([2.0, 4.0, 6.0, 8.0], [1.0, 2.0, 3.0, 4.0], np.ones(4), resamples=20_000)
    assert found.difference == pytest.approx(2.5)
    assert found.p == pytest.approx(1 / 8, abs=0.01)


def test_paired_is_antisymmetric_and_sees_what_single_intervals_do_not() -> None:
    rng = np.random.default_rng(5)
    hard = rng.gamma(4.0, 500.0, 100)  # blocks differ far more than models do
    a, b, lengths = hard + rng.normal(20.0, 40.0, 100), hard, np.full(100, 2048.0)
    (a_lo, a_hi), (b_lo, b_hi) = bootstrap(a, lengths), bootstrap(b, lengths)
    assert a_lo < b_hi and b_lo < a_hi
    found, back = paired(a, b, lengths), paired(b, a, lengths)
    assert 0 < found.lo < found.difference < found.hi
    assert found.p < 0.01
    assert back == pytest.approx((-found.difference, -found.hi, -found.lo, found.p))


def test_level_and_coverage_of_the_paired_test() -> None:
    rng = np.random.default_rng(6)
    wrong, inside = 0, 0
    for trial in range(300):
        hard = rng.gamma(4.0, 1.0, 40)
        found = paired(hard + rng.normal(0, 1, 40), hard + rng.normal(0, 1, 40), np.ones(40), resamples=200, seed=trial)
        wrong += found.p < 0.05
        inside += found.lo <= 0 <= found.hi
    assert 0.01 <= wrong / 300 <= 0.095
    assert 0.89 <= inside / 300 <= 0.985


def test_paired_with_zero_probabilities() -> None:
    ones, a, b = np.ones(40), np.ones(40), np.ones(40)
    a[:10] = math.inf
    found = paired(a, b, ones)
    assert found.difference == math.inf and found.hi == math.inf and found.lo >= 0
    assert found.p == pytest.approx(2 / 1024, abs=0.005)  # ten pieces, all on one side
    assert paired(b, a, ones)[:1] == (-math.inf,)
    once = np.ones(40)
    once[3] = math.inf
    assert paired(once, b, ones).p == 1.0  # one piece alone proves nothing
    both = paired(a, once, ones)
    assert math.isnan(both.difference) and (both.lo, both.hi) == (-math.inf, math.inf) and both.p < 0.05


def test_any_figure_of_sums() -> None:
    table = np.random.default_rng(7).random((60, 3))

    def figure(sums: np.ndarray) -> np.ndarray:
        return sums[:, 0] * sums[:, 1] / sums[:, 2] ** 2

    lo, hi = corpus_bootstrap(table, figure)
    assert lo < figure(table.sum(0, keepdims=True))[0] < hi
    assert corpus_paired(table, table, figure).p == 1.0
    ratio = corpus_paired(table[:, :2], table[:, [2, 1]], statistics.ratio)
    assert ratio == pytest.approx(paired(table[:, 0], table[:, 2], table[:, 1]))
    with pytest.raises(ValueError, match="same pieces"):
        corpus_paired(table, table[:-1], figure)

"""Intervals and tests: the textbook's numbers, hand-worked cases, and coverage on made series."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from segue.inference.evaluation import Evaluation, compare, interval
from segue.inference.statistics import (
    FEWEST,
    UNKNOWN,
    Chance,
    Paired,
    Seeds,
    chance_of_both,
    chance_of_text,
    influences,
    needed,
    paired,
    ratio,
    share_interval,
    t_beyond,
    t_quantile,
    variance_of_mean,
    wilson,
)


def rows(values: np.ndarray | list[float], ordered: bool = False, share: bool = False) -> Evaluation:
    """Pieces of one byte each, so that the figure is the mean of the values."""
    table = np.stack([np.asarray(values, np.float64), np.ones(len(values))], 1)
    result = {"figure": "bits_per_byte", "bits_per_byte": float(table[:, 0].mean())}
    return Evaluation(result, table, ordered=ordered, share=share)


def correlated(rng: np.random.Generator, series: int, pieces: int, rho: float) -> np.ndarray:
    """Series in which each value is rho times the one before plus noise, with variance 1."""
    noise = rng.standard_normal((series, pieces + 30))
    x = noise.copy()
    for t in range(1, pieces + 30):
        x[:, t] = rho * x[:, t - 1] + math.sqrt(1 - rho * rho) * noise[:, t]
    return x[:, 30:]


# Student's t


@pytest.mark.parametrize(
    ("df", "t"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (20, 2.086), (30, 2.042), (120, 1.980)],
)
def test_the_quantiles_are_those_of_the_textbooks_table(df: float, t: float) -> None:
    assert t_quantile(df) == pytest.approx(t, abs=5e-4)
    assert t_beyond(t, df) == pytest.approx(0.05, abs=5e-5) == t_beyond(-t, df)


def test_the_tails_where_they_have_a_formula() -> None:
    """df = 1 is Cauchy's distribution, df = 2 is algebraic, and many are the normal distribution."""
    for t in (0.1, 1.0, 3.0, 40.0):
        assert t_beyond(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9)
        assert t_beyond(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
        assert t_beyond(t, 1e7) == pytest.approx(math.erfc(t / math.sqrt(2)), rel=1e-3, abs=1e-12)
    assert t_beyond(0.0, 3) == 1.0 and t_beyond(1e200, 3) == 0.0
    assert t_quantile(5, level=0.99) > t_quantile(5) > t_quantile(5, level=0.5)


# Influences and variances


def test_influences_of_a_mean_are_the_deviations() -> None:
    x = np.array([1.0, 4.0, 2.0, 9.0])
    table = np.stack([x, np.ones(4)], 1)
    np.testing.assert_allclose(influences(table), x - 4)
    np.testing.assert_allclose(influences(table, lambda sums: sums[:, 0] / sums[:, 1]), x - 4)


def test_influences_of_any_figure_give_its_variance() -> None:
    """A product of two means against the delta method: (mean y) (x - mean x) + (mean x) (y - mean y)."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(3, 1, 500), rng.normal(5, 1, 500)
    table = np.stack([x, y, np.ones(500)], 1)
    found = influences(table, lambda sums: sums[:, 0] * sums[:, 1] / sums[:, 2] ** 2)
    by_hand = y.mean() * (x - x.mean()) + x.mean() * (y - y.mean())
    assert found.mean() == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(found, by_hand, atol=0.1)


def test_the_variance_of_a_mean_of_rows_is_the_textbooks() -> None:
    x = np.random.default_rng(1).normal(3.0, 2.0, 400)
    low, high = rows(x).interval()
    half = t_quantile(399) * x.std(ddof=1) / 20
    assert (low, high) == pytest.approx((x.mean() - half, x.mean() + half))


def test_the_cosines_are_those_of_the_definition() -> None:
    """B = 0.45 · sqrt(50) = 3 sums of x_t cos(pi j (t + 1/2) / n), each times sqrt(2 / n); their mean square over n."""
    x = np.random.default_rng(2).normal(size=50)
    t, sums = np.arange(50) + 0.5, []
    for j in range(1, 4):
        sums.append(math.sqrt(2 / 50) * (x * np.cos(math.pi * j * t / 50)).sum())
    variance, df = variance_of_mean(x, ordered=True)
    assert df == 3 and float(variance) == pytest.approx(np.square(sums).mean() / 50)
    both, _ = variance_of_mean(np.stack([x, 2 * x]), ordered=True)  # rows of several series
    np.testing.assert_allclose(both, [variance, 4 * variance])


def test_the_mean_does_not_matter_and_order_does() -> None:
    x = np.sort(np.random.default_rng(3).normal(size=60))
    assert variance_of_mean(x + 7, True)[0] == pytest.approx(variance_of_mean(x, True)[0])
    shuffled = np.random.default_rng(4).permutation(x)
    assert variance_of_mean(x, True)[0] > 5 * variance_of_mean(shuffled, True)[0]
    assert variance_of_mean(x, False)[0] == pytest.approx(variance_of_mean(shuffled, False)[0])


def test_the_interval_grows_with_the_correlation_as_the_truth_does() -> None:
    """The variance of the mean of an AR(1) series is (1 + rho) / (1 - rho) / n, 4 times as large for rho = 0.6."""
    rng = np.random.default_rng(5)
    variances = [variance_of_mean(correlated(rng, 400, 200, rho), True)[0].mean() * 200 for rho in (0.0, 0.3, 0.6)]
    assert variances == pytest.approx([1, 1.3 / 0.7, 4], rel=0.15)


@pytest.mark.parametrize(("pieces", "rho"), [(20, 0.0), (20, 0.6), (50, 0.4), (200, 0.6)])
def test_coverage_in_small(pieces: int, rho: float) -> None:
    """95 % of intervals hold the truth, which is 0; benchmarks/interval_coverage.py draws many more."""
    series = correlated(np.random.default_rng(6), 600, pieces, rho)
    variances, df = variance_of_mean(series, ordered=True)
    inside = np.abs(series.mean(1)) <= t_quantile(df) * np.sqrt(variances)
    assert 0.91 <= inside.mean() <= 0.98  # 4 deviations below 0.945, 3 above 0.95
    if rho:  # as independent pieces they would be too narrow
        alone = np.abs(series.mean(1)) <= 1.96 * series.std(1) / math.sqrt(pieces)
        assert alone.mean() < 0.85


def test_too_few_pieces_have_no_interval() -> None:
    x = np.random.default_rng(7).random(FEWEST)
    for ordered in (False, True):
        assert chance_of_text(x[:-1], ordered) is UNKNOWN and chance_of_text(x, ordered) is not UNKNOWN
        assert rows(x[:-1], ordered).interval() == (-math.inf, math.inf)
    found = compare([rows(x[:-1])], [rows(x[:-1] + 9)])
    assert found == (pytest.approx(-9), -math.inf, math.inf, 1.0)


# Shares


def test_wilson_by_hand() -> None:
    """8 of 16 with z = 2: the middle is 1/2, half the width 2 · sqrt(1/4 / 16 + 4 / (4 · 16 · 16)) / (1 + 4 / 16)."""
    low, high = wilson(8, 16, z=2.0)
    assert low + high == pytest.approx(1.0)
    assert high - low == pytest.approx(2 * 2 * (1 / 64 + 1 / 256) ** 0.5 / 1.25)
    assert wilson(10, 10)[1] == 1 and 0.6 < wilson(10, 10)[0] < 0.8
    assert wilson(4, 4)[1] == 1 and wilson(0, 10)[0] == 0  # the share itself is inside, whatever the rounding


def test_the_interval_of_a_share_is_wilsons() -> None:
    """Of independent rows the variance is share · (1 - share) / (n - 1), so that n - 1 answers are counted."""
    right = np.array([1.0] * 30 + [0.0] * 10)
    assert rows(right, share=True).interval() == pytest.approx(wilson(0.75 * 39, 39, t_quantile(39)))
    ones = rows(np.ones(30), share=True)
    assert ones.interval() == wilson(30, 30) == pytest.approx((0.88, 1), abs=0.01)  # exactly: 0.884
    assert rows(np.zeros(30), share=True).interval() == wilson(0, 30)
    assert share_interval(0.5, 30, Chance(0.0, 29)) == wilson(15, 30)
    assert share_interval(1.0, 5, UNKNOWN) == (-math.inf, math.inf)


# Paired tests


def test_the_same_model_does_not_differ_from_itself() -> None:
    x = rows(np.random.default_rng(8).random(80))
    assert compare([x], [x]) == (0.0, 0.0, 0.0, 1.0)


def test_the_paired_test_is_students() -> None:
    """Differences 1, 2, 3 … 24: mean 12.5, deviation sqrt(50), so that t = 12.5 / sqrt(50 / 24) with 23 df."""
    gap = np.arange(1.0, 25)
    hard = np.random.default_rng(9).normal(0, 100, 24)
    found = compare([rows(hard + gap)], [rows(hard)])
    assert found.difference == pytest.approx(12.5)
    assert found.p == pytest.approx(t_beyond(12.5 / math.sqrt(50 / 24), 23))
    assert found.hi - found.difference == pytest.approx(t_quantile(23) * math.sqrt(50 / 24))


def test_p_is_near_that_of_all_swaps() -> None:
    """Enumerate every way to swap the two models on 12 pieces, each twice in the table."""
    rng = np.random.default_rng(10)
    signs = np.array(list(itertools.product((1, -1), repeat=12)))
    for shift in (0.0, 0.3, 0.6, 0.9):
        gap = rng.normal(shift, 1, 12)
        exact = float((np.abs(signs @ gap) >= abs(gap.sum()) - 1e-12).mean())
        variance, df = variance_of_mean(gap, ordered=False)
        found = paired(float(gap.mean()), Chance(float(variance), df), 12)
        assert found.p == pytest.approx(exact, abs=0.03)


def test_paired_is_antisymmetric_and_sees_what_single_intervals_do_not() -> None:
    rng = np.random.default_rng(5)
    hard = rng.gamma(4.0, 500.0, 100)  # blocks differ far more than models do
    a, b = rows(hard + rng.normal(20.0, 40.0, 100), ordered=True), rows(hard, ordered=True)
    (a_lo, a_hi), (b_lo, b_hi) = a.interval(), b.interval()
    assert a_lo < b_hi and b_lo < a_hi
    found, back = compare([a], [b]), compare([b], [a])
    assert 0 < found.lo < found.difference < found.hi
    assert found.p < 0.01
    assert back == pytest.approx((-found.difference, -found.hi, -found.lo, found.p))


def test_p_and_interval_never_disagree() -> None:
    rng = np.random.default_rng(11)
    for trial in range(300):
        gap = rng.integers(-1, 2, 40) * (rng.random(40) < 0.01 * trial) + 0.002 * trial * rng.random(40)
        found = compare([rows(gap)], [rows(np.zeros(40))])
        assert (found.p < 0.05) == (not found.lo <= 0 <= found.hi), trial


@pytest.mark.parametrize("differing", range(8))
def test_a_few_pieces_that_differ_prove_nothing(differing: int) -> None:
    """Of 1,000 rows all but some are the same; on those one model is right. Six are the fewest that can be clear."""
    right = np.zeros(1000)
    right[:differing] = 1
    found = compare([rows(right)], [rows(np.zeros(1000))])
    assert (found.p < 0.05) == (differing >= 6) and (found.lo > 0) == (differing >= 6)
    assert found.p >= min(1, 2.0 ** (1 - differing)) or differing >= 6


def test_zero_probabilities() -> None:
    a, b = np.ones(40), np.ones(40)
    a[:10] = math.inf
    assert rows(a).interval() == (1.0, math.inf) and rows(np.full(30, math.inf)).interval() == (math.inf, math.inf)
    found = compare([rows(a)], [rows(b)])
    assert found.difference == math.inf and (found.lo, found.hi) == (0, math.inf) and found.p < 0.01
    assert compare([rows(b)], [rows(a)]) == (-math.inf, -math.inf, 0, found.p)
    once = np.ones(40)
    once[3] = math.inf
    assert compare([rows(once)], [rows(b)]) == (math.inf, -math.inf, math.inf, 1.0)  # one piece proves nothing
    both = compare([rows(a)], [rows(once)])
    assert math.isnan(both.difference) and (both.lo, both.hi) == (-math.inf, math.inf) and both.p < 0.05


def test_pieces_without_a_denominator_and_tables_of_other_shapes() -> None:
    assert np.isnan(ratio(np.array([[1.0, 0.0]]))[0])
    table = np.array([[0.0, 0.0], [1.0, 2.0]] * 10)
    low, high = Evaluation({"figure": "x"}, table).interval()
    assert (low, high) == (0.5, 0.5)
    with pytest.raises(ValueError, match="same text"):
        compare([rows(np.ones(30))], [rows(np.ones(31))])


def test_how_much_more_would_do() -> None:
    """Half the interval is twice the difference: four times as many pieces halve it."""
    assert needed(50, Paired(1.0, -1.0, 3.0, 0.3)) == 200
    assert needed(50, Paired(1.0, 0.5, 1.5, 0.001)) == FEWEST
    assert needed(5, Paired(1.0, -math.inf, math.inf, 1.0)) == needed(50, Paired(0.0, -1.0, 1.0, 1.0)) == FEWEST


# Chance of training


def table(rng: np.random.Generator, seeds: float, both: float, text: np.ndarray, count: int = 3) -> list[Evaluation]:
    """One model with several seeds: an effect of the seed, one of the piece, and noise of each on each."""
    noise = both * correlated(rng, count, len(text), 0.4)
    return [rows(text + rng.normal(0, seeds) + one, ordered=True) for one in noise]


def test_seeds_of_a_model_that_does_not_depend_on_the_text() -> None:
    """The seeds then are all that there is: the t-test of six figures, with four degrees of freedom."""
    a, b = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 5.5])
    found = compare([rows(np.full(40, x)) for x in a], [rows(np.full(40, x)) for x in b])
    variance = (a.var(ddof=1) + b.var(ddof=1)) / 2 * (2 / 3)
    assert found.difference == pytest.approx(a.mean() - b.mean())
    assert found.p == pytest.approx(t_beyond(found.difference / math.sqrt(variance), 4))


def test_variances_of_text_and_seeds_add_with_satterthwaites_degrees() -> None:
    """Every seed has the same profile over the text, so that no interaction is taken off."""
    text = np.random.default_rng(12).normal(size=40)
    figures = np.array([1.0, 2.0, 3.0])
    found = chance_of_both([Seeds(figures, np.stack([text - text.mean()] * 3))], ordered=False)
    of_seeds, of_text = 1 / 3, text.var(ddof=1) / 40
    assert found.variance == pytest.approx(of_seeds + of_text)
    assert found.df == pytest.approx((of_seeds + of_text) ** 2 / (of_seeds**2 / 2 + of_text**2 / 39))


def test_groups_of_one_recipe_differ_in_a_twentieth_of_cases() -> None:
    """A/A: wherever the chance comes from. With one seed each p sees the text alone, and is small far too often."""
    rng, naive = np.random.default_rng(13), 0
    for seeds, both in ((0.3, 1.0), (1.0, 0.3), (0.0, 1.0)):
        called = 0
        for _ in range(150):
            hard = correlated(rng, 1, 40, 0.4)[0]
            a, b = table(rng, seeds, both, hard), table(rng, seeds, both, hard)
            called += compare(a, b).p < 0.05
            naive += compare(a[:1], b[:1]).p < 0.05
        assert 0.005 <= called / 150 <= 0.11, (seeds, both)  # 3.5 deviations above 0.05
    assert naive > 100  # of 450


def test_a_difference_that_is_there_is_found_and_the_interval_of_seeds_is_wider() -> None:
    rng = np.random.default_rng(14)
    hard = correlated(rng, 1, 60, 0.4)[0]
    a, b = table(rng, 0.05, 0.1, hard), table(rng, 0.05, 0.1, hard + 1)
    assert compare(a, b).p < 0.01 and compare(a, b).hi < 0
    far = [rows(hard + x, ordered=True) for x in (-3.0, 0.0, 3.0)]
    (low, high), (narrow, wide) = interval(far), far[1].interval()
    assert low < narrow < wide < high


def test_a_model_without_chance_in_training_adds_none() -> None:
    """Three seeds against one model that counts: two degrees of freedom, and only their variance."""
    a = np.array([1.0, 2.0, 3.0])
    found = compare([rows(np.full(40, x)) for x in a], [rows(np.full(40, 9.0))])
    assert found.p == pytest.approx(t_beyond(-7 / math.sqrt(1 / 3), 2))

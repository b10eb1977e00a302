"""Confidence intervals of figures, and p-values of differences: chance of the text, and chance of training.

A figure is computed from sums over pieces of the test data (blocks of text, sentences, rows): bits and bytes, right
answers and questions, the n-gram counts of BLEU. So all figures need only a table, a row a piece, and a function
`figure` of its column sums.

    influence       how much each piece moves the figure, by the jackknife (Tukey 1958): the figure without that piece.
                    The variance of any figure is then the variance of a mean, that of its influences.
    text, rows      the rows of labelled data are independent: variance of a mean, n - 1 degrees of freedom
    text, ordered   blocks and sentences of running text are not: a hard block stands beside hard ones. The mean of an
                    ordered series varies as its slowest waves do. So the variance is the mean square of its first B
                    cosine coefficients, with B degrees of freedom: the equal-weighted cosine estimator (EWC; Müller
                    2004; Lazarus, Lewis, Stock and Watson 2018). Their B = 0.4 n^(2/3) is too many for text, whose
                    waves are as long as articles and chapters; ours is 0.45 n^(1/2) (benchmarks/interval_coverage.py)
    training        seeds and pieces are crossed random effects (method of moments, Henderson 1953):
                    V = V_seeds + max(0, V_pieces - V_seeds x pieces); V_seeds is pooled over the two models.
                    A two-way bootstrap calls 15 % of equal models different, at three seeds (benchmarks/seeds.py)
    interval, p     Student's t of the same variance, so that they never disagree; degrees of freedom of a sum of
                    variances by Satterthwaite (1946)

Below FEWEST pieces there is no interval, (-inf, inf), and p is 1: nobody can tell. p is never below 2^(1 - k), where k
is the number of pieces on which the two differ, as in every randomisation test: two models that differ on five pieces
alone never differ by more than chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Figure = Callable[[Floats], Floats]
"""A function from column sums (R, K), one row a table, to R figures."""

FEWEST = 20
"""The least number of pieces for an interval or a test; with fewer, 95 % intervals hold less than 95 %."""
LEVEL = 0.95


class Chance(NamedTuple):
    """The variance of a figure, and the degrees of freedom with which it is known."""

    variance: float
    df: float

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval."""
        return t_quantile(self.df) * math.sqrt(self.variance)


class Paired(NamedTuple):
    """The difference of model a minus model b on the same pieces, with interval and p-value."""

    difference: float
    lo: float
    hi: float
    p: float


UNKNOWN = Chance(math.inf, 1.0)
"""The chance of a figure of too few pieces."""


# Variances


def ratio(sums: Floats) -> Floats:
    """Divide the first column by the second; nan if the denominator is 0."""
    result = np.full(len(sums), math.nan)
    np.divide(sums[:, 0], sums[:, 1], out=result, where=sums[:, 1] > 0)
    return result


def influences(table: Floats, figure: Figure = ratio) -> Floats:
    """Compute how much each piece moves the figure: a series whose mean is 0 and varies as the figure does."""
    sums, n = table.sum(0), len(table)
    if figure is ratio:  # the same to first order, without n sums
        if not sums[1]:
            return np.zeros(n)  # the figure is nan: no reference has a word
        moved: Floats = (table[:, 0] - sums[0] / sums[1] * table[:, 1]) * n / sums[1]
        return moved
    without = figure(sums - table)
    return np.asarray((n - 1) * (without.mean() - without), np.float64)


def variance_of_mean(series: Floats, ordered: bool) -> tuple[Floats, int]:
    """Compute the variance of the mean of a series (of each row of several) and its degrees of freedom."""
    n = series.shape[-1]
    if not ordered:
        return series.var(-1, ddof=1) / n, n - 1
    waves = round(0.45 * math.sqrt(n))
    return cosine_variance(series, waves), waves


def cosine_variance(series: Floats, waves: int) -> Floats:
    """Compute the variance of the mean of an ordered series from its slowest waves (EWC)."""
    n = series.shape[-1]
    j = np.arange(1, waves + 1)
    # sum over t of x_t cos(pi j (t + 1/2) / n), for j = 1 … B, by a fast Fourier transform
    cosines = (np.fft.rfft(series, 2 * n)[..., 1 : waves + 1] * np.exp(-0.5j * math.pi * j / n)).real
    return np.asarray((cosines**2).mean(-1) * 2 / n**2, np.float64)


def chance_of_text(series: Floats, ordered: bool) -> Chance:
    """Compute the chance of a figure with these influences of its pieces, if the model is given."""
    if len(series) < FEWEST:
        return UNKNOWN
    variance, df = variance_of_mean(series, ordered)
    return Chance(float(variance), df)


class Seeds(NamedTuple):
    """One model, trained with one seed or more."""

    figures: Floats
    """The figure of each seed."""
    series: Floats
    """The influences of the pieces, a row a seed."""


def chance_of_both(sides: Sequence[Seeds], ordered: bool) -> Chance:
    """Compute the chance of a figure, or of the difference of two, where seeds and pieces were both drawn by chance. A
    model with one seed has no chance in training."""
    mean = sides[0].series.mean(0) - (sides[1].series.mean(0) if len(sides) > 1 else 0)
    text = chance_of_text(mean, ordered)
    learnt = [side for side in sides if len(side.figures) > 1]
    if not learnt or text is UNKNOWN:
        return text
    df = sum(len(side.figures) - 1 for side in learnt)
    pooled = sum(float(((side.figures - side.figures.mean()) ** 2).sum()) for side in learnt) / df
    seeds = Chance(pooled * sum(1 / len(side.figures) for side in learnt), df)
    both = sum(_interaction(side.series, ordered) for side in learnt)
    return _summed([seeds, Chance(max(0.0, text.variance - both), text.df)])


def _interaction(series_SN: Floats, ordered: bool) -> float:
    """Compute what seeds that err on other pieces add to the variance of their mean over pieces."""
    seeds = len(series_SN)
    variances, _ = variance_of_mean(series_SN - series_SN.mean(0), ordered)
    return float(variances.sum()) / (seeds - 1) / seeds


def _summed(parts: Sequence[Chance]) -> Chance:
    """Add variances; the degrees of freedom of their sum are Satterthwaite's."""
    total = sum(part.variance for part in parts)
    spread = sum(part.variance**2 / part.df for part in parts)
    return Chance(total, total**2 / spread if spread else parts[0].df)


# Intervals and tests


def paired(difference: float, chance: Chance, differing: int) -> Paired:
    """Compute interval and p of the paired test of two models that differ on `differing` pieces."""
    if chance is UNKNOWN:
        return Paired(difference, -math.inf, math.inf, 1.0)
    p, half = t_tails(difference, chance) if difference else 1.0, chance.half
    lo, hi = difference - half, difference + half
    if differing < 6:  # 2^(1 - 6) is the first below 0.05
        p, lo, hi = max(p, min(1.0, 2.0 ** (1 - differing))), min(lo, 0.0), max(hi, 0.0)
    return Paired(difference, lo, hi, p)


def needed(pieces: int, found: Paired) -> int:
    """Estimate how many pieces would show the difference: variance falls as their number grows."""
    half = (found.hi - found.lo) / 2
    if not (math.isfinite(half) and found.difference):
        return FEWEST
    return max(FEWEST, math.ceil(pieces * (half / found.difference) ** 2))


def share_interval(share: float, pieces: int, chance: Chance) -> tuple[float, float]:
    """Compute Wilson's interval (1927) of a share of right answers, of as many answers as give this variance (Korn and
    Graubard 1998); of as many as there are pieces, where all are right or all wrong."""
    if chance is UNKNOWN:
        return -math.inf, math.inf
    if chance.variance < 1e-15:
        return wilson(share * pieces, pieces)
    seen = share * (1 - share) / chance.variance
    return wilson(share * seen, seen, t_quantile(chance.df))


def wilson(right: float, total: float, z: float = 1.959964) -> tuple[float, float]:
    """Compute the 95 % interval of a share (Wilson 1927): within 0 and 1, and not empty even if all are right."""
    share, spread = right / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


# Student's t


def t_tails(difference: float, chance: Chance) -> float:
    """Return the p-value of a difference, two-sided: the share of Student's t that lies further from 0."""
    if not chance.variance:
        return 0.0
    return t_beyond(difference / math.sqrt(chance.variance), chance.df)


def t_beyond(t: float, df: float) -> float:
    """Return P(|T| > |t|) = I_x(df / 2, 1 / 2) with x = df / (df + t²), the regularised incomplete beta function."""
    x = df / (df + t * t)
    a, b = df / 2, 0.5
    if x in (0.0, 1.0):
        return x
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front / a * _fraction(a, b, x)
    return 1 - front / b * _fraction(b, a, 1 - x)


def _fraction(a: float, b: float, x: float) -> float:
    """Compute the continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), term by term until
    it changes no more (Lentz 1976)."""
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = below
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for term in (even, odd):
            above, below = 1 + term / above, 1 / (1 + term * below)
            value *= above * below
        if abs(value - before) < 1e-14 * value:
            break
    return value


def t_quantile(df: float, level: float = LEVEL) -> float:
    """Return the t beyond which 1 - level of Student's distribution lies, by bisection."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_beyond(middle, df) > 1 - level else (low, middle)
    return low

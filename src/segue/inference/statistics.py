"""Confidence intervals by bootstrap, and p-values of paired tests of two models on the same text.

A figure is computed from sums over independent pieces (blocks of 2,048 bytes, or sentences): bits and
bytes, right answers and questions, the n-gram counts of BLEU. So all figures need only a table of
`statistics`, a row a piece, and a function `figure` of its column sums.

    interval    percentile bootstrap (Efron 1979): draw as many pieces as there are, with replacement,
                make the figure anew; the interval holds the middle `level` of these figures
    p-value     approximate randomisation (Noreen 1989; Riezler and Maxwell 2005): if the two models were
                alike, swapping their results on any piece would change nothing but chance; p is the share
                of random swaps, the real order counted among them, whose difference is as large as the real one

p is two-sided, never below 1 / (resamples + 1), and right for any number of pieces; the interval
needs some twenty. They are two methods, so at the very edge one may call clear what the other does not.
Where a share of right answers is the same in every resample, as where all are right, its interval is Wilson's.
One piece alone shows no variance: its interval is (-inf, inf). With n pieces all 2^n swaps are equally likely, and two
of them, none and all, differ as much as the real order does, so that p is 2^(1 - n) at least: below six pieces no
difference, however large, has p < 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Figure = Callable[[Floats], Floats]
"""A function from column sums (R, K), one row a resample, to R figures."""

CHUNK = 1 << 21
"""Random numbers drawn at once, which bounds the memory."""
FEWEST = 6
"""The least number of pieces with which p can fall below 0.05: 2^(1 - 6) is 0.03."""


class Paired(NamedTuple):
    """The difference of model a minus model b on the same pieces, with interval and p-value."""

    difference: float
    lo: float
    hi: float
    p: float


def bootstrap(
    numerators: ArrayLike, denominators: ArrayLike, resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Compute the confidence interval of sum(numerators) / sum(denominators). An infinite numerator gives an infinite
    upper end."""
    return corpus_bootstrap(_columns(numerators, denominators), ratio, resamples, seed, level)


def share_interval(right: ArrayLike, answers: ArrayLike) -> tuple[float, float]:
    """Compute the 95 % interval of a share of right answers, by bootstrap; Wilson's if all resamples have the same
    share, a piece counting as one answer, since the answers of one piece may be correlated."""
    table = _columns(right, answers)
    low, high = corpus_bootstrap(table, ratio)
    if low < high:
        return low, high
    pieces = int((table[:, 1] > 0).sum())
    return wilson(low * pieces, pieces)


def wilson(right: float, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Compute the 95 % interval of a share (Wilson 1927): within 0 and 1, and not empty even if all are right."""
    share, spread = right / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def corpus_bootstrap(
    statistics: ArrayLike, figure: Figure, resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Compute the interval of any figure of column sums, as `metrics.bleu_of_sums` of `metrics.bleu_statistics`."""
    table = _table(statistics)
    if len(table) == 1:
        return -math.inf, math.inf
    return _middle(figure(_resampled([table], resamples, seed)[0]), level)


def paired(
    a: ArrayLike, b: ArrayLike, denominators: ArrayLike, resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> Paired:
    """Test the difference of two models' ratios on the same pieces.

    A piece to which a model gives probability 0 has infinite bits, more than all finite ones, so p then only compares
    on how many pieces each model is infinite alone. If both are infinite, the difference is nan.
    """
    a, b = _columns(a, denominators), _columns(b, denominators)
    if np.isfinite(a).all() and np.isfinite(b).all():
        return corpus_paired(a, b, ratio, resamples, seed, level)
    alone_a, alone_b = np.isinf(a[:, 0]) & ~np.isinf(b[:, 0]), np.isinf(b[:, 0]) & ~np.isinf(a[:, 0])
    ones = np.ones(len(a))
    p = corpus_paired(_columns(alone_a, ones), _columns(alone_b, ones), ratio, resamples, seed, level).p
    if np.isinf(a[:, 0]).any() and np.isinf(b[:, 0]).any():
        return Paired(math.nan, -math.inf, math.inf, p)
    lo, hi = _difference_interval(a, b, ratio, resamples, seed, level)
    return Paired(math.inf if alone_a.any() else -math.inf, lo, hi, p)


def corpus_paired(
    a: ArrayLike, b: ArrayLike, figure: Figure, resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> Paired:
    """Test the difference of any figure of column sums: two tables whose rows are the same sentences."""
    table_a, table_b = _table(a), _table(b)
    if table_a.shape != table_b.shape:
        raise ValueError(
            f"The two models have {table_a.shape} and {table_b.shape} statistics; they must be of the same pieces."
        )
    sums_a, sums_b = table_a.sum(0), table_b.sum(0)
    difference = _difference(figure, sums_a[None], sums_b[None])[0]
    gap = table_b - table_a
    as_large, slack = 1, 1e-12 * abs(difference)  # the slack: the same swaps summed in another order count as equal
    rng = np.random.default_rng([seed, 1])
    for rows in _chunks(len(gap), resamples):
        moved = (rng.random((rows, len(gap))) < 0.5) @ gap
        swapped = _difference(figure, sums_a + moved, sums_b - moved)
        as_large += int((np.abs(swapped) >= abs(difference) - slack).sum())
    lo, hi = _difference_interval(table_a, table_b, figure, resamples, seed, level)
    return Paired(float(difference), lo, hi, as_large / (resamples + 1))


def _difference_interval(
    a: Floats, b: Floats, figure: Figure, resamples: int, seed: int, level: float
) -> tuple[float, float]:
    if len(a) == 1:
        return -math.inf, math.inf
    return _middle(_difference(figure, *_resampled([a, b], resamples, seed)), level)


def _difference(figure: Figure, sums_a: Floats, sums_b: Floats) -> Floats:
    return figure(sums_a) - figure(sums_b)


def _resampled(tables: list[Floats], resamples: int, seed: int) -> list[Floats]:
    """Draw pieces with replacement, the same for all tables; return each table's column sums (resamples, K)."""
    rng = np.random.default_rng([seed, 0])
    pieces = len(tables[0])
    sums: list[list[Floats]] = [[] for _ in tables]
    for rows in _chunks(pieces, resamples):
        drawn = rng.integers(0, pieces, size=(rows, pieces))
        for table, parts in zip(tables, sums, strict=True):
            # Select rows instead of weighting them: a weight of 0 times infinite bits would be nan.
            parts.append(np.stack([column[drawn].sum(1) for column in table.T], axis=1))
    return [np.concatenate(parts) for parts in sums]


def _chunks(pieces: int, resamples: int) -> Iterator[int]:
    rows = max(1, CHUNK // pieces)
    for done in range(0, resamples, rows):
        yield min(rows, resamples - done)


def _middle(figures: Floats, level: float) -> tuple[float, float]:
    """Return the ends of the middle `level`, at actual values: infinities cannot be interpolated."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it must be between 0 and 1, as in 0.95.")
    figures = np.sort(figures[~np.isnan(figures)])
    if not len(figures):
        return -math.inf, math.inf
    last = len(figures) - 1
    below = math.floor(round(last * (1 - level) / 2, 9))
    return float(figures[below]), float(figures[last - below])


def ratio(sums: Floats) -> Floats:
    """Divide the first column by the second; nan if the denominator is 0 (that resample is left out)."""
    result = np.full(len(sums), math.nan)
    np.divide(sums[:, 0], sums[:, 1], out=result, where=sums[:, 1] > 0)
    return result


def _columns(numerators: ArrayLike, denominators: ArrayLike) -> Floats:
    top, bottom = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    if top.shape != bottom.shape or top.ndim != 1:
        raise ValueError(f"Numerators {top.shape} and denominators {bottom.shape} must be two lists of one length.")
    if not (np.isfinite(bottom).all() and (bottom >= 0).all() and bottom.sum() > 0):
        raise ValueError("Denominators must be finite, 0 or more, and not all 0.")
    return np.stack([top, bottom], axis=1)


def _table(statistics: ArrayLike) -> Floats:
    table = np.asarray(statistics, dtype=np.float64)
    if table.ndim != 2 or not len(table) or np.isnan(table).any():
        raise ValueError(f"Statistics of shape {table.shape} must be a table of one row or more, without nan.")
    return table

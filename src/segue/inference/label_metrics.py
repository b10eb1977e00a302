"""Metrics that data.metric may name for labels and for numbers, as functions of sums over rows, so that every one has
an interval and a paired test (evaluation.py).

of classes, with t_k rows of class k, g_k rows that are guessed to be k, n rows and r of them right:

    accuracy       r / n
    matthews       (r·n - Σ t_k g_k) / sqrt((n² - Σ t_k²) (n² - Σ g_k²))    Matthews 1975; of K classes Gorodkin 2004
    positive_f1    2 · right positives / (t_1 + g_1) = 1 - (n - r) / (t_1 + g_1)    of two classes, the second

of numbers: mean_squared_error, pearson and spearman. A correlation is no function of sums over rows, but nearly one: it
is the mean over rows of itself plus the row's influence (Hampel 1974), by how much it moves with a row's weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.errors import InputError
from segue.inference.evaluation import Evaluation, Floats
from segue.inference.metrics import pearson, spearman
from segue.inference.statistics import Figure, ratio

Ids = NDArray[np.int64]


class LabelMetric(NamedTuple):
    """How a figure is computed from the sums of the columns of `class_pieces` or `number_pieces`."""

    of_sums: Figure
    share: bool = False
    """Whether it is a share of right rows."""


def class_pieces(truth_N: Ids, guess_N: Ids, classes: int) -> Floats:
    """Return (N, 2 + 2K): is the row right, 1, its true class one-hot, its guessed class one-hot."""
    one_hot = np.eye(classes)
    right = (truth_N == guess_N).astype(np.float64)
    return np.column_stack([right, np.ones(len(right)), one_hot[truth_N], one_hot[guess_N]])


def matthews(sums: Floats) -> Floats:
    """Compute the Matthews correlation from the sums of `class_pieces`; 0 where all have one class or guess."""
    right, rows = sums[:, 0], sums[:, 1]
    true, guessed = np.split(sums[:, 2:], 2, axis=1)
    above = right * rows - (true * guessed).sum(1)
    below = np.sqrt((rows**2 - (true**2).sum(1)) * (rows**2 - (guessed**2).sum(1)))
    found: Floats = np.divide(above, below, out=np.zeros(len(sums)), where=below > 0)
    return found


def positive_f1(sums: Floats) -> Floats:
    """Compute F1 of the second of two classes from the sums of `class_pieces`; 0 where it is never true nor guessed."""
    wrong, met = sums[:, 1] - sums[:, 0], sums[:, 3] + sums[:, 5]
    return np.where(met > 0, 1 - np.divide(wrong, met, out=np.ones(len(sums)), where=met > 0), 0.0)


def number_pieces(truth_N: Floats, guess_N: Floats) -> Floats:
    """Return (N, 4): squared error, 1, Pearson's r plus the row's influence, and the same of Spearman's rho."""
    correlations = [
        pearson(truth_N, guess_N) + pearson_influences(truth_N, guess_N),
        spearman(truth_N, guess_N) + spearman_influences(truth_N, guess_N),
    ]
    return np.column_stack([(truth_N - guess_N) ** 2, np.ones(len(truth_N)), *correlations])


def pearson_influences(x_N: Floats, y_N: Floats) -> Floats:
    """Compute the influence of each row on Pearson's r: z_x z_y - r (z_x² + z_y²) / 2, of standardised numbers."""
    if not (x_N.std() and y_N.std()):
        return np.zeros(len(x_N))
    x, y = ((row - row.mean()) / row.std() for row in (x_N, y_N))
    return np.asarray(x * y - (x * y).mean() * (x**2 + y**2) / 2, np.float64)


def spearman_influences(x_N: Floats, y_N: Floats) -> Floats:
    """Compute the influence of each row on Spearman's rho, its own ranks and those of the rows above it counted: with
    the rank shares r and s about their mean, rho = C / sqrt(A B) of C = mean(r s), A = mean(r²), B = mean(s²)."""
    r, s = _rank_shares(x_N), _rank_shares(y_N)
    both, first, second = (float((a * b).mean()) for a, b in ((r, s), (r, r), (s, s)))
    if not (first and second):
        return np.zeros(len(r))
    of_both = r * s + _mean_above(r, s) + _mean_above(s, r) - 3 * both
    of_first, of_second = (a**2 + 2 * _mean_above(a, a) - 3 * mean for a, mean in ((r, first), (s, second)))
    size = np.sqrt(first * second)
    return np.asarray(of_both / size - both / size * (of_first / first + of_second / second) / 2, np.float64)


def _rank_shares(values_N: Floats) -> Floats:
    """Return the share of rows below each row, equals counted half, less 1/2."""
    _, place, times = np.unique(values_N, return_inverse=True, return_counts=True)
    return np.asarray(((np.cumsum(times) - times / 2) / len(values_N) - 0.5)[place], np.float64)


def _mean_above(by_N: Floats, of_N: Floats) -> Floats:
    """Return for each row the sum of `of` over the rows that are above it by `by`, equals counted half, over N."""
    _, place = np.unique(by_N, return_inverse=True)
    sums = np.bincount(place, of_N)
    return np.asarray((sums.sum() - np.cumsum(sums) + sums / 2)[place] / len(of_N), np.float64)


def _mean_of(column: int) -> Figure:
    return lambda sums: ratio(sums[:, [column, 1]])


CLASS_METRICS = {
    "accuracy": LabelMetric(ratio, share=True),
    "matthews": LabelMetric(matthews),
    "positive_f1": LabelMetric(positive_f1),
}
NUMBER_METRICS = {
    "mean_squared_error": LabelMetric(ratio),
    "pearson": LabelMetric(_mean_of(2)),
    "spearman": LabelMetric(_mean_of(3)),
}
LABEL_METRICS: Mapping[str, LabelMetric] = CLASS_METRICS | NUMBER_METRICS


def ranked_by(evaluation: Evaluation, name: str) -> Evaluation:
    """Return the same evaluation with another figure that ranks, and its interval."""
    metric, classes = LABEL_METRICS[name], evaluation.pieces_NK.shape[1] // 2 - 1
    if name == "positive_f1" and classes != 2:
        raise InputError(f"positive_f1 is F1 of the second of two classes, and there are {classes}. Leave it out.")
    head = evaluation.result | {"figure": name, name: 0.0}
    return replace(evaluation, result=head, of_sums=metric.of_sums, share=metric.share).refigured()

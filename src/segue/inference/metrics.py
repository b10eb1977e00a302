"""Metrics of predictions: accuracy and F1 of classes, correlations of numbers, F1 of spans.

    precision = right / predicted      recall = right / true      F1 = 2 · right / (predicted + true)

An undefined share (0 of 0) is 0, as in scikit-learn. Spans are read and counted as conlleval (Tjong Kim Sang 2000)
does. Metrics of written texts are in text_metrics.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.data.iob import mark_spans, spans


class ClassScore(NamedTuple):
    """Precision, recall and F1 of one class."""

    precision: float
    recall: float
    f1: float
    support: int
    """How often the class is the truth."""


class SpanScore(NamedTuple):
    """The spans of one type; or all spans of all sentences together (micro average)."""

    precision: float
    recall: float
    f1: float
    right: int
    predicted: int
    true: int


# Classes


def accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Return the share of predictions that are right."""
    true, guess = _same_length(truth, predicted)
    return float((true == guess).mean())


def confusion(truth: ArrayLike, predicted: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Compute the confusion matrix (classes, classes): a row is the true class, a column the predicted one."""
    true, guess = _same_length(truth, predicted)
    ids = np.concatenate([true, guess])
    if ids.min() < 0 or ids.max() >= classes:
        raise ValueError(f"Class ids from {ids.min()} to {ids.max()} were found, expected 0 to {classes - 1}.")
    pairs = true.astype(np.int64) * classes + guess
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


SHOWN = 100
"""Labels of a confusion matrix at the most; the others are one row and one column together."""


def confused(labels: Sequence[str], truth: ArrayLike, predicted: ArrayLike) -> dict[str, Any]:
    """Compute the confusion matrix with its labels, for a result. Of many labels, those that are met most often have a
    row and a column, and all others one together: its counts of single labels are those of the whole matrix."""
    true, guess = _same_length(truth, predicted)
    if len(labels) <= SHOWN:
        return {"labels": list(labels), "confusion": confusion(true, guess, len(labels)).tolist()}
    met = np.bincount(np.concatenate([true, guess]), minlength=len(labels))
    shown = np.sort(np.argsort(-met, kind="stable")[: SHOWN - 1])
    place = np.full(len(labels), SHOWN - 1)
    place[shown] = np.arange(len(shown))
    names = [*(labels[i] for i in shown.tolist()), f"({len(labels) - len(shown):,} other labels)"]
    return {"classes": len(labels), "labels": names, "confusion": confusion(place[true], place[guess], SHOWN).tolist()}


def per_class(truth: ArrayLike, predicted: ArrayLike, classes: int) -> list[ClassScore]:
    """Compute precision, recall, F1 and support of each class id."""
    return class_scores(confusion(truth, predicted, classes))


def class_scores(matrix: ArrayLike) -> list[ClassScore]:
    """Compute precision, recall, F1 and support of each class from a confusion matrix."""
    table = np.asarray(matrix)
    counts = zip(table.diagonal().tolist(), table.sum(0).tolist(), table.sum(1).tolist(), strict=True)
    return [ClassScore(*_shares(right, guessed, true), true) for right, guessed, true in counts]


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> NDArray[np.float64]:
    """Bin predictions by confidence: (bins, 3) of their number, their summed confidence, and how many are right. Bins
    are equally wide; a value on a border belongs to the upper bin."""
    sure, hits = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    place = np.clip((sure * bins).astype(np.int64), 0, bins - 1)
    columns = [np.bincount(place, weights, minlength=bins) for weights in (np.ones(len(sure)), sure, hits)]
    return np.stack(columns, 1)


def calibration_error(sums: ArrayLike) -> float:
    """Compute the expected calibration error (Naeini 2015) from the sums of `reliability`: the mean over predictions of
    the distance between the accuracy and the confidence of their bin."""
    table = np.asarray(sums, np.float64)
    return float(np.abs(table[:, 2] - table[:, 1]).sum() / max(1.0, table[:, 0].sum()))


def macro_f1(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Return the mean F1 of the classes that are true or predicted at least once."""
    true, guess = _same_length(truth, predicted)
    present, ids = np.unique(np.concatenate([true, guess]), return_inverse=True)
    first, second = ids[: len(true)], ids[len(true) :]
    counts = [np.bincount(some, minlength=len(present)) for some in (first[first == second], second, first)]
    return sum(_shares(*row)[2] for row in zip(*(count.tolist() for count in counts), strict=True)) / len(present)


def several(truth_BC: ArrayLike, predicted_BC: ArrayLike) -> dict[str, float]:
    """Score rows with any number of classes, as 0 and 1: the share of rows that are wholly right, micro F1, and macro
    F1 over the classes that are true or predicted at least once."""
    true, guess = np.asarray(truth_BC, bool), np.asarray(predicted_BC, bool)
    right, guessed, there = (one.sum(0).tolist() for one in (true & guess, guess, true))
    counts = [row for row in zip(right, guessed, there, strict=True) if row[1] + row[2]]
    return {
        "accuracy": float((true == guess).all(1).mean()),
        "micro_f1": _shares(sum(right), sum(guessed), sum(there))[2],
        "macro_f1": sum(_shares(*row)[2] for row in counts) / max(1, len(counts)),
    }


# Numbers


def pearson(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson's correlation of two rows of numbers; 0 if one of them is constant."""
    rows = [np.asarray(one, np.float64) for one in (a, b)]
    x, y = (row - row.mean() for row in rows)
    length = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / length if length else 0.0


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's correlation, that of the ranks; equal numbers share their mean rank."""
    return pearson(_ranks(a), _ranks(b))


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    _, place, times = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    return (np.cumsum(times) - (times - 1) / 2)[place]


def _same_length(truth: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    true, guess = np.asarray(truth), np.asarray(predicted)
    if true.shape != guess.shape or true.ndim != 1 or not len(true):
        raise ValueError(
            f"Truth {true.shape} and predictions {guess.shape} must be as long as each other, and not empty."
        )
    return true, guess


def _shares(right: int, predicted: int, true: int) -> tuple[float, float, float]:
    """Compute (precision, recall, F1) from counts."""
    return (
        right / predicted if predicted else 0.0,
        right / true if true else 0.0,
        2 * right / (predicted + true) if predicted + true else 0.0,
    )


# Spans


def span_counts(truth: Sequence[str], predicted: Sequence[str]) -> tuple[int, int, int]:
    """Count the (right, predicted, true) spans of one sentence; right means the same type, start and end."""
    if len(truth) != len(predicted):
        raise ValueError(f"A sentence of {len(truth)} tags got {len(predicted)} predicted tags.")
    true, guess = spans(truth), spans(predicted)
    return len(true & guess), len(guess), len(true)


def span_f1(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScore | None:
    """Compute span F1 over all sentences; None if the tags mark no spans (parts of speech, or O alone)."""
    if len(truth) != len(predicted):
        raise ValueError(f"{len(truth)} sentences got {len(predicted)} predictions.")
    if not mark_spans(tag for sentences in (truth, predicted) for sentence in sentences for tag in sentence):
        return None
    counts = [span_counts(true, guess) for true, guess in zip(truth, predicted, strict=True)]
    return span_score(*(sum(column) for column in zip(*counts, strict=True)))


def span_score(right: int, predicted: int, true: int) -> SpanScore:
    """Compute precision, recall and F1 from counts of spans."""
    return SpanScore(*_shares(right, predicted, true), right, predicted, true)


def span_counts_by_type(
    truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str]
) -> list[list[int]]:
    """Count the right, predicted and true spans of each type, over all sentences."""
    counts = {kind: [0, 0, 0] for kind in types}
    for tags, guess in zip(truth, predicted, strict=True):
        true, guessed = spans(tags), spans(guess)
        for column, found in enumerate((true & guessed, guessed, true)):
            for kind, _, _ in found:
                counts[kind][column] += 1
    return list(counts.values())


def by_type(types: Sequence[str], counts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Compute precision and recall of all spans, and precision, recall and F1 of each type, from its counts."""
    scores = [span_score(*row) for row in counts]
    both = span_score(*(sum(column) for column in zip(*counts, strict=True)))
    rows = [{"type": kind, **score._asdict()} for kind, score in zip(types, scores, strict=True)]
    return {"precision": both.precision, "recall": both.recall, "by_type": rows}

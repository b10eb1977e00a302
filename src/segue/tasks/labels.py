"""Labels of classify and tag: list them, encode them, and refuse those that cannot be learnt or judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.data.config import Label
from segue.data.corpus import Corpus
from segue.data.example import Example, names_of
from segue.errors import InputError, nearest
from segue.inference import metrics


def tags_of(example: Example, label: Label) -> Iterable[str]:
    """Return every tag of a sentence, or class of a text; combined ones (A|B) are taken apart."""
    several = label == "classes" and example.words
    return chain.from_iterable(map(names_of, example.tags)) if several else example.tags


def sorted_labels(found: Iterable[str]) -> tuple[str, ...]:
    """Sort labels; numbers by their value."""
    return tuple(sorted(set(found), key=_as_number))


def _as_number(label: str) -> tuple[Any, ...]:
    return (0, float(label), label) if label.isdecimal() else (1, 0.0, label)


def index_of(index: dict[str, int], label: str, example: Example) -> int:
    """Return the number of a label, or raise an InputError if training never saw it."""
    try:
        return index[label]
    except KeyError:
        raise InputError(
            f"{example.path}:{example.line}: the label '{label}' was never seen in training.{nearest(label, index)}"
        ) from None


def yes_and_no(index: dict[str, int], rows: Sequence[tuple[Example, Iterable[str]]]) -> NDArray[np.uint8]:
    """Return (rows, labels): 1 if a row has the label, else 0."""
    yes = np.zeros((len(rows), len(index)), np.uint8)
    for row, (example, names) in enumerate(rows):
        yes[row, [index_of(index, name, example) for name in names]] = 1
    return yes


def check_two(labels: Sequence[str], path: str) -> None:
    """Refuse data with one label: there is nothing to learn."""
    if len(labels) == 1:
        raise InputError(
            f"Every row of {path} has the label '{labels[0]}': there is nothing to learn. Expected two labels or more; "
            "check the file and data.columns."
        )


def check_some(labels: Sequence[str], path: str) -> None:
    """Refuse data in which no row has a label."""
    if not labels:
        raise InputError(
            f"No row of {path} has a label: there is nothing to learn. Expected labels with commas between them in "
            "some rows; check the file and data.columns."
        )


def check_test(corpus: Corpus, labels: Sequence[str], of: Any) -> None:
    """Refuse, before training, a label of the test file that the training data does not have."""
    if not labels or "test" not in corpus.config.held_out_files():
        return
    known = set(labels)
    for example in corpus.examples("test"):
        for label in of(example):
            if label not in known:
                raise InputError(
                    f"{example.path}:{example.line}: the label '{label}' is not in the training data."
                    f"{nearest(label, known)} Mend the label, or leave the row out."
                )


def check_known(rows: Sequence[Example], truth: Sequence[Sequence[str]], known: Collection[str]) -> None:
    """Refuse a label that the model has never seen in training."""
    for row, labels in zip(rows, truth, strict=True):
        for label in labels:
            if label not in known:
                raise InputError(
                    f"{row.path}:{row.line}: the label '{label[:60]}' was never seen in training."
                    f"{nearest(label, known)} Mend the row, or say which columns to read (data.columns)."
                )


def calibrated(sums: NDArray[np.float64]) -> dict[str, Any]:
    """Return the expected calibration error, and the sums that it is computed from."""
    return {"calibration_error": metrics.calibration_error(sums), "calibration": sums.tolist()}

"""The base class of counted classifiers (naive Bayes, NBSVM, linear, ensemble), and their rows with labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.scorer import Scorer
from segue.errors import InputError
from segue.linear.features import Rows, rows_of_batch, rows_of_column
from segue.models.base import Counted, Sizes

Floats = NDArray[np.float64]


class CountedClassifier(Counted, Scorer):
    """A classifier that trains itself and gives each row one label. A subclass defines `Config`, `fit`, `save`, `load`
    and `rows_logprobs`."""

    family = "counted classifier"
    task = "classify"

    @abstractmethod
    def rows_logprobs(self, rows: Rows) -> Floats:
        """Compute (rows, C) log p of every class."""

    def class_logprobs(self, batch: Batch) -> Floats:
        """Compute (B, C) log p of every class, for a batch."""
        return self.rows_logprobs(rows_of_batch(batch.tokens_BT, batch.mask_BT))

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Floats, Any]:
        """Compute (B,) log p of the targets, 0 at IGNORE."""
        targets = np.asarray(batch.targets)
        logp_BC = self.class_logprobs(batch)
        return np.where(targets == IGNORE, 0.0, logp_BC[np.arange(len(targets)), np.maximum(targets, 0)]), None


class Labelled(NamedTuple):
    """Training rows, held-out rows if any, and the labels of both."""

    training: Rows
    held_out: Rows | None
    labels: NDArray[np.int64]

    @property
    def first_held_out(self) -> int:
        """The place of the first held-out label: the number of training rows."""
        return len(self.training.starts) - 1


def shares(labels: NDArray[np.int64], known: NDArray[np.bool_], classes: int, balanced: bool) -> Floats:
    """Compute (C,) log p of the classes for a text without known features: each class's share among such training
    rows and, as one row more, among all rows. The bias is no substitute: it was learnt together with features."""
    counts, empty = (np.bincount(some, minlength=classes).astype(np.float64) for some in (labels, labels[~known]))
    if balanced:
        counts, empty = np.minimum(counts, 1.0), empty / np.maximum(counts, 1.0)
    found = empty + counts / counts.sum()
    with np.errstate(divide="ignore"):  # a class without a row is never predicted
        return np.asarray(np.maximum(np.log(found / found.sum()), -1e30))


def labelled(sizes: Sizes, store: Any, held_out: Any) -> Labelled:
    """Read the rows of a store, and of a held-out one (or None)."""
    if sizes.label != "class":
        raise InputError(
            f"data.label={sizes.label} is not for this model: it gives each row one class. Leave it out, or train bow."
        )
    labels = [np.asarray(one.columns["label"].flat, np.int64) for one in (store, held_out) if one is not None]
    held_out_rows = rows_of_column(held_out.columns["text"]) if held_out is not None else None
    return Labelled(rows_of_column(store.columns["text"]), held_out_rows, np.concatenate(labels))

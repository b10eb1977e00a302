"""Rows of a store, or of texts that were just typed, laid side by side as one batch.

Rows are padded on the right to the longest of their batch. Without a label or tags, as where a model predicts, every
target is IGNORE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.spelled_words import pad_letters
from segue.batches.store import Column, Columns


def pad(rows: Sequence[NDArray[Any]], fill: int = 0, least: int = 1) -> NDArray[np.int64]:
    """Lay rows side by side, padded on the right to the longest."""
    width = max(least, max((len(row) for row in rows), default=0))
    inner = rows[0].shape[1:] if len(rows) else ()
    out = np.full((len(rows), width, *inner), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def mask_of(rows: Sequence[NDArray[Any]], least: int = 1) -> NDArray[np.bool_]:
    """Make the mask of padded rows: True on real tokens."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return np.arange(max(least, int(lengths.max(initial=0)))) < lengths[:, None]


def classify(columns: Columns, limit: int) -> Batch:
    """One class a row; a yes or no for every class, (B, C); or a number a row, as floats."""
    text = columns["text"].rows(limit)
    if "label" not in columns:
        return Batch(pad(text), np.full(len(text), IGNORE), mask_of(text))
    label = columns["label"].flat
    if label.dtype == np.uint8:  # a yes or no for every class
        label = label.reshape(len(text), -1).astype(np.float32)
    targets = label.astype(np.int64 if label.dtype.kind in "iu" else np.float32)
    # Every number is predicted, and a number may be IGNORE's.
    count = targets.size if targets.dtype.kind == "f" else -1
    return Batch(pad(text), targets, mask_of(text), count=count)


def tag(columns: Columns, limit: int) -> Batch:
    """One tag a word, or a yes or no for every tag, (B, T, C)."""
    text = columns["text"].rows(limit)
    tokens_BT = pad(text)
    targets = np.full_like(tokens_BT, IGNORE)
    if "tags" in columns:
        targets = pad([row[:limit] for row in _tags(columns["tags"], columns["text"])], IGNORE)
    chars_BTC = pad_letters(columns["letters"].rows(), tokens_BT.shape[1]) if "letters" in columns else None
    folded_BT = pad(columns["folded"].rows(limit)) if "folded" in columns else None
    return Batch(tokens_BT, targets, mask_of(text), folded_BT=folded_BT, chars_BTC=chars_BTC)


def _tags(tags: Column, text: Column) -> list[NDArray[Any]]:
    """The tags of each row: (words,), or (words, C) where every tag has a yes or no."""
    if tags.flat.dtype != np.uint8:
        return tags.rows()
    return [row.reshape(len(words), -1) for row, words in zip(tags.rows(), text.rows(), strict=True)]


def seq2seq(columns: Columns, limit: int) -> Batch:
    """STOP y1 … yn predicts y1 … yn STOP, given the source. A row that is cut at `limit` goes on, and has no STOP."""
    source, text = columns["source"].rows(limit), columns["text"].rows()
    stop = np.zeros(1, np.int64)
    inputs = [np.concatenate([stop, row.astype(np.int64)])[: limit + 1] for row in text]
    targets = [np.concatenate([row.astype(np.int64), stop])[: limit + 1] for row in text]
    return Batch(pad(inputs), pad(targets, IGNORE), mask_of(inputs), None, pad(source), mask_of(source))


COLLATES: dict[str, Callable[[Columns, int], Batch]] = {"classify": classify, "tag": tag, "seq2seq": seq2seq}

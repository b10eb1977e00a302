"""Rows side by side: what is read, what is predicted there, and what is padding."""

from __future__ import annotations

import numpy as np

from segue.batches.batch import IGNORE
from segue.batches.collate import classify, seq2seq, tag
from segue.batches.store import columns_of

STOP = 0


def test_classify_pads_on_the_right() -> None:
    batch = classify(columns_of(text=[np.array(row) for row in ([5, 6, 7], [8], [])], label=np.array([1, 0, 2])), 9999)
    assert batch.tokens_BT.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert batch.mask_BT.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert batch.targets.tolist() == [1, 0, 2]
    assert batch.count == 3


def test_tags_are_ignored_where_there_is_no_word() -> None:
    batch = tag(columns_of(text=[np.array([5, 6]), np.array([7])], tags=[np.array([1, 0]), np.array([2])]), 9999)
    assert batch.targets.tolist() == [[1, 0], [2, IGNORE]]
    assert batch.mask_BT.tolist() == [[True, True], [True, False]]
    assert batch.count == 3


def test_seq2seq_is_shifted_by_one_and_ends_with_stop() -> None:
    batch = seq2seq(columns_of(source=[np.array([5, 6]), np.array([7])], text=[np.array([2]), np.array([3, 4])]), 9999)
    assert batch.tokens_BT.tolist() == [[STOP, 2, 0], [STOP, 3, 4]]
    assert batch.targets.tolist() == [[2, STOP, IGNORE], [3, 4, STOP]]
    assert batch.source.tolist() == [[5, 6], [7, 0]]
    assert batch.source_mask.tolist() == [[True, True], [True, False]]
    assert batch.mask_BT.tolist() == [[True, True, False], [True, True, True]]
    assert batch.count == 5


def test_an_empty_batch_of_rows_still_has_a_column() -> None:
    batch = classify(columns_of(text=[np.array([], np.int64)], label=np.array([0])), 9999)
    assert batch.tokens_BT.shape == batch.mask_BT.shape == (1, 1)
    assert not batch.mask_BT.any()


def test_a_batch_becomes_tensors_with_the_same_values() -> None:
    batch = seq2seq(columns_of(source=[np.array([5, 6])], text=[np.array([2])]), 9999)
    moved = batch.to("cpu")
    for name in ("tokens_BT", "targets", "mask_BT", "source", "source_mask"):
        assert getattr(moved, name).tolist() == getattr(batch, name).tolist()
    assert moved.fresh_B is None
    assert moved.count == batch.count


def test_a_translation_that_is_cut_does_not_end_there() -> None:
    columns = columns_of(source=[[6, 7], [8, 9, 10, 11], [12]], text=[[6, 7, 8], [9], [10, 11, 12, 13]])
    batch = seq2seq(columns, 2)
    assert batch.source[batch.source_mask].tolist() == [6, 7, 8, 9, 12]
    assert batch.tokens_BT.tolist() == [[STOP, 6, 7], [STOP, 9, 0], [STOP, 10, 11]]
    assert batch.targets.tolist() == [[6, 7, 8], [9, STOP, IGNORE], [10, 11, 12]]


def test_without_labels_nothing_is_predicted() -> None:
    """As where a model is asked: the same tokens, every target IGNORE."""
    text = [np.array([5, 6]), np.array([7])]
    for collate, targets in ((classify, {"label": [1, 0]}), (tag, {"tags": [[1, 0], [2]]})):
        asked, told = collate(columns_of(text=text), 9), collate(columns_of(text=text, **targets), 9)
        assert asked.tokens_BT.tolist() == told.tokens_BT.tolist() and asked.mask_BT.tolist() == told.mask_BT.tolist()
        assert asked.targets.shape == told.targets.shape and (asked.targets == IGNORE).all() and asked.count == 0

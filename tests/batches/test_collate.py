"""Rows side by side, padded on the right, and which places are real."""

from __future__ import annotations

import numpy as np

from segue.batches.collate import mask_of, pad


def test_rows_are_padded_on_the_right() -> None:
    rows = [np.array(row, np.int64) for row in ([5, 6, 7], [8], [])]
    assert pad(rows).tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert pad(rows, -100).tolist() == [[5, 6, 7], [8, -100, -100], [-100] * 3]
    assert mask_of(rows).tolist() == [[True] * 3, [True, False, False], [False] * 3]


def test_rows_of_rows_are_padded_too() -> None:
    """As where every word has a yes or no for each of several tags."""
    assert pad([np.array([[1, 0], [0, 1]]), np.array([[1, 1]])], 9).tolist() == [[[1, 0], [0, 1]], [[1, 1], [9, 9]]]


def test_rows_without_a_token_still_have_a_column() -> None:
    empty = [np.array([], np.int64)] * 2
    assert pad(empty).tolist() == [[0], [0]] and mask_of(empty).tolist() == [[False], [False]]

"""Framed texts: one window if they fit, else several, which together hold every token."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.codec import Sizes
from segue.batches.store import columns_of
from segue.batches.windows import in_windows
from segue.tasks import task

START = 5000


def sizes_of(window: int, separators: int = 1) -> Sizes:
    return Sizes(START, marks=("start", "mask"), separators=separators, window=window)


def ids(count: int, first: int = 2) -> np.ndarray:
    return np.arange(first, first + count)


def test_a_text_and_a_pair_as_bert_and_roberta_read_them() -> None:
    assert [row.tolist() for row in in_windows(sizes_of(9), ids(2))] == [[START, 2, 3, 0], [0, 0, 0, 0]]
    row, segments = in_windows(sizes_of(9), ids(2), ids(2, 7))
    assert row.tolist() == [START, 2, 3, 0, 7, 8, 0] and segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    row, segments = in_windows(sizes_of(9, separators=2), ids(2), ids(2, 7))
    assert row.tolist() == [START, 2, 3, 0, 0, 7, 8, 0] and segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_ten_tokens_in_windows_of_six() -> None:
    """Four tokens fit beside the frame; three are new in each window after the first."""
    row, _ = in_windows(sizes_of(6), ids(10))
    assert row.reshape(-1, 6).tolist() == [
        [START, 2, 3, 4, 5, 0],
        [START, 5, 6, 7, 8, 0],
        [START, 8, 9, 10, 11, 0],
    ]


@settings(max_examples=50)
@given(st.integers(7, 40), st.integers(0, 200), st.none() | st.integers(0, 200), st.integers(1, 2))
def test_windows_are_full_and_hold_every_token(window: int, first: int, second: int | None, separators: int) -> None:
    sizes = sizes_of(window, separators)
    texts = [ids(first), None if second is None else ids(second, 1000)]
    row, segments = in_windows(sizes, *texts)
    if len(row) <= window:
        expected = sizes.framed(*texts)
        np.testing.assert_array_equal(row, expected[0])
        return
    assert len(row) % window == 0
    for one, which in zip(row.reshape(-1, window), segments.reshape(-1, window), strict=True):
        frame = one[(one == 0) | (one == START)]
        assert frame.tolist() == [START, *[0] * (1 if second is None else 1 + separators)]
        assert which.tolist() == sorted(which.tolist())
        for number, text in enumerate(texts if second is not None else texts[:1]):
            part = one[(which == number) & (one != 0) & (one != START)]
            assert text is not None and (np.diff(part) == 1).all()  # a part of the text, in its order
    read = set(row.tolist()) - {0, START}
    assert read == {int(token) for text in texts if text is not None for token in text} - {0, START}


@pytest.mark.parametrize("length", [20, 53, 300])
def test_neighbours_overlap_by_a_quarter_or_more(length: int) -> None:
    row, _ = in_windows(sizes_of(18), ids(length, 200))
    parts = row.reshape(-1, 18)[:, 1:-1]
    for one, other in pairwise(parts):
        assert len(set(one.tolist()) & set(other.tolist())) >= 4


def test_a_pair_that_is_cut_has_as_many_segments_as_tokens() -> None:
    ids_T, segments_T = in_windows(sizes_of(16), ids(4), ids(4, 7))
    batch = task("classify").collate(columns_of(text=[ids_T], segments=[segments_T]), 6)
    assert batch.segments_BT.tolist() == [[0, 0, 0, 0, 0, 0]] and batch.tokens_BT.shape == (1, 6)

"""The order of rows: everything once an epoch, no memory, other epochs in another order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.order import POOL, rows_at, stream_offset


def epoch_rows(seed: int, epoch: int, size: int, rows: int, lengths: np.ndarray | None) -> list[np.ndarray]:
    return [rows_at(seed, epoch, batch, size, lengths, rows) for batch in range(-(-rows // size))]


def some_lengths(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(1, 50, rows)


@settings(deadline=None, max_examples=80)
@given(
    rows=st.integers(1, 700),
    size=st.integers(1, 9),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 4),
    sort=st.booleans(),
)
def test_every_row_exactly_once_an_epoch(rows: int, size: int, seed: int, epoch: int, sort: bool) -> None:
    batches = epoch_rows(seed, epoch, size, rows, some_lengths(rows) if sort else None)
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(rows))
    # Whole batches, and the short one last.
    assert all(len(batch) == size for batch in batches[:-1])
    assert 1 <= len(batches[-1]) <= size


@pytest.mark.parametrize("sort", [False, True])
def test_it_is_a_pure_function(sort: bool) -> None:
    lengths = some_lengths(100) if sort else None
    forwards = epoch_rows(3, 1, 8, 100, lengths)
    backwards = [rows_at(3, 1, batch, 8, lengths, 100) for batch in reversed(range(13))][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(forwards, backwards, strict=True))


@pytest.mark.parametrize("sort", [False, True])
def test_other_epochs_and_seeds_have_another_order(sort: bool) -> None:
    lengths = some_lengths(100) if sort else None
    keys = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    orders = {tuple(np.concatenate(epoch_rows(seed, epoch, 8, 100, lengths)).tolist()) for seed, epoch in keys}
    assert len(orders) == len(keys)


def test_rows_of_like_length_stand_together() -> None:
    rows, size = 4 * POOL * 8, 8
    lengths = some_lengths(rows)
    padding = {
        sort: sum(
            int((lengths[b].max() - lengths[b]).sum()) for b in epoch_rows(0, 0, size, rows, lengths if sort else None)
        )
        for sort in (False, True)
    }
    assert padding[True] < padding[False] / 10


def test_short_rows_do_not_all_come_first() -> None:
    """Sorted within a pool, but the batches of the pool are shuffled: a curriculum is nobody's wish."""
    rows, size = POOL * 8, 8
    lengths = some_lengths(rows)
    means = [lengths[b].mean() for b in epoch_rows(0, 0, size, rows, lengths)]
    assert means != sorted(means)
    assert abs(np.corrcoef(np.arange(POOL), means)[0, 1]) < 0.6


@settings(deadline=None, max_examples=60)
@given(tokens=st.integers(1, 5000), seed=st.integers(0, 100), epoch=st.integers(0, 10_000))
def test_an_epoch_begins_inside_the_text(tokens: int, seed: int, epoch: int) -> None:
    assert 0 <= stream_offset(seed, epoch, tokens) < tokens
    assert stream_offset(seed, 0, tokens) == 0


def test_epochs_begin_at_different_places() -> None:
    assert len({stream_offset(0, epoch, 97) for epoch in range(97)}) == 97
    assert [stream_offset(0, e, 997) for e in range(5)] != [stream_offset(1, e, 997) for e in range(5)]

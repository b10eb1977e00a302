"""The order of rows: everything once an epoch, no memory, other epochs in another order."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.order import GROUPS, MULTIPLE, POOL, TokenBatches, rows_at, stream_offset


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


# Token batches

lengths_of_rows = st.integers(1, 2).flatmap(
    lambda columns: st.lists(st.lists(st.integers(0, 40), min_size=columns, max_size=columns), min_size=1, max_size=120)
)


def token_batches(lengths: list[list[int]], budget: int, seed: int = 0) -> TokenBatches:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that are longer than the budget
        return TokenBatches.of_lengths(np.array(lengths), budget, seed)


@settings(deadline=None, max_examples=100)
@given(lengths=lengths_of_rows, budget=st.integers(1, 400), seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_token_batches_hold_every_row_once_within_the_budget(
    lengths: list[list[int]], budget: int, seed: int, epoch: int
) -> None:
    batches = token_batches(lengths, budget, seed)
    shapes = set()
    seen: list[int] = []
    for place in range(len(batches)):
        rows, widths = batches.at(epoch, place)
        assert all(lengths[row][k] <= width and width % MULTIPLE == 0 for row in rows for k, width in enumerate(widths))
        assert len(rows) * sum(widths) <= budget or len(rows) == 1
        shapes.add((len(rows), widths))
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(lengths)))
    assert batches.shapes == len(shapes) <= 2 * GROUPS


@settings(deadline=None, max_examples=50)
@given(lengths=lengths_of_rows, budget=st.integers(1, 400), seed=st.integers(0, 3))
def test_a_step_has_the_same_token_batch_after_a_restart(lengths: list[list[int]], budget: int, seed: int) -> None:
    batches = token_batches(lengths, budget, seed)
    steps = [divmod(step, len(batches)) for step in range(3 * len(batches))]
    before = [batches.at(*step) for step in steps]
    for step, (rows, widths) in reversed([*zip(steps, before, strict=True)]):
        again = token_batches(lengths, budget, seed).at(*step)
        assert np.array_equal(again[0], rows) and again[1] == widths


@pytest.mark.parametrize("mean", [(15, 14), (25, 26), (140, 28)])
def test_token_batches_pad_little_have_few_shapes_and_mix_their_rows(mean: tuple[int, int]) -> None:
    """Lengths as those of captions, of talks, and of dialogues with their summaries."""
    draw = np.random.default_rng(0)
    source = draw.gamma(2.5, mean[0] / 2.5, 10_000)
    lengths = np.stack([source, source * mean[1] / mean[0] + draw.normal(0, np.sqrt(mean[1]), 10_000)], 1)
    lengths = np.clip(lengths.astype(np.int64), 1, 1024)
    batches = TokenBatches.of_lengths(lengths, 4096, seed=0)
    epochs = [[batches.at(epoch, place) for place in range(len(batches))] for epoch in range(2)]
    rooms = [len(rows) * sum(widths) for rows, widths in epochs[0]]
    assert 1 - lengths.sum() / sum(rooms) < 0.14
    assert batches.shapes <= 64 < len(batches) and np.mean(rooms) > 0.75 * 4096
    assert [widths for _, widths in epochs[0]] != sorted(widths for _, widths in epochs[0])
    # Rows meet others in the next epoch, though of like lengths.
    batch_of = {int(row): place for place, (rows, _) in enumerate(epochs[1]) for row in rows}
    together = [max(np.bincount([batch_of[int(row)] for row in rows])) / len(rows) for rows, _ in epochs[0]]
    assert np.mean(together) < 0.5


def test_one_long_row_does_not_make_the_batches_of_short_ones_small() -> None:
    batches = token_batches([[4]] * 500 + [[3000]], 4096)
    assert sorted(len(batches.at(0, place)[0]) for place in range(len(batches))) == [1, 500]


def test_rows_longer_than_the_budget_are_told_once() -> None:
    with pytest.warns(
        UserWarning, match=r"2 of 3 rows are longer than batches\.tokens=16: each is a batch of its own"
    ) as said:
        batches = TokenBatches.of_lengths(np.array([[30], [3], [40]]), 16, seed=0)
        found = [batches.at(0, place) for place in range(len(batches))]
    assert len(said) == 1 and sorted(rows.tolist() for rows, _ in found) == [[0], [1], [2]]

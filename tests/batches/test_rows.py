"""Batches of rows: every row once an epoch, the same whenever it is asked for."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Config
from segue.batches.rows import Rows
from segue.batches.store import Store, StoreWriter, columns_of
from segue.tasks import task as task_named

STOP = 0
SOURCES = [[2, 3, 4], [5], [6, 7], [8, 9, 10, 11], [12], [13, 14], [15, 16]]
TARGETS = [[3], [4, 5], [6, 7, 8], [9], [10, 11, 12, 13], [14], []]


def row_store(folder: Path, **columns: list[list[int]]) -> Store:
    writer = StoreWriter(folder, dict.fromkeys(columns, "int32"))
    for name, rows in columns.items():
        writer.append(name, np.array([*chain(*rows)], np.int64), np.array([len(row) for row in rows]))
    return writer.close()


def rows_batches(folder: Path, task: str, config: Config) -> Rows:
    columns = {
        "classify": {"text": SOURCES, "label": [[i] for i in range(7)]},
        "tag": {"text": SOURCES, "tags": [[word % 3 for word in row] for row in SOURCES]},
        "seq2seq": {"source": SOURCES, "text": TARGETS},
    }[task]
    batches = task_named(task).batches(row_store(folder, **columns), config, 1)
    assert isinstance(batches, Rows)
    return batches


def seen_rows(parts: list[Batch], task: str) -> list[tuple]:
    """Each row of the parts, without its padding."""
    out = []
    for part in parts:
        for i in range(len(part.tokens_BT)):
            words = tuple(part.tokens_BT[i][part.mask_BT[i]].tolist())
            if task == "classify":
                out.append((words, int(part.targets[i])))
            elif task == "tag":
                out.append((words, tuple(part.targets[i][part.mask_BT[i]].tolist())))
                assert (part.targets[i][~part.mask_BT[i]] == IGNORE).all()
            else:
                targets = part.targets[i][part.mask_BT[i]].tolist()
                assert [*words[1:], STOP] == targets
                out.append((tuple(part.source[i][part.source_mask[i]].tolist()), words[1:]))
    return out


def expected_rows(task: str) -> list[tuple]:
    if task == "classify":
        return [(tuple(row), i) for i, row in enumerate(SOURCES)]
    if task == "tag":
        return [(tuple(row), tuple(word % 3 for word in row)) for row in SOURCES]
    return [(tuple(a), tuple(b)) for a, b in zip(SOURCES, TARGETS, strict=True)]


@pytest.mark.parametrize("task", ["classify", "tag", "seq2seq"])
@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_row_once_an_epoch_in_whatever_parts(task: str, accumulate: int, epoch: int, tmp_path: Path) -> None:
    batches = rows_batches(tmp_path, task, Config(3, 100, accumulate))
    assert batches.per_epoch == 3
    updates = [batches.at(epoch * 3 + place) for place in range(3)]
    assert sorted(row for parts in updates for row in seen_rows(parts, task)) == sorted(expected_rows(task))
    # The last update has one row, which cannot be split.
    assert [len(parts) for parts in updates] == [accumulate, accumulate, 1]


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_rows_are_cut_at_length(task: str, tmp_path: Path) -> None:
    whole = dict(zip((words[:2] for words, _ in expected_rows(task)), (t for _, t in expected_rows(task)), strict=True))
    batches = rows_batches(tmp_path, task, Config(7, 2))
    for words, target in seen_rows(batches.at(0), task):
        assert len(words) <= 2
        assert target == (whole[words][:2] if task == "tag" else whole[words])


@pytest.mark.parametrize("task", ["classify", "tag", "seq2seq"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_token_batches_are_rows_padded_to_rounded_lengths(task: str, accumulate: int, tmp_path: Path) -> None:
    batches = rows_batches(tmp_path, task, Config(3, 100, accumulate, tokens=24))
    again = rows_batches(tmp_path, task, Config(3, 100, accumulate, tokens=24))
    for epoch in range(2):
        updates = [batches.at(epoch * batches.per_epoch + place) for place in range(batches.per_epoch)]
        assert sorted(row for parts in updates for row in seen_rows(parts, task)) == sorted(expected_rows(task))
        for place, parts in enumerate(updates):
            widths = {tuple(array.shape[1:] for array in part.arrays().values()) for part in parts}
            assert len(widths) == 1  # all parts of an update have one shape
            room = sum(x.size for part in parts for x in (part.tokens_BT, part.source) if x is not None)
            assert room <= 24 and all(part.tokens_BT.shape[1] % 4 == 0 for part in parts)
            for one, other in zip(parts, again.at(epoch * batches.per_epoch + place), strict=True):
                assert one.count == other.count == int((one.targets != IGNORE).sum())
                assert all(np.array_equal(x, other.arrays()[name]) for name, x in one.arrays().items())
    shapes = {tuple(x.shape for x in batches.at(step)[0].arrays().values()) for step in range(batches.per_epoch)}
    assert accumulate > 1 or batches.shapes == len(shapes)
    assert rows_batches(tmp_path, task, Config(3, 100)).shapes is None


def test_token_batches_of_cut_rows_keep_their_budget(tmp_path: Path) -> None:
    """Of a target that is cut, the input still begins with STOP: one place more than the limit."""
    batches = rows_batches(tmp_path, "seq2seq", Config(3, 3, tokens=16))
    for step in range(batches.per_epoch):
        (batch,) = batches.at(step)
        assert batch.tokens_BT.shape[1] == 4 and batch.source.shape[1] == 4 and len(batch.tokens_BT) <= 2


def test_what_is_for_a_whole_row_is_not_padded(tmp_path: Path) -> None:
    """A yes or no for each of several classes, though there be as many classes as tokens."""
    columns = columns_of(text=[[5, 6], [7]], label=np.array([[1, 0], [0, 1]], np.uint8))
    batch = task_named("classify").collate(columns, 9).padded(4)
    assert batch.targets.tolist() == [[1, 0], [0, 1]] and batch.count == 4
    assert batch.tokens_BT.tolist() == [[5, 6, 0, 0], [7, 0, 0, 0]] and batch.mask_BT.sum() == 3


def test_rounded_widths_give_few_shapes_and_the_same_rows(tmp_path: Path) -> None:
    """Up to a multiple of 8, up to the window, or to a multiple of it."""
    lengths = [1, 7, 8, 9, 14, 20, 19, 40]
    store = row_store(tmp_path, text=[[2] * length for length in lengths], label=[[0]] * 8)
    plain, rounded = (task_named("classify").batches(store, Config(size=1, length=99), 1) for _ in range(2))
    assert isinstance(rounded, Rows) and plain.shapes is None
    rounded.round_widths(20)
    wide = {}
    for step in range(8):
        ((one,), (other,)) = plain.at(step), rounded.at(step)
        length = one.tokens_BT.shape[1]
        wide[length] = other.tokens_BT.shape[1]
        np.testing.assert_array_equal(other.tokens_BT[:, :length], one.tokens_BT)
        assert not other.mask_BT[:, length:].any() and other.mask_BT[:, :length].all()
    assert wide == {1: 8, 7: 8, 8: 8, 9: 16, 14: 16, 19: 20, 20: 20, 40: 40}
    assert rounded.shapes == 4

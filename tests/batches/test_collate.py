"""Batches: what is read, what is predicted there, and that nothing is lost or made up on the way."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import IGNORE, Batch
from segue.batches.collate import Batches, Config, classify, seq2seq, settled, tag
from segue.batches.store import Store, StoreWriter

STOP, UNK = 0, 1


def text_store(folder: Path, count: int) -> Store:
    """Running text in which every token is different: 1, 2, 3 … (0 is STOP, which it never holds)."""
    writer = StoreWriter(folder, {"text": "uint32"})
    writer.append("text", np.arange(1, count + 1))
    return writer.close()


def row_store(folder: Path, **columns: list[list[int]]) -> Store:
    writer = StoreWriter(folder, dict.fromkeys(columns, "int32"))
    for name, rows in columns.items():
        writer.append(name, np.array([*chain(*rows)], np.int64), np.array([len(row) for row in rows]))
    return writer.close()


def joined(parts: list[Batch]) -> Batch:
    """The parts of an update, one under the other."""
    fields = [f for f in ("tokens_BT", "targets", "mask_BT", "fresh_B") if getattr(parts[0], f) is not None]
    return Batch(**{"fresh_B": None, **{f: np.concatenate([getattr(part, f) for part in parts]) for f in fields}})


def epoch_of(batches: Batches, epoch: int) -> list[Batch]:
    first = epoch * batches.per_epoch
    return [joined(batches.at(step)) for step in range(first, first + batches.per_epoch)]


# Running text

streams = given(
    count=st.one_of(st.integers(1, 12), st.integers(1, 400)),
    size=st.integers(1, 40),
    length=st.integers(1, 50),
    accumulate=st.integers(1, 4),
    epoch=st.integers(0, 5),
    seed=st.integers(0, 3),
)


def stream(folder: Path, count: int, size: int, length: int, accumulate: int = 1, seed: int = 0) -> Batches:
    return Batches(text_store(folder, count), "lm", Config(size, length, min(accumulate, size)), seed)


@settings(deadline=None, max_examples=150)
@streams
def test_streams_are_the_text(count, size, length, accumulate, epoch, seed, tmp_path_factory) -> None:
    """All that must hold of running text, for texts of one token and up."""
    batches = stream(tmp_path_factory.mktemp("s"), count, size, length, accumulate, seed)
    steps = epoch_of(batches, epoch)
    inputs, targets = (np.concatenate([getattr(b, f) for b in steps], axis=1) for f in ("tokens_BT", "targets"))
    # Each target is the token after its input; before the first token of all stands STOP.
    assert np.array_equal(targets, inputs + 1)
    # A row is contiguous from step to step, its targets being the next inputs; after the text's end it begins again.
    assert np.array_equal(inputs[:, 1:], np.where(targets[:, :-1] == count, STOP, targets[:, :-1]))
    # No token twice an epoch, and fewer left out than there are rows.
    seen = Counter(targets.ravel().tolist())
    assert set(seen.values()) == {1}
    assert set(seen) <= set(range(1, count + 1))
    assert count - len(seen) < len(targets)
    # Windows are never empty or longer than asked for; all of it is real.
    assert all(1 <= b.tokens_BT.shape[1] <= length and b.mask_BT.all() for b in steps)
    assert [b.fresh_B.tolist() for b in steps] == [[place == 0] * len(targets) for place in range(len(steps))]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_texts_of_a_few_tokens(count: int, accumulate: int, tmp_path: Path) -> None:
    batches = stream(tmp_path, count, 32, 128, accumulate)
    assert batches.per_epoch == 1
    for step in range(20):
        batch = joined(batches.at(step))
        assert sorted(batch.targets.ravel().tolist()) == list(range(1, count + 1))


def test_the_first_epoch_begins_with_stop_and_the_first_token(tmp_path: Path) -> None:
    batch = stream(tmp_path, 10, 2, 3).at(0)[0]
    assert batch.tokens_BT.tolist() == [[STOP, 1, 2], [5, 6, 7]]
    assert batch.targets.tolist() == [[1, 2, 3], [6, 7, 8]]
    assert stream(tmp_path, 10, 2, 3).at(1)[0].targets.tolist() == [[4, 5], [9, 10]]


def test_windows_of_two_epochs_fall_on_different_places(tmp_path: Path) -> None:
    batches = stream(tmp_path, 200, 4, 10)
    firsts = {tuple(batches.at(epoch * batches.per_epoch)[0].targets[:, 0].tolist()) for epoch in range(6)}
    assert len(firsts) == 6


def test_steps_can_be_had_in_any_order(tmp_path: Path) -> None:
    batches, again = stream(tmp_path, 100, 3, 7), stream(tmp_path, 100, 3, 7)
    forwards = [batches.at(step)[0] for step in range(20)]
    for step in reversed(range(20)):
        batch = again.at(step)[0]
        assert np.array_equal(batch.tokens_BT, forwards[step].tokens_BT)
        assert np.array_equal(batch.targets, forwards[step].targets)


def test_another_seed_is_another_order(tmp_path: Path) -> None:
    a, b = (stream(tmp_path, 100, 3, 7, seed=seed) for seed in (0, 1))
    assert not np.array_equal(a.at(a.per_epoch)[0].targets, b.at(b.per_epoch)[0].targets)


# Rows

SOURCES = [[2, 3, 4], [5], [6, 7], [8, 9, 10, 11], [12], [13, 14], [15, 16]]
TARGETS = [[3], [4, 5], [6, 7, 8], [9], [10, 11, 12, 13], [14], []]


def test_classify_pads_on_the_right() -> None:
    batch = classify([np.array(row) for row in ([5, 6, 7], [8], [])], np.array([1, 0, 2]))
    assert batch.tokens_BT.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert batch.mask_BT.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert batch.targets.tolist() == [1, 0, 2]
    assert batch.count == 3


def test_tags_are_ignored_where_there_is_no_word() -> None:
    batch = tag([np.array([5, 6]), np.array([7])], [np.array([1, 0]), np.array([2])])
    assert batch.targets.tolist() == [[1, 0], [2, IGNORE]]
    assert batch.mask_BT.tolist() == [[True, True], [True, False]]
    assert batch.count == 3


def test_seq2seq_is_shifted_by_one_and_ends_with_stop() -> None:
    batch = seq2seq([np.array([5, 6]), np.array([7])], [np.array([2]), np.array([3, 4])])
    assert batch.tokens_BT.tolist() == [[STOP, 2, 0], [STOP, 3, 4]]
    assert batch.targets.tolist() == [[2, STOP, IGNORE], [3, 4, STOP]]
    assert batch.source.tolist() == [[5, 6], [7, 0]]
    assert batch.source_mask.tolist() == [[True, True], [True, False]]
    assert batch.mask_BT.tolist() == [[True, True, False], [True, True, True]]
    assert batch.count == 5


def test_an_empty_batch_of_rows_still_has_a_column() -> None:
    batch = classify([np.array([], np.int64)], np.array([0]))
    assert batch.tokens_BT.shape == batch.mask_BT.shape == (1, 1)
    assert not batch.mask_BT.any()


def test_a_batch_becomes_tensors_with_the_same_values() -> None:
    batch = seq2seq([np.array([5, 6])], [np.array([2])])
    moved = batch.to("cpu")
    for name in ("tokens_BT", "targets", "mask_BT", "source", "source_mask"):
        assert getattr(moved, name).tolist() == getattr(batch, name).tolist()
    assert moved.fresh_B is None
    assert moved.count == batch.count


def rows_batches(folder: Path, task: str, config: Config) -> Batches:
    columns = {
        "classify": {"text": SOURCES, "label": [[i] for i in range(7)]},
        "tag": {"text": SOURCES, "tags": [[word % 3 for word in row] for row in SOURCES]},
        "seq2seq": {"source": SOURCES, "text": TARGETS},
    }[task]
    return Batches(row_store(folder, **columns), task, config, seed=1)


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


def test_a_translation_that_is_cut_does_not_end_there(tmp_path: Path) -> None:
    batch = rows_batches(tmp_path, "seq2seq", Config(7, 2)).of_rows(np.array([2, 3, 4]))
    assert batch.source[batch.source_mask].tolist() == [6, 7, 8, 9, 12]
    assert batch.tokens_BT.tolist() == [[STOP, 6, 7], [STOP, 9, 0], [STOP, 10, 11]]
    assert batch.targets.tolist() == [[6, 7, 8], [9, STOP, IGNORE], [10, 11, 12]]


# The recipe's section


@pytest.mark.parametrize("values", [{"size": -1}, {"length": -1}, {"accumulate": 0}])
def test_impossible_values_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="or more"):
        Config(**values)


def test_defaults_depend_on_the_task() -> None:
    assert settled(Config(), "lm") == Config(32, 128, 1)
    assert settled(Config(), "tag") == Config(64, 1024, 1)
    assert settled(Config(5, 6, 2), "tag") == Config(5, 6, 2)
    with pytest.raises(ValueError, match="accumulate=40"):
        settled(Config(accumulate=40), "lm")


def test_blanks_are_read_as_unknown_and_predicted_as_they_are(tmp_path: Path) -> None:
    store = text_store(tmp_path, 6_000)
    plain, blanked = (Batches(store, "lm", Config(20, 50, blank=share), seed=3) for share in (0.0, 0.3))
    blanks = []
    for step in range(2 * plain.per_epoch):
        (old,), (new,), (again,) = plain.at(step), blanked.at(step), blanked.at(step)
        assert np.array_equal(new.targets, old.targets) and np.array_equal(new.tokens_BT, again.tokens_BT)
        blanks.append(new.tokens_BT == UNK)
        assert np.array_equal(new.tokens_BT[~blanks[-1]], old.tokens_BT[~blanks[-1]])
    assert abs(np.concatenate(blanks).mean() - 0.3) < 0.02
    assert not any(np.array_equal(one, other) for one, other in pairwise(blanks))
    other = Batches(store, "lm", Config(20, 50, blank=0.3), seed=4)
    assert not np.array_equal(other.at(0)[0].tokens_BT == UNK, blanks[0])


def test_blanks_are_for_running_text() -> None:
    assert settled(Config(blank=0.1), "lm") == Config(32, 128, 1, blank=0.1)
    with pytest.raises(ValueError, match=r"blank=0\.1 is for running text, and tag reads rows"):
        settled(Config(blank=0.1), "tag")
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="is not a share"):
            Config(blank=share)


@pytest.mark.parametrize(("accumulate", "vary", "blank"), [(1, False, 0.0), (3, False, 0.2), (2, True, 0.2)])
def test_text_held_on_the_device_gives_the_same_batches(
    tmp_path: Path, accumulate: int, vary: bool, blank: float
) -> None:
    store = text_store(tmp_path, 331)
    told, held = (Batches(store, "lm", Config(5, 7, accumulate, vary, blank), seed=3) for _ in range(2))
    held.hold("cpu")
    for step in range(2 * told.per_epoch + 1):
        for ours, theirs in zip(held.at(step), told.at(step), strict=True):
            for name in ("tokens_BT", "targets", "mask_BT", "fresh_B"):
                assert np.array_equal(getattr(ours, name).numpy(), getattr(theirs, name))
            assert ours.full and ours.count == theirs.targets.size

"""Span corruption: T5's own lengths, that nothing of a text is lost, and texts of any length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import Batch
from segue.batches.batches import Config
from segue.batches.codec import Sizes
from segue.batches.spans import SpanRows, corrupted, hidden_of, restored, source_length, target_length, tokens_read
from segue.batches.store import StoreWriter
from segue.errors import InputError

VOCAB = 50
SIZES = Sizes(VOCAB, marks=("start", *(f"span{i}" for i in range(100))))
SENTINELS = np.arange(VOCAB + 1, VOCAB + 101)


def rows_of(folder: Path, ids: Any, **keys: Any) -> SpanRows:
    writer = StoreWriter(folder, {"text": "uint16"})
    writer.append("text", np.asarray(ids))
    return SpanRows(writer.close(), Config(**{"size": 4, "length": 64, "noise": "spans", **keys}), 1, SIZES)


def texts(batch: Batch) -> list[list[int]]:
    """The text of each row, put together again from source and target."""
    known = set(SENTINELS.tolist())
    pairs = zip(batch.source.tolist(), batch.targets.tolist(), strict=True)
    return [restored(source, target, sorted(known)) for source, target in pairs]


def test_the_lengths_are_those_of_the_paper() -> None:
    assert tokens_read(512, 0.15) == 568
    assert (source_length(568, 0.15), target_length(568, 0.15)) == (512, 114)
    assert hidden_of(568, 0.15) == (85, 28)


def test_every_length_of_a_source_is_met_exactly() -> None:
    for share in (0.1, 0.15, 0.3, 0.5):
        for length in range(8, 600, 7):
            assert source_length(tokens_read(length, share), share) == length


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.floats(0.01, 0.5), st.integers(0, 5))
def test_source_and_target_give_the_text_back(length: int, share: float, seed: int) -> None:
    tokens_BT = np.random.default_rng(seed).integers(0, VOCAB, (3, length))
    source_BS, target_BT = corrupted(tokens_BT, share, SENTINELS, 0, np.random.default_rng(seed))
    hidden, spans = hidden_of(length, share)
    assert source_BS.shape == (3, length - hidden + spans + 1) and target_BT.shape == (3, hidden + spans + 1)
    for tokens, source, target in zip(tokens_BT.tolist(), source_BS.tolist(), target_BT.tolist(), strict=True):
        assert restored(source, target, SENTINELS.tolist()) == tokens
        assert source[-1] == target[-1] == 0
        listed = [token for token in target if token > VOCAB]
        assert listed == SENTINELS[:spans].tolist() == [token for token in source if token > VOCAB]


def test_spans_have_a_mean_length_of_three_and_never_touch() -> None:
    tokens_BT = np.full((200, 568), 7)
    source_BS, target_BT = corrupted(tokens_BT, 0.15, SENTINELS, 0, np.random.default_rng(0))
    is_sentinel = target_BT > VOCAB
    lengths = np.diff(np.flatnonzero(is_sentinel.ravel()))
    assert lengths.min() >= 2  # a sentinel and at least one token
    assert abs(np.concatenate([np.diff(np.flatnonzero(row)) - 1 for row in is_sentinel]).mean() - 85 / 28) < 0.1
    assert not ((source_BS[:, 1:] > VOCAB) & (source_BS[:, :-1] > VOCAB)).any()
    assert (source_BS[:, 0] < VOCAB).all()


def test_all_rows_have_one_shape_and_an_epoch_reads_the_whole_text(tmp_path: Path) -> None:
    ids = 2 + np.arange(1500) % 40
    rows = rows_of(tmp_path, ids)
    seen = []
    for step in range(rows.per_epoch):
        (batch,) = rows.at(step)
        assert batch.source.shape == (4, 64) and batch.targets.shape == (4, target_length(rows.room, 0.15))
        assert batch.unpadded and batch.source_unpadded and batch.count == batch.targets.size
        assert (batch.tokens_BT[:, 0] == 0).all() and np.array_equal(batch.tokens_BT[:, 1:], batch.targets[:, :-1])
        seen += texts(batch)
    counts = np.bincount(np.concatenate(seen), minlength=42)[2:]
    assert sum(map(len, seen)) >= 1500 and counts.min() >= 1500 // 40


def test_a_batch_follows_from_seed_and_step_and_parts_make_no_difference(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(2, 40, 1000)
    whole, parts = rows_of(tmp_path / "a", ids), rows_of(tmp_path / "b", ids, accumulate=2)
    for step in (0, 3, whole.per_epoch + 1):
        (one,) = whole.at(step)
        several = parts.at(step)
        assert len(several) == 2
        for name, array in one.arrays().items():
            assert np.array_equal(array, np.concatenate([part.arrays()[name] for part in several]))
    (first,), (later,) = whole.at(0), whole.at(whole.per_epoch)
    assert not np.array_equal(first.source, later.source)  # each epoch hides other spans


@pytest.mark.parametrize("length", [1, 2, 3, 10])
def test_a_short_text_is_read_whole(tmp_path: Path, length: int) -> None:
    rows = rows_of(tmp_path, np.arange(2, 2 + length))
    (batch,) = rows.at(0)
    assert sorted(texts(batch)[0]) == list(range(2, 2 + length))


def test_more_spans_than_sentinels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hidden spans, and this model has 100 sentinels \(model\.spans\)"):
        rows_of(tmp_path, np.arange(2, 20_000) % 40 + 2, length=4000)

"""Steps of drawn length: still the whole text, in order, at any step at once; and near the paper's distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batches import Config
from segue.batches.store import StoreWriter
from segue.batches.streams import Streams, varied


def batches_of(folder: Path, count: int, size: int, length: int, seed: int = 0, accumulate: int = 1) -> Streams:
    """Running text in which every token is different: 1, 2, 3 …"""
    writer = StoreWriter(folder, {"text": "uint32"})
    writer.append("text", np.arange(1, count + 1))
    return Streams(writer.close(), Config(size, length, accumulate, vary=True), seed)


@settings(deadline=None, max_examples=100)
@given(
    count=st.one_of(st.integers(1, 12), st.integers(1, 3000)),
    size=st.integers(1, 20),
    length=st.integers(1, 80),
    epoch=st.integers(0, 5),
    seed=st.integers(-2, 3),
)
def test_an_epoch_is_the_text_in_steps_that_are_never_empty(count, size, length, epoch, seed, tmp_path_factory) -> None:
    batches = batches_of(tmp_path_factory.mktemp("v"), count, size, length, seed)
    first = epoch * batches.per_epoch
    steps = [batches.at(step)[0] for step in range(first, first + batches.per_epoch)]
    assert all(step.tokens_BT.shape[1] >= 1 for step in steps)
    inputs, targets = (np.concatenate([getattr(b, f) for b in steps], axis=1) for f in ("tokens_BT", "targets"))
    assert np.array_equal(targets, inputs + 1)
    assert np.array_equal(inputs[:, 1:], np.where(targets[:, :-1] == count, 0, targets[:, :-1]))
    assert targets.shape == (batches.size, batches.columns)
    assert len(np.unique(targets)) == targets.size
    assert [step.fresh_B.all() for step in steps] == [place == 0 for place in range(len(steps))]


def test_any_step_at_once_and_another_seed_or_epoch_is_other_lengths(tmp_path: Path) -> None:
    batches, again = batches_of(tmp_path, 5000, 5, 70), batches_of(tmp_path, 5000, 5, 70)
    lengths = [batches.at(step)[0].tokens_BT.shape[1] for step in range(45)]
    assert [again.at(step)[0].tokens_BT.shape[1] for step in reversed(range(45))] == lengths[::-1]
    assert batches.per_epoch == 15 and sum(lengths[:15]) == sum(lengths[15:30]) == 1000
    assert lengths[:15] != lengths[15:30]
    other = batches_of(tmp_path, 5000, 5, 70, seed=1)
    assert [other.at(step)[0].tokens_BT.shape[1] for step in range(15)] != lengths[:15]


def test_lengths_are_drawn_as_the_paper_draws_them() -> None:
    """N(70, 5), with a probability of one in twenty N(35, 5): here and by the paper's own loop."""
    columns = 1_000_000
    steps = -(-columns * 1000 // 68250)
    mine = np.diff(varied(0, 3, steps, columns))
    draw = np.random.default_rng(1)
    theirs = [max(5, int(draw.normal(70 if draw.random() < 0.95 else 35, 5))) for _ in range(steps)]
    short = mine < 52
    assert abs(short.mean() - 0.05) < 0.006
    assert abs(short.mean() - np.mean(np.array(theirs) < 52)) < 0.008
    for part, centre in ((mine[~short], 70), (mine[short], 35)):
        assert abs(part.mean() - centre) < 0.8
        assert abs(part.std() - 5) < 0.4


def test_parts_of_an_update_have_the_same_length(tmp_path: Path) -> None:
    parts = batches_of(tmp_path, 3000, 6, 30, accumulate=3).at(2)
    assert len(parts) == 3 and len({part.tokens_BT.shape for part in parts}) == 1


def test_the_rate_goes_with_the_length(tmp_path: Path) -> None:
    batches = batches_of(tmp_path, 5000, 5, 70)
    for step in range(10):
        parts = batches.at(step)
        assert batches.rate_share(parts) == parts[0].tokens_BT.shape[1] / 70
    plain = Streams(batches.store, Config(5, 70), 0)
    last = plain.at(plain.per_epoch - 1)
    assert last[0].tokens_BT.shape[1] < 70 and plain.rate_share(last) == 1.0

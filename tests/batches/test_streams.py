"""Running text: what is read, what is predicted there, and that nothing is lost or made up on the way."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import Batch
from segue.batches.batches import Batches, Config
from segue.batches.noise import Noise
from segue.batches.store import Store, StoreWriter
from segue.batches.streams import Streams

STOP, UNK = 0, 1


def text_store(folder: Path, count: int) -> Store:
    """Running text in which every token is different: 1, 2, 3 … (0 is STOP, which it never holds)."""
    writer = StoreWriter(folder, {"text": "uint32"})
    writer.append("text", np.arange(1, count + 1))
    return writer.close()


def joined(parts: list[Batch]) -> Batch:
    """The parts of an update, one under the other."""
    fields = [f for f in ("tokens_BT", "targets", "mask_BT", "fresh_B") if getattr(parts[0], f) is not None]
    return Batch(**{"fresh_B": None, **{f: np.concatenate([getattr(part, f) for part in parts]) for f in fields}})


def epoch_of(batches: Batches, epoch: int) -> list[Batch]:
    first = epoch * batches.per_epoch
    return [joined(batches.at(step)) for step in range(first, first + batches.per_epoch)]


streams = given(
    count=st.one_of(st.integers(1, 12), st.integers(1, 400)),
    size=st.integers(1, 40),
    length=st.integers(1, 50),
    accumulate=st.integers(1, 4),
    epoch=st.integers(0, 5),
    seed=st.integers(0, 3),
)


def stream(folder: Path, count: int, size: int, length: int, accumulate: int = 1, seed: int = 0) -> Streams:
    return Streams(text_store(folder, count), Config(size, length, min(accumulate, size)), seed)


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


def test_blanks_are_read_as_unknown_and_predicted_as_they_are(tmp_path: Path) -> None:
    store = text_store(tmp_path, 6_000)
    plain, blanked = (Streams(store, Config(20, 50, noise=noise, share=0.3), seed=3) for noise in ("none", "blank"))
    blanks = []
    for step in range(2 * plain.per_epoch):
        (old,), (new,), (again,) = plain.at(step), blanked.at(step), blanked.at(step)
        assert np.array_equal(new.targets, old.targets) and np.array_equal(new.tokens_BT, again.tokens_BT)
        blanks.append(new.tokens_BT == UNK)
        assert np.array_equal(new.tokens_BT[~blanks[-1]], old.tokens_BT[~blanks[-1]])
    assert abs(np.concatenate(blanks).mean() - 0.3) < 0.02
    assert not any(np.array_equal(one, other) for one, other in pairwise(blanks))
    other = Streams(store, Config(20, 50, noise="blank", share=0.3), seed=4)
    assert not np.array_equal(other.at(0)[0].tokens_BT == UNK, blanks[0])


@pytest.mark.parametrize(("accumulate", "vary", "noise"), [(1, False, "none"), (3, False, "blank"), (2, True, "blank")])
def test_text_kept_on_the_device_gives_the_same_batches(
    tmp_path: Path, accumulate: int, vary: bool, noise: Noise
) -> None:
    store = text_store(tmp_path, 331)
    sent, kept = (Streams(store, Config(5, 7, accumulate, vary, noise), seed=3) for _ in range(2))
    kept.keep_on("cpu")
    for step in range(2 * sent.per_epoch + 1):
        for ours, theirs in zip(kept.at(step), sent.at(step), strict=True):
            for name in ("tokens_BT", "targets", "mask_BT", "fresh_B"):
                assert np.array_equal(getattr(ours, name).numpy(), getattr(theirs, name))
            assert ours.unpadded and ours.count == theirs.targets.size


@pytest.mark.parametrize(("count", "length"), [(40, 10), (47, 10), (8, 10), (400, 7)])
def test_the_shapes_of_streams_are_counted(tmp_path: Path, count: int, length: int) -> None:
    batches = stream(tmp_path, count, 4, length)
    assert batches.shapes == len({batches.at(step)[0].tokens_BT.shape for step in range(2 * batches.per_epoch)})


def test_most_drawn_lengths_are_among_the_shapes_of_streams(tmp_path: Path) -> None:
    batches = Streams(text_store(tmp_path, 90_000), Config(4, 70, vary=True), seed=0)
    found = {batches.at(step)[0].tokens_BT.shape for step in range(batches.per_epoch)}
    assert batches.shapes is not None and len(found) <= batches.shapes <= 64

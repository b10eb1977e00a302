"""SpecAugment: pure in seed, epoch and row; masks, speeds and warps within their limits; rows fit into batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from segue.batches import specaugment
from segue.batches.batch import Batch
from segue.batches.batches import Config
from segue.batches.rows import Rows
from segue.batches.specaugment import FASTEST, MASKS, SLOWEST, SpecAugment
from segue.batches.store import Columns, Store, StoreWriter

MELS = 80
LENGTHS = [1, 2, 7, 40, 33, 60, 25, 50, 18, 40]


def store_of(folder: Path, frames: list[NDArray[np.float32]]) -> Store:
    writer = StoreWriter(folder, {"source": "float32", "text": "uint16"}, {"source": MELS})
    lengths = np.array([len(row) for row in frames])
    writer.append("source", np.concatenate(frames).reshape(-1), lengths)
    writer.append("text", np.arange(len(frames)), np.ones(len(frames), np.int64))
    return writer.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    draw = np.random.default_rng(0)
    return store_of(tmp_path, [draw.normal(size=(n, MELS)).astype(np.float32) for n in LENGTHS])


def drawn(
    store: Store, rows: list[int], epoch: int = 0, seed: int = 1, share: float = 0.15
) -> list[NDArray[np.float32]]:
    places = np.array(rows)
    return SpecAugment(store, seed, share, 1000)(store.take(places), epoch, places)["source"].rows()


def still(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Switch off what these constants say, pauses, and changes of the recording."""
    for name in (*names, "BLUR", "TONE", "HISS", "PAUSE"):
        monkeypatch.setattr(specaugment, name, 1.0 if name in ("SLOWEST", "FASTEST") else 0)


def test_a_row_follows_from_seed_epoch_and_row(store: Store) -> None:
    every = drawn(store, list(range(10)))
    for row, frames in zip([7, 3, 0, 5], drawn(store, [7, 3, 0, 5]), strict=True):
        assert frames.tobytes() == every[row].tobytes()
    assert not np.array_equal(drawn(store, [3], epoch=1)[0], every[3])
    assert not np.array_equal(drawn(store, [3], seed=2)[0], every[3])
    # rows 3 and 9 have the same number of frames, and each its own draw
    assert len({len(frames) for epoch in range(4) for frames in drawn(store, [3, 9], epoch)}) > 4


def test_other_columns_and_the_store_stay(store: Store) -> None:
    rows = np.array([4, 2])
    columns = store.take(rows)
    before = columns["source"].flat.copy()
    new = SpecAugment(store, 1, 0.15, 1000)(columns, 0, rows)
    assert new["text"] is columns["text"] and np.array_equal(columns["source"].flat, before)
    assert new["source"].width == MELS and new["source"].flat.dtype == np.float32


def test_lengths_change_by_the_factors_and_fit_what_is_expected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch)
    own = np.array(LENGTHS)
    lengths_EN = np.array([[len(frames) for frames in drawn(store, list(range(10)), epoch)] for epoch in range(200)])
    assert (lengths_EN >= np.maximum(1, np.rint(own * FASTEST))).all()
    most = SpecAugment(store, 1, 0.15, 1000).expected("source")
    assert np.array_equal(lengths_EN.max(0), most) and np.array_equal(most, np.rint(own * SLOWEST))
    assert lengths_EN[:, 5].mean() / 60 == pytest.approx((FASTEST + SLOWEST) / 2, abs=0.02)
    cut = SpecAugment(store, 1, 0.15, 30)
    assert cut.expected("source").max() == 30 and cut.expected("text").tolist() == [1] * 10


def test_values_lie_between_those_of_the_row(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch)
    for epoch in range(20):
        for row, frames in enumerate(drawn(store, list(range(10)), epoch, share=0.3)):
            own = store.columns["source"].row(row)
            assert np.isfinite(frames).all() and frames.min() >= own.min() and frames.max() <= own.max()


def test_masks_are_the_mean_and_not_wider_than_the_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch, "SLOWEST", "FASTEST", "STRETCH", "SHIFT")
    own = np.random.default_rng(1).normal(3.0, 1.0, (40, MELS)).astype(np.float32)
    store, widths = store_of(tmp_path, [own]), []
    for epoch in range(60):
        [frames] = drawn(store, [0], epoch, share=0.1)
        masked = frames != own
        np.testing.assert_allclose(frames[masked], own.mean(), rtol=1e-6)
        mels, times = masked.all(0), masked.all(1)
        assert np.array_equal(masked, mels | times[:, None])
        assert np.diff(mels.astype(int), prepend=0).clip(0).sum() <= MASKS  # runs that begin
        widths.append((mels.sum(), times.sum()))
    most = np.array(widths).max(0)
    assert (most <= [MASKS * 8, MASKS * 4]).all() and (most > [8, 4]).all() and np.array(widths).min() == 0
    assert np.array_equal(drawn(store, [0], share=0.0)[0], own)


def test_speed_is_linear_interpolation_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch, "STRETCH", "SHIFT")
    rising = np.repeat(np.arange(40, dtype=np.float32)[:, None], MELS, 1)
    [frames] = drawn(store_of(tmp_path, [rising]), [0], share=0.0)
    count = len(frames)
    expected = np.interp((np.arange(count) + 0.5) * 40 / count - 0.5, np.arange(40), np.arange(40))
    assert count != 40
    np.testing.assert_allclose(frames, np.repeat(expected[:, None], MELS, 1), atol=1e-5)


def test_vocal_tract_moves_the_mels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that hold the number of each mel show where it was read."""
    still(monkeypatch, "SLOWEST", "FASTEST")
    store, mels = store_of(tmp_path, [np.tile(np.arange(MELS, dtype=np.float32), (3, 1))]), np.arange(MELS)
    for epoch in range(20):
        [frames] = drawn(store, [0], epoch, share=0.0)
        assert (frames == frames[0]).all()  # all of a row in one voice
        bound = specaugment.STRETCH * mels + specaugment.SHIFT
        assert (np.abs(frames[0] - mels) <= bound + 1e-4).all() and np.abs(frames[0] - mels).max() > 0.1


def test_of_long_rows_no_more_is_read_than_a_batch_has(store: Store) -> None:
    whole, cut = (store.take(np.array([3, 0, 3]), most) for most in (0, 4))
    for row, own in enumerate(whole["source"].rows()):
        assert np.array_equal(cut["source"].row(row), own[:4])
    assert len(cut["source"].flat) < len(whole["source"].flat) and np.array_equal(cut["text"].flat, whole["text"].flat)


def test_token_batches_have_room(store: Store) -> None:
    def collate(columns: Columns) -> Batch:
        rows = columns["source"].rows()
        source = np.zeros((len(rows), max(map(len, rows)), MELS), np.float32)
        text = np.stack(columns["text"].rows())
        return Batch(text, text, np.ones_like(text, bool), source=source, source_mask=np.ones(source.shape[:2], bool))

    config = Config(4, 1000, tokens=200)
    found = Rows(store, config, 1, collate, "source", 0, SpecAugment(store, 1, 0.15, 1000))  # type: ignore[arg-type]
    shapes = {part.source.shape[:2] for step in range(3 * found.per_epoch) for part in found.at(step)}
    assert found.shapes is not None and len(shapes) <= found.shapes


def test_a_recording_keeps_its_mean_and_its_deviation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch, "SLOWEST", "FASTEST", "STRETCH", "SHIFT")
    own = np.random.default_rng(2).normal(size=(50, MELS)).astype(np.float32)
    own += 3 - own.mean()
    store = store_of(tmp_path, [own])
    for name, value in (("BLUR", 3), ("TONE", 0.4), ("HISS", 1.2)):
        still(monkeypatch)
        monkeypatch.setattr(specaugment, name, value)
        changed = [
            frames for epoch in range(8) if not np.array_equal(frames := drawn(store, [0], epoch, share=0)[0], own)
        ]
        assert changed
        for frames in changed:
            assert frames.mean() == pytest.approx(3, abs=1e-4) and frames.std() == pytest.approx(own.std(), abs=1e-4)
            assert np.corrcoef(frames.ravel(), own.ravel())[0, 1] > 0.4


def test_noise_covers_what_is_faint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of powers: what is far above the level stays, what is far below becomes the level."""
    still(monkeypatch, "SLOWEST", "FASTEST", "STRETCH", "SHIFT")
    monkeypatch.setattr(specaugment, "HISS", 1.0)
    monkeypatch.setattr(specaugment, "HISSES", 1.0)
    own = np.repeat(np.linspace(-3, 3, MELS, dtype=np.float32)[None], 4, 0)
    [frames] = drawn(store_of(tmp_path, [own]), [0], share=0)
    steps = np.diff(frames[0])
    assert np.abs(steps[:5]).max() < 0.1 * steps[-1] and np.allclose(steps[-5:], steps[-1], rtol=1e-2)


def test_pauses_are_quiet_and_fit_what_is_expected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    still(monkeypatch, "SLOWEST", "FASTEST", "STRETCH", "SHIFT")
    monkeypatch.setattr(specaugment, "PAUSE", 5)
    most = SpecAugment(store, 1, 0, 1000).expected("source")
    longest = np.zeros(10, np.int64)
    for epoch in range(40):
        for row, frames in enumerate(drawn(store, list(range(10)), epoch, share=0)):
            own = store.columns["source"].row(row)
            longest[row] = max(longest[row], len(frames))
            before = next(i for i in range(6) if np.array_equal(frames[i : i + len(own)], own))
            quiet = own[own.sum(1).argmin()]
            assert (np.concatenate([frames[:before], frames[before + len(own) :]]) == quiet).all()
    assert (longest <= most).all() and longest.max() > np.array(LENGTHS).max() + 5

"""Noise on pictures: pure in seed, epoch and row, the same for all frames, shifts with repeated edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from segue.batches.picture_noise import SHIFTS, PictureNoise
from segue.batches.store import Store, StoreWriter

SIDE = 32
FRAMES = [1, 4, 1, 2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    writer = StoreWriter(tmp_path, {"source": "uint8", "text": "uint16"}, {"source": SIDE * SIDE * 3})
    pixels = np.random.default_rng(0).integers(0, 256, sum(FRAMES) * SIDE * SIDE * 3)
    writer.append("source", pixels, np.array(FRAMES))
    writer.append("text", np.arange(4), np.ones(4, np.int64))
    return writer.close()


def drawn(store: Store, rows: list[int], epoch: int = 0, share: float = 0.15) -> list[NDArray[np.uint8]]:
    places = np.array(rows)
    columns = PictureNoise(store, 1, share, 16)(store.take(places), epoch, places)
    return [row.reshape(-1, SIDE, SIDE, 3) for row in columns["source"].rows()]


def own(store: Store, row: int) -> NDArray[np.uint8]:
    return store.columns["source"].row(row).reshape(-1, SIDE, SIDE, 3)


def test_a_row_follows_from_seed_epoch_and_row(store: Store) -> None:
    every = drawn(store, [0, 1, 2, 3])
    for row, frames in zip([3, 1], drawn(store, [3, 1]), strict=True):
        assert frames.dtype == np.uint8 and np.array_equal(frames, every[row])
    assert not np.array_equal(drawn(store, [1], epoch=1)[0], every[1])
    assert PictureNoise(store, 1, 0.15, 3).expected("source").tolist() == [1, 3, 1, 2]


def shifted(pixels: NDArray[np.uint8], down: int, right: int) -> NDArray[np.uint8]:
    """A shift with numpy's own padding."""
    most = SIDE // SHIFTS
    padded = np.pad(pixels, ((0, 0), (most, most), (most, most), (0, 0)), "edge")
    return padded[:, most - down : most - down + SIDE, most - right : most - right + SIDE]


def test_shifts_repeat_the_edge_and_move_all_frames_alike(store: Store) -> None:
    most = SIDE // SHIFTS
    reach = range(-most, most + 1)
    found = set()
    for epoch in range(60):
        [frames] = drawn(store, [1], epoch, share=0.0)
        fitting = [(y, x) for y in reach for x in reach if np.array_equal(frames, shifted(own(store, 1), y, x))]
        assert len(fitting) == 1
        found.add(fitting[0])
    assert {y for y, _ in found} == {x for _, x in found} == set(reach)


def test_values_keep_their_order_and_change_a_little(store: Store) -> None:
    """Each of the 256 values becomes one other, the larger never the smaller."""
    for epoch in range(20):
        [frames] = drawn(store, [1], epoch, share=0.1)
        [moved] = drawn(store, [1], epoch, share=0.0)
        new = [np.unique(frames[moved == value]) for value in range(256)]
        assert all(len(values) == 1 for values in new)
        line = np.concatenate(new).astype(int)
        assert (np.diff(line) >= 0).all() and np.abs(line - np.arange(256)).max() <= 0.1 * 128 * 2 + 1
        assert np.abs(line - np.arange(256)).max() > 0

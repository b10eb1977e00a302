"""SpecAugment (Park et al. 2019): frames of sound are changed at random in training, so that a model hears each example
in many voices and does not rely on any one frame or frequency.

A row of S frames with M mels gets, drawn anew in every epoch:

    speed          S frames become about S · factor (instead of SpecAugment's time warp)
    vocal tract    mel m is read at m · (1 + stretch) + shift: a longer or shorter throat moves all resonances (VTLP,
                   Jaitly and Hinton 2013), as those of speakers who are not in the training data
    masks          two bands of mels and two stretches of time are set to the row's mean

Speed and vocal tract are linear interpolations. What is drawn for a row follows from seed, epoch and row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.noise import row_draws
from segue.batches.store import Column, Columns, Store
from segue.compiling import njit

SLOWEST, FASTEST = 1.2, 0.85
"""The factors of a row's length: people speak a digit that much slower or faster."""
STRETCH = 0.08
"""Most that the mel axis is stretched or compressed: vocal tracts of adults differ by about this much."""
SHIFT = 2.0
"""Most mels that a row is shifted by, up or down."""
MASKS = 2
"""Masks along each axis, as in the paper's policy LD."""

Ints = NDArray[np.int64]


class SpecAugment:
    """Draws the frames of rows anew. `Rows` calls it for every batch of training."""

    def __init__(self, store: Store, seed: int, share: float, length: int) -> None:
        """`share`: the most of an axis that one mask covers; `length`: where batches cut rows."""
        self.store, self.seed, self.share, self.length = store, seed, share, length

    def expected(self, name: str) -> Ints:
        """Return how many places each row of a column may need in a batch."""
        own = self.store.columns[name].lengths()
        needed: Ints = _length(own, np.array(SLOWEST)) if name == "source" else own
        return np.minimum(needed, self.length)

    def limit(self, name: str, widths_N: Ints) -> None:
        """Batches are as wide as was expected, which is the most that a row can need: nothing to do."""

    def __call__(self, columns: Columns, epoch: int, rows: Ints) -> Columns:
        """Return the columns of these rows, with their sources drawn for an epoch."""
        own = columns["source"]
        draws_NK = row_draws(self.seed, epoch, rows, 3 + 4 * MASKS)
        lengths = _length(own.lengths(), FASTEST + (SLOWEST - FASTEST) * draws_NK[:, 0])
        ends = np.cumsum(lengths, dtype=np.int64)
        warps_N2 = (2 * draws_NK[:, 1:3] - 1) * (STRETCH, SHIFT)
        sizes_NA = np.stack([np.full(len(rows), own.width), lengths], 1)  # of the two axes that have masks
        masks_NAMP = _masks(draws_NK[:, 3:].reshape(len(rows), 2, MASKS, 2), sizes_NA, self.share)
        out = np.empty((int(lengths.sum()), own.width), np.float32)
        frames = np.ascontiguousarray(own.flat, np.float32).reshape(-1, own.width)
        _draw(frames, own.ends, warps_N2, masks_NAMP, out, ends)
        return columns | {"source": Column(out.reshape(-1), ends, own.width)}


def _length(lengths: Ints, factors: NDArray[np.float64]) -> Ints:
    """Frames after a change of speed; a row that has frames keeps one at least."""
    return np.maximum(np.rint(lengths * factors), np.minimum(lengths, 1)).astype(np.int64)


def _masks(draws_NAMP: NDArray[np.float64], sizes_NA: Ints, share: float) -> Ints:
    """Where each mask begins and ends: a width of 0 to `share` of its axis, then any place at which it fits."""
    sizes_NA1 = sizes_NA[..., None]
    widths_NAM = np.floor(draws_NAMP[..., 0] * (np.floor(share * sizes_NA1) + 1)).astype(np.int64)
    begins_NAM = np.floor(draws_NAMP[..., 1] * (sizes_NA1 - widths_NAM + 1)).astype(np.int64)
    return np.stack([begins_NAM, begins_NAM + widths_NAM], -1)


@njit(cache=True, nogil=True)
def _draw(frames: Any, ends: Any, warps_N2: Any, masks_NAMP: Any, out: Any, out_ends: Any) -> None:
    """Write every row into `out`, interpolated and masked."""
    mels = frames.shape[1]
    low, high, part = np.empty(mels, np.int64), np.empty(mels, np.int64), np.empty(mels, np.float32)
    begin = out_begin = 0
    for row in range(len(ends)):
        for mel in range(mels):
            low[mel], high[mel], part[mel] = _between(mel * (1 + warps_N2[row, 0]) + warps_N2[row, 1], mels)
        size, out_size = ends[row] - begin, out_ends[row] - out_begin
        for t in range(out_size):
            before, after, share = _between((t + 0.5) * size / out_size - 0.5, size)
            one, two, new = frames[begin + before], frames[begin + after], out[out_begin + t]
            for mel in range(mels):
                first = one[low[mel]] + part[mel] * (one[high[mel]] - one[low[mel]])
                second = two[low[mel]] + part[mel] * (two[high[mel]] - two[low[mel]])
                new[mel] = first + share * (second - first)
        _mask(frames[begin : ends[row]], masks_NAMP[row], out[out_begin : out_ends[row]])
        begin, out_begin = ends[row], out_ends[row]


@njit(inline="always")
def _between(place: float, size: int) -> tuple[int, int, np.float32]:
    """The two neighbours of a place on an axis, and how far it is from the first to the second; ends are repeated."""
    place = min(max(place, 0.0), size - 1.0)
    before = int(place)
    return before, min(before + 1, size - 1), np.float32(place - before)


@njit(inline="always")
def _mask(own: Any, masks_AMP: Any, out: Any) -> None:
    """Set masked mels and times of a row to the mean of the row as it was."""
    total = 0.0
    for value in own.flat:
        total += value
    mean = np.float32(total / max(1, own.size))
    for mask in range(masks_AMP.shape[1]):
        out[:, masks_AMP[0, mask, 0] : masks_AMP[0, mask, 1]] = mean
        out[masks_AMP[1, mask, 0] : masks_AMP[1, mask, 1]] = mean

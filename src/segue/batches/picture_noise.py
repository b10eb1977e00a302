"""Pictures are shifted and made brighter or darker at random in training, so that a model sees each in many ways.

A picture gets, drawn anew in every epoch: a shift of up to a sixteenth of its side, the pixels at its edges repeated;
v' = (v - 128) · contrast + 128 + brightness. All frames of a moving picture get the same. What is drawn for a row
follows from seed, epoch and row alone.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.noise import row_draws
from segue.batches.store import Column, Columns, Store
from segue.compiling import njit

SHIFTS = 16
"""A picture is shifted by at most its side over this: more would push out what stands near an edge."""

Ints = NDArray[np.int64]


class PictureNoise:
    """Draws the frames of rows anew. `Rows` calls it for every batch of training."""

    def __init__(self, store: Store, seed: int, share: float, length: int) -> None:
        """`share`: the most by which contrast and brightness change; `length`: where batches cut rows."""
        self.store, self.seed, self.share, self.length = store, seed, share, length

    def expected(self, name: str) -> Ints:
        """Return how many places each row of a column needs in a batch."""
        return np.minimum(self.store.columns[name].lengths(), self.length)

    def limit(self, name: str, widths_N: Ints) -> None:
        """Lengths do not change: nothing to do."""

    def __call__(self, columns: Columns, epoch: int, rows: Ints) -> Columns:
        """Return the columns of these rows, with their sources drawn for an epoch."""
        own = columns["source"]
        side = isqrt(own.width // 3)
        draws_N4 = row_draws(self.seed, epoch, rows, 4)
        most = side // SHIFTS
        shifts_N2 = np.floor(draws_N4[:, :2] * (2 * most + 1)).astype(np.int64) - most
        changes_N2 = (2 * draws_N4[:, 2:] - 1) * self.share
        values = np.arange(256) - 128
        new_NV = values * (1 + changes_N2[:, :1]) + 128 * (1 + changes_N2[:, 1:])
        new_NV = np.clip(np.rint(new_NV), 0, 255).astype(np.uint8)
        out = np.empty(len(own.flat), np.uint8)
        shape = (-1, side, side, 3)
        _draw(np.ascontiguousarray(own.flat).reshape(shape), own.ends, shifts_N2, new_NV, out.reshape(shape))
        return columns | {"source": Column(out, own.ends, own.width)}


@njit(cache=True, nogil=True)
def _draw(frames: Any, ends: Any, shifts_N2: Any, new_NV: Any, out: Any) -> None:
    """Write every frame into `out`, shifted, with the new value of each of the 256 that a pixel may have."""
    side = frames.shape[1]
    frame = 0
    for row in range(len(ends)):
        new_V, down, right = new_NV[row], shifts_N2[row, 0], shifts_N2[row, 1]
        while frame < ends[row]:
            for y in range(side):
                line = frames[frame, min(max(y - down, 0), side - 1)]
                for x in range(side):
                    pixel = line[min(max(x - right, 0), side - 1)]
                    for colour in range(3):
                        out[frame, y, x, colour] = new_V[pixel[colour]]
            frame += 1

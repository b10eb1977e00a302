"""Noise: the model reads changed tokens and predicts the real ones.

`blank` replaces some tokens, others in every epoch, by UNK (Xie et al. 2017). It is a regulariser against overfitting,
and it trains the vector of UNK. `mask` hides tokens, which alone are predicted (masking.py). `spans` hides spans of
tokens behind marks, and makes pairs of running text (spans.py). `specaugment` changes the frames of sounds, `shift`
those of pictures.

Noise is drawn by numpy for the whole update, before it is cut into parts and processes, and is a function of (seed,
epoch, place) alone. So a resumed run, a run in parts and a run on several GPUs all read the same.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segue.data.permute import mix

Noise = Literal["none", "blank", "mask", "spans", "specaugment", "shift"]
OF_SOURCES = {"specaugment": "sound", "shift": "picture"}
"""Noise on the frames of sources, and what the sources are (specaugment.py, picture_noise.py)."""
_BLANK = 7
"""Salt of the seed, so that these draws differ from others with the same seed."""


def blank_places(share: float, seed: int, epoch: int, place: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Draw where UNK is read in the update at a place of an epoch."""
    draw = np.random.default_rng((seed % (1 << 64), epoch, place, _BLANK))
    return draw.random(shape, np.float32) < share


def row_draws(seed: int, epoch: int, rows: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """(N, count) numbers between 0 and 1 for each row, which follow from seed, epoch and row alone, whatever batch the
    row is in."""
    digest = hashlib.blake2b(repr((seed, epoch, "frames")).encode(), digest_size=8).digest()
    keys_N = mix(mix(rows.astype(np.uint64)) ^ np.frombuffer(digest, "<u8"))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's, near 2^64 / 1.618
    return (mix(keys_N[:, None] + steps) >> np.uint64(11)).astype(np.float64) * 2.0**-53

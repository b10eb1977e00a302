"""Noise: the model reads changed tokens and predicts the real ones.

`blank` replaces some tokens, others in every epoch, by UNK (Xie et al. 2017). It is a regulariser against overfitting,
and it trains the vector of UNK.

Noise is drawn by numpy for the whole update, before it is cut into parts and processes, and is a function of (seed,
epoch, place) alone. So a resumed run, a run in parts and a run on several GPUs all read the same.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Noise = Literal["none", "blank"]
_BLANK = 7
"""Salt of the seed, so that these draws differ from others with the same seed."""


def blank_places(share: float, seed: int, epoch: int, place: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Draw where UNK is read in the update at a place of an epoch."""
    draw = np.random.default_rng((seed % (1 << 64), epoch, place, _BLANK))
    return draw.random(shape, np.float32) < share

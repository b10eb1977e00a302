"""A source that is not text as a picture: the spectrogram of a sound, or the frames of a picture side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.codec import Sizes
from segue.output.png import png


def picture_of(frames: NDArray[Any], sizes: Sizes) -> bytes:
    """The PNG file of a source's frames: a pixel for each frame and each mel of a sound, the low ones at the bottom and
    the loud ones dark; the frames of a picture that moves stand side by side."""
    if sizes.source == "sound":
        return png(_dark(frames.T[::-1]))
    side = int(np.sqrt(frames.shape[1] // 3))
    return png(np.concatenate(list(frames.reshape(-1, side, side, 3)), 1))


def _dark(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Greys from white, the least value, to black, the greatest."""
    span = float(np.ptp(values)) or 1.0
    return (255 - 255 * (values - values.min()) / span).astype(np.uint8)

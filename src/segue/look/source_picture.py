"""A source that is not text as a picture: the spectrogram of a sound, or the frames of a picture side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.codec import Codec, Sizes
from segue.batches.frames import frames_of
from segue.data.media import decoded
from segue.output.png import data_uri, png
from segue.output.wav import wav

_BACKGROUND = 0.3
"""The quietest share of a spectrogram, which is white."""
COLUMNS = 256
"""Frames of a sound that a page shows at the most: of a longer one it shows means of neighbours."""
STRIP = 8
"""Frames of a moving picture that a page shows at the most, taken evenly."""
MOST_BYTES = 22_000
"""A page shows a picture whose file would be larger at half the size: it has many."""
PLAYED = 10
"""Seconds of a sound that a page can play."""
MOST_PLAYED = 600_000
"""Characters of all sounds of one model that a page holds; those after them are only drawn."""


def picture_of(frames: NDArray[Any], sizes: Sizes) -> bytes:
    """The PNG file of a source's frames: a pixel for each frame and each mel of a sound, the low ones at the bottom and
    the loud ones dark; the frames of a picture that moves stand side by side."""
    if sizes.source == "sound":
        return png(_dark(frames.T[::-1]))
    return png(np.concatenate(list(_square(frames)), 1))


def _dark(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Greys from white, the quiet background, to black, the greatest value."""
    low, high = float(np.quantile(values, _BACKGROUND)), float(values.max())
    span = high - low or 1.0
    return (255 - 255 * np.clip((values - low) / span, 0, 1)).astype(np.uint8)


def _square(frames: NDArray[Any]) -> NDArray[np.uint8]:
    """(F, P, P, 3) the pixels of a picture."""
    side = math.isqrt(frames.shape[1] // 3)
    return frames.reshape(-1, side, side, 3)


def shown_sources(names: Sequence[str], codec: Codec) -> Iterator[dict[str, str]]:
    """Yield for each source its `picture` as a data URI and, of sound, its `seconds` and, if there is room, the `sound`
    itself."""
    data, room = codec.data, MOST_PLAYED
    for name in names:
        shown = {"picture": data_uri(small_picture(frames_of(name, data), codec.sizes), "image/png")}
        if codec.sizes.source == "sound":
            samples = decoded(name, data)
            shown["seconds"] = f"{len(samples) / data.rate:.2f}"
            if len(samples) <= PLAYED * data.rate and 8 * len(samples) / 3 + 100 <= room:
                shown["sound"] = data_uri(wav(samples, data.rate), "audio/wav")
                room -= len(shown["sound"])
        yield shown


def small_picture(frames: NDArray[Any], sizes: Sizes) -> bytes:
    """Draw a source small enough for a page that has many."""
    if sizes.source == "sound":
        columns = min(len(frames), COLUMNS)
        return picture_of(np.stack([part.mean(0) for part in np.array_split(frames, columns)]), sizes)
    frames = frames[np.linspace(0, len(frames) - 1, min(STRIP, len(frames))).round().astype(int)]
    _square(frames)[:-1, :, -1] = 255  # a white line between two
    written = picture_of(frames, sizes)
    while len(written) > MOST_BYTES and len(frames[0]) >= 12:
        frames = _halved(frames)
        written = picture_of(frames, sizes)
    return written


def _halved(frames: NDArray[Any]) -> NDArray[np.uint8]:
    """Average squares of 2 x 2 pixels; a last odd row and column are left out."""
    pixels = _square(frames)
    count, side = len(pixels), pixels.shape[1] // 2
    even = pixels[:, : 2 * side, : 2 * side].reshape(count, side, 2, side, 2, 3)
    means: NDArray[np.uint8] = np.rint(even.mean((2, 4))).astype(np.uint8)
    return means.reshape(count, -1)

"""Draw a source that is not text as a PNG: a picture as it is, its frames side by side, and sound as a spectrogram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.codec import Codec, Sizes
from segue.batches.frames import frames_of
from segue.data.media import decoded
from segue.output.png import data_uri, png
from segue.output.wav import wav

COLUMNS = 256
"""Columns of a spectrogram at the most; a longer sound has several frames to a column."""
_BACKGROUND = 0.3
"""The quietest share of a spectrogram, which is white."""
STRIP = 8
"""Frames of a moving picture that are shown."""
MOST_BYTES = 22_000
"""A larger file is drawn again at half the size: a page holds many."""
PLAYED = 10
"""Seconds of a sound that a page can play."""
MOST_PLAYED = 600_000
"""Characters of all sounds of one model that a page holds; those after them are only drawn."""


def shown_sources(names: Sequence[str], codec: Codec) -> Iterator[dict[str, str]]:
    """Yield for each source its `picture` as a data URI and, of sound, its `seconds` and, if there is room, the `sound`
    itself."""
    data, room = codec.data, MOST_PLAYED
    for name in names:
        shown = {"picture": data_uri(picture_of(frames_of(name, data), codec.sizes), "image/png")}
        if codec.sizes.source == "sound":
            samples = decoded(name, data)
            shown["seconds"] = f"{len(samples) / data.rate:.2f}"
            if len(samples) <= PLAYED * data.rate and 8 * len(samples) / 3 <= room:
                shown["sound"] = data_uri(wav(samples, data.rate), "audio/wav")
                room -= len(shown["sound"])
        yield shown


def picture_of(frames: NDArray[Any], sizes: Sizes) -> bytes:
    """Draw (S, W) frames, as batches/frames.py makes them, as a PNG."""
    return png(spectrogram(frames)) if sizes.source == "sound" else _strip(frames)


def spectrogram(frames_SM: NDArray[Any]) -> NDArray[np.uint8]:
    """Draw log-mels, (S, M), as grey (M, S): the louder the darker, low frequencies at the bottom."""
    columns = -(-len(frames_SM) // -(-len(frames_SM) // COLUMNS))
    mels_SM = np.stack([part.mean(0) for part in np.array_split(np.asarray(frames_SM, np.float64), columns)])
    low, high = np.quantile(mels_SM, _BACKGROUND), mels_SM.max()
    shades_SM = np.clip((high - mels_SM) / (high - low), 0, 1) if high > low else np.ones_like(mels_SM)
    return np.rint(255 * shades_SM).astype(np.uint8).T[::-1].copy()


def _strip(frames: NDArray[np.uint8]) -> bytes:
    """Draw up to STRIP frames, taken evenly, side by side."""
    side = round((frames.shape[1] / 3) ** 0.5)
    places = np.unique(np.linspace(0, len(frames) - 1, min(STRIP, len(frames))).round().astype(int))
    shown_FPPC = frames[places].reshape(len(places), side, side, 3)
    written = png(_beside(shown_FPPC))
    while len(written) > MOST_BYTES and shown_FPPC.shape[1] > 1:
        shown_FPPC = _halved(shown_FPPC)
        written = png(_beside(shown_FPPC))
    return written


def _beside(pixels_FPPC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Put frames side by side, with a white line between them."""
    gap = np.full((pixels_FPPC.shape[1], 1, 3), 255, np.uint8)
    first, *others = pixels_FPPC
    return np.concatenate([first, *(part for frame in others for part in (gap, frame))], 1)


def _halved(pixels_FPPC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Average squares of 2 x 2 pixels; a last odd row and column are left out."""
    frames, side = len(pixels_FPPC), pixels_FPPC.shape[1] // 2
    even = pixels_FPPC[:, : 2 * side, : 2 * side].reshape(frames, side, 2, side, 2, 3)
    return np.rint(even.mean((2, 4))).astype(np.uint8)

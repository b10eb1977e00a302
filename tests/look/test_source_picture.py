"""Pictures of sources that are not text: read back by a small PNG reader, and small enough for a page."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from segue.batches.codec import Sizes
from segue.look.source_picture import COLUMNS, MOST_BYTES, picture_of, small_picture

PICTURE, SOUND = Sizes(5, source="picture", frame=12), Sizes(5, source="sound", frame=80)


def pixels_of(file: bytes) -> np.ndarray:
    """Read a PNG of ours: one chunk of data, every line with the filter Up."""
    width, height, _, colour = struct.unpack(">2I2B", file[16:26])
    size = int.from_bytes(file[33:37], "big")
    lines = np.frombuffer(zlib.decompress(file[41 : 41 + size]), np.uint8).reshape(height, -1)
    pixels = np.cumsum(lines[:, 1:], 0, dtype=np.uint8)
    return pixels.reshape(height, width, 3) if colour == 2 else pixels


def test_a_picture_is_drawn_as_it_is() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (2, 2, 3), np.uint8)
    assert np.array_equal(pixels_of(picture_of(frame.reshape(1, -1), PICTURE)), frame)


def test_frames_of_a_moving_picture_stand_side_by_side() -> None:
    frames = np.repeat(np.arange(20, dtype=np.uint8)[:, None], 12, 1)
    assert pixels_of(picture_of(frames, PICTURE))[0, ::2, 0].tolist() == list(range(20))
    shown = pixels_of(small_picture(frames, PICTURE))
    assert shown.shape == (2, 8 * 2, 3) and (shown[:, 1:-1:2] == 255).all()  # a line between two
    firsts = shown[0, ::2, 0].tolist()
    assert (firsts[0], firsts[-1]) == (0, 19) and firsts == sorted(set(firsts))


def test_a_large_picture_is_drawn_smaller() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1, 256 * 256 * 3), np.uint8)
    written = small_picture(noise, PICTURE)
    assert len(written) <= MOST_BYTES and pixels_of(written).shape == (64, 64, 3)


def test_low_frequencies_are_at_the_bottom_and_loud_is_dark() -> None:
    mels = np.full((50, 80), -1.0)
    mels[10, 5] = 1.0
    drawn = pixels_of(picture_of(mels, SOUND))
    assert drawn.shape == (80, 50) and drawn[80 - 1 - 5, 10] == 0
    assert (drawn == 255).sum() == drawn.size - 1


@pytest.mark.parametrize("frames", [1, 255, 256, 257, 20_000])
def test_a_spectrogram_of_any_length_is_narrow(frames: int) -> None:
    mels = np.random.default_rng(0).normal(size=(frames, 80)).astype(np.float32)
    assert pixels_of(small_picture(mels, SOUND)).shape == (80, min(frames, COLUMNS))


def test_silence_is_white() -> None:
    assert (pixels_of(picture_of(np.zeros((3, 80)), SOUND)) == 255).all()

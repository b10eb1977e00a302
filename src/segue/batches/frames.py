"""Frames of a source that is not text: what the store holds of a sound or of a picture.

Sound has a frame of 80 log-mels each 10 ms, float32; a picture has one frame of its pixels, uint8, or several if it
moves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.log_mel import MELS, STEP, WINDOW, log_mel
from segue.batches.store import Column
from segue.data.config import Config
from segue.data.example import Example
from segue.data.media import decoded, is_path, opened
from segue.data.sound import length_of
from segue.errors import BadSourceError, InputError


def frame_width(config: Config) -> int:
    """Return the numbers in a frame; 0: sources are text."""
    return {"sound": MELS, "picture": 3 * config.pixels**2}.get(config.source, 0)


def frames_of(name: str, config: Config) -> NDArray[Any]:
    """Decode a sound or a picture to (S, W) frames."""
    found = decoded(name, config)
    if config.source == "sound":
        return log_mel(found, config.rate)
    return found.reshape(len(found), -1)


def frame_count(name: str, config: Config) -> int:
    """Count the frames of a source: of a wav file by its header alone."""
    if config.source != "sound":
        return len(decoded(name, config))
    samples = sample_count(name, config)
    window, step = round(config.rate * WINDOW), round(config.rate * STEP)
    return (samples + 2 * (window // 2) - window) // step + 1


def sample_count(name: str, config: Config) -> int:
    """Count the samples of a sound at data.rate: of a wav file by its header alone."""
    if not is_path(name):
        return len(decoded(name, config))
    with opened(name) as file:
        found, rate = length_of(file, os.fstat(file.fileno()).st_size)
    return -(-found * config.rate // rate)


def cut_frames(cut: int, limit: int, source: str) -> str:
    """Say how much of sounds or pictures was not read, in a sentence without its full stop."""
    if source == "sound":
        return f"{cut / 100:,.1f} s of sound beyond {limit / 100:g} s a source were not read"
    return f"{cut:,} frames beyond {limit:,} a picture were not read"


def frames_column(group: Sequence[Example], config: Config) -> Column:
    """Decode the sources of some examples."""
    rows = [_of_example(example, config) for example in group]
    width = frame_width(config)
    flat = np.concatenate([row.reshape(-1) for row in rows]) if rows else np.empty(0, np.float32)
    return Column(flat, np.cumsum([len(row) for row in rows], dtype=np.int64), width)


def _of_example(example: Example, config: Config) -> NDArray[Any]:
    try:
        return frames_of(example.text, config)
    except BadSourceError as error:
        where = f"{example.path}, line {example.line}: " if example.path else ""
        raise InputError(f"{where}{example.text[:200]} {error}.") from None

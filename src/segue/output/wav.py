"""Write sound as a wav file of 16-bit samples, which every browser plays."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_PCM, _MONO, _BYTES = 1, 1, 2


def wav(samples: NDArray[np.floating], rate: int) -> bytes:
    """Return the wav file of samples in -1 … 1, `rate` a second; louder samples are clipped."""
    levels = np.clip(np.rint(np.asarray(samples, dtype=np.float64) * 32768), -32768, 32767).astype("<i2").tobytes()
    form = struct.pack("<2H2I2H", _PCM, _MONO, rate, rate * _BYTES, _BYTES, 8 * _BYTES)
    chunks = b"WAVE" + _chunk(b"fmt ", form) + _chunk(b"data", levels)
    return _chunk(b"RIFF", chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data

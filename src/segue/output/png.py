"""Write a picture as PNG with zlib alone: pages and terminals show pictures without pillow."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_GREY, _RGB = 0, 2
"""PNG's numbers of the two kinds of colour that are written."""
_UP = 2
"""PNG's number of the filter that stores each pixel as its difference from the one above, which compresses better."""


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the PNG file of a picture of bytes: (height, width, 3) in red, green and blue, or (height, width) grey."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(f"a picture is uint8 (H, W, 3) or (H, W), not {pixels.dtype} {pixels.shape}")
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    differences = np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1]))  # modulo 256, as PNG has it
    lines = np.insert(differences, 0, _UP, axis=1)
    header = struct.pack(">2I5B", width, height, 8, _RGB if pixels.ndim == 3 else _GREY, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def data_uri(content: bytes, kind: str) -> str:
    """Return a file as an address that holds the whole of it, of a kind such as image/png or audio/wav."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"

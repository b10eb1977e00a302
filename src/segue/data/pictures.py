"""Read pictures: PNG, JPEG and GIF, still or moving, as squares of pixels.

A picture is scaled to fit a square, keeps its proportions, and lies on white. Of a moving one, an animated GIF or PNG,
a few frames are read, chosen evenly. A file may be wrong in any way, or made to fill the memory: its header is checked
before anything is decoded.
"""

from __future__ import annotations

import struct
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from segue.errors import BadSourceError, InputError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

Pixels = NDArray[np.uint8]

MOST_FRAMES = 16
"""Frames that are read of a moving picture, chosen evenly."""
MOST_PIXELS = 64_000_000
"""Pixels of a frame. Decoded, they take 256 MB, and as much again while they are scaled."""
MOST_IN_FILE = 1000
"""Frames of a moving picture: each is drawn upon those before it, so that all must be decoded."""
MOST_MOVING = 8 * MOST_PIXELS
"""Pixels of all frames of a moving picture together: some seconds of work."""
MOST_BYTES = 256_000_000
"""Size of a file: pillow may read all of it into memory."""
LEAST_SIDE = 4
WHITE = (255, 255, 255)

KINDS = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF87a": "GIF", b"GIF89a": "GIF"}
"""What can be read, by its first bytes."""
OTHERS = {
    b"%PDF": "a PDF",
    b"BM": "a BMP picture",
    b"II*\0": "a TIFF picture",
    b"MM\0*": "a TIFF picture",
    b"8BPS": "a Photoshop file",
    b"\0\0\1\0": "an icon",
    b"\0\0\0\x0cjP": "a JPEG 2000 picture",
    b"\xff\x0a": "a JPEG XL picture",
    b"PK\3\4": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"ID3": "MP3 sound",
    b"OggS": "Ogg sound",
    b"fLaC": "FLAC sound",
    b"\x1aE\xdf\xa3": "a WebM or Matroska video",
    b"<svg": "an SVG drawing",
    b"<!doctype html": "an HTML page",
    b"<html": "an HTML page",
}
"""What cannot, by its first bytes, letters in lower case."""
INSIDE = {
    (b"RIFF", b"WAVE"): "WAV sound",
    (b"RIFF", b"WEBP"): "a WebP picture",
    (b"RIFF", b"AVI "): "an AVI video",
    (b"ftyp", b"avif"): "an AVIF picture",
    (b"ftyp", b"heic"): "a HEIC picture",
    (b"ftyp", b"mif1"): "a HEIF picture",
    (b"ftyp", b""): "an MP4 video",
}
"""What cannot either, by two words among its first 12 bytes."""


def pixels_of(file: BinaryIO, size: int, side: int) -> Pixels:
    """Decode a picture file of `size` bytes to (frames, side, side, 3); one frame if it does not move."""
    kind = _kind(file, size)
    _quieten_pillow()
    try:
        image, frames = _opened(file, kind)
        chosen = np.linspace(0, frames - 1, min(frames, MOST_FRAMES)).round().astype(int)
        return np.stack([_frame(image, int(frame), side) for frame in chosen])
    except (BadSourceError, MemoryError):
        raise
    except Exception as error:  # pillow raises errors of nearly every class on wrong bytes
        if isinstance(error, OSError) and error.errno:
            raise  # the disk is at fault, not the picture
        raise BadSourceError(f"is a truncated or damaged {kind} ({error or type(error).__name__})") from None


# The header


def _kind(file: BinaryIO, size: int) -> str:
    """Tell the kind of a file by its first bytes, whatever its name says."""
    if not size:
        raise BadSourceError("is empty")
    if size > MOST_BYTES:
        raise BadSourceError(f"has {size / 1e6:,.0f} MB, more than {MOST_BYTES / 1e6:,.0f}: scale it down")
    head = file.read(64)
    file.seek(0)
    for first, kind in KINDS.items():
        if head.startswith(first):
            return kind
    raise BadSourceError(f"is {_other(head)}; PNG, JPEG and GIF can be read")


def _other(head: bytes) -> str:
    """Say what a file is that cannot be read."""
    for (first, second), kind in INSIDE.items():
        if first in (head[:4], head[4:8]) and second in head[8:12]:
            return kind
    for first, kind in OTHERS.items():
        if head.startswith(first) or head.lstrip().lower().startswith(first):
            return kind
    text = head.decode(errors="ignore")  # a character may be cut at the end of these bytes
    return "text" if len(text.encode()) > len(head) - 4 and text.replace("\n", " ").isprintable() else "no picture"


def _check(width: int, height: int, frames: int) -> None:
    """Refuse what shows nothing, and what would fill the memory or take minutes."""
    said = f"has {width:,} x {height:,} pixels"
    if min(width, height) < LEAST_SIDE:
        raise BadSourceError(f"{said}: nothing can be seen")
    if width * height > MOST_PIXELS:
        raise BadSourceError(f"{said}, more than {MOST_PIXELS // 10**6} million: scale it down")
    if frames > MOST_IN_FILE:
        raise BadSourceError(f"has more than {MOST_IN_FILE:,} frames: cut it into pieces")
    if width * height * frames > MOST_MOVING:
        raise BadSourceError(f"{said} in {frames:,} frames, more than {MOST_MOVING // 10**6} million: scale it down")


def _gif_frames(file: BinaryIO) -> int:
    """Count and check the frames of a GIF without decoding them; pillow's own count has no limit."""
    width, height, flags = struct.unpack("<6xHHB2x", _exactly(file, 13))
    frames = 0
    _exactly(file, _palette(flags))
    while frames <= MOST_IN_FILE and (block := _exactly(file, 1)) != b";":
        if block == b",":  # an image, which pillow lets reach beyond the screen
            left, top, wide, high, flags = struct.unpack("<4HB", _exactly(file, 9))
            width, height, frames = max(width, left + wide), max(height, top + high), frames + 1
            _exactly(file, _palette(flags) + 1)
        elif block == b"!":
            _exactly(file, 1)
        else:  # a stray byte, which all readers pass over
            continue
        while (length := _exactly(file, 1)[0]) != 0:
            file.seek(length, 1)
    _check(width, height, frames)
    file.seek(0)
    return frames


def _palette(flags: int) -> int:
    """Return the bytes of the palette that these flags of a GIF promise."""
    return 3 << ((flags & 7) + 1) if flags & 128 else 0


def _exactly(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise BadSourceError("is a truncated GIF")
    return found


# The pixels


def _quieten_pillow() -> None:
    """Silence pillow's warnings (of large pictures, of strange metadata): what matters is raised as an error."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise InputError(
            "To read pictures, Segue needs pillow. Install it in Segue's own folder: pip install '.[pictures]'"
        ) from None
    warnings.filterwarnings("ignore", module=r"PIL\.")


def _opened(file: BinaryIO, kind: str) -> tuple[ImageFile, int]:
    """Read and check the header with pillow's reader of this kind, nothing more; return the number of frames too.

    Image.open would try other kinds, and has limits of its own.
    """
    from PIL.GifImagePlugin import GifImageFile
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    if kind == "GIF":
        frames = _gif_frames(file)  # first, since pillow makes room for a frame when it opens a GIF
        return GifImageFile(file), frames
    image = PngImageFile(file) if kind == "PNG" else JpegImageFile(file)
    frames = image.n_frames if isinstance(image, PngImageFile) else 1
    _check(*image.size, frames)
    return image, frames


def _frame(image: ImageFile, number: int, side: int) -> Pixels:
    """Decode a frame, scale it to fit a square of `side` pixels, and lay it on white."""
    from PIL import Image, ImageOps

    image.seek(number)
    scale = side / max(image.size)
    fitted = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    image.draft(None, (2 * fitted[0], 2 * fitted[1]))  # a large JPEG is decoded at half its size or less
    small = _with_colours(image).resize(fitted, Image.Resampling.LANCZOS, reducing_gap=3.0)
    with suppress(Exception):  # a camera's metadata may be damaged, and the picture is not
        small = ImageOps.exif_transpose(small)
    square = Image.new("RGB", (side, side), WHITE)
    corner = ((side - small.width) // 2, (side - small.height) // 2)
    square.paste(small, corner, small if small.mode == "RGBA" else None)
    return np.asarray(square)


def _with_colours(image: Image) -> Image:
    """Convert any mode (grey, palette, 16 bits, CMYK) to RGB, or to RGBA where something shows through."""
    from PIL import Image

    image.load()
    if image.mode.startswith("I"):  # 16 bits of grey, which pillow's own conversion clips at 255
        image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    mode = "RGBA" if image.has_transparency_data else "RGB"
    return image if image.mode == mode else image.convert(mode)

"""Sounds and pictures that rows name: what a name is of, and what it decodes to.

A name is a path, an item of a built-in corpus such as tones:17, or a data URI (data:image/png;base64,…).
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

from numpy.typing import NDArray

from segue.data.config import Config, Source
from segue.errors import BadSourceError

Media = Literal["sound", "picture"]
MEDIA: tuple[Media, ...] = ("sound", "picture")
EXTENSIONS: dict[str, Media] = {
    ".wav": "sound",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif"), "picture"),  # type: ignore[dict-item]
}
CORPORA: dict[str, Media] = {"tones": "sound", "shapes": "picture"}
_LONGEST = 4096
"""Characters of a path."""
_ITEM = re.compile(r"(tones|shapes):(\d{1,9})")
_URI = re.compile(r"data:(audio|image)/[\w.+-]+;base64,", re.ASCII)


def media_of(name: str) -> Media | None:
    """Whether a name is one of a sound or of a picture."""
    if item := _ITEM.fullmatch(name):
        return CORPORA[item[1]]
    if uri := _URI.match(name):
        return "sound" if uri[1] == "audio" else "picture"
    return EXTENSIONS.get(Path(name).suffix.lower()) if len(name) < _LONGEST else None


def media_among(cells: Iterable[str], wanted: Source = "auto") -> Media | None:
    """What most of these cells name, sounds or pictures; None: fewer than half name one. `wanted`: only these count."""
    filled = [cell.strip() for cell in cells if cell and not cell.isspace()]
    kinds = Counter(found for cell in filled if (found := media_of(cell)) and wanted in ("auto", found))
    return kinds.most_common(1)[0][0] if 2 * kinds.total() > len(filled) else None


def is_path(name: str) -> bool:
    """Whether a name is a path, and not an item of a built-in corpus or a data URI."""
    return not _ITEM.fullmatch(name) and not _URI.match(name)


def resolved(name: str, table: str) -> str:
    """The name of a source, from the folder of the table that names it; a blank name stays blank."""
    name = name.strip()
    return str(Path(table).parent / name) if name and is_path(name) else name


def check_name(name: str, config: Config) -> None:
    """Refuse a name that is not one of what data.source says."""
    found = media_of(name)
    if not name:
        raise BadSourceError(f"names no {config.source}")
    if found != config.source:
        endings = ", ".join(ending for ending, kind in EXTENSIONS.items() if kind == config.source)
        what = f"is a {found}" if found else f"is no name of a {config.source}"
        raise BadSourceError(f"{what}, and data.source is {config.source} ({endings})")


def described(name: str, config: Config) -> str:
    """What a source is, as a model reads it: seconds and rate, or frames and pixels."""
    found = decoded(name, config)
    if config.source == "sound":
        return f"{len(found) / config.rate:.2f} s at {config.rate:,} Hz"
    frames = "" if len(found) == 1 else f"{len(found)} frames of "
    return f"{frames}{config.pixels} x {config.pixels} pixels"


def decoded(name: str, config: Config) -> NDArray[Any]:
    """Decode a sound to samples at data.rate, a picture to pixels (F, data.pixels, data.pixels, 3)."""
    if item := _ITEM.fullmatch(name):
        return _built_in(item[1], int(item[2]), config)
    if not is_path(name):
        data = of_uri(name)
        return _from_file(io.BytesIO(data), len(data), config)
    with opened(name) as file:
        return _from_file(file, os.fstat(file.fileno()).st_size, config)


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Open the file of a source; raise a BadSourceError if it cannot be read."""
    try:
        path = Path(name)
        if not path.is_file():
            raise BadSourceError("is no file" if path.exists() else "does not exist")
        with path.open("rb") as file:
            yield file
    except BadSourceError:
        raise
    except (OSError, ValueError) as error:  # a NUL in a name is a ValueError
        reason = error.strerror if isinstance(error, OSError) else None
        raise BadSourceError(f"cannot be read ({reason or error})") from None


def of_uri(name: str) -> bytes:
    """Return the bytes in a data URI."""
    try:
        return base64.b64decode(name.partition(",")[2], validate=True)
    except binascii.Error:
        raise BadSourceError("is no base64") from None


def _from_file(file: BinaryIO, size: int, config: Config) -> NDArray[Any]:
    if config.source == "sound":
        from segue.data.sound import samples_of

        return samples_of(file, size, config.rate)
    from segue.data.pictures import pixels_of

    return pixels_of(file, size, config.pixels)


def corpus(name: str) -> Any:
    """The module of a built-in corpus."""
    from importlib import import_module

    return import_module(f"segue.data.{'tones' if name == 'tones' else 'scenes'}")


def _built_in(name: str, number: int, config: Config) -> NDArray[Any]:
    found: NDArray[Any]
    if CORPORA[name] != config.source:
        raise BadSourceError(f"is a {CORPORA[name]}, and a {config.source} is expected")
    if name == "tones":
        found = corpus(name).sound(config.seed, number, config.rate)
    else:
        found = corpus(name).frames(config.seed, number, config.pixels)
    return found

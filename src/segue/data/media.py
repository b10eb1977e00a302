"""Sounds and pictures that rows name: what a name is of, and what it decodes to.

A name is a path, an item of a built-in corpus such as tones:17, or a data URI (data:image/png;base64,…).
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from pathlib import Path
from typing import Any, BinaryIO, Literal

from numpy.typing import NDArray

from segue.data.config import Config
from segue.errors import BadSourceError

Media = Literal["sound", "picture"]
MEDIA: tuple[Media, ...] = ("sound", "picture")
EXTENSIONS: dict[str, Media] = {
    ".wav": "sound",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif"), "picture"),  # type: ignore[dict-item]
}
CORPORA: dict[str, Media] = {"tones": "sound", "shapes": "picture"}
_ITEM = re.compile(r"(tones|shapes):(\d{1,9})")
_URI = re.compile(r"data:(audio|image)/[\w.+-]+;base64,", re.ASCII)


def media_of(name: str) -> Media | None:
    """Whether a name is one of a sound or of a picture."""
    if item := _ITEM.fullmatch(name):
        return CORPORA[item[1]]
    if uri := _URI.match(name):
        return "sound" if uri[1] == "audio" else "picture"
    return EXTENSIONS.get(Path(name).suffix.lower())


def resolved(name: str, table: str) -> str:
    """The name of a source, from the folder of the table that names it."""
    name = name.strip()
    return name if _ITEM.fullmatch(name) or _URI.match(name) else str(Path(table).parent / name)


def decoded(name: str, config: Config) -> NDArray[Any]:
    """Decode a sound to samples at data.rate, a picture to pixels (F, data.pixels, data.pixels, 3)."""
    if item := _ITEM.fullmatch(name):
        return _built_in(item[1], int(item[2]), config)
    if uri := _URI.match(name):
        try:
            data = base64.b64decode(name[uri.end() :], validate=True)
        except binascii.Error:
            raise BadSourceError("is no base64") from None
        return _from_file(io.BytesIO(data), len(data), config)
    path = Path(name)
    try:
        if not path.is_file():
            raise BadSourceError("is no file" if path.exists() else "does not exist")
        with path.open("rb") as file:
            return _from_file(file, path.stat().st_size, config)
    except (OSError, ValueError) as error:
        if isinstance(error, BadSourceError):
            raise
        raise BadSourceError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from None


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


def media_in(line: str) -> Media | None:
    """What the first name of a sound or a picture in a row of a table, or in a JSON object, is one of."""
    cells = (cell.strip(' "{}[]') for cell in re.split(r"[\t,;|]|: ", line))
    return next((found for cell in cells if (found := media_of(cell))), None)


def _built_in(name: str, number: int, config: Config) -> NDArray[Any]:
    found: NDArray[Any]
    if name == "tones":
        found = corpus(name).sound(config.seed, number, config.rate)
    else:
        found = corpus(name).frames(config.seed, number, config.pixels)
    return found

"""Sources of pairs that are sounds or pictures: their settings, and how many of them fit a batch or the memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from segue.batches.codec import Codec
from segue.batches.noise import OF_SOURCES
from segue.data.config import Config as Data
from segue.data.media import MEDIA
from segue.data.pictures import MOST_FRAMES
from segue.data.sources import source_of
from segue.errors import InputError
from segue.inference.opened import Opened
from segue.tasks.base import Values
from segue.tokens.tokenizer import Config as Tokens

if TYPE_CHECKING:
    from segue.batches.picture_noise import PictureNoise
    from segue.batches.specaugment import SpecAugment

_FRAMES = 3000
"""The default of batches.length for sound: 30 s."""
_WINDOW, _WINDOW_BYTES = 256, 1 << 28
"""Most sounds or pictures that are in memory at once, to be sorted by length, and the most bytes of them."""


def settle_source(values: Values) -> None:
    """Say what the sources are, as their names tell, and refuse what is for other ones. What is heard is cut after
    30 seconds, and ranked by its word error rate."""
    data = values["data"]
    if data.get("source", "auto") == "auto":
        if data.get("path", Data.path) == Data.path:
            return  # a recipe without its data
        told = {key: str(data[key]) for key in ("path", "format", "delimiter", "columns", "encoding") if key in data}
        with suppress(ValueError):  # a wrong value is refused where the section is made
            data["source"] = source_of(Data(**told))  # type: ignore[arg-type]
    source = str(data.get("source", "text"))
    if source in ("text", *MEDIA):
        _check_settings(values, source)
    if source == "sound":
        data.setdefault("metric", "wer")
        if str(values["batches"].get("length", 0)) == "0":
            values["batches"]["length"] = _FRAMES


def _check_settings(values: Values, source: str) -> None:
    """Refuse settings that are for other sources than these: text, sound or picture."""
    these, noise = f"these are {source}s", str(values["batches"].get("noise", "none"))
    if noise in OF_SOURCES and source != OF_SOURCES[noise]:
        wanted = f"{OF_SOURCES[noise]}s"
        raise InputError(f"batches.noise={noise} is for sources that are {wanted}, and {these}. Leave it out.")
    for key in ("sides", "dropout") if source in MEDIA else ():
        if str(value := values["tokens"].get(key, vars(Tokens())[key])) not in ("both", "0", "0.0"):
            raise InputError(f"tokens.{key}={value} is for sources that are texts, and {these}. Leave it out.")


def frame_noise(name: str) -> type[SpecAugment] | type[PictureNoise]:
    """Return what changes the frames of sources in training."""
    from segue.batches.picture_noise import PictureNoise  # numba takes long to import
    from segue.batches.specaugment import SpecAugment

    return SpecAugment if name == "specaugment" else PictureNoise


def tokens_of_frame(codec: Codec | None) -> int:
    """Return how many tokens of a batch a frame of a source counts as: one, or of pictures as many as it has squares
    of 8 x 8 pixels, about as many as attention sees."""
    pixels = codec.data.pixels if codec and codec.sizes.source == "picture" else 0
    return max(1, (pixels // 8) ** 2)


def places_of_source(opened: Opened, length: int) -> int:
    """Count the places that a model makes of a source: tokens, patches of frames, or a quarter of a sound's frames."""
    if not opened.codec.sizes.frame:
        return length
    import torch

    return int(opened.model.source_mask(torch.ones(1, length, dtype=torch.bool)).shape[1])


def most_in_memory(opened: Opened) -> int:
    """Return how many sounds or pictures may be in memory at once, each as long as it can be."""
    sizes = opened.codec.sizes
    size = 4 * opened.limit if sizes.source == "sound" else min(MOST_FRAMES, opened.limit)
    return max(1, min(_WINDOW, _WINDOW_BYTES // (size * sizes.frame)))

"""Attention drawn on the source itself: over the spectrogram of a sound, or on the patches of a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.inference.alignment import Alignment, pair_batch
from segue.inference.opened import Opened
from segue.inference.places import Patches, Times
from segue.look.inside.view import Floats, Picture, View
from segue.look.source_picture import picture_of

MOST_TIMES = 30
"""Columns of a sound: more would not fit beside each other."""
_PIXELS = 16
"""Pixels of a spectrogram in a column, at least, if it has so many frames."""
_BANDS = 8
"""Lines of a spectrogram in a terminal."""
_WHITE = 255


def on_source(opened: Opened, text: str, title: str, panels: Mapping[str, Alignment]) -> View:
    """A matrix of words and times, the spectrogram above it; or the picture for each word, clear where it looks."""
    frames = pair_batch(opened, [(text, "")]).source[0]
    places = next(iter(panels.values())).places
    if isinstance(places, Times):
        return _heard(opened, frames, places, title, panels)
    assert places is not None  # the source is no text
    return _seen(opened, frames, places, title, panels)


def _heard(opened: Opened, frames: NDArray[Any], places: Times, title: str, panels: Mapping[str, Alignment]) -> View:
    first = next(iter(panels.values()))
    count = len(first.source)
    each = math.ceil(count / MOST_TIMES)
    values = [np.add.reduceat(one.alpha_TS, range(0, count, each), axis=1) for one in panels.values()]
    columns = first.source[::each]
    beyond = len(columns) * each * places.frames - len(frames)  # so that its columns are as wide as those below it
    frames = np.pad(frames, ((0, max(0, beyond)), (0, 0)), constant_values=frames.min())
    return View(
        kind="heat",
        title=title,
        note=f"A column is {each * places.seconds:.2f} s, named by when it begins; attention is summed in it, so that "
        "each row sums to 1. Above it is the sound: low frequencies at the bottom, loud ones dark.",
        panels=tuple(panels),
        rows=first.target,
        columns=columns,
        values_PRC=np.stack(values),
        picture=Picture(picture_of(_thinned(frames, len(columns)), opened.codec.sizes), _bands(frames, len(columns))),
    )


def _thinned(frames: NDArray[Any], columns: int) -> NDArray[Any]:
    """Means of neighbouring frames, where each column has more than can be seen."""
    wide, step = len(frames) // columns, 1
    while wide % (2 * step) == 0 and wide >= 2 * step * _PIXELS:
        step *= 2
    return np.asarray(frames.reshape(-1, step, frames.shape[1]).mean(1))


def _bands(frames: NDArray[Any], columns: int) -> Floats:
    """How loud the sound is, from 0 to 1, in some bands of frequencies, the lowest last, and in each column."""
    times = frames.reshape(columns, -1, frames.shape[1]).mean(1)
    bands = np.array([band.mean(0) for band in np.array_split(times.T, _BANDS)])[::-1]
    return _above_median(bands)


def _seen(opened: Opened, frames: NDArray[Any], places: Patches, title: str, panels: Mapping[str, Alignment]) -> View:
    several = len(panels) > 1
    values = {
        f"{name}: {word}" if several else word: places.strip(alpha_S)
        for name, one in panels.items()
        for word, alpha_S in zip(_numbered(one.target), one.alpha_TS, strict=True)
    }
    moves = len(frames) > 1
    sides = [str(i + 1) for i in range(places.side)]
    pixels = _fitted(frames, places)
    flat = pixels.reshape(len(pixels), -1)
    return View(
        kind="patches",
        title=title,
        note="The clearer a patch (in characters: the denser), the more the word looks at it. "
        "The attention of each word sums to 1." + (" The frames stand side by side." if moves else ""),
        panels=tuple(values),
        rows=tuple(sides),
        columns=tuple(f"{frame + 1}.{side}" if moves else side for frame in range(len(frames)) for side in sides),
        values_PRC=np.stack(list(values.values())),
        picture=Picture(picture_of(flat, replace(opened.codec.sizes, frame=flat.shape[1])), _ink(pixels, places)),
    )


def _numbered(words: tuple[str, ...]) -> list[str]:
    """Names of panels, all different: a word that comes again has its number."""
    return [f"{word} ({words[:i].count(word) + 1})" if word in words[:i] else word for i, word in enumerate(words)]


def _fitted(frames: NDArray[Any], places: Patches) -> NDArray[Any]:
    """(F, P, P, 3) the pixels that the patches cover; beyond the picture they are white."""
    side = math.isqrt(frames.shape[1] // 3)
    beyond = places.side * places.pixels - side
    return np.pad(frames.reshape(-1, side, side, 3), ((0, 0), (0, beyond), (0, beyond), (0, 0)), constant_values=_WHITE)


def _ink(pixels: NDArray[Any], places: Patches) -> Floats:
    """How dark each patch is, from 0 to 1: the frames side by side."""
    side, p = places.side, places.pixels
    light = pixels.reshape(-1, side, p, side, p, 3).mean((2, 4, 5)) / _WHITE
    return _above_median(np.concatenate(list(1 - light), 1))


def _above_median(levels_RC: NDArray[Any]) -> Floats:
    """Levels from 0 to 1; the median and what is below it is 0, so that noise and the ground are left blank."""
    more = np.maximum(levels_RC - np.median(levels_RC), 0.0)
    return np.asarray(more / (more.max() or 1.0), np.float64)

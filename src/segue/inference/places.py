"""Where the places are that attention sees in a sound or in a picture: seconds, or rows and columns of patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_TAIL = 0.1
"""The share of a word's attention that lies before its start, and after its end."""


class Times(NamedTuple):
    """The places of a sound, one after the other."""

    frames: int
    """Frames that a place stands for."""
    seconds: float
    """Seconds that a place stands for."""

    def names(self, count: int) -> tuple[str, ...]:
        """When each place begins, in seconds."""
        return tuple(f"{place * self.seconds:.2f}" for place in range(count))

    def link(self, word: str, alpha_S: Floats) -> dict[str, Any]:
        """A word with the seconds between which the middle 80 % of its attention lies."""
        shares = np.concatenate([[0.0], np.cumsum(alpha_S) / alpha_S.sum()])
        start, end = np.interp((_TAIL, 1 - _TAIL), shares, self.seconds * np.arange(len(shares)))
        return {"word": word, "start": round(float(start), 3), "end": round(float(end), 3)}

    def line(self, links: Sequence[dict[str, Any]]) -> str:
        """Write links as words with seconds: "one:0.12-0.31 two:0.40-0.55"."""
        return " ".join(f"{one['word']}:{one['start']:.2f}-{one['end']:.2f}" for one in links)


class Patches(NamedTuple):
    """The places of a picture: patches in rows, and frame after frame if it moves."""

    side: int
    """Patches in a row, and in a column."""
    pixels: int
    """Pixels in a row of a patch, and in a column."""

    def names(self, count: int) -> tuple[str, ...]:
        """The row and the column of each patch, counted from 1; after its frame, if there are several."""
        moves = count > self.side**2
        return tuple(self._name(self._at(place), moves) for place in range(count))

    def link(self, word: str, alpha_S: Floats) -> dict[str, Any]:
        """A word with the frame, the row and the column of the patch that gets most of its attention, from 1."""
        frame, row, column = self._at(int(alpha_S.argmax()))
        return {"word": word, "frame": frame, "row": row, "column": column}

    def line(self, links: Sequence[dict[str, Any]]) -> str:
        """Write links as words with frame, row and column: "red:1,3,5 circle:1,3,6"."""
        return " ".join(f"{one['word']}:{one['frame']},{one['row']},{one['column']}" for one in links)

    def strip(self, alpha_S: Floats) -> Floats:
        """The attention as it lies on the picture: the frames side by side."""
        frames = alpha_S.reshape(-1, self.side, self.side)
        return np.concatenate(list(frames), 1)

    def _at(self, place: int) -> tuple[int, int, int]:
        frame, rest = divmod(place, self.side**2)
        return frame + 1, rest // self.side + 1, rest % self.side + 1

    def _name(self, at: tuple[int, int, int], moves: bool) -> str:
        return ",".join(map(str, at if moves else at[1:]))


Places = Times | Patches


def places_of(model: Any) -> Places | None:
    """What the places are that this model makes of a source; None: they are the tokens of a text."""
    from segue.layers.sources import PictureStem, SoundStem

    for layer in model.modules():
        if isinstance(layer, SoundStem):
            from segue.batches.log_mel import STEP

            return Times(layer.stride, layer.stride * STEP)
        if isinstance(layer, PictureStem):
            return Patches(layer.grid, layer.pixels)
    return None

"""What a masked language model puts into the holes of a text, as bars: the likeliest tokens of each hole."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.fill import HOLE, fill
from segue.inference.opened import Opened
from segue.look.inside.view import View
from segue.models.base import MaskedModel


def applies(model: Any) -> bool:
    """Masked language models."""
    return isinstance(model, MaskedModel)


def view(opened: Opened, text: str, top: int = 10) -> View:
    """The `top` likeliest tokens of each hole ([MASK]) of a text; of several holes, each token after the number of its
    hole."""
    if top < 1:
        raise InputError(f"--top {top} asks for no token: expected 1 or more.")
    (found,) = fill(opened, [text], top)
    several = len(found.holes) > 1
    fillers = [(number, filler) for number, hole in enumerate(found.holes, 1) for filler in hole]
    note = f"With the likeliest token in {'each hole' if several else 'it'}: {found.filled}"
    if found.unread:
        note += f"\n{found.unread:,} tokens are outside the window, which lies around each hole."
    return View(
        kind="bars",
        title=f"What fills “{_around_hole(text)}”",
        note=note,
        panels=("p",),
        rows=tuple(f"{number} {filler.token}" if several else filler.token for number, filler in fillers),
        columns=("p",),
        values_PRC=np.array([filler.probability for _, filler in fillers]).reshape(1, -1, 1),
    )


def _around_hole(text: str) -> str:
    """A text as a title names it: its beginning, or what stands around the first hole of a long one."""
    hole = HOLE.search(text)
    first = max(0, hole.start() - 60) if hole and len(text) > 120 else 0
    return ("…" if first else "") + text[first : first + 120]

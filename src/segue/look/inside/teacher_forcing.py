"""Teacher forcing against reading itself: the same source read both ways, and the step where the two part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.alignment import END
from segue.inference.opened import Opened
from segue.inference.teacher_forcing import both_runs
from segue.look.inside.reading import MOST_TOKENS, source_name, split_pair
from segue.look.inside.view import View
from segue.models.base import EncoderDecoder


def applies(model: Any) -> bool:
    """Every encoder-decoder."""
    return isinstance(model, EncoderDecoder)


def view(opened: Opened, text: str, target: str = "") -> View:
    """A row a step: the reference's token, the likeliest after the reference's, the likeliest after its own."""
    text, target = split_pair(text, target)
    if not target:
        raise InputError(
            "Teacher forcing reads a reference, and none is given. Write the source, a tab and the reference, or give "
            "the reference by --target."
        )
    runs = next(both_runs(opened, [(text, target)], MOST_TOKENS))
    parted, length = runs.parted, len(runs.reference.ids)
    shown = range(min(MOST_TOKENS, max(length, len(runs.free.ids))))
    right = [sum(a == b for a, b in zip(runs.reference.ids, run.ids, strict=False)) for run in (runs.forced, runs.free)]
    where = "The two never part." if parted is None else f"The two part at step {parted + 1}, marked by >."
    return View(
        kind="table",
        title=f"Teacher forcing against reading itself, “{source_name(text)}”",
        note=f"{where} Of the reference's {length:,} tokens, teacher forcing predicts {right[0]:,}, reading itself "
        f"{right[1]:,} (greedy). Beside each token stands its probability at that step.",
        panels=("p of each token",),
        rows=tuple(f"{t + 1}{' >' if t == parted else ''}" for t in shown),
        columns=("reference", "teacher forcing", "reading itself"),
        values_PRC=np.array([[_at(run.p, t, np.nan) for run in runs] for t in shown])[None],
        cells_RC=tuple(tuple(_name(opened, _at(run.ids, t)) for run in runs) for t in shown),
    )


def _at(values: Sequence[Any] | Any, place: int, otherwise: Any = None) -> Any:
    return values[place] if place < len(values) else otherwise


def _name(opened: Opened, token: int | None) -> str:
    if token is None:
        return ""
    return END if token == opened.codec.sizes.stop else opened.codec.tokenizer.name(int(token)).strip()

"""The gates of an LSTM or GRU, unit by unit, while a text is read; of an Elman network, its hidden units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.look.inside.reading import has_layer, read
from segue.look.inside.view import View
from segue.models.base import Counted

SHOWN = {
    "lstm": {
        "input": "input gate i",
        "forget": "forget gate f",
        "output": "output gate o",
        "cell": "tanh of the cell c",
    },
    "gru": {"update": "update gate z", "reset": "reset gate r", "hidden": "hidden h"},
    "elman": {"hidden": "hidden h"},
}
"""By the cell: what is drawn of what the layer records, and what the textbook calls it."""


def applies(model: Any) -> bool:
    """Networks with recurrent layers."""
    if isinstance(model, Counted):
        return False
    from segue.layers.recurrent import Recurrent

    return has_layer(model, Recurrent)


def view(opened: Opened, text: str, layer: int = 1, top: int = 16) -> View:
    """A matrix a gate: a row is a unit, a column a token. Of a wide layer, the `top` units that change most."""
    found = read(opened, text)
    sweeps = found.seen["gates"]
    cell, directions = _cell(opened.model)
    layers = len(sweeps) // directions
    if not 1 <= layer <= layers:
        raise InputError(f"There is no layer {layer}: this model has layers 1 to {layers}.")
    if top < 1:
        raise InputError(f"--top {top} asks for no unit: expected 1 or more.")
    own = sweeps[(layer - 1) * directions : layer * directions]
    ways = ("",) if directions == 1 else (", from the left", ", from the right")
    panels = [f"{name}{way}" for way in ways for name in SHOWN[cell].values()]
    values_PCR = np.stack([_of_row(one, key) for one in own for key in SHOWN[cell]])
    units = _changing(values_PCR, top)
    count = values_PCR.shape[-1]
    which = f"{len(units):,} of {count:,} units, those that change most." if len(units) < count else ""
    return View(
        kind="heat",
        title=f"Gates of layer {layer} ({cell}) over “{text[:60]}”",
        note=" ".join(
            part for part in ("Gates lie between 0 and 1, tanh between -1 and 1.", which, found.note) if part
        ),
        panels=tuple(panels),
        rows=tuple(f"unit {unit + 1}" for unit in units),
        columns=found.tokens,
        values_PRC=values_PCR[:, :, units].transpose(0, 2, 1).copy(),
    )


def _of_row(recorded: dict[str, Any], key: str) -> NDArray[np.float64]:
    """(C, R) what was recorded under a name; the cell, which has no bounds, as the tanh that the output gate reads."""
    values = recorded[key][0].float().cpu().numpy().astype(np.float64)
    return np.asarray(np.tanh(values) if key == "cell" else values)


def _cell(model: Any) -> tuple[str, int]:
    """The cell of the recurrent layers, and in how many directions they read."""
    from segue.layers.recurrent import Recurrent

    first = next(module for module in model.modules() if isinstance(module, Recurrent))
    return first.cell, first.directions


def _changing(values_PCR: NDArray[np.float64], top: int) -> list[int]:
    """The units that change most over the text in the last panel, the memory; in the order of their numbers."""
    spread = values_PCR[-1].std(0)
    return sorted(np.argsort(-spread, kind="stable")[:top].tolist())

"""Positions: how alike two places are to a Transformer, by the distance between them.

onehot, sinusoidal, learned   the cosine of the vectors that are added to the tokens', averaged over all such places
rotary                        the cosine of a query and an equal key, once both are turned
relative                      what is added to the scores, head by head
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.look.inside.reading import has_layer
from segue.look.inside.view import View
from segue.models.base import Counted


def applies(model: Any) -> bool:
    """Transformers that are told where a token stands."""
    if isinstance(model, Counted):
        return False
    from segue.layers.position import Positions

    return has_layer(model, Positions) and _positions(model).kind != "none"


def view(opened: Opened, text: str, top: int = 64) -> View:
    """A line over the first `top` distances; the text is not read."""
    if top < 1:
        raise InputError(f"--top {top} asks for no distance: expected 1 or more.")
    positions = _positions(opened.model)
    values_RC = by_distance(positions)[:, :top]
    heads, last = positions.kind == "relative", values_RC.shape[1] - 1
    falls = "" if heads else f" The cosine falls until distance {_falls(values_RC[0])}."
    return View(
        kind="lines",
        title=f"Positions ({positions.kind}): how alike two places are, by their distance",
        note=f"Distances 0 to {last:,} from left to right; the window has {positions.context:,} places.{falls}",
        panels=("added to the score" if heads else "cosine of two places",),
        rows=tuple(f"head {head + 1}" for head in range(len(values_RC))) if heads else ("cosine",),
        columns=tuple(str(distance) for distance in range(values_RC.shape[1])),
        values_PRC=values_RC[None],
    )


def _positions(model: Any) -> Any:
    from segue.layers.position import Positions

    return next(module for module in model.modules() if isinstance(module, Positions))


def by_distance(positions: Any) -> NDArray[np.float64]:
    """(R, distances): one row, or for relative positions a row a head."""
    import torch

    from segue.layers.position import rotate

    held = [*positions.parameters(), *positions.buffers()]
    places = torch.arange(positions.context, device=held[0].device)
    with torch.inference_mode():
        bias_HTS, rotation = positions.bias(places, len(places)), positions.rotation(places)
        if bias_HTS is not None:
            return np.asarray(bias_HTS[:, -1].flip(-1).double().cpu().numpy())
        if rotation is not None:
            x_TD = rotate(torch.ones_like(rotation.cos), rotation).reshape(len(places), -1)
        else:
            x_TD = positions.add(torch.zeros(1, 1, 1, device=places.device), places)[0]
        x_TD = torch.nn.functional.normalize(x_TD.double(), dim=-1)
        cosines_TT = (x_TD @ x_TD.T).cpu().numpy()
    return np.array([[np.diagonal(cosines_TT, distance).mean() for distance in range(len(places))]])


def _falls(values: NDArray[np.float64]) -> int:
    """The distance from which on the line no longer falls."""
    rises = np.flatnonzero(np.diff(values) >= 0)
    return int(rises[0]) if len(rises) else len(values) - 1

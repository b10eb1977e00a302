"""Attention: how much each token looks at each of the tokens that it sees, head by head."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.look.inside.reading import has_layer, read
from segue.look.inside.view import View
from segue.models.base import Counted


def applies(model: Any) -> bool:
    """Networks with layers of self-attention."""
    if isinstance(model, Counted):
        return False
    from segue.layers.attention import SelfAttention

    return has_layer(model, SelfAttention)


def view(opened: Opened, text: str, layer: int = 0, head: int = 0) -> View:
    """A matrix a head: a row is the token that looks, a column the token it looks at. Layers and heads are counted
    from 1; 0 shows all."""
    found = read(opened, text)
    weights = [a_BHTS[0].float().cpu().numpy().astype(np.float64) for a_BHTS in found.seen["attention"]]
    layers = numbered("layer", layer, len(weights))
    heads = numbered("head", head, len(weights[0]))
    causal = not any(np.triu(weights_HTS, 1).any() for weights_HTS in weights)
    seen = "those before it and at itself" if causal else "those on both sides of it and at itself"
    return View(
        kind="heat",
        title=f"Attention over “{text[:60]}”",
        note=" ".join([f"Each row sums to 1: how much its token looks at {seen}.", found.note]),
        panels=tuple(f"layer {one} head {own}" for one in layers for own in heads),
        rows=found.tokens,
        columns=found.tokens,
        values_PRC=np.stack([weights[one - 1][own - 1] for one in layers for own in heads]),
    )


def numbered(what: str, chosen: int, there: int) -> list[int]:
    """The layer or head that was asked for, or all of them for 0."""
    if not 0 <= chosen <= there:
        raise InputError(f"There is no {what} {chosen}: this model has {what}s 1 to {there}; 0 shows all.")
    return [chosen] if chosen else list(range(1, there + 1))

"""A map of sentences: the vector c that an encoder makes of each, on the plane in which these differ most."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.alignment import pair_batch
from segue.inference.opened import Opened
from segue.look.inside.reading import source_name
from segue.look.inside.view import View
from segue.look.page.projection import on_plane
from segue.models.base import EncoderDecoder

LEAST = 3
"""Sentences of a map: two are a line, however alike they are."""


def applies(model: Any) -> bool:
    """Every encoder-decoder."""
    return isinstance(model, EncoderDecoder)


def view(opened: Opened, text: str) -> View:
    """A point a source; the sources stand on lines of their own, or with a bar between them."""
    sources = [part.strip() for part in re.split(r"[\n|]", text) if part.strip()]
    if len(sources) < LEAST:
        raise InputError(
            f"A map has {LEAST} sources or more; found {len(sources)}. Put a bar between them: "
            'segue look RUN "the cow eats | the cows eat | a dog eats" --view sentence_map'
        )
    plane = on_plane(_vectors(opened, sources))
    return View(
        kind="points",
        title=f"Map of {len(sources)} sources",
        note="What the encoder makes of each source, on the two directions in which these vectors differ most.",
        panels=("sources",),
        rows=tuple(map(source_name, sources)),
        columns=("x", "y", "group"),
        values_PRC=np.column_stack([plane, np.arange(len(sources))])[None],
    )


def _vectors(opened: Opened, sources: list[str]) -> Any:
    """(N, D) a vector a source."""
    import torch

    batch = pair_batch(opened, [(source, "") for source in sources]).to(opened.device)
    opened.model.eval()
    with torch.inference_mode():
        x_ND = opened.model.sentence_vectors(batch.source, batch.source_mask)
    if x_ND is None:
        raise InputError("This model has no vector for a source. Look into one of its parts.")
    return x_ND.double().cpu().numpy()

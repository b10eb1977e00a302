"""Alignment: how much each word of a target looks at each word of its source."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.alignment import Alignment, aligned, attends, of_words, pair_batch, real_places
from segue.inference.opened import Opened
from segue.look.inside.attention import numbered
from segue.look.inside.on_source import on_source
from segue.look.inside.reading import pair, source_name
from segue.look.inside.view import View


def applies(model: Any) -> bool:
    """Encoder-decoders with attention."""
    return attends(model)


def view(opened: Opened, text: str, target: str = "", layer: int = 0, head: int = 0) -> View:
    """A matrix: a row is a word of the target, a column a word of the source. With a layer or a head, counted from 1,
    those of a Transformer's cross-attention; else what the model calls its alignment. Of a sound the columns are times,
    of a picture each word has the patches that it looks at."""
    text, target = pair(opened, text, target)
    panels = _heads(opened, text, target, layer, head) if layer or head else {}
    panels = panels or {"alignment": next(aligned(opened, [(text, target)]))}
    first, name = next(iter(panels.values())), source_name(text)
    if first.places is not None:
        return on_source(opened, text, f"Alignment of “{target[:60]}” with {name}", panels)
    covered = ", ".join(f"{word} {sum_:.2f}" for word, sum_ in zip(first.source, first.coverage, strict=True))
    return View(
        kind="heat",
        title=f"Alignment of “{target[:60]}” (rows) with its source “{name}” (columns)",
        note="Each row sums to 1. Tokens of a source word are summed, of a target word averaged."
        + (f"\nCoverage, the sum of each column: {covered}." if len(panels) == 1 else ""),
        panels=tuple(panels),
        rows=first.target,
        columns=first.source,
        values_PRC=np.stack([one.alpha_TS for one in panels.values()]),
    )


def _heads(opened: Opened, text: str, target: str, layer: int, head: int) -> dict[str, Alignment]:
    """The cross-attention of a Transformer's decoder, layer by layer and head by head."""
    import torch

    from segue.layers.probe import record

    batch = pair_batch(opened, [(text, target)])
    opened.model.eval()
    with torch.inference_mode(), record() as seen:
        opened.model(batch.to(opened.device))
    if "cross_attention" not in seen:
        raise InputError("--layer and --head are for Transformers: this model has one alignment. Leave them out.")
    real_S = real_places(opened, batch)[0]
    weights = [a_BHTS[0].double().cpu().numpy()[..., real_S] for a_BHTS in seen["cross_attention"]]
    return {
        f"layer {one} head {own}": of_words(opened, text, target, weights[one - 1][own - 1])
        for one in numbered("layer", layer, len(weights))
        for own in numbered("head", head, len(weights[0]))
    }

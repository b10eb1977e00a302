"""Coverage: the attention that each word of a source gets from all words of the target (Tu et al. 2016).

A word far above 1 may be translated twice, a word near 0 not at all.
"""

from __future__ import annotations

from typing import Any

from segue.inference.alignment import aligned, attends
from segue.inference.opened import Opened
from segue.look.inside.on_source import on_source
from segue.look.inside.reading import pair
from segue.look.inside.view import View


def applies(model: Any) -> bool:
    """Encoder-decoders with attention."""
    return attends(model)


def view(opened: Opened, text: str, target: str = "") -> View:
    """Every word or place of the source with the sum of its column in the alignment."""
    text, target = pair(opened, text, target)
    found = next(aligned(opened, [(text, target)]))
    title = f"Coverage of the source by “{target[:60]}”"
    if found.places is not None:
        whole = found._replace(target=("all words",), alpha_TS=found.coverage[None])
        shown = on_source(opened, text, title, {"coverage": whole})
        return shown._replace(note=f"The sum over the {len(found.target)} words of the target of their attention.")
    return View(
        kind="text",
        title=title,
        note=f"The sum over the {len(found.target)} words of the target of their attention to each word of the source; "
        "the end of the text is one. Far above 1: perhaps translated twice; near 0: perhaps left out.",
        panels=("coverage",),
        rows=("attention",),
        columns=found.source,
        values_PRC=found.coverage.reshape(1, 1, -1),
    )

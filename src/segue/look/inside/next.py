"""The likeliest next tokens, as bars; where n-grams were counted, a bar is made of what each order adds."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.look.explain.evidence import Context, Followers, Term, followers, has_counts, token_name
from segue.look.inside.view import View
from segue.models.base import LanguageModel


def applies(model: Any) -> bool:
    """Language models that need no source."""
    return isinstance(model, LanguageModel) and "source" not in model.inputs


def view(opened: Opened, text: str, top: int = 10) -> View:
    """The `top` likeliest tokens after a text."""
    if top < 1:
        raise InputError(f"--top {top} asks for no token: expected 1 or more.")
    ids = opened.fed(text)
    if has_counts(opened.model):
        return _counted(followers(opened.model, opened.codec.tokenizer, ids, top), _title(text))
    expected = likeliest(opened, ids, top)
    rows = tuple(token for token, _ in expected)
    values = np.array([p for _, p in expected], np.float64).reshape(1, -1, 1)
    return View("bars", _title(text), "", ("p",), rows, ("p",), values)


def likeliest(opened: Opened, ids: list[int], top: int) -> list[tuple[str, float]]:
    """The likeliest tokens after `ids`, with their probabilities; the end of a text is "</s>"."""
    import torch

    model = opened.model
    with torch.inference_mode():
        tokens = torch.tensor([ids], device=opened.device)
        logits, _ = model.step(tokens, torch.ones_like(tokens, dtype=torch.bool), model.start(1, len(ids)))
        # Stable: tokens of the same probability stand in the order of their ids, however many are asked for.
        best = logits[0].float().softmax(-1).sort(descending=True, stable=True)
    pairs = zip(best.indices[:top].tolist(), best.values[:top].tolist(), strict=True)
    tokenizer, stop = opened.codec.tokenizer, opened.codec.sizes.stop
    return [(token_name(tokenizer, stop, i), p) for i, p in pairs if p > 0]


def _title(text: str) -> str:
    return f"What comes after “{text[-60:]}”" if text else "How a text begins"


def _counted(found: Followers, title: str) -> View:
    """A part of a bar is what one order adds, the longest context first; 1/V comes last."""
    orders = [one.order for one in reversed(found.contexts) if one.seen]
    if any(token.terms[0].share for token in found.tokens):
        orders.append(0)
    terms = [[token.terms[k] for k in orders] for token in found.tokens]
    values = np.array([[term.share for term in row] for row in terms]).reshape(1, len(terms), len(orders))
    note = [_known(one) for one in reversed(found.contexts)]
    if found.continuation:
        note.append("Below the highest order, counts are of the different tokens that come before (Kneser-Ney).")
    return View(
        kind="bars",
        title=title,
        note="\n".join(note),
        panels=("p" if found.normalised else "score",),
        rows=tuple(token.token for token in found.tokens),
        columns=tuple(f"order {k}" if k else "1/V" for k in orders),
        values_PRC=values,
        cells_RC=tuple(tuple(map(_count, row)) for row in terms),
    )


def _known(one: Context) -> str:
    """A line on what an order knows of its context."""
    context = f"“{one.text}”" if one.order > 1 else "no context"
    if not one.seen:
        return f"order {one.order}: {context} was never seen"
    counts = f"c(h) = {one.total:,}, N(h) = {one.followers:,}"
    return f"order {one.order}: {context}, {counts}, back-off weight {one.weight:.4f}"


def _count(term: Term) -> str:
    """The count, less the discount."""
    return f"{term.count:,}−{term.discount:.2f}" if term.discount else f"{term.count:,}" if term.count else ""

"""Which orders of an n-gram model speak: for each token of a text, the share of its probability from each order."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.inference.opened import Opened
from segue.look.explain.evidence import has_counts, terms_of
from segue.look.inside.reading import MOST_TOKENS
from segue.look.inside.view import View


def applies(model: Any) -> bool:
    """Models that counted n-grams."""
    return has_counts(model)


def view(opened: Opened, text: str) -> View:
    """A column a token, a row an order, the highest first; a column sums to 1, unless the token is impossible."""
    sizes, model = opened.codec.sizes, opened.model
    found, surfaces = opened.codec.tokenizer.pieces(text)
    ids = [sizes.start, *found.tolist(), sizes.stop]
    columns = (*surfaces, "</s>")[:MOST_TOKENS]
    shares_CR = np.zeros((len(columns), len(model.orders) + 1))
    for place in range(len(columns)):
        for term in terms_of(model, ids[: place + 1], ids[place + 1]):
            shares_CR[place, term.order] = term.share
    totals = shares_CR.sum(-1, keepdims=True)
    shares_CR = np.divide(shares_CR, totals, out=np.zeros_like(shares_CR), where=totals > 0)
    cut = f" The first {len(columns):,} of {len(ids) - 1:,} tokens." if len(columns) < len(ids) - 1 else ""
    return View(
        kind="heat",
        title="Which order the probability of each token comes from",
        note=f"Each column sums to 1; order n looks at the n - 1 tokens before, 1/V at none.{cut}",
        panels=("share of p",),
        rows=(*(f"order {k}" for k in range(len(model.orders), 0, -1)), "1/V"),
        columns=columns,
        values_PRC=shares_CR[None, :, ::-1].transpose(0, 2, 1).copy(),
    )

"""Counts: how often each of some words followed each of them, as a table, and the probabilities made of these counts.

A row is the context, a column the next token; "alone" is the row's own token without a context. A text such as
"to | eat spend" puts the tokens before the bar in front of every row: the table of a trigram, c(to eat, spend).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.look.explain.evidence import counts_of, has_counts, token_name
from segue.look.inside.view import View

BAR = " | "
MOST = 24
"""Tokens of a table: one of more cannot be read."""


def applies(model: Any) -> bool:
    """Models that counted n-grams, at least pairs of tokens."""
    return has_counts(model) and len(model.orders) > 1


def view(opened: Opened, text: str, top: int = 8) -> View:
    """The tokens of a text against each other; without a text, the `top` most frequent ones."""
    if top < 1:
        raise InputError(f"--top {top} asks for no token: expected 1 or more.")
    model, (before, asked) = opened.model, _divided(text)
    prefix = _encoded(opened, before)
    if len(prefix) > len(model.orders) - 2:
        raise InputError(
            f"{len(prefix)} tokens before the bar and one of each row are no context of this model: it counted n-grams "
            f"of up to {len(model.orders)} tokens. Expected at most {len(model.orders) - 2} before the bar."
        )
    ids = _asked(opened, asked) if asked.strip() else _frequent(opened, top)
    names = [token_name(opened.codec.tokenizer, model.sizes.stop, i) for i in ids[:MOST]]
    values_PRC = _table(model, prefix, ids[:MOST])
    return View(
        kind="table",
        title=f"Counts of what followed{f' “{before} …”' if before else ''}, and probabilities",
        note="\n".join([*_note(model, values_PRC[0]), *_cut(len(ids))]),
        panels=("count", "p" if model.normalised else "score"),
        rows=tuple(names),
        columns=("alone", *names),
        values_PRC=values_PRC,
    )


def _divided(text: str) -> tuple[str, str]:
    """What stands before the bar, and the tokens of the table; without a bar, nothing stands before."""
    before, bar, asked = text.partition(BAR)
    return (before.strip(), asked) if bar else ("", text)


def _encoded(opened: Opened, text: str) -> list[int]:
    """The tokens of a text. Where a blank is part of the word after it, the first word has one too: inside a text that
    is the commoner token."""
    encode, unk = opened.codec.tokenizer.encode, opened.codec.tokenizer.unk
    plain: list[int] = encode(text).tolist()
    blank: list[int] = encode(f" {text}").tolist()
    return blank if len(blank) == len(plain) and blank[:1] != [unk] else plain


def _asked(opened: Opened, text: str) -> list[int]:
    """Each token of a text once; unknown ones are left out."""
    known = [i for i in dict.fromkeys(_encoded(opened, text)) if i != opened.codec.tokenizer.unk]
    if not known:
        raise InputError(f"This run never saw “{text.strip()}”, so it has no counts of it. Give words of its text.")
    return known


def _frequent(opened: Opened, top: int) -> list[int]:
    """The most frequent tokens; the end of a text and unknown tokens are left out."""
    model = opened.model
    counts = counts_of(model, [], np.arange(model.sizes.vocab_size))
    counts[[model.sizes.stop, opened.codec.tokenizer.unk]] = 0
    return [int(i) for i in np.argsort(-counts, kind="stable")[: min(top, MOST)] if counts[i]]


def _table(model: Any, prefix: list[int], ids: list[int]) -> Any:
    """(2, R, 1 + R): counts and probabilities; the first column is of the row's token after the prefix alone."""
    tokens = np.array(ids, np.int64)
    values_PRC = np.zeros((2, len(ids), 1 + len(ids)))
    values_PRC[:, :, 0] = counts_of(model, prefix, tokens), model.distribution(prefix)[tokens]
    for row, token in enumerate(ids):
        context = [*prefix, token]
        values_PRC[:, row, 1:] = counts_of(model, context, tokens), model.distribution(context)[tokens]
    return values_PRC


def _note(model: Any, counts_RC: Any) -> list[str]:
    """What a row and a column are, how many cells are 0, and how sparse the whole model is."""
    own = counts_RC[:, 1:]
    said = ["A row is the context, a column the next token; “alone” is the row's token without a context."]
    said.append(f"{int((own == 0).sum()):,} of these {own.size:,} counts are 0.")
    if model.config.smoothing.endswith("kneser_ney"):
        said.append(
            f"Below order {len(model.orders)} Kneser-Ney counts the different tokens that stood before; "
            f"model.smoothing=maximum_likelihood has plain counts."
        )
    size = model.can_follow
    for order, one in enumerate(model.orders[1:3], 2):
        seen, name = len(one.level), {2: "pairs", 3: "triples"}[order]
        share = f"{seen:,} of {size**order:,}, {100 * seen / size**order:.3g} %"
        said.append(f"Of the possible {name} of {size:,} tokens the model has {share}.")
    return said


def _cut(count: int) -> list[str]:
    return [f"The first {MOST} of {count:,} tokens."] if count > MOST else []

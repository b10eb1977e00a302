"""The equation of a smoothing with a model's own numbers put in: what each order holds, and one example worked out.

The symbols are those at the head of models/ngram.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from segue.look.explain.evidence import context_text, token_name
from segue.ngrams.discounts import ONE_DISCOUNT, THREE_DISCOUNTS
from segue.ngrams.lookup import STUPID
from segue.ngrams.trie import bytes_of

EQUATIONS = {
    "maximum_likelihood": ("p(w|h) = c(h,w) / c(h)",),
    "add_alpha": ("p(w|h) = (c(h,w) + a) / (c(h) + a · V)",),
    "interpolation": ("p(w|h) = l · c(h,w) / c(h) + (1 − l) · p(w|h')",),
    "witten_bell": ("p(w|h) = (c(h,w) + N(h) · p(w|h')) / (c(h) + N(h))",),
    "absolute_discounting": ("p(w|h) = (c(h,w) − D) / c(h) + D · N(h) / c(h) · p(w|h')", "D = n1 / (n1 + 2 · n2)"),
    "kneser_ney": (
        "p(w|h) = (c(h,w) − D) / c(h) + D · N(h) / c(h) · p(w|h')",
        "D = n1 / (n1 + 2 · n2)",
    ),
    "modified_kneser_ney": (
        "p(w|h) = (c(h,w) − D(c)) / c(h) + (D1 · N1(h) + D2 · N2(h) + D3 · N3(h)) / c(h) · p(w|h')",
        "D1 = 1 − 2 · D · n2 / n1,  D2 = 2 − 3 · D · n3 / n2,  D3 = 3 − 4 · D · n4 / n3,  D = n1 / (n1 + 2 · n2)",
    ),
    "stupid_backoff": ("S(w|h) = c(h,w) / c(h) if that is not 0, else 0.4 · S(w|h')",),
}
_ALONE = ("maximum_likelihood", "add_alpha")
"""Only the longest context that was seen has a word."""
_TRIED = 200
_SLICE = 1 << 24


@dataclass(frozen=True)
class Holding:
    """What one order holds."""

    order: int
    ngrams: int
    bytes: int
    few: tuple[int, ...] | None
    """n1 … n4, the n-grams with a count of 1 … 4; None where some were left out (min_count)."""
    discounts: tuple[float, ...]
    """Of counts of 1, 2, and 3 or more; or one for all; or none."""
    usual: bool
    """Whether the discounts are those for a text that is too small to tell."""
    lambdas: tuple[float, ...]
    """interpolation: its l, or the least and the greatest of its groups of contexts."""


@dataclass(frozen=True)
class Example:
    """One probability, worked out."""

    context: str
    token: str
    lines: tuple[str, ...]
    """Equations that hold, one an order, the lowest first."""


def holdings(model: Any) -> list[Holding]:
    """What each order holds, the lowest first."""
    return [_holding(model, k, order.level) for k, order in enumerate(model.orders)]


def _holding(model: Any, k: int, level: Any) -> Holding:
    few = None
    if k == 0 or not model.config.min_count:
        found = np.zeros(256, np.int64)
        for begin in range(0, len(level.counts), _SLICE):
            found += np.bincount(level.counts[begin : begin + _SLICE], minlength=256)
        few = tuple(int(n) for n in found[1:5])
    smoothing = model.config.smoothing
    three = tuple(float(d) for d in model.discounts[k])
    discounts = {"modified_kneser_ney": three, "kneser_ney": three[:1], "absolute_discounting": three[:1]}
    own = discounts.get(smoothing, ())
    usual = not model.config.discount and own in (THREE_DISCOUNTS, (ONE_DISCOUNT,))
    ngrams = int((level.counts > 0).sum()) if k == 0 else len(level)
    lambdas = _lambdas(model, k) if smoothing == "interpolation" else ()
    return Holding(k + 1, ngrams, bytes_of([level]), few, own, usual, lambdas)


def _lambdas(model: Any, k: int) -> tuple[float, ...]:
    """The l that contexts of this order have: scale is l / c(h)."""
    order = model.orders[k]
    own = np.unique((order.scale * order.level.profiles[:, 0])[order.scale >= 0].round(9))
    return (float(own[0]), float(own[-1])) if len(own) > 1 else tuple(float(one) for one in own)


def example(model: Any, tokenizer: Any) -> Example:
    """The likeliest token after a common context."""
    ids = _common(model, tokenizer)
    known = [one for one in model.evidence(ids) if one.seen]
    token = int(np.argmax(model.distribution(ids)))
    name = _quoted(token_name(tokenizer, model.sizes.stop, token))
    shown, lines = f"1 / {model.can_follow:,}", []
    value = 1.0 / model.can_follow
    for one in known:
        place = int(np.searchsorted(one.words, token))
        count = int(one.counts[place]) if place < len(one.words) and one.words[place] == token else 0
        right, value = _worked(model, one, count, value, shown)
        text = context_text(tokenizer, model.sizes.start, one.context)
        given = f" | {_quoted(text)}" if one.context else ""
        letter = "p" if model.normalised else "S"
        lines.append(f"{letter}({name}{given}) = {right} = {_number(value)}")
        shown = _number(value)
    longest = context_text(tokenizer, model.sizes.start, known[-1].context)
    return Example(longest, token_name(tokenizer, model.sizes.stop, token), tuple(_needed(model, lines)))


def _needed(model: Any, lines: Sequence[str]) -> Sequence[str]:
    """The lines that the last one rests on."""
    if model.config.smoothing in _ALONE:
        return lines[-1:]
    if model.config.smoothing == "stupid_backoff":
        last = max((i for i, line in enumerate(lines) if f" {STUPID} · " not in line), default=0)
        return lines[last:]
    return lines


def _worked(model: Any, one: Any, count: int, below: float, shown: str) -> tuple[str, float]:
    """The right side of the equation in numbers, and its value; `below` is p' and `shown` is how it was written."""
    smoothing = model.config.smoothing
    total, ones, twos, more, lost = (int(n) for n in one.profile)
    followers, kept = ones + twos + more, total - lost
    taken = float(one.discounts[min(count, 3)])
    pruned = f" + {lost:,}" if lost else ""
    value = (count - taken) * one.scale + one.weight * below
    if smoothing == "maximum_likelihood":
        return f"{count:,} / {kept:,}", value
    if smoothing == "add_alpha":
        a, size = _number(model.alpha), model.can_follow
        return f"({count:,} + {a}) / ({kept:,} + {a} · {size:,})", (count + model.alpha) * one.scale
    if smoothing == "stupid_backoff":
        return (f"{count:,} / {kept:,}", count * one.scale) if count else (f"{STUPID} · {shown}", STUPID * below)
    if smoothing == "interpolation":
        own = _number(one.scale * total)
        rest = f"(1 − {own} + {own} · {lost:,} / {total:,})" if lost else f"(1 − {own})"
        return f"{own} · {count:,} / {total:,} + {rest} · {shown}", value
    if smoothing == "witten_bell":
        rest = f"({followers:,}{pruned})" if lost else f"{followers:,}"
        return f"({count:,} + {rest} · {shown}) / ({total:,} + {followers:,})", value
    left = f"({count:,} − {_number(taken)}) / {total:,}" if count else f"0 / {total:,}"
    if smoothing == "modified_kneser_ney":
        pairs = zip(one.discounts[1:], (ones, twos, more), strict=True)
        mass = " + ".join(f"{_number(discount)} · {n:,}" for discount, n in pairs)
        return f"{left} + ({mass}{pruned}) / {total:,} · {shown}", value
    mass = f"{_number(float(one.discounts[1]))} · {followers:,}"
    return f"{left} + {f'({mass}{pruned})' if lost else mass} / {total:,} · {shown}", value


def _common(model: Any, tokenizer: Any) -> list[int]:
    """The commonest context of the highest order that reads as text, as does what is likeliest after it; else the
    commonest of all."""
    for k in range(len(model.orders) - 1, 0, -1):
        level, scale = model.orders[k].level, model.orders[k].scale
        rows = [row for row in np.argsort(-level.profiles[:, 0], kind="stable")[:_TRIED] if scale[row] >= 0]
        tried = [_ids(model, k, int(np.argmax(level.profile == row))) for row in rows]
        for ids in tried:
            if _reads(tokenizer, ids) and _reads(tokenizer, [int(np.argmax(model.distribution(ids)))]):
                return ids
        if tried:
            return tried[0]
    return []


def _reads(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Whether there is a letter, and nothing but text."""
    return min(ids) > tokenizer.unk and any(letter.isalpha() for letter in tokenizer.decode(list(ids)))


def _ids(model: Any, k: int, context: int) -> list[int]:
    """The tokens of the k-gram with this id: each n-gram stands among the followers of its own beginning."""
    ids: list[int] = []
    for level in (order.level for order in reversed(model.orders[:k])):
        ids.append(int(level.words[context]))
        context = int(np.searchsorted(level.first, context, side="right")) - 1
    return ids[::-1]


def _quoted(text: str) -> str:
    return f"“{repr(text)[1:-1]}”"


def _number(value: float) -> str:
    return f"{value:.4g}"

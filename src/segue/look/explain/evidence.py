"""What follows a context in an n-gram model, and how much of its probability each order gives.

With p_0 = 1/V and, for each order k whose context was seen, p_k = own_k + weight_k · p_(k-1), the last p is a sum:

    p = own_n + weight_n · own_(n-1) + weight_n · weight_(n-1) · own_(n-2) + … + weight_n · … · weight_1 / V

Its terms are the shares of the orders; that of order 0 is what comes from 1/V. Of add-alpha only the longest context
counts, beside 1/V; stupid backoff takes one order alone, 0.4 times for each longer one that it was not found in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.models.base import NgramCounts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """What one order says of one token."""

    order: int
    """0 is 1/V, which has no counts."""
    count: int
    discount: float
    share: float
    """Of the probability; the shares of all orders sum to it."""


@dataclass(frozen=True)
class Follower:
    """A token that may come next."""

    id: int
    token: str
    probability: float
    terms: tuple[Term, ...]
    """Order 0 first."""


@dataclass(frozen=True)
class Context:
    """What one order knows of a context."""

    order: int
    text: str
    seen: bool
    total: int
    """c(h)"""
    followers: int
    """N(h): how many different tokens followed."""
    weight: float
    """What the order below is multiplied by."""


@dataclass(frozen=True)
class Followers:
    """The likeliest tokens after a context, and what each order knows of it."""

    tokens: tuple[Follower, ...]
    """Likeliest first."""
    contexts: tuple[Context, ...]
    """The lowest order first; orders that would look beyond the beginning of the text are left out."""
    continuation: bool
    """Whether counts below the highest order are of the different tokens that come before (Kneser-Ney)."""
    normalised: bool
    """Whether the probabilities are that, and not scores."""


def has_counts(model: Any) -> bool:
    """Whether a model counted n-grams, so that there is evidence."""
    return isinstance(model, NgramCounts)


def followers(model: Any, tokenizer: Any, ids: Sequence[int], top: int = 10) -> Followers:
    """The likeliest tokens after `ids`, which begin with STOP where a text begins there."""
    known = model.evidence(ids)
    p = model.distribution(ids)
    likely = _likeliest(p, top)
    tokens = [
        Follower(int(token), token_name(tokenizer, model.sizes.stop, int(token)), float(p[token]), terms)
        for token, terms in zip(likely, _terms(model, known, likely), strict=True)
    ]
    return Followers(
        tokens=tuple(tokens),
        contexts=tuple(_context(model, tokenizer, one) for one in known),
        continuation=model.config.smoothing.endswith("kneser_ney") and len(model.orders) > 1,
        normalised=model.normalised,
    )


def counts_of(model: Any, ids: Sequence[int], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """c(h,w) of some tokens w after `ids`, which are the whole of h; 0 where h was never seen."""
    known = model.evidence(ids)
    return _counts(known[len(ids)], tokens) if len(known) > len(ids) else np.zeros(len(tokens), np.int64)


def terms_of(model: Any, ids: Sequence[int], token: int) -> tuple[Term, ...]:
    """What each order says of one token after `ids`, order 0 first."""
    return _terms(model, model.evidence(ids), np.array([token]))[0]


def _terms(model: Any, known: Sequence[Any], tokens: NDArray[np.int64]) -> list[tuple[Term, ...]]:
    counts = np.stack([_counts(one, tokens) for one in known])
    taken = np.stack([one.discounts[np.minimum(count, 3)] for one, count in zip(known, counts, strict=True)])
    shares = _shares(model, known, counts - taken)
    if not model.unknown_follows:
        shares[:, tokens == model.sizes.unk] = 0.0
    return [
        (
            Term(0, 0, 0.0, float(shares[0, i])),
            *(
                Term(one.order, int(counts[k, i]), float(taken[k, i]), float(shares[k + 1, i]))
                for k, one in enumerate(known)
            ),
        )
        for i in range(len(tokens))
    ]


def _likeliest(p: Floats, top: int) -> NDArray[np.int64]:
    """The ids of the greatest p, those of 0 left out; of equal ones the lower id first."""
    top = min(top, len(p))
    least = np.partition(p, len(p) - top)[len(p) - top]
    found = np.flatnonzero((p >= least) & (p > 0))
    return found[np.argsort(-p[found], kind="stable")][:top]


def _counts(one: Any, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """c(h,w) of some tokens in one order."""
    if not len(one.words):
        return np.zeros(len(tokens), np.int64)
    places = np.minimum(np.searchsorted(one.words, tokens), len(one.words) - 1)
    return np.where(one.words[places] == tokens, one.counts[places], 0)


def _shares(model: Any, known: Sequence[Any], discounted: Floats) -> Floats:
    """(orders + 1, tokens): what each order adds to p."""
    from segue.ngrams.lookup import STUPID

    smoothing, uniform = model.config.smoothing, 1.0 / model.can_follow
    shares = np.zeros((len(known) + 1, discounted.shape[1]))
    shares[0] = 0.0 if smoothing == "stupid_backoff" else uniform
    for k, one in enumerate(known, 1):
        own = discounted[k - 1] * one.scale
        if smoothing == "add_alpha":
            shares[:] = 0.0
            shares[0] = one.weight * uniform
        elif smoothing == "stupid_backoff":
            shares *= np.where(own > 0, 0.0, STUPID)
        else:
            shares *= one.weight
        shares[k] = own
    return shares


def _context(model: Any, tokenizer: Any, one: Any) -> Context:
    total, ones, twos, more, _ = (int(n) for n in one.profile)
    from segue.ngrams.lookup import STUPID

    weight = one.weight
    if model.config.smoothing == "stupid_backoff":
        weight = STUPID if one.order > 1 else 0.0
    text = context_text(tokenizer, model.sizes.start, one.context)
    return Context(one.order, text, one.seen, total, ones + twos + more, weight)


def token_name(tokenizer: Any, stop: int, token: int) -> str:
    """A token as it stands in a text; the end of a text is "</s>"."""
    return {stop: "</s>", tokenizer.unk: "<unk>"}.get(token) or str(tokenizer.name(token))


def context_text(tokenizer: Any, start: int, ids: Sequence[int]) -> str:
    """The tokens of a context as text; the beginning of a text is "<s>"."""
    names = {start: "<s>", tokenizer.unk: "<unk>"}
    parts = [(special, list(run)) for special, run in groupby(ids, names.__contains__)]
    return "".join("".join(map(names.__getitem__, run)) if special else tokenizer.decode(run) for special, run in parts)


def evenest(model: Any, tokenizer: Any, ids: Sequence[int], most: int = 200, top: int = 8) -> tuple[int, Followers]:
    """The place in a text, and what follows there, where tokens and orders share what is expected most evenly.

    `ids` begin with STOP; the place p is after ids[:p]. Evenness is the entropy of all shares of the likeliest tokens:
    the more of them can be seen, the greater it is. Contexts that hold an unknown token are passed over.
    """
    best, place, chosen = -1.0, 1, followers(model, tokenizer, ids[:1], top)
    for here in range(1, min(len(ids), most) + 1):
        if tokenizer.unk in ids[max(0, here - model.config.order + 1) : here]:
            continue
        found = followers(model, tokenizer, ids[:here], top)
        shares = np.array([term.share for one in found.tokens for term in one.terms if term.share > 0])
        entropy = -float((shares * np.log(shares / shares.sum())).sum() / shares.sum()) if len(shares) else 0.0
        if entropy > best:
            best, place, chosen = entropy, here, found
    return place, chosen

"""What each order of an n-gram model is worth: its bits on training and held-out text, and what it never saw.

"Cut at order k" is this model without its longer contexts. Bits fall with the order as far as contexts of that length
come again; training text goes on falling where held-out text does not (overfitting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.encode import HeldOutText

if TYPE_CHECKING:
    from segue.models.ngram import ByOrder, Ngram

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

READ = 2_000_000
"""Tokens times orders that are looked up, so that a long text takes no longer than some tenths of a second."""
MOST_ORDERS = 8
"""Count n-grams of at most this order for the pictures of counts."""
POINTS = 60
"""Points of a curve on a logarithmic axis."""
MOST_COUNT = 100
"""The greatest count of the counts of counts: above it hardly two n-grams have the same."""


@dataclass(frozen=True)
class Sweep:
    """The bits against the one number of a smoothing: the alpha of add-alpha, the lambda of interpolation."""

    name: str
    values: list[float]
    held_out: list[float]
    training: list[float]
    chosen: float
    """The number that the model has."""
    at_chosen: float
    """The held-out bits with it."""


@dataclass(frozen=True)
class Orders:
    """Everything by order, the lowest first."""

    metric: str
    """bits per byte; bits per token where the tokens lose a part of the text."""
    held_out: list[float]
    """The bits of held-out text by the model cut at each order; empty if its scores are no probabilities."""
    training: list[float]
    """The same of training text."""
    perplexity: tuple[list[float], list[float]]
    """The perplexity of both, of held-out text first."""
    unseen: list[float]
    """The share of the n-grams of held-out text that training never saw."""
    weights: list[float]
    """The mean weight of 1/V, of order 1, of order 2, …; they sum to 1. Empty if the smoothing mixes no orders."""
    counts: list[tuple[list[int], list[int]]]
    """Counts r that n-grams of the training text have, and how many have each of them (counts of counts)."""
    ranks: list[tuple[list[int], list[int]]]
    """Ranks of n-grams, the most frequent first, and their counts (Zipf)."""
    continuation: bool
    """Whether lower orders count different contexts (Kneser-Ney), so that they are no models by themselves."""
    read: tuple[int, int]
    """Tokens of held-out and of training text that were looked up."""
    sweep: Sweep | None = None


def limit(model: Ngram) -> int:
    """Return how many tokens of a text are looked up at most."""
    return max(1000, READ // len(model.orders))


class Text(NamedTuple):
    """A text that was looked up, and how its bits are written: for each byte, or each token."""

    found: ByOrder
    text: HeldOutText
    lossless: bool

    def perplexity(self, p: Floats) -> list[float]:
        """Compute 2 to the power of the mean bits of a token, for each row of probabilities."""
        with np.errstate(divide="ignore"):
            return [float(value) for value in np.exp2(-np.log2(p).mean(1))]

    def bits(self, p: Floats) -> list[float]:
        """Compute, for each row of probabilities of the tokens, the bits per byte, spelling included, or per token."""
        with np.errstate(divide="ignore"):
            bits = -np.log2(p).sum(1)
        spelling = sum(self.text.spelled.values()) if self.lossless else 0.0
        size = self.text.bytes if self.lossless else p.shape[1]
        return [float(total) / max(1, size) for total in bits + spelling]


def orders_of(model: Ngram, held_out: HeldOutText, training: HeldOutText, lossless: bool = True) -> Orders:
    """Look up a held-out and a training text, each cut at `limit`; `lossless`: whether the tokens keep all of it."""
    new, old = (Text(model.by_order(text.store.tokens), text, lossless) for text in (held_out, training))
    counted = list(count_ngrams(np.asarray(training.store.tokens, np.int64), len(model.orders), model.restart))
    return Orders(
        metric="bits per byte" if lossless else "bits per token",
        held_out=new.bits(new.found.p) if model.normalised else [],
        training=old.bits(old.found.p) if model.normalised else [],
        perplexity=(new.perplexity(new.found.p), old.perplexity(old.found.p)) if model.normalised else ([], []),
        unseen=[float((counts[inside] == 0).mean()) for counts, inside in _inside(new.found)],
        weights=mixture_weights(new.found.weights).tolist() if model.interpolates else [],
        counts=[_counts_of_counts(counts) for counts in counted],
        ranks=[_ranked(counts) for counts in counted],
        continuation=model.config.smoothing.endswith("kneser_ney") and len(model.orders) > 1,
        read=(new.found.p.shape[1], old.found.p.shape[1]),
        sweep=_sweep(model, new, old),
    )


def _inside(found: ByOrder) -> Iterator[tuple[Floats, NDArray[np.bool_]]]:
    """Of each order the counts, and which of them have a context that does not begin before the text."""
    for counts, totals in zip(found.counts, found.totals, strict=True):
        if (totals >= 0).any():
            yield counts, totals >= 0


def mixture_weights(weights_KN: Floats) -> Floats:
    """Compute the mean weight of 1/V, order 1, …, order K in p: p_k = own_k + weight_k · p_(k-1), so that order k has
    (1 - weight_k) · weight_(k+1) · … · weight_K."""
    above_KN = np.cumprod(np.vstack([np.ones_like(weights_KN[:1]), weights_KN[::-1]]), axis=0)[::-1]
    own_KN = (1 - weights_KN) * above_KN[1:]
    return np.asarray(np.concatenate((above_KN[:1], own_KN)).mean(1), np.float64)


# Counts


def count_ngrams(tokens: Ids, orders: int, restart: int) -> Iterator[Ids]:
    """Yield, for order 1, 2, …, how often each different n-gram stands in a text; none goes on over `restart`."""
    ids, inside = tokens, np.ones(len(tokens), bool)
    for k in range(1, min(orders, MOST_ORDERS) + 1):
        if k > 1:
            inside = inside[:-1] & (tokens[k - 2 : -1] != restart)
            ids = ids[:-1] * (int(tokens.max()) + 1) + tokens[k - 1 :]
        if not inside.any():
            return
        _, ids = np.unique(ids, return_inverse=True)  # small again, so that the next order does not overflow
        counts = np.bincount(ids[inside])
        yield counts[counts > 0]


def _counts_of_counts(counts: Ids) -> tuple[list[int], list[int]]:
    numbers = np.bincount(counts)
    seen = np.flatnonzero(numbers[: MOST_COUNT + 1])
    return seen.tolist(), numbers[seen].tolist()


def _ranked(counts: Ids) -> tuple[list[int], list[int]]:
    ordered = np.sort(counts)[::-1]
    few = _spaced(len(ordered))
    return (few + 1).tolist(), ordered[few].tolist()


def _spaced(size: int) -> Ids:
    """Return places 0 … size - 1, evenly on a logarithmic axis."""
    return np.unique(np.geomspace(1, size, POINTS).round().astype(np.int64)) - 1


# One number of the smoothing, varied


def _sweep(model: Ngram, *texts: Text) -> Sweep | None:
    smoothing = model.config.smoothing
    if smoothing == "add_alpha":
        return _varied(
            "alpha", list(np.geomspace(1e-4, 10, 26)), model.alpha, texts, lambda a, one: _add(model, a, one)
        )
    plain = not model.config.buckets and not model.config.min_count and len(model.orders) > 1
    if smoothing == "interpolation" and plain:
        chosen = model.own_weight(len(model.orders))
        return _varied("lambda", list(np.linspace(0.02, 0.98, 25)), chosen, texts, _mix)
    return None


def _varied(
    name: str, values: list[float], chosen: float, texts: Sequence[Text], p_of: Callable[[float, ByOrder], Floats]
) -> Sweep:
    def bits(value: float) -> list[float]:
        return [text.bits(p_of(value, text.found)[None])[0] for text in texts]

    found = [bits(value) for value in values]
    return Sweep(name, values, [new for new, _ in found], [old for _, old in found], chosen, bits(chosen)[0])


def _add(model: Ngram, alpha: float, found: ByOrder) -> Floats:
    """p = (c(h,w) + alpha) / (c(h) + alpha · V) in the longest context that does not begin before the text."""
    top = (found.totals >= 0).cumsum(0).argmax(0)
    places = np.arange(found.p.shape[1])
    count, total = found.counts[top, places], found.totals[top, places]
    return np.where(found.p[-1] == 0, 0.0, (count + alpha) / (total + alpha * model.can_follow))


def _mix(weight: float, found: ByOrder) -> Floats:
    """p = lambda · c(h,w) / c(h) + (1 - lambda) · p' in the highest order; p' where h was never seen."""
    count, total, below = found.counts[-1], found.totals[-1], found.p[-2]
    own = np.divide(count, total, out=np.zeros_like(count), where=total > 0)
    return np.asarray(np.where(total > 0, weight * own + (1 - weight) * below, below), np.float64)

"""N-gram language models: counting what followed what.

Four ways to turn counts into probabilities, each predicting the next token w from the order - 1 tokens h before it
(h' is h without its first token, c counts, V is the number of tokens that can follow):

    maximum_likelihood   p(w|h) = c(h,w) / c(h)
    add_alpha            p(w|h) = (c(h,w) + a) / (c(h) + a·V)                       Lidstone 1920; a = 1 is Laplace
    interpolation        p(w|h) = sum over orders k of lambda_k · c(h_k,w) / c(h_k)             Jelinek & Mercer 1980
    kneser_ney           p_k(w|h) = max(c(h,w) - D_k, 0) / c(h·) + D_k · N(h·) / c(h·) · p_{k-1}(w|h')
                         p_0(w)   = 1 / V                            Kneser & Ney 1995; Chen & Goodman 1998, section 4

In kneser_ney, N(h·) is the number of different tokens that followed h, and c(h·) the sum of c(h,w) over w. At the
highest order c is how often (h,w) was seen; below it c is the number of different tokens seen before (h,w), except
where h begins with START: nothing stands before START, so the plain count stays (as in KenLM). The discount is
D_k = n1 / (n1 + 2·n2), n1 and n2 the n-grams of order k with c = 1 and c = 2; where one of them is 0, D_k = 0.75.

A text is START w1 … wn STOP. There is one START, so the context of w1 is START alone and that of w2 is START w1: the
context is shortened at the start. START is never predicted and no part of V. In the ids, STOP after a context is
STOP, and STOP inside a context is START: nothing follows the one, nothing precedes the other.

What happens in a context that was never seen:
    maximum_likelihood   takes the longest end of it that was. (0/0 says nothing, so any choice has the same
                         likelihood on the training text; this one can still generate.)
    add_alpha            1/V, as the equation says.
    interpolation        the weight of an order whose context is unseen goes to the next lower order.
    kneser_ney           p_k = p_{k-1}.

Departures: one discount an order (Chen and Goodman's "modified" has three), and the n-grams are neither pruned nor
quantised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load_file, save_file

from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.models.base import Record, Sizes, Task

if TYPE_CHECKING:
    from torch import Tensor

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

NOTHING = -1
"""In a history: no token is known here. Among n-gram ids: this n-gram was never seen."""
USUAL_DISCOUNT = 0.75
"""Used where the counts of counts give none."""
POSITIONS_AT_ONCE = 1 << 18
"""Scoring takes this many positions at a time, so that its temporary arrays stay below some 100 MB."""


@dataclass(frozen=True)
class _Evidence:
    """What one order knows about predicting some tokens: arrays that broadcast together, one place a prediction."""

    count: Ids
    """c(h,w)"""
    total: Ids
    """c(h·); 0 where h was never seen."""
    followers: Ids
    """N(h·)"""
    whole: NDArray[np.bool_]
    """True where h is all of the history that a model of this order may look at."""


def maximum_likelihood(orders: Iterable[_Evidence]) -> Floats:
    p: Floats = np.zeros(())
    for e in orders:
        p = np.where(e.total > 0, e.count / np.maximum(e.total, 1), p)
    return p


def add_alpha(orders: Iterable[_Evidence], alpha: float, vocab_size: int) -> Floats:
    p: Floats = np.zeros(())
    for e in orders:
        p = np.where(e.whole, (e.count + alpha) / (e.total + alpha * vocab_size), p)
    return p


def interpolation(orders: Iterable[_Evidence], weights: Sequence[float]) -> Floats:
    """`weights` are those of order 1, 2, …; the highest order seen also takes the weights of those above it."""
    lower: Floats = np.zeros(())
    p: Floats = np.zeros(())
    for k, e in enumerate(orders):
        estimate = e.count / np.maximum(e.total, 1)
        p = np.where(e.total > 0, lower + sum(weights[k:]) * estimate, p)
        lower = lower + weights[k] * estimate
    return p


def kneser_ney(orders: Iterable[_Evidence], discounts: Sequence[float], vocab_size: int) -> Floats:
    p: Floats = np.full((), 1.0 / vocab_size)
    for e, discount in zip(orders, discounts, strict=True):
        total = np.maximum(e.total, 1)
        own = np.maximum(e.count - discount, 0.0) / total
        p = np.where(e.total > 0, own + discount * e.followers / total * p, p)
    return p


class _Table:
    """All n-grams of one order. An n-gram is one number, id of its first k - 1 tokens · V + its last token; sorted.

    The place of an n-gram in the sorted `keys` is its id, and contexts are n-grams of the order below. The arrays
    end in one more 0, so that the id NOTHING (-1) reads 0: never seen.
    """

    def __init__(self, keys: Ids, counts: Ids, contexts: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.size = len(keys)
        self.keys = np.append(keys, np.iinfo(np.int64).max)
        self.counts = np.append(counts, 0)
        seen = keys[counts > 0] // vocab_size
        self.followers = np.bincount(seen, minlength=contexts + 1)
        self.totals = np.bincount(keys // vocab_size, weights=counts, minlength=contexts + 1).astype(np.int64)

    def find(self, contexts: Ids, words: Ids) -> Ids:
        """The ids of the n-grams (context, word), NOTHING where there is none."""
        known = (contexts >= 0) & (words >= 0)
        wanted = contexts[known] * self.vocab_size + words[known]
        places = np.searchsorted(self.keys, wanted)
        found = np.full(known.shape, NOTHING, dtype=np.int64)
        found[known] = np.where(self.keys[places] == wanted, places, NOTHING)
        return found

    def after(self, contexts: Ids) -> Ids:
        """(rows, V): how often each token followed each context."""
        dense = np.zeros((len(contexts), self.vocab_size), dtype=np.int64)
        for row, context in enumerate(contexts):
            first, last = np.searchsorted(self.keys, (context * self.vocab_size, (context + 1) * self.vocab_size))
            dense[row, self.keys[first:last] - context * self.vocab_size] = self.counts[first:last]
        return dense

    def evidence(self, contexts: Ids, count: Ids, whole: NDArray[np.bool_]) -> _Evidence:
        return _Evidence(count, self.totals[contexts], self.followers[contexts], whole)

    def discount(self) -> float:
        once, twice = int((self.counts == 1).sum()), int((self.counts == 2).sum())
        return once / (once + 2 * twice) if once and twice else USUAL_DISCOUNT


def count_ngrams(words: Ids, order: int, vocab_size: int, stop: int) -> Iterator[tuple[Ids, Ids, Ids]]:
    """For each order 1, 2, … of a text w1 … wn STOP w1 …: sorted keys, counts, and the id of each n-gram's end.

    The end of an n-gram is the n-gram of the order below that lacks its first token. Order 1 holds every token of the
    vocabulary, seen or not, so that there the id is the token; its ends are all 0, the empty n-gram.
    """
    counts = np.bincount(words, minlength=vocab_size)
    yield np.arange(vocab_size), counts, np.zeros(vocab_size, dtype=np.int64)
    grams = words  # at each place, the id of the n-gram that ends there
    contexts = np.concatenate(([stop], words[:-1]))  # at each place, the id of the n-gram that ends just before
    for _ in range(2, order + 1):
        valid = contexts >= 0
        keys, ids, counts = np.unique(
            contexts[valid] * vocab_size + words[valid], return_inverse=True, return_counts=True
        )
        ends = np.zeros(len(keys), dtype=np.int64)
        ends[ids] = grams[valid]
        yield keys, counts, ends
        grams = np.full(len(words), NOTHING, dtype=np.int64)
        grams[valid] = ids
        contexts = np.concatenate(([NOTHING], np.where(words[:-1] == stop, NOTHING, grams[:-1])))


@dataclass(frozen=True)
class _State:
    """The last tokens that each row has read; NOTHING where there were fewer."""

    history_BT: Ids

    def select(self, rows: ArrayLike) -> _State:
        return _State(self.history_BT[np.asarray(rows)])

    def read(self, tokens_BT: Ids, mask_BT: NDArray[np.bool_]) -> _State:
        """The state after the real tokens of `tokens_BT`, wherever in the row the padding lies."""
        width = self.history_BT.shape[1]
        tokens = np.concatenate((self.history_BT, tokens_BT), axis=1)
        real = np.concatenate((np.ones_like(self.history_BT, dtype=bool), mask_BT), axis=1)
        real_last = np.argsort(real, axis=1, kind="stable")[:, -width:]
        return _State(np.take_along_axis(tokens, real_last, axis=1))


class Ngram:
    """A language model that counts n-grams."""

    task: ClassVar[Task] = "lm"
    inputs: ClassVar[tuple[str, ...]] = ("fresh_B",)

    @dataclass(frozen=True)
    class Config:
        order: int = 7
        """The n of n-gram: a token is predicted from the order - 1 before it."""
        smoothing: Literal["maximum_likelihood", "add_alpha", "interpolation", "kneser_ney"] = "kneser_ney"
        """How counts become probabilities."""
        alpha: float = 1.0
        """add_alpha: what is added to every count."""
        lambdas: tuple[float, ...] = ()
        """interpolation: the weights of order n, n - 1, …, 1, which sum to 1; none given: all the same."""
        discount: float = 0.0
        """kneser_ney: what is taken from every count, at every order; 0: estimated for each order."""

        def __post_init__(self) -> None:
            if self.order < 1:
                raise ValueError(f"order is {self.order}; it must be 1 or more")
            if not 0 < self.alpha < float("inf"):
                raise ValueError(f"alpha is {self.alpha}; it must be greater than 0 (maximum_likelihood adds nothing)")
            if not 0 <= self.discount <= 1:
                raise ValueError(f"discount is {self.discount}; it must lie between 0 and 1 (0: estimated)")
            if self.lambdas and len(self.lambdas) != self.order:
                raise ValueError(f"{len(self.lambdas)} lambdas for order {self.order}; give one for each order")
            if self.lambdas and (min(self.lambdas) < 0 or abs(sum(self.lambdas) - 1) > 1e-9):
                raise ValueError(f"lambdas are {self.lambdas}; none may be negative, and they must sum to 1")

    @dataclass(frozen=True)
    class Train:
        """Counting has no settings."""

    def __init__(self, config: Config, sizes: Sizes) -> None:
        self.config = config
        self.sizes = sizes
        self.tables: list[_Table] = []
        """One an order, lowest first; empty until the model is fitted or loaded."""
        self.discounts: list[float] = []

    @property
    def parameters_count(self) -> int:
        """How many different n-grams, of all orders, are stored."""
        return sum(int((table.counts > 0).sum()) for table in self.tables)

    # Learning

    def fit(self, store: Any, train: Train) -> Iterator[Record]:
        """Count `store.tokens`, ids w1 … wn STOP w1 …; a record for each order."""
        words = np.asarray(store.tokens).astype(np.int64)
        if not len(words):
            raise InputError("The training text has no tokens, so there is nothing to count. Give a longer text.")
        if words.max() >= self.sizes.vocab_size:
            raise ValueError(f"token {words.max()} in a text whose vocabulary has {self.sizes.vocab_size}")
        keys: list[Ids] = []
        counts: list[Ids] = []
        counted = count_ngrams(words, self.config.order, self.sizes.vocab_size, self.sizes.stop)
        for one_keys, one_counts, ends in counted:
            if keys and self.config.smoothing == "kneser_ney":
                before = np.bincount(ends, minlength=len(counts[-1]))
                counts[-1] = np.where(before > 0, before, counts[-1])  # nothing is before START: the plain count stays
            keys.append(one_keys)
            counts.append(one_counts)
            yield Record(step=len(keys), kind="train", values={"ngrams": int((one_counts > 0).sum())})
        self._build(keys, counts)

    def _build(self, keys: list[Ids], counts: list[Ids]) -> None:
        contexts = [1] + [len(k) for k in keys[:-1]]
        self.tables = [_Table(k, c, n, self.sizes.vocab_size) for k, c, n in zip(keys, counts, contexts, strict=True)]
        self.discounts = [self.config.discount or table.discount() for table in self.tables]

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`: for each order the sorted n-grams and the counts that the smoothing uses."""
        arrays = {}
        for k, table in enumerate(self.tables, 1):
            arrays[f"keys.{k}"] = table.keys[: table.size].copy()
            arrays[f"counts.{k}"] = table.counts[: table.size].copy()
        save_file(arrays, Path(folder) / "model.safetensors")

    def load(self, folder: Path) -> None:
        arrays = load_file(Path(folder) / "model.safetensors")
        orders = range(1, self.config.order + 1)
        self._build([arrays[f"keys.{k}"] for k in orders], [arrays[f"counts.{k}"] for k in orders])

    # Predicting

    def logprobs(self, batch: Batch, state: _State | None = None) -> tuple[Floats, _State]:
        """log p of each target, 0 at IGNORE and -inf where p is 0, and the state after the batch."""
        tokens_BT, targets_BT = (np.asarray(a).astype(np.int64) for a in (batch.tokens_BT, batch.targets))
        mask_BT = np.asarray(batch.mask_BT)
        rows, length = tokens_BT.shape
        state = state or self.start(rows, 0)
        if batch.fresh_B is not None:
            state = _State(np.where(np.asarray(batch.fresh_B)[:, None], NOTHING, state.history_BT))
        logp_BT = np.zeros((rows, length))
        width = max(1, POSITIONS_AT_ONCE // max(1, rows))
        for begin in range(0, length, width):
            part = np.s_[:, begin : begin + width]
            logp_BT[part] = self._score(state.history_BT, tokens_BT[part], targets_BT[part])
            state = state.read(tokens_BT[part], mask_BT[part])
        return logp_BT, state

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> _State:
        """Rows that have read nothing. (`capacity` and `source` are for other models.)"""
        width = max(1, self.config.order - 1)
        return _State(np.full((rows, width), NOTHING, dtype=np.int64))

    def step(self, tokens_BT: Any, mask_BT: Any, state: _State) -> tuple[Tensor, _State]:
        """Read tokens; the log-probabilities of what comes next."""
        import torch

        state = state.read(np.asarray(tokens_BT).astype(np.int64), np.asarray(mask_BT))
        return torch.from_numpy(_log(self._dense(state.history_BT))).float(), state

    def distribution(self, context_ids: Sequence[int]) -> Floats:
        """(V,) probabilities of what comes after these tokens; begin them with STOP if a text begins there."""
        context_BT = np.asarray(context_ids, dtype=np.int64).reshape(1, -1)
        state = self.start(1, 0).read(context_BT, np.ones_like(context_BT, dtype=bool))
        probabilities: Floats = self._dense(state.history_BT)[0]
        return probabilities

    def _score(self, history_BT: Ids, tokens_BT: Ids, targets_BT: Ids) -> Floats:
        """log p of the targets, (B, T); the history stands before the tokens and is not scored."""
        skip = history_BT.shape[1]
        text = np.concatenate((history_BT, tokens_BT), axis=1)
        usable = self._usable(text)[:, skip:]

        def evidence() -> Iterator[_Evidence]:
            for k, (table, contexts) in enumerate(zip(self.tables, self._contexts(text), strict=True)):
                context = contexts[:, skip:]
                yield table.evidence(context, table.counts[table.find(context, targets_BT)], usable == k)

        return np.where(targets_BT == IGNORE, 0.0, _log(self._probability(evidence())))

    def _dense(self, history_BT: Ids) -> Floats:
        """(B, V) probabilities of what comes after each row's history."""
        usable = self._usable(history_BT)[:, -1:]

        def evidence() -> Iterator[_Evidence]:
            for k, (table, contexts) in enumerate(zip(self.tables, self._contexts(history_BT), strict=True)):
                context = contexts[:, -1:]
                yield table.evidence(context, table.after(context[:, 0]), usable == k)

        return self._probability(evidence())

    def _probability(self, orders: Iterator[_Evidence]) -> Floats:
        config = self.config
        if config.smoothing == "maximum_likelihood":
            return maximum_likelihood(orders)
        if config.smoothing == "add_alpha":
            return add_alpha(orders, config.alpha, self.sizes.vocab_size)
        if config.smoothing == "interpolation":
            return interpolation(orders, config.lambdas[::-1] or [1 / config.order] * config.order)
        return kneser_ney(orders, self.discounts, self.sizes.vocab_size)

    def _contexts(self, text_BT: Ids) -> Iterator[Ids]:
        """For each length 0, 1, … order - 1: the id of the n-gram of that length that ends at each place."""
        contexts = np.zeros_like(text_BT)
        yield contexts
        for table in self.tables[:-1]:
            contexts = table.find(contexts, text_BT)
            yield contexts  # through STOP too: what ends in it was never followed, so it counts as unseen
            before = np.full_like(contexts, NOTHING)
            before[:, 1:] = contexts[:, :-1]
            contexts = before

    def _usable(self, text_BT: Ids) -> Ids:
        """At each place, how many tokens the context may have: back to START or to what is known, order - 1 at most."""
        place = np.arange(text_BT.shape[1])
        begins = np.where(text_BT == self.sizes.stop, place, np.where(text_BT == NOTHING, place + 1, 0))
        return np.minimum(place - np.maximum.accumulate(begins, axis=1) + 1, self.config.order - 1)


def _log(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))

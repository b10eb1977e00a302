"""N-gram language models: counting what followed what.

Eight ways to turn counts into probabilities, each predicting the next token w from the order - 1 tokens h before it.
h' is h without its first token, c(h,w) a count, c(h) the sum of c(h,w) over w, N(h) the number of different tokens that
followed h, V the number of tokens that can follow, and p' = p(w|h'), down to p' = 1/V below the first order:

    maximum_likelihood    p(w|h) = c(h,w) / c(h)
    add_alpha             p(w|h) = (c(h,w) + a) / (c(h) + a·V)                          Lidstone 1920; a = 1 is Laplace
    interpolation         p(w|h) = l · c(h,w) / c(h) + (1 - l) · p'                              Jelinek & Mercer 1980
    witten_bell           p(w|h) = (c(h,w) + N(h) · p') / (c(h) + N(h))                              Witten & Bell 1991
    absolute_discounting  p(w|h) = (c(h,w) - D) / c(h) + D · N(h) / c(h) · p'                  Ney, Essen & Kneser 1994
    kneser_ney            the same, with other counts below the highest order                       Kneser & Ney 1995
    modified_kneser_ney   the same, with three discounts: for counts of 1, of 2, and of 3 or more  Chen & Goodman 1998
    stupid_backoff        S(w|h) = c(h,w) / c(h) if that is not 0, else 0.4 · S(w|h')              Brants et al. 2007

Kneser-Ney counts, below the highest order, not how often (h,w) was seen but after how many different tokens; where h
begins with START the plain count stays, since nothing stands before START (as in KenLM).

Discounts come from n1, n2, n3, n4, the number of n-grams of an order with c = 1, 2, 3, 4. One discount is
D = n1 / (n1 + 2·n2); three are, with that D, 1 - 2·D·n2/n1, 2 - 3·D·n3/n2 and 3 - 4·D·n4/n3. Where a number that is
divided by is 0, or a discount comes out below 0 or above its count, the text is too small to tell: then one discount is
0.75, and three are 0.5, 1 and 1.5.

The a of add_alpha and the l of interpolation are given, or chosen on held-out text: a by the likelihood, l by EM, one
an order or, with `buckets`, one for contexts seen about as often (once, 2 or 3 times, 4 to 7 …). Held-out text is the
validation text; where there is none, the last tenth of the training text, which is then counted with the rest.

A text is START w1 … wn STOP. There is one START, so the context of w1 is START alone and that of w2 is START w1: the
context is shortened at the start. START is never predicted and no part of V. In the ids, STOP after a context is
STOP, and STOP inside a context is START: nothing follows the one, nothing precedes the other. With data.carry=true all
units are one such text: STOP between two is a token like others, and contexts go on over it.

V counts STOP, every token of the vocabulary, and UNK, the unknown token, where UNK can follow. It cannot with byte, bpe
and unigram tokens, which can write any text. With char, space and word tokens it can, since another text may hold what
the training text does not: the share of 1/V that every smoothing keeps for UNK is what such a token gets. add_alpha
alone leaves UNK out of V if the vocabulary is closed by construction: every token of the training text is in it, and
nothing was held out. Then V is the lectures' (33 words and STOP, 5/45), and an unknown token of another text has
probability 0; hold text out (data.validation, data.test), or make rare words unknown (tokens.min_count), to count UNK.

In a context that was never seen, add_alpha gives 1/V, as its equation says; stupid_backoff backs off; all others take
the next shorter context, p(w|h) = p'. With `min_count`, n-grams seen too seldom are left out after everything is
counted and the discounts are known; what they had goes to p' (maximum_likelihood, add_alpha and stupid_backoff forget
it). stupid_backoff gives scores that do not sum to one, so it has neither perplexity nor bits.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.models.base import Counted, LanguageModel, ModelConfig, NgramCounts, Record, Sizes, TrainConfig
from segue.models.markov_lm import Floats, Ids, MarkovLm
from segue.ngrams import adaptive_counts
from segue.ngrams.adaptive_counts import Reading
from segue.ngrams.count import Column, Table, check_text, count_orders, forget
from segue.ngrams.discounts import one_discount, three_discounts
from segue.ngrams.em import em_lambdas
from segue.ngrams.lookup import BACKOFF, DISCOUNTED, UNIFORM, UNKNOWN, add_order, score_order
from segue.ngrams.model_file import Arrays, write_arrays
from segue.ngrams.trie import Level, levels_of_arrays, levels_to_arrays, pack

HELD_OUT = 1_000_000
"""Choose weights on at most this many tokens of held-out text."""
BUCKETS = 20
"""Number of groups with `buckets`: contexts seen once, 2 or 3 times, 4 to 7, …"""
_CODE, _LEAST_MEMORY = 100 << 20, 64 << 20
"""Parts of `train.memory`: reserved for compiled code and small arrays; the least left for counting."""
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


_KEYS_OF = {
    "alpha": ("add_alpha",),
    "lambdas": ("interpolation",),
    "buckets": ("interpolation",),
    "discount": ("absolute_discounting", "kneser_ney"),
}
"""Keys that apply only to some smoothings."""


@dataclass(frozen=True)
class _Order:
    """One order, ready to predict: its n-grams, and the numbers that its smoothing computes from each profile."""

    level: Level
    scale: Floats
    """The factor of a count; negative if nothing followed."""
    weight: Floats
    """The factor of the lower order's probability."""
    discounts: Floats
    """The discounts of a count of 0, 1, 2, and 3 or more."""

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of the loops in ngrams/lookup.py."""
        level = self.level
        counted = (level.words, level.counts, level.more_ids, level.more_counts, level.first, level.profile)
        return (*counted, self.scale, self.weight, self.discounts)


@dataclass(frozen=True)
class Evidence:
    """What one order knows about the token after a history h."""

    order: int
    context: tuple[int, ...]
    """h: the order - 1 tokens before."""
    seen: bool
    """Whether anything followed h in training (and was kept); if not, the fields below are empty or 0."""
    words: NDArray[Any]
    """The tokens that followed h; `counts` has how often."""
    counts: Ids
    profile: NDArray[Any]
    """total, ones, twos, more, lost: as in ngrams/trie.py."""
    scale: float
    weight: float
    discounts: Floats
    """As in _Order."""


class ByOrder(NamedTuple):
    """What each order says of the tokens of a text, (orders, tokens), the lowest order first."""

    p: Floats
    """p of the token by the model cut at this order: no longer context is used."""
    counts: Floats
    """c(h,w), by the counts of the smoothing."""
    totals: Floats
    """c(h): 0 if h was never seen, -1 if h would begin before the text."""
    weights: Floats
    """The factor of p', what the order below says; 1 if h was never seen."""


class Ngram(Counted, MarkovLm, NgramCounts):
    """A language model that counts n-grams."""

    adapts = True

    @dataclass(frozen=True)
    class Config(ModelConfig):
        order: int = 7
        """The n of n-gram: a token is predicted from the order - 1 before it."""
        smoothing: Literal[
            "maximum_likelihood",
            "add_alpha",
            "interpolation",
            "witten_bell",
            "absolute_discounting",
            "kneser_ney",
            "modified_kneser_ney",
            "stupid_backoff",
        ] = "modified_kneser_ney"
        """The smoothing: how counts become probabilities."""
        alpha: float = 0.0
        """add_alpha: added to every count (0: chosen on held-out text)."""
        lambdas: tuple[float, ...] = ()
        """interpolation: the weights of order n, n - 1, …, 1, which sum to 1 (none: by EM on held-out text)."""
        buckets: bool = False
        """interpolation: separate weights for contexts seen once, 2 or 3 times, 4 to 7, …"""
        discount: float = 0.0
        """absolute_discounting, kneser_ney: the discount of every count (0: estimated for each order)."""
        min_count: tuple[int, ...] = ()
        """Prune n-grams seen fewer times: a number for order 2, 3, …, the last for all higher orders; as 1,2 or 2."""

        def __post_init__(self) -> None:
            if self.order < 1:
                raise ValueError(f"order is {self.order}; it must be 1 or more")
            if not 0 <= self.alpha < float("inf"):
                raise ValueError(f"alpha is {self.alpha}; it must be greater than 0 (0: chosen on held-out text)")
            if not 0 <= self.discount <= 1:
                raise ValueError(f"discount is {self.discount}; it must lie between 0 and 1 (0: estimated)")
            if self.lambdas and len(self.lambdas) != self.order:
                raise ValueError(f"{len(self.lambdas)} lambdas for order {self.order}; give one for each order")
            if self.lambdas and (min(self.lambdas) < 0 or abs(sum(self.lambdas) - 1) > 1e-9):
                raise ValueError(f"lambdas are {self.lambdas}; none may be negative, and they must sum to 1")
            if self.lambdas and self.buckets:
                raise ValueError("buckets has weights of its own, so lambdas cannot be given")
            for key, smoothings in _KEYS_OF.items():
                if getattr(self, key) and self.smoothing not in smoothings:
                    raise ValueError(f"{key} is of smoothing={' or '.join(smoothings)}; found {self.smoothing}")
            if any(a > b for a, b in zip((1, *self.min_count), self.min_count, strict=False)):
                raise ValueError(
                    f"min_count is {self.min_count}; expected 1 or more, and no order below the one before"
                )

    @dataclass(frozen=True)
    class Train(TrainConfig):
        memory: str = "2GB"
        """Memory limit of counting; a text that needs more is counted in parts, with files on disk."""

        def __post_init__(self) -> None:
            bytes_of(self.memory)

    config: Config

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.orders: list[_Order] = []
        """Lowest first; empty until the model is fitted or loaded."""
        self.discounts: Floats = np.zeros((config.order, 3))
        """For each order, the discounts of a count of 1, of 2, and of 3 or more."""
        self.lambdas: Floats = np.zeros((config.order, BUCKETS))
        """interpolation: for each order, and each group of contexts with `buckets`, the weight of its own estimate."""
        self.alpha = config.alpha
        self._unigram: Floats = np.empty(0)

    @property
    def parameters_count(self) -> int:
        """Number of different n-grams stored, of all orders."""
        if not self.orders:
            return 0
        first = self.orders[0].level
        return int((first.counts > 0).sum()) + sum(len(order.level) for order in self.orders[1:])

    @property
    def unknown_follows(self) -> bool:
        """Whether UNK is one of the V tokens that can follow."""
        here = self.sizes.unknown == "here"
        return here or (self.sizes.unknown == "elsewhere" and self.config.smoothing != "add_alpha")

    @property
    def can_follow(self) -> int:
        """V: the number of tokens that can follow."""
        return self.sizes.vocab_size - (not self.unknown_follows)

    @property
    def normalised(self) -> bool:
        """Whether its scores are probabilities that sum to one."""
        return bool(self.config.smoothing != "stupid_backoff")

    # Learning

    def fit(
        self,
        store: Any,
        train: Train,
        held_out: NDArray[Any] | None = None,
        done: Callable[[float], None] = lambda share: None,
    ) -> Iterator[Record]:
        """Count `store.tokens`, ids w1 … wn STOP w1 …; a record for each order. `held_out` are ids of held-out text."""
        words = store.tokens
        check_text(words, self.sizes.vocab_size)
        memory = max(_LEAST_MEMORY, bytes_of(train.memory) - _taken() - _CODE)
        with tempfile.TemporaryDirectory(prefix=".counting-", dir=getattr(store, "folder", None)) as folder:
            if self.held_out_chooses and held_out is None:
                most = max(1, len(words) * 9 // 10)
                self._choose(self._count(words[:most], Path(folder), memory, done)[0], words[most:])
            levels, counts_of_counts = self._count(words, Path(folder), memory, done)
            if self.held_out_chooses and held_out is not None:
                self._choose(levels, held_out)
            self.discounts = np.array([self._discounts(n) for n in counts_of_counts])
            self._ready(levels)
        for k, level in enumerate(levels, 1):
            yield Record(
                step=k, kind="train", values={"ngrams": int((level.counts > 0).sum()) if k == 1 else len(level)}
            )

    def _count(
        self, words: NDArray[Any], folder: Path, memory: int, done: Callable[[float], None]
    ) -> tuple[list[Level], list[NDArray[np.int64]]]:
        """Count and pack all orders; also return, for each, how many n-grams have a count of 1, 2, 3, 4."""
        order, continuation = self.config.order, self.config.smoothing.endswith("kneser_ney")
        tables = count_orders(words, order, self.sizes, folder, memory, done)
        levels, counts_of_counts = [], []
        table, contexts = next(tables), np.array([len(words)])
        for k in range(1, order + 1):
            above = next(tables, None)
            counts = (
                _continuations(table, above, folder / f"adjusted.{k}", memory)
                if continuation and above
                else table.counts
            )
            level, few = pack(table, counts, contexts, (self._least(k - 1), self._least(k)), folder, k)
            levels.append(level)
            counts_of_counts.append(few)
            if above is not None:
                table, contexts = above, table.counts
        return levels, counts_of_counts

    def _least(self, k: int) -> int:
        """Return the least count of an n-gram of order k that is kept; order 1 is the whole vocabulary, seen or not."""
        if k < 2:
            return 0
        return self.config.min_count[min(k - 2, len(self.config.min_count) - 1)] if self.config.min_count else 1

    def _discounts(self, n: NDArray[np.int64]) -> Sequence[float]:
        """Estimate discounts of counts of 1, 2, and 3 or more, from the numbers of n-grams with count 1, 2, 3, 4."""
        if self.config.smoothing == "modified_kneser_ney":
            return three_discounts(n)
        if self.config.smoothing in ("kneser_ney", "absolute_discounting"):
            return [self.config.discount or one_discount(n)] * 3
        return (0.0, 0.0, 0.0)

    @property
    def held_out_chooses(self) -> bool:
        """Whether held-out text chooses the a of add_alpha, or the l of interpolation."""
        smoothing = self.config.smoothing
        return (smoothing == "add_alpha" and not self.config.alpha) or (
            smoothing == "interpolation" and not self.config.lambdas
        )

    def _choose(self, levels: list[Level], held_out: NDArray[Any]) -> None:
        """Choose the a of add_alpha or the l of interpolation by the likelihood of held-out text."""
        counts, totals = self._evidence(levels, held_out)
        if self.config.smoothing == "add_alpha":
            self.alpha = best_alpha(counts, totals, self.can_follow)
        else:
            seen = totals > 0
            own = np.divide(counts, totals, out=np.zeros_like(counts), where=seen)
            groups = bucket(totals) if self.config.buckets else np.zeros(totals.shape, np.int64)
            self.lambdas = em_lambdas(own, seen, groups, BUCKETS, 1.0 / self.can_follow)

    def _evidence(self, levels: list[Level], held_out: NDArray[Any]) -> tuple[Floats, Floats]:
        """Look up, (orders, tokens): c(h,w) of every held-out token, and c(h), which is 0 if h was never seen and -1 if
        h would begin before the text."""
        size = min(len(held_out), HELD_OUT)
        targets = np.asarray(held_out[:size], dtype=np.int64)
        text = np.concatenate(([self.sizes.stop], targets))[:size]
        counts, totals = np.zeros((len(levels), size)), np.zeros((len(levels), size))
        counts[0] = levels[0].plain_counts(0, self.sizes.vocab_size)[targets]
        totals[0] = levels[0].profiles[0, 0]
        contexts = text.copy()
        for k, level in enumerate(levels[1:], 1):
            total = level.profiles[:, 0] - level.profiles[:, 4]
            seen = contexts >= 0
            totals[k][seen] = total[level.profile[contexts[seen]]]
            totals[k][contexts == UNKNOWN] = -1
            plain = _Order(level, np.where(total > 0, 1.0, -1.0), np.zeros(len(total)), np.zeros(4))
            score_order(*plain.arrays, DISCOUNTED, 0.0, text, targets, self.restart, contexts, counts[k])
        return counts, totals

    def _ready(self, levels: list[Level]) -> None:
        """Compute what prediction needs from the counts."""
        self.orders = [self._smooth(level, k) for k, level in enumerate(levels)]
        below = 0.0 if self._mode == BACKOFF else 1.0 / self.can_follow
        self._unigram = np.full(self.sizes.vocab_size, below)
        add_order(*self.orders[0].arrays, self._mode, 1.0 / self.can_follow, 0, self._unigram)
        if not self.unknown_follows:
            self._unigram[self.sizes.unk] = 0.0

    def _smooth(self, level: Level, k: int) -> _Order:
        """Apply the smoothing to the profiles of an order (k counts from 0)."""
        total, ones, twos, more, lost = level.profiles.T.astype(np.float64)
        smoothing, discounts = self.config.smoothing, self.discounts[k]
        seen = total > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            if smoothing in ("maximum_likelihood", "stupid_backoff"):
                scale, weight = 1 / (total - lost), np.zeros_like(total)
            elif smoothing == "add_alpha":
                whole = total - lost + self.alpha * self.can_follow
                scale, weight = 1 / whole, self.alpha * self.can_follow / whole
            elif smoothing == "interpolation":
                own = self._lambda(k, total - lost)
                scale, weight = own / total, (1 - own) + own * lost / total
            elif smoothing == "witten_bell":
                followers = ones + twos + more
                scale, weight = 1 / (total + followers), (followers + lost) / (total + followers)
            else:
                scale, weight = 1 / total, (level.profiles[:, 1:4] @ discounts + lost) / total
        seen &= total - lost > 0
        return _Order(
            level, np.where(seen, scale, -1.0), np.where(seen, weight, 1.0), np.concatenate(([0.0], discounts))
        )

    def _lambda(self, k: int, total: Floats) -> Floats:
        if self.config.lambdas:
            below = sum(self.config.lambdas[len(self.config.lambdas) - 1 - k :])
            return np.full(len(total), self.config.lambdas[len(self.config.lambdas) - 1 - k] / below if below else 0.0)
        chosen: Floats = self.lambdas[k][bucket(total) if self.config.buckets else np.zeros(len(total), np.int64)]
        return chosen

    @property
    def _mode(self) -> int:
        return {"add_alpha": UNIFORM, "stupid_backoff": BACKOFF}.get(self.config.smoothing, DISCOUNTED)

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`: the packed n-grams, and the numbers that were estimated or chosen."""
        chosen = {"discounts": self.discounts, "lambdas": self.lambdas, "alpha": np.array([self.alpha])}
        write_arrays(
            Path(folder) / "model.safetensors", levels_to_arrays([order.level for order in self.orders]) | chosen
        )

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        order = self.config.order
        self.discounts = arrays.numbers("discounts", (order, 3), 0.0)
        if (self.discounts > np.arange(1, 4)).any():
            raise ValueError("discounts holds one that is greater than its count")
        self.lambdas = arrays.numbers("lambdas", (order, BUCKETS), 0.0, 1.0)
        self.alpha = float(arrays.numbers("alpha", (1,), 0.0)[0])
        self._ready(levels_of_arrays(arrays, order, self.sizes.vocab_size))

    def adapted(self) -> _Adapted:
        """Return a model that begins as this one and counts on while it reads."""
        smoothing = self.config.smoothing
        kind = {
            "maximum_likelihood": adaptive_counts.LIKELIHOOD,
            "add_alpha": adaptive_counts.ADD_ALPHA,
            "interpolation": adaptive_counts.INTERPOLATED,
            "witten_bell": adaptive_counts.WITTEN_BELL,
            "stupid_backoff": adaptive_counts.STUPID_BACKOFF,
        }.get(smoothing, adaptive_counts.DISCOUNTED)
        discounts = np.concatenate((np.zeros((self.config.order, 1)), self.discounts), axis=1)
        totals = 2.0 ** np.arange(BUCKETS, dtype=np.float64)
        lambdas = np.stack([self._lambda(k, totals) for k in range(self.config.order)])
        # What it will read may hold unknown tokens, if its tokens have any.
        size = self.sizes.vocab_size - (self.sizes.unknown == "never")
        settings = (kind, smoothing.endswith("kneser_ney"), discounts, lambdas, self.alpha, size)
        return _Adapted(self, [order.level for order in self.orders], settings)

    # Predicting

    def evidence(self, context_ids: Sequence[int]) -> list[Evidence]:
        """Return what each order knows about the token after these, the lowest first, without orders that would look
        beyond the beginning of the text."""
        history = self.history(context_ids)
        known = []
        for k, (order, context) in enumerate(zip(self.orders, self.contexts(history), strict=True)):
            if context == UNKNOWN:
                break
            level, row = order.level, int(order.level.profile[context]) if context >= 0 else 0
            seen = context >= 0 and bool(order.scale[row] >= 0)
            low, high = (int(level.first[context]), int(level.first[context + 1])) if seen else (0, 0)
            known.append(
                Evidence(
                    order=k + 1,
                    context=tuple(int(i) for i in history[len(history) - k :]),
                    seen=seen,
                    words=level.words[low:high],
                    counts=level.plain_counts(low, high),
                    profile=level.profiles[row] if seen else np.zeros(5, np.int64),
                    scale=float(order.scale[row]) if seen else 0.0,
                    weight=float(order.weight[row]) if seen else 1.0,
                    discounts=order.discounts,
                )
            )
        return known

    def by_order(self, tokens: NDArray[Any]) -> ByOrder:
        """Look up every token of a text, w1 … wn STOP w1 …, in every order."""
        counts, totals = self._evidence([order.level for order in self.orders], tokens)
        targets = np.asarray(tokens[: counts.shape[1]], dtype=np.int64)
        text = np.concatenate(([self.sizes.stop], targets))[: len(targets)]
        cut, weights = np.zeros_like(counts), np.ones_like(counts)
        first = self.orders[0]
        weights[0] = first.weight[first.level.profile[0]]
        p: Floats = self._unigram[targets]
        for k, contexts in enumerate(self._walk(text, targets, p), 1):
            cut[k - 1] = p
            order, seen = self.orders[k], contexts >= 0
            weights[k][seen] = order.weight[order.level.profile[contexts[seen]]]
        cut[-1] = p
        return ByOrder(cut, counts, totals, weights)

    def own_weight(self, order: int) -> float:
        """Return the l of an order (interpolation without `buckets`)."""
        return float(self._lambda(order - 1, np.ones(1))[0])

    @property
    def interpolates(self) -> bool:
        """Whether p is a mixture of all orders."""
        return self.config.smoothing not in ("maximum_likelihood", "add_alpha", "stupid_backoff")

    def _score_order(self, k: int, text: Ids, targets: Ids, contexts: Ids, p: Floats) -> None:
        even = 1.0 / self.can_follow
        score_order(*self.orders[k].arrays, self._mode, even, text, targets, self.restart, contexts, p)
        self._leave_out_unknown(targets == self.sizes.unk, p)

    def _add_order(self, k: int, context: int, p: Floats) -> None:
        add_order(*self.orders[k].arrays, self._mode, 1.0 / self.can_follow, context, p)
        self._leave_out_unknown(self.sizes.unk, p)

    def _leave_out_unknown(self, places: Any, p: Floats) -> None:
        """Set p of UNK to 0 where it cannot follow: add_alpha has just given every token its share of V."""
        if self._mode == UNIFORM and not self.unknown_follows:
            p[places] = 0.0


class _Adapted(Reading, LanguageModel):
    """An n-gram model that counts on while it reads."""

    task = "lm"
    inputs = ("fresh_B",)
    in_order = True

    @property
    def parameters_count(self) -> int:
        """Number of new n-grams that were read."""
        return int(self.overlay.used.sum())


def _taken() -> int:
    """Return the bytes of memory that Python and its libraries use already."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 300 << 20


def bytes_of(memory: str) -> int:
    """Parse a size such as 1GB or 500MB."""
    number, unit = memory[:-2], memory[-2:].upper()
    if unit not in _UNITS or not number.strip().replace(".", "", 1).isdigit():
        raise ValueError(f"memory is '{memory}'; expected a size such as 1GB or 500MB")
    return int(float(number) * _UNITS[unit])


def bucket(total: Floats) -> Ids:
    """Return the group of contexts with this total: 1; 2 and 3; 4 to 7; …"""
    return np.minimum(np.log2(np.maximum(total, 1)).astype(np.int64), BUCKETS - 1)


def best_alpha(counts: Floats, totals: Floats, vocab_size: int) -> float:
    """Find the a that makes held-out tokens likeliest, to a thousandth of its size."""
    top = np.maximum(np.argmax(np.cumsum(totals >= 0, axis=0), axis=0), 0)  # the longest context that the text has
    places = np.arange(counts.shape[1])
    count, total = counts[top, places], np.maximum(totals[top, places], 0)

    def likelihood(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return float(np.log((count + alpha) / (total + alpha * vocab_size)).sum())

    low, high = np.log(1e-9), np.log(1e3)
    while high - low > 1e-3:
        a, b = low + (high - low) * 0.382, low + (high - low) * 0.618
        low, high = (low, b) if likelihood(a) > likelihood(b) else (a, high)
    return float(np.exp((low + high) / 2)) if len(count) else 1.0


def _continuations(table: Table, above: Table, path: Path, memory: int) -> NDArray[Any]:
    """Count after how many different tokens each n-gram stands (continuation counts); keep the plain count of an n-gram
    that begins with START."""
    column = Column(path, np.uint32)
    room = max(1 << 10, memory // 64)
    for low in range(0, len(table.words), room):
        high = min(len(table.words), low + room)
        before = above.before(low, high)
        column.append(np.where(before > 0, before, table.counts[low:high]))
        forget(table.counts)
    return column.close()

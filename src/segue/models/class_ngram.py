"""Class n-grams: counting that predicts the class of the next word, then the word in its class, and can go on counting.

Words that stand in the same company share a class c(w) (Brown et al. 1992), found by exchange (Kneser & Ney 1993;
Martin, Liermann & Ney 1998). The word w after the history h, whose words are w-1, w-2, … and their classes c-1, c-2, …:

    p(w|h)   = p(c(w)|h) · p(w|c(w),h)
    p(c|h)   = a1 · KN(c | c-1 … c-6)  +  a2 · KN(c | w-1 … w-4)  +  a3 · cache(c | w-1 w-2 w-3)      a by c-1
    p(w|c,h) = b1 · KN(w | c; c-1 w-1 c-2 w-2 c-3 w-3)  +  b2 · cache(w | c; w-1 w-2 w-3)              b by c

KN is modified Kneser-Ney (Chen & Goodman 1998), here over lists of words and classes that are shortened at their right
end, symbol by symbol. Below the empty list lies an even share of the classes, or of the words of c: so every word of
the vocabulary, seen or not, has a class and a probability.

The model as it stands has no caches and its counts stay. `adapted()` is the same model that goes on counting while it
reads: every token that was read counts for the next ones, in each KN and in caches (Kuhn & De Mori 1990), whose counts
shrink by `decay` with each token. Below the caches lies how frequent the classes, or the words of c, were in training.

The weights a and b, for both ways, are found by EM on held-out text, first flat (mixtures as in Goodman 2001), then for
each class with 20 events of the flat ones added. Held-out text is the validation text; where there is none, the last
tenth of the training text: the weights are found with the counts of the rest, then all is counted. The classes come
from all the training text.

Departs from the papers: classes stand in the same contexts as words; the exchange looks at both neighbours and at words
rather than classes beside them; contexts are known by hash (ngrams/hashed_ngrams.py). A text begins after a history of
STOPs. So does each unit, unless data.carry=true: then the history goes on over STOP, which is a word like others.

Memory grows with the different n-grams of the three KN: on Penn Treebank's million words there are 8.6 million, in
110 MB, and training takes some 500 bytes a token. What is read adapted takes some 1,200 bytes a token more. Nothing is
pruned or forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.state import State
from segue.models.base import Counted, LanguageModel, ModelConfig, Record, Sizes, TrainConfig
from segue.ngrams.classes import cluster
from segue.ngrams.count import check_text
from segue.ngrams.em import em_weights_by_group
from segue.ngrams.hashed_ngrams import CLASS, WORD, KneserNey, RecentCounts
from segue.ngrams.model_file import Arrays, write_arrays

if TYPE_CHECKING:
    from torch import Tensor

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

PRIOR = 20.0
"""Prior of each class's weights: this many events of the weights of all classes."""
HELD_OUT = 1_000_000
"""Find weights on at most this many tokens of held-out text."""
RECENT = 3
"""Words of context in the caches."""
UNSEEN = 0.5
"""The count of a word that was never seen, in the distribution below the caches."""
_NOTHING = -1
"""Marks places of a history where nothing was read; scored as STOP."""


@dataclass(frozen=True)
class _State(State):
    """The last tokens that each row has read, _NOTHING where there were fewer."""

    history_BT: Ids

    @property
    def rows(self) -> Ids:
        return np.arange(len(self.history_BT))

    def select(self, rows: ArrayLike, same_text: bool = False) -> _State:
        return _State(self.history_BT[np.asarray(rows)])

    def join(self, others: Sequence[_State]) -> _State:
        return _State(np.concatenate([self.history_BT, *(other.history_BT for other in others)]))

    def fresh(self, fresh_B: Any) -> _State:
        if fresh_B is None:
            return self
        return _State(np.where(np.asarray(fresh_B)[:, None], _NOTHING, self.history_BT))

    def read(self, row: int, tokens: Ids, learns: bool) -> tuple[Ids, int, Ids]:
        """Return a row's history and tokens as one text, from where on to count it, and the history afterwards."""
        history = self.history_BT[row]
        text = np.concatenate((history, tokens)).astype(np.int64)
        learn = len(history) + (history[-1] == _NOTHING) if learns else len(text)
        return np.maximum(text, 0), int(learn), text[len(tokens) :]


@dataclass(frozen=True)
class _ClassMixture:
    """Computes p(w|h) from the parts and their weights."""

    classes: Ids
    """The class of each word."""
    words: Ids
    """All words, those of a class together."""
    of_class: list[KneserNey | RecentCounts]
    of_word: list[KneserNey | RecentCounts]
    class_weights: Floats
    """(classes, parts), by the class of the last word."""
    word_weights: Floats
    """(classes, parts), by the class of the word that is predicted."""

    def parts(self, text: Ids, skip: int, learn: int, targets: Ids) -> tuple[Floats, Floats]:
        """Compute (tokens, parts): p of the class of each target, and p of the target in its class."""
        read = [
            [part.read(text, skip, learn, targets, self.classes) for part in p] for p in (self.of_class, self.of_word)
        ]
        return np.stack(read[0], axis=1), np.stack(read[1], axis=1)

    def read(self, text: Ids, skip: int, learn: int, targets: Ids) -> Floats:
        """Compute p of each target, as KneserNey.read does."""
        of_class, of_word = self.parts(text, skip, learn, targets)
        last, kind = self.classes[text[skip:]], self.classes[np.maximum(targets, 0)]
        p: Floats = (of_class * self.class_weights[last]).sum(1) * (of_word * self.word_weights[kind]).sum(1)
        return p

    def dense(self, text: Ids) -> Floats:
        """Compute (V,) p of the next token after a text."""
        kinds = np.arange(len(self.class_weights))
        of_class = np.stack([part.dense(text, self.classes, kinds) for part in self.of_class], axis=1)
        of_word = np.stack([part.dense(text, self.classes, self.words) for part in self.of_word], axis=1)
        kind: Floats = of_class @ self.class_weights[self.classes[text[-1]]]
        p: Floats = kind[self.classes] * (of_word * self.word_weights[self.classes]).sum(1)
        return p


class ClassNgram(Counted, LanguageModel):
    """A language model that counts classes of words, and words in their classes."""

    family = "n-gram"
    task = "lm"
    inputs = ("fresh_B",)
    adapts = True

    @dataclass(frozen=True)
    class Config(ModelConfig):
        classes: int = 100
        """Number of word classes."""
        class_context: int = 6
        """Predict the class from the classes of this many words before it."""
        word_context: int = 4
        """Predict the class from this many words before it."""
        inside_context: int = 3
        """Predict the word in its class from this many words before it, and their classes."""
        decay: float = 0.998
        """Decay of the caches of adapted(): multiply counts by this with every token that is read."""

        def __post_init__(self) -> None:
            for name, least in (("classes", 1), ("class_context", 0), ("word_context", 0), ("inside_context", 0)):
                if getattr(self, name) < least:
                    raise ValueError(f"{name} is {getattr(self, name)}; it must be {least} or more")
            if not 0 < self.decay <= 1:
                raise ValueError(f"decay is {self.decay}; it must be greater than 0 and at most 1")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        sweeps: int = 10
        """Exchange algorithm: move every word to its best class at most this many times."""

        def __post_init__(self) -> None:
            if self.sweeps < 0:
                raise ValueError(f"sweeps is {self.sweeps}; it must be 0 or more")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.width = max(1, RECENT, config.class_context, config.word_context, config.inside_context)
        """Tokens of history."""
        self.classes: Ids = np.zeros(sizes.vocab_size, np.int64)
        self.counts: Ids = np.zeros(sizes.vocab_size, np.int64)
        """How often each word was seen in training."""
        self.counted: list[KneserNey] = []
        """KN(c | c-1 …), KN(c | w-1 …), KN(w | c; …); empty until the model is fitted or loaded."""
        self.weights: dict[str, Floats] = {}
        """static.class, static.word: weights of the model itself; adapted.class, adapted.word: of `adapted()`."""
        self._static: _ClassMixture

    @property
    def parameters_count(self) -> int:
        """Number of different n-grams stored, of all parts and lengths."""
        return sum(map(len, self.counted))

    # Learning

    def fit(
        self,
        store: Any,
        train: Train,
        held_out: NDArray[Any] | None = None,
        done: Callable[[float], None] = lambda share: None,
    ) -> Iterator[Record]:
        """Find classes for `store.tokens`, count, and find weights on `held_out`, ids of held-out text."""
        words = store.tokens
        check_text(words, self.sizes.vocab_size)
        text = np.concatenate((np.zeros(self.width, np.int64), words))
        words = text[self.width :]
        self.classes = cluster(words, self.sizes.vocab_size, self.config.classes, train.sweeps, _part(done, 0.0, 0.4))
        yield Record(step=1, kind="train", values={"classes": self._kinds})
        if held_out is None:
            most = max(1, len(words) * 9 // 10)
            self._count(text[: self.width + most], _part(done, 0.4, 0.6))
            self._choose(words[most:])
            self._count(text, _part(done, 0.6, 1.0))
        else:
            self._count(text, _part(done, 0.4, 0.8))
            self._choose(np.asarray(held_out[:HELD_OUT], np.int64))
        self._static = self._mixture("static")
        done(1.0)
        yield Record(step=2, kind="train", values={"ngrams": self.parameters_count})

    @property
    def _kinds(self) -> int:
        return int(self.classes.max()) + 1

    @property
    def _makes(self) -> list[tuple[Ids, bool, bool, Floats]]:
        """Describe each KN: the symbols of its context, whether it predicts words in classes, whether context is
        carried over STOP, the lowest order."""
        config, carry = self.config, self.sizes.carry
        even = np.full(self._kinds, 1 / self._kinds)
        members = np.bincount(self.classes)[self.classes]
        return [
            (_symbols(config.class_context, CLASS), False, carry, even),
            (_symbols(config.word_context, WORD), False, carry, even),
            (_symbols(config.inside_context, CLASS, WORD), True, carry, 1 / members),
        ]

    def _count(self, text: Ids, done: Callable[[float], None]) -> None:
        self.counts = np.bincount(text[self.width :], minlength=self.sizes.vocab_size)
        self.counted = [
            KneserNey.count(text, self.width, self.classes, *make, _part(done, k / 3, (k + 1) / 3))
            for k, make in enumerate(self._makes)
        ]

    def _choose(self, held_out: Ids) -> None:
        """Find the weights that make held-out text likeliest, for the static and for the adapted model."""
        text = np.concatenate((np.zeros(self.width + 1, np.int64), held_out[:-1]))[: self.width + len(held_out)]
        last, kind = self.classes[text[self.width :]], self.classes[held_out]
        for way, learn in (("static", len(text)), ("adapted", self.width + 1)):
            of_class, of_word = self._mixture(way).parts(text, self.width, learn, held_out)
            self.weights[f"{way}.class"] = em_weights_by_group(of_class, last, self._kinds, PRIOR)
            self.weights[f"{way}.word"] = em_weights_by_group(of_word, kind, self._kinds, PRIOR)

    def _mixture(self, way: str) -> _ClassMixture:
        """Return the static mixture, or one that counts what it reads (adapted)."""
        parts: list[KneserNey | RecentCounts] = [*self.counted]
        caches: list[KneserNey | RecentCounts] = []
        if way == "adapted":
            seen = np.maximum(self.counts, UNSEEN)
            kinds = np.bincount(self.classes, seen)
            recent, carry = _symbols(RECENT, WORD), self.sizes.carry
            parts = [part.going_on() for part in self.counted]
            caches = [
                RecentCounts(recent, False, carry, kinds / kinds.sum(), self.config.decay),
                RecentCounts(recent, True, carry, seen / kinds[self.classes], self.config.decay),
            ]
        none = np.empty((0, 0))
        weights = (self.weights.get(f"{way}.{what}", none) for what in ("class", "word"))
        words = np.argsort(self.classes, kind="stable")
        return _ClassMixture(self.classes, words, parts[:2] + caches[:1], parts[2:] + caches[1:], *weights)

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`: classes, counts and weights."""
        parts = {f"{k}.{name}": array for k, part in enumerate(self.counted) for name, array in part.arrays().items()}
        weights = {f"weights.{name}": array for name, array in self.weights.items()}
        write_arrays(
            Path(folder) / "model.safetensors", parts | weights | {"classes": self.classes, "counts": self.counts}
        )

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        size = self.sizes.vocab_size
        self.classes = np.array(arrays.ids("classes", (size,), size, "i8"))
        self.counts = np.array(arrays.ids("counts", (size,), 1 << 62, "i8"))
        if not np.bincount(self.classes).all():
            raise ValueError("classes holds a class without a word")
        parts = {"static.class": 2, "static.word": 1, "adapted.class": 3, "adapted.word": 2}
        self.weights = {
            name: np.array(arrays.numbers(f"weights.{name}", (self._kinds, count), 0.0, 1.0 + 1e-9))
            for name, count in parts.items()
        }
        self.counted = [KneserNey.of_arrays(arrays.part(f"{k}."), *make) for k, make in enumerate(self._makes)]
        self._static = self._mixture("static")

    # Predicting

    def logprobs(self, batch: Batch, state: _State | None = None) -> tuple[Floats, _State]:
        """Compute log p of each target, 0 at IGNORE; also return the state after the batch."""
        return _logprobs(self._static, batch, state or self.start(len(batch.tokens_BT), 0), learns=False)

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> _State:
        """Return rows that have read nothing. (`capacity` and `source` are for other models.)"""
        return _State(np.full((rows, self.width), _NOTHING, dtype=np.int64))

    def step(self, tokens_BT: Any, mask_BT: Any, state: _State) -> tuple[Tensor, _State]:
        """Read tokens; return the log probabilities of the next token."""
        return _step(self._static, tokens_BT, mask_BT, state, learns=False)

    def adapted(self) -> _Adapted:
        """Return a copy of this model that counts on while it reads."""
        return _Adapted(self, self._mixture("adapted"))


class _Adapted(LanguageModel):
    """A model that counts what it reads, in one row: the first token after `start` or a fresh row begins a text and is
    no event, every other is. A fresh row forgets the history, not the counts."""

    task = "lm"
    inputs = ("fresh_B",)
    in_order = True

    def __init__(self, model: ClassNgram, mixture: _ClassMixture) -> None:
        super().__init__(model.config, model.sizes)
        self.model = model
        self._mixture = mixture
        self._state = self._begin = model.start(1, 0)

    @property
    def parameters_count(self) -> int:
        return self.model.parameters_count

    def logprobs(self, batch: Batch, state: _State | None = None) -> tuple[Floats, _State]:
        """As ClassNgram.logprobs; without a state, the history goes on from the last call."""
        _one_row(len(batch.tokens_BT))
        logp, self._state = _logprobs(self._mixture, batch, state or self._state, learns=True)
        return logp, self._state

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> _State:
        """Return a row that has read nothing; the counts stay."""
        _one_row(rows)
        return self._begin

    def step(self, tokens_BT: Any, mask_BT: Any, state: _State) -> tuple[Tensor, _State]:
        """Read and count tokens; return the log probabilities of the next token."""
        _one_row(len(tokens_BT))
        logp, self._state = _step(self._mixture, tokens_BT, mask_BT, state, learns=True)
        return logp, self._state


def _one_row(rows: int) -> None:
    if rows != 1:
        raise ValueError(f"{rows} rows; a model that counts what it reads, reads one row")


def _logprobs(mixture: _ClassMixture, batch: Batch, state: _State, learns: bool) -> tuple[Floats, _State]:
    targets_BT, mask_BT = np.asarray(batch.targets), np.asarray(batch.mask_BT, dtype=bool)
    state = state.fresh(batch.fresh_B)
    logp_BT, after = np.zeros(targets_BT.shape), []
    for row, mask in enumerate(mask_BT):
        text, learn, history = state.read(row, np.asarray(batch.tokens_BT)[row, mask], learns)
        targets = targets_BT[row, mask].astype(np.int64)
        p = mixture.read(text, len(history), learn, targets)
        logp_BT[row, mask] = np.where(targets == IGNORE, 0.0, np.log(p))
        after.append(history)
    return logp_BT, _State(np.stack(after))


def _step(mixture: _ClassMixture, tokens_BT: Any, mask_BT: Any, state: _State, learns: bool) -> tuple[Tensor, _State]:
    import torch

    dense, after = [], []
    for row, mask in enumerate(np.asarray(mask_BT, dtype=bool)):
        text, learn, history = state.read(row, np.asarray(tokens_BT)[row, mask], learns)
        if learns:
            mixture.read(text, len(history), learn, np.full(len(text) - len(history), IGNORE))
        dense.append(mixture.dense(text))
        after.append(history)
    return torch.from_numpy(np.log(np.stack(dense))).float(), _State(np.stack(after))


def _symbols(words: int, *kinds: int) -> Ids:
    """List the symbols of a context of this many words, the last word first."""
    return np.array([(kind, lag) for lag in range(1, words + 1) for kind in kinds], np.int64).reshape(-1, 2)


def _part(done: Callable[[float], None], low: float, high: float) -> Callable[[float], None]:
    """Return a `done` for a part of the work, from one share to another."""
    return lambda share: done(low + (high - low) * share)

"""N-grams of high order whose orders are reweighed: counting, with weights that learn how far to trust each count.

Each token w is predicted from the order - 1 tokens before it; h_k are the last k of them, for k = 0, 1, … as far as h_k
was seen. Below stands modified Kneser-Ney (Kneser & Ney 1995; Chen & Goodman 1998), from the shortest context to the
longest: c(h,w) is a count, c(h) the sum of c(h,w) over w, D(c) the discount of a count of 1, 2, or 3 and more, N1, N2,
N3 how many different tokens followed h_k once, twice, more often, V the number of tokens:

    q_k(w) = (c(h_k,w) - D_k(c(h_k,w))) / c(h_k)  +  g_k · q_k-1(w),       q_-1(w) = 1/V,       and where w did not
    g_k    = (D_k(1) · N1 + D_k(2) · N2 + D_k(3) · N3) / c(h_k)            follow h_k, only g_k · q_k-1(w)

What order k has to say of w is how much it makes w likelier than the orders below did:

    e_k(w) = log( q_k(w) / (g_k · q_k-1(w)) ),         0 where w never followed h_k

so that q(w) of the longest context is proportional to exp(sum over k of e_k(w)). The model is a maximum-entropy model
(Berger, Della Pietra & Della Pietra 1996) over this evidence:

    p(w|h) = exp(s(w)) / sum over w' of exp(s(w'))
    s(w)   = sum over k, where w followed h_k, of a_j · e_k(w) + b_j
    j = k, and the groups of:   how many different tokens followed h_k (1, 2, 3-4, 5-10, more),
                                c(h_k,w) (1, 2, 3-4, 5-16, more),
                                and how much longer the longest context is (0, 1, 2, 3-4, more)

With a = 1 and b = 0, where it begins, this is Kneser-Ney exactly; `rate` = 0 leaves it there. The weights are learnt by
one pass of AdaGrad (Duchi, Hazan & Singer 2011) over -log p of parts of the training text, up to ten, each read with
the counts of all the rest; then everything is counted, and weights and counts stay as they are.

`adapted()` is the same model that goes on counting and learning while it reads: each token is predicted, then its error
moves the weights, then it is counted. It has weights of its own, learnt in this way while the last tenth of the
training text was counted, and in place of the last group of j the age of (h_k,w): how many tokens ago it was read last
(fewer than 2^8, 2^11, 2^14, 2^17, more). So it learns to trust what was read just now.

Counting goes from the longest context down: (h,w) is made where it is missing, with a count of 1, and where it is found
its count grows and counting ends. These are Kneser-Ney's counts of different tokens before, and the update exclusion of
PPM (Cleary & Witten 1984; Moffat 1990). Contexts of any length cost little, since a string that was seen once is only a
place in the text (ngrams/lazy_trie.py).

Departs from the papers: nothing stands before the training text; each later unit begins after the STOP of the one
before, and with data.carry=true its history runs on over that, as over any token. To the counts of counts that the
discounts come from, which leave out what is only a place in the text, 1 is added. Predicting takes time in proportion
to V: this is for characters and bytes, and slow for words.

Memory: 24 bytes a node, some 1.2 nodes for each character at order 9 and 2 at order 17, and 4 bytes a token, since the
text is kept. The file is mapped; `adapted()` makes a copy.
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
from segue.errors import InputError
from segue.models.base import Counted, LanguageModel, ModelConfig, Record, Sizes, TrainConfig
from segue.ngrams.count import check_text
from segue.ngrams.discounts import update_discounts
from segue.ngrams.lazy_trie import BREAK, FEATURES, NONE, Trie, Weights, beginning, check_trie, score, score_next
from segue.ngrams.model_file import Arrays, write_arrays

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]

FOLDS = 10
"""Learn weights on at most this many parts of the text."""
MOST_TOKENS = 20_000
"""Largest vocabulary: time grows with it for each token that is read."""
HELD_OUT = 1_000_000
"""Most tokens of all such parts together; one part has at most a quarter of them."""


@dataclass(frozen=True)
class _State(State):
    """The current contexts of each row, as in ngrams/lazy_trie.py."""

    contexts_BK: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.arange(len(self.contexts_BK))

    def select(self, rows: ArrayLike, same_text: bool = False) -> _State:
        return _State(self.contexts_BK[np.asarray(rows)])

    def join(self, others: Sequence[_State]) -> _State:
        return _State(np.concatenate([self.contexts_BK, *(other.contexts_BK for other in others)]))


class WeightedNgram(Counted, LanguageModel):
    """A language model that counts n-grams of high order, and learns how to weigh them."""

    family = "n-gram"
    task = "lm"
    inputs = ("fresh_B",)
    adapts = True

    @dataclass(frozen=True)
    class Config(ModelConfig):
        order: int = 12
        """The n of n-gram: a token is predicted from the order - 1 before it."""
        rate: float = 0.03
        """Learning rate of the weights (AdaGrad); 0: plain modified Kneser-Ney."""

        def __post_init__(self) -> None:
            if not 1 <= self.order <= 255:
                raise ValueError(f"order is {self.order}; it must lie between 1 and 255")
            if not 0 <= self.rate <= 1:
                raise ValueError(f"rate is {self.rate}; it must lie between 0 and 1")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        """The recipe's [train]: there are no settings."""

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.nodes: NDArray[np.int32] = np.zeros((0, 6), np.int32)
        """As in ngrams/lazy_trie.py, as are the next two; empty until the model is fitted or loaded."""
        self.text: Ids = np.zeros(0, np.int32)
        self.tally = np.zeros((config.order, 6), np.int64)
        self.discounts: Floats = np.zeros((config.order, 4))
        """For each order, the discounts of a count of 0, 1, 2, and 3 or more."""
        self.static = Weights.plain(config.order)
        """Weights of the static model; `moving` below are the first weights of adapted()."""
        self.moving = Weights.plain(config.order)

    @property
    def parameters_count(self) -> int:
        """Number of nodes and weights."""
        return len(self.nodes) + self.static.values.size + self.moving.values.size

    @property
    def restart(self) -> int:
        """The token after which the history begins anew: STOP; no token, if context is carried over it."""
        return BREAK if self.sizes.carry else self.sizes.stop

    # Learning

    @property
    def held_out_chooses(self) -> bool:
        return False

    def fit(
        self,
        store: Any,
        train: Train,
        held_out: NDArray[Any] | None = None,
        done: Callable[[float], None] = lambda share: None,
    ) -> Iterator[Record]:
        """Learn weights on parts of `store.tokens`, and count all of it. (`held_out` is not needed.)"""
        words = store.tokens
        check_text(words, self.sizes.vocab_size)
        if self.sizes.vocab_size > MOST_TOKENS:
            raise InputError(
                f"weighted_ngram weighs every token for each prediction, and {self.sizes.vocab_size:,} are too many: "
                f"expected {MOST_TOKENS:,} at the most. Set tokens.kind=byte, or a smaller tokens.vocab_size."
            )
        text = np.asarray(words, np.int32)
        folds = _folds(len(text)) if self.config.rate else []
        most = len(text) * 9 // 10
        stages = len(folds) + 1
        for k, (low, high) in enumerate(folds):
            nats = self._learn(text, low, high, _part(done, k / stages, (k + 1) / stages))
            yield Record(step=k + 1, kind="train", values={"held_out_nats": nats})
        self._count(text, most, _part(done, len(folds) / stages, 1.0))
        yield Record(step=stages, kind="train", values={"ngrams": len(self.nodes)})

    def _learn(self, text: Ids, low: int, high: int, done: Callable[[float], None]) -> float:
        """Learn the static weights on text[low:high] with the counts of the rest; return the nats a token."""
        trie = Trie(self.config.order, self.restart)
        trie.count(np.concatenate((text[:low], [BREAK], text[high:])), _part(done, 0.0, 0.6))
        update_discounts(trie.tally, self.discounts)
        tokens, targets = np.concatenate(([BREAK], text[low : high - 1])), text[low:high]
        logp = self._score(*trie.finished(), beginning(self.config.order), tokens, targets, self.config.rate)
        done(1.0)
        return -float(logp.mean())

    def _count(self, text: Ids, most: int, done: Callable[[float], None]) -> None:
        """Count all of the text, and learn the weights of adapted() on what comes after text[:most]."""
        trie = Trie(self.config.order, self.restart)
        trie.count(text[:most], _part(done, 0.0, 0.5))
        update_discounts(trie.tally, self.discounts)
        trie.learn(
            text[most:], self.moving, self.discounts, self.config.rate, self.sizes.vocab_size, _part(done, 0.5, 1.0)
        )
        update_discounts(trie.tally, self.discounts)
        self.tally = trie.tally
        self.nodes, self.text = trie.finished()

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`: the nodes, the text, and the weights."""
        arrays: dict[str, NDArray[Any]] = {
            "nodes": self.nodes.view(np.uint32),
            "text": self.text.view(np.uint32),
            "tally": self.tally,
        }
        arrays |= {"static": self.static.values, "moving": self.moving.values, "moving.squares": self.moving.squares}
        write_arrays(Path(folder) / "model.safetensors", arrays)

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        order = self.config.order
        self.nodes = arrays.take("nodes", "u4", (None, 6)).view(np.int32)
        self.text = arrays.take("text", "u4", (None,)).view(np.int32)
        check_trie(self.nodes, self.text, self.sizes.vocab_size)
        self.tally = np.array(arrays.ids("tally", (order, 6), 1 << 62, "i8"))
        update_discounts(self.tally, self.discounts)
        shape = (order * FEATURES, 2)
        static, moving = (np.array(arrays.numbers(name, shape, -1e6, 1e6)) for name in ("static", "moving"))
        self.static = Weights(static, np.ones_like(static))
        self.moving = Weights(moving, np.array(arrays.numbers("moving.squares", shape, 1.0, 1e30)))

    # Predicting

    def logprobs(self, batch: Batch, state: _State | None = None) -> tuple[Floats, _State]:
        """Compute log p of each target, 0 at IGNORE; also return the state after the batch."""
        tokens_BT, targets_BT, mask_BT = (np.asarray(a) for a in (batch.tokens_BT, batch.targets, batch.mask_BT))
        contexts_BK = (state or self.start(len(tokens_BT), 0)).contexts_BK.copy()
        if batch.fresh_B is not None:
            contexts_BK[np.asarray(batch.fresh_B)] = beginning(self.config.order)
        logp_BT = np.zeros(targets_BT.shape)
        for row, mask in enumerate(mask_BT.astype(bool)):
            asked = tokens_BT[row, mask], targets_BT[row, mask]
            logp_BT[row, mask] = self._score(self.nodes, self.text, contexts_BK[row], *asked)
        return logp_BT, _State(contexts_BK)

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> _State:
        """Return rows that have read nothing. (`capacity` and `source` are for other models.)"""
        return _State(np.tile(beginning(self.config.order), (rows, 1)))

    def step(self, tokens_BT: Any, mask_BT: Any, state: _State) -> tuple[Tensor, _State]:
        """Read tokens; return the log probabilities of the next token."""
        import torch

        contexts_BK = state.contexts_BK.copy()
        logp_BV = np.empty((len(contexts_BK), self.sizes.vocab_size))
        for row, mask in enumerate(np.asarray(mask_BT, dtype=bool)):
            tokens = np.asarray(tokens_BT)[row, mask]
            self._score(self.nodes, self.text, contexts_BK[row], tokens, np.full(len(tokens), IGNORE))
            score_next(self.nodes, self.text, contexts_BK[row], NONE, self.discounts, self.static.values, logp_BV[row])
        return torch.from_numpy(logp_BV).float(), _State(contexts_BK)

    def adapted(self) -> _Adapted:
        """Return a model that begins as this one and goes on counting and learning while it reads."""
        return _Adapted(self)

    def _score(
        self,
        nodes: NDArray[np.int32],
        text: Ids,
        contexts: NDArray[np.int64],
        tokens: NDArray[Any],
        targets: NDArray[Any],
        rate: float = 0.0,
    ) -> Floats:
        """Compute log p of each target after its token, 0 if there is none; advance the contexts in place."""
        logp = np.zeros(len(tokens))
        given = tokens.astype(np.int64), targets.astype(np.int64)
        weights = self.static.values, self.static.squares, rate
        score(nodes, text, contexts, self.restart, self.discounts, *weights, *given, self.sizes.vocab_size, logp)
        return logp


class _Adapted(LanguageModel):
    """A model that counts what it reads and goes on learning its weights: one text, one row. The first token after
    `start`, or of a fresh row, begins a text and is not counted."""

    task = "lm"
    inputs = ("fresh_B",)
    in_order = True

    def __init__(self, model: WeightedNgram) -> None:
        super().__init__(model.config, model.sizes)
        self.model = model
        self.trie = Trie.of(model.nodes, model.text, model.tally, model.restart)
        self.discounts, self.weights = model.discounts.copy(), model.moving.copy()
        self.begun = False

    @property
    def parameters_count(self) -> int:
        return self.model.parameters_count

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Floats, _Adapted]:
        """Compute log p of each target, then learn from it and count it; this object is the state."""
        tokens, targets = np.asarray(batch.tokens_BT), np.asarray(batch.targets)
        _one_row(len(tokens))
        if not self.begun or (batch.fresh_B is not None and np.asarray(batch.fresh_B)[0]):
            self._begin(tokens[0, 0])
        logp = np.zeros(targets.shape)
        real = targets[0] >= 0
        logp[0, real] = self._read(targets[0, real])
        return logp, self

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> _Adapted:
        """Return a row that has read nothing; counts and weights stay."""
        _one_row(rows)
        self.begun = False
        return self

    def step(self, tokens_BT: Any, mask_BT: Any, state: Any) -> tuple[Tensor, _Adapted]:
        """Read and count tokens; return the log probabilities of the next token."""
        import torch

        _one_row(len(tokens_BT))
        tokens = np.asarray(tokens_BT)[0, np.asarray(mask_BT, dtype=bool)[0]]
        if len(tokens) and not self.begun:
            self._begin(tokens[0])
            tokens = tokens[1:]
        self._read(tokens)
        trie, logp = self.trie, np.empty(self.sizes.vocab_size)
        score_next(trie.nodes, trie.text, trie.contexts, trie.length, self.discounts, self.weights.values, logp)
        return torch.from_numpy(logp)[None].float(), self

    def select(self, rows: Any, same_text: bool = False) -> _Adapted:
        """Return this state: there is only one row."""
        return self

    def _begin(self, token: int) -> None:
        self.trie.begin(int(token))
        self.begun = True

    def _read(self, text: NDArray[Any]) -> Floats:
        return self.trie.learn(text, self.weights, self.discounts, self.config.rate, self.sizes.vocab_size)


def _folds(size: int) -> list[tuple[int, int]]:
    """Choose the parts of a text of this size that weights are learnt on: evenly over it, the last at its end."""
    part = min(size // FOLDS, HELD_OUT // 4)
    folds = min(FOLDS, HELD_OUT // part) if part else 0
    return [(size * k // folds - part, size * k // folds) for k in range(1, folds + 1)]


def _part(done: Callable[[float], None], low: float, high: float) -> Callable[[float], None]:
    """Return a `done` for a part of the work, from one share to another."""
    return lambda share: done(low + (high - low) * min(1.0, share))


def _one_row(rows: int) -> None:
    if rows != 1:
        raise ValueError(f"{rows} rows; a model that goes on counting reads one text, not several side by side")

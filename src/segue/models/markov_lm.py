"""The base class of ngram and arpa_lm: language models that see only the last n - 1 tokens (Markov assumption).

A subclass defines how order k changes the probabilities of order k - 1 (`_score_order`, `_add_order`), and p of the
first order, `_unigram`. This file has the rest: the history of each row, scoring, and stepping.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.state import State
from segue.models.base import LanguageModel
from segue.ngrams.lookup import UNKNOWN

if TYPE_CHECKING:
    from torch import Tensor

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

POSITIONS_AT_ONCE = 1 << 16
"""Score this many positions at a time, so that their arrays fit into the CPU cache."""


@dataclass(frozen=True)
class History(State):
    """The last tokens that each row has read; UNKNOWN where there were fewer."""

    history_BT: Ids

    @property
    def rows(self) -> Ids:
        return np.arange(len(self.history_BT))

    def select(self, rows: ArrayLike, same_text: bool = False) -> History:
        return History(self.history_BT[np.asarray(rows)])

    def join(self, others: Sequence[History]) -> History:
        return History(np.concatenate([self.history_BT, *(other.history_BT for other in others)]))

    def read(self, tokens_BT: Ids, mask_BT: NDArray[np.bool_]) -> History:
        """Return the history after the real tokens of `tokens_BT`, wherever in the row the padding is."""
        width = self.history_BT.shape[1]
        if mask_BT.all():
            return History(np.concatenate((self.history_BT, tokens_BT[:, -width:]), axis=1)[:, -width:])
        tokens = np.concatenate((self.history_BT, tokens_BT), axis=1)
        real = np.concatenate((np.ones_like(self.history_BT, dtype=bool), mask_BT), axis=1)
        real_last = np.argsort(real, axis=1, kind="stable")[:, -width:]
        return History(np.take_along_axis(tokens, real_last, axis=1))


class MarkovLm(LanguageModel):
    """A language model of a fixed order."""

    family = "n-gram"
    task = "lm"
    inputs = ("fresh_B",)
    _unigram: Floats
    """(V,) the probabilities of order 1."""

    @abstractmethod
    def _score_order(self, k: int, text: Ids, targets: Ids, contexts: Ids, p: Floats) -> None:
        """Apply order k + 1 to a text: change p of the targets in place, from that of order k. `contexts` are the ids
        of the k-grams that end at each place, and become those of the (k + 1)-grams."""

    @abstractmethod
    def _add_order(self, k: int, context: int, p: Floats) -> None:
        """Apply order k + 1 after one context: change p of every token in place, from that of order k."""

    @property
    def restart(self) -> int:
        """The token after which the history begins anew: STOP; no token, if context is carried over it."""
        return UNKNOWN if self.sizes.carry else self.sizes.stop

    def logprobs(self, batch: Batch, state: History | None = None) -> tuple[Floats, History]:
        """Compute log p of each target, 0 at IGNORE and -inf where p is 0; also return the state after the batch."""
        tokens_BT, targets_BT = (np.asarray(a).astype(np.int64, copy=False) for a in (batch.tokens_BT, batch.targets))
        rows, length = tokens_BT.shape
        state = state or self.start(rows, 0)
        if batch.fresh_B is not None:
            state = History(np.where(np.asarray(batch.fresh_B)[:, None], UNKNOWN, state.history_BT))
        after = state.read(tokens_BT, np.asarray(batch.mask_BT))
        logp_BT = np.zeros((rows, length))
        text_BT = np.concatenate((state.history_BT, tokens_BT), axis=1)
        skip = text_BT.shape[1] - length
        for begin in range(0, length, POSITIONS_AT_ONCE):
            end = min(length, begin + POSITIONS_AT_ONCE)
            together = max(1, POSITIONS_AT_ONCE // (skip + end - begin))
            for first in range(0, rows, together):
                some = slice(first, first + together)
                p_BT = self._score(text_BT[some, begin : skip + end], targets_BT[some, begin:end])
                logp_BT[some, begin:end] = _log(p_BT)
        return np.where(targets_BT == IGNORE, 0.0, logp_BT), after

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> History:
        """Return rows that have read nothing. (`capacity` and `source` are for other models.)"""
        width = max(1, self.config.order - 1)
        return History(np.full((rows, width), UNKNOWN, dtype=np.int64))

    def step(self, tokens_BT: Any, mask_BT: Any, state: History) -> tuple[Tensor, History]:
        """Read tokens; return the log probabilities of the next token."""
        import torch

        state = state.read(np.asarray(tokens_BT).astype(np.int64), np.asarray(mask_BT))
        return torch.from_numpy(_log(np.stack([self._dense(row) for row in state.history_BT]))).float(), state

    def distribution(self, context_ids: Sequence[int]) -> Floats:
        """Compute (V,) probabilities of the token after these; begin with STOP if a text begins there."""
        return self._dense(self.history(context_ids))

    def history(self, context_ids: Sequence[int]) -> Ids:
        """Return the last tokens of these, as many as the model sees."""
        context_BT = np.asarray(context_ids, dtype=np.int64).reshape(1, -1)
        read: Ids = self.start(1, 0).read(context_BT, np.ones_like(context_BT, dtype=bool)).history_BT[0]
        return read

    def contexts(self, history: Ids) -> list[int]:
        """Return, for each order, the id of the context at the end of a history; negative if never seen."""
        nothing = np.full(len(history), IGNORE)
        return [0, *(int(contexts[-1]) for contexts in self._walk(history, nothing, np.ones(len(history))))]

    def _score(self, text_BT: Ids, targets_BT: Ids) -> Floats:
        """Compute p of the targets, which follow the last tokens of each row. The rows are read as one text: each
        begins with as many tokens as the model sees, so that no target sees another row."""
        skip = text_BT.shape[1] - targets_BT.shape[1]
        targets = np.concatenate((np.full((len(text_BT), skip), IGNORE), targets_BT), axis=1).ravel()
        p: Floats = self._unigram[np.maximum(targets, 0)]
        for _ in self._walk(text_BT.ravel(), targets, p):
            pass
        return p.reshape(text_BT.shape)[:, skip:]

    def _walk(self, text: Ids, targets: Ids, p: Floats) -> Iterator[Ids]:
        """For each order from 2 on: yield the ids of the contexts that end at each place, then apply the order."""
        contexts = text.copy()
        for k in range(1, self.config.order):
            yield contexts
            self._score_order(k, text, targets, contexts, p)

    def _dense(self, history: Ids) -> Floats:
        """Compute (V,) probabilities of the token after a history."""
        p = self._unigram.copy()
        for k, context in enumerate(self.contexts(history)[1:], 1):
            self._add_order(k, context, p)
        return p


def _log(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))

"""N-grams whose probabilities a file gave, sorted as in trie.py: what `model.safetensors` of an imported model holds.

Of each order above the first:

    words.k      the last word of every n-gram, sorted inside its context               2 bytes (4 from 65,537 words)
    logp.k       its log10 p(w|h), as given                                             4 bytes
    first.k      for every context, an n-gram of order k - 1: its first follower        4 bytes
    backoff.k    for every context: the log10 of its back-off weight, as given          4 bytes

    p(w|h) = 10^logp(h,w) where (h,w) is there, else 10^backoff(h) · p(w|h'), and p(w|h') where h is not there

Order 1 is dense, with one context, the empty one. Its id 0 is STOP as a word and START as a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from segue.compiling import njit
from segue.ngrams.count import Array
from segue.ngrams.lookup import UNKNOWN, UNSEEN, find
from segue.ngrams.model_file import Arrays

_GREATEST_BACKOFF = 1e4
"""A back-off weight has a logarithm near 0; many that are greater than this would add up to infinity."""


@dataclass(frozen=True)
class BackoffTable:
    """The n-grams of one order."""

    words: Array
    logp: Array
    first: Array
    backoff: Array

    def __len__(self) -> int:
        return len(self.words)

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        return self.words, self.logp, self.first, self.backoff


def unigrams(logp: Array) -> BackoffTable:
    """Make order 1, of the whole vocabulary."""
    words = np.arange(len(logp), dtype=np.uint16 if len(logp) <= 1 << 16 else np.uint32)
    return BackoffTable(words, logp, np.array([0, len(logp)], np.uint32), np.zeros(1, np.float32))


def contexts_of(ids: Array, levels: Sequence[BackoffTable]) -> Array:
    """Find the id of the context of each row of words, (rows, k); negative if it is not there."""
    contexts = ids[:, 0].astype(np.int64)
    for level, column in zip(levels[1:], range(1, ids.shape[1] - 1), strict=True):
        _descend(level.words, level.first, ids[:, column], contexts)
    return contexts


def sort(contexts: Array, words: Array) -> Array:
    """Return the sorted order of n-grams; the file need not be sorted."""
    keys = contexts.astype(np.uint64) << np.uint64(32) | words.astype(np.uint64)
    return np.arange(len(keys)) if (keys[1:] > keys[:-1]).all() else np.argsort(keys, kind="stable")


def level_of(contexts: Array, words: Array, logp: Array, backoff: Array) -> BackoffTable:
    """Make a level of sorted n-grams; `backoff` is that of the order below."""
    first = np.zeros(len(backoff) + 1, np.uint32)
    np.cumsum(np.bincount(contexts, minlength=len(backoff)), out=first[1:])
    return BackoffTable(words, logp, first, backoff)


def tables_to_arrays(levels: Sequence[BackoffTable]) -> dict[str, Array]:
    return {f"{name}.{k}": array for k, level in enumerate(levels, 1) for name, array in vars(level).items()}


def tables_of_arrays(arrays: Arrays, order: int, vocab_size: int) -> list[BackoffTable]:
    """Return the orders, each checked against the order below: its contexts are the n-grams of that."""
    tables: list[BackoffTable] = []
    contexts = 1
    for k in range(1, order + 1):
        words = arrays.ids(f"words.{k}", (vocab_size if k == 1 else None,), vocab_size)
        logp = arrays.logs(f"logp.{k}", (len(words),), 0.0)
        first = arrays.offsets(f"first.{k}", contexts, len(words))
        tables.append(BackoffTable(words, logp, first, arrays.logs(f"backoff.{k}", (contexts,), _GREATEST_BACKOFF)))
        contexts = len(words)
    return tables


@njit(cache=True, nogil=True)
def _descend(words, first, column, contexts):
    for i in range(len(contexts)):
        context = contexts[i]
        if context >= 0:
            contexts[i] = find(words, np.int64(first[context]), np.int64(first[context + 1]), column[i])


@njit(cache=True, nogil=True)
def score_backoff(words, logp, first, backoff, text, targets, restart, contexts, p):
    """Apply one order to a row of text, as lookup.score_order does."""
    size = len(text)
    carried = np.int64(UNKNOWN)
    for i in range(size):
        context = contexts[i]
        contexts[i] = carried
        following = text[i + 1] if i + 1 < size else np.int64(UNKNOWN)
        place = np.int64(UNSEEN)
        if context >= 0:
            low, high = np.int64(first[context]), np.int64(first[context + 1])
            target = targets[i]
            if target >= 0:
                place = find(words, low, high, target)
                if place >= 0:
                    p[i] = 10.0 ** np.float64(logp[place])
                else:
                    p[i] *= 10.0 ** np.float64(backoff[context])
            if following >= 0 and following != target:
                place = find(words, low, high, following)
        carried = np.int64(UNKNOWN) if following < 0 or following == restart or context == UNKNOWN else place


@njit(cache=True, nogil=True)
def add_backoff(words, logp, first, backoff, context, p):
    """Apply one order to every word of the vocabulary, as lookup.add_order does."""
    if context < 0:
        return
    p *= 10.0 ** np.float64(backoff[context])
    for place in range(np.int64(first[context]), np.int64(first[context + 1])):
        p[words[place]] = 10.0 ** np.float64(logp[place])

"""N-gram counts that grow while reading: new counts are an overlay over the packed tables, which do not change.

Two hash tables hold what has changed: `grams`, the count of an n-gram by its context and word, and the id of one that
is new; and `rows`, the profile of a context whose followers have changed. What is not in them is as it was counted in
training, so that adapting begins at once, whatever the size of the model, and takes memory for what was read alone.

Reading a word counts it after every context that ends before it. With continuation counts (Kneser-Ney) it is counted
after the longest one, and after the next shorter one only where it was new after the longer: just then a new word
stands before it. A model that has read a text this way has the counts of one trained on both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.compiling import njit
from segue.ngrams.lookup import UNKNOWN, find
from segue.ngrams.trie import FIELDS, Level, side_by_side

if TYPE_CHECKING:
    from torch import Tensor

DISCOUNTED, WITTEN_BELL, INTERPOLATED, ADD_ALPHA, LIKELIHOOD, STUPID_BACKOFF = range(6)
"""Kinds of smoothing; see models/ngram.py."""


def flattened(levels: list[Level]) -> tuple[Any, ...]:
    """Join all orders into one array of each kind, and return where each begins; a mapped file is not copied."""
    columns, begins = [], []
    for name in FIELDS:
        flat, starts = side_by_side([getattr(level, name) for level in levels])
        columns.append(flat)
        begins.append(starts)
    sizes = [[len(level.profile) for level in levels], [len(level.more_ids) for level in levels]]
    return (*columns, np.array([*begins, *sizes], np.int64).T.copy())


class Overlay:
    """Counts that have changed since training. Rows are total, ones, twos, more, lost."""

    def __init__(self, levels: list[Level]) -> None:
        self.next_ids = np.array([len(level) for level in levels], np.int64)
        self.used = np.zeros(2, np.int64)
        self._make(12)

    def _make(self, bits: int) -> None:
        size = 1 << bits
        self.gram_keys = np.zeros(size, np.uint64)
        self.gram_ids, self.gram_counts = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.row_keys = np.zeros(size, np.uint64)
        self.rows = np.zeros((size, 5), np.int64)

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.gram_keys, self.gram_ids, self.gram_counts, self.row_keys, self.rows, self.used, self.next_ids

    def make_room(self, more: int) -> None:
        """Grow the tables for this many more n-grams, at most half full."""
        if 2 * (int(self.used.max()) + more) <= len(self.gram_keys):
            return
        old = self.arrays
        self._make((4 * (int(self.used.max()) + more)).bit_length())
        _move(*old[:5], *self.arrays[:5])


class Reading:
    """An n-gram model that counts on while it reads: one text, one row. The original model does not change."""

    def __init__(self, model: Any, levels: list[Level], settings: tuple[Any, ...]) -> None:
        """`settings`: the kind of smoothing, whether counts are continuation counts, discounts by order, lambdas by
        order, alpha, and V, the number of tokens that can follow (all, or all but UNK)."""
        self.config, self.sizes, self.restart = model.config, model.sizes, model.restart
        self.packed, self.settings, self.overlay = flattened(levels), settings, Overlay(levels)
        self.contexts = np.full(len(levels), UNKNOWN, np.int64)
        self.contexts[0] = 0

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[NDArray[np.float64], Any]:
        """Compute log p of each target, then count it; this object is the state."""
        tokens, targets = np.asarray(batch.tokens_BT), np.asarray(batch.targets)
        if len(tokens) != 1:
            raise ValueError(f"a model that goes on counting reads one text, not {len(tokens)} side by side")
        if batch.fresh_B is not None and np.asarray(batch.fresh_B)[0]:
            self._begin(int(tokens[0, 0]))
        real = targets[0] >= 0
        p = self._read(targets[0][real].astype(np.int64))
        logp = np.zeros(targets.shape)
        with np.errstate(divide="ignore"):
            logp[0, real] = np.log(p)
        return logp, self

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> Reading:
        if rows != 1:
            raise ValueError(f"a model that goes on counting writes one text, not {rows} side by side")
        self.contexts[1:] = UNKNOWN
        return self

    def step(self, tokens_BT: Any, mask_BT: Any, state: Any) -> tuple[Tensor, Reading]:
        """Read and count tokens; return the log probabilities of the next token."""
        import torch

        tokens = np.asarray(tokens_BT)[0][np.asarray(mask_BT)[0]].astype(np.int64)
        if len(tokens) and (self.contexts[1:2] == UNKNOWN).all():
            self._begin(int(tokens[0]))
            tokens = tokens[1:]
        self._read(tokens)
        p = np.empty(self.sizes.vocab_size)
        score_all(self.packed, self.settings, self.contexts, self.overlay.arrays[:5], p)
        if self.settings[-1] < self.sizes.vocab_size:
            p[self.sizes.unk] = 0.0
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(p))[None].float(), self

    def select(self, rows: Any, same_text: bool = False) -> Reading:
        """Return this state: there is only one row."""
        return self

    def _begin(self, token: int) -> None:
        """Begin a text after its first token, mostly START, which is not counted."""
        self.contexts[1:] = UNKNOWN
        self.contexts[1:2] = token

    def _read(self, text: NDArray[np.int64]) -> NDArray[np.float64]:
        p = np.empty(len(text))
        for begin in range(0, len(text), 1 << 14):
            part = slice(begin, begin + (1 << 14))
            self.overlay.make_room(len(text[part]) * len(self.contexts))
            arrays = self.overlay.arrays
            score_reading(
                *(self.packed, self.settings, self.contexts, text[part], self.restart, arrays[:5], *arrays[5:]),
                p[part],
            )
        return p


@njit(cache=True, nogil=True, inline="always")
def _slot(keys, key):
    """Find the slot of a key, or the empty slot (0) where it would go."""
    mask = np.uint64(len(keys) - 1)
    h = key * np.uint64(0x9E3779B97F4A7C15)
    i = (h ^ (h >> np.uint64(29))) & mask
    while keys[i] != 0 and keys[i] != key:
        i = (i + np.uint64(1)) & mask
    return np.int64(i)


@njit(cache=True, nogil=True, inline="always")
def _key(k, context, word):
    """Order, context and word in one number, never 0: 5, 32 and 26 bits."""
    return (np.uint64(k + 1) << np.uint64(58)) | (np.uint64(context) << np.uint64(26)) | np.uint64(word + 1)


@njit(cache=True, nogil=True)
def _move(gram_keys, gram_ids, gram_counts, row_keys, rows, new_keys, new_ids, new_counts, new_row_keys, new_rows):
    for i in range(len(gram_keys)):
        if gram_keys[i] != 0:
            j = _slot(new_keys, gram_keys[i])
            new_keys[j], new_ids[j], new_counts[j] = gram_keys[i], gram_ids[i], gram_counts[i]
        if row_keys[i] != 0:
            j = _slot(new_row_keys, row_keys[i])
            new_row_keys[j] = row_keys[i]
            new_rows[j] = rows[i]


@njit(cache=True, nogil=True)
def _weights(kind, row, discounts, lambdas, alpha, size):
    """Compute the factor of a count after this context, and the factor of the next shorter context's probability."""
    total, lost = float(row[0]), float(row[4])
    kept = total - lost
    followers = float(row[1] + row[2] + row[3])
    if kept <= 0.0:
        return -1.0, 1.0
    if kind == DISCOUNTED:
        return 1.0 / total, (discounts[1] * row[1] + discounts[2] * row[2] + discounts[3] * row[3] + lost) / total
    if kind == WITTEN_BELL:
        return 1.0 / (total + followers), (followers + lost) / (total + followers)
    if kind == INTERPOLATED:
        own = lambdas[min(int(np.log2(kept)), len(lambdas) - 1)]
        return own / total, (1.0 - own) + own * lost / total
    if kind == ADD_ALPHA:
        return 1.0 / (kept + alpha * size), alpha * size / (kept + alpha * size)
    return 1.0 / kept, 0.0


@njit(cache=True, nogil=True)
def _look(packed, k, context, word, gram_keys, gram_ids, gram_counts):
    """Look up an n-gram: its id (-1 if there is none), its count, and its slot."""
    words, counts, more_ids, more_counts, first, _, _, starts = packed
    slot = _slot(gram_keys, _key(k, context, word))
    if gram_keys[slot] != 0:
        return gram_ids[slot], gram_counts[slot], slot
    if context < starts[k, 7]:
        at = starts[k, 4] + context
        place = find(words, starts[k, 0] + np.int64(first[at]), starts[k, 0] + np.int64(first[at + 1]), word)
        if place >= 0:
            place -= starts[k, 0]
            count = np.int64(counts[starts[k, 1] + place])
            if count == 255:
                among = more_ids[starts[k, 2] : starts[k, 2] + starts[k, 8]]
                count = np.int64(more_counts[starts[k, 3] + np.searchsorted(among, place)])
            return place, count, slot
    return np.int64(-1), np.int64(0), slot


@njit(cache=True, nogil=True)
def _row(packed, k, context, row_keys, rows, out):
    """Look up the profile of a context; return its slot."""
    _, _, _, _, _, profile, profiles, starts = packed
    slot = _slot(row_keys, _key(k, context, 0))
    if row_keys[slot] != 0:
        out[:] = rows[slot]
    elif context < starts[k, 7]:
        out[:] = profiles[starts[k, 6] + np.int64(profile[starts[k, 5] + context])]
    else:
        out[:] = 0
    return slot


@njit(cache=True, nogil=True)
def _probability(packed, kind, discounts, lambdas, alpha, size, contexts, word, overlay, row):
    """Compute p of a word after contexts[0], contexts[1], …, which have 0, 1, … words; those below 0 are unseen."""
    gram_keys, gram_ids, gram_counts, row_keys, rows = overlay
    p = 0.0 if kind == STUPID_BACKOFF else 1.0 / size
    for k in range(len(contexts)):
        context = contexts[k]
        if context == UNKNOWN:
            break
        scale, weight, count = -1.0, 1.0, np.int64(0)
        if context >= 0:
            _row(packed, k, context, row_keys, rows, row)
            scale, weight = _weights(kind, row, discounts[k], lambdas[k], alpha, size)
        if scale >= 0.0:
            count = _look(packed, k, context, word, gram_keys, gram_ids, gram_counts)[1]
        if kind == ADD_ALPHA:
            p = count * max(scale, 0.0) + weight / size
        elif kind == STUPID_BACKOFF and k > 0:
            p = count * scale if count > 0 else 0.4 * p
        elif scale >= 0.0:
            p = (count - discounts[k, min(count, 3)]) * scale + weight * p
    return p


@njit(cache=True, nogil=True)
def _read(packed, continuation, contexts, word, restart, overlay, used, next_ids, row):
    """Count a word after its contexts, and advance these. `restart` is as in ngrams/lookup.py."""
    gram_keys, gram_ids, gram_counts, row_keys, rows = overlay
    longest = 0
    while longest + 1 < len(contexts) and contexts[longest + 1] != UNKNOWN:
        longest += 1
    counted = False  # after a longer context, where it had been before
    for k in range(longest, -1, -1):
        context = contexts[k]
        id_, count, slot = _look(packed, k, context, word, gram_keys, gram_ids, gram_counts)
        new = id_ < 0 or (k == 0 and count == 0)
        if not (continuation and counted):
            at = _row(packed, k, context, row_keys, rows, row)
            used[1] += row_keys[at] == 0
            row_keys[at] = _key(k, context, 0)
            rows[at] = row
            rows[at, 0] += 1
            if count < 3:
                rows[at, count + 1] += 1
                if count > 0:
                    rows[at, count] -= 1
            if id_ < 0:
                id_ = next_ids[k]
                next_ids[k] += 1
            used[0] += gram_keys[slot] == 0
            gram_keys[slot] = _key(k, context, word)
            gram_ids[slot], gram_counts[slot] = id_, count + 1
        counted = counted or not new
        if k + 1 < len(contexts):
            contexts[k + 1] = id_
    for k in range(longest + 2, len(contexts)):
        contexts[k] = UNKNOWN
    if word == restart:  # what comes next begins a text
        for k in range(1, len(contexts)):
            contexts[k] = restart if k == 1 else UNKNOWN


@njit(cache=True, nogil=True)
def score_reading(packed, settings, contexts, text, restart, overlay, used, next_ids, p):
    """Compute p of each word of a text, and count it; advance the contexts in place."""
    kind, continuation, discounts, lambdas, alpha, size = settings
    row = np.zeros(5, np.int64)
    for i in range(len(text)):
        p[i] = _probability(packed, kind, discounts, lambdas, alpha, size, contexts, text[i], overlay, row)
        _read(packed, continuation, contexts, text[i], restart, overlay, used, next_ids, row)


@njit(cache=True, nogil=True)
def score_all(packed, settings, contexts, overlay, p):
    """Compute p of every word of the vocabulary."""
    kind, _, discounts, lambdas, alpha, size = settings
    row = np.zeros(5, np.int64)
    for word in range(len(p)):
        p[word] = _probability(packed, kind, discounts, lambdas, alpha, size, contexts, word, overlay, row)

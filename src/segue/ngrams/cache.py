"""A cache: what was read lately comes again (Kuhn & De Mori 1990), here after the same words as well.

    p_k(w|h) = (c(h,w) + p_{k-1}(w|h')) / (c(h) + 1)        h the last k words, k = 0 … 3; below, 1/V

c counts what was read so far, and every count shrinks by `DECAY` with each word read. There is nothing to train: a
cache is of use in a mixture with a model that is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.scorer import Scorer
from segue.compiling import njit

DECAY = 0.998
"""The factor of a count after one more word: it halves in 346 words."""
LONGEST = 3
"""Words of context."""
_AT_ONCE = 1 << 14


class CacheLm(Scorer):
    """Reads one text; its `logprobs` are those of a language model."""

    in_order = True

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.history = np.zeros(LONGEST, np.int64)
        self.now = 0
        self.used = np.zeros(1, np.int64)
        self._make(14)

    def _make(self, bits: int) -> None:
        self.keys = np.zeros(1 << bits, np.uint64)
        self.mass, self.when = np.zeros(1 << bits), np.zeros(1 << bits, np.int64)

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[NDArray[np.float64], Any]:
        """Compute log p of each target, then remember it; the cache itself is the state."""
        tokens, targets = np.asarray(batch.tokens_BT), np.asarray(batch.targets)
        if len(tokens) != 1:
            raise ValueError(f"a cache reads one text, not {len(tokens)} side by side")
        if batch.fresh_B is not None and np.asarray(batch.fresh_B)[0]:
            self.history[:] = tokens[0, 0]
        real = targets[0] >= 0
        text = targets[0][real].astype(np.int64)
        p = np.empty(len(text))
        for begin in range(0, len(text), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            self._make_room(2 * (LONGEST + 1) * len(text[part]))
            _read(
                *(text[part], self.history, self.now, DECAY, 1.0 / self.vocab_size),
                *(self.keys, self.mass, self.when, self.used, p[part]),
            )
            self.now += len(text[part])
        logp = np.zeros(targets.shape)
        logp[0, real] = np.log(p)
        return logp, self

    def _make_room(self, more: int) -> None:
        if 2 * (int(self.used[0]) + more) > len(self.keys):
            old = self.keys, self.mass, self.when
            self._make((4 * (int(self.used[0]) + more)).bit_length())
            _move(*old, self.keys, self.mass, self.when)


@njit(cache=True, nogil=True, inline="always")
def _mix(a, b):
    x = (a ^ (np.uint64(b) + np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _slot(keys, key):
    mask = np.uint64(len(keys) - 1)
    i = key & mask
    while keys[i] != 0 and keys[i] != key:
        i = (i + np.uint64(1)) & mask
    return np.int64(i)


@njit(cache=True, nogil=True)
def _move(keys, mass, when, new_keys, new_mass, new_when):
    for i in range(len(keys)):
        if keys[i] != 0:
            j = _slot(new_keys, keys[i])
            new_keys[j], new_mass[j], new_when[j] = keys[i], mass[i], when[i]


@njit(cache=True, nogil=True)
def _read(text, history, now, decay, uniform, keys, mass, when, used, out):
    for i in range(len(text)):
        p = uniform
        context = np.uint64(88172645463325252)
        for k in range(len(history) + 1):
            if k > 0:
                context = _mix(context, history[len(history) - k] + 1)
            total, own = 0.0, 0.0
            for key in (context, _mix(context, text[i] + (np.int64(1) << np.int64(32)))):
                j = _slot(keys, key)
                total, own = own, mass[j] * decay ** (now - when[j])
                used[0] += keys[j] == 0
                keys[j], mass[j], when[j] = key, own + 1.0, now
            p = (own + p) / (total + 1.0)
        out[i] = p
        for k in range(len(history) - 1):
            history[k] = history[k + 1]
        history[len(history) - 1] = text[i]
        now += 1

"""Word classes by the exchange algorithm: words with similar neighbours get the same class.

Each word in turn is moved to the class that makes the text likeliest, until none moves (Kneser & Ney 1993; Martin,
Liermann & Ney 1998). The likelihood is that of p(c(w)|v) · p(w|c(w)), v being the neighbour, forwards and backwards:

    sum over v, c of  n(v,c) log n(v,c) + n(c,v) log n(c,v)   -   2 · sum over c of  n(c) log n(c)

where n(v,c) is how often v stood before a word of class c. A sweep over all words takes (different bigrams) · 2 ·
classes steps, and the two tables of n take vocabulary · classes · 8 bytes. The words begin dealt out in turn, the most
frequent first; words that were never seen stay where they were dealt. There is no chance in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from segue.compiling import njit
from segue.errors import InputError
from segue.ngrams.count import Array

MOST_BYTES = 2 << 30
"""Most bytes of the two tables."""


def cluster(
    words: Array, vocab_size: int, classes: int, sweeps: int, done: Callable[[float], None] = lambda share: None
) -> Array:
    """Find the class of every word 0 … vocab_size - 1; classes are numbered from 0, and none is empty."""
    classes = min(classes, vocab_size)
    if 8 * vocab_size * classes > MOST_BYTES:
        raise InputError(
            f"Finding {classes:,} classes of {vocab_size:,} words takes {8 * vocab_size * classes / 1e9:.1f} GB of "
            f"memory; at most {MOST_BYTES / 1e9:.1f} GB is taken. Choose at most "
            f"model.classes={MOST_BYTES // (8 * vocab_size)}, or a smaller vocabulary by tokens.vocab_size."
        )
    count = np.bincount(words, minlength=vocab_size)
    order = np.argsort(-count, kind="stable")
    found = np.empty(vocab_size, np.int64)
    found[order] = np.arange(vocab_size) % classes
    before, after = _neighbours(words[1:], words[:-1], vocab_size), _neighbours(words[:-1], words[1:], vocab_size)
    tables = np.zeros((2, vocab_size, classes), np.int32)
    mass = np.zeros(classes, np.int64)
    _fill(*before, *after, count, found, *tables, mass)
    number = np.arange(count.max() + 1, dtype=np.float64)
    logs = number * np.log(np.maximum(number, 1))
    order = order[count[order] > 0]
    for sweep in range(sweeps):
        moved = _sweep(*before, *after, count, found, *tables, mass, logs, order)
        done((sweep + 1) / sweeps)
        if not moved:
            break
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _neighbours(words: Array, others: Array, size: int) -> tuple[Array, Array, Array]:
    """Count the neighbours of every word: where its neighbours begin, the neighbours, and their counts."""
    pairs, count = np.unique(words.astype(np.int64) * size + others, return_counts=True)
    first = np.concatenate(([0], np.cumsum(np.bincount(pairs // size, minlength=size))))
    return first, pairs % size, count


@njit(cache=True, nogil=True)
def _shift(first, others, counts, table, word, to, sign):
    for i in range(first[word], first[word + 1]):
        table[others[i], to] += sign * counts[i]


@njit(cache=True, nogil=True)
def _fill(bf, bo, bn, af, ao, an, count, found, left, right, mass):
    for word in range(len(count)):
        mass[found[word]] += count[word]
        _shift(bf, bo, bn, left, word, found[word], 1)
        _shift(af, ao, an, right, word, found[word], 1)


@njit(cache=True, nogil=True)
def _gain(first, others, counts, table, word, logs, gain):
    for i in range(first[word], first[word + 1]):
        row, n = table[others[i]], counts[i]
        for c in range(len(gain)):
            gain[c] += logs[row[c] + n] - logs[row[c]]


@njit(cache=True, nogil=True)
def _sweep(bf, bo, bn, af, ao, an, count, found, left, right, mass, logs, order):
    """Move every word of `order` once to its best class; return how many moved. b…: words before it, a…: after it."""
    gain = np.zeros(len(mass))
    moved = 0
    for word in order:
        old, m = found[word], count[word]
        mass[old] -= m
        _shift(bf, bo, bn, left, word, old, -1)
        _shift(af, ao, an, right, word, old, -1)
        for c in range(len(mass)):
            y = mass[c]
            gain[c] = -2 * ((y + m) * np.log(y + m) - (y * np.log(y) if y else 0.0))
        _gain(bf, bo, bn, left, word, logs, gain)
        _gain(af, ao, an, right, word, logs, gain)
        best = old
        for c in range(len(mass)):
            if gain[c] > gain[best] + 1e-9:
                best = c
        moved += best != old
        found[word] = best
        mass[best] += m
        _shift(bf, bo, bn, left, word, best, 1)
        _shift(af, ao, an, right, word, best, 1)
    return moved

"""Random draws of word2vec: subsampling of frequent words, and noise words for negative sampling.

A frequent word is kept with a chance, so that "the" teaches less than "cow" (Mikolov et al. 2013):

    keep(w) = min(1, (sqrt(f / s) + 1) · s / f)         f: share of w in the text, s: the threshold

Noise words (negative sampling) come with chances that are counts raised to a power, from an alias table (Walker 1977):
a place drawn evenly holds its own word up to a mark, and another one above it, so that a draw costs the same for any
vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit

WHOLE = (1 << 32) - 1
"""Probabilities are stored as whole numbers of 32 bits."""


class Noise(NamedTuple):
    """An alias table: at place i word i up to `mark[i]`, else word `other[i]`."""

    mark: NDArray[np.uint32]
    other: NDArray[np.int32]


def kept(counts: NDArray[np.int64], threshold: float) -> NDArray[np.uint32]:
    """Compute each word's probability of being kept (subsampling); all are kept if the threshold is 0."""
    if not threshold:
        return np.full(len(counts), WHOLE, np.uint32)
    share = np.maximum(counts, 1) / (threshold * max(1, counts.sum()))
    return np.asarray((np.minimum(1.0, (np.sqrt(share) + 1) / share) * WHOLE).astype(np.uint32))


def noise_chances(counts: NDArray[np.int64], power: float) -> NDArray[np.float64]:
    """Compute p(w) of noise words: counts raised to a power; a word that was never seen is never drawn."""
    raised = np.where(counts > 0, np.maximum(counts, 1).astype(np.float64) ** power, 0.0)
    return np.asarray(raised / raised.sum())


def noise_table(chances: NDArray[np.float64]) -> Noise:
    """Build the alias table of these probabilities."""
    left, other = _fill(chances * len(chances))
    return Noise((np.clip(left, 0.0, 1.0) * WHOLE).astype(np.uint32), other)


@njit(cache=True)
def _fill(left):
    """Fill up each place that is not full from one that has too much."""
    size = len(left)
    other = np.arange(size).astype(np.int32)
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    smalls = larges = 0
    for i in range(size):
        if left[i] < 1:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    while smalls and larges:
        smalls -= 1
        low, high = small[smalls], large[larges - 1]
        other[low] = high
        left[high] -= 1 - left[low]
        if left[high] < 1:
            larges -= 1
            small[smalls] = high
            smalls += 1
    for i in range(smalls):  # what rounding has left over is full
        left[small[i]] = 1
    return left, other


def seeds(seed: int, threads: int) -> NDArray[np.uint64]:
    """Return a state of the random number generator for each thread, never 0."""
    drawn = np.random.SeedSequence([seed, 0x5E60E]).generate_state(threads, np.uint64)
    return np.maximum(drawn, np.uint64(1))


@njit(cache=True, nogil=True)
def draw(state):
    """Draw 64 bits by xorshift* (Vigna 2016); the state is an array of one."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return x * np.uint64(2685821657736338717)


@njit(cache=True, nogil=True)
def below(bits, size):
    """Map 32 bits to a whole number below `size`."""
    return np.int64((bits * np.uint64(size)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def noise_word(mark, other, unwanted, state):
    """Draw a noise word that is not `unwanted`."""
    while True:
        bits = draw(state)
        place = below(bits >> np.uint64(32), len(mark))
        word = np.int64(other[place]) if np.uint32(bits & np.uint64(WHOLE)) > mark[place] else place
        if word != unwanted:
            return word

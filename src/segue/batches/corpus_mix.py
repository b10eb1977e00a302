"""Several corpora in the rows of one batch, in proportion to their weights, as GPT-3 reads them (Brown et al. 2020).

A corpus with the share s gets q = B·s of the B rows. It keeps floor(q) rows for good; the rows that are left over go
from one corpus to another, every STRETCH steps anew: at turn k the rotating row r belongs to the corpus c with

    floor(F[c-1] + u) <= r < floor(F[c] + u)        F: running sum of the remainders q - floor(q);  u = k·golden mod 1

so that each corpus has 0 or 1 of them, on average its remainder, and is never far from it (the golden ratio spreads its
multiples evenly). Each corpus of n tokens is a ring. Its rows begin n/q apart and read on and on: when each has reached
the place where the next one began, the corpus has been read once, every token of it.

All this is a function of (seed, step): nothing is drawn in advance, and only a running sum is kept, which can be
recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from segue.batches.order import stream_offset

STRETCH = 16
"""Steps for which a rotating row stays with its corpus."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BITS = 32
"""Fixed-point digits of the fractions by which rotating rows are assigned: whole numbers have no rounding errors."""

Ints = NDArray[np.int64]


class CorpusMix:
    """Which corpus each row reads at each step, and where."""

    def __init__(self, tokens: Sequence[int], weights: Sequence[int], rows: int, width: int, seed: int) -> None:
        """`tokens` and `weights` of the corpora; all rows read `width` tokens in a stretch of steps."""
        self.width, self.seed = width, seed
        self.sizes = np.array(tokens, np.int64)
        self.begins = np.cumsum(self.sizes) - self.sizes
        quotas = [Fraction(rows * int(weight), int(sum(weights))) for weight in weights]
        self.fixed = np.array([int(quota) for quota in quotas], np.int64)
        remainders = accumulate(quota - int(quota) for quota in quotas)
        self.borders = np.array([int(border * (1 << _BITS)) for border in remainders], np.int64)
        self.rotating = rows - int(self.fixed.sum())
        self.owners = np.repeat(np.arange(len(tokens)), self.fixed)
        lanes = np.concatenate([np.arange(count) for count in self.fixed])
        offsets = [stream_offset(seed, 1 + i, int(size)) for i, size in enumerate(tokens)]

        def begin(corpus: int, lane: int) -> int:
            return offsets[corpus] + int(lane * int(tokens[corpus]) / quotas[corpus])

        self.starts = np.array([begin(int(c), int(lane)) for c, lane in zip(self.owners, lanes, strict=True)], np.int64)
        self.rotating_starts = np.array([begin(c, int(count)) for c, count in enumerate(self.fixed)], np.int64)
        self._summed = (0, np.zeros(len(tokens), np.int64))

    def places(self, stretch: int, begin: int, end: int) -> tuple[Ints, NDArray[np.bool_]]:
        """Find the places, in the text of all corpora, that the rows read in columns `begin` to `end` of a stretch, and
        which rows begin anew at its first column."""
        visitors = self._visitors(stretch)
        owners = np.concatenate([self.owners, visitors])
        firsts = np.concatenate(
            [
                self.starts + stretch * self.width,
                self.rotating_starts[visitors] + self._turns(stretch)[visitors] * self.width,
            ]
        )
        sizes = self.sizes[owners][:, None]
        places = self.begins[owners][:, None] + (firsts[:, None] + np.arange(begin, end)) % sizes
        fresh = np.full(len(owners), stretch == 0)
        if stretch:
            fresh[len(self.owners) :] = visitors != self._visitors(stretch - 1)
        return places, fresh & (begin == 0)

    def drawn(self, stretch: int, columns: int) -> list[int]:
        """Count the tokens of each corpus that were read before a column of a stretch."""
        visits = np.bincount(self._visitors(stretch), minlength=len(self.sizes))
        fixed = self.fixed * (stretch * self.width + columns)
        return [int(count) for count in fixed + self._turns(stretch) * self.width + visits * columns]

    def _visitors(self, stretch: int) -> Ints:
        """Return the corpus of each rotating row."""
        return np.searchsorted(self._cut(stretch, stretch + 1)[0], np.arange(self.rotating), side="right")

    def _turns(self, stretch: int) -> Ints:
        """Count the stretches before this one in which each corpus had a rotating row."""
        known, turns = self._summed if self._summed[0] <= stretch else (0, np.zeros_like(self.sizes))
        for begin in range(known, stretch, 1 << 16):
            cuts = self._cut(begin, min(stretch, begin + (1 << 16)))
            turns = turns + np.diff(cuts.sum(0), prepend=0)
        self._summed = (stretch, turns)
        return turns

    def _cut(self, begin: int, end: int) -> Ints:
        """Compute floor(F + u) for each of some stretches."""
        turn = np.arange(begin, end, dtype=np.uint64) + np.uint64(self.seed % (1 << _BITS))
        shift = (turn * _GOLDEN >> np.uint64(64 - _BITS)).astype(np.int64)
        return (self.borders + shift[:, None]) >> _BITS

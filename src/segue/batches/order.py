"""The order of a training run: a pure function of seed, epoch and place.

Nothing is drawn in advance and nothing is remembered, so any step can be computed directly, after a crash
too, and the order does not depend on how many processes read it.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from segue.data.permute import permute

POOL = 32
"""Batches in a pool. The rows of a pool are sorted by length (bucketing), so that little is padded."""
MULTIPLE = 4
"""Token batches round lengths up to a multiple of this, so that batches have few shapes."""

Ints = NDArray[np.int64]


def rows_at(seed: int, epoch: int, batch: int, size: int, lengths: Ints | None, rows: int) -> Ints:
    """Choose the rows of one batch of an epoch; with `lengths`, rows of like length stand together (bucketing)."""
    if lengths is None:
        places = np.arange(batch * size, min((batch + 1) * size, rows))
        return np.asarray(permute(places, rows, (seed, epoch)), dtype=np.int64)
    pool, within = divmod(batch, POOL)
    first = pool * POOL * size
    last = min(first + POOL * size, rows)
    pooled = np.asarray(permute(np.arange(first, last), rows, (seed, epoch)), dtype=np.int64)
    pooled = pooled[np.argsort(lengths[pooled], kind="stable")]
    batches = -(-len(pooled) // size)
    # The short last batch of an epoch is not shuffled: it stays the last one.
    whole = len(pooled) // size
    place = int(permute(within, whole, (seed, epoch, pool))) if within < whole else batches - 1
    return pooled[place * size : (place + 1) * size]


@lru_cache(maxsize=8)
def stream_offset(seed: int, epoch: int, tokens: int) -> int:
    """Choose where in the text an epoch begins: 0 in the first, then at random, so that windows differ."""
    return (permute(epoch % tokens, tokens, (seed,)) - permute(0, tokens, (seed,))) % tokens


class TokenBatches:
    """Batches of as many rows as a budget of tokens holds, padding included.

    All rows are sorted by their lengths, rounded up, and cut wherever the next row would exceed the budget. Rows of the
    same lengths, a group, change places with each other in every epoch, and so do the batches; the sorted lengths never
    change. So the cuts are found once, every epoch has as many batches, and any batch can be computed directly.
    """

    def __init__(self, order: Ints, widths_GK: Ints, counts_G: Ints, budget: int, seed: int) -> None:
        """`order`: the rows, those of a group together; `widths_GK`, `counts_G`: the rounded lengths of each group,
        sorted, and how many rows it has."""
        self.order, self.seed = order, seed
        self.group_ends = np.cumsum(counts_G)
        self.ends, self.widths = _cuts(widths_GK, counts_G, budget)

    @classmethod
    def of_lengths(cls, lengths_NK: Ints, budget: int, seed: int) -> TokenBatches:
        """`lengths_NK`: the K lengths of each row that are padded, of its source and target or of its text."""
        widths_NK = -(-np.maximum(lengths_NK, 1) // MULTIPLE) * MULTIPLE
        order = np.lexsort(widths_NK.T[::-1])
        widths_GK, counts_G = np.unique(widths_NK, axis=0, return_counts=True)  # sorted in the same way
        if too_long := int((widths_NK.sum(1) > budget).sum()):
            warnings.warn(
                f"{too_long:,} of {len(widths_NK):,} rows are longer than batches.tokens={budget:,}: "
                "each is a batch of its own.",
                stacklevel=2,
            )
        return cls(order, widths_GK, counts_G, budget, seed)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.ends)

    @property
    def shapes(self) -> int:
        """Number of different batch shapes."""
        return len({(*widths, rows) for widths, rows in zip(self.widths, np.diff(self.ends, prepend=0), strict=True)})

    def at(self, epoch: int, place: int) -> tuple[Ints, tuple[int, ...]]:
        """Choose the rows of one batch of an epoch, and the K widths that they are padded to."""
        batch = permute(place, len(self), (self.seed, epoch))
        begin, end = (int(self.ends[batch - 1]) if batch else 0), int(self.ends[batch])
        first, last = np.searchsorted(self.group_ends, [begin, end - 1], side="right").tolist()
        parts = [self._of_group(epoch, group, begin, end) for group in range(first, last + 1)]
        return np.concatenate(parts), self.widths[batch]

    def _of_group(self, epoch: int, group: int, begin: int, end: int) -> Ints:
        """Return the rows of a group at places from `begin` to `end`."""
        first, behind = (int(self.group_ends[group - 1]) if group else 0), int(self.group_ends[group])
        places = np.arange(max(begin, first), min(end, behind)) - first
        return self.order[first + permute(places, behind - first, (self.seed, epoch, group))]


def _cuts(widths_GK: Ints, counts_G: Ints, budget: int) -> tuple[Ints, list[tuple[int, ...]]]:
    """Cut sorted rows into batches; return where each ends, and its widths. Rows come in groups of equal widths."""
    ends: list[int] = []
    widths: list[tuple[int, ...]] = []
    begin = place = 0
    widest = np.zeros_like(widths_GK[0])
    for widths_K, group_end in zip(widths_GK, np.cumsum(counts_G).tolist(), strict=True):
        while place < group_end:
            wider = np.maximum(widest, widths_K)
            most = max(1, budget // int(wider.sum()))
            if place > begin and place - begin >= most:  # one row more would exceed the budget
                ends.append(place)
                widths.append(tuple(widest.tolist()))
                begin, widest = place, np.zeros_like(widest)
            else:
                place, widest = min(group_end, begin + most), wider
    return np.array([*ends, place]), [*widths, tuple(widest.tolist())]

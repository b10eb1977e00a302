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
"""Token batches round lengths up to a multiple of this."""
GROUPS = 32
"""Most groups of rows of like lengths in token batches: at most 64 shapes, for each of which a GPU records a graph."""

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
    """Batches of about as many tokens as a budget says, at most so many, padding included.

    Rows of like lengths are a group, and all batches of a group are padded to the same widths and have the same number
    of rows, or one less. So there are at most two shapes a group. In every epoch the rows of a group change places with
    each other, and the batches with all others; groups and shapes never change, so that any batch can be computed
    directly.
    """

    def __init__(self, order: Ints, widths_GK: Ints, counts_G: Ints, budget: int, seed: int) -> None:
        """`order`: the rows, those of a group together; `widths_GK`, `counts_G`: the K widths of each group, and how
        many rows it has."""
        self.order, self.widths_GK, self.counts_G, self.seed = order, widths_GK, counts_G, seed
        self.batches_G = _batches(counts_G, widths_GK.sum(1), budget)

    @classmethod
    def of_lengths(cls, lengths_NK: Ints, budget: int, seed: int) -> TokenBatches:
        """`lengths_NK`: the K lengths of each row that are padded, of its source and target or of its text."""
        widths_NK = -(-np.maximum(lengths_NK, 1) // MULTIPLE) * MULTIPLE
        if too_long := int((widths_NK.sum(1) > budget).sum()):
            warnings.warn(
                f"{too_long:,} of {len(widths_NK):,} rows are longer than batches.tokens={budget:,}: "
                "each is a batch of its own.",
                stacklevel=2,
            )
        widths_CK, cell_N, counts_C = np.unique(widths_NK, axis=0, return_inverse=True, return_counts=True)
        groups = _groups(widths_CK, counts_C, budget)
        group_C = np.zeros(len(widths_CK), np.int64)
        for number, cells in enumerate(groups):
            group_C[cells] = number
        order = np.argsort(group_C[cell_N.reshape(-1)], kind="stable")
        widths_GK = np.array([widths_CK[cells].max(0) for cells in groups])
        return cls(order, widths_GK, np.array([counts_C[cells].sum() for cells in groups]), budget, seed)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return int(self.batches_G.sum())

    @property
    def shapes(self) -> int:
        """Number of different batch shapes."""
        fewest, most = self.counts_G // self.batches_G, -(-self.counts_G // self.batches_G)
        return len(
            {(*row, n) for rows in (fewest, most) for row, n in zip(map(tuple, self.widths_GK), rows, strict=True)}
        )

    @property
    def row_widths(self) -> Ints:
        """The K widths that each row is padded to."""
        widths_NK = np.empty((len(self.order), self.widths_GK.shape[1]), np.int64)
        widths_NK[self.order] = np.repeat(self.widths_GK, self.counts_G, axis=0)
        return widths_NK

    def at(self, epoch: int, place: int) -> tuple[Ints, tuple[int, ...]]:
        """Choose the rows of one batch of an epoch, and the K widths that they are padded to."""
        batch = permute(place, len(self), (self.seed, epoch))
        group = int(np.searchsorted(np.cumsum(self.batches_G), batch, side="right"))
        batches, count = int(self.batches_G[group]), int(self.counts_G[group])
        number = batch - int(self.batches_G[:group].sum())
        places = np.arange(number * count // batches, (number + 1) * count // batches)
        rows = permute(places, count, (self.seed, epoch, group)) + int(self.counts_G[:group].sum())
        return self.order[rows], tuple(self.widths_GK[group].tolist())


def _batches(rows: Ints, width: Ints, budget: int) -> Ints:
    """Count the batches that some rows of this width need."""
    return -(-rows // np.maximum(1, budget // width))


def _groups(widths_CK: Ints, counts_C: Ints, budget: int) -> list[Ints]:
    """Group cells, which are all different widths of rows, each with a count of rows. Of all groups the one is split
    whose split saves most padding, again and again, while both parts fill a batch, or need no more batches."""
    groups = [np.arange(len(widths_CK))]
    splits = [_best_split(widths_CK, counts_C, budget)]
    while len(groups) < GROUPS:
        best = max(range(len(groups)), key=lambda group: splits[group][0])
        saved, column, bound = splits[best]
        if not saved:
            break
        below = widths_CK[groups[best], column] < bound
        groups[best : best + 1] = parts = [groups[best][below], groups[best][~below]]
        splits[best : best + 1] = [_best_split(widths_CK[part], counts_C[part], budget) for part in parts]
    return groups


def _best_split(widths_CK: Ints, counts_C: Ints, budget: int) -> tuple[int, int, int]:
    """Find the split of a group that saves most padding: the places saved, the column, and the least width above."""
    best = (0, 0, 0)
    rows, width = counts_C.sum(), widths_CK.max(0).sum()
    for column in range(widths_CK.shape[1]):
        order = np.argsort(widths_CK[:, column], kind="stable")
        sorted_CK = widths_CK[order]
        cuts = np.flatnonzero(np.diff(sorted_CK[:, column]))  # the last cell below each possible bound
        if not len(cuts):
            continue
        below = np.cumsum(counts_C[order])[cuts]
        above = rows - below
        width_below = np.maximum.accumulate(sorted_CK)[cuts].sum(1)
        width_above = np.maximum.accumulate(sorted_CK[::-1])[::-1][cuts + 1].sum(1)
        full = np.minimum(below * width_below, above * width_above) >= budget
        batches = _batches(below, width_below, budget) + _batches(above, width_above, budget)
        allowed = full | (batches <= _batches(rows, width, budget))
        saved = np.where(allowed, rows * width - below * width_below - above * width_above, 0)
        cut = int(saved.argmax())
        if saved[cut] > best[0]:
            best = (int(saved[cut]), column, int(sorted_CK[cuts[cut] + 1, column]))
    return best

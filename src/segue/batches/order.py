"""The order of a training run: a pure function of seed, epoch and place.

Nothing is drawn beforehand and nothing is remembered, so any step can be had at once, after a crash
too, and the order does not depend on how many processes read it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from segue.data.permute import permute

POOL = 32
"""Batches whose rows are sorted by length together, so that little is padded."""


def rows_at(
    seed: int, epoch: int, batch: int, size: int, lengths: NDArray[np.int64] | None, rows: int
) -> NDArray[np.int64]:
    """The rows of one batch of an epoch; with `lengths`, rows of like length stand together."""
    if lengths is None:
        places = np.arange(batch * size, min((batch + 1) * size, rows))
        return np.asarray(permute(places, rows, (seed, epoch)), dtype=np.int64)
    pool, within = divmod(batch, POOL)
    first = pool * POOL * size
    last = min(first + POOL * size, rows)
    pooled = np.asarray(permute(np.arange(first, last), rows, (seed, epoch)), dtype=np.int64)
    pooled = pooled[np.argsort(lengths[pooled], kind="stable")]
    batches = -(-len(pooled) // size)
    # The short last batch of an epoch stays the last one, whatever the shuffle inside the pool says.
    whole = len(pooled) // size
    place = int(permute(within, whole, (seed, epoch, pool))) if within < whole else batches - 1
    return pooled[place * size : (place + 1) * size]


@lru_cache(maxsize=8)
def stream_offset(seed: int, epoch: int, tokens: int) -> int:
    """Where in the text an epoch begins: 0 for the first one, then elsewhere, so that other tokens share a window."""
    return (permute(epoch % tokens, tokens, (seed,)) - permute(0, tokens, (seed,))) % tokens

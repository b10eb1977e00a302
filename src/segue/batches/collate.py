"""Collate rows, of a store or of texts to predict, into one batch.

Rows are padded on the right to the longest of their batch. Rows without a label or tags (prediction) have the target
IGNORE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pad(rows: Sequence[NDArray[Any]], fill: int = 0, least: int = 1, dtype: Any = np.int64) -> NDArray[Any]:
    """Stack rows into one array, padded on the right to the longest."""
    width = max(least, max((len(row) for row in rows), default=0))
    inner = rows[0].shape[1:] if len(rows) else ()
    out = np.full((len(rows), width, *inner), fill, dtype=dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def mask_of(rows: Sequence[NDArray[Any]], least: int = 1) -> NDArray[np.bool_]:
    """Make the mask of padded rows: True on real tokens."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return np.arange(max(least, int(lengths.max(initial=0)))) < lengths[:, None]

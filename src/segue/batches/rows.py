"""Rows of data as batches: a text with its label, words with their tags, a source with its target.

Rows of like length stand together (bucketing by length), so that little is padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from segue.batches.batch import Batch
from segue.batches.batches import Batches, Config
from segue.batches.order import rows_at
from segue.batches.store import Columns, Store

Collate = Callable[[Columns], Batch]
"""Lays the rows of some columns side by side."""


class Rows(Batches):
    """Every batch of rows, by its step."""

    def __init__(self, store: Store, config: Config, seed: int, collate: Collate, by: str = "text") -> None:
        """`by` names the column by whose length rows are sorted: the one that `collate` pads most."""
        self.store, self.config, self.seed, self.collate = store, config, seed, collate
        self.size = config.size
        self.per_epoch = math.ceil(len(store) / self.size)
        self.lengths = store.columns[by].lengths()

    @property
    def shapes(self) -> int | None:
        return None

    def at(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.per_epoch)
        rows = rows_at(self.seed, epoch, place, self.size, self.lengths, len(self.store))
        parts = np.array_split(rows, min(self.config.accumulate, len(rows)))
        return [self.collate(self.store.take(part)) for part in parts]

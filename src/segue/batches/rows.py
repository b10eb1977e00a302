"""Rows of data as batches: a text with its label, words with their tags, a source with its target.

Rows of similar length share a batch (bucketing by length), so that little is padded. A batch has `size` rows, or
about `tokens` tokens; token batches have few shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.batches import Batches, Config
from segue.batches.order import TokenBatches, rows_at
from segue.batches.store import Columns, Store

if TYPE_CHECKING:
    from segue.batches.picture_noise import PictureNoise
    from segue.batches.redraw import Redraw
    from segue.batches.specaugment import SpecAugment

WIDTH = 8
"""Rounded widths are a multiple of this: kernels of attention with a mask want it."""
Collate = Callable[[Columns], Batch]
"""Makes one batch of the rows of some columns."""


class Rows(Batches):
    """Every batch of rows, by its step."""

    def __init__(
        self,
        store: Store,
        config: Config,
        seed: int,
        collate: Collate,
        by: str = "text",
        added: int = 0,
        redraw: Redraw | SpecAugment | PictureNoise | None = None,
        frame: int = 1,
    ) -> None:
        """`by`: the column by whose length rows are sorted, the one that `collate` pads most. `added`: how many places
        `collate` adds to a text, 1 if it puts STOP before it. `redraw`: draws the ids or frames of rows anew in every
        epoch. `frame`: tokens that a place of the column `by` counts as in token batches."""
        self.store, self.config, self.seed, self.collate, self.redraw = store, config, seed, collate, redraw
        self.size, self.frame = config.size, frame
        self.lengths = store.columns[by].lengths()
        self.token_batches: TokenBatches | None = None
        if config.tokens:
            self.token_batches = self._token_batches({by: (frame, 0)} | {"text": (1, added)})
        self.per_epoch = math.ceil(len(store) / self.size) if self.token_batches is None else len(self.token_batches)
        self.window = 0
        """Batches of `size` rows are as wide as a multiple of WIDTH, or of this window if they are wider (0: as wide as
        their longest row)."""

    def round_widths(self, window: int) -> None:
        """Pad batches of `size` rows so that there are few shapes, for each of which a GPU records a graph."""
        self.window = window

    def _rounded(self, width: int) -> int:
        if width > self.window:
            return -(-width // self.window) * self.window
        return min(self.window, -(-width // WIDTH) * WIDTH)

    def _token_batches(self, columns: dict[str, tuple[int, int]]) -> TokenBatches:
        """Plan token batches by the lengths of columns: the tokens that a place of each counts as, and how many places
        `collate` adds to it."""
        cut, redraw = self.config.length, self.redraw
        lengths = {
            name: redraw.expected(name) if redraw else np.minimum(self.store.columns[name].lengths(), cut)
            for name in columns
        }
        both = [frame * lengths[name] + added for name, (frame, added) in columns.items()]
        batches = TokenBatches.of_lengths(np.stack(both, 1), self.config.tokens, self.seed)
        for (name, (frame, added)), widths_N in zip(columns.items(), batches.row_widths.T, strict=True):
            if redraw:
                redraw.limit(name, (widths_N - added) // frame)
        return batches

    @property
    def shapes(self) -> int | None:
        if self.token_batches is not None:
            return self.token_batches.shapes
        if not self.window:
            return None
        widths = {self._rounded(int(length)) for length in np.unique(self.lengths)}
        return len(widths) * (1 if len(self.store) % self.size == 0 else 2)  # the last batch of an epoch is smaller

    def at(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.per_epoch)
        if self.token_batches is None:
            rows = rows_at(self.seed, epoch, place, self.size, self.lengths, len(self.store))
            batches = [self.collate(part) for part in self._parts(rows, epoch)]
            return [one.padded(self._rounded(one.tokens_BT.shape[1])) for one in batches] if self.window else batches
        rows, widths = self.token_batches.at(epoch, place)
        wide = (widths[-1], *(width // self.frame for width in widths[:-1]))
        return [self.collate(part).padded(*wide) for part in self._parts(rows, epoch)]

    def _parts(self, rows: NDArray[np.int64], epoch: int) -> list[Columns]:
        """Return the columns of each part of an update (gradient accumulation)."""
        parts = np.array_split(rows, min(self.config.accumulate, len(rows)))
        taken = [self.store.take(part, self.config.length) for part in parts]
        if self.redraw is None:
            return taken
        return [self.redraw(columns, epoch, part) for columns, part in zip(taken, parts, strict=True)]

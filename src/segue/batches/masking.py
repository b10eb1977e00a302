"""Masked rows of running text (Devlin et al. 2019): some tokens are hidden, and these alone are predicted.

    start w1 w2 … STOP                 one chunk of text, T places in all; no padding, one shape
    start a1 a2 … STOP b1 b2 … STOP    two chunks: the second follows the first in the text, or in half of the rows is
                                       from elsewhere (next sentence)

Of each row exactly K = round(share · T) places are drawn, never STOP, UNK or a mark. Of these the model reads the mask
in 80 %, a random token in 10 % and the true one in 10 %. A row with fewer tokens to draw has surplus places, whose
target is IGNORE. The text is read as a ring, and every epoch begins at another place of it.

All is drawn by numpy for the whole update, from (seed, epoch, place) alone: a resumed run, a run in parts and a run on
several GPUs all read the same. With static masks (masks = 1) every epoch reads what the first one read; with masks = n
epochs take turns among n draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches, Config
from segue.batches.codec import Sizes
from segue.batches.order import stream_offset
from segue.batches.store import Store
from segue.tokens.file_format import UNK

MASKED, RANDOM = 0.8, 0.1
"""Shares of the drawn places where the model reads the mask, and a random token."""
_SALT = 11
"""So that these draws differ from others with the same seed."""

Ints = NDArray[np.int64]


class MaskedRows(Batches):
    """Every batch of masked running text, by its step."""

    def __init__(self, store: Store, config: Config, seed: int, sizes: Sizes, pairs: bool) -> None:
        """`pairs`: rows are two chunks, for the next-sentence loss."""
        self.store, self.config, self.seed, self.sizes, self.pairs = store, config, seed, sizes, pairs
        self.room = max(1, min(config.length - (3 if pairs else 2), len(store.tokens)))
        rows = max(1, len(store.tokens) // self.room)
        self.size = min(config.size, rows)
        self.per_epoch = rows // self.size

    @property
    def shapes(self) -> int | None:
        return 1

    def at(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.per_epoch)
        turn = epoch % self.config.masks if self.config.masks else epoch
        draw = np.random.default_rng((self.seed % (1 << 64), turn, place, _SALT))
        tokens, begins_B = self.store.tokens, place + self.per_epoch * np.arange(self.size)
        begins_B = stream_offset(self.seed, turn, len(tokens)) + begins_B * self.room
        if self.pairs:
            ids_BT, segments_BT, follows_B = self._chunk_pairs(begins_B, draw)
        else:
            ids_BT, segments_BT, follows_B = self._framed(begins_B), None, None
        places_BK, read_BT, targets_BK = masked(ids_BT, self.config.share, self.sizes, draw)
        whole = Batch(
            read_BT,
            targets_BK,
            np.ones(ids_BT.shape, bool),
            segments_BT=segments_BT,
            places_BK=places_BK,
            follows_B=follows_B,
            unpadded=True,
        )
        parts = [part for part in np.array_split(np.arange(self.size), self.config.accumulate) if len(part)]
        return [whole.rows(part) for part in parts] if len(parts) > 1 else [whole]

    def _taken(self, places: Ints) -> Ints:
        tokens = self.store.tokens
        return tokens[places % len(tokens)].astype(np.int64)

    def _framed(self, begins_B: Ints) -> Ints:
        text_BT = self._taken(begins_B[:, None] + np.arange(self.room))
        return np.pad(text_BT, ((0, 0), (1, 1)), constant_values=((0, 0), (self.sizes.start, self.sizes.stop)))

    def _chunk_pairs(self, begins_B: Ints, draw: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Return ids, segments, and whether the second chunk follows: in half of the rows it is drawn from at least a
        row away, and where the first ends with the end of a unit, what follows counts as elsewhere."""
        rows, length = len(begins_B), len(self.store.tokens)
        border_B = draw.integers(self.room // 4, self.room - self.room // 4, rows, endpoint=True).clip(1)
        away_B = (draw.random(rows) < 0.5) & (length > 3 * self.room)
        jump_B = np.where(away_B, 2 * self.room + (draw.random(rows) * max(0, length - 3 * self.room)).astype(int), 0)
        within_T = np.arange(self.room + 3)
        first_BT = within_T <= border_B[:, None]
        after_BT = within_T > border_B[:, None] + 1
        offset_BT = np.where(first_BT, within_T - 1, within_T - 2) + np.where(after_BT, jump_B[:, None], 0)
        ids_BT = self._taken(begins_B[:, None] + offset_BT)
        ends_B = self._taken(begins_B + border_B - 1) == self.sizes.stop
        ids_BT[:, 0], ids_BT[:, -1] = self.sizes.start, self.sizes.stop
        ids_BT[np.arange(rows), border_B + 1] = self.sizes.stop
        return ids_BT, after_BT.astype(np.int64), (~away_B & ~ends_B).astype(np.int64)


def masked(ids_BT: Ints, share: float, sizes: Sizes, draw: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Return the drawn places (B, K), in order, what the model reads, and the targets at the places."""
    count = max(1, round(share * ids_BT.shape[1]))
    hideable_BT = (ids_BT > UNK) & (ids_BT < sizes.vocab_size)
    keys_BT = np.where(hideable_BT, draw.random(ids_BT.shape, np.float32), 2.0)
    places_BK = np.sort(np.argpartition(keys_BT, count - 1, axis=1)[:, :count], axis=1)
    real_BK = np.take_along_axis(hideable_BT, places_BK, 1)
    true_BK = np.take_along_axis(ids_BT, places_BK, 1)
    way_BK = draw.random(places_BK.shape, np.float32)
    random_BK = draw.integers(UNK + 1, sizes.vocab_size, places_BK.shape)
    read_BK = np.where(way_BK < MASKED, sizes.mark("mask"), np.where(way_BK < MASKED + RANDOM, random_BK, true_BK))
    read_BT = ids_BT.copy()
    np.put_along_axis(read_BT, places_BK, np.where(real_BK, read_BK, true_BK), 1)
    return places_BK, read_BT, np.where(real_BK, true_BK, IGNORE)

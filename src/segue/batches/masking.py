"""Masked rows of running text (Devlin et al. 2019): some tokens are hidden, and these alone are predicted.

    start w1 w2 … STOP                 one chunk of text, T places in all; no padding, one shape
    start a1 a2 … STOP b1 b2 … STOP    two chunks: the second follows the first in the text, or in half of the rows is
                                       from elsewhere (next sentence)

A chunk goes on over the ends of units, with STOP between (RoBERTa's full sentences). Of each row K = round(share · T)
places are drawn, never STOP, UNK or a mark. Of these the model reads the mask in 80 %, a random token in 10 % and the
true one in 10 %. A row with fewer tokens to draw has surplus places, whose target is IGNORE. Whole-word masking hides
all pieces of a drawn word together; a last word that does not fit is left out, and its places are surplus.

The text is read as a ring (rings.py). With masks = 0 every epoch draws others (dynamic masking), with 1 all read what
the first one read (static masking), with n they take turns among n draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Config
from segue.batches.codec import Sizes
from segue.batches.rings import RingRows, Rings
from segue.batches.store import Store
from segue.tokens.file_format import UNK
from segue.tokens.tokenizer import Joins

MASKED, RANDOM = 0.8, 0.1
"""Shares of the drawn places where the model reads the mask, and a random token."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class MaskedRows(RingRows):
    """Every batch of masked running text, by its step."""

    salt = 11

    def __init__(
        self, store: Store, config: Config, seed: int, sizes: Sizes, pairs: bool, joins: Joins | None = None
    ) -> None:
        """`pairs`: rows are two chunks, for the next-sentence loss. `joins`: hide all pieces of a word together."""
        super().__init__(store, config, seed, config.length - (3 if pairs else 2))
        self.sizes, self.pairs, self.joins = sizes, pairs, joins

    def batch(self, rings: Rings, draw: np.random.Generator) -> Batch:
        if self.pairs:
            ids_BT, segments_BT, follows_B = self._chunk_pairs(rings, draw)
        else:
            ids_BT, segments_BT, follows_B = self._chunks(rings), None, None
        read_BT, places_BK, targets_BK = masked(ids_BT, self.config.share, self.sizes, draw, self.joins)
        return Batch(
            read_BT,
            targets_BK,
            np.ones(ids_BT.shape, bool),
            segments_BT=segments_BT,
            places_BK=places_BK,
            follows_B=follows_B,
            unpadded=True,
        )

    def _chunks(self, rings: Rings) -> Ints:
        text_BT = self.taken(rings, np.arange(self.room)[None])
        return np.pad(text_BT, ((0, 0), (1, 1)), constant_values=((0, 0), (self.sizes.start, self.sizes.stop)))

    def _chunk_pairs(self, rings: Rings, draw: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Return ids, segments, and whether the second chunk follows the first: in half of the rows it is text from at
        least a row's length away. The answer is IGNORE, not asked, where a unit ends at the border, since no text goes
        on there (so that of what is asked exactly half is true), and in a text too short to have an elsewhere."""
        rows, length = len(rings.firsts_B), self.room + 3
        border_B = draw.integers(self.room // 4, self.room - self.room // 4, rows, endpoint=True).clip(1)
        elsewhere_B = rings.sizes_B - 2 * length
        away_B = (draw.random(rows) < 0.5) & (elsewhere_B > 0)
        jump_B = np.where(away_B, length + (draw.random(rows) * elsewhere_B).astype(np.int64), 0)
        within_T = np.arange(length)
        after_BT = within_T > border_B[:, None] + 1
        offsets_BT = within_T - 1 - after_BT + np.where(after_BT, jump_B[:, None], 0)
        ids_BT = self.taken(rings, offsets_BT)
        around_B2 = self.taken(rings, border_B[:, None] + [-1, 0])  # the last of the first chunk, and what follows it
        asked_B = (around_B2 != self.sizes.stop).all(1) & (elsewhere_B > 0)
        ids_BT[:, 0], ids_BT[:, -1] = self.sizes.start, self.sizes.stop
        ids_BT[np.arange(rows), border_B + 1] = self.sizes.stop
        return ids_BT, after_BT.astype(np.int64), np.where(asked_B, ~away_B, IGNORE)


def masked(
    ids_BT: Ints, share: float, sizes: Sizes, draw: np.random.Generator, joins: Joins | None = None
) -> tuple[Ints, Ints, Ints]:
    """Return what the model reads, the drawn places (B, K) in order, and the targets there."""
    count = max(1, min(round(share * ids_BT.shape[1]), ids_BT.shape[1] - 2))
    hideable_BT = (ids_BT > UNK) & (ids_BT < sizes.vocab_size)
    if joins is None:
        keys_BT = np.where(hideable_BT, draw.random(ids_BT.shape, np.float32), 2.0)
        places_BK = np.sort(np.argpartition(keys_BT, count - 1, axis=1)[:, :count], axis=1)
        real_BK = np.take_along_axis(hideable_BT, places_BK, 1)
    else:
        places_BK, real_BK = _whole_words(ids_BT, hideable_BT, count, joins, draw)
    true_BK = np.take_along_axis(ids_BT, places_BK, 1)
    way_BK = draw.random(places_BK.shape, np.float32)
    random_BK = draw.integers(UNK + 1, max(sizes.vocab_size, UNK + 2), places_BK.shape)
    read_BK = np.where(way_BK < MASKED, sizes.mark("mask"), np.where(way_BK < MASKED + RANDOM, random_BK, true_BK))
    read_BT = ids_BT.copy()
    np.put_along_axis(read_BT, places_BK, np.where(real_BK, read_BK, true_BK), 1)
    return read_BT, places_BK, np.where(real_BK, true_BK, IGNORE)


def _whole_words(
    ids_BT: Ints, hideable_BT: Bools, count: int, joins: Joins, draw: np.random.Generator
) -> tuple[Ints, Bools]:
    """Draw words till their pieces fill `count` places; return the places, and which of them are hidden."""
    words_BT = np.cumsum(~joins.goes_on(ids_BT, hideable_BT), axis=1)
    # All pieces of a word have one key, so that in the order of the keys they stand together.
    keys_BT = np.take_along_axis(draw.random(ids_BT.shape), words_BT - 1, 1)
    order_BT = np.argsort(np.where(hideable_BT, keys_BT, 2.0), axis=1, kind="stable")
    places_BK = np.sort(order_BT[:, :count], axis=1)
    of_places_BK = np.take_along_axis(words_BT, places_BK, 1)
    cut_B = np.take_along_axis(words_BT, order_BT[:, count : count + 1], 1)  # its first pieces may be the last drawn
    return places_BK, np.take_along_axis(hideable_BT, places_BK, 1) & (of_places_BK != cut_B)

"""Masked rows of running text (Devlin et al. 2019): some tokens are hidden, and these alone are predicted.

    start w1 w2 … STOP                 one chunk of text, T places in all; no padding, one shape
    start a1 a2 … STOP b1 b2 … STOP    two chunks: the second follows the first in the text, or in half of the rows is
                                       from elsewhere (next sentence)

A chunk goes on over the ends of units, with STOP between (RoBERTa's full sentences). Of each row K = round(share · T)
places are drawn, never STOP, UNK or a mark. Of these the model reads the mask in 80 %, a random token in 10 % and the
true one in 10 %. A row with fewer tokens to draw has surplus places, whose target is IGNORE. Whole-word masking hides
all pieces of a drawn word together; a last word that does not fit is left out, and its places are surplus.

The text is read as a ring, and every epoch begins at another place of it. Several corpora share the rows of each step
(corpus_mix.py). All is drawn by numpy for the whole update, from (seed, epoch, place) alone: a resumed run, a run in
parts and a run on several GPUs all read the same. With masks = 0 every epoch draws others (dynamic masking), with 1 all
read what the first one read (static masking), with n they take turns among n draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches, Config
from segue.batches.codec import Sizes
from segue.batches.corpus_mix import STRETCH, CorpusMix
from segue.batches.order import stream_offset
from segue.batches.store import Store
from segue.errors import InputError
from segue.tokens.file_format import UNK
from segue.tokens.tokenizer import Joins

MASKED, RANDOM = 0.8, 0.1
"""Shares of the drawn places where the model reads the mask, and a random token."""
_SALT = 11
"""So that these draws differ from others with the same seed."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class MaskedRows(Batches):
    """Every batch of masked running text, by its step."""

    def __init__(
        self, store: Store, config: Config, seed: int, sizes: Sizes, pairs: bool, joins: Joins | None = None
    ) -> None:
        """`pairs`: rows are two chunks, for the next-sentence loss. `joins`: hide all pieces of a word together."""
        self.store, self.config, self.seed, self.sizes = store, config, seed, sizes
        self.pairs, self.joins = pairs, joins
        length = len(store.tokens)
        self.room = max(1, min(config.length - (3 if pairs else 2), length))
        rows = -(-length // self.room)
        self.size = min(config.size, rows)
        self.per_epoch = -(-rows // self.size)
        self.mix = self._make_mix(store) if "weight" in store.columns else None

    @property
    def shapes(self) -> int | None:
        return 1

    def drawn(self, step: int) -> list[int]:
        stretch, place = divmod(step, STRETCH)
        return self.mix.drawn(stretch, place * self.room) if self.mix is not None else []

    def at(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.per_epoch)
        turn = epoch % self.config.masks if self.config.masks else epoch
        draw = np.random.default_rng((self.seed % (1 << 64), turn, place, _SALT))
        rings = self._rings(turn, place) if self.mix is None else self._mixed(self.mix, *divmod(step, STRETCH))
        if self.pairs:
            ids_BT, segments_BT, follows_B = self._chunk_pairs(rings, draw)
        else:
            ids_BT, segments_BT, follows_B = self._chunks(rings), None, None
        read_BT, places_BK, targets_BK = masked(ids_BT, self.config.share, self.sizes, draw, self.joins)
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

    # Where rows begin

    def _rings(self, turn: int, place: int) -> Rings:
        """Return where the rows of a step begin: evenly over the whole text, so that an epoch reads all of it."""
        length, rows = len(self.store.tokens), self.per_epoch * self.size
        numbers_B = place + self.per_epoch * np.arange(self.size)
        firsts_B = stream_offset(self.seed, turn, length) + numbers_B * length // rows
        return Rings(np.zeros(self.size, np.int64), np.full(self.size, length), firsts_B)

    def _make_mix(self, store: Store) -> CorpusMix:
        if self.config.masks:
            raise InputError(
                f"batches.masks={self.config.masks} repeats the masks of earlier epochs, and several corpora have no "
                "epochs in common. Leave it out, or train on one corpus."
            )
        tokens, weights = store.columns["text"].lengths(), store.columns["weight"].flat
        return CorpusMix(tokens.tolist(), weights.tolist(), self.size, STRETCH * self.room, self.seed)

    def _mixed(self, mix: CorpusMix, stretch: int, place: int) -> Rings:
        places_B = mix.places(stretch, place * self.room, place * self.room + 1)[0][:, 0]
        corpora_B = np.searchsorted(mix.begins, places_B, side="right") - 1
        return Rings(mix.begins[corpora_B], mix.sizes[corpora_B], places_B - mix.begins[corpora_B])

    # Rows

    def _taken(self, rings: Rings, offsets_BT: Ints) -> Ints:
        """Return the tokens so far behind the first one of each row."""
        places_BT = (rings.firsts_B[:, None] + offsets_BT) % rings.sizes_B[:, None] + rings.begins_B[:, None]
        tokens_BT: Ints = self.store.tokens[places_BT].astype(np.int64)
        return tokens_BT

    def _chunks(self, rings: Rings) -> Ints:
        text_BT = self._taken(rings, np.arange(self.room)[None])
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
        ids_BT = self._taken(rings, offsets_BT)
        around_B2 = self._taken(rings, border_B[:, None] + [-1, 0])  # the last of the first chunk, and what follows it
        asked_B = (around_B2 != self.sizes.stop).all(1) & (elsewhere_B > 0)
        ids_BT[:, 0], ids_BT[:, -1] = self.sizes.start, self.sizes.stop
        ids_BT[np.arange(rows), border_B + 1] = self.sizes.stop
        return ids_BT, after_BT.astype(np.int64), np.where(asked_B, ~away_B, IGNORE)


class Rings(NamedTuple):
    """Where some rows begin: each in a corpus, which is read as a ring."""

    begins_B: Ints
    """The place of the corpus in the whole text."""
    sizes_B: Ints
    """Its tokens."""
    firsts_B: Ints
    """The row's first token, counted from the beginning of the corpus."""


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

"""Rows of running text that are noised: every row begins anew somewhere in the text, and nothing is carried.

The text is read as a ring, and every epoch begins at another place of it. Several corpora share the rows of each step
(corpus_mix.py). All is drawn by numpy for the whole update, from (seed, epoch, place) alone: a resumed run, a run in
parts and a run on several GPUs all read the same.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.batches import Batches, Config
from segue.batches.corpus_mix import STRETCH, CorpusMix
from segue.batches.order import stream_offset
from segue.batches.store import Store
from segue.errors import InputError

Ints = NDArray[np.int64]


class Rings(NamedTuple):
    """Where some rows begin: each in a corpus, which is read as a ring."""

    begins_B: Ints
    """The place of the corpus in the whole text."""
    sizes_B: Ints
    """Its tokens."""
    firsts_B: Ints
    """The row's first token, counted from the beginning of the corpus."""


class RingRows(Batches):
    """Every batch of rows of running text, by its step. A subclass says what is made of the rows."""

    salt: ClassVar[int]
    """So that its draws differ from others with the same seed."""

    def __init__(self, store: Store, config: Config, seed: int, room: int) -> None:
        """`room`: tokens of the text that a row reads, or fewer if the text has not so many."""
        self.store, self.config, self.seed = store, config, seed
        length = len(store.tokens)
        self.room = max(1, min(room, length))
        rows = -(-length // self.room)
        self.size = min(config.size, rows)
        self.per_epoch = -(-rows // self.size)
        self.mix = self._make_mix(store) if "weight" in store.columns else None

    @abstractmethod
    def batch(self, rings: Rings, draw: np.random.Generator) -> Batch:
        """Make the batch of the rows that begin there."""

    @property
    def shapes(self) -> int | None:
        return 1

    def drawn(self, step: int) -> list[int]:
        stretch, place = divmod(step, STRETCH)
        return self.mix.drawn(stretch, place * self.room) if self.mix is not None else []

    def at(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.per_epoch)
        turn = epoch % self.config.masks if self.config.masks else epoch
        draw = np.random.default_rng((self.seed % (1 << 64), turn, place, self.salt))
        rings = self._rings(turn, place) if self.mix is None else self._mixed(self.mix, *divmod(step, STRETCH))
        whole = self.batch(rings, draw)
        parts = [part for part in np.array_split(np.arange(self.size), self.config.accumulate) if len(part)]
        return [whole.rows(part) for part in parts] if len(parts) > 1 else [whole]

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

    def taken(self, rings: Rings, offsets_BT: Ints) -> Ints:
        """Return the tokens so far behind the first one of each row."""
        places_BT = (rings.firsts_B[:, None] + offsets_BT) % rings.sizes_B[:, None] + rings.begins_B[:, None]
        tokens_BT: Ints = self.store.tokens[places_BT].astype(np.int64)
        return tokens_BT

"""BPE-dropout of training rows: their texts are cut into other subwords in every epoch.

The store has the ids of BPE itself, and in a column such as `text_begins` where words begin. What is drawn for a row
follows from seed, epoch and row alone, so that it does not matter which batch, part or process the row is in.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.store import BEGINS, Column, Columns, Store, id_dtype
from segue.data.permute import mix
from segue.tokens.bpe_dropout import NO_LIMIT, BpeDropout
from segue.tokens.tokenizer import Tokenizer

_SAMPLE = 2_000
"""Rows that are drawn to see how long rows become."""

Ints = NDArray[np.int64]


class Redraw:
    """Draws the ids of rows anew."""

    def __init__(self, store: Store, tokenizers: dict[str, Tokenizer], share: float, seed: int, length: int) -> None:
        """`tokenizers`: that of each column; `length`: where batches cut rows."""
        self.drops = {name: BpeDropout(tokenizer, share) for name, tokenizer in tokenizers.items()}
        self.dtypes = {name: id_dtype(tokenizer.vocab_size) for name, tokenizer in tokenizers.items()}
        self.seed, self.length = seed, length
        self.rooms: dict[str, Ints] = {}
        """The most ids that a row of each column may get; none: any number."""
        self.store = store

    def expected(self, name: str) -> Ints:
        """Return how many places each row of a column needs in a batch: the mean of its drawn length and half a
        standard deviation, as a sample of rows has them."""
        rows = np.unique(np.linspace(0, len(self.store) - 1, min(_SAMPLE, len(self.store)), dtype=np.int64))
        own = self.store.columns[name].lengths()
        drawn, sample = self(self.store.take(rows), -1, rows)[name].lengths(), own[rows]
        growth = drawn.sum() / max(1, sample.sum())
        variance = ((drawn - growth * sample) ** 2).sum() / max(1, sample.sum())
        needed: Ints = np.ceil(growth * own + np.sqrt(variance * own) / 2).astype(np.int64)
        return np.minimum(needed, self.length)

    def limit(self, name: str, widths_N: Ints) -> None:
        """Draw rows that fit into their batches, which are so wide; those that a batch cuts anyway may be longer."""
        self.rooms[name] = np.where(widths_N < self.length, widths_N, NO_LIMIT)

    def __call__(self, columns: Columns, epoch: int, rows: Ints) -> Columns:
        """Return the columns of ids of these rows, drawn for an epoch."""
        return {name: self._drawn(name, columns, epoch, rows) for name in self.drops}

    def _drawn(self, name: str, columns: Columns, epoch: int, rows: Ints) -> Column:
        own, begins = columns[name], columns[name + BEGINS].flat
        rooms = self.rooms[name][rows] if name in self.rooms else np.full(len(rows), NO_LIMIT)
        flat, ends = self.drops[name].draw(own.flat, begins, own.ends, self._keys(name, epoch, rows), rooms)
        return Column(flat.astype(self.dtypes[name]), ends)

    def _keys(self, name: str, epoch: int, rows: Ints) -> NDArray[Any]:
        digest = hashlib.blake2b(repr((self.seed, epoch, name)).encode(), digest_size=8).digest()
        return mix(mix(rows.astype(np.uint64)) ^ np.frombuffer(digest, "<u8"))

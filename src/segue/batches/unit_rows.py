"""Units of running text as rows: each begins with STOP and sees nothing of the unit before (data.carry=false).

    STOP w1 w2 w3       targets: w1 w2 w3 STOP

An update has as many tokens as one of Streams, `size` times `length`, padding included: rows of about the same length
share it (bucketing by length, as in token batches). A unit longer than `length` is cut into several rows; each row but
its first begins with the token before it, without the state. An epoch reads every token once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches, Config
from segue.batches.noise import blank_places
from segue.batches.order import MULTIPLE, TokenBatches
from segue.batches.spelled_words import UnknownWords
from segue.batches.store import Store
from segue.tokens.file_format import STOP, UNK

SPAN = 1 << 18
"""Tokens in which the ends of units are looked for at a time."""

Ints = NDArray[np.int64]


def unit_borders(tokens: NDArray[Any], ends: Sequence[int] = ()) -> Iterator[Ints]:
    """Yield the borders of consecutive units, those that end within SPAN tokens together: where the first begins, and
    where each ends. A unit ends behind its STOP, at one of `ends`, or with the text."""
    first = 0
    for begin in range(0, len(tokens), SPAN):
        end = min(begin + SPAN, len(tokens))
        stops = np.flatnonzero(tokens[begin:end] == STOP) + begin + 1
        others = [place for place in (*ends, len(tokens)) if begin < place <= end]
        borders = np.unique(np.concatenate(([first], stops, others))).astype(np.int64)
        first = int(borders[-1])
        if len(borders) > 1:
            yield borders


def are_short(tokens: NDArray[Any], length: int) -> bool:
    """Whether there are several units, on average not longer than `length`."""
    units = sum(len(borders) - 1 for borders in unit_borders(tokens))
    return units > 1 and len(tokens) <= units * length


class UnitRows(Batches):
    """Every batch of units, by its step."""

    def __init__(self, store: Store, config: Config, seed: int) -> None:
        self.store, self.config, self.seed, self.size = store, config, seed, config.size
        begins, widths, counts = _by_width(store, config.length)
        self.token_batches = TokenBatches(begins, widths[:, None], counts, config.size * config.length, seed)
        self.per_epoch = len(self.token_batches)
        self.unknown = UnknownWords.of(store.columns)

    @property
    def shapes(self) -> int | None:
        return self.token_batches.shapes

    def at(self, step: int) -> list[Batch]:
        epoch, place = divmod(step, self.per_epoch)
        begins, (width,) = self.token_batches.at(epoch, place)
        whole = self._read(begins, width, epoch, place)
        parts = np.array_split(np.arange(len(begins)), self.config.accumulate)
        return [whole.rows(part) for part in parts if len(part)]

    def _read(self, begins: Ints, width: int, epoch: int, place: int) -> Batch:
        tokens = self.store.tokens
        places = begins[:, None] + np.arange(width)
        inside = places < len(tokens)
        places = np.where(inside, places, 0)
        own = np.asarray(tokens[places], np.int64)
        stops = own == STOP
        real = inside & (np.cumsum(stops, 1) - stops == 0)  # nothing behind the row's own STOP
        before = np.where(places == 0, STOP, np.asarray(tokens[places - 1], np.int64))
        chars = None if self.unknown is None else self.unknown.chars(places - 1, real & (before == UNK))
        if self.config.noise != "none":
            blank = blank_places(self.config.share, self.seed, epoch, place, before.shape)
            before[blank] = UNK
            if chars is not None:
                chars[blank] = 0
        fresh = np.ones(len(begins), dtype=bool)
        whole = bool(real.all())
        inputs, targets = np.where(real, before, 0), np.where(real, own, IGNORE)
        return Batch(inputs, targets, real, fresh, chars_BTC=chars, unpadded=whole, right_padded=True)


def _by_width(store: Store, length: int) -> tuple[Ints, Ints, Ints]:
    """Find every row: where it begins, those of the same rounded width together; also return these widths, and how many
    rows have each. The places are kept in a file that has no name, so that memory does not grow with the text."""
    widths = np.minimum(MULTIPLE * np.arange(1, -(-length // MULTIPLE) + 1), length)
    counts = np.zeros(len(widths), np.int64)
    for _, group in _rows(store.tokens, length):
        counts += np.bincount(group, minlength=len(widths))
    with tempfile.TemporaryFile(dir=store.folder) as file:
        file.truncate(8 * int(counts.sum()))
        begins: Ints = np.memmap(file, np.int64, "r+")
    free = np.cumsum(counts) - counts
    for places, group in _rows(store.tokens, length):
        for one in np.unique(group):
            some = places[group == one]
            begins[free[one] : free[one] + len(some)] = some
            free[one] += len(some)
    there = counts > 0
    return begins, widths[there], counts[there]


def _rows(tokens: NDArray[Any], length: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield where rows begin, and which of the rounded widths each has."""
    for borders in unit_borders(tokens):
        sizes = np.diff(borders)
        counts = -(-sizes // length)
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = np.repeat(borders[:-1], counts) + length * number
        left = np.repeat(sizes, counts) - length * number
        yield begins, -(-np.minimum(left, length) // MULTIPLE) - 1

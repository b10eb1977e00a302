"""Ids laid out as batches, targets already shifted.

Running text is B streams side by side, T columns a step, so that state can be carried from one step
to the next:            STOP w1 w2 w3 | w4 w5 …     targets: w1 w2 w3 w4 | …
Every epoch begins at another place of the text, which is read as a ring: after its end comes its beginning.
With `vary` the lengths of the steps are drawn, so that a token does not always stand at the same border
(Merity et al. 2018): near `length`, one in twenty near half of it.
Rows are padded on the right to the longest of their batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.order import rows_at, stream_offset
from segue.batches.store import Store

Rows = list[NDArray[Any]]
OFTEN = 0.95
"""The share of steps whose drawn length is near the full one, not near half of it."""
MEAN = OFTEN + (1 - OFTEN) / 2


@dataclass(frozen=True)
class Config:
    """The recipe's [batches]."""

    size: int = 0
    """Rows in one update (0: 32 for language models, 64 for rows)."""
    length: int = 0
    """Tokens of a row in one step of running text; rows of other tasks are cut at it (0: 128, or 1,024 for rows)."""
    accumulate: int = 1
    """Parts that an update is computed in, one after the other, to save memory; the result is the same."""
    vary: bool = False
    """Draw the length of each step of running text near `length`, and let the learning rate rise and fall with it."""

    def __post_init__(self) -> None:
        if min(self.size, self.length) < 0 or self.accumulate < 1:
            raise ValueError("size and length must be 0 or more, accumulate 1 or more")


def settled(config: Config, task: str) -> Config:
    """The same with the defaults of the task put in."""
    size = config.size or (32 if task == "lm" else 64)
    if config.accumulate > size:
        raise ValueError(f"accumulate={config.accumulate} splits a batch of {size} rows into nothing")
    if config.vary and task != "lm":
        raise ValueError(f"vary=true draws the lengths of running text, and {task} reads rows")
    return Config(size, config.length or (128 if task == "lm" else 1024), config.accumulate, config.vary)


class Batches:
    """Every batch of a run, by its step."""

    def __init__(self, store: Store, task: str, config: Config, seed: int) -> None:
        self.store, self.task, self.config, self.seed = store, task, config, seed
        self.lengths: NDArray[np.int64] | None = None
        if task == "lm":
            # Of a text shorter than the batch, each row still gets a few tokens.
            self.size = max(1, min(config.size, len(store.tokens) // 2))
            self.columns = len(store.tokens) // self.size
            self.per_epoch = math.ceil(self.columns / (config.length * MEAN if config.vary else config.length))
            self.per_epoch = min(self.per_epoch, self.columns)  # a step has one column or more
        else:
            self.size = config.size
            self.per_epoch = math.ceil(len(store) / self.size)
            if task in ("tag", "seq2seq"):
                name = "source" if task == "seq2seq" else "text"
                self.lengths = store.columns[name].lengths()

    def at(self, step: int) -> list[Batch]:
        """The parts of the update at `step` (from 0): the same for the same seed, always."""
        epoch, place = divmod(step, self.per_epoch)
        if self.task == "lm":
            return self._stream(epoch, place)
        rows = rows_at(self.seed, epoch, place, self.size, self.lengths, len(self.store))
        parts = np.array_split(rows, min(self.config.accumulate, len(rows)))
        return [self.of_rows(part) for part in parts]

    def rate_share(self, parts: list[Batch]) -> float:
        """What the learning rate of this update is multiplied by: a short step has the say of few tokens."""
        return parts[0].tokens_BT.shape[1] / self.config.length if self.config.vary else 1.0

    def of_rows(self, rows: NDArray[np.int64]) -> Batch:
        columns, limit = self.store.columns, self.config.length
        text = [columns["text"].row(i) for i in rows]
        if self.task == "seq2seq":
            return seq2seq([columns["source"].row(i)[:limit] for i in rows], text, limit)
        text = [row[:limit] for row in text]
        if self.task == "classify":
            return classify(text, columns["label"].flat[rows])
        return tag(text, [columns["tags"].row(i)[:limit] for i in rows])

    def _stream(self, epoch: int, place: int) -> list[Batch]:
        tokens, length = self.store.tokens, self.config.length
        starts = stream_offset(self.seed, epoch, len(tokens)) + self.columns * np.arange(self.size)
        window = np.arange(place * length, min((place + 1) * length, self.columns))
        if self.config.vary:
            window = np.arange(*varied(self.seed, epoch, self.per_epoch, self.columns)[place : place + 2])
        places = (starts[:, None] + window) % len(tokens)
        targets = tokens[places].astype(np.int64)
        # What comes before the first token of all is STOP, which is 0.
        inputs = np.where(places == 0, 0, tokens[places - 1].astype(np.int64))
        mask = np.ones_like(inputs, dtype=bool)
        fresh = np.full(self.size, place == 0)
        parts = np.array_split(np.arange(self.size), self.config.accumulate)
        return [Batch(inputs[p], targets[p], mask[p], fresh[p]) for p in parts if len(p)]


@lru_cache(maxsize=8)
def varied(seed: int, epoch: int, steps: int, columns: int) -> NDArray[np.int64]:
    """The borders of an epoch's steps, from 0 to `columns`.

    Lengths are drawn as N(1, 1/14), one in twenty as N(1/2, 1/14), none under 1/14 (the paper's 70, 35 and 5 over
    its 70), and stretched so that they fill the epoch, whose number of steps is then always the same.
    """
    draw = np.random.default_rng((seed % (1 << 64), epoch))
    centres = np.where(draw.random(steps) < OFTEN, 1.0, 0.5)
    lengths = np.maximum(draw.normal(centres, 1 / 14), 1 / 14)
    ends = np.cumsum(lengths) / lengths.sum()
    # One column is given to each step beforehand, so that none is empty.
    return np.concatenate([[0], np.arange(1, steps + 1) + np.rint(ends * (columns - steps)).astype(np.int64)])


def pad(rows: Sequence[NDArray[Any]], fill: int = 0, least: int = 1) -> NDArray[np.int64]:
    """Rows side by side, filled on the right to the longest."""
    width = max(least, max((len(row) for row in rows), default=0))
    out = np.full((len(rows), width), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def mask_of(rows: Sequence[NDArray[Any]], least: int = 1) -> NDArray[np.bool_]:
    """True on real tokens of the padded rows."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return np.arange(max(least, int(lengths.max(initial=0)))) < lengths[:, None]


def classify(text: Rows, labels: NDArray[Any]) -> Batch:
    """One class a row."""
    return Batch(pad(text), np.asarray(labels, dtype=np.int64), mask_of(text))


def tag(text: Rows, tags: Rows) -> Batch:
    """One tag a token."""
    return Batch(pad(text), pad(tags, IGNORE), mask_of(text))


def seq2seq(source: Rows, text: Rows, limit: int | None = None) -> Batch:
    """STOP y1 … yn predicts y1 … yn STOP, given the source; cut at `limit`, a row has no STOP, for it goes on."""
    stop, width = np.zeros(1, np.int64), None if limit is None else limit + 1
    inputs = [np.concatenate([stop, row.astype(np.int64)])[:width] for row in text]
    targets = [np.concatenate([row.astype(np.int64), stop])[:width] for row in text]
    return Batch(pad(inputs), pad(targets, IGNORE), mask_of(inputs), None, pad(source), mask_of(source))

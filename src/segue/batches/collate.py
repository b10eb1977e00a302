"""Ids laid out as batches, targets already shifted.

Running text is B streams side by side, T columns a step, so that state can be carried from one step
to the next:            STOP w1 w2 w3 | w4 w5 …     targets: w1 w2 w3 w4 | …
Every epoch begins at another place of the text, which is read as a ring: after its end comes its beginning.
With `vary` the lengths of the steps are drawn, so that a token does not always stand at the same border
(Merity et al. 2018): near `length`, one in twenty near half of it.
With `blank` some tokens, others in every epoch, are read as UNK, and predicted as they are (Xie et al. 2017): a text
that is read many times is not so soon learnt by heart, and UNK gets to mean that anything may stand there.
Several corpora share the rows of each step (corpus_mix.py).
Rows are padded on the right to the longest of their batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.corpus_mix import STRETCH, Mixture
from segue.batches.order import rows_at, stream_offset
from segue.batches.spelled_words import laid_out
from segue.batches.store import Store
from segue.tokens.file_format import UNK

Rows = list[NDArray[Any]]
OFTEN = 0.95
"""The share of steps whose drawn length is near the full one, not near half of it."""
MEAN = OFTEN + (1 - OFTEN) / 2
_BLANKS = 7
"""Sets the numbers that blanks are drawn by apart from others of the same seed."""


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
    blank: float = 0.0
    """Share of the tokens of running text that are read as unknown: it is then not so soon learnt by heart."""

    def __post_init__(self) -> None:
        if min(self.size, self.length) < 0 or self.accumulate < 1:
            raise ValueError("size and length must be 0 or more, accumulate 1 or more")
        if not 0 <= self.blank < 1:
            raise ValueError(f"blank={self.blank} is not a share: expected 0 or more and less than 1")


def settled(config: Config, task: str) -> Config:
    """The same with the defaults of the task put in."""
    size = config.size or (32 if task == "lm" else 64)
    if config.accumulate > size:
        raise ValueError(f"accumulate={config.accumulate} splits a batch of {size} rows into nothing")
    if config.vary and task != "lm":
        raise ValueError(f"vary=true draws the lengths of running text, and {task} reads rows")
    if config.blank and task != "lm":
        raise ValueError(f"blank={config.blank} is for running text, and {task} reads rows")
    return replace(config, size=size, length=config.length or (128 if task == "lm" else 1024))


class Batches:
    """Every batch of a run, by its step."""

    def __init__(self, store: Store, task: str, config: Config, seed: int) -> None:
        self.store, self.task, self.config, self.seed = store, task, config, seed
        self.lengths: NDArray[np.int64] | None = None
        self.mixture: Mixture | None = None
        self.held: Any = None
        if task == "lm":
            # Of a text shorter than the batch, each row still gets a few tokens.
            self.size = max(1, min(config.size, len(store.tokens) // 2))
            self.columns = len(store.tokens) // self.size
            self.per_epoch = math.ceil(self.columns / (config.length * MEAN if config.vary else config.length))
            self.per_epoch = min(self.per_epoch, self.columns)  # a step has one column or more
            if "weight" in store.columns:
                self.mixture = self._mixture(store)
        else:
            self.size = config.size
            self.per_epoch = math.ceil(len(store) / self.size)
            self.lengths = store.columns["source" if task == "seq2seq" else "text"].lengths()

    def at(self, step: int) -> list[Batch]:
        """The parts of the update at `step` (from 0): the same for the same seed, always."""
        if self.mixture is not None:
            return self._mixed(self.mixture, *divmod(step, STRETCH))
        epoch, place = divmod(step, self.per_epoch)
        if self.task == "lm":
            return self._stream(epoch, place)
        rows = rows_at(self.seed, epoch, place, self.size, self.lengths, len(self.store))
        parts = np.array_split(rows, min(self.config.accumulate, len(rows)))
        return [self.of_rows(part) for part in parts]

    def hold(self, device: str) -> None:
        """Keeps the text of one corpus on the device if it fits there well: a step then sends where its rows begin."""
        import torch

        size = self.store.tokens.nbytes if self.task == "lm" and self.mixture is None else 0
        free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else 0
        if 0 < size < free / 10 or device == "cpu":
            self.held = torch.from_numpy(np.asarray(self.store.tokens).astype(np.int32)).to(device)

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
            label = columns["label"]
            several = label.flat.dtype == np.uint8
            return classify(text, np.stack([label.row(i) for i in rows]) if several else label.flat[rows])
        letters = [columns["letters"].row(i) for i in rows] if "letters" in columns else None
        tags = [columns["tags"].row(i) for i in rows]
        if columns["tags"].flat.dtype == np.uint8:  # a yes or no for every tag
            tags = [row.reshape(len(columns["text"].row(i)), -1) for i, row in zip(rows, tags, strict=True)]
        folded = [columns["folded"].row(i)[:limit] for i in rows] if "folded" in columns else None
        return tag(text, [row[:limit] for row in tags], letters, folded)

    def _stream(self, epoch: int, place: int) -> list[Batch]:
        tokens, length = self.store.tokens, self.config.length
        starts = stream_offset(self.seed, epoch, len(tokens)) + self.columns * np.arange(self.size)
        window = np.arange(place * length, min((place + 1) * length, self.columns))
        if self.config.vary:
            window = np.arange(*varied(self.seed, epoch, self.per_epoch, self.columns)[place : place + 2])
        blank = self._blank(epoch, place, len(window))
        if self.held is not None:
            return self._held(starts, window, place == 0, blank)
        places = (starts[:, None] + window) % len(tokens)
        return self._read(places, places == 0, np.full(self.size, place == 0), blank)

    def _blank(self, epoch: int, place: int, columns: int) -> NDArray[np.bool_] | None:
        """Where UNK is read in a step; None: nowhere."""
        if not self.config.blank:
            return None
        draw = np.random.default_rng((self.seed % (1 << 64), epoch, place, _BLANKS))
        return draw.random((self.size, columns), np.float32) < self.config.blank

    def _held(
        self, starts: NDArray[np.int64], window: NDArray[np.int64], fresh: bool, blank: NDArray[np.bool_] | None
    ) -> list[Batch]:
        """The same of text that is on the device, made there."""
        import torch

        starts_B1 = torch.from_numpy(starts[:, None]).to(self.held.device, non_blocking=True)
        places_BT = (starts_B1 + torch.arange(window[0], window[-1] + 1, device=self.held.device)) % len(self.held)
        targets_BT = self.held[places_BT].long()
        inputs_BT = torch.where(places_BT == 0, 0, self.held[places_BT - 1].long())
        if blank is not None:
            inputs_BT.masked_fill_(torch.from_numpy(blank).to(self.held.device, non_blocking=True), UNK)
        mask_BT = torch.ones_like(inputs_BT, dtype=torch.bool)
        fresh_B = torch.full((self.size,), fresh, device=self.held.device)
        whole = Batch(inputs_BT, targets_BT, mask_BT, fresh_B, full=True)
        return [whole.rows(part) for part in self._parts()] if self.config.accumulate > 1 else [whole]

    def _parts(self) -> list[NDArray[np.int64]]:
        """The rows of each part of an update."""
        return [p for p in np.array_split(np.arange(self.size), self.config.accumulate) if len(p)]

    def _mixture(self, store: Store) -> Mixture:
        width = STRETCH * min(self.config.length, self.columns)
        width = max(STRETCH, round(width * MEAN)) if self.config.vary else width
        tokens, weights = store.columns["text"].lengths(), store.columns["weight"].flat
        return Mixture(tokens.tolist(), weights.tolist(), self.size, width, self.seed)

    def _mixed(self, mixture: Mixture, stretch: int, place: int) -> list[Batch]:
        places, fresh = mixture.places(stretch, *self._borders(mixture, stretch)[place : place + 2])
        blank = self._blank(stretch, place, places.shape[1])
        return self._read(places, np.isin(places, mixture.begins), fresh, blank)

    def _borders(self, mixture: Mixture, stretch: int) -> list[int]:
        """The columns at which the steps of a stretch begin and end."""
        if self.config.vary:
            return [int(border) for border in varied(self.seed, stretch, STRETCH, mixture.width)]
        return list(range(0, mixture.width + 1, mixture.width // STRETCH))

    def drawn(self, step: int) -> list[int]:
        """The tokens of each corpus that were read in the first `step` steps; nothing where there is only one."""
        if self.mixture is None:
            return []
        stretch, place = divmod(step, STRETCH)
        return self.mixture.drawn(stretch, self._borders(self.mixture, stretch)[place])

    def _read(
        self,
        places: NDArray[np.int64],
        first: NDArray[np.bool_],
        fresh: NDArray[np.bool_],
        blank: NDArray[np.bool_] | None,
    ) -> list[Batch]:
        """The tokens at `places`, each predicted from those before it; before the `first` of a text is STOP."""
        tokens = self.store.tokens
        targets = tokens[places].astype(np.int64)
        inputs = np.where(first, 0, tokens[places - 1].astype(np.int64))
        if blank is not None:
            inputs[blank] = UNK
        mask = np.ones_like(inputs, dtype=bool)
        return [Batch(inputs[p], targets[p], mask[p], fresh[p], full=True) for p in self._parts()]


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
    inner = rows[0].shape[1:] if len(rows) else ()
    out = np.full((len(rows), width, *inner), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def mask_of(rows: Sequence[NDArray[Any]], least: int = 1) -> NDArray[np.bool_]:
    """True on real tokens of the padded rows."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return np.arange(max(least, int(lengths.max(initial=0)))) < lengths[:, None]


def classify(text: Rows, labels: NDArray[Any]) -> Batch:
    """One class a row; a yes or no for each of several classes, (B, C); or a number a row, as floats."""
    whole = labels.dtype.kind in "iu" and labels.ndim == 1
    return Batch(pad(text), np.asarray(labels, np.int64 if whole else np.float32), mask_of(text))


def tag(text: Rows, tags: Rows, letters: Rows | None = None, folded: Rows | None = None) -> Batch:
    """One tag a token, or a yes or no for each of several, (B, T, C); `letters` are the rows' words as letters.spelt
    gives them, `folded` their ids in small letters."""
    tokens_BT = pad(text)
    chars_BTC = None if letters is None else laid_out(letters, tokens_BT.shape[1])
    folded_BT = None if folded is None else pad(folded)
    return Batch(tokens_BT, pad(tags, IGNORE), mask_of(text), folded_BT=folded_BT, chars_BTC=chars_BTC)


def seq2seq(source: Rows, text: Rows, limit: int | None = None) -> Batch:
    """STOP y1 … yn predicts y1 … yn STOP, given the source; cut at `limit`, a row has no STOP, for it goes on."""
    stop, width = np.zeros(1, np.int64), None if limit is None else limit + 1
    inputs = [np.concatenate([stop, row.astype(np.int64)])[:width] for row in text]
    targets = [np.concatenate([row.astype(np.int64), stop])[:width] for row in text]
    return Batch(pad(inputs), pad(targets, IGNORE), mask_of(inputs), None, pad(source), mask_of(source))

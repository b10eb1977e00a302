"""Running text as batches for truncated backpropagation through time, targets already shifted.

B streams stand side by side, T columns a step, so that a model can carry its state from one step to the next:

    STOP w1 w2 w3 | w4 w5 …     targets: w1 w2 w3 w4 | …

Every epoch begins at another place of the text, which is read as a ring: after its end comes its beginning.
With `vary` the lengths of the steps are drawn, so that a token does not always stand at the same border
(Merity et al. 2018): near `length`, one in twenty near half of it.
Several corpora share the rows of each step (corpus_mix.py).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.batches import Batches, Config
from segue.batches.corpus_mix import STRETCH, CorpusMix
from segue.batches.noise import blank_places
from segue.batches.order import stream_offset
from segue.batches.spelled_words import UnknownWords
from segue.batches.store import Store
from segue.tokens.file_format import UNK

OFTEN = 0.95
"""Share of steps whose random length is near the full one; the others are near half of it."""
MEAN = OFTEN + (1 - OFTEN) / 2
SPREAD = 1 / 14
"""The standard deviation of drawn lengths, as a share of `length`, and the least of them (the paper's 5 over 70)."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Streams(Batches):
    """Every batch of running text, by its step."""

    carries = True

    def __init__(self, store: Store, config: Config, seed: int) -> None:
        self.store, self.config, self.seed = store, config, seed
        # If the text is shorter than the batch, use fewer rows, so that each has a few tokens.
        self.size = max(1, min(config.size, len(store.tokens) // 2))
        self.columns = len(store.tokens) // self.size
        steps = math.ceil(self.columns / (config.length * MEAN if config.vary else config.length))
        self.per_epoch = min(steps, self.columns)  # a step has one column or more
        self.mix = self._make_mix(store) if "weight" in store.columns else None
        self.unknown = UnknownWords.of(store.columns)
        self.on_device: Any = None
        """The text as a tensor on the device, if it is kept there."""

    @property
    def shapes(self) -> int | None:
        if self.config.vary:  # nearly all lengths are within three deviations of `length` or of half of it
            return 2 * (1 + round(6 * SPREAD * self.config.length))
        even = self.per_epoch == 1 or self.columns % self.config.length == 0  # else an epoch's last step is shorter
        return 1 if even or self.mix is not None else 2

    def keep_on(self, device: str) -> None:
        """Keep the text of one corpus on the device if it fits well; a step then sends only where its rows begin."""
        import torch

        size = self.store.tokens.nbytes if self.mix is None and self.unknown is None else 0
        free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else 0
        if 0 < size < free / 10 or (device == "cpu" and self.unknown is None):
            self.on_device = torch.from_numpy(np.asarray(self.store.tokens).astype(np.int32)).to(device)

    def at(self, step: int) -> list[Batch]:
        if self.mix is not None:
            return self._mixed(self.mix, *divmod(step, STRETCH))
        return self._stream(*divmod(step, self.per_epoch))

    def drawn(self, step: int) -> list[int]:
        if self.mix is None:
            return []
        stretch, place = divmod(step, STRETCH)
        return self.mix.drawn(stretch, self._borders(self.mix, stretch)[place])

    def rate_share(self, parts: list[Batch]) -> float:
        """Scale the rate by the step's length, as AWD-LSTM does."""
        return parts[0].tokens_BT.shape[1] / self.config.length if self.config.vary else 1.0

    # One corpus

    def _stream(self, epoch: int, place: int) -> list[Batch]:
        tokens, length = self.store.tokens, self.config.length
        starts = stream_offset(self.seed, epoch, len(tokens)) + self.columns * np.arange(self.size)
        window = np.arange(place * length, min((place + 1) * length, self.columns))
        if self.config.vary:
            window = np.arange(*varied(self.seed, epoch, self.per_epoch, self.columns)[place : place + 2])
        blank = self._blank(epoch, place, len(window))
        if self.on_device is not None:
            return self._read_on_device(starts, window, place == 0, blank)
        places = (starts[:, None] + window) % len(tokens)
        return self._read(places, places == 0, np.full(self.size, place == 0), blank)

    def _read_on_device(self, starts: Ints, window: Ints, fresh: bool, blank: Bools | None) -> list[Batch]:
        """Do as `_read` does, with the text that is on the device."""
        import torch

        text, device = self.on_device, self.on_device.device
        starts_B1 = torch.from_numpy(starts[:, None]).to(device, non_blocking=True)
        places_BT = (starts_B1 + torch.arange(window[0], window[-1] + 1, device=device)) % len(text)
        targets_BT = text[places_BT].long()
        inputs_BT = torch.where(places_BT == 0, 0, text[places_BT - 1].long())
        if blank is not None:
            inputs_BT.masked_fill_(torch.from_numpy(blank).to(device, non_blocking=True), UNK)
        mask_BT = torch.ones_like(inputs_BT, dtype=torch.bool)
        fresh_B = torch.full((self.size,), fresh, device=device)
        whole = Batch(inputs_BT, targets_BT, mask_BT, fresh_B, unpadded=True, count=targets_BT.numel())
        return [whole.rows(part) for part in self._parts()] if self.config.accumulate > 1 else [whole]

    # Several corpora

    def _make_mix(self, store: Store) -> CorpusMix:
        width = STRETCH * min(self.config.length, self.columns)
        width = max(STRETCH, round(width * MEAN)) if self.config.vary else width
        tokens, weights = store.columns["text"].lengths(), store.columns["weight"].flat
        return CorpusMix(tokens.tolist(), weights.tolist(), self.size, width, self.seed)

    def _mixed(self, mix: CorpusMix, stretch: int, place: int) -> list[Batch]:
        places, fresh = mix.places(stretch, *self._borders(mix, stretch)[place : place + 2])
        blank = self._blank(stretch, place, places.shape[1])
        return self._read(places, np.isin(places, mix.begins), fresh, blank)

    def _borders(self, mix: CorpusMix, stretch: int) -> list[int]:
        """Return the columns at which the steps of a stretch begin and end."""
        if self.config.vary:
            return [int(border) for border in varied(self.seed, stretch, STRETCH, mix.width)]
        return list(range(0, mix.width + 1, mix.width // STRETCH))

    # Both

    def _blank(self, epoch: int, place: int, columns: int) -> Bools | None:
        """Draw where the model reads UNK in a step; None: nowhere."""
        if self.config.noise == "none":
            return None
        return blank_places(self.config.share, self.seed, epoch, place, (self.size, columns))

    def _read(self, places: Ints, first: Bools, fresh: Bools, blank: Bools | None) -> list[Batch]:
        """Read the tokens at `places`, each to be predicted from those before it; STOP stands before the `first` of a
        text."""
        tokens = self.store.tokens
        targets = tokens[places].astype(np.int64)
        inputs = np.where(first, 0, tokens[places - 1].astype(np.int64))
        chars = None if self.unknown is None else self.unknown.chars(places - 1, inputs == UNK)
        if blank is not None:
            inputs[blank] = UNK
            if chars is not None:
                chars[blank] = 0
        mask = np.ones_like(inputs, dtype=bool)
        whole = Batch(inputs, targets, mask, fresh, chars_BTC=chars, unpadded=True, count=targets.size)
        return [whole.rows(part) for part in self._parts()]

    def _parts(self) -> list[Ints]:
        """Return the rows of each part of an update (gradient accumulation)."""
        return [p for p in np.array_split(np.arange(self.size), self.config.accumulate) if len(p)]


@lru_cache(maxsize=8)
def varied(seed: int, epoch: int, steps: int, columns: int) -> Ints:
    """Draw the borders of an epoch's steps, from 0 to `columns`.

    Lengths are drawn as N(1, 1/14), one in twenty as N(1/2, 1/14), none under 1/14 (the paper's 70, 35 and 5 over
    its 70), and stretched so that they fill the epoch, whose number of steps is then always the same.
    """
    draw = np.random.default_rng((seed % (1 << 64), epoch))
    centres = np.where(draw.random(steps) < OFTEN, 1.0, 0.5)
    lengths = np.maximum(draw.normal(centres, SPREAD), SPREAD)
    ends = np.cumsum(lengths) / lengths.sum()
    # Each step gets one column first, so that none is empty.
    return np.concatenate([[0], np.arange(1, steps + 1) + np.rint(ends * (columns - steps)).astype(np.int64)])

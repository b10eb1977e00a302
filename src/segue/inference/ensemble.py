"""An ensemble of encoder-decoders with the same tokens: p(y_t | x, y_1 … y_t-1) is the mean of what its parts give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.state import State
from segue.inference.alignment import attends
from segue.models.base import EncoderDecoder
from segue.models.network import Network


class EnsembleState(State):
    """The state of every part."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        self.attended_BS = _of_same_places([part.attended_BS for part in parts])

    @property
    def rows(self) -> Tensor:
        rows: Tensor = self.parts[0].rows
        return rows

    def covering(self) -> EnsembleState:
        return EnsembleState([part.covering() for part in self.parts])

    def spread(self, beams: int) -> EnsembleState:
        return EnsembleState([part.spread(beams) for part in self.parts])

    def select(self, rows: Tensor, same_text: bool = False) -> EnsembleState:
        return EnsembleState([part.select(rows, same_text) for part in self.parts])

    def join(self, others: Sequence[EnsembleState]) -> EnsembleState:
        every = zip(self.parts, *(other.parts for other in others), strict=True)
        return EnsembleState([first.join(rest) for first, *rest in every])


class Ensemble(Network, EncoderDecoder):
    """Several encoder-decoders as one."""

    def __init__(self, parts: Sequence[Any]) -> None:
        super().__init__(parts[0].config, parts[0].sizes)
        self.parts = nn.ModuleList(parts)

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """log p of the mean, which are logits too."""
        return _mean([part(batch)[0] for part in self.parts]), None

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """log p of each target, 0 at IGNORE; each part reads a long target in its own way."""
        logp_BT = _log_mean([part.logprobs(batch)[0] for part in self._models()])
        return logp_BT.masked_fill(batch.targets == IGNORE, 0.0), None

    def alignment(self, batch: Batch) -> Tensor | None:
        """The mean of those parts that have attention, and see the same places as the first of them."""
        return _of_same_places([part.alignment(batch) for part in self._models()])

    def source_mask(self, mask_BS: Tensor) -> Tensor:
        """That of the first part with attention: of its places are the coverage and the alignment."""
        seeing = next((part for part in self._models() if attends(part)), self._models()[0])
        found: Tensor = seeing.source_mask(mask_BS)
        return found

    @property
    def unwritten(self) -> list[int]:
        return self._models()[0].unwritten

    @property
    def window(self) -> int:
        return min((part.window for part in self._models() if part.window), default=0)

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> EnsembleState:
        return EnsembleState([part.start(rows, capacity, source, source_mask) for part in self._models()])

    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        steps = [part.step(tokens_BT, mask_BT, own) for part, own in zip(self._models(), state.parts, strict=True)]
        return _mean([logits_BV for logits_BV, _ in steps]), EnsembleState([own for _, own in steps])

    def _models(self) -> list[EncoderDecoder]:
        return [part for part in self.parts if isinstance(part, EncoderDecoder)]


def _of_same_places(found: Sequence[Tensor | None]) -> Tensor | None:
    """The mean of what parts say of the places of a source; those that make other places of a picture than the first
    are left out. None: no part has attention."""
    there = [one for one in found if one is not None]
    return torch.stack([one for one in there if one.shape == there[0].shape]).mean(0) if there else None


def _mean(logits: Sequence[Tensor]) -> Tensor:
    """log of the mean of the probabilities that these logits give."""
    return _log_mean([one.float().log_softmax(-1) for one in logits])


def _log_mean(logps: Sequence[Tensor]) -> Tensor:
    """log of the mean of probabilities, from the log of each."""
    return torch.stack(list(logps)).logsumexp(0) - math.log(len(logps))

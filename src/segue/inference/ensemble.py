"""An ensemble of encoder-decoders with the same tokens: p(y_t | x, y_1 … y_t-1) is the mean of what its parts give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.state import State
from segue.models.base import EncoderDecoder
from segue.models.network import Network


class EnsembleState(State):
    """The state of every part."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        sums = [part.attended_BS for part in parts if part.attended_BS is not None]
        self.attended_BS = torch.stack(sums).mean(0) if sums else None

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
        """The mean of those parts that have attention."""
        found = [alpha for part in self._models() if (alpha := part.alignment(batch)) is not None]
        return torch.stack(found).mean(0) if found else None

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


def _mean(logits: Sequence[Tensor]) -> Tensor:
    """log of the mean of the probabilities that these logits give."""
    return _log_mean([one.float().log_softmax(-1) for one in logits])


def _log_mean(logps: Sequence[Tensor]) -> Tensor:
    """log of the mean of probabilities, from the log of each."""
    return torch.stack(list(logps)).logsumexp(0) - math.log(len(logps))

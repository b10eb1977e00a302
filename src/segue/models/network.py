"""What the models that learn by gradient share: the default loss and the default scoring."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.losses import cross_entropy, target_logprobs
from segue.models.base import Loss, Task, Term


class Network(nn.Module):
    """A model of tensors. A subclass gives `task`, `Config`, `forward` and, if it generates, `start` and `step`."""

    task: ClassVar[Task]
    inputs: ClassVar[tuple[str, ...]] = ()
    """Optional parts of a batch that the model reads: "fresh_B" if it carries state, "source"."""

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        raise NotImplementedError

    def counts(self, batch: Batch) -> dict[str, int]:
        """The denominator of each term of `loss`, read from the targets before any forward."""
        return {"cross_entropy": batch.count}

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        logits, state = self(batch, state)
        total, count = cross_entropy(logits, batch.targets)
        return Loss((Term("cross_entropy", total, count),), state)

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """log p of each target, 0 at IGNORE, and the state after the batch."""
        logits, state = self(batch, state)
        return target_logprobs(logits, batch.targets), state

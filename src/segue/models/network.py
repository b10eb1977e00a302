"""What the models that learn by gradient share: default loss and scoring, and what training asks of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.scorer import Scorer
from segue.layers.losses import cross_entropy, target_logprobs
from segue.models.base import Loss, Model, Sizes, Term


class Judged(NamedTuple):
    """A batch of validation data, scored."""

    total: Tensor
    """The loss, summed."""
    number: int
    """How many predictions the sum is over."""
    right: Tensor | None
    """How many decisions were right; None where nothing is decided (numbers)."""


class Network(Model, Scorer, nn.Module):
    """A model of tensors. A subclass gives `task`, `Config` and `forward`."""

    takes_tensors = True
    head_names: ClassVar[tuple[str, ...]] = ("head.",)
    """Parameters whose names begin so are the head: with train.init they may have another shape, and Muon leaves them
    to AdamW."""
    compiled: tuple[int, int] | None = None
    """The shape of batches that `regions` are compiled for; other batches are read as the code is written."""

    def __init__(self, config: Any, sizes: Sizes) -> None:
        nn.Module.__init__(self)
        Model.__init__(self, config, sizes)

    @abstractmethod
    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """(logits, state): logits_BTV for tokens, logits_BC for classes."""

    @property
    def parameters_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def tied(self) -> bool:
        """Whether the token vectors are the output weights too."""
        return False

    @property
    def regions(self) -> list[nn.Module]:
        """Modules that are compiled one by one, in the order of their depth; empty: none."""
        return []

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        """The tables of token vectors that model.embeddings fills, each with whether its words are in small letters."""
        return [(table, False) for name, table in self.named_children() if name == "vectors"]  # type: ignore[misc]

    def vectors_given(self) -> None:
        """Called when model.embeddings has filled the tables."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """The denominator of each term of `loss`, read from the targets before any forward."""
        return {"cross_entropy": batch.count}

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        logits, state = self(batch, state)
        total, count = cross_entropy(logits, batch.targets)
        return Loss((Term("cross_entropy", total, count),), state)

    @torch.inference_mode()
    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        logits, state = self(batch, state)
        return target_logprobs(logits, batch.targets), state

    @torch.inference_mode()
    def judge(self, batch: Batch) -> Judged:
        """Score a batch of validation rows; a translator is given the right words before (teacher forcing)."""
        logits, _ = self(batch)
        real = batch.targets != IGNORE
        right = (logits.argmax(-1) == batch.targets)[real].sum()
        return Judged(-target_logprobs(logits, batch.targets).sum(), int(real.sum()), right)

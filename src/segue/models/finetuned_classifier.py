"""A classifier on a body that another run has trained: bert, elmo, t5 … (Radford et al. 2018; Devlin et al. 2019).

    h_1 ... h_T = the body's states of  start text STOP  or of  start text STOP text STOP     (models/heading.py)
    x           = tanh(W h_1 + b), BERT's pooler     or h_T, or the mean of h_1 ... h_T         pooling
    scores      = V x + c                                                                      neural_classifier.py

Of a text of several windows, x is the mean of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.store import Columns
from segue.errors import InputError
from segue.models.base import ModelConfig, Sizes
from segue.models.heading import Heading, check_learning
from segue.models.neural_classifier import NeuralClassifier, Objective


class FinetunedClassifier(Heading, NeuralClassifier):
    """A linear layer on a pre-trained body."""

    family = "Transformer"
    task = "classify"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        body: str = ""
        """The run whose model reads the text: bert, elmo, t5, gpt or rnn_lm."""
        frozen: bool = False
        """Leave the body as it is, and learn the head alone."""
        mix: bool = False
        """Read a learnt mix of all layers (ELMo), not the last one."""
        layers: int = 0
        """The last layers of the body that learn; 0: all, and the token vectors."""
        pooling: Literal["auto", "first", "last", "mean"] = "auto"
        """A text's vector: its first or last place, or the mean; auto: a learnt pooler, else the mean; causal: last."""
        dropout: float = 0.1
        """Dropout of a text's vector, before the head, and inside the body, if it learns: the share set to 0."""
        loss: Objective = field(default_factory=Objective)
        """What is minimised."""

        def __post_init__(self) -> None:
            check_learning(self.frozen, self.layers, self.dropout)

    config: Config

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        if config.pooling == "first" and self.body.causal:
            raise InputError(
                "model.pooling=first with a body that reads from left to right: its first place has seen nothing. "
                "Expected last or mean."
            )

    @property
    def pooling(self) -> str:
        """Where a text's vector is taken from, if the recipe leaves it open."""
        if self.config.pooling != "auto":
            return self.config.pooling
        if self.body.causal:
            return "last"
        return "pooler" if self.body.pools and not self.config.frozen else "mean"

    def _unused(self) -> tuple[str, ...]:
        return tuple(name for name in super()._unused() if name != "pooler." or self.pooling != "pooler")

    def forward(self, batch: Batch, state: None = None) -> tuple[Tensor, None]:
        """scores_BC."""
        x_BND = self.states(batch)
        if self.pooling == "pooler":
            x_BND = self.body.pooled(x_BND.flatten(0, 1)[:, None]).view_as(x_BND)
        return self.head(self.drop(self._mean(x_BND, batch))), None

    def _mean(self, x_BND: Tensor, batch: Batch) -> Tensor:
        """The mean of the windows of each text, x_BD."""
        if x_BND.shape[1] == 1:
            return x_BND[:, 0]
        real_BN1: Tensor = batch.mask_BT[:, :: self.sizes.window, None].to(x_BND.dtype)
        return (x_BND * real_BN1).sum(1) / real_BN1.sum(1)

    def states_in(self, columns: Columns) -> NDArray[np.int64]:
        return -(-columns["text"].lengths() // self.sizes.window)

    def places(self, batch: Batch) -> Tensor | None:
        if self.pooling == "mean":
            return None
        last_B1: Tensor = batch.mask_BT.sum(1, keepdim=True) - 1
        return last_B1 if self.pooling == "last" else torch.zeros_like(last_B1)

    def select(self, hidden_LBTD: Tensor, batch: Batch) -> Tensor:
        places_B1 = self.places(batch)
        if places_B1 is not None:
            return hidden_LBTD.gather(2, places_B1[None, :, :, None].expand(len(hidden_LBTD), -1, -1, self.body.width))
        mask_BT1: Tensor = batch.mask_BT[:, :, None]
        return hidden_LBTD.masked_fill(~mask_BT1, 0.0).sum(2, keepdim=True) / mask_BT1.sum(1, keepdim=True)

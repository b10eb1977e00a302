"""Bag of words, linear: Nigam, Lafferty and McCallum 1999, "Using maximum entropy for text classification".

    scores = sum over t of W[w_t] + b                       p(class) = softmax(scores)

Each word has a vector of one number a class, and the text's scores are their sum: the class is predicted
from which words the text holds, not from their order ("I hate this movie" as a sum of 5-vectors). The
paper's counts, but neither divided by the length of the text nor fitted by iterative scaling; dropout of
whole words in place of its Gaussian prior. W starts at zero, since a linear model needs no broken symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import masked
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_classifier import NeuralClassifier, Objective, check_shares


class Bow(NeuralClassifier):
    """A linear classifier over the words of a text."""

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        dropout: float = 0.3
        """Word dropout: share of the words left out at each training step."""
        loss: Objective = field(default_factory=Objective)
        """The loss function."""

        def __post_init__(self) -> None:
            check_shares(dropout=self.dropout)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.dropout = nn.Dropout(config.dropout)
        self.weight = nn.Embedding(sizes.ids, sizes.classes)
        self.bias = nn.Parameter(torch.zeros(sizes.classes))
        nn.init.zeros_(self.weight.weight)

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        scores_BTC = masked(self.weight(batch.tokens_BT), batch.mask_BT)
        # Dropout of whole words: one draw a word, the same for all classes.
        kept_BT1 = self.dropout(torch.ones_like(scores_BTC[..., :1]))
        return (scores_BTC * kept_BT1).sum(1) + self.bias, None

"""Bag of words: each word has a vector of one number a class; the sentence's scores are their sum.

    scores = sum over t of W[w_t] + b                       p(class) = softmax(scores)

Predicts the class of a text from which words it holds, not from their order. A linear model of word
counts, and the first classifier of the lecture ("I hate this movie" as a sum of 5-vectors). Departs
from it in nothing; W starts at zero, since a linear model needs no broken symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import masked
from segue.models.base import Sizes
from segue.models.network import Network


class Bow(Network):
    """A linear classifier over the words of a text."""

    task = "classify"

    @dataclass(frozen=True)
    class Config:
        """The recipe's [model]."""

        dropout: float = 0.3
        """Share of the words left out at each step of training."""

        def __post_init__(self) -> None:
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout={self.dropout} is not a share: expected 0 or more and less than 1")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.weight = nn.Embedding(sizes.vocab_size, sizes.classes)
        self.bias = nn.Parameter(torch.zeros(sizes.classes))
        nn.init.zeros_(self.weight.weight)

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        scores_BTC = masked(self.weight(batch.tokens_BT), batch.mask_BT)
        # Dropout of whole words: one draw a word, the same for all classes.
        kept_BT1 = self.dropout(torch.ones_like(scores_BTC[..., :1]))
        return (scores_BTC * kept_BT1).sum(1) + self.bias, None

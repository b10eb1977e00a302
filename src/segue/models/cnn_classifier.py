"""Convolutional classifier: Kim 2014, "Convolutional neural networks for sentence classification".

    c_t = relu(F [x_t; …; x_{t+k-1}] + b)       filters F over every k words in a row, zero vectors beyond the ends
    m   = max over t of c_t                     for each filter the place where it fits best
    p(class) = softmax(W [m of all k] + b)      rows of W no longer than `norm`

The class is predicted from the best n-grams of the text, a feature each, wherever they stand. With two channels x_t is
the sum of a vector that is learnt and one that stays as it was (each filter reads both, and the results are added).
Departs from the paper: AdamW and a running mean of the weights where it has Adadelta; W is shortened whenever it is
used, not after each step; words may be left out in training too (word_dropout).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import MaxOverTime
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_classifier import Embedding, NeuralClassifier, Objective, check_shares, check_sizes, kept_words


class CnnClassifier(NeuralClassifier):
    """A classifier over the best n-grams of a text."""

    family = "CNN"
    fixed_vectors: Tensor

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        embedding: int = 128
        """Width of the word embeddings."""
        widths: tuple[int, ...] = (3, 4, 5)
        """Filter widths, in words."""
        filters: int = 100
        """Filters of each width."""
        channels: int = 1
        """1: trained embeddings; 2: also a copy of the initial embeddings that stays fixed (Kim's multichannel)."""
        word_dropout: float = 0.0
        """Word dropout: share of the words replaced by zero vectors at each training step."""
        dropout: float = 0.5
        """Dropout: share of the features set to 0 at each training step."""
        norm: float = 3.0
        """Max-norm constraint: the largest norm of the output weights of a class (0: no limit)."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (train.freeze=vectors keeps them fixed)."""
        loss: Objective = field(default_factory=Objective)
        """The loss function."""

        def __post_init__(self) -> None:
            check_sizes(embedding=self.embedding, filters=self.filters)
            if not self.widths or min(self.widths) < 1:
                raise ValueError(f"widths={self.widths}: expected one or more, each 1 or more, such as 3,4,5")
            if self.channels not in (1, 2):
                raise ValueError(f"channels={self.channels}: expected 1 or 2")
            if not 0 <= self.norm < float("inf"):
                raise ValueError(f"norm={self.norm}: expected more than 0, or 0 for no limit")
            check_shares(word_dropout=self.word_dropout, dropout=self.dropout)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.word_dropout, self.norm = config.word_dropout, config.norm
        self.vectors = Embedding(sizes.ids, config.embedding)
        if config.channels == 2:
            self.register_buffer("fixed_vectors", self.vectors.weight.detach().clone())
        self.two = config.channels == 2
        self.convolutions = nn.ModuleList(MaxOverTime(config.embedding, config.filters, k) for k in config.widths)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.filters * len(config.widths), sizes.classes)

    def vectors_given(self) -> None:
        if self.two:
            self.fixed_vectors.copy_(self.vectors.weight.detach())

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        x_BTD = self.vectors(batch.tokens_BT)
        if self.two:
            x_BTD = x_BTD + F.embedding(batch.tokens_BT, self.fixed_vectors)
        kept_BT = kept_words(batch.mask_BT, self.word_dropout, self.training)
        x_BTD = x_BTD * kept_BT[:, :, None]
        best_BF = torch.cat([layer(x_BTD, batch.mask_BT) for layer in self.convolutions], 1)
        weight_CF = self.head.weight
        if self.norm:
            weight_CF = weight_CF * (self.norm / weight_CF.norm(dim=1, keepdim=True).clamp(min=self.norm))
        return F.linear(self.dropout(best_BF), weight_CF, self.head.bias), None

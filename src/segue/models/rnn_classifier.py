"""Recurrent classifier: Elman 1990, LSTM 1997 or GRU 2014 as an encoder of the text (layers/recurrent.py).

    h_t = cell(E[w_t], h_{t-1})                 with `both`, another cell reads from the end: [forward h; backward h]
    s   = h_T                                   pooling last: the state when all is read, in each direction
          mean over t of h_t                            mean
          max over t of h_t, unit by unit               max
          sum over t of a_t h_t                         attention: a = softmax over t of v · tanh(A h_t + a_0)
    p(class) = softmax(W s + b)

The class is predicted from the words in their order. Attention pooling is that of Yang et al. 2016, "Hierarchical
attention networks", without its second level. Departs from the papers: words and units are left out in training.
With train.init=RUN it begins with the vectors and layers of a language model (Dai and Le 2015): an rnn_lm of word
tokens with the same cell, embedding, width and layers, which reads in one direction (`both = false`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.probe import probe
from segue.layers.recurrent import Cell, Recurrent
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_classifier import Embedding, NeuralClassifier, Objective, check_shares, check_sizes, kept_words

Pooling = Literal["last", "mean", "max", "attention"]


class RnnClassifier(NeuralClassifier):
    """A classifier that reads a text word by word."""

    family = "RNN"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        cell: Cell = "lstm"
        """The recurrent cell: elman, lstm or gru."""
        both: bool = True
        """Bidirectional: also read from the end, with separate weights."""
        pooling: Pooling = "max"
        """How the states of all words become one vector: last, mean, max or attention."""
        embedding: int = 100
        """Width of the word embeddings."""
        width: int = 100
        """Units of a layer, in each direction."""
        layers: int = 1
        """Number of stacked layers."""
        word_dropout: float = 0.1
        """Word dropout: share of the words replaced by zero vectors at each training step."""
        dropout: float = 0.5
        """Dropout: share of the embeddings' numbers and of the units set to 0 at each training step."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (train.freeze=vectors keeps them fixed)."""
        loss: Objective = field(default_factory=Objective)
        """The loss function."""

        def __post_init__(self) -> None:
            check_sizes(embedding=self.embedding, width=self.width, layers=self.layers)
            check_shares(word_dropout=self.word_dropout, dropout=self.dropout)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.word_dropout, self.pooling = config.word_dropout, config.pooling
        self.vectors = Embedding(sizes.ids, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.body = Recurrent(
            config.cell, config.embedding, config.width, config.layers, config.dropout, bidirectional=config.both
        )
        read = config.width * self.body.directions
        if config.pooling == "attention":
            self.attention = nn.Sequential(nn.Linear(read, read), nn.Tanh(), nn.Linear(read, 1, bias=False))
        self.head = nn.Linear(read, sizes.classes)

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        kept_BT = kept_words(batch.mask_BT, self.word_dropout, self.training)
        x_BTD = self.dropout(self.vectors(batch.tokens_BT)) * kept_BT[:, :, None]
        h_BTD, end = self.body(x_BTD, batch.mask_BT)
        if self.pooling == "last":
            pooled_BD = torch.cat(end.h_LBD[-self.body.directions :].unbind(0), -1)
        else:
            pooled_BD = self._pooled(h_BTD, batch.mask_BT)
        return self.head(self.dropout(pooled_BD)), None

    def _pooled(self, h_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Pool all words' states into one vector; zero for a text without words."""
        some_B1 = mask_BT.any(1, keepdim=True)
        if self.pooling == "mean":
            return h_BTD.sum(1) / mask_BT.sum(1, keepdim=True).clamp(min=1)
        if self.pooling == "max":
            best_BD = h_BTD.masked_fill(~mask_BT[:, :, None], -torch.inf).amax(1)
            return torch.where(some_B1, best_BD, 0.0)
        scores_BT = self.attention(h_BTD)[:, :, 0].masked_fill(~mask_BT, -torch.inf)
        weights_BT = torch.where(some_B1, scores_BT, 0.0).softmax(1)
        probe("attention", weights_BT)
        return (weights_BT[:, :, None] * h_BTD).sum(1)

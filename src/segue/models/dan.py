"""Deep averaging network: Iyyer, Manjunatha, Boyd-Graber and Daumé 2015, "Deep unordered composition rivals …".

    h_0 = sum over t of r_t E[w_t] / sum over t of r_t          r_t = 0 for words that are dropped, else 1
    h_i = relu(W_i h_{i-1} + b_i)                               i = 1 … layers
    p(class) = softmax(W h_layers + b)

The class is predicted from which words the text holds, not from their order; the mean of vectors of "good" and "not
good" hardly differs, and each layer makes more of what difference there is. Word dropout leaves whole words out of the
mean while training. Departs from the paper: AdamW and a running mean of the weights where it has Adagrad; dropout of
units too. The lecture writes tanh where relu stands: means of many vectors are small, and tanh is then hardly bent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_classifier import Embedding, NeuralClassifier, Objective, check_shares, check_sizes, kept_words


class Dan(NeuralClassifier):
    """Hidden layers over the mean of the words' vectors."""

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        embedding: int = 300
        """Width of the word embeddings."""
        width: int = 300
        """Units of each hidden layer."""
        layers: int = 2
        """Hidden layers."""
        word_dropout: float = 0.3
        """Word dropout: share of the words left out at each training step."""
        dropout: float = 0.3
        """Dropout: share of the hidden units set to 0 at each training step."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (train.freeze=vectors keeps them fixed)."""
        loss: Objective = field(default_factory=Objective)
        """The loss function."""

        def __post_init__(self) -> None:
            check_sizes(embedding=self.embedding, width=self.width, layers=self.layers)
            check_shares(word_dropout=self.word_dropout, dropout=self.dropout)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.word_dropout = config.word_dropout
        self.vectors = Embedding(sizes.ids, config.embedding)
        widths = [config.embedding, *[config.width] * config.layers]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.width, sizes.classes)

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        kept_BT = kept_words(batch.mask_BT, self.word_dropout, self.training)
        sum_BD = (self.vectors(batch.tokens_BT) * kept_BT[:, :, None]).sum(1)
        h_BD = sum_BD / kept_BT.sum(1, keepdim=True).clamp(min=1)  # the mean of no words is zero
        for layer in self.layers:
            h_BD = self.dropout(layer(h_BD).relu())
        return self.head(h_BD), None

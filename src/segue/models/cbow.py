"""CBOW classifier: Mikolov et al. 2013's continuous bag of words, made to predict a text's class (NBOW, Iyyer 2015).

    h = sum over t of E[w_t]                    p(class) = softmax(W h + b)

Each word has a vector, and the text's is their sum: the class is predicted from which words the text holds, not from
their order. It differs from the bag of words (bow) in that the vectors may be narrower or wider than there are classes,
and be learnt elsewhere (embeddings). Departs from both papers: a sum where they average, as the lecture writes it, and
single words are left out in training.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_classifier import Embedding, NeuralClassifier, Objective, check_shares, check_sizes, kept_words


class Cbow(NeuralClassifier):
    """A linear classifier over the sum of the words' vectors."""

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        embedding: int = 100
        """Width of the word embeddings."""
        word_dropout: float = 0.3
        """Word dropout: share of the words left out at each training step."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (train.freeze=vectors keeps them fixed)."""
        loss: Objective = field(default_factory=Objective)
        """The loss function."""

        def __post_init__(self) -> None:
            check_sizes(embedding=self.embedding)
            check_shares(word_dropout=self.word_dropout)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.word_dropout = config.word_dropout
        self.vectors = Embedding(sizes.ids, config.embedding)
        self.head = nn.Linear(config.embedding, sizes.classes)

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        kept_BT = kept_words(batch.mask_BT, self.word_dropout, self.training)
        # What is left is scaled up, so that a sum has the same size in training and after it.
        scale = 1 / (1 - self.word_dropout) if self.training else 1.0
        h_BD = (self.vectors(batch.tokens_BT) * kept_BT[:, :, None]).sum(1) * scale
        return self.head(h_BD), None

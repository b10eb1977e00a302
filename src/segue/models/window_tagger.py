"""Window tagger: Collobert and Weston 2008, "A unified architecture for natural language processing".

    x_t = embedding of word t                        zero vectors beyond the ends of the sentence
    h_t = tanh(W [x_{t-r}; …; x_{t+r}] + b)          k = 2r + 1 words side by side
    p(tag_t) = softmax(U h_t + c)

Predicts the tag of each word from the words around it. Departs from the paper: no features beside the
word, each tag by itself (no search over tag sequences), tanh in place of its piecewise-linear version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import Window
from segue.models.base import Sizes
from segue.models.network import Network


class WindowTagger(Network):
    """A tag for each word from a window of words around it."""

    task = "tag"

    @dataclass(frozen=True)
    class Config:
        """The recipe's [model]."""

        window: int = 5
        """Words seen at once, the tagged one in the middle (odd)."""
        embedding: int = 50
        """Numbers in a word's vector."""
        width: int = 100
        """Hidden units."""
        dropout: float = 0.3
        """Share of the inputs and of the hidden units left out at each step of training."""

        def __post_init__(self) -> None:
            if self.window < 1 or self.window % 2 == 0:
                raise ValueError(f"window={self.window} has no middle word: expected an odd number")
            if min(self.embedding, self.width) < 1:
                raise ValueError("embedding and width must be 1 or more")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout={self.dropout} is not a share: expected 0 or more and less than 1")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocab_size, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.window = Window(config.embedding, config.width, config.window)
        self.head = nn.Linear(config.width, sizes.classes)

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        x_BTD = self.dropout(self.embedding(batch.tokens_BT))
        h_BTD = self.window(x_BTD, batch.mask_BT).tanh()
        return self.head(self.dropout(h_BTD)), None

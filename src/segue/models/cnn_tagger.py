"""Convolutional tagger, sentence approach: Collobert et al. 2011, "Natural language processing (almost) from scratch".

    x_t = [word; letters; affixes; shape]                    what is known of word t (layers/word_features.py)
    h^1_t = f(W_1 [x_{t-r}; …; x_{t+r}] + b_1)               k = 2r + 1 words side by side, the same W at all t
    h^l_t = h^{l-1}_t + f(W_l [h^{l-1}_{t-r}; …; h^{l-1}_{t+r}] + b_l)      f(a) = max(a, 0)
    p(tag_t) = softmax(U h^L_t + c)                          or, with `crf`, all tags together (layers/crf.py)

The whole sentence is convolved at once, zero vectors beyond its ends; L layers see L · r words to either side. Without
f, two layers would be one linear layer over a wider window. Predicts the tag of each word from those words.
Departs from the paper: no maximum over the sentence with the distance to the tagged word as an input (which costs a
sweep for every word), layers above one another instead; what a layer adds to the one below (He et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import Window
from segue.layers.word_features import Word, WordFeatures
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_tagger import NeuralTagger


class CnnTagger(NeuralTagger):
    """A tag for each word from stacked windows over the sentence."""

    family = "CNN"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        window: int = 3
        """Filter width of each convolution, in words (odd)."""
        layers: int = 3
        """Number of stacked convolutions."""
        embedding: int = 100
        """Width of the word embeddings."""
        word: WordFeatures = field(default_factory=WordFeatures)
        """Features of the spelling of a word, beside its embedding."""
        width: int = 200
        """Hidden units in a layer."""
        dropout: float = 0.4
        """Dropout: share of the inputs and of each layer's units set to 0 at each training step."""
        unknown: float = 0.1
        """Share of the words read as UNK at each training step."""
        crf: bool = False
        """Choose the tags of a sentence together, by a conditional random field."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (fixed by train.freeze=word.vectors,word.folded)."""

        def __post_init__(self) -> None:
            if self.window < 1 or self.window % 2 == 0:
                raise ValueError(f"window={self.window} has no middle word: expected an odd number")
            for name in ("embedding", "width", "layers"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
            for name in ("dropout", "unknown"):
                if not 0 <= getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)} is not a share: expected 0 or more and less than 1")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.dropout = nn.Dropout(config.dropout)
        self.word = Word(sizes.ids, config.embedding, config.word, config.unknown)
        self.first = Window(self.word.width, config.width, config.window)
        self.above = nn.ModuleList(Window(config.width, config.width, config.window) for _ in range(config.layers - 1))
        self.head = nn.Linear(config.width, sizes.classes)

    def scores(self, batch: Batch) -> Tensor:
        h_BTD: Tensor = self.first(self.dropout(self.word(batch)), batch.mask_BT).relu()
        for layer in self.above:
            h_BTD = h_BTD + layer(self.dropout(h_BTD), batch.mask_BT).relu()
        scores_BTC: Tensor = self.head(self.dropout(h_BTD))
        return scores_BTC

"""Window tagger: Collobert and Weston 2008, "A unified architecture for natural language processing".

    x_t = embedding of word t                        zero vectors beyond the ends of the sentence
    h_t = tanh(W [x_{t-r}; …; x_{t+r}] + b)          k = 2r + 1 words side by side
    p(tag_t) = softmax(U h_t + c)

Predicts the tag of each word from the words around it. If asked, x_t also holds how the word is written
(layers/word_features.py), and the tags of a sentence are chosen together (`crf`, layers/crf.py). Departs from the
paper: tanh in place of its piecewise-linear version.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import Window
from segue.layers.word_features import Word, WordFeatures
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_tagger import NeuralTagger


@dataclass(frozen=True)
class Bare(WordFeatures):
    """The recipe's [model.word], by default without features of spelling."""

    folded: bool = False
    """Second embedding of each word in lower case."""
    letters: int = 0
    """Character-level CNN: width of the vector that it makes of a word's letters (0: none)."""
    affixes: int = 0
    """Embeddings of prefixes and suffixes of up to this many letters (0: none)."""
    shapes: bool = False
    """Embedding of the word shape: upper case, lower case, digits, other signs."""


class WindowTagger(NeuralTagger):
    """A tag for each word from a window of words around it."""

    family = "window network"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        window: int = 5
        """Words seen at once, the tagged one in the middle (odd)."""
        embedding: int = 50
        """Width of the word embeddings."""
        word: Bare = field(default_factory=Bare)
        """Features of the spelling of a word, beside its embedding."""
        width: int = 100
        """Hidden units."""
        dropout: float = 0.3
        """Dropout: share of the inputs and of the hidden units set to 0 at each training step."""
        unknown: float = 0.0
        """Share of the words read as UNK at each training step."""
        crf: bool = False
        """Choose the tags of a sentence together, by a conditional random field."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (train.freeze=word.vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if self.window < 1 or self.window % 2 == 0:
                raise ValueError(f"window={self.window} has no middle word: expected an odd number")
            if min(self.embedding, self.width) < 1:
                raise ValueError("embedding and width must be 1 or more")
            for name in ("dropout", "unknown"):
                if not 0 <= getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)} is not a share: expected 0 or more and less than 1")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.word = Word(sizes.ids, config.embedding, config.word, config.unknown)
        self.dropout = nn.Dropout(config.dropout)
        self.convolution = Window(self.word.width, config.width, config.window)
        self.head = nn.Linear(config.width, sizes.classes)

    def scores(self, batch: Batch) -> Tensor:
        x_BTD = self.dropout(self.word(batch))
        h_BTD = self.convolution(x_BTD, batch.mask_BT).tanh()
        scores_BTC: Tensor = self.head(self.dropout(h_BTD))
        return scores_BTC

"""Recurrent tagger: BiLSTM, Graves and Schmidhuber 2005; with letters, Ma and Hovy 2016 (BiLSTM-CNN-CRF).

    x_t = [word; letters; affixes; shape]                   what is known of word t (layers/word_features.py)
    f_t = cell(x_t, f_{t-1})       b_t = cell(x_t, b_{t+1})    Elman, LSTM or GRU, read from both ends
    p(tag_t) = softmax(U [f_t; b_t] + c)                    or, with `crf`, all tags together (layers/crf.py)
    p(tag k of word t) = logistic(U [f_t; b_t] + c)_k       several tags a word (data.label=classes)

Predicts the tag of each word from the whole sentence. With several layers, [f; b] of one is x of the next. With
`both = false` only what comes before a word is read, and one sees which tags need what follows.
Departs from the paper: affixes and shapes beside the letters; dropout masks that are the same for all words of a
sentence (Gal and Ghahramani 2016); a share of the words is read as unknown; random vectors for words, unless others
are given (embeddings).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.dropout import variational_dropout
from segue.layers.recurrent import Cell, Recurrent
from segue.layers.word_features import Word, WordFeatures
from segue.models.base import ModelConfig, Sizes
from segue.models.neural_tagger import NeuralTagger, Output


class RnnTagger(NeuralTagger):
    """A tag for each word from the whole sentence, read from both ends."""

    family = "RNN"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        cell: Cell = "lstm"
        """The recurrent cell: elman, lstm or gru."""
        both: bool = True
        """Bidirectional: read from both ends; false: only what comes before a word."""
        embedding: int = 100
        """Width of the word embeddings."""
        word: WordFeatures = field(default_factory=WordFeatures)
        """Features of the spelling of a word, beside its embedding."""
        width: int = 200
        """Units in a layer, for each direction."""
        layers: int = 1
        """Number of stacked layers."""
        dropout: float = 0.4
        """Variational dropout before, between and after the layers: one mask for a whole sentence."""
        unknown: float = 0.1
        """Share of the words read as UNK at each training step."""
        output: Output = "auto"
        """Output at each word: softmax, logistic or tanh; auto: logistic if words have several tags, else softmax."""
        crf: bool = False
        """Choose the tags of a sentence together, by a conditional random field."""
        embeddings: str = ""
        """Start from pretrained vectors, a word2vec run or file (fixed by train.freeze=word.vectors,word.folded)."""

        def __post_init__(self) -> None:
            for name in ("embedding", "width", "layers"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
            if self.crf and self.output not in ("auto", "softmax"):
                raise ValueError(f"output={self.output} with crf: a crf chooses one tag a word; leave one of them out")
            for name in ("dropout", "unknown"):
                if not 0 <= getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)} is not a share: expected 0 or more and less than 1")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes, config.output)
        self.dropout = config.dropout
        self.word = Word(sizes.ids, config.embedding, config.word, config.unknown)
        width = config.width * (1 + config.both)
        widths = [self.word.width, *[width] * config.layers]
        self.layers = nn.ModuleList(
            Recurrent(config.cell, before, config.width, 1, 0.0, bidirectional=config.both)
            for before, _ in pairwise(widths)
        )
        self.head = nn.Linear(width, sizes.classes)

    def scores(self, batch: Batch) -> Tensor:
        x_BTD = variational_dropout(self.word(batch), self.dropout, self.training)
        for layer in self.layers:
            x_BTD, _ = layer(x_BTD, batch.mask_BT)
            x_BTD = variational_dropout(x_BTD, self.dropout, self.training)
        scores_BTC: Tensor = self.head(x_BTD)
        return scores_BTC

"""A tagger on a body that another run has trained: bert, elmo, t5, gpt … (Devlin et al. 2019).

    h_1 ... h_T = the body's states of  start pieces of all words STOP                        (models/heading.py)
    x_w         = h at the first piece of word w; of a causal body at its last piece, since the first has not seen the
                  rest of the word
    scores_w    = V x_w + c                                                                    (neural_tagger.py)

A word may have several pieces, and one tag, or several; with `crf` the tags of a sentence are chosen together. A
sentence with more pieces than the body sees is read in windows that overlap, and each word is tagged in the one where
it has most context (batches/word_pieces.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.store import Columns
from segue.models.base import ModelConfig
from segue.models.heading import Heading, check_learning
from segue.models.neural_tagger import NeuralTagger


class FinetunedTagger(Heading, NeuralTagger):
    """A linear layer on the states of a pre-trained body, one for each word."""

    family = "Transformer"
    task = "tag"
    inputs = ("firsts_BW",)

    @dataclass(frozen=True)
    class Config(ModelConfig):
        body: str = ""
        """The run whose model reads the text: bert, elmo, t5, gpt or rnn_lm."""
        frozen: bool = False
        """Leave the body as it is, and learn the head alone."""
        mix: bool = False
        """Read a learnt mix of all layers (ELMo), not the last one."""
        layers: int = 0
        """The last layers of the body that learn; 0: all, and the token vectors."""
        dropout: float = 0.1
        """Dropout of a word's vector, before the head, and inside the body, if it learns: the share set to 0."""
        crf: bool = False
        """Choose the tags of a sentence together, by a conditional random field."""

        def __post_init__(self) -> None:
            check_learning(self.frozen, self.layers, self.dropout)

    config: Config

    @property
    def window(self) -> int:
        return self.sizes.window

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        tables: list[tuple[nn.Embedding, bool]] = self.body.token_tables
        return tables

    def scores(self, batch: Batch) -> Tensor:
        """scores_BWC."""
        scores_BWC: Tensor = self.head(self.drop(self.states(batch)))
        return scores_BWC

    def places(self, batch: Batch) -> Tensor | None:
        """The places of the words; in a batch without them every token is a word."""
        places_BW: Tensor | None = batch.firsts_BW
        return None if places_BW is None else places_BW.clamp(min=0)  # where there is no word, any state will do

    def select(self, hidden_LBTD: Tensor, batch: Batch) -> Tensor:
        places_BW = self.places(batch)
        if places_BW is None:
            return hidden_LBTD
        return hidden_LBTD.gather(2, places_BW[None, :, :, None].expand(len(hidden_LBTD), -1, -1, self.body.width))

    def states_in(self, columns: Columns) -> NDArray[np.int64] | None:
        return columns["firsts"].lengths() if "firsts" in columns else None

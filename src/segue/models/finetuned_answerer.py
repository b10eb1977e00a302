"""Answers that stand in a text, on a body that another run has trained: bert, elmo, t5, gpt … (Devlin et al. 2019).

    h_1 ... h_T = the body's states of  start question STOP text STOP                          (models/heading.py)
    b_t, e_t    = V h_t + c                                        two numbers for each place: begin and end
    p(begin = t) = softmax(b)_t,  p(end = t) = softmax(e)_t        over the places of the text, and the one that says
                                                                   that there is no answer (batches/answer_windows.py)
    loss        = -(log p(begin) + log p(end)) / 2
    answer      = the place i and the place j >= i with the highest p(begin = i) p(end = j)    (inference/answers.py)

It departs from the paper in that the places of the question are left out of both softmaxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.store import Columns
from segue.models.base import ModelConfig
from segue.models.heading import Heading, check_learning
from segue.models.network import Judged, judged


class FinetunedAnswerer(Heading):
    """A linear layer with two outputs on the states of a pre-trained body, one for each place."""

    family = "Transformer"
    task = "answer"
    inputs = ("segments_BT", "answers_BT")

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
        """Dropout of a place's vector, before the head, and inside the body, if it learns: the share set to 0."""

        def __post_init__(self) -> None:
            check_learning(self.frozen, self.layers, self.dropout)

    config: Config

    @property
    def outputs(self) -> int:
        """Begin and end."""
        return 2

    @property
    def window(self) -> int:
        return self.sizes.window

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        tables: list[tuple[nn.Embedding, bool]] = self.body.token_tables
        return tables

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """logits_B2T: of begin and of end; minus infinity where neither may be."""
        logits_BT2: Tensor = self.head(self.drop(self.states(batch)))
        may_B1T: Tensor = batch.answers_BT[:, None]
        return logits_BT2.transpose(1, 2).masked_fill(~may_B1T, -torch.inf), None

    def select(self, hidden_LBTD: Tensor, batch: Batch) -> Tensor:
        return hidden_LBTD

    def states_in(self, columns: Columns) -> NDArray[np.int64]:
        return columns["text"].lengths()

    @torch.inference_mode()
    def judge(self, batch: Batch) -> Judged:
        """Score a batch; a row is right if begin and end are, and then counts as both."""
        logits_B2T, _ = self(batch)
        chosen_B2 = logits_B2T.argmax(-1)
        right_B = (chosen_B2 == batch.targets).all(1) & (batch.targets[:, 0] != IGNORE)
        return judged(logits_B2T, chosen_B2, batch.targets)._replace(right=2 * right_B.sum())

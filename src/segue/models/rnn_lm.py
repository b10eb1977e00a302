"""Recurrent language model (Mikolov et al. 2010; with LSTM: Zaremba et al. 2014).

    x_t = E[w_t]                                    a vector for each token
    h_t = cell(x_t, h_{t-1})                        Elman, LSTM or GRU, one or more layers (layers/recurrent.py)
    p(w_{t+1} | w_1 ... w_t) = softmax(V h_t + b)

h_t has read w_t and predicts the next token. The state goes on from batch to batch, so the model can remember beyond
the piece of text that it sees at once; gradients do not (truncated backpropagation through time: the trainer detaches
the state). Rows that begin a new text (`fresh_B`) begin with the zero state.

Departures: the forget gate's bias begins at 1 (Jozefowicz et al. 2015). Dropout is put on what goes into and out of
each layer, never on the state (Zaremba et al.). Vectors begin as unit normal numbers: smaller ones are learnt slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.recurrent import Activation, Cell, Readout, Recurrent, RecurrentState, Reset
from segue.models.base import Sizes, Task
from segue.models.network import Network


class RnnLm(Network):
    """Elman, LSTM or GRU that predicts the next token."""

    task: ClassVar[Task] = "lm"
    inputs: ClassVar[tuple[str, ...]] = ("fresh_B",)

    @dataclass(frozen=True)
    class Config:
        cell: Cell = "lstm"
        """The recurrent cell: elman, lstm or gru."""
        activation: Activation = "tanh"
        """The Elman cell's function: tanh, relu or logistic (the last has no fused kernel and is slower)."""
        reset: Reset = "after"
        """Where the GRU resets: after U_n (as torch does, fast) or before it (as Cho et al. write, slower)."""
        width: int = 192
        """Units in a layer."""
        embedding: int = 64
        """Width of a token's vector; 0 means the same as width."""
        layers: int = 1
        """Layers, one above the other."""
        dropout: float = 0.0
        """Share of units dropped between layers, before the first and after the last."""
        tied: bool = False
        """Use the tokens' vectors as the output weights too (needs embedding = 0: the same as width)."""

        def __post_init__(self) -> None:
            if self.width < 1 or self.layers < 1 or self.embedding < 0:
                found = f"width = {self.width}, layers = {self.layers}, embedding = {self.embedding}"
                raise ValueError(f"{found}: width and layers must be 1 or more, embedding 0 or more")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if self.tied and self.embedding not in (0, self.width):
                found = f"tied with embedding = {self.embedding}, width = {self.width}"
                raise ValueError(f"{found}: they must be equal; set embedding = 0")
            if self.activation != "tanh" and self.cell != "elman":
                raise ValueError(f"activation = {self.activation} with cell = {self.cell}: only elman has a choice")
            if self.reset != "after" and self.cell != "gru":
                raise ValueError(f"reset = {self.reset} with cell = {self.cell}: only gru has a choice")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        embedding = config.embedding or config.width
        self.vectors = nn.Embedding(sizes.vocab_size, embedding)
        self.drop = nn.Dropout(config.dropout)
        self.body = Recurrent(
            config.cell,
            embedding,
            config.width,
            config.layers,
            config.dropout,
            activation=config.activation,
            reset=config.reset,
        )
        self.head = Readout(config.width, sizes.vocab_size)
        if config.tied:
            self.head.weight = self.vectors.weight

    def forward(self, batch: Batch, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """logits_BTV and the state after the batch, its gradient still attached."""
        x_BTD, state = self._inputs(batch, state)
        out_BTD, state = self.body(x_BTD, batch.mask_BT, state)
        return self.head(self.drop(out_BTD)), state

    def encode(self, batch: Batch, state: RecurrentState | None = None) -> Tensor:
        """hidden_LBTD: the outputs of every recurrent layer."""
        x_BTD, state = self._inputs(batch, state)
        hidden_LBTD, _ = self.body.all_layers(x_BTD, batch.mask_BT, state)
        return hidden_LBTD

    def _inputs(self, batch: Batch, state: RecurrentState | None) -> tuple[Tensor, RecurrentState | None]:
        if state is not None and batch.fresh_B is not None:
            state = state.forget(batch.fresh_B)
        return self.drop(self.vectors(batch.tokens_BT)), state

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> RecurrentState:
        """Nothing read yet. A recurrent state has no limit, so `capacity` is not needed."""
        return self.body.zero_state(rows)

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read tokens; logits_BV of what follows each row's last real token."""
        _, state = self.body(self.drop(self.vectors(tokens_BT)), mask_BT, state)
        # The last layer's state IS its output at the last real token, wherever in the row that stands.
        return self.head(self.drop(state.h_LBD[-1])), state

"""Recurrent language model (Mikolov et al. 2010; with LSTM: Zaremba et al. 2014; AWD-LSTM: Merity et al. 2018).

    x_t = E[w_t]                                    a vector for each token
    h_t = cell(x_t, h_{t-1})                        Elman, LSTM or GRU, one or more layers (layers/recurrent.py)
    p(w_{t+1} | w_1 ... w_t) = softmax(V h_t + b)

h_t has read w_t and predicts the next token. The state goes on from batch to batch, so the model can remember beyond
the piece of text that it sees at once; gradients do not (truncated backpropagation through time: the trainer detaches
the state). Rows that begin a new text (`fresh_B`) begin with the zero state.

What AWD-LSTM adds, each off unless a recipe says otherwise (h~ is h after dropout, the mean is over units and times):

    tied      V = E, weight tying (Inan et al. 2017; Press and Wolf 2017): the last layer is then as wide as the vectors
    drop      variational dropout, whole words, entries of U (layers/dropout.py)
    ar        + alpha mean(h~_t^2)                  activation regularisation: small outputs
    tar       + beta mean((h_{t+1} - h_t)^2)        temporal activation regularisation: slow outputs
    in [batches], vary: steps of random length; in [train.optimizer], average: averaged SGD, begun by validation

Departures: the forget gate's bias begins at 1 (`forget`; Jozefowicz et al. 2015). The plain `dropout` is put on what
goes into and out of each layer, never on the state (Zaremba et al.). Vectors begin as unit normal numbers: smaller ones
are learnt slowly. A tied model begins as AWD-LSTM does: vectors, output weights too, between -0.1 and 0.1, and
all biases 0. With the forget gate's at 1, the paper's SGD at a rate of 30 learns next to nothing in the first epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.dropout import variational_dropout, weight_drop, word_dropout
from segue.layers.losses import linear_cross_entropy
from segue.layers.recurrent import Activation, Cell, Recurrent, RecurrentState, RecurrentStep, Reset
from segue.models.base import Body, LanguageModel, Loss, ModelConfig, Sizes, Term
from segue.models.network import Network, dropout_by_epochs


@dataclass(frozen=True)
class Drop:
    """AWD-LSTM's dropouts, as shares."""

    words: float = 0.0
    """Embedding dropout: share of the vocabulary whose vectors are 0, for one batch."""
    input: float = 0.0
    """Variational dropout of the embeddings: one mask for all time steps of a row."""
    between: float = 0.0
    """Variational dropout between two layers: one mask for all time steps of a row."""
    output: float = 0.0
    """Variational dropout of the last layer: one mask for all time steps of a row."""
    weights: float = 0.0
    """DropConnect of the recurrent matrices: one mask for all rows and time steps of a batch."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if not 0 <= getattr(self, one.name) < 1:
                found = f"{one.name} = {getattr(self, one.name)}"
                raise ValueError(f"{found}: a share must be at least 0 and less than 1")


@dataclass(frozen=True)
class Penalty:
    """AWD-LSTM's regularisers, as weights in the loss."""

    ar: float = 0.0
    """Activation regularisation: how much the mean square of the outputs weighs in the loss."""
    tar: float = 0.0
    """Temporal activation regularisation: how much the mean square of the outputs' changes weighs in the loss."""

    def __post_init__(self) -> None:
        if not (0 <= self.ar < math.inf and 0 <= self.tar < math.inf):
            raise ValueError(f"ar = {self.ar}, tar = {self.tar}: weights in the loss must be 0 or more")


class RnnLm(Network, LanguageModel, Body):
    """Elman, LSTM or GRU that predicts the next token."""

    family = "RNN"
    task = "lm"
    records = True
    inputs = ("fresh_B",)

    @dataclass(frozen=True)
    class Config(ModelConfig):
        cell: Cell = "lstm"
        """The recurrent cell: elman, lstm or gru."""
        activation: Activation = "tanh"
        """Activation function of the Elman cell: tanh, relu or logistic (which has no fused kernel and is slower)."""
        reset: Reset = "after"
        """Where the GRU resets: after U_n (as torch does, fast) or before it (as Cho et al. write, slower)."""
        width: int = 192
        """Units in a layer."""
        embedding: int = 64
        """Width of a token's vector; 0 means the same as width."""
        layers: int = 1
        """Number of stacked layers."""
        dropout: float = 0.0
        """Dropout between layers, before the first and after the last: the share of units set to 0."""
        tied: bool = False
        """Weight tying: use the token embeddings as output weights too; the last of several layers gets their width."""
        drop: Drop = field(default_factory=Drop)
        """AWD-LSTM's dropouts, beside the plain one."""
        penalty: Penalty = field(default_factory=Penalty)
        """AWD-LSTM's regularisers."""
        forget: float = 1.0
        """Bias that an LSTM's forget gate begins with: s(0) = .5, s(1) = .731, s(2) = .881 is kept at a step."""
        embeddings: str = ""
        """Begin with the vectors of a word2vec run or file, rescaled (train.freeze=vectors keeps them fixed)."""

        def __post_init__(self) -> None:
            if self.width < 1 or self.layers < 1 or self.embedding < 0:
                found = f"width = {self.width}, layers = {self.layers}, embedding = {self.embedding}"
                raise ValueError(f"{found}: width and layers must be 1 or more, embedding 0 or more")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if self.tied and self.layers == 1 and self.embedding not in (0, self.width):
                found = f"tied with one layer, embedding = {self.embedding}, width = {self.width}"
                raise ValueError(f"{found}: they must be equal; set embedding = 0")
            if self.activation != "tanh" and self.cell != "elman":
                raise ValueError(f"activation = {self.activation} with cell = {self.cell}: only elman has a choice")
            if self.reset != "after" and self.cell != "gru":
                raise ValueError(f"reset = {self.reset} with cell = {self.cell}: only gru has a choice")
            if not 0 <= self.forget < math.inf:
                raise ValueError(f"forget = {self.forget}: a gate that begins closed remembers nothing; 0 or more")
            if self.forget != 1 and (self.cell != "lstm" or self.tied):
                found = f"forget = {self.forget} with cell = {self.cell}, tied = {self.tied}"
                raise ValueError(f"{found}: only an lstm that is not tied has a choice")

        @property
        def widths(self) -> tuple[int, ...]:
            """What goes into the first layer, and out of each."""
            vector = self.embedding or self.width
            return (vector, *[self.width] * (self.layers - 1), vector if self.tied else self.width)

    config: Config

    @classmethod
    def larger(cls, config: Config) -> list[dict[str, Any]]:
        return [{"model.width": 512 if config.cell == "lstm" else 384}] if config.layers == 1 else []

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        # Fitted on characters: an LSTM takes most, an Elman network least.
        share, most = {"lstm": (0.15, 0.4), "gru": (0.09, 0.25), "elman": (0.045, 0.12)}[config.cell]
        return None if config.dropout else dropout_by_epochs(share, most, epochs)

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        first, *_, last = config.widths
        self.vectors = nn.Embedding(sizes.ids, first)
        by_layer = config.drop.between or config.drop.weights or last != config.width
        self.body: Recurrent | LayerByLayer = (
            LayerByLayer(config) if by_layer else _layers(config, first, config.width, config.layers)
        )
        if config.cell == "lstm":
            for name, parameter in self.body.named_parameters():
                if "bias_ih" in name:  # one of torch's two, which are added; its parts are i, f, g, o
                    nn.init.constant_(parameter.data.chunk(4)[1], config.forget)
        self.head = nn.Linear(last, sizes.vocab_size)
        if config.tied:
            self.head.weight = self.vectors.weight
            nn.init.uniform_(self.vectors.weight, -0.1, 0.1)
            for name, parameter in self.named_parameters():
                if "bias" in name:
                    nn.init.zeros_(parameter)

    @property
    def width(self) -> int:
        return max(self.config.widths)

    @property
    def depth(self) -> int:
        return self.config.layers + 1

    @property
    def tied(self) -> bool:
        return self.config.tied

    def forward(self, batch: Batch, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """logits_BTV and the state after the batch, with its gradient."""
        h_BTD, state = self._read(batch, state)
        return self.head(self._dropped(h_BTD)), state

    def counts(self, batch: Batch) -> dict[str, int]:
        mask_BT, (rows, length) = batch.mask_BT, batch.mask_BT.shape
        counts = {"cross_entropy": batch.count}
        if self.config.penalty.ar:
            counts["ar"] = rows * length if batch.unpadded else int(mask_BT.sum())
        if self.config.penalty.tar:
            both = mask_BT[:, 1:] & mask_BT[:, :-1]
            counts["tar"] = rows * (length - 1) if batch.unpadded else int(both.sum())
        return counts

    def loss(self, batch: Batch, state: RecurrentState | None = None) -> Loss:
        h_BTD, state = self._read(batch, state)
        dropped_BTD = self._dropped(h_BTD)
        sums = linear_cross_entropy(dropped_BTD, self.head.weight, batch.targets, self.head.bias)
        terms = [Term("cross_entropy", *sums)]
        if self.config.penalty.ar:
            terms.append(Term("ar", *mean_squares(dropped_BTD, batch.mask_BT), self.config.penalty.ar))
        if self.config.penalty.tar:
            both_BT = batch.mask_BT[:, 1:] & batch.mask_BT[:, :-1]
            terms.append(Term("tar", *mean_squares(h_BTD[:, 1:] - h_BTD[:, :-1], both_BT), self.config.penalty.tar))
        return Loss(tuple(terms), state)

    def encode(self, batch: Batch, state: RecurrentState | None = None) -> Tensor:
        """hidden_LBTD: the tokens' vectors, then every recurrent layer's outputs; zeros fill up narrower ones."""
        x_BTD, mask_BT, state = self._inputs(batch, state)
        hidden_LBTD, _ = self.body.all_layers(x_BTD, mask_BT, state)
        widest = [F.pad(part, (0, self.width - part.shape[-1])) for part in (x_BTD[None], hidden_LBTD)]
        return torch.cat(widest).masked_fill(~batch.mask_BT[:, :, None], 0.0)

    def last_layer(self, batch: Batch) -> Tensor:
        h_BTD, _ = self._read(batch, None)
        return F.pad(h_BTD, (0, self.width - h_BTD.shape[-1]))

    def unembed(self, hidden: Tensor, last: bool = True) -> Tensor:
        logits: Tensor = self.head(hidden[..., : self.config.widths[-1]])
        return logits

    def _read(self, batch: Batch, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        """The last layer's outputs, and the state."""
        out: tuple[Tensor, RecurrentState] = self.body(*self._inputs(batch, state))
        return out

    def _inputs(
        self, batch: Batch, state: RecurrentState | None
    ) -> tuple[Tensor, Tensor | None, RecurrentState | None]:
        if state is not None and batch.fresh_B is not None:
            state = state.forget(batch.fresh_B)
        mask_BT = None if batch.unpadded or batch.right_padded else batch.mask_BT
        return self._embedded(batch.tokens_BT), mask_BT, state

    def _embedded(self, tokens_BT: Tensor) -> Tensor:
        drop = self.config.drop
        x_BTD = word_dropout(self.vectors(tokens_BT), tokens_BT, self.sizes.vocab_size, drop.words, self.training)
        return F.dropout(variational_dropout(x_BTD, drop.input, self.training), self.config.dropout, self.training)

    def _dropped(self, h_BTD: Tensor) -> Tensor:
        h_BTD = variational_dropout(h_BTD, self.config.drop.output, self.training)
        return F.dropout(h_BTD, self.config.dropout, self.training)

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> RecurrentState:
        """Nothing read yet. A recurrent state has no limit, so `capacity` is not needed."""
        return self.body.zero_state(rows)

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read tokens; logits_BV of what follows each row's last real token."""
        return self._next(tokens_BT, state, mask_BT)

    def one_token(self, state: RecurrentState, places: int = 0) -> RecurrentStep:
        return RecurrentStep(state, self._next)

    def _next(
        self, tokens_BT: Tensor, state: RecurrentState, mask_BT: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        _, state = self.body(self._embedded(tokens_BT), mask_BT, state)
        # The last layer's state IS its output at the last real token, wherever in the row that stands.
        last_B1D = state.h_LBD[-1, :, None, : self.config.widths[-1]]
        return self.head(self._dropped(last_B1D))[:, 0], state


def _layers(config: RnnLm.Config, inputs: int, width: int, layers: int) -> Recurrent:
    dropout, activation, reset = config.dropout, config.activation, config.reset
    return Recurrent(config.cell, inputs, width, layers, dropout, activation=activation, reset=reset)


class LayerByLayer(nn.Module):
    """Layers run one by one, so that the last may have another width, and weights and what goes between be dropped.

    The state is that of layers of the greatest width; after the units of a narrower one come zeros.
    """

    def __init__(self, config: RnnLm.Config) -> None:
        super().__init__()
        self.dropout, self.drop, self.widths = config.dropout, config.drop, config.widths[1:]
        self.layers = nn.ModuleList(_layers(config, inputs, width, 1) for inputs, width in pairwise(config.widths))

    def zero_state(self, rows: int) -> RecurrentState:
        """Nothing read yet."""
        return self._together([layer.zero_state(rows) for layer in self.layers])  # type: ignore[operator]

    def forward(
        self, x_BTD: Tensor, mask_BT: Tensor | None = None, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """The last layer's outputs, 0 where the mask is False, and the state after each row's last real token."""
        outs, state = self._outputs(x_BTD, mask_BT, state)
        return outs[-1], state

    def all_layers(
        self, x_BTD: Tensor, mask_BT: Tensor | None = None, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Every layer's outputs, and the state."""
        outs, state = self._outputs(x_BTD, mask_BT, state)
        return torch.stack([self._padded(out_BTD) for out_BTD in outs]), state

    def _outputs(
        self, x_BTD: Tensor, mask_BT: Tensor | None, state: RecurrentState | None
    ) -> tuple[list[Tensor], RecurrentState]:
        if mask_BT is not None and bool(mask_BT.all()):
            mask_BT = None
        outs: list[Tensor] = []
        ends: list[RecurrentState] = []
        for number, (layer, width) in enumerate(zip(self.layers, self.widths, strict=True)):
            if number > 0:
                x_BTD = F.dropout(x_BTD, self.dropout, self.training)
                x_BTD = variational_dropout(x_BTD, self.drop.between, self.training)
            parts = () if state is None else (part[number : number + 1, :, :width] for part in state.parts())
            begin = None if state is None else RecurrentState(*(part.contiguous() for part in parts))
            x_BTD, end = weight_drop(layer, self.drop.weights, x_BTD, mask_BT, begin)  # type: ignore[arg-type]
            outs.append(x_BTD)
            ends.append(end)
        return outs, self._together(ends)

    def _together(self, states: list[RecurrentState]) -> RecurrentState:
        layers = zip(*(state.parts() for state in states), strict=True)
        return RecurrentState(*(torch.cat([self._padded(part) for part in parts]) for parts in layers))

    def _padded(self, h: Tensor) -> Tensor:
        return F.pad(h, (0, max(self.widths) - h.shape[-1]))


def mean_squares(x_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """(sum over the real places of the mean square of the units, number of places)."""
    full = x_BTD if x_BTD.dtype == torch.float64 else x_BTD.float()
    return full.square().mean(-1).masked_fill(~mask_BT, 0.0).sum(), mask_BT.sum()

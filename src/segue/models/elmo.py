"""ELMo: words by their letters, and a language model in each direction above them (Peters et al. 2018).

    x_t        = the vector that convolutions and highways make of the letters of word w_t      (layers/spelling.py)
    f_{t,1}    = LSTM_1(x_1 … x_t)                       the forward half has read w_t and all before it
    f_{t,l}    = LSTM_l(f_{1,l-1} … f_{t,l-1}) + f_{t,l-1}                     residual, from the second layer on
    b_{t,l}    = the same from the last word back to w_t, with weights of its own: the backward half
    p(w_{t+1} | w_1 … w_t) = softmax(V f_{t,L} + c)      p(w_{t-1} | w_t … w_T) = softmax(V b_{t,L} + c)
    loss       = -log p of both, each a mean over the words that it predicts

The forward half alone is a language model: it gives the bits per byte, and it writes. Letters and softmax are shared,
the LSTMs are not, and no half reads the other: only so does neither see the word that it predicts. The state of the
forward half goes on from batch to batch; the backward half begins anew at the end of every batch.

As a body it gives every word the vectors of all layers in its sentence, [x_t; x_t], [f_{t,1}; b_{t,1}], …, for a learnt
mix of them: h = gamma · sum of softmax(s)_l h_l (models/heading.py). A word that is not in the vocabulary is read by
its letters, and so has vectors like any other; it is predicted as UNK.

Departures: an LSTM's output is as wide as its memory (the paper's 4,096 cells are projected to 512 numbers). All words
are in the softmax, not a sample. A word has 32 letters at the most, code points and not bytes. A tenth of the unknown
words is read without letters in training, since a text that is typed token by token has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.layers.losses import linear_cross_entropy
from segue.layers.recurrent import Recurrent, RecurrentState, RecurrentStep
from segue.layers.spelling import Spelling
from segue.models.base import Body, LanguageModel, Loss, ModelConfig, Sizes, Term
from segue.models.network import Network, dropout_by_epochs

BARE = 0.1
"""Share of the unknown words whose letters are hidden in training."""


class Elmo(Network, LanguageModel, Body):
    """A forward and a backward LSTM over words that are read by their letters."""

    family = "RNN"
    task = "lm"
    causal = False
    records = True
    inputs = ("fresh_B", "chars_BTC")
    tokens = ("word", "space")
    training_names = ("backward_half.",)

    @dataclass(frozen=True)
    class Config(ModelConfig):
        width: int = 128
        """Units of an LSTM layer in one direction, and numbers in a word's vector; as a body it is twice as wide."""
        layers: int = 2
        """Number of stacked layers, in each direction."""
        letter: int = 16
        """Numbers in a letter's vector."""
        filters: tuple[int, ...] = (16, 16, 32, 48, 64)
        """Filters over 1 letter, over 2 in a row, and so on."""
        highways: int = 1
        """Highway layers above the filters."""
        dropout: float = 0.0
        """Dropout of the words' vectors, between layers and after the last: the share of units set to 0."""
        backward: float = 1.0
        """How much the backward half weighs in the loss."""

        def __post_init__(self) -> None:
            found = f"width = {self.width}, layers = {self.layers}, letter = {self.letter}, highways = {self.highways}"
            if min(self.width, self.layers, self.letter) < 1 or self.highways < 0:
                raise ValueError(f"{found}: highways must be 0 or more, the others 1 or more")
            if not self.filters or min(self.filters) < 1:
                raise ValueError(f"filters = {self.filters}: expected 1 or more for each number of letters")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout = {self.dropout}: must be at least 0 and less than 1")
            if not 0 < self.backward <= 1e6:
                raise ValueError(f"backward = {self.backward}: a weight in the loss must be more than 0")

    config: Config

    @classmethod
    def dropout_for(cls, config: Config, epochs: float) -> float | None:
        return None if config.dropout else dropout_by_epochs(0.15, 0.4, epochs)  # as an LSTM's, models/rnn_lm.py

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        special = (sizes.stop, sizes.unk, *range(sizes.vocab_size, sizes.ids))
        self.words = Spelling(sizes.ids, special, config.letter, config.filters, config.highways, config.width)
        self.forward_half, self.backward_half = (Half(config.width, config.layers, config.dropout) for _ in range(2))
        self.head = nn.Linear(config.width, sizes.vocab_size)

    @property
    def width(self) -> int:
        return 2 * self.config.width

    @property
    def depth(self) -> int:
        return self.config.layers + 1

    def spell(self, words: Sequence[str]) -> None:
        self.words.spell(words)

    def layers_of(self) -> dict[str, int]:
        parts = {name: name.split(".") for name, _ in self.named_parameters()}
        ends = {"words": 0, "head": self.depth}
        return {name: ends[part[0]] if part[0] in ends else 1 + int(part[2]) for name, part in parts.items()}

    # The forward half, a language model

    def forward(self, batch: Batch, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """logits_BTV of the forward half, and its state after the batch."""
        f_LBTD, state = self._forward_half(self._vectors(batch), batch, state)
        return self.head(self._dropped(f_LBTD[-1])), state

    def _forward_half(
        self, x_BTD: Tensor, batch: Batch, state: RecurrentState | None
    ) -> tuple[list[Tensor], RecurrentState]:
        if state is not None and batch.fresh_B is not None:
            state = state.forget(batch.fresh_B)
        mask_BT = None if batch.unpadded or batch.right_padded else batch.mask_BT
        out: tuple[list[Tensor], RecurrentState] = self.forward_half(x_BTD, mask_BT, state)
        return out

    def _vectors(self, batch: Batch) -> Tensor:
        """x_BTD: the words' vectors."""
        chars_BTC = batch.chars_BTC
        if chars_BTC is not None and self.training:
            bare_BT1 = torch.rand(*chars_BTC.shape[:2], 1, device=chars_BTC.device) < BARE
            chars_BTC = chars_BTC.masked_fill(bare_BT1, 0)
        return self._dropped(self.words(batch.tokens_BT, chars_BTC))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)

    @torch.inference_mode()
    def start(
        self, rows: int, capacity: int, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> RecurrentState:
        return self.forward_half.zero_state(rows)

    @torch.inference_mode()
    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return self._next(tokens_BT, state, mask_BT)

    def one_token(self, state: RecurrentState, places: int = 0) -> RecurrentStep:
        return RecurrentStep(state, self._next)

    def _next(
        self, tokens_BT: Tensor, state: RecurrentState, mask_BT: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        _, state = self.forward_half(self.words(tokens_BT), mask_BT, state)
        # f_{t,L} = LSTM_L + … + LSTM_1, by the residuals; a state is its layer's output at the last real token.
        logits_BV: Tensor = self.head(state.h_LBD.sum(0))
        return logits_BV, state

    # Both halves

    def counts(self, batch: Batch) -> dict[str, int]:
        rows, length = batch.mask_BT.shape
        both = rows * (length - 1) if batch.unpadded else int((batch.mask_BT[:, 1:] & batch.mask_BT[:, :-1]).sum())
        return {"cross_entropy": batch.count, "backward": both}

    def loss(self, batch: Batch, state: RecurrentState | None = None) -> Loss:
        x_BTD = self._vectors(batch)
        f_LBTD, state = self._forward_half(x_BTD, batch, state)
        sums = self._cross_entropy(f_LBTD[-1], batch.targets)
        # The backward half reads w_t … w_T at place t, and predicts w_{t-1}; nothing stands before the first place.
        b_BTD = self._backward_half(x_BTD, batch)[-1]
        before_BT = batch.tokens_BT[:, :-1].masked_fill(~(batch.mask_BT[:, 1:] & batch.mask_BT[:, :-1]), IGNORE)
        back = self._cross_entropy(b_BTD[:, 1:], before_BT)
        return Loss((Term("cross_entropy", *sums), Term("backward", *back, self.config.backward)), state)

    def _cross_entropy(self, h_BTD: Tensor, targets_BT: Tensor) -> tuple[Tensor, Tensor]:
        return linear_cross_entropy(self._dropped(h_BTD), self.head.weight, targets_BT, self.head.bias)

    def _backward_half(self, x_BTD: Tensor, batch: Batch) -> list[Tensor]:
        """The outputs of each layer, in the order of the text. Every row is turned around, its last real word first, so
        that padding stays behind what is read."""
        if batch.unpadded:
            b_LBTD, _ = self.backward_half(x_BTD.flip(1))
            return [b_BTD.flip(1) for b_BTD in b_LBTD]
        places_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        turned_BT = torch.where(batch.mask_BT, -places_T, places_T + 1).argsort(1)
        b_LBTD, _ = self.backward_half(x_BTD.take_along_dim(turned_BT[:, :, None], 1))
        back_BT1 = turned_BT.argsort(1)[:, :, None]
        return [b_BTD.take_along_dim(back_BT1, 1) for b_BTD in b_LBTD]

    def encode(self, batch: Batch, state: RecurrentState | None = None) -> Tensor:
        """hidden_LBTD: the words' vectors twice, then every layer's outputs, forward and backward side by side."""
        x_BTD = self._vectors(batch)
        f_LBTD, _ = self._forward_half(x_BTD, batch, state)
        sides = torch.stack([x_BTD, *f_LBTD]), torch.stack([x_BTD, *self._backward_half(x_BTD, batch)])
        return torch.cat(sides, -1).masked_fill(~batch.mask_BT[:, :, None], 0.0)

    def unembed(self, hidden: Tensor, last: bool = True) -> Tensor:
        """What the forward half of some states predicts."""
        logits: Tensor = self.head(hidden[..., : self.config.width])
        return logits


class Half(nn.Module):
    """Layers of LSTMs in one direction, each but the first added to what it reads."""

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(Recurrent("lstm", width, width, 1, 0.0) for _ in range(layers))

    def zero_state(self, rows: int) -> RecurrentState:
        """Nothing read yet."""
        return _together([layer.zero_state(rows) for layer in self.layers])  # type: ignore[operator]

    def forward(
        self, x_BTD: Tensor, mask_BT: Tensor | None = None, state: RecurrentState | None = None
    ) -> tuple[list[Tensor], RecurrentState]:
        """The outputs of each layer, and the state after each row's last real word."""
        outs, ends = list[Tensor](), list[RecurrentState]()
        for number, layer in enumerate(self.layers):
            parts = () if state is None else (part[number : number + 1].contiguous() for part in state.parts())
            begin = None if state is None else RecurrentState(*parts)
            h_BTD, end = layer(F.dropout(x_BTD, self.dropout, self.training) if number else x_BTD, mask_BT, begin)
            x_BTD = h_BTD + x_BTD if number else h_BTD
            outs.append(x_BTD)
            ends.append(end)
        return outs, _together(ends)


def _together(states: Sequence[RecurrentState]) -> RecurrentState:
    return RecurrentState(*(torch.cat(parts) for parts in zip(*(state.parts() for state in states), strict=True)))

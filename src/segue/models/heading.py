"""Fine-tuning: a new head on a body, which is another run's model that reads the text (model.body).

The body is any model with hidden states: bert, elmo, t5, gpt, rnn_lm. Its weights are the run's own, under `body.`; the
run of the body is read once, when training begins. With `frozen` the body stays as it is, and its states are computed
once for each row; with `layers` only its last layers learn (gradual unfreezing, Howard and Ruder 2018, in one step).

    x = gamma · sum over layers of softmax(s)_l h_l     with mix: the head reads a learnt mix of all layers (ELMo:
                                                        Peters et al. 2018), not the last one alone
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.codec import BodySpec
from segue.batches.store import Columns
from segue.errors import InputError
from segue.layers.probe import recording
from segue.models import model_class
from segue.models.base import Sizes, config_of
from segue.models.network import Network

AT_ONCE = 1 << 14
"""Tokens that the body reads at once, if a batch has texts of several windows."""


def make_body(spec: BodySpec, dropout: float) -> Network:
    """Make the body, with random weights. It is fine-tuned with the dropout of the head: text that is read once needs
    none, so that a body may have been trained without, and some thousand labelled rows do."""
    cls: Any = model_class(spec.kind)
    config = config_of(cls.Config, spec.config)
    return cast(Network, cls(replace(config, dropout=dropout), spec.sizes))


def check_learning(frozen: bool, layers: int, dropout: float) -> None:
    """Refuse settings of a head that no body can have."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout = {dropout}: must be at least 0 and less than 1")
    if layers < 0:
        raise ValueError(f"layers = {layers}: must be 0 or more")
    if frozen and layers:
        raise ValueError(f"layers = {layers} learn, and frozen = true lets none learn: leave one out")


class LayerMix(nn.Module):
    """gamma · sum of softmax(s)_l h_l over the layers; equal weights, the mean, at first."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden: Tensor) -> Tensor:
        mixed: Tensor = torch.tensordot(self.scores.softmax(0), hidden, 1)
        return self.gamma * mixed


class Heading(Network):
    """A body with a head, a linear layer. A subclass says which states its head reads (`select`); its Config has body,
    frozen, mix, layers and dropout."""

    framed = True
    body: Any
    """A Network that is a Body."""

    def __init__(self, config: Any, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        if sizes.body is None:
            raise InputError("This model puts a head on the model of another run: name the run, model.body=runs/bert")
        self.body = make_body(sizes.body, config.dropout)
        if config.layers > self.body.depth - 1:
            raise InputError(
                f"model.layers={config.layers} of the body's last layers should learn, and it has "
                f"{self.body.depth - 1}. Leave model.layers out, and all of them learn."
            )
        self.mix = LayerMix(self.body.depth) if config.mix else None
        layers = self.body.layers_of()
        for name, parameter in self.body.named_parameters():
            parameter.requires_grad_(self._learns(name, layers[name]))
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.body.width, self.outputs)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @property
    def outputs(self) -> int:
        """Numbers that the head computes from a state."""
        return self.sizes.classes

    def _learns(self, name: str, layer: int) -> bool:
        """Whether a parameter of the body learns. What predicts tokens is not used, and so stays as it is."""
        if self.config.frozen or name.startswith(self._unused()):
            return False
        return not self.config.layers or layer > self.body.depth - 1 - self.config.layers

    def _unused(self) -> tuple[str, ...]:
        """First parts of the names of the body's parameters that this head has no use for."""
        names: tuple[str, ...] = (*self.body.head_names, *self.body.beside_states)
        return names

    def train(self, mode: bool = True) -> Heading:
        """A frozen body has no dropout, and draws no random numbers."""
        super().train(mode)
        if self.config.frozen:
            self.body.eval()
        return self

    @abstractmethod
    def select(self, hidden_LBTD: Tensor, batch: Batch) -> Tensor:
        """Return the states that the head reads, hidden_LBND, of rows that are one window each."""

    def places(self, batch: Batch) -> Tensor | None:
        """Return the places of the states that the head reads, places_BN, so that a body may leave out others; None:
        `select` needs all."""
        return None

    def states(self, batch: Batch) -> Tensor:
        """Compute x_BND: the states that the head reads, of the last layer or a mix of all; rows of several windows
        have those of each window, one after the other."""
        if batch.hidden_BND is None:
            hidden_LBND = self.read(batch)
        else:
            hidden_LBND = batch.hidden_BND.unflatten(-1, (-1, self.body.width)).movedim(2, 0)
        return hidden_LBND[0] if self.mix is None else self.mix(hidden_LBND)

    def states_in(self, columns: Columns) -> NDArray[np.int64] | None:
        """Count the states of each row that the head reads, to keep them if the body is frozen; None: they are not
        kept."""
        return None

    def read(self, batch: Batch) -> Tensor:
        """Compute hidden_LBND, before the mix: what is computed once for each row if the body is frozen."""
        batch = replace(batch, right_padded=True)  # so that a recurrent body need not ask the device about the mask
        with torch.no_grad() if self.config.frozen else nullcontext():
            rows, length = batch.tokens_BT.shape
            window = self.sizes.window
            if not window or length <= window:
                return self._selected(batch)
            count = -(-length // window)
            hidden = self._in_parts(_windows(batch, count, window))
            return hidden.reshape(hidden.shape[0], rows, -1, hidden.shape[-1])

    def _selected(self, batch: Batch) -> Tensor:
        if self.mix is not None:
            return self.select(self.body.encode(batch), batch)
        places_BN = None if recording() else self.places(batch)  # what looks inside wants all places
        if places_BN is not None:
            hidden_BND: Tensor = self.body.states_at(batch, places_BN)
            return hidden_BND[None]
        return self.select(self.body.last_layer(batch)[None], batch)

    def _in_parts(self, batch: Batch) -> Tensor:
        """Read many windows, some at a time. In training their states are computed again for the gradient, so that
        memory does not grow with the length of the longest text."""
        size = max(1, AT_ONCE // batch.tokens_BT.shape[1])
        parts = [batch.rows(slice(i, i + size)) for i in range(0, len(batch.tokens_BT), size)]
        if len(parts) == 1 or not torch.is_grad_enabled():
            return torch.cat([self._selected(part) for part in parts], 1)
        from torch.utils.checkpoint import checkpoint

        return torch.cat([checkpoint(self._selected, part, use_reentrant=False) for part in parts], 1)


def _windows(batch: Batch, count: int, window: int) -> Batch:
    """Lay out each window as a row of its own. One that is padding alone gets a real token, or attention to nothing
    would give NaN."""

    def laid_out(array: Any) -> Any:
        room = count * window - array.shape[1]
        return F.pad(array, (*[0] * (2 * array.dim() - 4), 0, room)).reshape(-1, window, *array.shape[2:])

    mask = laid_out(batch.mask_BT)
    mask[:, 0] = True
    segments = None if batch.segments_BT is None else laid_out(batch.segments_BT)
    tokens = laid_out(batch.tokens_BT)
    chars = None if batch.chars_BTC is None else laid_out(batch.chars_BTC)
    inner = replace(batch, tokens_BT=tokens, mask_BT=mask, segments_BT=segments, chars_BTC=chars, unpadded=False)
    return replace(inner, targets=tokens.new_zeros(len(tokens)), count=len(tokens))

"""Recurrent layers: Elman, LSTM and GRU, from their equations.

x_t is the input, h the hidden state, c the LSTM's memory; W reads the input, U the state; s is the logistic function.

    Elman (1990)                             h_t = phi(W x_t + U h_{t-1} + b)        phi: tanh, ReLU or s
    LSTM (Hochreiter and Schmidhuber 1997,   i, f, o = s(W x_t + U h_{t-1} + b)      one W, U, b for each gate
          forget gate: Gers 2000)            g   = tanh(W_g x_t + U_g h_{t-1} + b_g)
                                             c_t = f * c_{t-1} + i * g
                                             h_t = o * tanh(c_t)
    GRU (Cho 2014)                           z, r = s(W x_t + U h_{t-1} + b)
                                             n   = tanh(W_n x_t + U_n (r * h_{t-1}) + b_n)            reset "before"
                                             n   = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + b'_n))     reset "after"
                                             h_t = (1 - z) * h_{t-1} + z * n

Weights are torch's: one matrix holds all gates (i, f, g, o; r, k, n) and there are two biases, b_ih and b_hh, which are
added, so that a layer has one bias a unit more than the equations. A GRU's rows k are z's with the sign changed, since
what stays is k = 1 - z = s(-(W_z x + U_z h + b_z)).

`Recurrent` runs torch's fused kernel wherever that is the same function: Elman with tanh or ReLU, LSTM, GRU with reset
"after" (reset "before" is another function: no weights make them equal). The others, and every layer while a probe
records, run the cells below step by step, from the same weights.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from segue.batches.state import Carried, OneToken
from segue.layers.probe import probe, recording

Cell = Literal["elman", "lstm", "gru"]
Activation = Literal["tanh", "relu", "logistic"]
Reset = Literal["after", "before"]

Parts = tuple[Tensor, ...]
"""What a cell carries from step to step: (h,), or (h, c) for the LSTM."""
Gates = dict[str, Tensor]
Weights = dict[str, Tensor]


def elman_cell(x_BD: Tensor, h_BD: Tensor, U_DD: Tensor, b_D: Tensor, activation: Activation) -> tuple[Parts, Gates]:
    """One step; `x_BD` is W x + b already."""
    a_BD = x_BD + F.linear(h_BD, U_DD, b_D)
    if activation == "tanh":
        h_BD = a_BD.tanh()
    else:
        h_BD = a_BD.relu() if activation == "relu" else a_BD.sigmoid()
    return (h_BD,), {"hidden": h_BD}


def lstm_cell(x_BG: Tensor, h_BD: Tensor, c_BD: Tensor, U_GD: Tensor, b_G: Tensor) -> tuple[Parts, Gates]:
    """One step; `x_BG` is W x + b already, for the gates i, f, g, o side by side."""
    i_BD, f_BD, g_BD, o_BD = (x_BG + F.linear(h_BD, U_GD, b_G)).chunk(4, dim=-1)
    i_BD, f_BD, g_BD, o_BD = i_BD.sigmoid(), f_BD.sigmoid(), g_BD.tanh(), o_BD.sigmoid()
    c_BD = f_BD * c_BD + i_BD * g_BD
    h_BD = o_BD * c_BD.tanh()
    gates = {"input": i_BD, "forget": f_BD, "candidate": g_BD, "output": o_BD, "cell": c_BD, "hidden": h_BD}
    return (h_BD, c_BD), gates


def gru_cell(x_BG: Tensor, h_BD: Tensor, U_GD: Tensor, b_G: Tensor, reset: Reset) -> tuple[Parts, Gates]:
    """One step; `x_BG` is W x + b already, for r, k, n side by side."""
    width = h_BD.shape[-1]
    xr_BD, xk_BD, xn_BD = x_BG.chunk(3, dim=-1)
    if reset == "after":
        hr_BD, hk_BD, hn_BD = F.linear(h_BD, U_GD, b_G).chunk(3, dim=-1)
        r_BD = (xr_BD + hr_BD).sigmoid()
        n_BD = (xn_BD + r_BD * hn_BD).tanh()
    else:
        hr_BD, hk_BD = F.linear(h_BD, U_GD[: 2 * width], b_G[: 2 * width]).chunk(2, dim=-1)
        r_BD = (xr_BD + hr_BD).sigmoid()
        n_BD = (xn_BD + F.linear(r_BD * h_BD, U_GD[2 * width :], b_G[2 * width :])).tanh()
    k_BD = (xk_BD + hk_BD).sigmoid()
    h_BD = k_BD * h_BD + (1 - k_BD) * n_BD
    return (h_BD,), {"update": 1 - k_BD, "reset": r_BD, "candidate": n_BD, "hidden": h_BD}


@dataclass(frozen=True)
class RecurrentState(Carried):
    """h (and c) of each layer and direction, carried between batches or steps."""

    h_LBD: Tensor
    c_LBD: Tensor | None = None

    def parts(self) -> Parts:
        return (self.h_LBD,) if self.c_LBD is None else (self.h_LBD, self.c_LBD)

    def kept(self) -> Parts:
        """What no step changes: nothing."""
        return ()

    def copy(self) -> RecurrentState:
        """The same in memory of its own."""
        return RecurrentState(*(part.clone() for part in self.parts()))

    @property
    def rows(self) -> Tensor:
        return torch.arange(self.h_LBD.shape[1], device=self.h_LBD.device)

    def select(self, rows: Tensor, same_text: bool = False) -> RecurrentState:
        return RecurrentState(*(part.index_select(1, rows) for part in self.parts()))

    def join(self, others: Sequence[RecurrentState]) -> RecurrentState:
        states = [self.parts(), *(other.parts() for other in others)]
        return RecurrentState(*(torch.cat(part, 1) for part in zip(*states, strict=True)))

    def detach(self) -> RecurrentState:
        """Cut backpropagation through time here: the same values, without their gradient."""
        return RecurrentState(*(part.detach() for part in self.parts()))

    def forget(self, fresh_B: Tensor) -> RecurrentState:
        return RecurrentState(*(part.masked_fill(fresh_B[None, :, None], 0.0) for part in self.parts()))

    def tensors(self) -> dict[str, Tensor]:
        return dict(zip(("h", "c"), self.parts(), strict=False))

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> RecurrentState:
        return cls(tensors["h"], tensors.get("c"))


class RecurrentStep(OneToken):
    """One token of each row at a time, with h (and c) always in the same memory, so that a GPU can record it."""

    most = 0

    def __init__(self, state: Any, step: Callable[[Tensor, Any], tuple[Tensor, Any]]) -> None:
        """`state` has `parts`, which a step changes, `kept`, which it does not, and `copy`; `step` reads tokens_BT and
        gives logits_BV and the next state."""
        self.memory, self.step = state.copy(), step

    @property
    def room(self) -> int:
        """No limit: a recurrent network has no window."""
        return sys.maxsize

    def take(self, state: Any) -> None:
        own, other = ((*one.parts(), *one.kept()) for one in (self.memory, state))
        for mine, theirs in zip(own, other, strict=True):
            mine.copy_(theirs)

    def state(self) -> Any:
        return self.memory.copy()

    def move(self, rows_B: Tensor, beams: int) -> None:
        self.memory = self.memory.select(rows_B, same_text=len(rows_B) == len(self.memory.rows))

    def reorder(self, rows_B: Tensor) -> None:
        for own, new in zip(self.memory.parts(), self.memory.select(rows_B, same_text=True).parts(), strict=True):
            own.copy_(new)

    @torch.inference_mode()
    def feed(self, ids_B: Tensor) -> Tensor:
        return self.read(ids_B, 0)

    def read(self, ids_B: Tensor, seen: int, even: bool = False) -> Tensor:
        logits_BV, state = self.step(ids_B[:, None], self.memory)
        for own, new in zip(self.memory.parts(), state.parts(), strict=True):
            own.copy_(new)
        return logits_BV


class Recurrent(nn.Module):
    """Layers of one cell over time. With `bidirectional` a second set reads from the end; outputs stand together."""

    def __init__(
        self,
        cell: Cell,
        input_width: int,
        width: int,
        layers: int,
        dropout: float,
        *,
        activation: Activation = "tanh",
        reset: Reset = "after",
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.cell, self.activation, self.reset = cell, activation, reset
        self.width, self.layers, self.dropout = width, layers, dropout
        self.directions = 2 if bidirectional else 1
        self.fused = {"elman": activation != "logistic", "lstm": True, "gru": reset == "after"}[cell]
        self.core = self._core(input_width, bidirectional)
        self._initialise()

    def _core(self, input_width: int, bidirectional: bool) -> nn.RNNBase:
        """torch's module: it holds the weights for both ways of running, and is the fused one."""
        phi = "relu" if self.activation == "relu" else "tanh"
        kernels: dict[Cell, Callable[..., nn.RNNBase]] = {
            "elman": partial(nn.RNN, nonlinearity=phi),
            "lstm": nn.LSTM,
            "gru": nn.GRU,
        }
        return kernels[self.cell](
            input_width,
            self.width,
            self.layers,
            batch_first=True,
            dropout=self.dropout if self.layers > 1 else 0.0,
            bidirectional=bidirectional,
        )

    def _initialise(self) -> None:
        """W after Glorot, gate by gate, and U as torch does; biases 0 but for a forget gate's.

        That one has 1 in ONE of torch's two biases, so the gate begins at s(1) = .731. An orthogonal U was
        tried on characters and learnt no faster.
        """
        for name, parameter in self.core.named_parameters():
            if name.startswith("weight_ih"):
                for gate in parameter.data.chunk(len(parameter) // self.width):
                    nn.init.xavier_uniform_(gate)
            elif name.startswith("bias"):
                nn.init.zeros_(parameter)
                if self.cell == "lstm" and name.startswith("bias_ih"):
                    nn.init.ones_(parameter.data[self.width : 2 * self.width])

    def zero_state(self, rows: int) -> RecurrentState:
        """Nothing read yet."""
        like = next(self.core.parameters())
        h_LBD = like.new_zeros(self.layers * self.directions, rows, self.width)
        return RecurrentState(h_LBD, torch.zeros_like(h_LBD) if self.cell == "lstm" else None)

    def forward(
        self,
        x_BTD: Tensor,
        mask_BT: Tensor | None = None,
        state: RecurrentState | None = None,
        weights: Weights | None = None,
    ) -> tuple[Tensor, RecurrentState]:
        """The last layer's outputs, 0 where the mask is False, and the state after each row's last real token.

        `weights` stand, for this once, in the place of those of the same names.
        """
        if not self.fused or recording():
            out_LBTD, state = self.all_layers(x_BTD, mask_BT, state, weights)
            return out_LBTD[-1], state
        state = state or self.zero_state(len(x_BTD))
        if mask_BT is None or bool(mask_BT.all()):
            return self._run(x_BTD, state, weights)
        return self._fused_masked(x_BTD, mask_BT, state, weights)

    def _run(
        self, x: Tensor, state: RecurrentState, weights: Weights | None, sizes_T: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """The fused kernel over rows, or over packed ones, of which `sizes_T` go on at each time.

        Half precision is bfloat16, as everywhere; left to itself, autocast would take float16 here.
        """
        half = x.is_cuda and torch.is_autocast_enabled("cuda")
        if weights is None and not half and sizes_T is None:
            out, hidden = self.core(x, self._to_core(state))
            return out, self._from_core(hidden)
        kernel = {"lstm": "lstm", "gru": "gru", "elman": f"rnn_{self.activation}"}[self.cell]
        own = dict(self.core.named_parameters()) | (weights or {})
        flat = [own[name] for name in self.core._flat_weights_names]  # type: ignore[attr-defined]
        parts = state.parts()
        if half:
            x, flat = x.to(torch.bfloat16), [weight.to(torch.bfloat16) for weight in flat]
            parts = tuple(part.to(torch.bfloat16) for part in parts)
        hidden = parts if self.cell == "lstm" else parts[0]
        first = (x, hidden) if sizes_T is None else (x, sizes_T, hidden)
        last = (True, self.layers, self.core.dropout, self.training, self.directions == 2)
        with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "RNN module weights")  # a copy of them is made here in any case
            out, *ends = getattr(torch._VF, kernel)(*first, flat, *last, *([True] if sizes_T is None else []))
        return out, RecurrentState(*(end.to(state.h_LBD.dtype) for end in ends))

    def _to_core(self, state: RecurrentState) -> Tensor | Parts:
        return state.parts() if self.cell == "lstm" else state.h_LBD

    def _from_core(self, hidden: Tensor | Parts) -> RecurrentState:
        return RecurrentState(*hidden) if self.cell == "lstm" else RecurrentState(hidden)  # type: ignore[arg-type]

    def _fused_masked(
        self, x_BTD: Tensor, mask_BT: Tensor, state: RecurrentState, weights: Weights | None
    ) -> tuple[Tensor, RecurrentState]:
        """Since padding leaves the state as it is, the real tokens can move to the front, and the rest be left out."""
        order_BT = torch.argsort(~mask_BT, dim=1, stable=True)
        lengths_B = mask_BT.sum(1)
        packed = pack_padded_sequence(
            x_BTD.take_along_dim(order_BT[:, :, None], 1),
            lengths_B.clamp(min=1).cpu(),  # a row must have a token; what an empty one did is undone below
            batch_first=True,
            enforce_sorted=False,
        )
        data, sizes_T, sorted_B, unsorted_B = packed
        assert sorted_B is not None and unsorted_B is not None  # since it was not sorted
        out, end = self._run(data, state.select(sorted_B), weights, sizes_T)
        end = end.select(unsorted_B)
        packed = PackedSequence(out, sizes_T, sorted_B, unsorted_B)
        out_BTD, _ = pad_packed_sequence(packed, batch_first=True, total_length=x_BTD.shape[1])
        out_BTD = out_BTD.take_along_dim(order_BT.argsort(dim=1)[:, :, None], 1)
        some_LBD = (lengths_B > 0)[None, :, None]
        pairs = zip(end.parts(), state.parts(), strict=True)
        return (
            out_BTD.masked_fill(~mask_BT[:, :, None], 0.0),
            RecurrentState(*(torch.where(some_LBD, new, old) for new, old in pairs)),
        )

    def all_layers(
        self,
        x_BTD: Tensor,
        mask_BT: Tensor | None = None,
        state: RecurrentState | None = None,
        weights: Weights | None = None,
    ) -> tuple[Tensor, RecurrentState]:
        """Every layer's outputs, and the state: the same as `forward`, written out step by step."""
        own = dict(self.core.named_parameters()) | (weights or {})
        state = state or self.zero_state(len(x_BTD))
        if mask_BT is not None and bool(mask_BT.all()):
            mask_BT = None
        outs, ends = [], []
        for layer in range(self.layers):
            if layer > 0:
                x_BTD = F.dropout(x_BTD, self.dropout, self.training)
            sides = []
            for index in range(layer * self.directions, (layer + 1) * self.directions):
                out_BTD, end = self._sweep(x_BTD, mask_BT, index, tuple(part[index] for part in state.parts()), own)
                sides.append(out_BTD)
                ends.append(end)
            x_BTD = torch.cat(sides, dim=-1)
            outs.append(x_BTD)
        return torch.stack(outs), RecurrentState(*(torch.stack(part) for part in zip(*ends, strict=True)))

    def _sweep(
        self, x_BTD: Tensor, mask_BT: Tensor | None, index: int, parts: Parts, own: Weights
    ) -> tuple[Tensor, Parts]:
        """One layer in one direction, `index` = layer * directions + direction, over all time."""
        layer, backward = divmod(index, self.directions)
        suffix = f"_l{layer}{'_reverse' if backward else ''}"
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        W, U, b, b_state = (own[name + suffix] for name in names)
        x_T = F.linear(x_BTD, W, b).unbind(1)
        real_T = None if mask_BT is None else mask_BT[:, :, None].unbind(1)
        gates_T: list[Gates] = [{}] * len(x_T)
        out_T = list(x_T)
        for t in reversed(range(len(x_T))) if backward else range(len(x_T)):
            new, gates_T[t] = self._step(x_T[t], parts, U, b_state)
            if real_T is not None:
                new = tuple(torch.where(real_T[t], n, old) for n, old in zip(new, parts, strict=True))
            parts = new
            out_T[t] = parts[0]
        if recording():
            probe("gates", {name: torch.stack([g[name] for g in gates_T], 1).detach() for name in gates_T[0]})
        out_BTD = torch.stack(out_T, 1)
        return out_BTD if mask_BT is None else out_BTD.masked_fill(~mask_BT[:, :, None], 0.0), parts

    def _step(self, x_BG: Tensor, parts: Parts, U: Tensor, b: Tensor) -> tuple[Parts, Gates]:
        if self.cell == "elman":
            return elman_cell(x_BG, parts[0], U, b, self.activation)
        if self.cell == "gru":
            return gru_cell(x_BG, parts[0], U, b, self.reset)
        return lstm_cell(x_BG, parts[0], parts[1], U, b)

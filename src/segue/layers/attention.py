"""Causal self-attention with several heads (Vaswani et al. 2017), from its equations.

For each head, with d_k its width and x_t the vector at place t:

    q_t = W_q x_t + b_q         k_t = W_k x_t + b_k         v_t = W_v x_t + b_v
    a_tj = exp(q_t · k_j / sqrt(d_k)) / sum over i <= t of exp(q_t · k_i / sqrt(d_k))          for j <= t, else 0
    x'_t = sum over j <= t of a_tj v_j

This is scaled dot-product attention; the condition j <= t is the causal mask. The heads' x'_t stand side by side. So
far the lectures; the paper, and every Transformer since, multiplies them by one more matrix, W_O, which lets the heads
mix. One matrix `qkv` holds W_q, W_k and W_v of all heads, in that order.

Nothing here knows where a token stands: what tells it is added to x_t, turns q and k, or is added to the scores
(layers/position.py). The fused kernel runs, except while a probe records: then the weights exist, and are shown.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from segue.layers.position import Rotation, rotate
from segue.layers.probe import probe, recording

_UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""cuDNN's kernel is faster, but takes up to a second for each new shape: it is left to compiled steps, all of one."""


def looking() -> bool:
    """Whether a probe records. A compiled graph cannot ask, and shows nothing."""
    return not torch.compiler.is_compiling() and recording()


def attention_weights(q_BHTK: Tensor, k_BHSK: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """a_BHTS: the softmax of the scores q · k times `scale`, which is 1 / sqrt(d_k) unless it is given.

    `bias` is added to the scores, or says with True which of them count; without one, each place sees those before it
    and itself.
    """
    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale
    scores_BHTS = q_BHTK @ k_BHSK.mT * scale
    if bias is None:
        bias = causal(q_BHTK.shape[-2], q_BHTK.device)
    if bias.dtype == torch.bool:
        scores_BHTS = scores_BHTS.masked_fill(~bias, -math.inf)
    else:
        scores_BHTS = scores_BHTS + bias
    return scores_BHTS.softmax(-1)


def causal(length: int, device: torch.device) -> Tensor:
    """sees_TS: True where the place in the row may see that in the column, which is itself and all before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def attend(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """x'_BHTK: the values, weighed. `bias` as in `attention_weights`; `dropout` is of the weights."""
    if looking():
        a_BHTS = attention_weights(q_BHTK, k_BHSK, bias)
        probe("attention", a_BHTS.detach())
        return F.dropout(a_BHTS, dropout) @ v_BHSK
    ahead = bias is None and q_BHTK.shape[-2] > 1  # one place alone is the last, and sees all
    with nullcontext() if torch.compiler.is_compiling() or not q_BHTK.is_cuda else sdpa_kernel(_UNPLANNED):
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, bias, dropout, is_causal=ahead)


class Past(NamedTuple):
    """The keys and values of one layer that were read before, and where the new ones go.

    A row is true up to its own length; what stands beyond waits to be written over.
    """

    k_BHSK: Tensor
    v_BHSK: Tensor
    places_BT: Tensor | None
    """Where each new one goes; None: in all rows they are the last of the places that are seen."""
    seen: int
    """Places that may hold something once the new ones are written."""

    def joined(self, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, after the new ones were written to their places."""
        for kept_BHSK, new_BHTK in ((self.k_BHSK, k_BHTK), (self.v_BHSK, v_BHTK)):
            if self.places_BT is None:
                kept_BHSK[:, :, self.seen - new_BHTK.shape[2] : self.seen] = new_BHTK
            else:
                places_BHTK = self.places_BT[:, None, :, None].expand_as(new_BHTK)
                kept_BHSK.scatter_(2, places_BHTK, new_BHTK.to(kept_BHSK.dtype))
        return self.k_BHSK[:, :, : self.seen], self.v_BHSK[:, :, : self.seen]


class Attention(nn.Module):
    """Self-attention of a layer; its heads together may be wider or narrower than the layer."""

    def __init__(self, width: int, heads: int, head_width: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * heads * head_width)
        self.out = nn.Linear(heads * head_width, width)

    def forward(
        self, x_BTD: Tensor, bias: Tensor | None = None, rotation: Rotation | None = None, past: Past | None = None
    ) -> Tensor:
        """`bias` as in `attention_weights`."""
        q_BHTK, k_BHTK, v_BHTK = self.qkv(x_BTD).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            q_BHTK, k_BHTK = rotate(q_BHTK, rotation), rotate(k_BHTK, rotation)
        if past is not None:
            k_BHTK, v_BHTK = past.joined(k_BHTK, v_BHTK)
        y_BHTK = attend(q_BHTK, k_BHTK, v_BHTK, bias, self.dropout if self.training else 0.0)
        out: Tensor = self.out(y_BHTK.transpose(1, 2).flatten(2))
        return out

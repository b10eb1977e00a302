"""Attention with several heads (Vaswani et al. 2017), from its equations: self-attention and cross-attention.

For each head, with d_k its width and x_t the vector at place t:

    q_t = W_q x_t + b_q         k_t = W_k x_t + b_k         v_t = W_v x_t + b_v
    a_tj = exp(q_t · k_j / sqrt(d_k)) / sum over i of exp(q_t · k_i / sqrt(d_k))      i, j: the places that t may see
    x'_t = sum over j of a_tj v_j                                                     0 where t may see no place

With the causal mask, t sees itself and the places before it; without it, all places. In cross-attention k_j and v_j are
of another sequence, the memory (what an encoder has made of the source); they are computed once.

This is scaled dot-product attention; the condition j <= t is the causal mask. The heads' x'_t stand side by side. So
far the lectures; the paper, and every Transformer since, multiplies them by one more matrix, W_O, which lets the heads
mix. One matrix `qkv` holds W_q, W_k and W_v of all heads, in that order.

Nothing here knows where a token stands: what tells it is added to x_t, turns q and k, or is added to the scores
(layers/position.py). The fused kernel runs, except while a probe records: the weights a_tj exist only then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from segue.layers.kv_cache import LayerCache
from segue.layers.position import Rotation, rotate
from segue.layers.probe import probe, recording

_UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""cuDNN's kernel is faster, but plans up to a second for each new shape: only compiled steps, all of one shape, use it.
"""

# Arguments of the functions below, for the scores of T queries and S keys:
#   causal   each query sees itself and the keys before it; the queries are the last T of the S places
#   mask     True at the keys that may be seen: (B, 1, 1, S), or anything that broadcasts to (B, H, T, S)
#   bias     numbers that are added to the scores, of a shape that broadcasts so too
#   scale    what q · k is multiplied by; None: 1 / sqrt(d_k)


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    *,
    causal: bool,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    probe_name: str = "attention",
) -> Tensor:
    """x'_BHTK: the weighted values, 0 for a query that sees no key. `dropout` is of the weights."""
    if recording():
        a_BHTS = attention_weights(q_BHTK, k_BHSK, causal=causal, mask=mask, bias=bias, scale=scale)
        probe(probe_name, a_BHTS.detach())
        return F.dropout(a_BHTS, dropout) @ v_BHSK
    length, seen = q_BHTK.shape[-2], k_BHSK.shape[-2]
    alone = causal and length == seen and mask is None and bias is None  # the kernel then makes the causal mask itself
    given = None if alone else _merged(length, seen, causal, mask, bias, q_BHTK.device)
    with nullcontext() if torch.compiler.is_compiling() or not q_BHTK.is_cuda else sdpa_kernel(_UNPLANNED):
        # Asked by `if`: compiled for any shape, a comparison of lengths is a symbol, which the kernel refuses.
        if alone and length > 1:
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, None, dropout, is_causal=True, scale=scale)
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, given, dropout, scale=scale)


def attention_weights(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    *,
    causal: bool,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """a_BHTS: the softmax of the scores, 0 for a query that sees no key."""
    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale
    scores_BHTS = q_BHTK @ k_BHSK.mT * scale
    given = _merged(q_BHTK.shape[-2], k_BHSK.shape[-2], causal, mask, bias, q_BHTK.device)
    if given is not None and given.dtype == torch.bool:
        scores_BHTS = scores_BHTS.masked_fill(~given, -math.inf)
    elif given is not None:
        scores_BHTS = scores_BHTS + given
    empty_BHT1 = (scores_BHTS == -math.inf).all(-1, keepdim=True)
    # Filled before the softmax too: its gradient would be NaN.
    return scores_BHTS.masked_fill(empty_BHT1, 0.0).softmax(-1).masked_fill(empty_BHT1, 0.0)


def causal_mask(length: int, seen: int, device: torch.device) -> Tensor:
    """sees_TS: True at the keys that each of the last `length` of `seen` places may see, itself and all before it."""
    return torch.ones(length, seen, dtype=torch.bool, device=device).tril(seen - length)


def _merged(
    length: int, seen: int, causal: bool, mask: Tensor | None, bias: Tensor | None, device: torch.device
) -> Tensor | None:
    """Causal mask, mask and bias as one tensor: boolean, or numbers if there is a bias. None: every key is seen."""
    if causal and length > 1:
        sees_TS = causal_mask(length, seen, device)
        mask = sees_TS if mask is None else mask & sees_TS
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias.masked_fill(~mask, -math.inf)


class SelfAttention(nn.Module):
    """Self-attention of a layer; its heads together may be wider or narrower than the layer."""

    usual: ClassVar[bool] = True
    """Whether its weights are `qkv` and `out`, which code for one token a row reads (layers/one_token.py)."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        dropout: float,
        *,
        causal: bool,
        biases: bool = True,
        scale: float | None = None,
        probe: str = "attention",
    ) -> None:
        super().__init__()
        self._settle(heads, head_width, dropout, causal, scale, probe)
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=biases)
        self.out = nn.Linear(heads * head_width, width, bias=biases)

    def _settle(
        self,
        heads: int,
        head_width: int,
        dropout: float,
        causal: bool,
        scale: float | None = None,
        probe: str = "attention",
    ) -> None:
        self.heads, self.head_width, self.dropout = heads, head_width, dropout
        self.causal, self.scale, self.probe = causal, scale, probe

    def projected(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of every head."""
        q_BHTK, k_BHTK, v_BHTK = self.qkv(x_BTD).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return q_BHTK, k_BHTK, v_BHTK

    def mixed(self, y_BTE: Tensor) -> Tensor:
        """The layer's output from the heads side by side."""
        out: Tensor = self.out(y_BTE)
        return out

    def forward(
        self,
        x_BTD: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
        places_BK: Tensor | None = None,
    ) -> Tensor:
        """`mask` and `bias` as in `attend`. With a cache whose rows are at different places the causal mask depends on
        the row: the bias must then hold it, made once for all layers. `places_BK`: the places that ask, if not all
        do."""
        q_BHTK, k_BHTK, v_BHTK = self.projected(x_BTD) if places_BK is None else self._projected_at(x_BTD, places_BK)
        if rotation is not None:
            k_BHTK = rotate(k_BHTK, rotation)
            q_BHTK = rotate(q_BHTK, rotation if places_BK is None else rotation.at(places_BK))
        if bias is not None and places_BK is not None:
            bias = bias[:, places_BK].transpose(0, 1)
        if cache is not None:
            k_BHTK, v_BHTK = cache.extended(k_BHTK, v_BHTK)
        y_BHTK = attend(
            q_BHTK,
            k_BHTK,
            v_BHTK,
            causal=self.causal and (cache is None or cache.places_BT is None),
            mask=mask,
            bias=bias,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            probe_name=self.probe,
        )
        return self.mixed(y_BHTK.transpose(1, 2).flatten(2))

    def _projected_at(self, x_BTD: Tensor, places_BK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q at some places, k and v at all."""
        ours, biases = self.heads * self.head_width, self.qkv.bias
        of_q, of_kv = (None, None) if biases is None else (biases[:ours], biases[ours:])
        q_BKE: Any = F.linear(taken_at(x_BTD, places_BK), self.qkv.weight[:ours], of_q)
        kv_BTE: Any = F.linear(x_BTD, self.qkv.weight[ours:], of_kv)
        k_BHTK, v_BHTK = kv_BTE.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return q_BKE.unflatten(-1, (self.heads, -1)).transpose(1, 2), k_BHTK, v_BHTK


def taken_at(x_BTD: Tensor, places_BK: Tensor) -> Tensor:
    """The vectors at some places of each row."""
    return x_BTD.gather(1, places_BK[:, :, None].expand(-1, -1, x_BTD.shape[-1]))


class Memory(NamedTuple):
    """The keys and values of a source, for one layer of a decoder."""

    k_BHSK: Tensor
    v_BHSK: Tensor
    mask: Tensor | None
    """(B, 1, 1, S), True at real tokens; None: all are."""
    weights: list[Tensor] | None = None
    """A list that gets the weights a_BTS of every reading, the mean of the heads; None: nobody asks for them."""

    def select(self, rows: Tensor) -> Memory:
        """The memory of these rows."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return Memory(self.k_BHSK.index_select(0, rows), self.v_BHSK.index_select(0, rows), mask)

    def join(self, others: Sequence[Memory]) -> Memory:
        """The rows of all, padded to the longest source."""
        most = max(one.k_BHSK.shape[2] for one in (self, *others))
        every = [one.widened(most) for one in (self, *others)]
        k_BHSK, v_BHSK = (torch.cat(parts) for parts in zip(*(one[:2] for one in every), strict=True))
        return Memory(k_BHSK, v_BHSK, torch.cat([one.real() for one in every]))

    def widened(self, places: int) -> Memory:
        """Padded to so many places, with a mask."""
        more = max(0, places - self.k_BHSK.shape[2])
        k_BHSK, v_BHSK = (F.pad(part, (0, 0, 0, more)) for part in self[:2])
        return Memory(k_BHSK, v_BHSK, F.pad(self.real(), (0, more)))

    def real(self) -> Tensor:
        """The mask, or one that is True everywhere."""
        (rows, _, length, _), device = self.k_BHSK.shape, self.k_BHSK.device
        return torch.ones(rows, 1, 1, length, dtype=torch.bool, device=device) if self.mask is None else self.mask


class CrossAttention(nn.Module):
    """Attention of a decoder's layer to the memory; every place of the memory may be seen."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        dropout: float,
        *,
        biases: bool = True,
        scale: float | None = None,
        probe: str = "cross_attention",
    ) -> None:
        super().__init__()
        self.heads, self.dropout, self.scale, self.probe = heads, dropout, scale, probe
        self.q = nn.Linear(width, heads * head_width, bias=biases)
        self.kv = nn.Linear(width, 2 * heads * head_width, bias=biases)
        self.out = nn.Linear(heads * head_width, width, bias=biases)

    def memory(self, m_BSD: Tensor, mask: Tensor | None = None) -> Memory:
        """Compute the keys and values of a source once, for all steps. `mask`: (B, 1, 1, S)."""
        k_BHSK, v_BHSK = self.kv(m_BSD).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return Memory(k_BHSK, v_BHSK, mask)

    def forward(self, x_BTD: Tensor, memory: Memory, beams: int = 1) -> Tensor:
        """x has `beams` rows for each row of the memory, side by side. They stand one after the other in the time of
        the queries, so that nobody copies the memory for each beam."""
        (rows, length, width), sources = x_BTD.shape, len(x_BTD) // beams
        folded_BTD = x_BTD.reshape(sources, beams * length, width)
        q_BHTK = self.q(folded_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        k_BHSK, v_BHSK, mask, weights = memory
        if weights is None:
            y_BHTK = attend(
                q_BHTK,
                k_BHSK,
                v_BHSK,
                causal=False,
                mask=mask,
                scale=self.scale,
                dropout=dropout,
                probe_name=self.probe,
            )
        else:  # fused kernels give none
            a_BHTS = attention_weights(q_BHTK, k_BHSK, causal=False, mask=mask, scale=self.scale)
            probe(self.probe, a_BHTS.detach())
            weights.append(a_BHTS.mean(1).reshape(rows, length, -1))
            y_BHTK = F.dropout(a_BHTS, dropout) @ v_BHSK
        out: Tensor = self.out(y_BHTK.transpose(1, 2).flatten(2))
        return out.reshape(rows, length, width)

"""A step of a beam search on a GPU: a stack for one token of many rows, and the best ids of each, in Triton's language.

The equations are those of transformer.py and attention.py. Matrices are multiplied by torch; kernels do what stands
between them: attention to what was written, which finds keys and values by a map of rows (row_map.py), so that beams
change places without a copy; attention to the source, which beams share; the sum with x and its normalisation; and the
best ids of each row with their log p, in two kernels. x is float32, what matrices read is as their weights are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from segue.layers import best_ids as plain
from segue.layers import one_token_gpu
from segue.layers.attention import Memory
from segue.layers.one_token import Stack
from segue.layers.one_token_gpu import _after, _allowed, _run
from segue.layers.row_map import RowMap
from segue.layers.transformer import Block, FeedForward

PART = 2048
"""Logits of a row that one program looks through."""


@triton.jit
def _attend_source(
    q, keys, values, mask, y, H: tl.constexpr, S, BEAMS, SCALE: tl.constexpr, MASKED: tl.constexpr, K: tl.constexpr,
    BLOCK_S: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """One head of one row looks at the places of its source; 0 if there are none."""
    _after(AHEAD)
    row, head = tl.program_id(0), tl.program_id(1)
    source, k = row // BEAMS, tl.arange(0, K)
    q_K = tl.load(q + (row * H + head) * K + k).to(tl.float32) * SCALE
    begin = (source * H + head).to(tl.int64) * S * K
    most, total, sums_K = -float("inf"), 0.0, tl.zeros([K], tl.float32)
    for first in range(0, S, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        real = s < S
        at = begin + s[:, None] * K + k[None, :]
        key_SK = tl.load(keys + at, mask=real[:, None], other=0.0).to(tl.float32)
        value_SK = tl.load(values + at, mask=real[:, None], other=0.0).to(tl.float32)
        if MASKED:
            real = real & (tl.load(mask + source * S + s, mask=real, other=0) != 0)
        score_S = tl.where(real, tl.sum(key_SK * q_K[None, :], 1), -float("inf"))
        greatest = tl.maximum(most, tl.max(score_S, 0))
        lift = tl.where(greatest == -float("inf"), 0.0, greatest)
        shrink, weight_S = tl.exp(most - lift), tl.exp(score_S - lift)
        total = total * shrink + tl.sum(weight_S, 0)
        sums_K = sums_K * shrink + tl.sum(weight_S[:, None] * value_SK, 0)
        most = greatest
    y_K = sums_K / tl.where(total == 0, 1.0, total)
    tl.store(y + (row * H + head) * K + k, y_K.to(y.dtype.element_ty))


@triton.jit
def _add_norm(
    x, y, gain, shift, z, D: tl.constexpr, EPS: tl.constexpr, ADD: tl.constexpr, POST: tl.constexpr,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """x += y and z = LN(x); with POST x = z = LN(x + y): a row."""
    _after(AHEAD)
    row, d = tl.program_id(0), tl.arange(0, BLOCK)
    real = d < D
    x_D = tl.load(x + row * D + d, mask=real, other=0.0)
    if ADD:
        x_D += tl.load(y + row * D + d, mask=real, other=0.0).to(tl.float32)
    off_D = tl.where(real, x_D - tl.sum(x_D, 0) / D, 0.0)
    scale = tl.rsqrt(tl.sum(off_D * off_D, 0) / D + EPS)
    z_D = off_D * scale * tl.load(gain + d, mask=real, other=0.0).to(tl.float32)
    z_D += tl.load(shift + d, mask=real, other=0.0).to(tl.float32)
    if POST:
        tl.store(x + row * D + d, z_D, mask=real)
    elif ADD:
        tl.store(x + row * D + d, x_D, mask=real)
    tl.store(z + row * D + d, z_D.to(z.dtype.element_ty), mask=real)


class BeamLayers(one_token_gpu.Layers):
    """A stack for one token of any number of rows, over its weights as they lie in memory."""

    @staticmethod
    def fit(stack: Stack, rows: int) -> bool:
        """Whether these kernels can compute such a stack: with residuals and layer norm."""
        block = stack.blocks[0]
        return block.residual and block.norm != "none" and block.attention.head_width in (16, 32, 64, 128)

    def __call__(
        self,
        ids_B: Tensor,
        places_B: Tensor,
        k_LBHSK: Tensor,
        v_LBHSK: Tensor,
        rows: RowMap,
        memories: Sequence[Memory] = (),
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values to their places; x_BD of the last layer, and logits_BV."""
        stack, x_BD, bias_HS = self.stack, self._vectors(ids_B, places_B), self._bias()
        pre = stack.blocks[0].norm == "pre"
        z_BD = x_BD.new_empty(x_BD.shape, dtype=stack.vectors.dtype)
        norms = _norms(stack, pre)
        _normalised(x_BD, None, norms[0], z_BD, post=False) if pre else z_BD.copy_(x_BD)
        after = iter(norms[1:] if pre else norms)
        for i, block in enumerate(stack.blocks):
            qkv = _linear(z_BD, block.attention.qkv)
            y_BD = z_BD.new_empty(len(z_BD), self.heads * self.head_width)
            self._attend(qkv, k_LBHSK[i], v_LBHSK[i], places_B, bias_HS, y_BD, rows.home_BS)
            _normalised(x_BD, _linear(y_BD, block.attention.out), next(after), z_BD, post=not pre)
            if block.cross is not None:
                y_BD = self._look(_linear(z_BD, block.cross.q), block, memories[i])
                _normalised(x_BD, _linear(y_BD, block.cross.out), next(after), z_BD, post=not pre)
            y_BD = _linear(_hidden(z_BD, block.feed), block.feed.down)
            _normalised(x_BD, y_BD, next(after), z_BD, post=not pre)
        return x_BD, _logits(z_BD, stack)

    def _look(self, q_BD: Tensor, block: Block, memory: Memory) -> Tensor:
        """Attention to the source."""
        k_RHSK, v_RHSK, mask = memory[:3]
        assert block.cross is not None and k_RHSK.is_contiguous() and v_RHSK.is_contiguous()
        (sources, heads, places, width), y_BD = k_RHSK.shape, torch.empty_like(q_BD)
        scale = width**-0.5 if block.cross.scale is None else block.cross.scale
        seen = k_RHSK if mask is None else mask.view(torch.uint8)
        _run(
            _attend_source, len(q_BD), (len(q_BD), heads), q_BD, k_RHSK, v_RHSK, seen, y_BD, heads, places,
            len(q_BD) // sources, scale, mask is not None, width, 32, num_warps=1,
        )  # fmt: skip
        return y_BD


def _norms(stack: Stack, pre: bool) -> list[Any]:
    """The norms in the order in which they come; pre-LN ends with that of the stack."""
    parts = [
        norm
        for block in stack.blocks
        for norm in (block.norm_attention, None if block.cross is None else block.norm_cross, block.norm_feed)
        if norm is not None
    ]
    return [*parts, stack.norm] if pre else parts


def _normalised(x_BD: Tensor, y_BD: Tensor | None, norm: Any, z_BD: Tensor, post: bool) -> None:
    (rows, width), added = x_BD.shape, x_BD if y_BD is None else y_BD
    given = (x_BD, added, norm.weight, norm.bias, z_BD, width, norm.eps, y_BD is not None, post)
    _run(_add_norm, rows, (rows,), *given, triton.next_power_of_2(width), num_warps=4)


def _linear(x: Tensor, linear: Any) -> Tensor:
    return F.linear(x, linear.weight, linear.bias)


def _hidden(z_BD: Tensor, feed: FeedForward) -> Tensor:
    up = feed.up
    if feed.activation == "relu" and up.bias is not None:
        relu: Tensor = torch._addmm_activation(up.bias, z_BD, up.weight.T)
        return relu
    return feed.activated(_linear(z_BD, up))


def _logits(z_BD: Tensor, stack: Stack) -> Tensor:
    """In float32: near 10, numbers of bfloat16 lie 0.06 apart."""
    half = z_BD.is_cuda and z_BD.dtype == torch.bfloat16
    out: Tensor = torch.mm(z_BD, stack.out.T, out_dtype=torch.float32) if half else z_BD @ stack.out.T
    return out if stack.bias is None else out + stack.bias


# The best ids of each row


@triton.jit
def _best_of_part(
    logits, forbid, forbidden, best, ids, whole, V, C, N: tl.constexpr, PART: tl.constexpr, AHEAD: tl.constexpr
):
    """Of one part of a row: the best N logits that are allowed, best first, their ids, and log sum exp of all."""
    _after(AHEAD)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = part * PART + tl.arange(0, PART)
    all_V = tl.load(logits + row * V + v, mask=v < V, other=-float("inf"))
    most = tl.max(all_V, 0)
    lift = tl.where(most == -float("inf"), 0.0, most)
    tl.store(whole + row * C + part, lift + tl.log(tl.sum(tl.exp(all_V - lift), 0)))
    left_V = _allowed(logits + row * V, v, V, forbid, forbidden)
    at = (row * C + part) * N
    for n in tl.static_range(N):
        greatest = tl.max(left_V, 0)
        place = tl.min(tl.where(left_V == greatest, v, part * PART + PART), 0)
        tl.store(best + at + n, greatest)
        tl.store(ids + at + n, tl.minimum(place, V - 1).to(tl.int64))
        left_V = tl.where(v == place, -float("inf"), left_V)


@triton.jit
def _best_of_all(
    best, ids, whole, logp, found, C, N: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr, AHEAD: tl.constexpr
):
    """Of a row: the best N of all parts, their log p and ids."""
    _after(AHEAD)
    row, c, m = tl.program_id(0).to(tl.int64), tl.arange(0, PARTS), tl.arange(0, MANY)
    whole_C = tl.load(whole + row * C + c, mask=c < C, other=-float("inf"))
    most = tl.max(whole_C, 0)
    lift = tl.where(most == -float("inf"), 0.0, most)
    total = lift + tl.log(tl.sum(tl.exp(whole_C - lift), 0))
    total = tl.where(most == -float("inf"), 0.0, total)
    left_M = tl.load(best + row * C * N + m, mask=m < C * N, other=-float("inf"))
    id_M = tl.load(ids + row * C * N + m, mask=m < C * N, other=0)
    for n in tl.static_range(N):
        greatest = tl.max(left_M, 0)
        place = tl.min(tl.where(left_M == greatest, m, MANY - 1), 0)
        tl.store(logp + row * N + n, greatest - total)
        tl.store(found + row * N + n, tl.sum(tl.where(m == place, id_M, 0), 0))
        left_M = tl.where(m == place, -float("inf"), left_M)


def best_ids(logits_BV: Tensor, count: int, forbid: Tensor, cost_BV: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """As best_ids.best_ids, for float32; of equally likely ids the lowest comes first."""
    if cost_BV is not None:
        return plain.best_ids(logits_BV, count, forbid, cost_BV)
    (rows, vocab_size), parts = logits_BV.shape, triton.cdiv(logits_BV.shape[1], PART)
    best = logits_BV.new_empty(rows, parts, count)
    ids = forbid.new_empty(rows, parts, count)
    whole, logp_BN, ids_BN = logits_BV.new_empty(rows, parts), best.new_empty(rows, count), ids.new_empty(rows, count)
    given = (logits_BV, forbid, len(forbid), best, ids, whole, vocab_size, parts, count, PART)
    _run(_best_of_part, rows, (rows, parts), *given, num_warps=4)
    sizes = (triton.next_power_of_2(parts), triton.next_power_of_2(parts * count))
    _run(_best_of_all, rows, (rows,), best, ids, whole, logp_BN, ids_BN, parts, count, *sizes, num_warps=1)
    return logp_BN, ids_BN

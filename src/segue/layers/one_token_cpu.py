"""One token of each row through a Transformer on a CPU, each layer one compiled loop.

The equations are those of transformer.py and attention.py. With a token a row, a matrix is read once for a handful of
products, and how fast it comes from memory is what counts. Libraries are made for large matrices; a plain loop, which
takes the matrix row by row in the order in which it lies there, is several times as fast on one core, and no core waits
for another. In float32; numba compiles it at the first use and keeps it on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from segue.compiling import njit
from segue.layers.one_token import Stack
from segue.layers.position import Positions
from segue.layers.transformer import Block

Floats = NDArray[np.float32]
_EPS = 1e-5
_TOGETHER = 4
"""Rows that share what is read of a matrix, and are worth a thread of their own."""

# Sums may be taken in any order; NaN and infinity stay what they are.
_loop = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


class Turns(NamedTuple):
    """What positions do inside a layer: the cosines and sines of each place (rotary), and the bias of each head's
    scores by distance (relative). Empty where a kind has none."""

    cos_SK: Floats
    sin_SK: Floats
    bias_HS: Floats


def _turns(positions: Positions) -> Turns:
    """The tables of a kind of position."""
    context = positions.context
    none = np.zeros((0, 0), np.float32)
    cos_SK, sin_SK, bias_HS = none, none, none
    bias = positions.bias(torch.tensor([context - 1]), context)
    if positions.kind == "rotary":
        cos_SK, sin_SK = (_array(table) for table in (positions.cos_TK, positions.sin_TK))  # type: ignore[arg-type]
    if bias is not None:  # of the last place: the farthest first
        bias_HS = _array(bias[:, 0].flip(-1))
    return Turns(cos_SK, sin_SK, bias_HS)


class Layers:
    """A stack for one token a row. It reads the weights where they lie in memory, so that it sees them train."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.layers = [(_weights(block), _kind(block)) for block in stack.blocks]
        self.turns = _turns(stack.positions)

    def __call__(self, ids_B: Tensor, places_B: Tensor, k_LBHSK: Tensor, v_LBHSK: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values to their places; x_BD of the last layer, and logits_BV."""
        x_B1D = self.stack.scale * F.embedding(ids_B[:, None], self.stack.vectors)
        x_BD = self.stack.positions.add(x_B1D, places_B[:, None])[:, 0].contiguous()
        x, k, v, places = x_BD.numpy(), k_LBHSK.numpy(), v_LBHSK.numpy(), places_B.numpy()

        def run(rows: slice) -> None:
            for i, (weights, kind) in enumerate(self.layers):
                _layer(x[rows], *weights, k[i, rows], v[i, rows], places[rows], *self.turns, *kind)

        _by_rows(run, len(x))
        return x_BD, self._logits(x_BD)

    def _logits(self, x_BD: Tensor) -> Tensor:
        norm, w = self.stack.norm, _array(self.stack.out)
        x = (x_BD if norm is None else norm(x_BD)).numpy()
        y = np.empty((len(x), len(w)), np.float32)
        bias = np.zeros(len(w), np.float32) if self.stack.bias is None else _array(self.stack.bias)
        _by_rows(lambda rows: _linear(x[rows], w, bias, y[rows]), len(x))
        return torch.from_numpy(y)


def _by_rows(run: Callable[[slice], None], rows: int) -> None:
    """Give each thread some rows, which it takes through all layers: no thread waits for another before the end."""
    count = max(1, min(torch.get_num_threads(), rows // _TOGETHER))
    edges = [rows * i // count for i in range(count + 1)]
    first, *others = (slice(*pair) for pair in pairwise(edges))
    under_way = [_pool().submit(run, part) for part in others]
    run(first)
    for part in under_way:
        part.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="rows")


def _weights(block: Block) -> tuple[Floats, ...]:
    attention, feed = block.attention, block.feed
    parts: Any = (block.norm_attention, attention.qkv, attention.out, block.norm_feed, feed.up, feed.down)
    return tuple(_array(part) for module in parts for part in (module.weight, module.bias))


def _kind(block: Block) -> tuple[bool, bool, bool]:
    return block.norm == "pre", block.residual, block.feed.activation == "gelu"


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().contiguous().numpy()
    return array


@_loop
def _layer(
    x_BD: Any,
    norm_1: Any, shift_1: Any, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any,
    norm_2: Any, shift_2: Any, up: Any, up_bias: Any, down: Any, down_bias: Any,
    k_BHSK: Any, v_BHSK: Any, places_B: Any, cos_SK: Any, sin_SK: Any, bias_HS: Any,
    pre: bool, residual: bool, gelu: bool,
) -> None:  # fmt: skip
    y_BD = np.empty_like(x_BD)
    qkv_BE = np.empty((len(x_BD), len(qkv)), np.float32)
    heads_BE = np.empty((len(x_BD), len(qkv) // 3), np.float32)
    h_BF = np.empty((len(x_BD), len(up)), np.float32)
    _norm(x_BD, norm_1, shift_1, y_BD) if pre else _copy(x_BD, y_BD)
    _linear(y_BD, qkv, qkv_bias, qkv_BE)
    _attend(qkv_BE, k_BHSK, v_BHSK, places_B, cos_SK, sin_SK, bias_HS, heads_BE)
    _linear(heads_BE, out, out_bias, y_BD)
    _add(x_BD, y_BD, residual)
    if not pre:
        _norm(x_BD, norm_1, shift_1, x_BD)
    _norm(x_BD, norm_2, shift_2, y_BD) if pre else _copy(x_BD, y_BD)
    _linear(y_BD, up, up_bias, h_BF)
    _activate(h_BF, gelu)
    _linear(h_BF, down, down_bias, y_BD)
    _add(x_BD, y_BD, residual)
    if not pre:
        _norm(x_BD, norm_2, shift_2, x_BD)


@_loop
def _linear(x_BI: Any, w_OI: Any, b_O: Any, y_BO: Any) -> None:
    """y = W x + b. A row of W is taken once for all rows of x; more than one at a time would come slower."""
    rows, ins = x_BI.shape
    fours, zero = rows - rows % 4, np.float32(0)
    for o in range(len(w_OI)):
        for b in range(0, fours, 4):
            s, t, u, v = zero, zero, zero, zero
            for i in range(ins):
                s += w_OI[o, i] * x_BI[b, i]
                t += w_OI[o, i] * x_BI[b + 1, i]
                u += w_OI[o, i] * x_BI[b + 2, i]
                v += w_OI[o, i] * x_BI[b + 3, i]
            y_BO[b, o], y_BO[b + 1, o], y_BO[b + 2, o], y_BO[b + 3, o] = s, t, u, v
        for b in range(fours, rows):
            s = zero
            for i in range(ins):
                s += w_OI[o, i] * x_BI[b, i]
            y_BO[b, o] = s
        for b in range(rows):
            y_BO[b, o] += b_O[o]


@_loop
def _attend(
    qkv_BE: Any, k_BHSK: Any, v_BHSK: Any, places_B: Any, cos_SK: Any, sin_SK: Any, bias_HS: Any, out_BE: Any
) -> None:
    """Write the new keys and values, and sum the weighted values of all places up to the row's own (causal)."""
    rows, heads, _, width = k_BHSK.shape
    scale = np.float32(1 / np.sqrt(width))
    for b in range(rows):
        place = places_B[b]
        weights = np.empty(place + 1, np.float32)
        for h in range(heads):
            q, k_SK, v_SK = qkv_BE[b, h * width : (h + 1) * width], k_BHSK[b, h], v_BHSK[b, h]
            new, most = k_SK[place], np.float32(-np.inf)
            for i in range(width):
                new[i] = qkv_BE[b, (heads + h) * width + i]
                v_SK[place, i] = qkv_BE[b, (2 * heads + h) * width + i]
            if len(cos_SK):
                _rotate(q, cos_SK[place], sin_SK[place])
                _rotate(new, cos_SK[place], sin_SK[place])
            for s in range(place + 1):
                score = np.float32(0)
                for i in range(width):
                    score += q[i] * k_SK[s, i]
                weights[s] = score * scale + (bias_HS[h, place - s] if len(bias_HS) else np.float32(0))
                most = max(most, weights[s])
            total = np.float32(0)
            for s in range(place + 1):
                weights[s] = np.exp(weights[s] - most)
                total += weights[s]
            y = out_BE[b, h * width : (h + 1) * width]
            y[:] = 0
            for s in range(place + 1):
                a = weights[s] / total
                for i in range(width):
                    y[i] += a * v_SK[s, i]


@_loop
def _rotate(x_K: Any, cos_K: Any, sin_K: Any) -> None:
    half = len(x_K) // 2
    for i in range(half):
        a, b = x_K[i], x_K[i + half]
        x_K[i] = a * cos_K[i] - b * sin_K[i]
        x_K[i + half] = b * cos_K[i] + a * sin_K[i]


@_loop
def _norm(x_BD: Any, gamma_D: Any, beta_D: Any, y_BD: Any) -> None:
    width = x_BD.shape[1]
    for b in range(len(x_BD)):
        total, squares = np.float32(0), np.float32(0)
        for i in range(width):
            total += x_BD[b, i]
        mu = total / np.float32(width)
        for i in range(width):
            squares += (x_BD[b, i] - mu) * (x_BD[b, i] - mu)
        sigma = np.float32(np.sqrt(squares / np.float32(width) + np.float32(_EPS)))
        for i in range(width):
            y_BD[b, i] = gamma_D[i] * (x_BD[b, i] - mu) / sigma + beta_D[i]


@_loop
def _activate(h_BF: Any, gelu: bool) -> None:
    """x / 2 · (1 + tanh(u)) = x / (1 + exp(-2 u))."""
    one, minus, third = np.float32(1), np.float32(-2 * np.sqrt(2 / np.pi)), np.float32(0.044715)
    for b in range(len(h_BF)):
        for i in range(h_BF.shape[1]):
            x = h_BF[b, i]
            if gelu:
                h_BF[b, i] = x / (one + np.exp(minus * (x + third * x * x * x)))
            elif x < 0:
                h_BF[b, i] = 0


@_loop
def _add(x_BD: Any, y_BD: Any, residual: bool) -> None:
    for b in range(len(x_BD)):
        for i in range(x_BD.shape[1]):
            x_BD[b, i] = x_BD[b, i] + y_BD[b, i] if residual else y_BD[b, i]


@_loop
def _copy(x_BD: Any, y_BD: Any) -> None:
    y_BD[:] = x_BD

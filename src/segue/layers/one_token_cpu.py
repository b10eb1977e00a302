"""One token of each row through a Transformer on a CPU: compiled loops for few rows, packed matrices for many.

The equations are those of transformer.py and attention.py. With a token a row, a matrix is read once for a handful of
products, and how fast it comes from memory is what counts. Libraries are made for large matrices; a plain loop, which
takes the matrix row by row in the order in which it lies there, is several times as fast on one core, and no core waits
for another. From some rows on, as the beams of many sources are, multiplying counts: oneDNN multiplies by weights that
were put into its own order once, and attention stays a loop. In float32; numba compiles it at the first use and keeps
it on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from segue.compiling import njit
from segue.layers.attention import CrossAttention, Memory, SelfAttention
from segue.layers.best_ids import exp
from segue.layers.one_token import FEW, MANY, Stack
from segue.layers.packed import Matrix
from segue.layers.position import Positions
from segue.layers.row_map import RowMap
from segue.layers.row_threads import by_rows, joined
from segue.layers.transformer import Block

Floats = NDArray[np.float32]
_EPS = 1e-5
_TOGETHER = 4
"""Rows that share what is read of a matrix, and are worth a thread of their own."""
_ACTIVATIONS = {"relu": 0, "gelu": 1, "silu": 2}

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


class Source(NamedTuple):
    """The memory of a layer as the loops read it."""

    keys_RHSK: Floats
    values_RHSK: Floats
    bias_RS: Floats
    """0 at real tokens, -inf at padding."""


def _source(memory: Memory) -> Source:
    k_RHSK, v_RHSK, mask = memory.k_BHSK, memory.v_BHSK, memory.mask
    bias_RS = k_RHSK.new_zeros(len(k_RHSK), k_RHSK.shape[2])
    if mask is not None:
        bias_RS = bias_RS.masked_fill(~mask[:, 0, 0], -np.inf)
    return Source(_array(k_RHSK), _array(v_RHSK), _array(bias_RS))


class Layers:
    """A stack for one token a row. It reads the weights where they lie in memory, so that it sees them train."""

    def __init__(self, stack: Stack, rows: int) -> None:
        """For so many rows, or fewer."""
        self.stack = stack
        self.layers = [_weights(block) for block in stack.blocks]
        self.packed = _packed(stack) if rows > FEW * torch.get_num_threads() else None
        self.turns = _turns(stack.positions)
        self._memories: Sequence[Memory] = ()
        self._sources: list[Source] = []

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
        x_B1D = self.stack.scale * F.embedding(ids_B[:, None], self.stack.vectors)
        x_BD = self.stack.positions.add(x_B1D, places_B[:, None])[:, 0].contiguous()
        if memories is not self._memories:
            self._memories, self._sources = memories, [_source(memory) for memory in memories]
        cache = k_LBHSK.numpy(), v_LBHSK.numpy()
        each = places_B.numpy(), rows.slot_B.numpy(), rows.home_BS.numpy(), rows.source_B.numpy()
        run = self._few if self.packed is None else self._many

        @torch.inference_mode()
        def part(some: slice) -> Tensor:
            return run(x_BD[some], cache, [array[some] for array in each])

        return x_BD, joined(by_rows(part, len(x_BD), self._threads(len(x_BD))))

    def _threads(self, rows: int) -> int:
        """Threads that share the rows. One alone leaves it to oneDNN to use all."""
        threads = torch.get_num_threads()
        if self.packed is None:
            return min(threads, rows // _TOGETHER)
        return threads if rows >= MANY * threads else 1

    def _few(self, x_BD: Tensor, cache: Any, each: Any) -> Tensor:
        x, stack, (places, slots, homes, sources) = x_BD.numpy(), self.stack, each
        for i, (block, weights) in enumerate(zip(stack.blocks, self.layers, strict=True)):
            pre, residual = block.norm == "pre", block.residual
            own = (cache[0][i], cache[1][i], places, slots, homes, *self.turns, _scale(block.attention))
            _self_part(x, *weights.attention, *own, pre, residual)
            if block.cross is not None:
                _cross_part(x, *weights.cross, *self._sources[i], sources, _scale(block.cross), pre, residual)
            _feed_part(x, *weights.feed, pre, residual, _ACTIVATIONS[block.feed.activation])
        y = x if stack.norm is None else stack.norm(x_BD).numpy()
        bias = np.zeros(len(stack.out), np.float32) if stack.bias is None else _array(stack.bias)
        logits = np.empty((len(y), len(bias)), np.float32)
        _linear(y, _array(stack.out), bias, logits)
        return torch.from_numpy(logits)

    def _many(self, x_BD: Tensor, cache: Any, each: Any) -> Tensor:
        """The same with packed matrices; each adds its bias, and what comes before or after it."""
        assert self.packed is not None
        begin_BD, stack, (places, slots, homes, sources) = x_BD, self.stack, each
        for i, (block, weights, packed) in enumerate(zip(stack.blocks, self.layers, self.packed.layers, strict=True)):
            y_BE = packed.qkv(_before(x_BD, block, weights.attention))
            heads_BE = torch.empty(len(y_BE), packed.out.inputs)
            own = (cache[0][i], cache[1][i], places, slots, homes, *self.turns, _scale(block.attention))
            _attend(y_BE.numpy(), *own, heads_BE.numpy())
            x_BD = _after(packed.out(heads_BE, add=x_BD if block.residual else None), block, weights.attention)
            if block.cross is not None:
                y_BE = packed.cross_q(_before(x_BD, block, weights.cross))
                heads_BE = torch.empty_like(y_BE)
                _attend_source(y_BE.numpy(), *self._sources[i], sources, _scale(block.cross), heads_BE.numpy())
                x_BD = _after(packed.cross_out(heads_BE, add=x_BD if block.residual else None), block, weights.cross)
            h_BF = packed.up(_before(x_BD, block, weights.feed), block.feed.activation)
            x_BD = _after(packed.down(h_BF, add=x_BD if block.residual else None), block, weights.feed)
        begin_BD.copy_(x_BD)
        return self.packed.logits(x_BD if stack.norm is None else stack.norm(x_BD))


class Weights(NamedTuple):
    """The arrays of a layer, part by part: the norm's, then those of the matrices."""

    attention: tuple[Floats, ...]
    cross: tuple[Floats, ...]
    feed: tuple[Floats, ...]


def _weights(block: Block) -> Weights:
    attention, cross, feed = block.attention, block.cross, block.feed
    return Weights(
        _arrays(block.norm_attention, attention.qkv, attention.out),
        () if cross is None else _arrays(block.norm_cross, cross.q, cross.out),
        _arrays(block.norm_feed, feed.up, feed.down),
    )


def _arrays(*modules: Any) -> tuple[Floats, ...]:
    arrays = []
    for module in modules:
        bias = np.zeros(len(module.weight), np.float32) if module.bias is None else _array(module.bias)
        arrays += [_array(module.weight), bias]
    return tuple(arrays)


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().contiguous().numpy()
    return array


def _scale(attention: SelfAttention | CrossAttention) -> Any:
    """What scores are multiplied by."""
    width = attention.out.in_features // attention.heads
    return np.float32(1 / np.sqrt(width) if attention.scale is None else attention.scale)


# Packed matrices


class PackedLayer(NamedTuple):
    qkv: Matrix
    out: Matrix
    cross_q: Matrix
    cross_out: Matrix
    up: Matrix
    down: Matrix


class Packed(NamedTuple):
    """All matrices of a stack, packed, and what the weights were then."""

    layers: list[PackedLayer]
    logits: Matrix
    made_of: list[tuple[int, int]]
    """Where each weight lay, and how often it had been changed."""


_kept: WeakKeyDictionary[nn.Module, Packed] = WeakKeyDictionary()


def _packed(stack: Stack) -> Packed:
    """The packed weights of a stack, packed again only where they have been trained since."""
    weights = [weight for block in stack.blocks for weight in block.parameters()] + [stack.out]
    made_of = [(weight.data_ptr(), -1 if weight.is_inference() else weight._version) for weight in weights]
    found = _kept.get(stack.blocks[0])
    if found is None or found.made_of != made_of:
        layers = [_pack(block) for block in stack.blocks]
        found = _kept[stack.blocks[0]] = Packed(layers, Matrix(stack.out, stack.bias), made_of)
    return found


def _pack(block: Block) -> PackedLayer:
    attention, cross, feed = block.attention, block.cross, block.feed
    of_cross = (attention.qkv, attention.out) if cross is None else (cross.q, cross.out)
    parts = (attention.qkv, attention.out, *of_cross, feed.up, feed.down)
    made = {part: Matrix(part.weight, part.bias) for part in parts}
    return PackedLayer(*(made[part] for part in parts))


def _before(x_BD: Tensor, block: Block, weights: tuple[Floats, ...]) -> Tensor:
    """What a part of a layer reads."""
    if block.norm != "pre":
        return x_BD
    y_BD = torch.empty_like(x_BD)
    _norm(x_BD.numpy(), *weights[:2], y_BD.numpy())
    return y_BD


def _after(x_BD: Tensor, block: Block, weights: tuple[Floats, ...]) -> Tensor:
    """What a part of a layer leaves."""
    if block.norm != "pre":
        _norm(x_BD.numpy(), *weights[:2], x_BD.numpy())
    return x_BD


# Loops


@_loop
def _self_part(
    x_BD: Any, gain: Any, shift: Any, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any,
    k_BHSK: Any, v_BHSK: Any, places_B: Any, slot_B: Any, home_BS: Any, cos_SK: Any, sin_SK: Any, bias_HS: Any,
    scale: Any, pre: bool, residual: bool,
) -> None:  # fmt: skip
    y_BD = np.empty_like(x_BD)
    qkv_BE = np.empty((len(x_BD), len(qkv)), np.float32)
    heads_BE = np.empty((len(x_BD), len(qkv) // 3), np.float32)
    _norm(x_BD, gain, shift, y_BD) if pre else _copy(x_BD, y_BD)
    _linear(y_BD, qkv, qkv_bias, qkv_BE)
    _attend(qkv_BE, k_BHSK, v_BHSK, places_B, slot_B, home_BS, cos_SK, sin_SK, bias_HS, scale, heads_BE)
    _linear(heads_BE, out, out_bias, y_BD)
    _add(x_BD, y_BD, residual)
    if not pre:
        _norm(x_BD, gain, shift, x_BD)


@_loop
def _cross_part(
    x_BD: Any, gain: Any, shift: Any, q: Any, q_bias: Any, out: Any, out_bias: Any,
    keys_RHSK: Any, values_RHSK: Any, bias_RS: Any, source_B: Any, scale: Any, pre: bool, residual: bool,
) -> None:  # fmt: skip
    y_BD = np.empty_like(x_BD)
    q_BE = np.empty((len(x_BD), len(q)), np.float32)
    heads_BE = np.empty_like(q_BE)
    _norm(x_BD, gain, shift, y_BD) if pre else _copy(x_BD, y_BD)
    _linear(y_BD, q, q_bias, q_BE)
    _attend_source(q_BE, keys_RHSK, values_RHSK, bias_RS, source_B, scale, heads_BE)
    _linear(heads_BE, out, out_bias, y_BD)
    _add(x_BD, y_BD, residual)
    if not pre:
        _norm(x_BD, gain, shift, x_BD)


@_loop
def _feed_part(
    x_BD: Any, gain: Any, shift: Any, up: Any, up_bias: Any, down: Any, down_bias: Any,
    pre: bool, residual: bool, activation: int,
) -> None:  # fmt: skip
    y_BD = np.empty_like(x_BD)
    h_BF = np.empty((len(x_BD), len(up)), np.float32)
    _norm(x_BD, gain, shift, y_BD) if pre else _copy(x_BD, y_BD)
    _linear(y_BD, up, up_bias, h_BF)
    _activate(h_BF, activation)
    _linear(h_BF, down, down_bias, y_BD)
    _add(x_BD, y_BD, residual)
    if not pre:
        _norm(x_BD, gain, shift, x_BD)


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
    qkv_BE: Any, k_BHSK: Any, v_BHSK: Any, places_B: Any, slot_B: Any, home_BS: Any,
    cos_SK: Any, sin_SK: Any, bias_HS: Any, scale: Any, out_BE: Any,
) -> None:  # fmt: skip
    """Write the new keys and values, and sum the weighted values of all places up to the row's own (causal).

    Row b writes into row slot_B[b] of the cache; its place s is in row home_BS[b, s]."""
    rows, heads, length, width = k_BHSK.shape
    keys, values = k_BHSK.reshape(rows * heads * length, width), v_BHSK.reshape(rows * heads * length, width)
    for b in range(len(qkv_BE)):
        place, slot = places_B[b], slot_B[b]
        home_S, weights, at = home_BS[b, : place + 1], np.empty(place + 1, np.float32), np.empty(place + 1, np.int64)
        home_S[place] = slot
        for h in range(heads):
            q = qkv_BE[b, h * width : (h + 1) * width]
            for s in range(place + 1):
                at[s] = (home_S[s] * heads + h) * length + s
            new = keys[at[place]]
            new[:] = qkv_BE[b, (heads + h) * width : (heads + h + 1) * width]
            values[at[place]] = qkv_BE[b, (2 * heads + h) * width : (2 * heads + h + 1) * width]
            if len(cos_SK):
                _rotate(q, cos_SK[place], sin_SK[place])
                _rotate(new, cos_SK[place], sin_SK[place])
            for s in range(place + 1):
                weights[s] = scale * _dot(q, keys[at[s]])
            if len(bias_HS):
                for s in range(place + 1):
                    weights[s] += bias_HS[h, place - s]
            _softmax(weights)
            y = out_BE[b, h * width : (h + 1) * width]
            y[:] = 0
            for s in range(place + 1):
                _add_scaled(weights[s], values[at[s]], y)


@_loop
def _attend_source(
    q_BE: Any, keys_RHSK: Any, values_RHSK: Any, bias_RS: Any, source_B: Any, scale: Any, out_BE: Any
) -> None:
    """Sum the weighted values of the places of each row's source."""
    _, heads, length, width = keys_RHSK.shape
    weights = np.empty(length, np.float32)
    for b in range(len(q_BE)):
        source = source_B[b]
        empty = np.all(bias_RS[source] == -np.inf)
        for h in range(heads):
            q, keys_SK, values_SK = q_BE[b, h * width : (h + 1) * width], keys_RHSK[source, h], values_RHSK[source, h]
            for s in range(length):
                weights[s] = scale * _dot(q, keys_SK[s]) + bias_RS[source, s]
            _softmax(weights)
            y = out_BE[b, h * width : (h + 1) * width]
            y[:] = 0
            if not empty:
                for s in range(length):
                    _add_scaled(weights[s], values_SK[s], y)


@_loop
def _dot(x: Any, y: Any) -> Any:
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@_loop
def _add_scaled(a: Any, x: Any, y: Any) -> None:
    """y += a x."""
    for i in range(len(y)):
        y[i] += a * x[i]


@_loop
def _softmax(scores: Any) -> None:
    most, total = np.float32(-np.inf), np.float32(0)
    for i in range(len(scores)):
        most = max(most, scores[i])
    for i in range(len(scores)):
        scores[i] = exp(scores[i] - most)
        total += scores[i]
    for i in range(len(scores)):
        scores[i] /= total


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
def _activate(h_BF: Any, activation: int) -> None:
    """GELU: x / 2 · (1 + tanh(u)) = x / (1 + exp(-2 u)); SiLU: x / (1 + exp(-x))."""
    one, minus, third = np.float32(1), np.float32(-2 * np.sqrt(2 / np.pi)), np.float32(0.044715)
    for b in range(len(h_BF)):
        for i in range(h_BF.shape[1]):
            x = h_BF[b, i]
            if activation == 1:
                h_BF[b, i] = x / (one + np.exp(minus * (x + third * x * x * x)))
            elif activation == 2:
                h_BF[b, i] = x / (one + np.exp(-x))
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

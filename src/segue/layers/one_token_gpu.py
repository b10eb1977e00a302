"""One token of each row through a Transformer on a GPU, and a draw from its logits: kernels in Triton's language.

The equations are those of transformer.py and attention.py, for pre-LN with residuals, and of decode.py.
With one token a row, a step takes about as long as reading its weights from memory. So the kernel of each matrix also
computes what stands between it and the next (normalisation, bias, GELU, the sum with x, writing keys and values); and
cards that can (AHEAD) start a kernel while the one before it runs; for few rows it even reads its weights before it
waits. Sums, x and normalised values are float32; weights, keys and values are bfloat16. Sums have a fixed order, so
that the same seed gives the same ids.

Triton compiles kernels at their first use, which takes seconds, and keeps them on disk. Names in capitals are constants
of the compiler. In shapes, R are rows, I inputs, O outputs; kernels work on blocks of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from segue.layers.one_token import Stack
from segue.layers.row_map import RowMap

MOST = 64
"""Most rows at a time; for more, torch's own matrix products are as fast."""
FEW = 2
"""Up to so many rows are computed one by one."""
EARLY, LATE = 1, 2
"""AHEAD: start the next kernel before this one waits for the one before it, or after that; 0: when it is done."""
PARTS = 4
"""Parts of the inputs of a product that is added to x, so that enough programs share the work."""


@cache
def _can_start_ahead() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


def _run(kernel: Any, rows: int, grid: tuple[int, ...], *given: Any, **options: Any) -> None:
    """Launch while the kernel before it runs. With many rows start the next one LATE: it would take up registers."""
    ahead = (EARLY if rows <= FEW else LATE) if _can_start_ahead() else 0
    kernel[grid](*given, AHEAD=ahead, **options, **({"launch_pdl": True} if ahead else {}))


@triton.jit
def _after(AHEAD: tl.constexpr):
    """Wait for the kernel before this one, and let the next one start: after that, or EARLY before it."""
    if AHEAD == 1:
        tl.extra.cuda.gdc_launch_dependents()
    if AHEAD:
        tl.extra.cuda.gdc_wait()
    if AHEAD == 2:
        tl.extra.cuda.gdc_launch_dependents()


# One token of each row


@triton.jit
def _vector(
    ids, places, vectors, table, x, D: tl.constexpr, SCALE: tl.constexpr, ADD: tl.constexpr,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """x = SCALE · E[id] + P[place], a row."""
    _after(AHEAD)
    row, d = tl.program_id(0), tl.arange(0, BLOCK)
    own = SCALE * tl.load(vectors + tl.load(ids + row) * D + d, mask=d < D, other=0.0).to(tl.float32)
    if ADD:
        own += tl.load(table + tl.load(places + row) * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(x + row * D + d, own, mask=d < D)


@triton.jit
def _linear_one(
    x, w, bias, gain, shift, y, INPUTS: tl.constexpr, outputs, EPS: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, ADD: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """y_RO = f(W LN(x) + b), or y += that: some outputs of one row."""
    row, o = tl.program_id(1), tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    i = tl.arange(0, BLOCK_I)
    at = o[:, None].to(tl.int64) * INPUTS + i[None, :]
    if AHEAD:
        tl.extra.cuda.gdc_launch_dependents()
    weights_OI = tl.load(w + at, mask=(o[:, None] < outputs) & (i[None, :] < INPUTS), other=0.0)
    if AHEAD:
        tl.extra.cuda.gdc_wait()
    mean, scale = 0.0, 1.0
    if NORM:
        total, squares = tl.zeros([BLOCK_I], tl.float32), tl.zeros([BLOCK_I], tl.float32)
        for begin in tl.static_range(0, INPUTS, BLOCK_I):
            x_I = tl.load(x + row * INPUTS + begin + i, mask=begin + i < INPUTS, other=0.0).to(tl.float32)
            total += x_I
            squares += x_I * x_I
        mean = tl.sum(total, 0) / INPUTS
        scale = tl.rsqrt(tl.sum(squares, 0) / INPUTS - mean * mean + EPS)
    sums_OI = tl.zeros([BLOCK_O, BLOCK_I], tl.float32)
    for begin in tl.static_range(0, INPUTS, BLOCK_I):
        if begin:
            real = (o[:, None] < outputs) & (begin + i[None, :] < INPUTS)
            weights_OI = tl.load(w + at + begin, mask=real, other=0.0)
        x_I = tl.load(x + row * INPUTS + begin + i, mask=begin + i < INPUTS, other=0.0).to(tl.float32)
        if NORM:
            x_I = (x_I - mean) * scale * tl.load(gain + begin + i, mask=begin + i < INPUTS, other=0.0).to(tl.float32)
            x_I += tl.load(shift + begin + i, mask=begin + i < INPUTS, other=0.0).to(tl.float32)
        sums_OI += weights_OI.to(tl.float32) * x_I[None, :]
    out = tl.sum(sums_OI, 1)
    if BIAS:
        out += tl.load(bias + o, mask=o < outputs, other=0.0).to(tl.float32)
    out = _active(out, ACTIVATION)
    if ADD:
        out += tl.load(y + row * outputs + o, mask=o < outputs, other=0.0)
    tl.store(y + row * outputs + o, out, mask=o < outputs)


@triton.jit
def _normal(
    x, parts, bias, gain, shift, y, R, INPUTS: tl.constexpr, EPS: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_I: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """x += the parts of a product and its bias; y = LN(x), in bfloat16: a row."""
    _after(AHEAD)
    row, i = tl.program_id(0), tl.arange(0, BLOCK_I)
    real = i < INPUTS
    x_I = tl.load(x + row * INPUTS + i, mask=real, other=0.0)
    if PARTS:
        x_I += tl.load(bias + i, mask=real, other=0.0).to(tl.float32)
        for part in tl.static_range(PARTS):
            x_I += tl.load(parts + (part * R + row) * INPUTS + i, mask=real, other=0.0)
        tl.store(x + row * INPUTS + i, x_I, mask=real)
    off_I = tl.where(real, x_I - tl.sum(x_I, 0) / INPUTS, 0.0)
    scale = tl.rsqrt(tl.sum(off_I * off_I, 0) / INPUTS + EPS)
    y_I = off_I * scale * tl.load(gain + i, mask=real, other=0.0).to(tl.float32)
    y_I += tl.load(shift + i, mask=real, other=0.0).to(tl.float32)
    tl.store(y + row * INPUTS + i, y_I.to(y.dtype.element_ty), mask=real)


@triton.jit
def _linear_many(
    x, w, bias, y, R, INPUTS: tl.constexpr, outputs, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, PART: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """y_RO = f(W x + b): some outputs of all rows, so that W is read once; of one part of the inputs."""
    _after(AHEAD)
    r, o = tl.arange(0, ROWS), tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    begin, end = tl.program_id(1) * PART, tl.minimum(INPUTS, (tl.program_id(1) + 1) * PART)
    sums_RO = tl.zeros([ROWS, BLOCK_O], tl.float32)
    for first in range(begin, end, BLOCK_I):
        i = first + tl.arange(0, BLOCK_I)
        at = o[None, :].to(tl.int64) * INPUTS + i[:, None]
        weights_IO = tl.load(w + at, mask=(o[None, :] < outputs) & (i[:, None] < end), other=0.0)
        x_RI = tl.load(x + r[:, None] * INPUTS + i[None, :], mask=(r[:, None] < R) & (i[None, :] < end), other=0.0)
        sums_RO = tl.dot(x_RI, weights_IO, sums_RO)
    if BIAS:
        sums_RO += tl.load(bias + o, mask=o < outputs, other=0.0).to(tl.float32)[None, :]
    sums_RO = _active(sums_RO, ACTIVATION)
    at = (tl.program_id(1) * R + r[:, None]) * outputs + o[None, :]
    tl.store(y + at, sums_RO.to(y.dtype.element_ty), mask=(r[:, None] < R) & (o[None, :] < outputs))


@triton.jit
def _active(a, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        a = tl.maximum(a, 0.0)
    if ACTIVATION == "gelu":  # (1 + tanh(u)) / 2 is the sigmoid of 2 u
        a = a * tl.sigmoid(1.5957691216057308 * (a + 0.044715 * a * a * a))
    return a


@triton.jit
def _turned(x, k, HALF: tl.constexpr, cos, sin, place, ROTARY: tl.constexpr):
    """A query or key, its coordinates k and k + HALF turned as a pair."""
    own = tl.load(x + k).to(tl.float32)
    if ROTARY:
        other = tl.load(x + tl.where(k < HALF, k + HALF, k - HALF)).to(tl.float32)
        at = place * HALF + tl.where(k < HALF, k, k - HALF)
        own = own * tl.load(cos + at) + tl.where(k < HALF, -other, other) * tl.load(sin + at)
    return own


@triton.jit
def _attend(
    qkv, keys, values, places, home, cos, sin, bias, y, H: tl.constexpr, S, CONTEXT, SCALE: tl.constexpr,
    ROTARY: tl.constexpr, RELATIVE: tl.constexpr, MAPPED: tl.constexpr, K: tl.constexpr, BLOCK_S: tl.constexpr,
    STAGES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """One head of one row: its new key and value go to their place, and its query looks at all up to there. MAPPED: the
    place s of a row is in row home[row, s] of the cache."""
    _after(AHEAD)
    row, head = tl.program_id(0), tl.program_id(1)
    k, place = tl.arange(0, K), tl.load(places + row)
    here = qkv + row * 3 * H * K + head * K
    q = _turned(here, k, K // 2, cos, sin, place, ROTARY)
    new = _turned(here + H * K, k, K // 2, cos, sin, place, ROTARY)
    value = tl.load(here + 2 * H * K + k).to(tl.float32)
    begin = (row * H + head).to(tl.int64) * S * K
    tl.store(keys + begin + place * K + k, new.to(keys.dtype.element_ty))
    tl.store(values + begin + place * K + k, value.to(values.dtype.element_ty))
    if MAPPED and head == 0:
        tl.store(home + row * S + place, row.to(tl.int64))
    q = q * SCALE
    # The new place itself comes first; the greatest score so far, the sum of exp(score - greatest), values weighed so.
    most = tl.sum(q * new, 0)
    if RELATIVE:
        most += tl.load(bias + head * CONTEXT)
    total, sums = 1.0, value
    for first in tl.range(0, place, BLOCK_S, num_stages=STAGES):  # so many blocks are on their way at a time
        s = first + tl.arange(0, BLOCK_S)
        at = begin + s[:, None] * K + k[None, :]
        if MAPPED:
            from_S = tl.load(home + row * S + s, mask=s < place, other=0)
            at = ((from_S * H + head) * S + s)[:, None] * K + k[None, :]
        key_SK = tl.load(keys + at, mask=s[:, None] < place, other=0.0).to(tl.float32)
        value_SK = tl.load(values + at, mask=s[:, None] < place, other=0.0).to(tl.float32)
        score_S = tl.sum(key_SK * q[None, :], 1)
        if RELATIVE:
            score_S += tl.load(bias + head * CONTEXT + place - s, mask=s < place, other=0.0)
        score_S = tl.where(s < place, score_S, -float("inf"))
        greatest = tl.maximum(most, tl.max(score_S, 0))
        shrink, weight_S = tl.exp(most - greatest), tl.exp(score_S - greatest)
        total = total * shrink + tl.sum(weight_S, 0)
        sums = sums * shrink + tl.sum(weight_S[:, None] * value_SK, 0)
        most = greatest
    tl.store(y + (row * H + head) * K + k, (sums / total).to(y.dtype.element_ty))


class Layers:
    """A stack for one token a row, over its weights as they lie in memory."""

    def __init__(self, stack: Stack, rows: int) -> None:
        self.stack, positions, attention = stack, stack.positions, stack.blocks[0].attention
        self.heads, self.head_width, self.context = attention.heads, attention.head_width, positions.context
        self.attention_scale = self.head_width**-0.5 if attention.scale is None else attention.scale
        none = stack.vectors
        self.rotary, self.relative = positions.kind == "rotary", positions.kind == "relative"
        self.cos: Any
        self.sin: Any
        self.cos, self.sin = (positions.cos_TK, positions.sin_TK) if self.rotary else (none, none)
        self.last = torch.arange(self.context, device=none.device)[-1:]
        self.added_TD: Any = None
        if positions.kind in ("onehot", "sinusoidal"):
            self.added_TD = positions.fixed_TD
        elif positions.kind == "learned":
            self.added_TD = positions.table.weight

    @staticmethod
    def fit(stack: Stack, rows: int) -> bool:
        """Whether these kernels can compute such a stack: pre-LN with residuals and biases."""
        block = stack.blocks[0]
        usual = block.norm == "pre" and block.residual and stack.norm is not None and block.cross is None
        usual = usual and block.attention.usual
        return usual and block.attention.head_width in (16, 32, 64, 128) and rows <= MOST

    def __call__(
        self, ids_B: Tensor, places_B: Tensor, k_LBHSK: Tensor, v_LBHSK: Tensor, rows: RowMap, memories: Any = ()
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values to their places; x_BD of the last layer, and logits_BV."""
        x_BD, few = self._vectors(ids_B, places_B), len(ids_B) <= FEW
        bias_HS = self._bias()

        def attend(layer: int, qkv: Tensor, y_BD: Tensor) -> None:
            self._attend(qkv, k_LBHSK[layer], v_LBHSK[layer], places_B, bias_HS, y_BD)

        return x_BD, self._few(x_BD, attend) if few else self._many(x_BD, attend)

    def _bias(self) -> Tensor:
        """The bias of each head's scores by distance; computed at each step, since training changes it."""
        bias: Tensor | None = self.stack.positions.bias(self.last, self.context)
        return self.sin if bias is None else bias[:, 0].flip(-1).float().contiguous()

    def _vectors(self, ids_B: Tensor, places_B: Tensor) -> Tensor:
        vectors, added = self.stack.vectors, self.added_TD
        (rows,), width = ids_B.shape, vectors.shape[1]
        x_BD: Tensor = vectors.new_empty(rows, width, dtype=torch.float32)
        given = (ids_B.contiguous(), places_B, vectors, vectors if added is None else added, x_BD)
        known = (width, self.stack.scale, added is not None, triton.next_power_of_2(width))
        _run(_vector, rows, (rows,), *given, *known)
        return x_BD

    def _few(self, x_BD: Tensor, attend: Any) -> Tensor:
        """Row by row: each kernel normalises its x by itself, which is quicker than waiting for another."""
        stack, rows, wide = self.stack, len(x_BD), self.heads * self.head_width
        qkv, y_BD = x_BD.new_empty(rows, 3 * wide), x_BD.new_empty(rows, wide)
        for i, block in enumerate(stack.blocks):
            attention, feed = block.attention, block.feed
            _one(x_BD, attention.qkv.weight, attention.qkv.bias, qkv, norm=block.norm_attention)
            attend(i, qkv, y_BD)
            _one(y_BD, attention.out.weight, attention.out.bias, x_BD, add=True)
            h_BF = x_BD.new_empty(rows, feed.up.out_features)
            _one(x_BD, feed.up.weight, feed.up.bias, h_BF, norm=block.norm_feed, activation=feed.activation)
            _one(h_BF, feed.down.weight, feed.down.bias, x_BD, add=True)
        logits_BV = x_BD.new_empty(rows, len(stack.out))
        _one(x_BD, stack.out, stack.bias, logits_BV, norm=stack.norm)
        return logits_BV

    def _many(self, x_BD: Tensor, attend: Any) -> Tensor:
        """All rows at once. A product that is added to x comes in parts, which the next normalisation sums."""
        stack, rows, wide, half = self.stack, len(x_BD), self.heads * self.head_width, self.stack.vectors.dtype
        qkv, y_BD = x_BD.new_empty(rows, 3 * wide, dtype=half), x_BD.new_empty(rows, wide, dtype=half)
        came: tuple[Tensor, Tensor] | None = None
        for i, block in enumerate(stack.blocks):
            attention, feed = block.attention, block.feed
            z_BD = _normalised(x_BD, block.norm_attention, came)
            _many(z_BD, attention.qkv.weight, attention.qkv.bias, qkv)
            attend(i, qkv, y_BD)
            came = _in_parts(y_BD, attention.out)
            h_BF = x_BD.new_empty(rows, feed.up.out_features, dtype=half)
            z_BD = _normalised(x_BD, block.norm_feed, came)
            _many(z_BD, feed.up.weight, feed.up.bias, h_BF, feed.activation)
            came = _in_parts(h_BF, feed.down)
        logits_BV = x_BD.new_empty(rows, len(stack.out))
        _many(_normalised(x_BD, stack.norm, came), stack.out, stack.bias, logits_BV)
        return logits_BV

    def _attend(
        self,
        qkv: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        places_B: Tensor,
        bias_HS: Tensor,
        y_BD: Tensor,
        home_BS: Tensor | None = None,
    ) -> None:
        places = k_BHSK.shape[2]
        block, stages, warps = (256, 1, 8) if len(qkv) <= FEW or places > 512 else (64, 4, 1)
        _run(
            _attend, len(qkv), (len(qkv), self.heads), qkv, k_BHSK, v_BHSK, places_B,
            places_B if home_BS is None else home_BS, self.cos, self.sin, bias_HS, y_BD, self.heads, places,
            self.context, self.attention_scale, self.rotary, self.relative, home_BS is not None, self.head_width,
            block, stages, num_warps=warps,
        )  # fmt: skip


def _one(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, *, norm: Any = None, activation: str = "", add: bool = False
) -> None:
    """y = f(W LN(x) + b), or y += that, a row at a time."""
    (rows, inputs), outputs = x.shape, len(w)
    gain, shift, eps = (w, w, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    block_i, block_o = min(4096, triton.next_power_of_2(inputs)), 8 if outputs > 20_000 else 4
    _run(
        _linear_one, rows, (triton.cdiv(outputs, block_o), rows), x, w, w if bias is None else bias, gain, shift, y,
        inputs, outputs, eps, norm is not None, bias is not None, activation, add, block_i, block_o,
        num_warps=8 if block_i > 1024 else 4,
    )  # fmt: skip


def _normalised(x_BD: Tensor, norm: Any, came: tuple[Tensor, Tensor] | None) -> Tensor:
    """LN(x), after the parts of a product and its bias were added to x."""
    rows, width = x_BD.shape
    y_BD = torch.empty_like(x_BD, dtype=norm.weight.dtype)
    parts, bias = came or (x_BD, norm.bias)
    given = (x_BD, parts, bias, norm.weight, norm.bias, y_BD, rows, width, norm.eps, len(parts) if came else 0)
    _run(_normal, rows, (rows,), *given, triton.next_power_of_2(width), num_warps=4)
    return y_BD


def _many(x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, activation: str = "", parts: int = 1) -> None:
    """y = f(W x + b); with several parts, y holds that of each part of the inputs."""
    (rows, inputs), outputs = x.shape, len(w)
    block_i, block_o, stages = (64, 128, 3) if outputs > 20_000 else (128, 32, 5)
    part = triton.cdiv(triton.cdiv(inputs, parts), block_i) * block_i
    _run(
        _linear_many, rows, (triton.cdiv(outputs, block_o), parts), x, w, w if bias is None else bias, y,
        rows, inputs, outputs, bias is not None, activation, part, max(16, triton.next_power_of_2(rows)),
        block_i, block_o, num_warps=4, num_stages=stages,
    )  # fmt: skip


def _in_parts(x: Tensor, linear: Any) -> tuple[Tensor, Tensor]:
    """W x in parts, which the next normalisation sums, and the bias."""
    parts = x.new_empty(PARTS, len(x), linear.out_features, dtype=torch.float32)
    _many(x, linear.weight, None, parts, parts=PARTS)
    return parts, linear.bias


# A draw from the whole distribution: first the part in which it falls is found, then the place in it

PART = 1024


@triton.jit
def _allowed(logits, v, V, forbid, forbidden):
    """Some logits, -inf at forbidden ids."""
    found = tl.load(logits + v, mask=v < V, other=-float("inf"))
    for f in range(forbidden):
        found = tl.where(v == tl.load(forbid + f), -float("inf"), found)
    return found


@triton.jit
def _summed(
    logits, forbid, forbidden, best, whole, sums, V, C, TEMPERATURE: tl.constexpr, PART: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Of each part of a row: the best logit that is allowed, log sum exp of all, the sum of exp((l - best) / t)."""
    _after(AHEAD)
    row, part = tl.program_id(0), tl.program_id(1)
    v = part * PART + tl.arange(0, PART)
    all_V = tl.load(logits + row * V + v, mask=v < V, other=-float("inf"))
    most = tl.max(all_V, 0)
    most = tl.where(most == -float("inf"), 0.0, most)
    allowed_V = _allowed(logits + row * V, v, V, forbid, forbidden)
    greatest = tl.max(allowed_V, 0)
    lift = tl.where(greatest == -float("inf"), 0.0, greatest)
    p_V = tl.exp((allowed_V - lift).to(tl.float64) / TEMPERATURE)
    tl.store(best + row * C + part, greatest)
    tl.store(whole + row * C + part, most + tl.log(tl.sum(tl.exp(all_V - most), 0)))
    tl.store(sums + row * C + part, tl.sum(p_V, 0))


@triton.jit
def _passed(p, share, n):
    """The first place at which the cumulative sum of p exceeds a share of it all, and how far into it that lies."""
    sums = tl.cumsum(p, 0)
    sought = share * tl.sum(p, 0)
    last = tl.max(tl.where(p > 0, n, 0), 0)  # rounding must not carry a draw beyond it
    place = tl.minimum(tl.sum((sums <= sought).to(tl.int32), 0), last)
    own = tl.sum(tl.where(n == place, p, 0.0), 0)
    before = tl.sum(tl.where(n == place, sums, 0.0), 0) - own
    return place, tl.minimum(tl.maximum((sought - before) / own, 0.0), 1.0)


@triton.jit
def _drawn(
    logits, forbid, forbidden, best, whole, sums, uniform, column, ids, logp, after, V, C, N,
    TEMPERATURE: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, BROKEN: tl.constexpr, DEAD: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """The id at which a row's cumulative distribution passes its uniform number."""
    _after(AHEAD)
    row, c = tl.program_id(0), tl.arange(0, PARTS)
    at = row * N + tl.load(column + row)
    best_C = tl.load(best + row * C + c, mask=c < C, other=-float("inf"))
    whole_C = tl.load(whole + row * C + c, mask=c < C, other=-float("inf"))
    greatest, most = tl.max(best_C, 0), tl.max(whole_C, 0)
    total = most + tl.log(tl.sum(tl.exp(whole_C - most), 0))
    lift = tl.where(greatest == -float("inf"), 0.0, greatest)
    p_C = tl.load(sums + row * C + c, mask=c < C, other=0.0) * tl.exp((best_C - lift).to(tl.float64) / TEMPERATURE)
    part, share = _passed(p_C, tl.load(uniform + at), c)
    n = tl.arange(0, PART)
    allowed_V = _allowed(logits + row * V, part * PART + n, V, forbid, forbidden)
    place, _ = _passed(tl.exp((allowed_V - lift).to(tl.float64) / TEMPERATURE), share, n)
    found = tl.minimum(part * PART + place, V - 1)
    tl.store(logp + at, tl.load(logits + row * V + found) - total)
    tl.store(after + row, found.to(tl.int64))
    found = tl.where(total < float("inf"), found, BROKEN)
    tl.store(ids + at, tl.where(greatest == -float("inf"), DEAD, found).to(tl.int64))
    tl.store(column + row, tl.load(column + row) + 1)


def draw(
    logits_BV: Tensor, uniform_BN: Tensor, column_B: Tensor, ids_BN: Tensor, logp_BN: Tensor, next_B: Tensor,
    forbid: Tensor, temperature: float, broken: int, dead: int,
) -> None:  # fmt: skip
    """Ids and their log p, by the uniform numbers of each row's column, which then moves on."""
    (rows, vocab_size), parts = logits_BV.shape, triton.cdiv(logits_BV.shape[1], PART)
    best, whole = logits_BV.new_empty(2, rows, parts)
    sums = logits_BV.new_empty(rows, parts, dtype=torch.float64)
    given = (logits_BV, forbid, len(forbid), best, whole, sums)
    _run(_summed, rows, (rows, parts), *given, vocab_size, parts, temperature, PART)
    _run(
        _drawn, rows, (rows,), *given, uniform_BN, column_B, ids_BN, logp_BN, next_B, vocab_size, parts,
        uniform_BN.shape[1], temperature, PART, triton.next_power_of_2(parts), broken, dead,
    )  # fmt: skip

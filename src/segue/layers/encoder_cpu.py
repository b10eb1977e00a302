"""A stack of Transformer layers that reads whole texts on a CPU, where nothing is learnt.

The same numbers as the layers themselves, to the last digits, and faster: the weights are packed once (packed.py), the
activation function and the sums are fused with the products, and threads share the rows, each taking its own through
all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.attention import SelfAttention, taken_at
from segue.layers.packed import Matrix, can_pack
from segue.layers.probe import recording
from segue.layers.row_threads import by_rows, joined
from segue.layers.transformer import Block

LEAST = 256
"""Tokens from which on packing pays."""


def read_packed(blocks: Sequence[Block], x_BTD: Tensor, mask: Tensor | None, places_BK: Tensor | None) -> Tensor | None:
    """The output of the last layer, at some places or at all; None: the layers must be called themselves. `mask` as in
    layers/attention.py, (B, 1, 1, T)."""
    if x_BTD[..., 0].numel() < LEAST or not torch.is_inference_mode_enabled() or recording() or blocks[0].training:
        return None
    if not can_pack(x_BTD) or not all(map(_usual, blocks)):
        return None
    return _packed(blocks)(x_BTD, mask, places_BK)


def _usual(block: Block) -> bool:
    """Whether the functions below compute this layer."""
    usual = type(block.attention) is SelfAttention and block.cross is None
    return usual and block.norm != "none" and block.residual and not block.attention.causal


_kept: WeakKeyDictionary[nn.Module, Encoder] = WeakKeyDictionary()


def _packed(blocks: Sequence[Block]) -> Encoder:
    """The packed stack, packed again only where it has been trained since."""
    weights = [weight for block in blocks for weight in block.parameters()]
    made_of = [(weight.data_ptr(), -1 if weight.is_inference() else weight._version) for weight in weights]
    found = _kept.get(blocks[0])
    if found is None or found.made_of != made_of:
        found = _kept[blocks[0]] = Encoder(blocks, made_of)
    return found


class Layer:
    """One layer, packed."""

    def __init__(self, block: Block, last: bool) -> None:
        attention, feed = block.attention, block.feed
        width = attention.heads * attention.head_width
        self.pre, self.activation = block.norm == "pre", feed.activation
        self.heads, self.scale = attention.heads, attention.scale
        self.qkv = Matrix(attention.qkv.weight, attention.qkv.bias)
        if last:  # asked at some places, its queries are computed there alone
            bias = attention.qkv.bias
            parts = [(attention.qkv.weight[some], None if bias is None else bias[some]) for some in _parts(width)]
            self.q, self.kv = (Matrix(*part) for part in parts)
        self.out = Matrix(attention.out.weight, attention.out.bias)
        self.up, self.down = Matrix(feed.up.weight, feed.up.bias), Matrix(feed.down.weight, feed.down.bias)
        self.norms = [_norm_of(norm) for norm in (block.norm_attention, block.norm_feed)]

    def __call__(self, x_BTD: Tensor, mask: Tensor | None, places_BK: Tensor | None = None) -> Tensor:
        read_BTD = self._norm(x_BTD, 0) if self.pre else x_BTD
        if places_BK is None:
            q_BHTK, k_BHTK, v_BHTK = self._heads(self.qkv(read_BTD), 3)
        else:
            (q_BHTK,) = self._heads(self.q(taken_at(read_BTD, places_BK)), 1)
            k_BHTK, v_BHTK = self._heads(self.kv(read_BTD), 2)
            x_BTD = taken_at(x_BTD, places_BK)
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, mask, scale=self.scale)
        x_BTD = self.out(y_BHTK.transpose(1, 2).flatten(2), add=x_BTD)
        if not self.pre:
            x_BTD = self._norm(x_BTD, 0)
        h_BTF = self.up(self._norm(x_BTD, 1) if self.pre else x_BTD, self.activation)
        x_BTD = self.down(h_BTF, add=x_BTD)
        return x_BTD if self.pre else self._norm(x_BTD, 1)

    def _heads(self, x_BTE: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x_BTE.view(*x_BTE.shape[:-1], parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _norm(self, x_BTD: Tensor, which: int) -> Tensor:
        shape, weight, bias, eps = self.norms[which]
        return F.layer_norm(x_BTD, shape, weight, bias, eps)


def _parts(width: int) -> tuple[slice, slice]:
    """The rows of `qkv` that make the queries, and those that make keys and values."""
    return slice(width), slice(width, None)


def _norm_of(norm: nn.Module) -> tuple[list[int], Tensor, Tensor, float]:
    assert isinstance(norm, nn.LayerNorm)
    return list(norm.normalized_shape), norm.weight.detach(), norm.bias.detach(), norm.eps


class Encoder:
    """A packed stack."""

    def __init__(self, blocks: Sequence[Block], made_of: list[tuple[int, int]]) -> None:
        self.layers = [Layer(block, last=i == len(blocks) - 1) for i, block in enumerate(blocks)]
        self.made_of = made_of
        """Where each weight lay, and how often it had been changed."""

    def __call__(self, x_BTD: Tensor, mask: Tensor | None, places_BK: Tensor | None) -> Tensor:
        @torch.inference_mode()
        def part(some: slice) -> Tensor:
            x = x_BTD[some]
            own_mask, own_places = (None if one is None else one[some] for one in (mask, places_BK))
            for layer in self.layers[:-1]:
                x = layer(x, own_mask)
            return self.layers[-1](x, own_mask, own_places)

        rows, threads = len(x_BTD), torch.get_num_threads()
        return joined(by_rows(part, rows, threads if rows >= threads else 1))

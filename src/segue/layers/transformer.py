"""The layer of a Transformer (Vaswani et al. 2017): attention, then a feed-forward network at each place by itself.

    LN(a) = gamma * (a - mu) / sigma + beta         mu, sigma: mean and deviation over the D coordinates of a place
    FF(x) = W_2 f(W_1 x + b_1) + b_2                feed-forward; W_1 widens x 4 times, W_2 narrows it; f: ReLU, GELU,
                                                    or SiLU, which is x times the logistic function of x
    RMS(a) = gamma * a / sqrt(mean of a^2 + eps)    T5's norm: no mean is taken off, and there is no beta
    gated:  FF(x) = W_2 (f(W_g x) * W_1 x)          T5 version 1.1 (Shazeer 2020): f of one product gates another

    post-LN, as the paper:                 x <- LN(x + Attention(x))          x <- LN(x + FF(x))
    pre-LN, as GPT-2 and all since:        x <- x + Attention(LN(x))          x <- x + FF(LN(x))
    without layer norm:                    x <- x + Attention(x)              x <- x + FF(x)
    without residuals:                     the same, less the first x of each sum
    in a decoder, between the two:         the same with CrossAttention(x, memory)

sigma is the population's deviation; with its square a small number, 1e-5, is added, or a constant vector would be
divided by zero. GELU is GPT-2's: x / 2 · (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), close to x times the normal
distribution's share below x; gelu_erf, BERT's, is exactly that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.attention import CrossAttention, Memory, SelfAttention, taken_at
from segue.layers.dropout import Dropout
from segue.layers.kv_cache import LayerCache
from segue.layers.position import Rotation
from segue.layers.probe import probe, recording

Norm = Literal["pre", "post", "none"]
Activation = Literal["gelu", "gelu_erf", "relu", "silu"]

WIDER = 4
"""How many times as wide as the layer the feed-forward network is inside, where a model does not say."""


class LayerNorm(nn.LayerNorm):
    """Layer normalisation; the fused kernel, or from the equation while a probe records: it then shows sigma."""

    def forward(self, a: Tensor) -> Tensor:
        if not recording():
            return super().forward(a).to(a.dtype)  # mixed precision computes in float32, and would stay there
        mu = a.mean(-1, keepdim=True)
        sigma = ((a - mu).square().mean(-1, keepdim=True) + self.eps).sqrt()
        probe("deviation", sigma.detach()[..., 0])
        return self.weight * (a - mu) / sigma + self.bias


class RmsNorm(nn.RMSNorm):
    """RMS norm: division by the root of the mean square; as LayerNorm, from the equation while a probe records."""

    def forward(self, a: Tensor) -> Tensor:
        if not recording():
            return super().forward(a.to(self.weight.dtype)).to(a.dtype)
        rms = (a.square().mean(-1, keepdim=True) + cast(float, self.eps)).sqrt()
        probe("deviation", rms.detach()[..., 0])
        return self.weight * a / rms


class Gelu(torch.autograd.Function):
    """gelu_erf for compiled code on a GPU, where the exact erf takes longer than to read and write x: with the
    approximation 7.1.26 of Abramowitz and Stegun (error below 1e-7), whose exponential the derivative needs too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        full = x.float()
        return (full * normal_share(full)[0]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        full = x.float()
        share, e = normal_share(full)
        slope: Tensor = share + full * e * (1 / math.sqrt(2 * math.pi))
        return (grad.float() * slope).to(x.dtype)


def normal_share(x: Tensor) -> tuple[Tensor, Tensor]:
    """The share of the normal distribution below x, and exp(-x²/2)."""
    e = (-0.5 * x * x).exp()
    t = 1 / (1 + 0.3275911 / math.sqrt(2) * x.abs())
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    tail = 0.5 * series * e
    return torch.where(x < 0, tail, 1 - tail), e


class FeedForward(nn.Module):
    """The feed-forward network: at each place by itself, one hidden layer."""

    def __init__(
        self, width: int, activation: Activation, inner: int = 0, dropout: float = 0.0, biases: bool = True
    ) -> None:
        """`inner`: the width of the hidden layer, 0: WIDER times the width; `dropout`: of the hidden layer."""
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, inner or WIDER * width, bias=biases)
        self.down = nn.Linear(inner or WIDER * width, width, bias=biases)
        self.dropout = dropout

    def hidden(self, x_BTD: Tensor) -> Tensor:
        """The hidden layer."""
        return self.activated(self.up(x_BTD))

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTF = self.hidden(x_BTD)
        if self.dropout:
            h_BTF = F.dropout(h_BTF, self.dropout, self.training)
        out: Tensor = self.down(h_BTF)
        return out

    def activated(self, h_BTF: Tensor) -> Tensor:
        """The activation function f."""
        if self.activation == "silu":
            return F.silu(h_BTF)
        if self.activation == "gelu_erf":
            compiled = h_BTF.is_cuda and torch.compiler.is_compiling()
            return cast(Tensor, Gelu.apply(h_BTF)) if compiled else F.gelu(h_BTF)  # type: ignore[no-untyped-call]
        return F.gelu(h_BTF, approximate="tanh") if self.activation == "gelu" else h_BTF.relu()


class GatedFeedForward(FeedForward):
    """A feed-forward network whose hidden layer is the product of two, one of them through the activation function."""

    def __init__(
        self, width: int, activation: Activation, inner: int = 0, dropout: float = 0.0, biases: bool = True
    ) -> None:
        super().__init__(width, activation, inner, dropout, biases)
        self.gate = nn.Linear(width, inner or WIDER * width, bias=biases)

    def hidden(self, x_BTD: Tensor) -> Tensor:
        h_BTF: Tensor = self.activated(self.gate(x_BTD)) * self.up(x_BTD)
        return h_BTF


class Block(nn.Module):
    """One layer, put together of the parts that a model gives it."""

    norm_cross: nn.Module

    def __init__(
        self,
        attention: SelfAttention,
        feed: FeedForward,
        norms: Sequence[nn.Module],
        *,
        norm: Norm,
        residual: bool,
        dropout: float,
        cross: CrossAttention | None = None,
    ) -> None:
        """`norms`: those of the attention, of the cross-attention if there is one, and of the feed-forward network;
        with norm = none each is nn.Identity."""
        super().__init__()
        self.norm, self.residual = norm, residual
        self.norm_attention, self.attention = norms[0], attention
        self.cross = cross
        if cross is not None:
            self.norm_cross = norms[1]
        self.norm_feed, self.feed = norms[-1], feed
        self.drop = Dropout(dropout)

    def forward(
        self,
        x_BTD: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
        memory: Memory | None = None,
        beams: int = 1,
        places_BK: Tensor | None = None,
    ) -> Tensor:
        """`mask`, `bias`, `rotation`, `cache`: of the self-attention. `memory`, `beams`: of the cross-attention. With
        `places_BK` the output is computed at these places alone, as a last layer needs it."""
        pre = self.norm == "pre"
        y_BTD = self.attention(self.norm_attention(x_BTD) if pre else x_BTD, mask, bias, rotation, cache, places_BK)
        if places_BK is not None:
            x_BTD = taken_at(x_BTD, places_BK)
        x_BTD = self._add(x_BTD, y_BTD, self.norm_attention)
        if self.cross is not None:
            y_BTD = self.cross(self.norm_cross(x_BTD) if pre else x_BTD, memory, beams)
            x_BTD = self._add(x_BTD, y_BTD, self.norm_cross)
        y_BTD = self.feed(self.norm_feed(x_BTD) if pre else x_BTD)
        return self._add(x_BTD, y_BTD, self.norm_feed)

    def _add(self, x_BTD: Tensor, y_BTD: Tensor, norm: nn.Module) -> Tensor:
        """The sum of a part's input and output; with post-LN it is normalised."""
        y_BTD = self.drop(y_BTD)
        x_BTD = x_BTD + y_BTD if self.residual else y_BTD
        out: Tensor = x_BTD if self.norm == "pre" else norm(x_BTD)
        return out

"""The layer of a Transformer (Vaswani et al. 2017): attention, then a small network at each place by itself.

    LN(a) = gamma * (a - mu) / sigma + beta         mu, sigma: mean and deviation over the D coordinates of a place
    FF(x) = W_2 f(W_1 x + b_1) + b_2                feed-forward; f: ReLU or GELU; W_1 widens x 4 times, W_2 narrows it

    post-LN, as the paper:                 x <- LN(x + Attention(x))          x <- LN(x + FF(x))
    pre-LN, as GPT-2 and all since:        x <- x + Attention(LN(x))          x <- x + FF(LN(x))
    without residuals:                     the same, less the first x of each sum

sigma is the population's deviation; with its square a small number, 1e-5, is added, or a constant vector would be
divided by zero. GELU is GPT-2's: x / 2 · (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), close to x times the normal
distribution's share below x.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.attention import Attention, Past, looking
from segue.layers.position import Rotation
from segue.layers.probe import probe

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "relu"]

WIDER = 4
"""How many times as wide as the layer the small network is inside."""


class LayerNorm(nn.LayerNorm):
    """Layer normalisation; the fused kernel, or from the equation while a probe records: it then shows sigma."""

    def forward(self, a: Tensor) -> Tensor:
        if not looking():
            return super().forward(a)
        mu = a.mean(-1, keepdim=True)
        sigma = ((a - mu).square().mean(-1, keepdim=True) + self.eps).sqrt()
        probe("deviation", sigma.detach()[..., 0])
        return self.weight * (a - mu) / sigma + self.bias


class FeedForward(nn.Module):
    """The small network."""

    def __init__(self, width: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, WIDER * width)
        self.down = nn.Linear(WIDER * width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTF = self.up(x_BTD)
        h_BTF = F.gelu(h_BTF, approximate="tanh") if self.activation == "gelu" else h_BTF.relu()
        out: Tensor = self.down(h_BTF)
        return out


class Block(nn.Module):
    """One layer."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        dropout: float,
        *,
        norm: Norm = "pre",
        residual: bool = True,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        self.norm, self.residual = norm, residual
        self.norm_attention = LayerNorm(width)
        self.attention = Attention(width, heads, head_width, dropout)
        self.norm_feed = LayerNorm(width)
        self.feed = FeedForward(width, activation)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x_BTD: Tensor, bias: Tensor | None = None, rotation: Rotation | None = None, past: Past | None = None
    ) -> Tensor:
        if self.norm == "pre":
            x_BTD = self._add(x_BTD, self.attention(self.norm_attention(x_BTD), bias, rotation, past))
            return self._add(x_BTD, self.feed(self.norm_feed(x_BTD)))
        x_BTD = self.norm_attention(self._add(x_BTD, self.attention(x_BTD, bias, rotation, past)))
        out: Tensor = self.norm_feed(self._add(x_BTD, self.feed(x_BTD)))
        return out

    def _add(self, x_BTD: Tensor, y_BTD: Tensor) -> Tensor:
        y_BTD = self.drop(y_BTD)
        return x_BTD + y_BTD if self.residual else y_BTD

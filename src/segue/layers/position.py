"""Where a token stands. Attention alone cannot tell: it sees its tokens as a heap, so position must be put in.

    none         nothing; one layer then sees a heap, several causal ones know a little (they saw different beginnings)
    onehot       x_t = sqrt(D) E[w_t] + e_t                                      e_t: 1 at t, 0 elsewhere
    sinusoidal   x_t = sqrt(D) E[w_t] + p_t                                      Vaswani et al. 2017
                 p_t[2i] = sin(t / 10000^(2i/D)),  p_t[2i+1] = cos(t / 10000^(2i/D))
    learned      x_t = E[w_t] + P[t]                                             GPT
    relative     q_t · k_j / sqrt(d_k) + b[bucket(t - j)], a b for each head     T5 (Raffel et al. 2020)
                 bucket(n) = n below 16; 16 more of them widen with log n, the last holds 128 and all beyond
                 in an encoder, which looks ahead too: 16 buckets a side, 8 of them exact
    rotary       q_t, k_t turned, two coordinates at a time, by t/10000^(2i/d_k) RoFormer (Su et al. 2021)

Fixed vectors of length one or more would drown the small first E, hence Vaswani's sqrt(D). T5 leaves 1 / sqrt(d_k) out;
here it stays. Rotary turns coordinate i with i + d_k / 2, as LLaMA does, where the paper takes neighbours.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Position = Literal["none", "onehot", "sinusoidal", "learned", "relative", "rotary"]

BUCKETS = 32
FARTHEST = 128
"""From this distance on, the relative bias is the same."""
_BASE = 10_000.0


class Rotation(NamedTuple):
    """Cosines and sines of the angles by which coordinates are turned, for each place; the first of a pair by -sin."""

    cos: Tensor
    sin: Tensor

    def at(self, places_BK: Tensor) -> Rotation:
        """The rotation of some places of each row, where all rows begin at 0."""
        return Rotation(self.cos[0][places_BK][:, None], self.sin[0][places_BK][:, None])


def angles(length: int, width: int) -> Tensor:
    """t / 10000^(2i/width) for t below `length` and 2i below `width`; on the CPU, whatever torch's default is."""
    steps = torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width
    return torch.arange(length, dtype=torch.float64, device="cpu")[:, None] * _BASE**-steps


def sinusoids(length: int, width: int) -> Tensor:
    """p_TD, in double precision."""
    angles_TD = angles(length, width)
    return torch.stack([angles_TD.sin(), angles_TD.cos()], -1).flatten(1)[:, :width]


def rotate(x_BHTK: Tensor, rotation: Rotation) -> Tensor:
    """x with coordinates i and i + K/2 turned as a pair."""
    a, b = x_BHTK.chunk(2, -1)
    return torch.addcmul(x_BHTK * rotation.cos, torch.cat([b, a], -1), rotation.sin).to(x_BHTK.dtype)


def bucket(distance: Tensor, both: bool = False) -> Tensor:
    """T5's bucket of a distance back; what lies ahead counts as 0, or with `both` has the second half of them."""
    if both:
        half = BUCKETS // 2
        return torch.where(distance < 0, half, 0) + _one_sided(distance.abs(), half)
    return _one_sided(distance.clamp(min=0), BUCKETS)


def _one_sided(n: Tensor, buckets: int) -> Tensor:
    exact = buckets // 2
    share = (n.clamp(min=exact) / exact).log() / math.log(FARTHEST / exact)
    return torch.where(n < exact, n, (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1))


class Positions(nn.Module):
    """One kind of position for a model: what it adds to vectors, turns in queries and keys, adds to scores."""

    def __init__(
        self, kind: Position, context: int, width: int, heads: int, head_width: int, both: bool = False
    ) -> None:
        """`both`: a token sees those after it too, as in an encoder."""
        super().__init__()
        self.kind, self.context, self.both = kind, context, both
        self.scale = math.sqrt(width) if kind in ("onehot", "sinusoidal") else 1.0
        """What a model multiplies the tokens' vectors by, before it adds those of the places."""
        if kind == "learned":
            self.table = nn.Embedding(context, width)
        elif kind == "relative":
            self.table = nn.Embedding(BUCKETS, heads)
        elif kind in ("onehot", "sinusoidal"):
            fixed_TD = torch.eye(context, width) if kind == "onehot" else sinusoids(context, width).float()
            self.register_buffer("fixed_TD", fixed_TD, persistent=False)
        elif kind == "rotary":
            angles_TK = angles(context, head_width)
            self.register_buffer("cos_TK", angles_TK.cos().float(), persistent=False)
            self.register_buffer("sin_TK", angles_TK.sin().float(), persistent=False)

    # `places` are those of the tokens: (T,) where all rows begin at 0, or (B, T).

    def add(self, x_BTD: Tensor, places: Tensor) -> Tensor:
        """Add the vectors of the places."""
        if self.kind == "learned":
            learned: Tensor = self.table(places)
            return x_BTD + learned
        if self.kind in ("onehot", "sinusoidal"):
            fixed: Tensor = self.fixed_TD[places]  # type: ignore[index, assignment]
            return x_BTD + fixed.to(x_BTD.dtype)
        return x_BTD

    def rotation(self, places: Tensor) -> Rotation | None:
        """By how much queries and keys are turned."""
        if self.kind != "rotary":
            return None
        cos, sin = (table[places].unsqueeze(-3) for table in (self.cos_TK, self.sin_TK))  # type: ignore[index, operator]
        return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    def bias(self, places: Tensor, seen: int) -> Tensor | None:
        """What is added to the scores of each place for the first `seen` places: (H, T, S) or (B, H, T, S)."""
        if self.kind != "relative":
            return None
        distance = places[..., None] - torch.arange(seen, device=places.device)
        bias: Tensor = self.table(bucket(distance, self.both))
        return bias.movedim(-1, -3)

    def causal_bias(self, places: Tensor, seen: int, dtype: torch.dtype) -> Tensor | None:
        """The same with a causal mask for each row, where rows have places of their own: as numbers, since each layer
        would turn a boolean mask into them. Else attention makes the mask."""
        bias = self.bias(places, seen)
        if places.dim() == 1:
            return bias
        bias = torch.zeros((), dtype=dtype, device=places.device) if bias is None else bias
        sees_BTS = torch.arange(seen, device=places.device) <= places[..., None]
        return bias.masked_fill(~sees_BTS[:, None], -math.inf)

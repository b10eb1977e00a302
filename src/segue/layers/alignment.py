"""Attention of a recurrent decoder to the source: Bahdanau et al. 2015, Luong et al. 2015.

d_t is a state of the decoder, h_s the encoder's output at place s of the source:

    e_ts     = score(d_t, h_s)
    alpha_ts = exp(e_ts) / sum over the places j of the source of exp(e_tj)
    c_t      = sum over s of alpha_ts h_s

    dot          score = d_t · h_s
    bilinear     score = d_t · W h_s
    additive     score = v · tanh(W h_s + U d_t + b)
    fixed        no score: alpha_ts is 1 at s = t, or at the last place of the source if t is beyond it, 0 elsewhere

Without v the additive score would be a number between -1 and 1, so that no weight could exceed e² / (e² + S - 1).

Coverage (Tu et al. 2016) puts what each place of the source has got so far into its score:

    covered_ts = sum over the times j before t of alpha_js
    dot, bilinear    score + w covered_ts                            w: one number
    additive         v · tanh(W h_s + U d_t + b + w covered_ts)      w: a vector

Then alpha_t needs the weights before it, and only these are computed one time after the other. The coverage loss (See
et al. 2017) is the sum over s of min(alpha_ts, covered_ts): 0 as long as no place gets attention twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Score = Literal["dot", "bilinear", "additive"]


class SourceStates(NamedTuple):
    """What the attention of a decoder reads of the sources."""

    h_BSD: Tensor
    """The encoder's outputs, which are averaged."""
    keys_BSD: Tensor
    """What a state of the decoder is compared with: h, or W h; computed once."""
    mask_BS: Tensor
    """True at real tokens."""

    def select(self, rows: Tensor) -> SourceStates:
        return SourceStates(*(part.index_select(0, rows) for part in self))

    def join(self, others: Sequence[SourceStates]) -> SourceStates:
        """The rows of all, padded to the longest source."""
        return SourceStates(*(torch.cat(widened(part)) for part in zip(self, *others, strict=True)))


def widened(parts: Sequence[Tensor], least: int = 0) -> list[Tensor]:
    """Tensors (B, S, …), padded with 0 to the longest S among them, or to `least`."""
    longest = max(least, *(part.shape[1] for part in parts))
    return [F.pad(part, (0, 0) * (part.dim() - 2) + (0, longest - part.shape[1])) for part in parts]


class Alignment(nn.Module):
    """The weights alpha of a score that is learnt."""

    def __init__(self, score: Score, width: int, covers: bool = False) -> None:
        """`width`: of d and of h. `covers`: put the coverage into the score."""
        super().__init__()
        self.score = score
        self.keys = nn.Identity() if score == "dot" else nn.Linear(width, width, bias=False)
        self.queries = nn.Linear(width, width) if score == "additive" else nn.Identity()
        self.v = nn.Linear(width, 1, bias=False) if score == "additive" else None
        self.w = nn.Parameter(torch.zeros(width if score == "additive" else 1)) if covers else None

    def forward(
        self, d_BTD: Tensor, source: SourceStates, covered_BS: Tensor | None = None, mask_BT: Tensor | None = None
    ) -> Tensor:
        """alpha_BTS. d may have several rows for each row of the source, side by side (beams).

        `covered_BS`: what each place has got before the first time, a row for each of d, for a score with coverage;
        there, times at which the mask is False cover nothing."""
        q_BTD = self.queries(d_BTD)
        if self.w is None or covered_BS is None:
            return self._weights(q_BTD, source, None)
        alphas = []
        for t in range(q_BTD.shape[1]):
            alpha_B1S = self._weights(q_BTD[:, t : t + 1], source, covered_BS)
            got_BS = alpha_B1S[:, 0] if mask_BT is None else alpha_B1S[:, 0] * mask_BT[:, t : t + 1]
            covered_BS = covered_BS + got_BS
            alphas.append(alpha_B1S)
        return torch.cat(alphas, 1)

    def _weights(self, q_BTD: Tensor, source: SourceStates, covered_BS: Tensor | None) -> Tensor:
        """The beams of a source stand one after the other in time, so that nobody copies the source for each."""
        (rows, times, _), sources = q_BTD.shape, len(source.mask_BS)
        folded_BTD = q_BTD.reshape(sources, rows * times // sources, -1)
        covered_BTS = None if covered_BS is None else covered_BS.reshape(sources, rows // sources, -1)
        e_BTS = self._scores(folded_BTD, source.keys_BSD, covered_BTS)
        return masked_softmax(e_BTS, source.mask_BS[:, None]).reshape(rows, times, -1)

    def _scores(self, q_BTD: Tensor, keys_BSD: Tensor, covered_BTS: Tensor | None) -> Tensor:
        if self.v is None:
            e_BTS = q_BTD @ keys_BSD.transpose(1, 2)
            return e_BTS if covered_BTS is None or self.w is None else e_BTS + self.w * covered_BTS
        sum_BTSD = q_BTD[:, :, None] + keys_BSD[:, None]
        if covered_BTS is not None and self.w is not None:
            sum_BTSD = sum_BTSD + self.w * covered_BTS[..., None]
        scores: Tensor = self.v(sum_BTSD.tanh_())[..., 0]
        return scores


def masked_softmax(e: Tensor, mask: Tensor) -> Tensor:
    """softmax over the last dimension, 0 where the mask is False; a source without any token gets 0 everywhere."""
    least = torch.finfo(e.dtype).min  # not -inf: the gradient of an empty source would be NaN
    return e.masked_fill(~mask, least).softmax(-1).masked_fill(~mask, 0.0)


def fixed_weights(place_BT: Tensor, mask_BS: Tensor, like: Tensor, beams: int = 1) -> Tensor:
    """alpha_BTS of the hard-wired alignment: place t of the target sees place t of the source, or its last one.

    Each row of the mask serves `beams` rows of places."""
    mask_BS = mask_BS.repeat_interleave(beams, 0)
    last_B1 = (mask_BS.sum(1, keepdim=True) - 1).clamp(min=0)
    seen_BTS = torch.minimum(place_BT, last_B1)[:, :, None] == torch.arange(mask_BS.shape[1], device=mask_BS.device)
    return (seen_BTS & mask_BS[:, None]).to(like.dtype)


def contexts(alpha_BTS: Tensor, h_BSD: Tensor) -> Tensor:
    """c_BTD: the mean of h by the weights; alpha may have several rows for each of h, side by side."""
    (rows, times, _), sources = alpha_BTS.shape, len(h_BSD)
    folded_BTS = alpha_BTS.reshape(sources, rows * times // sources, -1)
    return (folded_BTS.to(h_BSD.dtype) @ h_BSD).reshape(rows, times, -1)


def coverage_loss(alpha_BTS: Tensor, real_BT: Tensor) -> Tensor:
    """Sum over the real t, and all s, of min(alpha_ts, what s had got before t)."""
    covered_BTS = alpha_BTS.cumsum(1) - alpha_BTS
    return (torch.minimum(alpha_BTS, covered_BTS).sum(-1) * real_BT).sum()

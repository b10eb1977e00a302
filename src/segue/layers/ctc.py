"""Connectionist temporal classification (CTC): a loss for frames without an alignment to letters (Graves et al. 2006).

At every place s of the source a network gives probabilities of all ids; id 0 is the blank, "nothing new here". A path π
is one id for each place. B turns a path into a text: merge what repeats, then drop the blanks.

    B(a a - a b b) = a a b                       - is the blank
    p(y | x) = sum over all paths π with B(π) = y of the product over s of p_s(π_s)
    loss     = -log p(y | x)

The sum goes over states: the n labels of y with a blank before, between and behind them, l = - y1 - y2 … yn -. From a
state a path stays, goes to the next one, or leaves out a blank between labels that differ:

    forward     a_s[u] = (a_{s-1}[u] + a_{s-1}[u-1] + a_{s-1}[u-2] if l_u is a label other than l_{u-2}) · p_s(l_u)
    backward    b_s[u] = the same from the end: both directions turned around
    p(y | x) = a_S[last] + a_S[last but one]
    the share of paths that are in state u at place s:   g_s[u] = a_s[u] b_s[u] / (p_s(l_u) p(y | x))
    d loss / d logits_s[k] = softmax_s[k] - sum of g_s[u] over the states u with l_u = k

All in logarithms. Forward and backward go through one loop, as twice as many rows: time and states of those for b are
turned around. Nothing here waits for a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from segue.batches.batch import IGNORE

BLANK = 0
"""The id of STOP, which stands in no label."""
NEVER = -1e30
"""log 0. Not -inf, whose differences are NaN."""


def ctc_loss(logits_BSV: Tensor, mask_BS: Tensor, targets_BT: Tensor) -> Tensor:
    """(B,) -log p(target | source), in float32 or better.

    Sources are padded on the right. Targets are labels, then STOP (0) or IGNORE up to the end of the row. A source
    needs a place for each label, and one for the blank between equal labels: a target without a path gets loss 0 and
    gradient 0, as by zero_infinity of torch."""
    loss_B: Tensor = _Ctc.apply(logits_BSV, mask_BS, targets_BT)  # type: ignore[no-untyped-call]
    return loss_B


class _Ctc(torch.autograd.Function):
    """Computes the gradient in the forward pass, where a and b are at hand."""

    @staticmethod
    def forward(ctx: Any, logits_BSV: Tensor, mask_BS: Tensor, targets_BT: Tensor) -> Tensor:  # type: ignore[override]
        full_BSV = logits_BSV if logits_BSV.dtype == torch.float64 else logits_BSV.float()
        logp_SBV = full_BSV.transpose(0, 1).log_softmax(-1)
        labels_BU, lengths_B = _states(targets_BT)
        logp_SBU = _of_states(logp_SBV, labels_BU, lengths_B)
        a_SBU, b_SBU, loss_B = _forward_backward(logp_SBU, labels_BU, lengths_B, mask_BS)
        counts_B = ~(loss_B > -NEVER / 2)  # NaN counts, so that it is seen
        # The shares of a place sum to 1: dividing by their own sum, not by p(y | x), keeps its rounding error out.
        shares_SBU = (a_SBU + b_SBU - logp_SBU).softmax(-1)
        slopes_SBV = logp_SBV.exp_()
        slopes_SBV[..., BLANK] -= shares_SBU[..., ::2].sum(-1)
        own_SBT = labels_BU[:, 1::2].expand(len(slopes_SBV), -1, -1)
        slopes_SBV.scatter_add_(-1, own_SBT, -shares_SBU[..., 1::2])
        slopes_SBV *= (mask_BS & counts_B[:, None]).T[..., None]
        ctx.save_for_backward(slopes_SBV.transpose(0, 1))
        ctx.dtype = logits_BSV.dtype
        return torch.where(counts_B, loss_B, 0.0)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_B: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (slopes_BSV,) = ctx.saved_tensors
        return (slopes_BSV * grad_B[:, None, None]).to(ctx.dtype), None, None


def _real(targets_BT: Tensor) -> Tensor:
    return (targets_BT != BLANK) & (targets_BT != IGNORE)


def _states(targets_BT: Tensor) -> tuple[Tensor, Tensor]:
    """The ids of the states, - y1 - y2 … - yT - and one more, which no path enters; and the number of labels."""
    real_BT = _real(targets_BT)
    labels_BT = F.pad(torch.where(real_BT, targets_BT, BLANK), (0, 1), value=BLANK)
    return torch.stack([torch.full_like(labels_BT, BLANK), labels_BT], -1).flatten(1), real_BT.sum(1)


def _of_states(logp_SBV: Tensor, labels_BU: Tensor, lengths_B: Tensor) -> Tensor:
    """log p of the id of each state; NEVER in states behind the row's last blank."""
    logp_SBU = logp_SBV.gather(-1, labels_BU.expand(len(logp_SBV), -1, -1)).clamp_(min=NEVER)
    states_U = torch.arange(labels_BU.shape[1], device=labels_BU.device)
    return logp_SBU.masked_fill_(states_U > 2 * lengths_B[:, None], NEVER)


def _forward_backward(
    logp_SBU: Tensor, labels_BU: Tensor, lengths_B: Tensor, mask_BS: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log a, log b, and -log p(y | x)."""
    places, rows, states = logp_SBU.shape
    both_SNU = torch.cat([logp_SBU, logp_SBU.flip(0, 2)], 1)  # N: the rows for a, then those for b
    mask_SN1 = torch.cat([mask_BS, mask_BS.flip(1)]).T[..., None]
    skips_NU = _skips(labels_BU, logp_SBU)
    # Two states stand before the first, so that it has neighbours: u is at u + 2. A path begins in the state before the
    # first, or, turned around, in the one behind the row's last, which are both left by the first step.
    log_SNU = torch.full((places + 1, 2 * rows, states + 2), NEVER, dtype=logp_SBU.dtype, device=logp_SBU.device)
    log_SNU[0, :rows, 1] = 0.0
    log_SNU[0, rows:].scatter_(1, states - 2 * lengths_B[:, None], 0.0)
    for s in range(places):
        last_NU = log_SNU[s]
        stay_NU, step_NU, skip_NU = last_NU[:, 2:], last_NU[:, 1:-1], last_NU[:, :-2] + skips_NU
        new_NU = torch.logaddexp(torch.logaddexp(stay_NU, step_NU), skip_NU).add_(both_SNU[s])
        torch.where(mask_SN1[s], new_NU, stay_NU, out=log_SNU[s + 1, :, 2:])
    ends_B2 = log_SNU[-1, :rows].gather(1, torch.stack([2 * lengths_B + 1, 2 * lengths_B + 2], 1))
    a_SBU, b_SBU = log_SNU[1:, :rows, 2:], log_SNU[1:, rows:, 2:].flip(0, 2)
    return a_SBU, b_SBU, -ends_B2.logsumexp(1)


def _skips(labels_BU: Tensor, like: Tensor) -> Tensor:
    """(2B, U) 0 where a path may go from state u - 2 to u, for a and turned around for b; else NEVER."""
    may_BU = labels_BU[:, 2:] != labels_BU[:, :-2]  # two blanks are equal
    forward_BU = F.pad(F.pad(may_BU, (1, 0), value=True), (1, 0), value=False)
    may_NU = torch.cat([forward_BU, F.pad(may_BU.flip(1), (2, 0), value=False)])
    return torch.zeros_like(may_NU, dtype=like.dtype).masked_fill_(~may_NU, NEVER)

"""Losses as sums with their counts, never means: only so does accumulating equal the big batch.

l = sum over t of -log softmax(logits_t)[target_t]        cross-entropy, in natural logarithms
l' = (1 - e) l + e sum over t of mean over v of -log softmax(logits_t)[v]     label smoothing e (Szegedy et al. 2016)

Of one class a row, several yes/no classes, or a number, for each row or yes/no by itself, so that they can be weighed:

hinge            max(0, 1 + max over c ≠ y of s_c - s_y)      one class of many (Crammer and Singer 2001)
binary           -log s(score) if yes, -log s(-score) if no   s: the logistic function
binary hinge     max(0, 1 - score) if yes, max(0, 1 + score) if no
squared error    (score - y)²

Logits of a large vocabulary are the largest thing in a step: 32 rows of 1,024 tokens over 50,257 words are 6.6 GB. So
`linear_cross_entropy` makes them some rows at a time from the layer below, takes loss and gradient of these, and lets
them go: dl/dlogits = softmax - onehot(target), dl/dx = dl/dlogits W, dl/dW = dl/dlogits^T x.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.batches.batch import IGNORE

HELD = 1 << 28
"""Most logits in memory at a time."""
SMALL = 1 << 26
"""Up to so many logits are computed all at once."""
WIDE = 1 << 20
"""From so many weights on, an output layer is rounded to bfloat16 at each step, where the CPU is faster with that."""


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of -log p(target), number of targets) over all positions that are not IGNORE."""
    flat = _full(logits).flatten(0, -2), targets.flatten()
    return F.cross_entropy(*flat, ignore_index=IGNORE, reduction="sum"), (targets != IGNORE).sum()


def target_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of each target, in the shape of `targets`; 0 where the target is IGNORE."""
    flat = _full(logits).flatten(0, -2), targets.flatten()
    return -F.cross_entropy(*flat, ignore_index=IGNORE, reduction="none").view(targets.shape)


def _full(logits: Tensor) -> Tensor:
    """Half precision would lose small losses in a large sum; double stays double."""
    return logits if logits.dtype == torch.float64 else logits.float()


def hinge(scores_BC: Tensor, targets_B: Tensor) -> Tensor:
    """What each row lacks to stand a margin of 1 above every other class."""
    own_B1 = targets_B[:, None]
    others_BC = scores_BC.scatter(1, own_B1, -torch.inf)
    return (1 + others_BC.amax(1) - scores_BC.gather(1, own_B1)[:, 0]).clamp(min=0)


def binary_cross_entropy(scores_BC: Tensor, targets_BC: Tensor) -> Tensor:
    """-log p of each yes (1) or no (0)."""
    return F.binary_cross_entropy_with_logits(scores_BC, targets_BC.to(scores_BC.dtype), reduction="none")


def binary_hinge(scores_BC: Tensor, targets_BC: Tensor) -> Tensor:
    """What each yes or no lacks to stand a margin of 1 on its side of 0."""
    return (1 - (2 * targets_BC.to(scores_BC.dtype) - 1) * scores_BC).clamp(min=0)


def linear_cross_entropy(
    x: Tensor, weight_VD: Tensor, targets: Tensor, bias_V: Tensor | None = None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`cross_entropy` of the logits x W^T + b with label smoothing, computed in parts where they are many.

    A CPU that multiplies bfloat16 much faster uses mixed precision for a wide layer in training, as a GPU does.
    """
    if smoothing:
        total, added, count = smoothed_cross_entropy(x, weight_VD, targets, bias_V, smoothing)
        return total + smoothing * added, count
    if _are_many(x, weight_VD, targets):
        total, _ = _in_parts(x, weight_VD, bias_V, targets)
    else:
        logits = _full(F.linear(x, weight_VD, bias_V))
        total = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return total, (targets != IGNORE).sum()


def smoothed_cross_entropy(
    x: Tensor, weight_VD: Tensor, targets: Tensor, bias_V: Tensor | None, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of `linear_cross_entropy` with label smoothing e: (l, m - l, count) with m the mean over v, so that
    l' = l + e (m - l). The gradient is right for that sum alone."""
    real_N, targets_N = targets.flatten() != IGNORE, targets.flatten()
    if _are_many(x, weight_VD, targets):
        return *_in_parts(x, weight_VD, bias_V, targets, smoothing), real_N.sum()
    logp_NV = _full(F.linear(x, weight_VD, bias_V)).flatten(0, -2).log_softmax(-1)
    total = F.nll_loss(logp_NV, targets_N, ignore_index=IGNORE, reduction="sum")
    return total, -(logp_NV.mean(-1) * real_N).sum() - total, real_N.sum()


def _are_many(x: Tensor, weight_VD: Tensor, targets: Tensor) -> bool:
    """Whether loss and gradient are computed in parts."""
    many = targets.numel() * len(weight_VD) > SMALL or _in_halves(x, weight_VD)
    return many and torch.is_grad_enabled()


def _in_parts(
    x: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    flat = x.flatten(0, -2), weight_VD, bias_V, targets.flatten(), smoothing
    total, added = _InParts.apply(*flat)  # type: ignore[no-untyped-call]
    return total, added


def _in_halves(x: Tensor, weight_VD: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and weight_VD.numel() >= WIDE and _has_halves()


@cache
def _has_halves() -> bool:
    """Whether this CPU multiplies bfloat16 itself."""
    known = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in known)


class _InParts(torch.autograd.Function):
    """Computes the gradient in the forward pass, while the logits of a part are in memory."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        device = x_ND.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
        dtype = torch.bfloat16 if _in_halves(x_ND, weight_VD) else dtype
        size, width = weight_VD.shape
        # A multiple of 64 columns is what matrix units like; those that are made up stay without probability.
        padded_VD = torch.zeros(-(-size // 64) * 64, width, dtype=dtype, device=x_ND.device)
        padded_VD[:size] = weight_VD
        padded_V = None if bias_V is None else F.pad(bias_V.to(dtype), (0, len(padded_VD) - size))
        x_ND = x_ND.to(dtype)
        sums = torch.float64 if dtype == torch.float64 else torch.float32
        grad_x_ND, grad_weight_VD = torch.empty_like(x_ND), torch.zeros_like(padded_VD, dtype=sums)
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V)
        total, added = torch.zeros((2,), dtype=sums, device=x_ND.device).unbind()
        least = -(-len(x_ND) * len(padded_VD) // HELD)
        parts = 1 << (least - 1).bit_length()  # a power of two, so that parts are most often of one size
        rows = -(-len(x_ND) // parts)
        with torch.autocast(device, enabled=False):
            for begin in range(0, len(x_ND), rows):
                part = slice(begin, begin + rows)
                logits_NV = F.linear(x_ND[part], padded_VD, padded_V)
                loss, more, slopes_NV = _slopes_on(logits_NV, targets_N[part], size, smoothing)
                total, added = total + loss, added + more
                torch.mm(slopes_NV, padded_VD, out=grad_x_ND[part])
                _add_product(grad_weight_VD, slopes_NV.T, x_ND[part])
                if grad_bias_V is not None:
                    grad_bias_V += slopes_NV[:, :size].sum(0, dtype=sums)
        ctx.save_for_backward(grad_x_ND, grad_weight_VD[:size], grad_bias_V)
        ctx.mark_non_differentiable(added)  # the gradient of `total` is that of total + smoothing · added
        return total, added

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor, _: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        grad_x_ND, grad_weight_VD, grad_bias_V = ctx.saved_tensors
        bias = None if grad_bias_V is None else grad_bias_V * grad
        return grad_x_ND * grad.to(grad_x_ND.dtype), grad_weight_VD * grad, bias, None, None


def _add_product(sums: Tensor, a: Tensor, b: Tensor) -> None:
    """sums += a b; on CUDA by one kernel that does not round to half precision in between."""
    if sums.is_cuda and a.dtype != sums.dtype:
        torch.addmm(sums, a, b, out_dtype=sums.dtype, out=sums)
    else:
        sums += a @ b


def _slopes(logits_NV: Tensor, targets_N: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The sums l and m - l, and d l' / d logits; columns from `size` on have no part in it."""
    real_N, target_N1 = targets_N != IGNORE, targets_N.clamp(min=0)[:, None]
    full_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    full_NV[:, size:] = -torch.inf
    logp_NV = full_NV.log_softmax(1)
    loss = torch.where(real_N, -logp_NV.gather(1, target_N1)[:, 0], 0.0).sum()
    added = torch.zeros_like(loss)
    if smoothing:
        added = -torch.where(real_N, logp_NV[:, :size].mean(1), 0.0).sum() - loss
    slopes_NV = logp_NV.exp_().scatter_add_(1, target_N1, torch.full_like(logp_NV[:, :1], smoothing - 1.0))
    if smoothing:
        slopes_NV[:, :size] -= smoothing / size
    return loss, added, slopes_NV.mul_(real_N[:, None]).to(logits_NV.dtype)


def _slopes_on(logits_NV: Tensor, targets_N: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """`_slopes`, on a GPU by one kernel that reads the logits once from memory."""
    global _kernels
    if logits_NV.is_cuda and logits_NV.dtype != torch.float64 and _kernels:
        try:
            from segue.layers.loss_gpu import slopes

            return slopes(logits_NV, targets_N, size, smoothing)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            _kernels = False
            warnings.warn(f"A kernel could not be compiled, and plain torch takes its place: {error}", stacklevel=2)
    return _slopes(logits_NV, targets_N, size, smoothing)


_kernels = find_spec("triton") is not None
"""Whether Triton is installed and has not failed to compile our kernel."""

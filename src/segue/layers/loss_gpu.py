"""The softmax loss on a GPU, as one kernel in Triton's language: the loss of many logits, and its gradient in place.

The equations are those of losses.py. The kernel reads the logits from memory twice and writes once, where plain torch
makes several tensors of their size. Triton compiles it at its first use, which takes seconds, and keeps it on disk.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from segue.batches.batch import IGNORE


@triton.jit
def _softmax(logits, targets, losses, V, SIZE, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    """One row: its loss, and softmax - onehot(target) over its logits."""
    row = tl.program_id(0).to(tl.int64)
    v, target = tl.arange(0, BLOCK), tl.load(targets + row)
    here, real = logits + row * V, target != IGNORE
    most, total = -float("inf"), 0.0
    for begin in range(0, SIZE, BLOCK):
        x_V = tl.load(here + begin + v, mask=begin + v < SIZE, other=-float("inf")).to(tl.float32)
        greatest = tl.maximum(most, tl.max(x_V, 0))
        total = total * tl.exp(most - greatest) + tl.sum(tl.exp(x_V - greatest), 0)
        most = greatest
    whole = most + tl.log(total)
    own = tl.load(here + target, mask=real, other=0.0).to(tl.float32)
    tl.store(losses + row, tl.where(real, whole - own, 0.0))
    for begin in range(0, V, BLOCK):
        x_V = tl.load(here + begin + v, mask=begin + v < SIZE, other=-float("inf")).to(tl.float32)
        slope_V = tl.exp(x_V - whole) - tl.where(begin + v == target, 1.0, 0.0)
        slope_V = tl.where(real, slope_V, 0.0)
        tl.store(here + begin + v, slope_V.to(logits.dtype.element_ty), mask=begin + v < V)


def slopes(logits_NV: Tensor, targets_N: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and d loss / d logits, written over the logits; columns from `size` on are padding."""
    losses_N = logits_NV.new_empty(len(logits_NV), dtype=torch.float32)
    _softmax[(len(logits_NV),)](logits_NV, targets_N, losses_N, logits_NV.shape[1], size, IGNORE, 8192, num_warps=16)
    return losses_N.sum(), logits_NV

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
def _softmax(logits, targets, losses, added, V, SIZE, smoothing, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    """One row: its loss l and m - l, and softmax - (1 - e) onehot(target) - e / SIZE over its logits."""
    row = tl.program_id(0).to(tl.int64)
    v, target = tl.arange(0, BLOCK), tl.load(targets + row)
    here, real = logits + row * V, target != IGNORE
    most, total, plain = -float("inf"), 0.0, 0.0
    for begin in range(0, SIZE, BLOCK):
        x_V = tl.load(here + begin + v, mask=begin + v < SIZE, other=-float("inf")).to(tl.float32)
        greatest = tl.maximum(most, tl.max(x_V, 0))
        total = total * tl.exp(most - greatest) + tl.sum(tl.exp(x_V - greatest), 0)
        most = greatest
        plain += tl.sum(tl.where(begin + v < SIZE, x_V, 0.0), 0)
    whole = most + tl.log(total)
    own = tl.load(here + target, mask=real, other=0.0).to(tl.float32)
    tl.store(losses + row, tl.where(real, whole - own, 0.0))
    tl.store(added + row, tl.where(real, own - plain / SIZE, 0.0))
    for begin in range(0, V, BLOCK):
        x_V = tl.load(here + begin + v, mask=begin + v < SIZE, other=-float("inf")).to(tl.float32)
        slope_V = tl.exp(x_V - whole) - tl.where(begin + v == target, 1.0 - smoothing, 0.0)
        slope_V -= tl.where(begin + v < SIZE, smoothing / SIZE, 0.0)
        slope_V = tl.where(real, slope_V, 0.0)
        tl.store(here + begin + v, slope_V.to(logits.dtype.element_ty), mask=begin + v < V)


def slopes(logits_NV: Tensor, targets_N: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The sums l and m - l (losses.py), and d l' / d logits, written over the logits; columns from `size` on are
    padding."""
    rows, columns = logits_NV.shape
    losses_2N = logits_NV.new_empty(2, rows, dtype=torch.float32)
    sums = losses_2N[0], losses_2N[1], columns, size, smoothing
    _softmax[(rows,)](logits_NV, targets_N, *sums, IGNORE, 8192, num_warps=16)
    return losses_2N[0].sum(), losses_2N[1].sum(), logits_NV

"""Losses as sums with their counts, never means: only so does accumulating equal the big batch.

l = sum over t of -log softmax(logits_t)[target_t]        (natural logarithm)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.batches.batch import IGNORE


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of -log p(target), number of targets) over all positions that are not IGNORE."""
    return _cross_entropy(logits, targets, "sum"), (targets != IGNORE).sum()


def target_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of each target, in the shape of `targets`; 0 where the target is IGNORE."""
    return -_cross_entropy(logits, targets, "none").view(targets.shape)


def _cross_entropy(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    # Half precision would lose small losses in a large sum; double stays double.
    full = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(full.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction=reduction)

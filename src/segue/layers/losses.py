"""Losses as sums with their counts, never means: only so does accumulating equal the big batch.

l = sum over t of -log softmax(logits_t)[target_t]        (natural logarithm)
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from segue.batches.batch import IGNORE


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of -log p(target), number of targets) over all positions that are not IGNORE."""
    total = F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return total, (targets != IGNORE).sum()


def target_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of each target, in the shape of `targets`; 0 where the target is IGNORE."""
    flat = F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return -flat.view(targets.shape)

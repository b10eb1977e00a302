"""Optimisers and the learning rate over a run.

warm-up:   rate · step / warmup                          for the first steps
cosine:    rate · (1 + cos(pi · progress)) / 2           progress from 0 to 1 over the budget
constant:  rate
plateau:   rate halved after every validation that brought nothing better
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """The recipe's [train.optimizer]."""

    name: Literal["adamw", "sgd"] = "adamw"
    """How a gradient becomes a step."""
    rate: float = 0.002
    """Learning rate at its highest."""
    weight_decay: float = 0.0
    """Share of each weight taken away a step, times the rate (matrices only)."""
    momentum: float = 0.9
    """What SGD keeps of the last step; the first beta of AdamW."""
    clip: float = 1.0
    """Longest gradient allowed; 0 for no limit."""
    schedule: Literal["cosine", "constant", "plateau"] = "cosine"
    """How the rate goes on after the warm-up."""
    warmup: int = 20
    """Steps in which the rate rises from nothing."""

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ValueError(f"rate={self.rate} would not learn: expected more than 0")
        if min(self.weight_decay, self.clip, self.warmup) < 0 or not 0 <= self.momentum < 1:
            raise ValueError("weight_decay, clip and warmup must be 0 or more, momentum at least 0 and below 1")


def optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """The optimiser over all weights that learn. Biases and gains are not decayed.

    The fused kernels take a flag on the device, `found_inf`, that turns one step into nothing.
    """
    learning = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learning if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.rate, momentum=config.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=config.rate, betas=(config.momentum, 0.99), fused=True)


def rate_at(config: Config, step: int, progress: float, halvings: int) -> float:
    """The learning rate of one step (from 0) at a share `progress` of the budget."""
    rate = config.rate * 0.5**halvings if config.schedule == "plateau" else config.rate
    if config.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    if step < config.warmup:
        rate = min(rate, config.rate * (step + 1) / config.warmup)
    return rate


def gradient_norm(model: nn.Module, limit: float) -> Tensor:
    """The length of the whole gradient, which is shortened to `limit` where that is not 0."""
    learning = [p for p in model.parameters() if p.grad is not None]
    return nn.utils.clip_grad_norm_(learning, limit or math.inf)

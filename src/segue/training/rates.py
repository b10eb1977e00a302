"""Optimisers, the learning rate over a run, and averaged weights.

warm-up:   rate · step / warmup                          for the first steps
cosine:    rate · (1 + cos(pi · progress)) / 2           progress from 0 to 1 over the budget
wsd:       rate, and at the end down to 0 in a line      warm-up, stable, decay: budget.py says when
constant:  rate
triangular: up in a line over the first tenth, then down in a line to 1/32 of it (slanted: Howard and Ruder 2018)
plateau:   rate halved after every validation that brought nothing better

Layer-wise rates (`layer_decay`, the same paper): a layer learns at that share of the rate of the layer above it.

Averaged SGD (Polyak and Juditsky 1992) judges and keeps the mean of the weights after each step since some step T;
NT-ASGD (Merity et al. 2018) has validation choose T: as soon as a loss is worse than the best of those that are `n` or
more validations older, for then the steps only wander about a valley whose middle is better than any of them.
A running mean (`ema`) forgets: mean <- ema · mean + (1 - ema) · w, the plain mean as long as that is younger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from segue.errors import InputError
from segue.training.optimizers import AdamW, Group, Muon, Optimizer, Sgd

RISE, LOWEST = 0.1, 32
"""The share of a run over which a triangular rate rises, and the part of its height that it begins and ends with."""


@dataclass(frozen=True)
class Config:
    """The recipe's [train.optimizer]."""

    name: Literal["adamw", "sgd", "muon"] = "adamw"
    """Optimiser; muon: orthogonal steps for the matrices between embedding and head, AdamW for the rest."""
    rate: float = 0.002
    """Learning rate at its highest, after the warm-up."""
    weight_decay: float = 0.0
    """Weight decay: subtract this share of each weight, times the rate, at every step (matrices only)."""
    momentum: float = 0.9
    """Momentum of SGD and Muon; the first beta of AdamW."""
    clip: float = 1.0
    """Gradient clipping: the largest norm of the gradient (0: no limit)."""
    schedule: Literal["cosine", "wsd", "constant", "plateau", "triangular"] = "cosine"
    """Learning rate: cosine; wsd (stable, then decay); plateau (halved after validations no better); triangular."""
    layer_decay: float = 1.0
    """Layer-wise rates: a layer learns at this share of the rate of the layer above it, as 0.9 (1: all alike)."""
    decay: float = 0.4
    """With schedule=wsd: over this last share of the run the rate falls to 0 in a straight line."""
    warmup: int = 20
    """Warm-up: raise the learning rate from 0 over this many steps."""
    average: int = 0
    """Start averaging weights (NT-ASGD) after this many validations without improvement (0: never)."""
    ema: float = 0.0
    """Validate and save an exponential moving average of the weights with this decay, as 0.999 (0: never)."""

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ValueError(f"rate={self.rate} would not learn: expected more than 0")
        if min(self.weight_decay, self.clip, self.warmup, self.average) < 0 or not 0 <= self.momentum < 1:
            raise ValueError("weight_decay, clip, warmup, average must be 0 or more, momentum at least 0 and below 1")
        for name, share in (("decay", self.decay), ("layer_decay", self.layer_decay)):
            if not 0 < share <= 1:
                raise ValueError(f"{name}={share} must be above 0 and at most 1")
        if not 0 <= self.ema < 1 or (self.ema and self.average):
            raise ValueError(f"ema={self.ema} must be at least 0 and below 1, and without average, another mean")


def optimizer(model: nn.Module, config: Config) -> Optimizer:
    """Make the optimiser of all weights that learn, without weight decay of biases and gains."""
    learning = [p for p in model.parameters() if p.requires_grad]
    first = [p for p in learning if p.dim() >= 2]
    if config.name == "muon":
        outer = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
        outer |= {id(p) for name, p in model.named_parameters() if name.startswith(("head.", "ctc_head."))}
        first = [p for p in first if id(p) not in outer]
    ids = {id(p) for p in first}
    groups = [Group(first, config.weight_decay), Group([p for p in learning if id(p) not in ids])]
    # On a GPU the rate is a tensor there, so that a recorded step can be replayed at another rate.
    device = learning[0].device
    rate = torch.tensor(config.rate, device=device) if device.type == "cuda" else config.rate
    kinds: dict[str, type[Sgd] | type[AdamW] | type[Muon]] = {"sgd": Sgd, "adamw": AdamW, "muon": Muon}
    shares = _shares(model, config.layer_decay) if config.layer_decay < 1 else None
    return kinds[config.name](groups, rate, config.momentum, shares)


def _shares(model: Any, decay: float) -> dict[Tensor, float]:
    """Return the share of the rate of each weight: 1 for the head, `decay` for the last layer, then less and less."""
    layers: dict[str, int] = model.layers_of()
    top = max(layers.values())
    if not top:
        raise InputError("train.optimizer.layer_decay is for models of several layers, and this one has none.")
    return {weight: decay ** (top - layers[name]) for name, weight in model.named_parameters()}


def rate_at(config: Config, step: int, progress: float, halvings: int, height: float = 1.0) -> float:
    """Return the learning rate of one step (from 0) at a share `progress` of the budget; `height`: its share in wsd."""
    rate = config.rate * 0.5**halvings if config.schedule == "plateau" else config.rate * height
    if config.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    elif config.schedule == "triangular":
        share = progress / RISE if progress < RISE else (1 - min(1.0, progress)) / (1 - RISE)
        rate *= (1 + share * (LOWEST - 1)) / LOWEST
    if step < config.warmup:
        rate = min(rate, config.rate * (step + 1) / config.warmup)
    return rate


def gradient_norm(model: nn.Module, limit: float) -> Tensor:
    """Gradient clipping: shorten the whole gradient to the length `limit` (0: never); return the length it had."""
    learning = [p for p in model.parameters() if p.grad is not None]
    return nn.utils.clip_grad_norm_(learning, limit or math.inf)


def stalled(losses: list[float], n: int) -> bool:
    """NT-ASGD's trigger: whether the last loss is worse than one that is more than `n` validations older."""
    return any(old < losses[-1] for old in losses[: -1 - n])


class Average:
    """The mean of the weights over all steps since it was made, or with `ema` an exponential moving average."""

    def __init__(self, model: nn.Module, ema: float = 0.0) -> None:
        self.ema = ema
        self.weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.means = {name: p.detach().clone() for name, p in self.weights.items()}
        self.steps = 0

    @torch.no_grad()
    def add(self) -> None:
        """Update the mean after a step: mean <- mean + (w - mean) · share."""
        self.steps += 1
        share = max(1 / self.steps, 1 - self.ema) if self.ema else 1 / self.steps
        torch._foreach_lerp_(list(self.means.values()), list(self.weights.values()), share)

    @torch.no_grad()
    def begin_anew(self) -> None:
        """Forget the mean: begin with the weights as they are now."""
        for name, weight in self.weights.items():
            self.means[name].copy_(weight)
        self.steps = 0

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the means into the model's weights inside the `with` block."""
        kept = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self._set(self.means)
        try:
            yield
        finally:
            self._set(kept)

    @torch.no_grad()
    def _set(self, values: dict[str, Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(values[name])

    def restore(self, means: dict[str, Tensor], steps: int) -> None:
        """Restore the means and the number of steps from a checkpoint."""
        for name, mean in self.means.items():
            mean.copy_(means[name])
        self.steps = steps

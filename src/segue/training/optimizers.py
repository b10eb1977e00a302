"""How a gradient G becomes a step of the weights W: SGD, AdamW and Muon, with weight decay.

SGD     M <- mu M + G;   W <- W - rate · M                                         G: with decay · W added
AdamW   M <- mu M + (1 - mu) G;   S <- nu S + (1 - nu) G²                          Loshchilov and Hutter 2019
        M' = M / (1 - mu^t);   S' = S / (1 - nu^t)
        W <- (1 - rate · decay) W - rate · M' / (sqrt(S') + eps)
Muon    M <- mu M + (1 - mu) G;   U = (1 - mu) G + mu M                            Nesterov's momentum
        X = U / |U|;   five times  X <- a X + (b A + c A A) X,  A = X X^T          towards the nearest orthogonal X
        W <- (1 - rate · decay) W - rate · 0.2 · sqrt(max(rows, columns)) · X      as long as AdamW's step

Muon (Jordan et al. 2024) makes the step of a matrix as long in every direction as in another; everything else (vectors,
embeddings, the output layer) gets AdamW's. It takes all matrices of a shape together. The weights of a convolution are
a matrix to it, with a row for each channel that comes out.

SGD and AdamW are torch's kernels, without `torch.optim` around them, which loads torch's compiler at its first use:
more than a second of every command. The learning rate and a flag that skips a step may be tensors on the device, so
that a CUDA graph of the step can be replayed at another rate, and nothing has to be read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
SECOND, SMALL = 0.99, 1e-8
"""AdamW's nu (its second beta), and its eps, which avoids a division by 0."""


class Group(NamedTuple):
    """Weights with the same weight decay."""

    weights: Sequence[Tensor]
    decay: float = 0.0


class Optimizer(ABC):
    """Makes the steps of some groups of weights, and keeps the optimiser state of each weight."""

    def __init__(
        self, groups: list[Group], rate: Tensor | float, momentum: float, shares: dict[Tensor, float] | None = None
    ) -> None:
        """`shares`: of the rate, for weights that learn more slowly; all others learn at the whole rate."""
        self.groups, self.momentum, self.shares = groups, momentum, shares or {}
        self.rate: Any = rate
        self.skip: Tensor | None = None
        """If it is 1, steps change nothing."""
        self.kept: dict[Tensor, dict[str, Tensor]] = {weight: {} for group in groups for weight in group.weights}

    def set_rate(self, rate: float) -> None:
        """Set the rate of the next step; a rate on the device is overwritten in place."""
        if isinstance(self.rate, Tensor):
            self.rate.fill_(rate)
        else:
            self.rate = rate

    def forget_gradients(self) -> None:
        for weight in self.kept:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.groups:
            by_share: dict[float, list[Tensor]] = defaultdict(list)
            for weight in group.weights:
                if weight.grad is not None:
                    by_share[self.shares.get(weight, 1.0)].append(weight)
            for share, weights in by_share.items():
                self._step(weights, group, self.rate if share == 1 else self.rate * share)

    @abstractmethod
    def _step(self, weights: list[Tensor], group: Group, rate: Any) -> None:
        """Make the step of some weights of a group, which have a gradient."""

    def _keep(self, weights: list[Tensor], name: str, shape: tuple[int, ...] | None = None) -> list[Tensor]:
        """Return the state of the weights under a name; zeros at first."""
        for weight in weights:
            if name not in self.kept[weight]:
                zeros = torch.zeros_like(weight) if shape is None else weight.new_zeros(shape)
                self.kept[weight][name] = zeros.detach()
        return [self.kept[weight][name] for weight in weights]

    def tensors(self) -> dict[str, Tensor]:
        """All that is kept, as a checkpoint holds it."""
        return {f"{i}.{name}": value for i, kept in enumerate(self.kept.values()) for name, value in kept.items()}

    @abstractmethod
    def _state(self, weight: Tensor, group: Group) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of what is kept for a weight of a group, once it has made a step."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from a checkpoint. ValueError: it is not of this optimiser and these weights, whose kernels
        would write beyond tensors of other shapes."""
        expected: dict[str, tuple[int, ...]] = {}
        places = {weight: i for i, weight in enumerate(self.kept)}
        for group in self.groups:
            for weight in group.weights:
                state = self._state(weight, group)
                if any(f"{places[weight]}.{name}" in tensors for name in state):  # a weight without a gradient has none
                    expected |= {f"{places[weight]}.{name}": shape for name, shape in state.items()}
        weights = list(self.kept)
        for key in sorted(expected.keys() | tensors.keys()):
            found = tensors.get(key)
            if key not in expected or found is None or tuple(found.shape) != expected[key]:
                shape = "missing" if found is None else list(found.shape)
                raise ValueError(f"the optimiser's {key} is {shape}, expected {expected.get(key, 'no such state')}")
            if found.dtype != weights[int(key.split(".", 1)[0])].dtype:
                raise ValueError(f"the optimiser's {key} is of type {found.dtype}")
        self.kept = {weight: {} for weight in weights}
        for key, value in tensors.items():
            i, name = key.split(".", 1)
            self.kept[weights[int(i)]][name] = value.to(weights[int(i)].device)


class Sgd(Optimizer):
    """With momentum, or without it (0)."""

    def _state(self, weight: Tensor, group: Group) -> dict[str, tuple[int, ...]]:
        return {"momentum": tuple(weight.shape)} if self.momentum else {}

    def _step(self, weights: list[Tensor], group: Group, rate: Any) -> None:
        means = self._keep(weights, "momentum") if self.momentum else []
        gradients: list[Any] = [weight.grad for weight in weights]
        torch._fused_sgd_(
            weights, gradients, means,
            lr=rate, momentum=self.momentum, weight_decay=group.decay, dampening=0.0,
            nesterov=False, maximize=False, is_first_step=False, grad_scale=None, found_inf=self.skip,
        )  # fmt: skip


class AdamW(Optimizer):
    def _state(self, weight: Tensor, group: Group) -> dict[str, tuple[int, ...]]:
        return {"mean": tuple(weight.shape), "square": tuple(weight.shape), "steps": ()}

    def _step(self, weights: list[Tensor], group: Group, rate: Any) -> None:
        means, squares = self._keep(weights, "mean"), self._keep(weights, "square")
        steps, gradients = self._keep(weights, "steps", ()), [weight.grad for weight in weights]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            weights, gradients, means, squares, [], steps,  # type: ignore[arg-type]
            lr=rate, beta1=self.momentum, beta2=SECOND, weight_decay=group.decay, eps=SMALL,
            amsgrad=False, maximize=False, grad_scale=None, found_inf=self.skip,
        )  # fmt: skip
        if self.skip is not None:
            torch._foreach_sub_(steps, [self.skip] * len(steps))


class Muon(AdamW):
    """The first group by Muon, the others by AdamW."""

    def _state(self, weight: Tensor, group: Group) -> dict[str, tuple[int, ...]]:
        return {"momentum": tuple(weight.shape)} if group is self.groups[0] else super()._state(weight, group)

    def _step(self, weights: list[Tensor], group: Group, rate: Any) -> None:
        if group is not self.groups[0]:
            super()._step(weights, group, rate)
            return
        rate = torch.as_tensor(rate, device=weights[0].device)
        if self.skip is not None:
            rate = rate * (1 - self.skip)
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for weight in weights:
            by_shape[weight.shape].append(weight)
        for same in by_shape.values():
            self._orthogonal(same, rate, group.decay)

    def _orthogonal(self, weights: list[Tensor], rate: Tensor, decay: float) -> None:
        gradients = [torch.nan_to_num(weight.grad, 0.0, 0.0, 0.0) for weight in weights]  # type: ignore[arg-type]
        means = self._keep(weights, "momentum")
        torch._foreach_lerp_(means, gradients, 1 - self.momentum)
        torch._foreach_lerp_(gradients, means, self.momentum)
        steps = orthogonal(torch.stack(gradients).flatten(2)).to(weights[0].dtype)
        steps *= rate * 0.2 * max(steps.shape[1:]) ** 0.5
        torch._foreach_mul_(weights, 1 - rate * decay)
        torch._foreach_sub_(weights, [step.view_as(weights[0]) for step in steps])


def orthogonal(matrices: Tensor) -> Tensor:
    """Move the singular values of each matrix of a stack towards 1 (to between 0.7 and 1.2, in bfloat16)."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x

"""Muon (Jordan et al. 2024): the step of a matrix is its momentum made orthogonal, every direction as long as another.

    M <- mu M + (1 - mu) G            U = (1 - mu) G + mu M                             Nesterov's momentum
    X = U / |U|;   five times  X <- a X + (b A + c A A) X,  A = X X^T                   towards the nearest orthogonal X
    W <- (1 - rate · decay) W - rate · 0.2 · sqrt(max(rows, columns)) · X               as long as AdamW's step

Everything else (vectors, embeddings, the output layer) gets AdamW's. Torch has a Muon too; it takes one matrix at a
time and its rate from the host. This one orthogonalises all matrices of a shape together and keeps the rate on the
device, so that a step can be recorded and replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
SECOND, SMALL = 0.99, 1e-8
"""AdamW's second beta, and what keeps it from dividing by nothing."""


class Muon(torch.optim.Optimizer):
    """`matrices` by Muon, `others` by AdamW."""

    def __init__(
        self, matrices: Iterable[Tensor], others: Iterable[Tensor], rate: Tensor | float, momentum: float, decay: float
    ) -> None:
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "orthogonal": True, "weight_decay": decay},
            {"params": list(others), "orthogonal": False, "weight_decay": 0.0},
        ]
        super().__init__([group for group in groups if group["params"]], {"lr": rate, "momentum": momentum})
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Where `found_inf` is 1, weights stay as they are."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if group["orthogonal"]:
                rate = torch.as_tensor(group["lr"], device=group["params"][0].device)
                if self.found_inf is not None:
                    rate = rate * (1 - self.found_inf)
                by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
                for weight in weights:
                    by_shape[weight.shape].append(weight)
                for same in by_shape.values():
                    self._orthogonal(same, rate, group["momentum"], group["weight_decay"])
            elif weights:
                self._adam(weights, group["lr"], group["momentum"])

    def _orthogonal(self, weights: list[Tensor], rate: Tensor, momentum: float, decay: float) -> None:
        gradients = [torch.nan_to_num(weight.grad, 0.0, 0.0, 0.0) for weight in weights]  # type: ignore[arg-type]
        means = [self._kept(weight, "momentum") for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        torch._foreach_lerp_(gradients, means, momentum)
        rows, columns = weights[0].shape
        steps = orthogonal(torch.stack(gradients)).to(weights[0].dtype)
        steps *= rate * 0.2 * max(rows, columns) ** 0.5
        torch._foreach_mul_(weights, 1 - rate * decay)
        torch._foreach_sub_(weights, list(steps))

    def _adam(self, weights: list[Tensor], rate: Any, momentum: float) -> None:
        """AdamW's, by torch's own kernel: one for all."""
        means, squares = ([self._kept(weight, name) for weight in weights] for name in ("mean", "square"))
        steps = [self._kept(weight, "steps", ()) for weight in weights]
        gradients: list[Any] = [weight.grad for weight in weights]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            weights, gradients, means, squares, [], steps,
            lr=rate, beta1=momentum, beta2=SECOND, weight_decay=0.0, eps=SMALL,
            amsgrad=False, maximize=False, grad_scale=None, found_inf=self.found_inf,
        )  # fmt: skip
        if self.found_inf is not None:
            torch._foreach_sub_(steps, [self.found_inf] * len(steps))

    def _kept(self, weight: Tensor, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        state = self.state[weight]
        if name not in state:
            state[name] = torch.zeros_like(weight) if shape is None else weight.new_zeros(shape)
        kept: Tensor = state[name]
        return kept


def orthogonal(matrices: Tensor) -> Tensor:
    """Of a stack of matrices, each with its singular values moved towards 1 (to between 0.7 and 1.2, in bfloat16)."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x

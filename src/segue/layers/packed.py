"""Matrices packed for oneDNN, which multiplies on a CPU: faster than torch's own order, with what follows fused."""

from __future__ import annotations

import torch
from torch import Tensor

_FUSED = {"relu": ("relu", ""), "gelu": ("gelu", "tanh"), "gelu_erf": ("gelu", "none"), "silu": ("swish", "")}
"""The activation functions by the names of oneDNN."""
_ROWS = 256
"""Rows for which the weights are packed; they can be used for any number."""


class Matrix:
    """A linear layer whose weights are in oneDNN's own order."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.inputs = weight.shape[1]
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _ROWS)
        self.bias = None if bias is None else bias.detach()

    def __call__(self, x_BI: Tensor, activation: str = "", add: Tensor | None = None) -> Tensor:
        """f(W x + b), or W x + b + add."""
        linear = torch.ops.mkldnn._linear_pointwise
        if add is not None:
            summed: Tensor = linear.binary(x_BI, add, self.weight, self.bias, "add")
            return summed
        name, way = _FUSED[activation] if activation else ("none", "")
        y_BO: Tensor = linear(x_BI, self.weight, self.bias, name, [], way)
        return y_BO


def can_pack(weight: Tensor) -> bool:
    """Whether such weights can be packed: float32 on a CPU, where oneDNN is there."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there

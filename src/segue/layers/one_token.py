"""What code that is made for one token a row reads of a Transformer: loops on a CPU, kernels on a GPU.

Both compute what layers/transformer.py and layers/attention.py say, from the same weights in the same memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from segue.layers.kv_cache import Loops
from segue.layers.position import Positions
from segue.layers.transformer import Block

FEW = 8
"""Up to so many rows a thread, loops are as fast on a CPU as packed matrices."""
MANY = 32
"""Rows that are worth a thread of their own with packed matrices."""
_LARGE = 3_000_000
"""Weights that no near cache holds."""


class Stack(NamedTuple):
    """A Transformer from ids to logits: out · norm(blocks(scale · vectors[id] + position)) + bias."""

    vectors: Tensor
    """(V, D), one row for each token."""
    scale: float
    """What the vectors are multiplied by."""
    positions: Positions
    blocks: Sequence[Block]
    norm: nn.Module | None
    """The norm after the last layer; None: there is none."""
    out: Tensor
    """(V, D), the output weights."""
    bias: Tensor | None


class Stacked(ABC):
    """A model that is one stack of layers with causal self-attention."""

    @property
    @abstractmethod
    def stack(self) -> Stack:
        """The weights as they lie in memory."""


def loops_for(stack: Stack, rows: int) -> Loops | None:
    """Compiled code for a step of so many rows, where it is faster; None elsewhere."""
    if not _may_compile(stack, rows):
        return None
    from segue.layers.one_token_cpu import Layers  # numba takes long to import

    return Layers(stack, rows)


def _may_compile(stack: Stack, rows: int) -> bool:
    """Whether the loops and packed matrices of one_token_cpu.py are faster for so many rows than torch's layers, and
    can compute such a stack."""
    weight, threads = stack.vectors, torch.get_num_threads()
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    block = stack.blocks[0]
    # The loops expect the weights of a norm, and of the Transformer's own attention.
    if _weights(stack) < _LARGE or block.norm == "none" or not block.attention.usual:
        return False
    if rows > FEW * threads:
        there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return there and (threads <= 4 or rows >= MANY * threads)
    return threads <= max(4, rows)  # with many threads for few rows torch's matrices are the faster ones


def _weights(stack: Stack) -> int:
    return stack.vectors.numel() + sum(weight.numel() for block in stack.blocks for weight in block.parameters())

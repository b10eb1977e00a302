"""What code that is made for one token a row reads of a Transformer: loops on a CPU, kernels on a GPU.

Both compute what layers/transformer.py and layers/attention.py say, from the same weights in the same memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from segue.layers.position import Positions
from segue.layers.transformer import Block


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

"""A language model without `step`: mypy must refuse to make one, or `make lint` fails for an ignore without a use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from segue.batches.batch import Batch
from segue.models.base import LanguageModel, ModelConfig, Sizes
from segue.models.network import Network


class Mute(Network, LanguageModel):
    """It has everything but `step`."""

    task = "lm"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """It has no settings."""

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Read a batch."""
        raise NotImplementedError

    def start(self, rows: int, capacity: int, source: Any = None, source_mask: Any = None) -> Any:
        """Begin a text."""


class Speaking(Mute):
    """It has `step` too."""

    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens."""
        raise NotImplementedError


def make_both(sizes: Sizes) -> None:
    """Make one of each: the first is an error."""
    Mute(Mute.Config(), sizes)  # type: ignore[abstract]
    Speaking(Speaking.Config(), sizes)

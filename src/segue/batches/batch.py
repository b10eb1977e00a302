"""A batch: what a model reads and what it should predict.

The dimension key, for every tensor in `layers/` and `models/` (names end in it: `scores_BHTS`):

    B rows    T time    S source time    D width    H heads    K head width
    F feed-forward      V vocabulary     C classes or letters  L layers

A batch is made of numpy arrays; `to` turns them into tensors on a device, and nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

IGNORE = -100
"""The target where nothing is predicted: padding, and prompts that are only read."""


@dataclass(frozen=True)
class Batch:
    """Rows side by side. Targets are already shifted: `targets[b, t]` is predicted at `tokens_BT[b, t]`."""

    tokens_BT: Any
    """Ids that the model reads; 0 where the mask is False."""
    targets: Any
    """(B, T) next ids or tags, or (B,) classes; IGNORE where nothing is predicted."""
    mask_BT: Any
    """True on real tokens."""
    fresh_B: Any = None
    """True on rows that begin anew: carried state is forgotten there."""
    source: Any = None
    """(B, S) ids of the source."""
    source_mask: Any = None
    """True on real source tokens."""

    @property
    def count(self) -> int:
        """How many targets are predicted."""
        return int((self.targets != IGNORE).sum())

    def to(self, device: Any) -> Batch:
        """The same batch as torch tensors on `device`."""
        import torch

        def move(array: Any) -> Any:
            if array is None:
                return None
            tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
            return tensor.to(device, non_blocking=True)

        return replace(self, **{f.name: move(getattr(self, f.name)) for f in fields(self)})

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
    folded_BT: Any = None
    """Tagging: the ids of the words as they are written in small letters."""
    chars_BTC: Any = None
    """Tagging: the letters of each word, Unicode code points plus 1; 0 after its last."""
    full: bool = False
    """No token is padding and every target is predicted: known beforehand, so that nobody has to ask the device."""

    @property
    def count(self) -> int:
        """How many targets are predicted."""
        return int(np.prod(self.targets.shape)) if self.full else int((self.targets != IGNORE).sum())

    def rows(self, rows: Any) -> Batch:
        """Some of the rows."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        some: dict[str, Any] = {n: part[rows] for n, part in parts.items() if part is not None and n != "full"}
        return replace(self, **some)

    def to(self, device: Any) -> Batch:
        """The same batch as torch tensors on `device`."""
        import torch

        def move(array: Any) -> Any:
            if array is None or isinstance(array, bool):
                return array
            tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
            return tensor.to(device, non_blocking=True)

        return replace(self, **{f.name: move(getattr(self, f.name)) for f in fields(self)})

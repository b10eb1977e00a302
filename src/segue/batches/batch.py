"""A batch: what a model reads and what it should predict.

The dimension key, for every tensor in `layers/` and `models/` (names end in it: `scores_BHTS`):

    B rows    T time    S source time    D width    H heads    K head width
    F feed-forward      V vocabulary     C classes or letters  L layers
    W words             K also masked places (places_BK)

A batch is made of numpy arrays; `to` turns them into tensors on a device, and nothing else does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

IGNORE = -100
"""The target where nothing is predicted: padding, and prompts that are only read."""


@dataclass(frozen=True)
class Batch:
    """Rows side by side. Targets are already shifted (teacher forcing): the model predicts `targets[b, t]` where it
    reads `tokens_BT[b, t]`."""

    tokens_BT: Any
    """Ids that the model reads; 0 where the mask is False."""
    targets: Any
    """Whole numbers (B, T) next ids or tags, (B, T, C) a yes or no for every tag, or (B,) classes; floats (B, C) a yes
    or no for every class, or (B,) numbers. IGNORE where nothing is predicted."""
    mask_BT: Any
    """True on real tokens, False on padding."""
    fresh_B: Any = None
    """True on rows that begin anew: the model forgets the carried state there."""
    source: Any = None
    """(B, S) ids of the source, or (B, S, W) frames of a sound or a picture."""
    source_mask: Any = None
    """True on real source tokens, False on padding."""
    folded_BT: Any = None
    """Tagging: the ids of the words as they are written in small letters."""
    chars_BTC: Any = None
    """Tagging: the letters of each word, Unicode code points plus 1; 0 after its last."""
    segments_BT: Any = None
    """0 on the first text of a pair and its end, 1 on the second."""
    places_BK: Any = None
    """Masked language models: the places that are predicted, with targets (B, K)."""
    follows_B: Any = None
    """Next sentence: 1 if the second chunk of a row follows the first in the text, 0 if it is from elsewhere; IGNORE:
    not asked."""
    firsts_BW: Any = None
    """Tagging by pieces of words: the place of each word, with targets (B, W): that of its first piece or, of a causal
    body, of its last. IGNORE where there is no word."""
    answers_BT: Any = None
    """Questions about a text: True where an answer may begin or end, and at the place that says that there is none;
    targets (B, 2) are the places of begin and end."""
    hidden_BND: Any = None
    """The states of a frozen body, computed once: N states of each row, those of several layers side by side."""
    unpadded: bool = False
    """True if no token is padding, so that a model can skip the mask without waiting for the device."""
    source_unpadded: bool = False
    """True if no token of the source is padding: the same for the source's mask."""
    right_padded: bool = False
    """True if padding stands on the right alone and no state goes on from this batch: a model whose tokens see only
    those before them can then skip the mask too, and return any state."""
    count: int = -1
    """Number of predicted targets (not IGNORE). Given by the maker of a batch on a device, since counting there would
    wait for the device; counted here on the host. A loss must not use it: a CUDA graph would replay the old number."""

    def __post_init__(self) -> None:
        if self.count < 0:
            count = 0 if self.targets is None else int((self.targets != IGNORE).sum())
            object.__setattr__(self, "count", count)

    def arrays(self) -> dict[str, Any]:
        """Return every field that is an array or a tensor, by name: what must be sent to a device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None and not isinstance(value, int)}

    def rows(self, rows: Any) -> Batch:
        """Return a batch of some of the rows."""
        some: dict[str, Any] = {name: array[rows] for name, array in self.arrays().items()}
        size = math.prod(some["targets"].shape)
        every = self.count == math.prod(self.targets.shape)
        return replace(self, **some, count=size if every else int((some["targets"] != IGNORE).sum()))

    def padded(self, width: int, source_width: int = 0) -> Batch:
        """Pad on the right to `width` tokens a row, and the source to `source_width`; what is wider stays."""

        def pad(name: str, array: Any) -> Any:
            axis, wanted = _time_axis(name, array), source_width if name.startswith("source") else width
            if name == "hidden_BND" and (self.firsts_BW is not None or self.answers_BT is not None):
                axis = 1  # a state a word, or a place
            if name == "targets" and self.answers_BT is not None:  # two places
                axis = None
            if axis is None or array.shape[axis] >= wanted:
                return array
            room = [(0, wanted - size if place == axis else 0) for place, size in enumerate(array.shape)]
            return np.pad(array, room, constant_values=IGNORE if name in ("targets", "firsts_BW") else 0)

        wider: dict[str, Any] = {name: pad(name, array) for name, array in self.arrays().items()}
        if wider["mask_BT"] is not self.mask_BT:
            wider["unpadded"] = False
        if wider.get("source_mask") is not self.source_mask:
            wider["source_unpadded"] = False
        return replace(self, **wider)

    def to(self, device: Any) -> Batch:
        """Move the arrays to `device`, as torch tensors."""
        import torch

        def move(array: Any) -> Any:
            tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
            return tensor.to(device, non_blocking=True)

        return replace(self, **{name: move(array) for name, array in self.arrays().items()})


def _time_axis(name: str, array: Any) -> int | None:
    """Return the axis of a field that is time, where padding goes; None if no axis is."""
    if name.startswith("source"):
        return 1
    if name == "targets":  # floats are targets of whole rows
        return 1 if array.ndim > 1 and array.dtype.kind in "iu" else None
    if name == "firsts_BW":  # as wide as its targets: a row has no more words than pieces, and shapes stay few
        return 1
    place = name.rpartition("_")[2].find("T")
    return place if place >= 0 else None

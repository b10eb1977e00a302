"""Which row of a KV cache holds each place of each row: beams change places, and no key or value is copied."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class RowMap(NamedTuple):
    """Rows of a text and where their keys and values are.

    Beams of one source stand side by side, are equally long, and share as many rows of the cache. A row writes each new
    place into a row of the cache of its own; what its parent wrote stays where the parent wrote it.
    """

    slot_B: Tensor
    """The row of the cache into which each row writes."""
    home_BS: Tensor
    """The row of the cache that holds each place of each row."""
    source_B: Tensor
    """The row of the memory that each row looks at."""

    @classmethod
    def plain(cls, rows: int, places: int, beams: int, device: torch.device | str) -> RowMap:
        """Each row in the row of the same number."""
        slot_B = torch.arange(rows, device=device)
        return cls(slot_B, slot_B[:, None].repeat(1, places), slot_B // beams)

    def move(self, rows_B: Tensor, beams: int) -> RowMap:
        """Go on with these rows, `beams` of each source that goes on: row i after what was row rows_B[i]."""
        own_B = rows_B // beams * beams + torch.arange(len(rows_B), device=rows_B.device) % beams
        return RowMap(self.slot_B[own_B], self.home_BS[rows_B], self.source_B[rows_B])

    def grow(self, places: int) -> RowMap:
        """Have room for so many places."""
        more = places - self.home_BS.shape[1]
        return self if more <= 0 else self._replace(home_BS=F.pad(self.home_BS, (0, more)))

    def gather(self, x_LBHSK: Tensor) -> Tensor:
        """The keys or values of a cache, each row's in its own row."""
        places = torch.arange(x_LBHSK.shape[3], device=x_LBHSK.device)
        x_BSLHK = x_LBHSK[:, self.home_BS[:, : len(places)], :, places]
        return x_BSLHK.permute(2, 0, 3, 1, 4).contiguous()

"""Windows over a sequence: the vectors of k neighbouring words side by side, the same weights at every place.

    y_t = W [x_{t-r}; …; x_t; …; x_{t+r}] + b,      r = (k - 1) / 2,  zero vectors beyond the ends

which is a convolution of width k (Collobert and Weston 2008).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def masked(x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Zero vectors at padding, so that it is the same as the end of the text."""
    return x_BTD * mask_BT.unsqueeze(-1)


def windows(x_BTD: Tensor, width: int) -> Tensor:
    """The `width` vectors around each place, concatenated in the order of the text: B, T, width · D."""
    reach = (width - 1) // 2
    padded = F.pad(x_BTD, (0, 0, reach, reach))
    # unfold puts the window last: B, T, D, width; the text's order wants width before D.
    return padded.unfold(1, width, 1).transpose(2, 3).flatten(2)


class Window(nn.Module):
    """A linear layer over the window around each place."""

    def __init__(self, input_width: int, output_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.linear = nn.Linear(width * input_width, output_width)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        out: Tensor = self.linear(windows(masked(x_BTD, mask_BT), self.width))
        return out

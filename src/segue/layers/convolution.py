"""Windows over a sequence: the vectors of k neighbouring words side by side, the same weights at every place.

    y_t = W [x_{t-r}; …; x_t; …; x_{t+r}] + b,      r = (k - 1) / 2,  zero vectors beyond the ends

which is a convolution of width k (Collobert and Weston 2008).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.probe import probe


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


class MaxOverTime(nn.Module):
    """Filters over every k words in a row, and for each filter the best place (Kim 2014).

        c_t = relu(F [x_t; …; x_{t+k-1}] + b)       m = max over t of c_t

    A window may reach over the ends of the text, where zero vectors stand, but holds at least one of its words.
    """

    def __init__(self, input_width: int, filters: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.linear = nn.Linear(width * input_width, filters)
        # Few windows of a text fit a filter, so that it begins small, as Kim's do, and is not at once sure of itself.
        nn.init.uniform_(self.linear.weight, -0.01, 0.01)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """(B, filters); real words stand first in a row."""
        k, reach = self.width, self.width - 1
        padded_BDT = F.pad(masked(x_BTD, mask_BT).transpose(1, 2), (reach, reach))
        filters_FDK = self.linear.weight.view(-1, k, x_BTD.shape[2]).transpose(1, 2)
        c_BFT = F.conv1d(padded_BDT, filters_FDK, self.linear.bias).relu()
        # Of windows at 0 … T + k - 2, the first n + k - 1 touch one of n words; a text without words has one of zeros.
        windows_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1) + reach
        real_BT = torch.arange(c_BFT.shape[2], device=c_BFT.device) < windows_B1
        c_BFT = c_BFT.masked_fill(~real_BT[:, None], 0.0)
        probe("filters", c_BFT.detach())
        return c_BFT.amax(2)

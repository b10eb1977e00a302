"""Read frames of a source that is not text: log-mels of sound, or pixels of pictures, as places that attention sees.

    sound                 two convolutions over time, each of stride 2, and a linear layer: S frames give S / 4 places
    picture, patch = p    a linear layer of each patch of p x p pixels (Dosovitskiy et al. 2021)
    picture, patch = 0    three convolutions of stride 2 over the plane, then one of stride 1 over plane and frames: a
                          place for each 8 x 8 pixels, which sees 31 x 31 in its frame and in those beside it

A place of a picture gets a vector for its row, its column and its frame, since their order in the sequence does not say
how near two are. Padding changes nothing: it is 0 before each convolution, as what lies beyond the last frame is.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.codec import Sizes
from segue.data.config import Source
from segue.data.pictures import MOST_FRAMES

STRIDE = 4
"""Frames of sound for each place."""
_PIXELS = 8
"""Pixels between two places of a picture that is read by convolutions."""
_SPREAD = 0.2
"""Deviation of the first vectors of rows, columns and frames, beside a content of deviation 1."""


class Stem(nn.Module):
    """Makes places of frames."""

    @abstractmethod
    def forward(self, frames: Tensor, mask_BF: Tensor | None) -> Tensor:
        """(B, F, W) frames to x_BSD; `mask_BF` is True on real frames, None: all are."""

    @abstractmethod
    def mask(self, mask_BF: Tensor) -> Tensor:
        """mask_BS: which places come from real frames."""


class SoundStem(Stem):
    """Convolutions over time."""

    stride = STRIDE
    """Frames between two places."""

    def __init__(self, frame: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(frame, width, 3, stride=2, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, frames: Tensor, mask_BF: Tensor | None) -> Tensor:
        x_BCF = frames.to(self.linear.weight.dtype).mT
        x_BCF = torch.relu(self.first(x_BCF if mask_BF is None else x_BCF * mask_BF[:, None]))
        x_BCF = torch.relu(self.second(x_BCF if mask_BF is None else x_BCF * mask_BF[:, None, ::2]))
        x_BSD: Tensor = self.norm(self.linear(x_BCF.mT))
        return x_BSD

    def mask(self, mask_BF: Tensor) -> Tensor:
        return mask_BF[:, ::STRIDE]


class PictureStem(Stem):
    """Patches, or convolutions over the plane, with a vector for each place's row, column and frame."""

    def __init__(self, frame: int, width: int, patch: int) -> None:
        super().__init__()
        self.side, self.patch = math.isqrt(frame // 3), patch
        check_source("picture", self.side, patch)
        self.grid = self.side // patch if patch else math.ceil(self.side / _PIXELS)
        """Places in a row, and in a column."""
        self.pixels = patch or _PIXELS
        """Pixels between two places."""
        if patch:
            self.read: nn.Module = nn.Linear(patch * patch * 3, width)
        else:
            sizes = (3, max(8, width // 4), max(8, width // 2), width)
            parts = [part for a, b in pairwise(sizes) for part in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU())]
            self.read = nn.Sequential(*parts)
        self.across = None if patch else nn.Conv3d(width, width, 3, padding=1)
        """Sees what moves: the neighbours of a place in its own frame and in the frames beside it."""
        self.norm = nn.LayerNorm(width)
        self.rows, self.columns = nn.Embedding(self.grid, width), nn.Embedding(self.grid, width)
        self.frames = nn.Embedding(MOST_FRAMES, width)
        for table in (self.rows, self.columns, self.frames):
            nn.init.normal_(table.weight, std=_SPREAD)

    def forward(self, frames: Tensor, mask_BF: Tensor | None) -> Tensor:
        batch, count = frames.shape[:2]
        pixels = (frames.float() / 127.5 - 1).to(self.norm.weight.dtype).view(batch, count, self.side, self.side, 3)
        x_BFGD = self.norm(self._patches(pixels) if self.across is None else self._convolved(pixels, mask_BF))
        every = torch.arange(self.grid, device=frames.device)
        plane_GD = (self.rows(every)[:, None] + self.columns(every)[None]).flatten(0, 1)
        moments = torch.arange(count, device=frames.device).clamp(max=MOST_FRAMES - 1)
        x_BFGD = x_BFGD + plane_GD + self.frames(moments)[:, None]
        x_BSD: Tensor = x_BFGD.flatten(1, 2)
        return x_BSD

    def _patches(self, pixels: Tensor) -> Tensor:
        """x_BFGD, each place from its own patch."""
        (batch, count), n, p = pixels.shape[:2], self.grid, self.patch
        cut = pixels.view(batch, count, n, p, n, p, 3).transpose(3, 4)
        patches: Tensor = self.read(cut.reshape(batch, count, n * n, p * p * 3))
        return patches

    def _convolved(self, pixels: Tensor, mask_BF: Tensor | None) -> Tensor:
        """x_BFGD by convolutions; frames that are padding are 0 to those beside them."""
        assert isinstance(self.across, nn.Conv3d)
        batch, count = pixels.shape[:2]
        planes = self.read(pixels.flatten(0, 1).permute(0, 3, 1, 2))
        if count == 1:  # there is no frame beside it: a third of the work
            own = self.across.weight[:, :, 1]
            return F.conv2d(planes, own, self.across.bias, padding=1).flatten(2).mT[:, None]
        x_BCFGG = planes.unflatten(0, (batch, count)).transpose(1, 2)
        if mask_BF is not None:
            x_BCFGG = x_BCFGG * mask_BF[:, None, :, None, None]
        x_BFGD: Tensor = self.across(x_BCFGG).flatten(3).permute(0, 2, 3, 1)
        return x_BFGD

    def mask(self, mask_BF: Tensor) -> Tensor:
        return mask_BF.repeat_interleave(self.grid * self.grid, 1)


def stem(sizes: Sizes, width: int, patch: int) -> Stem | None:
    """Make the layer that reads the frames of a source; None: the source is text."""
    if sizes.source == "sound":
        return SoundStem(sizes.frame, width)
    return PictureStem(sizes.frame, width, patch) if sizes.source == "picture" else None


def check_source(source: Source, pixels: int, patch: int, ctc: float = 0.0) -> None:
    """Raise a ValueError if a model with these keys cannot read such sources; auto: they are not known yet."""
    if ctc and source not in ("sound", "auto"):
        raise ValueError(f"ctc = {ctc} is for sound, and a source is {'a ' * (source != 'text')}{source}: leave it out")
    if source == "picture" and patch and pixels % patch:
        near = ", ".join(str(n) for n in range(2, pixels + 1) if pixels % n == 0)
        raise ValueError(
            f"patch = {patch} does not divide data.pixels = {pixels}: {near} do; or set data.pixels to a multiple of it"
        )

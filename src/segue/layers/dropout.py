"""Dropout for recurrent networks, one idea a function; each keeps the mean by dividing what is left by 1 - share.

    variational   one mask for all times of a row: x_t <- m * x_t     (Gal and Ghahramani 2016)
    words         one mask for the vocabulary: a word that is dropped is zero wherever it stands in the batch (ibid.)
    weights       one mask for the recurrent matrices, for a whole forward pass: U <- M * U
                  (DropConnect: Wan et al. 2013; in an LSTM: Merity et al. 2018)

Masks are drawn by torch's own generator, whose state is part of a checkpoint. `Dropout`, of Transformers, is torch's
but for compiled code on a GPU. There a random number for every element would take longer than to read and write it, so
one number is drawn for a layer, and each element's own is a hash of it and of the element's place.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.recurrent import Recurrent, RecurrentState


class Dropout(nn.Dropout):
    """Set a share of the elements to 0."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p and x.is_cuda and torch.compiler.is_compiling()):
            return super().forward(x)
        seed = (torch.rand((), device=x.device) * (1 << 31)).to(torch.int32)
        return torch.where(hashed(x, seed) < (1 - self.p) * (1 << 24), x / (1 - self.p), 0.0)


def hashed(x: Tensor, seed: Tensor) -> Tensor:
    """A whole number from 0 to 2^24 - 1 for each element, in the shape of x: MurmurHash3's last step, of the element's
    place and a seed."""
    h = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape) + seed
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF)) * -1028477387
    return (h ^ ((h >> 16) & 0xFFFF)) & 0xFFFFFF


def variational_dropout(x_BTD: Tensor, share: float, training: bool) -> Tensor:
    """Drop units of each row, the same ones at all times."""
    if not training or share == 0:
        return x_BTD
    return x_BTD * F.dropout(torch.ones_like(x_BTD[:, :1]), share)


def word_dropout(x_BTD: Tensor, tokens_BT: Tensor, vocab_size: int, share: float, training: bool) -> Tensor:
    """Drop the whole vectors of some words, wherever they stand in the batch (embedding dropout)."""
    if not training or share == 0:
        return x_BTD
    mask_V = F.dropout(x_BTD.new_ones(vocab_size), share)
    return x_BTD * mask_V[tokens_BT][:, :, None]


def weight_drop(layer: Recurrent, share: float, *inputs: Any) -> tuple[Tensor, RecurrentState]:
    """layer(*inputs) with entries of its recurrent matrices (torch's weight_hh) dropped.

    The layer's own weights stay as they are and get the gradient; what it runs on is a copy, so a fused kernel works.
    """
    if not layer.training or share == 0:
        return layer(*inputs)  # type: ignore[no-any-return]
    recurrent = {name: weight for name, weight in layer.core.named_parameters() if name.startswith("weight_hh")}
    dropped = {name: F.dropout(weight, share) for name, weight in recurrent.items()}
    return layer(*inputs, weights=dropped)  # type: ignore[no-any-return]

"""Dropout for recurrent networks, one idea a function; each keeps the mean by dividing what is left by 1 - share.

    variational   one mask for all times of a row: x_t <- m * x_t     (Gal and Ghahramani 2016)
    words         one mask for the vocabulary: a word that is dropped is zero wherever it stands in the batch (ibid.)
    weights       one mask for the recurrent matrices, for a whole forward pass: U <- M * U
                  (DropConnect: Wan et al. 2013; in an LSTM: Merity et al. 2018)

Masks are drawn by torch's own generator, whose state is part of a checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from segue.layers.recurrent import Recurrent, RecurrentState


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

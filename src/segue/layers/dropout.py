"""Dropout for recurrent networks, one idea a function; each keeps the mean by dividing what is left by 1 - share.

    locked    one mask for all times of a row: x_t <- m * x_t     (variational dropout: Gal and Ghahramani 2016)
    words     one mask for the vocabulary: a word that is dropped is zero wherever it stands in the batch (ibid.)
    weights   one mask for the recurrent matrices, for the whole of a forward: U <- M * U
              (DropConnect: Wan et al. 2013; in an LSTM: Merity et al. 2018)

Masks are drawn by torch's own generator, whose state is part of a checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call


def locked_dropout(x_BTD: Tensor, share: float, training: bool) -> Tensor:
    """Units are dropped in each row for all times alike."""
    if not training or share == 0:
        return x_BTD
    return x_BTD * F.dropout(torch.ones_like(x_BTD[:, :1]), share)


def word_dropout(x_BTD: Tensor, tokens_BT: Tensor, vocab_size: int, share: float, training: bool) -> Tensor:
    """Of the vectors x of these tokens, those of some words are dropped whole, in every row alike."""
    if not training or share == 0:
        return x_BTD
    mask_V = F.dropout(x_BTD.new_ones(vocab_size), share)
    return x_BTD * mask_V[tokens_BT][:, :, None]


def weight_drop(layer: nn.Module, share: float, *inputs: Any) -> Any:
    """layer(*inputs) with entries of its recurrent matrices (torch's weight_hh) dropped.

    The layer's own weights stay as they are and get the gradient; what it runs on is a copy, so a fused kernel works.
    """
    if not layer.training or share == 0:
        return layer(*inputs)
    recurrent = {name: weight for name, weight in layer.named_parameters() if "weight_hh" in name}
    return functional_call(layer, {name: F.dropout(weight, share) for name, weight in recurrent.items()}, inputs)

"""What goes through a classifier or a stack of convolutions: shapes, parameters, and how many words a number has seen.

convolution of width k over n words      n - k + 1 places (narrow), n (padded), n + k - 1 (wide, as Kim's)
receptive field of L layers of width k   1 + L (k - 1) words
recurrent layer                          every word before, and with the other direction every word after
bag of words                             every word, and none of their order
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from segue.layers.convolution import MaxOverTime
from segue.layers.recurrent import Recurrent
from segue.look.explain.costs import Section
from segue.models.base import Sizes


def places(words: int, width: int) -> dict[str, int]:
    """Windows of a convolution over a text, by what stands beyond its ends: nothing, half a window, or all but one."""
    return {"narrow": max(0, words - width + 1), "padded": words, "wide": words + width - 1}


def receptive_field(layers: int, width: int) -> int:
    """Words that one number has seen after some layers of convolutions."""
    return 1 + layers * (width - 1)


def shapes(cls: Any, config: Any, sizes: Sizes, words: int) -> Section:
    """A classifier's layers over a text of `words`, laid out on torch's device that holds nothing."""
    with torch.device("meta"):
        model = cls(config, sizes)
    pooling = asdict(config).get("pooling", "")
    rows = [("words", f"{words}", f"{sizes.vocab_size:,} different ones")]
    for name, module in model.named_children():
        if isinstance(module, nn.ModuleList):
            rows += [row for inner in module for row in _layer(name, inner, words)]
        else:
            rows += _layer(name, module, words)
        if name == "body" and pooling:
            rows.append((f"  {pooling}", f"{model.head.in_features}", "one vector of all words"))
    total = sum(p.numel() for p in model.parameters())
    rows.append(("in all", "", f"{total:,} parameters"))
    return Section(f"Shapes for a text of {words} words and {sizes.classes} classes", rows)


def _layer(name: str, layer: nn.Module, words: int) -> list[tuple[str, str, str]]:
    count = f"{sum(p.numel() for p in layer.parameters()):,} parameters"
    match layer:
        case nn.Embedding():
            return [(name, f"{words} x {layer.embedding_dim}", f"{count}; sees 1 word")]
        case MaxOverTime():
            k, filters = layer.width, layer.linear.out_features
            wide = places(words, k)["wide"]
            return [
                (f"{name}, width {k}", f"{wide} x {filters}", f"{count}; sees {receptive_field(1, k)} words"),
                ("  best place of each", f"{filters}", "the maximum over time"),
            ]
        case Recurrent():
            seen = "all words" if layer.directions == 2 else "a word and all before it"
            return [(name, f"{words} x {layer.width * layer.directions}", f"{count}; sees {seen}")]
        case nn.Linear():
            return [(name, f"{layer.out_features}", f"{count}; sees all words")]
        case nn.Sequential():
            return [(name, f"{words}", f"{count}; a weight for each word")]
        case _:
            return []

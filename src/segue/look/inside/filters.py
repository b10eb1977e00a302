"""Filters of a convolutional classifier: for each, the words in a row of the text that it fits best (Kim 2014)."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.look.inside.reading import has_layer, read
from segue.look.inside.view import View
from segue.models.base import Counted, LanguageModel


def applies(model: Any) -> bool:
    """Classifiers with filters over words and the maximum over time."""
    if isinstance(model, Counted | LanguageModel):
        return False
    from segue.layers.convolution import MaxOverTime
    from segue.models.neural_classifier import NeuralClassifier

    return isinstance(model, NeuralClassifier) and has_layer(model, MaxOverTime)


def view(opened: Opened, text: str, top: int = 12) -> View:
    """A bar a filter: the `top` filters that fit best somewhere in the text, with the n-gram where they do."""
    if top < 1:
        raise InputError(f"--top {top} asks for no filter: expected 1 or more.")
    from segue.layers.convolution import MaxOverTime

    found = read(opened, text)
    layers = [module for module in opened.model.modules() if isinstance(module, MaxOverTime)]
    fits = []
    for layer, c_BFT in zip(layers, found.seen["filters"], strict=True):
        c_FT = c_BFT[0].float().cpu().numpy().astype(np.float64)
        for number, place in enumerate(c_FT.argmax(1).tolist()):
            words = found.tokens[max(0, place - layer.width + 1) : place + 1]
            fits.append((float(c_FT[number, place]), f"{' '.join(words)}  (width {layer.width}, filter {number + 1})"))
    fits = sorted(fits, key=lambda fit: -fit[0])[:top]
    return View(
        kind="bars",
        title=f"What the filters look for in “{text[:60]}”",
        note=" ".join(["The greatest relu(F x + b) over all places, and the words there.", found.note]).strip(),
        panels=("fit",),
        rows=tuple(name for _, name in fits),
        columns=("fit",),
        values_PRC=np.array([fit for fit, _ in fits]).reshape(1, -1, 1),
    )

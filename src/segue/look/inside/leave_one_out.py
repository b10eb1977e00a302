"""Which words moved a classifier's decision: each is left out in turn (inference/leave_one_out.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from segue.errors import InputError
from segue.inference.leave_one_out import explained
from segue.inference.opened import Opened
from segue.inference.predict import Predictor
from segue.look.inside.reading import example_of
from segue.look.inside.view import View
from segue.models.base import Counted


def applies(model: Any) -> bool:
    """Classifiers, counted and neural."""
    from segue.models.counted_classifier import CountedClassifier

    if isinstance(model, Counted):
        return isinstance(model, CountedClassifier)
    from segue.models.neural_classifier import NeuralClassifier

    return isinstance(model, NeuralClassifier)


def view(opened: Opened, text: str) -> View:
    """Every word with the log-odds that the decision loses without it; below 0: the word spoke against it."""
    if not text.strip():
        raise InputError('There is no text to look at. Write it after the run: segue look RUN "a fine film"')
    codec = opened.codec
    predictor = Predictor(
        *(opened.model, "classify", codec.tokenizer, codec.labels, codec.sizes, opened.decode, opened.limit),
        opened.device,
    )
    ((answer, words),) = explained(predictor, [example_of(opened, text)])
    sure = f", p = {max(answer.probabilities):.3f}" if answer.probabilities else ""
    return View(
        kind="text",
        title=f"Words that moved the decision: {answer.label or 'no class'}{sure}",
        note="The log-odds of the decision less those without the word, in nats; below 0: it spoke against it.",
        panels=("leave one out",),
        rows=("nats",),
        columns=tuple(word.word for word in words),
        values_PRC=np.array([word.drop for word in words]).reshape(1, 1, -1),
    )

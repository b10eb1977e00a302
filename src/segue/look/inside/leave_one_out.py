"""Which words moved a classifier's decision: each is left out in turn (look/explain/leave_one_out.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from segue.inference.opened import Opened
from segue.look.explain.leave_one_out import explained
from segue.look.inside.reading import check_some
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
    check_some(text)
    example = opened.task.asked(text, opened.codec.data)
    ((answer, words),) = explained(partial(opened.task.predict, opened), [example])
    said: Any = answer
    sure = f", p = {max(answer.probabilities):.3f}" if answer.probabilities else ""
    return View(
        kind="text",
        title=f"Words that moved the decision: {said.label or 'no class'}{sure}",
        note="The log-odds of the decision less those without the word, in nats; below 0: it spoke against it.",
        panels=("leave one out",),
        rows=("nats",),
        columns=tuple(word.word for word in words),
        values_PRC=np.array([word.drop for word in words]).reshape(1, 1, -1),
    )

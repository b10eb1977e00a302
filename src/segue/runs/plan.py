"""Fit a recipe to a budget in seconds: measure the pace, compute how often the text will be read, and choose by rule.

A recipe cannot know how far a minute goes: on two cores it may read a text half a time, on a GPU four hundred times.
So a network with a budget in seconds (train.plan) takes a few steps, throws them away, and then sets

    schedule       wsd: the rate is stable, and falls at the end, wherever that is (training/budget.py)
    epochs         at most EPOCHS, or ENOUGH steps where that is more: what is left of the seconds is given back
    validations    4 to 40 of them, which together take about a tenth of the time
    dropout        more of it, the more often the text is read (`Network.dropout_for`)
    weight decay   for Muon 0.1 up to 10 epochs, 0.25 from 20 on; without it weights grow at a stable rate
    size           in `segue compare`: the largest shape (`Network.larger`) that still takes STEPS steps and has at most
                   PER_TOKEN parameters for each token of the training text

The constants were fitted by benchmarks/budget_rule.py on parts of WikiText-2 and of the Linux kernel. Nothing is
searched here. What was chosen stands in recipe.toml, so that the run can be made again without a clock; a value that
you name yourself (train.named) is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from segue.models.base import Counted
from segue.recipe import Recipe
from segue.training.budget import RAREST, validations

STEPS = 1000
"""A larger model must have time for this many steps."""
PER_TOKEN = 15
"""The most parameters for each token of the training text."""
EPOCHS = 40.0
"""No text is read more often than this: the rule was fitted up to here, and beyond it some models only forgot."""
ENOUGH = 1000
"""Steps that a small text is given even if they read it more often."""
TRIAL = 0.02
"""The share of the seconds that a trial takes, or two steps."""
VALIDATING = 0.1
"""The share of the seconds that validations may take."""
FEWEST = 1000
"""The least predictions of a validation."""
A_SECOND = 300
"""Predictions of a validation for each second of the budget."""


class Pace(NamedTuple):
    """What a trial found."""

    step: float
    """Seconds of a step."""
    targets: float
    """Predictions in a step: tokens of a language model, words of a tagger, rows of a classifier."""
    per_epoch: int
    """Steps of an epoch."""
    parameters: int


Trial = Callable[[Recipe, float], Pace]
"""Trains a recipe for about so many seconds, and throws it away."""


def wanted(recipe: Recipe) -> bool:
    """Whether the recipe is to be fitted to its budget: it is a network's, and only seconds limit it."""
    if issubclass(recipe.model_class, Counted):
        return False
    train = recipe.train
    return train.plan != "none" and train.seconds > 0 and not train.steps and not train.epochs


def plan(recipe: Recipe, tokens: int, trial: Trial) -> tuple[Recipe, float]:
    """Return the recipe fitted to its budget, and the seconds that the trials took."""
    begun = time.perf_counter()
    chosen, pace = _size(recipe, tokens, trial)
    chosen = chosen.with_values("train", plan="none")
    taken = time.perf_counter() - begun
    most = max(EPOCHS, ENOUGH / pace.per_epoch)
    steps = min(max(1.0, 0.9 * (recipe.train.seconds - taken) / pace.step), most * pace.per_epoch)
    epochs = steps / pace.per_epoch
    optimizer = chosen.train.optimizer
    times, predictions = _validations(recipe, pace)
    values = {
        "train.epochs": most,
        "train.optimizer.schedule": "wsd",
        "train.every": chosen.train.every or max(1, round(steps / times)),
        "train.validate_tokens": predictions,
        "train.optimizer.weight_decay": weight_decay(epochs) if optimizer.name == "muon" else optimizer.weight_decay,
    }
    dropout = chosen.model_class.dropout_for(chosen.model, epochs)
    if dropout is not None:
        values["model.dropout"] = dropout
    return _with(chosen, values), taken


def _size(recipe: Recipe, tokens: int, trial: Trial) -> tuple[Recipe, Pace]:
    """Choose the size; return the recipe and its pace."""
    seconds = recipe.train.seconds
    chosen, pace = recipe, trial(recipe, TRIAL * seconds)
    if recipe.train.plan != "size":
        return chosen, pace
    for shape in recipe.model_class.larger(recipe.model):
        if set(shape) & named(recipe) or seconds / pace.step < 2 * STEPS:
            break
        larger = _with(recipe, shape)
        found = trial(larger, TRIAL * seconds)
        if seconds / found.step < STEPS or found.parameters > PER_TOKEN * tokens:
            break
        chosen, pace = larger, found
    return chosen, pace


def weight_decay(epochs: float) -> float:
    """Return Muon's weight decay: 0.1 up to 10 epochs, 0.25 from 20 on."""
    return round(0.1 + 0.15 * min(1.0, max(0.0, math.log2(max(epochs, 1e-9) / 10))), 3)


def _validations(recipe: Recipe, pace: Pace) -> tuple[int, int]:
    """Return how often to validate, and how many predictions each time. Their number depends on the budget alone, so
    that all networks of a comparison are validated on the same text; they are made no slower than in training."""
    seconds: float = recipe.train.seconds
    predictions = int(min(recipe.train.validate_tokens, max(FEWEST, A_SECOND * seconds)))
    affordable = VALIDATING * seconds / (predictions * pace.step / pace.targets)
    return max(RAREST, min(validations(seconds), int(affordable))), predictions


def named(recipe: Recipe) -> set[str]:
    """Return the keys that the user has named, which stay as they are."""
    return set(recipe.train.named.split(",")) if recipe.train.named else set()


def _with(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """Set keys of the recipe, except those that the user has named."""
    for key in values.keys() - named(recipe):
        section, *group, last = key.split(".")
        if group:
            inner = replace(vars(vars(recipe)[section])[group[0]], **{last: values[key]})
            recipe = recipe.with_values(section, **{group[0]: inner})
        else:
            recipe = recipe.with_values(section, **{last: values[key]})
    return recipe


def settled(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """Return the recipe that makes a finished run again without a clock: what the clock decided, in steps."""
    if "decay" in values:
        optimizer = replace(recipe.train.optimizer, decay=values["decay"])
        recipe = recipe.with_values("train", optimizer=optimizer)
    train = {"steps": values["steps"], "stop": values.get("stop", 0), "every": values["every"]}
    return recipe.with_values("train", seconds=0.0, epochs=0.0, **train)


def measured(make: Callable[[Recipe], Any]) -> Trial:
    """Return a Trial that makes a trainer and takes some steps with it."""

    def trial(recipe: Recipe, seconds: float) -> Pace:
        trainer = make(recipe)
        trainer.validate = None
        first, begun, now = 0, 0.0, time.perf_counter()
        for record in trainer.fit():
            if record.kind != "train":
                continue
            now = time.perf_counter()
            if not first:  # the first steps are slower: memory is found, kernels are chosen
                first, begun = trainer.step, now
            elif now - begun >= seconds and trainer.step > first + 1:
                break
        step = (now - begun) / (trainer.step - first) if trainer.step > first else trainer.seconds
        targets = trainer.targets / trainer.step
        return Pace(max(step, 1e-6), targets, trainer.batches.per_epoch, trainer.model.parameters_count)

    return trial

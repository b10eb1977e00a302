"""A run folder where the name of a model stands: `segue train runs/bert reviews.tsv`. The data says what is meant.

data like the run's own                  go on from its weights: train.init=RUN, with its [model] and [tokens];
                                         t5 goes on with text, pairs and labels alike
texts with labels, or words with tags    a new head on its hidden states: model.body=RUN (Task.head)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from segue import models, tasks
from segue.data.shapes import Shape
from segue.errors import InputError
from segue.models.base import Body, Counted, Model, WordVectors
from segue.models.names import recipe_names
from segue.runs import folder as files
from segue.tasks.base import Task

_BEGINS = ("model.body=", "train.init=", "body=", "init=")


class FromRun(NamedTuple):
    """What a run means where a model is named."""

    run: str
    kind: str
    """The kind that is trained."""
    setting: str
    """What makes it begin from the run: train.init=RUN or model.body=RUN."""

    @property
    def stem(self) -> str:
        """The name of the run folder, which the new one is called after."""
        return Path(self.run).resolve().name.lstrip(".") or "run"

    @property
    def name(self) -> str:
        """The name in tables: gpt/book goes on from runs/book, book/head is a head on it."""
        goes_on = self.setting.startswith("train.init=")
        return f"{Path(self.kind).stem}/{self.stem}" if goes_on else f"{self.stem}/head"

    @property
    def said(self) -> str:
        """One sentence about it, for who has not typed it out."""
        if self.setting.startswith("train.init="):
            return f"{self.run}: going on from its weights ({self.kind} {self.setting})."
        return f"{self.run}: a new head on its hidden states ({self.kind} {self.setting})."


def is_run(what: str) -> bool:
    """Whether a model is named by a run folder: not a kind or a recipe, but a folder, or a path that should be one."""
    if what in (*models.kinds(), *recipe_names()) or what.endswith((".toml", ".py")):
        return False
    if any((Path(what) / name).exists() for name in ("recipe.toml", "config.json")):
        return True
    folder = Path(what).parent  # of old/bert, where old is a folder and no kind of model
    return what.startswith(("runs/", "./", "../", "/")) or (
        "/" in what and folder.is_dir() and what.partition("/")[0] not in models.kinds()
    )


def from_run(run: str, shape: Shape, lines: Sequence[str], trust: bool = False) -> FromRun:
    """Say what a run means for data of this shape; refuse it where it cannot begin from the run."""
    if said := next((line for line in lines if line.startswith(_BEGINS)), ""):
        raise InputError(f"The model begins from {run}, which stands where a model is named. Leave {said} out.")
    run = run.rstrip("/") or run
    if (Path(run) / "config.json").exists() and not (Path(run) / "recipe.toml").exists():
        raise InputError(f"{run} is a model of another toolkit. Make a run of it first: segue import {run} --out RUN")
    kind: str = files.check_run(Path(run))["kind"]
    models.check_trust(kind, trust)
    cls = models.model_class(kind)
    own, task = tasks.task(cls.task).goes_on_with(cls), tasks.task(tasks.of_shape(shape.name))
    if shape in own:
        if issubclass(cls, Counted):
            raise InputError(
                f"{run} is of the kind {kind}, which reads its data once and cannot go on from what it has. Train a "
                f"new one: segue train {kind} DATA"
            )
        return FromRun(run, kind, f"train.init={run}")
    if not (task.head and issubclass(cls, Body) and any(one.running for one in own)):
        raise InputError(_no_head(run, kind, cls, task))
    return FromRun(run, task.head, f"model.body={run}")


def _no_head(run: str, kind: str, cls: type[Model], task: Task) -> str:
    """Say why nothing for this task can begin from a run, and what to train."""
    other = f"segue train {task.ladder[-1]} DATA"
    if issubclass(cls, WordVectors):
        return (
            f"{run} is of the kind {kind}, which has vectors of words and no hidden states for a head. A network can "
            f"begin with them: {other} model.embeddings={run}"
        )
    wanted = (
        "Expected a run that reads text into hidden states, as of bert, elmo, t5, gpt or rnn_lm. " if task.head else ""
    )
    return f"{run} is of the kind {kind}, and {task.shape.name} data cannot train it further. {wanted}Or train: {other}"


_SETTINGS = re.compile(r"(?P<name>.*?)(?P<settings>(?:\s+[\w.]+=\S+)*)\s*", re.S)


def named_settings(entry: str) -> tuple[str, list[str]]:
    """Split what --models names into the model and its own settings: "runs/bert model.frozen=true"."""
    found = _SETTINGS.fullmatch(entry)
    assert found is not None  # the name may be anything
    return found["name"], found["settings"].split()


def with_settings(name: str, settings: Sequence[str]) -> str:
    """Return the name in tables of a model with settings of its own: "bert/head frozen=true"."""
    short = [one.partition("=")[0].rpartition(".")[2] + "=" + one.partition("=")[2] for one in settings]
    return " ".join([name, *(re.sub(r"[/\\]+", "-", one) for one in short)])[:150]

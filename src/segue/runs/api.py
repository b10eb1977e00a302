"""The Python API: the words of the command line as functions; lists of texts as well as files.

train("bow", [("a fine film", "good"), ("a dull film", "bad"), …])
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from segue.runs.experiments import compare as comparison
from segue.runs import folder as files
from segue.runs import train as walking
from segue.data.from_list import write_rows
from segue.data.shapes import TEXT, Shape
from segue.errors import InputError
from segue.runs.run import Run, load
from segue.models.base import Task
from segue.recipe import SHAPES, Recipe, load_recipe, read_recipe
from segue.training.log import Progress, silent

__all__ = ["compare", "load", "train"]

Data = str | Path | Sequence[Any] | None


def train(
    model: str | None,
    data: Data = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    threads: int = 0,
    trust: bool = False,
    progress: Progress = silent,
    profile: bool = False,
) -> Run:
    """Trains a model (a kind, a recipe or a TOML file) on data and opens the run.

    `data` is a path or the name of a corpus, or a list: texts, (text, label) pairs, (words, tags) pairs or
    (source, target) pairs, as the model needs. `settings` are keys of the recipe, {"train.steps": 200}.
    """
    lines = _lines(settings)
    if resume and out is not None and data is None and (Path(out) / "recipe.toml").exists():
        return _go_on(model, Path(out), lines, device, threads, trust, progress)
    if model is None:
        where = f"There is no run in {out} to go on with. " if resume and out is not None else ""
        raise InputError(f"{where}Name a model to train, such as rnn_lm. `segue models` lists them.")
    named = data is not None or any(line.startswith("data.path=") for line in lines)
    if resume and out is not None and not (named or (Path(out) / "recipe.toml").exists()):
        raise InputError(f"There is no run in {out} to go on with. To begin one there, leave --resume out.")
    place = Path(out) if out is not None else files.free_name(f"{_stem(model)}-{_data_name(data)}")
    given = load_recipe(model, lines, trust=trust)
    base = _begun_with(given, lines, trust) | _made_of(given, trust)
    with _named(data, place, given.shape) as path:
        if path is not None:
            base["data"] = base.get("data", {}) | {"path": path}
        recipe = load_recipe(model, lines, base, trust)
        trained = walking.train(recipe, place, resume, device, threads, progress, trust, profile)
    return _opened(trained, device, trust)


def _begun_with(recipe: Recipe, lines: list[str], trust: bool) -> dict[str, Any]:
    """With `train.init`: the shape of the model that it names, so that it need not be typed again."""
    init = recipe.train.init
    if not init or not (Path(init) / "recipe.toml").exists():
        return {}
    other = read_recipe(Path(init) / "recipe.toml", trust)
    for key in (line.partition("=")[0].partition(".")[2] for line in lines if line.startswith("tokens.")):
        if (own := getattr(other.tokens, key)) != getattr(recipe.tokens, key):
            raise InputError(
                f"train.init={init} brings its tokens along: tokens.{key} is {own}. Leave tokens.{key} out."
            )
    if other.kind != recipe.kind:
        return {}
    base: dict[str, Any] = {"model": dataclasses.asdict(other.model)}
    window = other.model_class.window_of(other.model)
    if 0 < window < recipe.batches.length:
        base["batches"] = {"length": window}
    return base


def _made_of(recipe: Recipe, trust: bool) -> dict[str, Any]:
    """Of an ensemble of runs: the [data] that they were trained on, so that the same rows are held out."""
    runs = recipe.model.runs
    if not runs or not (Path(runs[0]) / "recipe.toml").exists():
        return {}
    return {"data": dataclasses.asdict(read_recipe(Path(runs[0]) / "recipe.toml", trust).data)}


def compare(
    data: Data = None,
    models: Sequence[str] = (),
    budget: str = "60s",
    seeds: int = 1,
    folds: int = 0,
    out: str | Path | None = None,
    task: Task | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    progress: Progress = silent,
    trust: bool = False,
) -> dict[str, Any]:
    """Trains several models under one budget and writes one page; returns the table's rows, best first."""
    if seeds < 1 or folds == 1 or folds < 0:
        raise InputError(f"Expected --seeds of 1 or more, and --folds of 0 or 2 and more; found {seeds} and {folds}.")
    place = Path(out) if out is not None else files.free_name(f"compare-{_data_name(data)}")
    lines = _lines(settings)
    if data is not None and not isinstance(data, str | Path):
        task = task or comparison.task_of("", models, trust)
    with _named(data, place, SHAPES[task] if task else TEXT) as path:
        return comparison.compare(path or "pydoc", models, budget, seeds, folds, place, task, lines, progress, trust)


def _go_on(
    model: str | None, place: Path, lines: list[str], device: str, threads: int, trust: bool, progress: Progress
) -> Run:
    """A begun run as it was, with what the caller says anew (the budget) on top."""
    recipe = load_recipe(str(place / "recipe.toml"), lines, trust=trust)
    if model is not None and load_recipe(model, trust=trust).name not in (recipe.kind, recipe.name):
        raise InputError(
            f"{place} was begun with another recipe: {recipe.name}, not {model}. Choose another --out, or go on with "
            f"it: segue train --out {place} --resume"
        )
    trained = walking.train(recipe, place, True, device, threads, progress, trust)
    return _opened(trained, device, trust)


def _opened(trained: walking.Trained, device: str, trust: bool) -> Run:
    run = Run(trained.out, device, trust=trust)
    run.finished_before = trained.finished_before
    return run


@contextmanager
def _named(data: Data, place: Path, shape: Shape) -> Iterator[str | None]:
    """The data as a recipe names it. A list becomes a file beside the run, so that the run can be made again."""
    if data is None or isinstance(data, str | Path):
        yield None if data is None else str(data)
        return
    path = place.parent / f"{place.name}.data.jsonl"
    made = files.missing(path.parent)
    new = write_rows(data, path, shape)
    try:
        yield str(path)
    except BaseException:
        begun = place.is_dir() and any(place.iterdir())
        if new and not begun:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()
        raise


def _lines(settings: Mapping[str, Any] | Sequence[str]) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{key}={_spelt(value)}" for key, value in settings.items()]
    return list(settings)


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _stem(model: str) -> str:
    return Path(model).stem if model.endswith((".toml", ".py")) else model.replace("/", "-")


def _data_name(data: Data) -> str:
    if isinstance(data, str | Path | None):
        name = Path(str(data or "pydoc").split(",")[0]).name.split(".")[0].replace("*", "all")
        return re.sub("[+:]+", "-", name) or "text"
    return "list"

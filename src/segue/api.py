"""The Python API: the words of the command line as functions; lists of texts as well as files.

train("bow", [("a fine film", "good"), ("a dull one", "bad")])
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from segue import comparison
from segue import folder as files
from segue import run as walking
from segue.errors import InputError
from segue.loaded import Run, load
from segue.models.base import Task
from segue.recipe import Recipe, load_recipe
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
) -> Run:
    """Trains a model (a kind, a recipe or a TOML file) on data and opens the run.

    `data` is a path or the name of a corpus, or a list: texts, (text, label) pairs, (words, tags) pairs or
    (source, target) pairs, as the model needs. `settings` are keys of the recipe, {"train.steps": 200}.
    """
    if model is not None and model.endswith(".py") and not trust:
        raise InputError(f"{model} is code from outside the package. To run it, say --trust (trust=True).")
    place = Path(out) if out is not None else None
    if model is None:
        if place is None or not resume:
            raise InputError("Name a model to train, such as rnn_lm. `segue models` lists them.")
        recipe = None
    else:
        place = place or files.free_name(f"{_stem(model)}-{_data_name(data)}")
        recipe = _recipe(model, data, place, _lines(settings), resume)
    walking.train(recipe, place, resume, device, threads, progress)
    return Run(place, device, trust=trust)


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
) -> dict[str, Any]:
    """Trains several models under one budget and writes one page; returns the table's rows, best first."""
    if seeds < 1 or folds == 1 or folds < 0:
        raise InputError("--seeds must be 1 or more, --folds 0 or 2 and more.")
    place = Path(out) if out is not None else files.free_name(f"compare-{_data_name(data)}")
    if isinstance(data, str | Path | None):
        path = str(data or "pydoc")
    else:
        task = task or (load_recipe(models[0]).task if models else "lm")
        path = _written(data, place, task)
    return comparison.compare(path, models, budget, seeds, folds, place, task, _lines(settings), progress)


def _recipe(model: str, data: Data, place: Path, lines: list[str], resume: bool) -> Recipe | None:
    """The recipe of the call; None where a begun run is only to go on, as it is."""
    if resume and data is None and not lines and (place / "recipe.toml").exists():
        return None
    if data is None:
        if resume and (place / "recipe.toml").exists():
            from segue.recipe import read_recipe

            data = read_recipe(place / "recipe.toml").data.path
        else:
            return load_recipe(model, lines)
    if not isinstance(data, str | Path):
        data = _written(data, place, load_recipe(model).task)
    return load_recipe(model, lines, {"data": {"path": str(data)}})


def _lines(settings: Mapping[str, Any] | Sequence[str]) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{key}={_spelt(value)}" for key, value in settings.items()]
    return list(settings)


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _written(rows: Iterable[Any], place: Path, task: str) -> str:
    """A list of the caller's as a file beside the run, so that the run can be made again."""
    names = {"classify": ("text", "label"), "tag": ("words", "tags"), "seq2seq": ("source", "target")}.get(task)
    lines = []
    for number, row in enumerate(rows):
        if names is None and isinstance(row, str):
            lines.append({"text": row})
        elif names is not None and isinstance(row, list | tuple) and len(row) == 2:
            lines.append(dict(zip(names, row, strict=True)))
        else:
            wanted = f"a pair ({names[0]}, {names[1]})" if names else "a text"
            raise InputError(f"Row {number} of the data is {row!r:.60}; a model for {task} needs {wanted}.")
    path = place.parent / f"{place.name}.data.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return str(path)


def _stem(model: str) -> str:
    return Path(model).stem if model.endswith((".toml", ".py")) else model.replace("/", "-")


def _data_name(data: Data) -> str:
    if isinstance(data, str | Path | None):
        return Path(str(data or "pydoc").split(",")[0]).name.split(".")[0].replace("*", "all") or "text"
    return "list"

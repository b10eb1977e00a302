"""What is asked before a run begins: by which recipe, whether it may go on there, whether runs that it names fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from segue.runs import folder as files
from segue.data.corpus import Corpus
from segue.errors import InputError
from segue.models.base import Counted
from segue.recipe import Recipe, read_recipe

_BEFORE = (".lock", ".recipe.toml.writing")
"""What a run may leave that was killed before it had begun."""
_BUDGET = ("train.steps", "train.epochs", "train.seconds", "name")
"""What may differ where a run goes on: there may be more of it."""


def recipe_of(recipe: Recipe | None, out: Path, resume: bool, trust: bool) -> tuple[Recipe, bool]:
    """The recipe to follow, and whether a run with it has begun."""
    saved = out / "recipe.toml"
    recipe = _with_tokens(recipe, trust)
    if not saved.exists():
        if out.exists() and (not out.is_dir() or any(path.name not in _BEFORE for path in out.iterdir())):
            raise InputError(f"{out} exists and is not a run. Choose another --out; nothing is overwritten.")
        if recipe is None:
            raise InputError(
                f"There is no run in {out} to go on with. Name a model: segue train rnn_lm book.txt --out …"
            )
        return recipe, False
    if not resume:
        raise InputError(f"{out} already holds a run. Go on with it by --resume, or choose another --out.")
    old = read_recipe(saved, trust)
    if recipe is None:
        return old, True
    differ = [line for line in _differences(old, recipe) if not line.startswith(_BUDGET)]
    if differ:
        raise InputError(
            f"{out} was begun with another recipe: {'; '.join(differ[:3])}. To go on with it as it was: "
            f"segue train --out {out} --resume. For another recipe choose another --out."
        )
    for key in ("steps", "epochs", "seconds"):
        before, now = (dataclasses.asdict(one.train).get(key, 0) for one in (old, recipe))
        if now and before > now:
            raise InputError(f"train.{key} was {before} when {out} began and can only grow, not shrink to {now}.")
    if recipe != old and (out / "result.json").exists():
        _check_goes_on(recipe, out)
    return recipe, True


def _with_tokens(recipe: Recipe | None, trust: bool) -> Recipe | None:
    """A run that begins with another's weights has its tokens too."""
    init = recipe.train.init if recipe is not None else ""
    if recipe is None or not init:
        return recipe
    files.check_run(Path(init))
    return dataclasses.replace(recipe, tokens=read_recipe(Path(init) / "recipe.toml", trust).tokens)


def _check_goes_on(recipe: Recipe, out: Path) -> None:
    """A finished run learns on from its checkpoint; an imported one has none, and would be learnt anew."""
    counts = issubclass(recipe.model_class, Counted)
    imported = files.check_run(out).get("imported")
    if imported or not (counts or any(out.glob("checkpoints/step-*"))):
        why = f"It was imported from {imported}" if imported else "It was imported, or its checkpoints were removed"
        other = "choose another --out" if counts else f"begin another run with its weights: train.init={out} --out …"
        raise InputError(f"The run in {out} has no checkpoint to go on from. {why}. To train further, {other}")


def _differences(old: Recipe, new: Recipe) -> list[str]:
    found = []
    for key, value in _flat(dataclasses.asdict(old)).items():
        other = _flat(dataclasses.asdict(new)).get(key)
        if other != value:
            found.append(f"{key} was {value}, now {other}")
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def check_named(recipe: Recipe, trust: bool) -> None:
    """An ensemble names two runs or more, all of them classifiers: said before any data is read."""
    runs = recipe.model.runs if "runs" in {one.name for one in dataclasses.fields(recipe.model)} else None
    if runs is None:
        return
    if len(runs) < 2:
        raise InputError("An ensemble is made of runs: name two or more, as model.runs=runs/a,runs/b")
    if twice := [run for run in runs if runs.count(run) > 1]:
        raise InputError(f"model.runs names {twice[0]} twice. Expected each run once; the ensemble weighs them.")
    for run in map(Path, runs):
        files.check_run(run)
        part = read_recipe(run / "recipe.toml", trust)
        if part.task != recipe.task:
            raise InputError(f"{run} is a {part.kind}, made for {part.task}. An ensemble is of classifiers.")


def check_parts(recipe: Recipe, corpus: Corpus, trust: bool) -> None:
    """An ensemble of runs is weighed on rows that none of them has learnt from: they held the same ones out."""
    hashes = {file["sha256"] for file in corpus.ledger.files}
    for run in map(Path, recipe.model.runs):
        other = _split(read_recipe(run / "recipe.toml", trust).data)
        differ = {file["sha256"] for file in files.read_json(run / "ledger.json")["files"]} != hashes
        keys = [f"data.{key}" for key, value in _split(recipe.data).items() if value != other[key]]
        if differ or keys:
            raise InputError(
                f"{run} was trained on other rows than {recipe.data.path[:200]} gives here "
                f"({', '.join(keys) or 'other files'}), so that it may have learnt what the ensemble "
                "would be weighed on. Expected runs that were all trained on the same data; leave DATA "
                "and data.… out, and they are the runs' own."
            )


def _split(data: Any) -> dict[str, Any]:
    """What decides who is held out; which file a path names is seen by the file's sum."""
    shares = {"validation": data.validation, "test": data.test}
    return {**shares, **dict.fromkeys(data.held_out_files(), "a file"), "seed": data.seed}

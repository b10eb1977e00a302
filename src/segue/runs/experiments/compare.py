"""Compare many models under one budget in one table: which is best, by how much, and whether by more than chance.

Every model gets the same splits of the same data and the same budget; no settings are searched for any
of them. A trial is one model with all its seeds and folds. The figures of a trial are made of the pieces
of the test text (blocks or sentences), folds end to end, so that two trials can be compared piece by piece
and seed by seed. The seeds of a trial share what does not depend on the seed: tokenizer, ids on disk.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from segue import tasks
from segue.data.corpus import Corpus
from segue.data.sources import guess_shape
from segue.errors import InputError
from segue.inference import metrics
from segue.inference.evaluation import LOWER_IS_BETTER, Evaluation, main_figure
from segue.inference.evaluation import compare as compare_two
from segue.inference.evaluation import interval as interval_of
from segue.look.page.report import write
from segue.models import model_class
from segue.models.base import TaskName
from segue.recipe import Recipe, budgeted, load_recipe, recipe_names
from segue.runs import folder as files
from segue.runs.display import Comparison
from segue.runs.experiments.verdict import Trial, question, stem, summary
from segue.runs.gather import entry_of, page_of, passage_of
from segue.runs.prepare import Shared
from segue.runs.resume import Data, Out, Settings, data_name, named_data, setting_lines, undo_rows
from segue.runs.run import Run
from segue.runs.train import train
from segue.tasks.base import Task
from segue.training import device as devices
from segue.training.log import Progress, silent

HELD_OUT = 0.2
"""The default of data.test: a fifth of a few hundred kB is enough text to tell models apart."""


def compare(
    data: Data = None,
    models: Sequence[str] = (),
    budget: str = "60s",
    seeds: int = 1,
    folds: int = 0,
    out: Out = None,
    task: TaskName | None = None,
    settings: Settings = (),
    progress: Progress = silent,
    trust: bool = False,
    threads: int = 0,
) -> Comparison:
    """Train several models under one budget and write one page; return the table's rows, best first."""
    if seeds < 1 or folds == 1 or folds < 0:
        raise InputError(f"Expected --seeds of 1 or more, and --folds of 0 or 2 and more; found {seeds} and {folds}.")
    path = Path(out) if out is not None else files.free_name(f"compare-{data_name(data)}")
    listed = data is not None and not isinstance(data, str | Path)
    asked = tasks.task(task or task_of("" if listed else str(data or "pydoc"), models, trust))
    made = files.missing(path)
    name, rows = named_data(data, path, asked.shape)
    try:
        lines = setting_lines(settings)
        with devices.using_threads(threads):
            return Comparison(
                _compare(name or "pydoc", models, budget, seeds, folds, path, asked, lines, progress, trust)
            )
    except BaseException:
        undo_rows(rows, path, made)
        raise


def _compare(
    data: str,
    names: Sequence[str],
    budget: str,
    seeds: int,
    folds: int,
    out: Path,
    task: Task,
    overrides: Sequence[str],
    progress: Progress,
    trust: bool,
) -> dict[str, Any]:
    ladder, left_out = (names, []) if names else _ladder(task, overrides)
    recipes = _recipes(ladder, data, budget, folds, overrides, trust)
    called = [recipe.name for recipe in recipes]
    if len(set(called)) < len(called):
        raise InputError(f"Two of the models have the same name: {', '.join(called)}. Give each `name = …` of its own.")
    wrong = [recipe.name for recipe in recipes if recipe.task is not task]
    if wrong:
        raise InputError(
            f"{', '.join(wrong)} cannot be compared on {task.name}: models of one task at a time. Leave it out of "
            "--models."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    corpus = Corpus(recipes[0].data, task.shape, progress)
    if not corpus.counts["test"]:
        raise InputError("Nothing is held out to compare on. Give data.test as a path or a share, such as 0.05.")
    made = files.missing(out)
    try:
        trials = _ranked([_trial(recipe, out, seeds, folds, progress, trust) for recipe in recipes])
    except InputError:
        files.undo(out, made)
        raise
    return _report(trials, corpus, out, budget, seeds, left_out)


def _ladder(task: Task, overrides: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Return the task's models that can learn the labels of the data, and a sentence about the others, if any."""
    given = [word.partition("=")[2] for word in overrides if word.startswith("data.label=")]
    label = given[-1] if given else "class"
    able = [name for name in task.ladder if label in model_class(name.split("/")[0]).labels]
    others = [name for name in task.ladder if name not in able]
    if not able or not others:
        return task.ladder, []
    return able, [f"Left out, since they learn one class a row: {', '.join(others)}."]


def _recipes(
    names: Sequence[str], data: str, budget: str, folds: int, overrides: Sequence[str], trust: bool
) -> list[Recipe]:
    expanded = list(dict.fromkeys(found for name in names for found in _expand(name)))
    base: dict[str, Any] = {"data": {"path": data, "validation": 0.05, "test": HELD_OUT}}
    if folds:
        base["data"]["test"] = f"1/{folds}"
    first = [load_recipe(name, overrides, base, trust) for name in expanded]
    for recipe in first if folds else ():
        if recipe.data.fold() is None:
            raise InputError(
                f"--folds {folds} makes the test part itself, but data.test is {recipe.data.test!r}. Leave one out."
            )
    # If one model needs canonical text, all get it: they must read the same bytes.
    for key in ("canonical", "unit"):
        values = {asdict(recipe.data)[key] for recipe in first if recipe.data.canonical}
        if values:
            base["data"][key] = values.pop()
    # If recipes disagree about carrying context, none does.
    if len({recipe.data.carry for recipe in first}) > 1:
        base["data"]["carry"] = False
    recipes = [budgeted(load_recipe(name, overrides, base, trust), budget, plan="size") for name in expanded]
    _check_same_data(recipes)
    return recipes


def _check_same_data(recipes: Sequence[Recipe]) -> None:
    """Refuse models that read different units, splits or columns: their figures could not be compared."""
    first = recipes[0]
    for other in recipes[1:]:
        for key, value in asdict(first.data).items():
            if (theirs := asdict(other.data)[key]) != value:
                raise InputError(
                    f"{first.name} reads the data with data.{key}={value}, {other.name} with data.{key}={theirs}. "
                    f"Expected the same text for all; say data.{key}=… on the command line, for every model."
                )


def _expand(name: str) -> list[str]:
    if "*" not in name:
        return [name]
    found = fnmatch.filter(recipe_names(), name)
    if not found:
        raise InputError(f"No recipe is called {name}. `segue recipes` lists them.")
    return found


def _trial(recipe: Recipe, out: Path, seeds: int, folds: int, progress: Progress, trust: bool) -> Trial:
    learns = recipe.train.has("seed")
    numbers = [recipe.train.seed + seed for seed in range(seeds)] if learns else []
    recipes = [recipe.with_values("train", seed=number) for number in numbers] or [recipe]
    shared = [Shared(out / f"ids-{fold}") if len(recipes) > 1 else None for fold in range(folds or 1)]
    runs: list[list[Run]] = [[] for _ in recipes]
    try:
        for (seed, one), (fold, ids) in product(enumerate(recipes), enumerate(shared, 1)):
            one = one.with_values("data", test=f"{fold}/{folds}") if folds else one
            place = out / (recipe.name.replace("/", "-") + _suffix(seed, fold, seeds, folds))
            runs[seed].append(train(one, out=place, progress=progress, trust=trust, shared=ids))
    finally:
        for ids in shared:
            if ids is not None:
                ids.remove()
    evaluations = [_joined([run.evaluation for run in of_seed if run.evaluation]) for of_seed in runs]
    return Trial(recipe, list(chain(*runs)), evaluations, mean_of(evaluations))


def _suffix(seed: int, fold: int, seeds: int, folds: int) -> str:
    return (f"-seed{seed}" if seeds > 1 else "") + (f"-fold{fold}" if folds else "")


def _joined(folds: list[Evaluation]) -> Evaluation:
    """Join the folds of a cross-validation into one evaluation."""
    if len(folds) == 1:
        return folds[0]
    sums = {
        name: np.sum([fold.result.get(name, 0) for fold in folds], 0).tolist()
        for name in _SUMMED
        if any(name in fold.result for fold in folds)
    }
    result = folds[0].result | sums | _averages(folds, [fold.size for fold in folds])
    pieces = np.concatenate([fold.pieces_NK for fold in folds])
    examples = [example for fold in folds for example in fold.examples]
    ordered = any(fold.ordered for fold in folds)
    return _figures(replace(folds[0], result=result, pieces_NK=pieces, examples=examples, ordered=ordered))


def mean_of(seeds: list[Evaluation]) -> Evaluation:
    """Average evaluations over seeds; what has no mean (confusions, examples) is taken from the first."""
    if len(seeds) == 1:
        return seeds[0]
    result = seeds[0].result | _averages(seeds, [1.0] * len(seeds))
    mean = _figures(replace(seeds[0], result=result, pieces_NK=np.mean([e.pieces_NK for e in seeds], 0)))
    if mean.figure in mean.result:
        mean.result[f"{mean.figure}_ci"] = list(interval_of(seeds))  # holds the chance of training too
    return mean


_SUMMED = (
    *("confusion", "calibration", "rows", "sentences", "words", "tokens", "bytes"),
    *("unknown_tokens", "zero_probability_tokens", "tokens_cut"),
)
_AVERAGED = (
    *("macro_f1", "micro_f1", "span_f1", "chrf", "exact", "perplexity", "spelling_bits_per_byte", "best_possible"),
    *("mean_absolute_error", "pearson", "spearman"),
)


def _averages(evaluations: Sequence[Evaluation], weights: Sequence[float]) -> dict[str, float]:
    found = {name: [e.result.get(name) for e in evaluations] for name in _AVERAGED}
    return {
        name: float(np.average([float(v) for v in values if v is not None], weights=weights))
        for name, values in found.items()
        if None not in values
    }


def _figures(evaluation: Evaluation) -> Evaluation:
    """Recompute the main figure and its interval from the pieces."""
    if evaluation.figure in evaluation.result and (sums := evaluation.result.get("calibration")):
        evaluation.result["calibration_error"] = metrics.calibration_error(sums)
    return evaluation.refigured()


def _ranked(trials: list[Trial]) -> list[Trial]:
    """Sort trials, best first, and test whether each differs from the next."""
    main = main_figure(trials[0].evaluation.result)
    sign = 1 if main in LOWER_IS_BETTER else -1
    trials = sorted(trials, key=lambda trial: sign * trial.evaluation.result.get(main, float("inf")))
    ranked = []
    for trial, after in zip(trials, [*trials[1:], None], strict=True):
        paired = None
        if after is not None and main in after.evaluation.result:  # what has no figure comes last
            paired = compare_two(trial.evaluations, after.evaluations)
        ranked.append(replace(trial, paired=paired))
    return ranked


def _report(
    trials: list[Trial], corpus: Corpus, out: Path, budget: str, seeds: int, left_out: list[str]
) -> dict[str, Any]:
    task = trials[0].recipe.task
    passage = passage_of(corpus, "test") if "generate" in task.verbs else None
    results = [files.read_json(trial.runs[0].path / "result.json") for trial in trials]
    entries = [
        entry_of(trial.runs[0], trial.evaluation, result, passage, trial.differs)
        for trial, result in zip(trials, results, strict=True)
    ]
    *facts, verdict = summary(trials, corpus, budget, seeds)
    sentences = [*facts, *left_out, *_sooner(results, trials), verdict]
    title = f"{stem(corpus.config.path)}: {len(trials)} models compared"
    column = question(trials)
    page = page_of(title, sentences, entries, passage, trials[0].evaluation)
    write(replace(page, column=column), out / "report.html")
    rows = [_row(trial, result, column) for trial, result in zip(trials, results, strict=True)]
    result = {
        "report": str(out / "report.html"),
        "task": task.name,
        "figure": main_figure(trials[0].evaluation.result),
        "best_possible": trials[0].evaluation.result.get("best_possible"),
        "column": column,
        "rows": rows,
        "left_out": left_out,
        "verdict": verdict,
    }
    files.write_json(out / "result.json", result)
    return result


_BESIDE = ("perplexity", "micro_f1", "macro_f1", "span_f1", "chrf", "calibration_error")


def _sooner(results: Sequence[dict[str, Any]], trials: Sequence[Trial]) -> list[str]:
    """Name the models that gave a part of their budget back: early stopping, or the most epochs that a plan allows."""
    pairs = zip(results, trials, strict=True)
    names = [trial.recipe.name for result, trial in pairs if result.get("stopped_early") or "seconds_left" in result]
    return [f"Ended before its time, as more would not have helped: {', '.join(names)}."] if names else []


def _row(trial: Trial, result: dict[str, Any], column: str) -> dict[str, Any]:
    figures = trial.evaluation.result
    main = main_figure(figures)
    extra: dict[str, Any] = {
        key: figures[key] for key in (*_BESIDE, "mean_absolute_error", "pearson", "spearman") if key in figures
    }
    if len(trial.by_seed) > 1:
        extra["seeds"] = trial.by_seed
        extra["seed_deviation"] = float(np.std(trial.by_seed, ddof=1))
    return {
        "model": trial.recipe.name,
        "tokens": trial.runs[0].tokenizer.kind,
        main: figures.get(main),
        f"{main}_ci": figures.get(f"{main}_ci"),
        column.replace(" ", "_"): trial.differs,
        "next": trial.paired and {"difference": trial.paired.difference, "ci": trial.paired[1:3], "p": trial.paired.p},
        **extra,
        "spelling_bits_per_byte": figures.get("spelling_bits_per_byte"),
        "parameters": result["parameters"],
        "train_seconds": result["train_seconds"],
        "steps": result["steps"],
        "tokens_per_second": result["tokens_per_second"],
        "run": str(trial.runs[0].path),
    }


def task_of(data: str, names: Sequence[str], trust: bool = False) -> TaskName:
    """Return the task of the first model, or guess it from the data."""
    if names:
        return load_recipe(_expand(names[0])[0], trust=trust).task.name
    return tasks.of_shape(guess_shape(data).name)

"""A suite: one model on several tasks, each with its own data and metrics, and the mean of all; GLUE is one.

    segue suite glue FOLDER model.body=runs/bert

Each task is trained as `segue train` would, with every seed, into OUT/TASK/seed0, seed1, …; a run that is finished is
not trained again. A figure is the median over the seeds; its 95 % interval holds the chance of the test rows and, of
several seeds, that of training. A task with two metrics counts in a mean as their mean. What chooses anything (early
stopping, the best weights) is cut off the training rows; test rows only score. Files to predict are predicted by the
run of the first seed, into OUT/submission. suite_file.py says how a suite is written.
"""

from __future__ import annotations

import datetime
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from segue import __version__
from segue.data.corpus import Corpus
from segue.data.shapes import LABELLED
from segue.errors import InputError, SegueError
from segue.inference.evaluation import Evaluation, interval
from segue.inference.label_metrics import ranked_by
from segue.look.page import suite as page
from segue.recipe import Recipe, budgeted, load_recipe
from segue.runs import folder as files
from segue.runs.display import SuiteResult
from segue.runs.experiments.suite_file import Columns, Files, Published, Suite, SuiteTask, find, flat, read_suite
from segue.runs.prepare import Shared
from segue.runs.questions import QuestionFile
from segue.runs.resume import Out, Settings, check_inputs, setting_lines
from segue.runs.run import Run
from segue.runs.train import train
from segue.training import device as devices
from segue.training.log import Progress, silent

SUBMISSION = "submission"
"""The folder with the predictions for the files whose labels are not known."""


class Planned(NamedTuple):
    """A task that can be run."""

    task: SuiteTask
    files: Files
    recipe: Recipe
    corpus: Corpus


@dataclass(frozen=True)
class Scored:
    """One column of the table: a task on one of its test files."""

    task: str
    column: str
    says: str
    seeds: dict[str, list[float]]
    """Each metric with the figure of every seed."""
    intervals: dict[str, tuple[float, float]]
    rows: int
    seconds: float
    """Mean seconds of training one seed."""
    runs: list[str]

    @property
    def figures(self) -> dict[str, float]:
        """Each metric with its median over the seeds."""
        return {metric: median(values) for metric, values in self.seeds.items()}

    @property
    def score(self) -> float:
        """What it counts in a mean: the mean of its metrics, in hundredths."""
        return 100 * fmean(self.figures.values())


def run_suite(
    what: str,
    folder: str | Path | Sequence[str | Path],
    settings: Settings = (),
    model: str = "",
    seeds: int = 1,
    budget: str | int = "",
    out: Out = None,
    progress: Progress = silent,
    trust: bool = False,
    threads: int = 0,
) -> SuiteResult:
    """Train a model on every task of a suite whose files are in a folder (or several), and return the table.

    `what` is a suite's name or its TOML file; `settings` are keys of every task's recipe. What is trained already in
    `out` is kept.
    """
    begun, suite, lines = time.perf_counter(), read_suite(what), setting_lines(settings)
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}. Expected 1 or more.")
    folders = [Path(one) for one in ([folder] if isinstance(folder, str | Path) else folder)]
    model = model or suite.kind
    place = Path(out) if out else files.free_name(f"suite-{suite.name}")
    _check_place(place, suite)
    recipes, left_out = _recipes(suite, folders, model, lines, str(budget), trust)
    # A broken row of any task is told before the first one is trained.
    planned = [Planned(*one, Corpus(one[-1].data, one[-1].shape, progress)) for one in recipes]
    words = [what, *map(str, folders), *lines, "--model", model, "--seeds", str(seeds)]
    words += [*(["--budget", str(budget)] if budget else []), "--out", str(place)]
    again = shlex.join(["segue", "suite", *words, *(["--threads", str(threads)] if threads else [])])
    scored: list[Scored] = []
    with files.held(place, files.missing(place), again), devices.using_threads(threads):
        for one in planned:
            try:
                scored += _scored(one, seeds, place, progress, trust)
            except InputError:
                raise
            except SegueError as error:  # the loss diverged: the other tasks go on
                progress(f"{one.task.name} failed: {error}", 0.0)
                left_out[one.task.name] = str(error)
        if not scored:
            raise SegueError(f"No task of {suite.name} could be trained: {'; '.join(left_out.values())}")
        skipped = {one.task.name: one.corpus.ledger.skipped().get("skipped") for one in planned}
        notes = {name: found for name, found in skipped.items() if found}
        result = _report(suite, scored, left_out, notes, model, lines, again, place)
    return SuiteResult(result, wall_seconds=time.perf_counter() - begun)


# What can be run


def _recipes(
    suite: Suite, folders: Sequence[Path], model: str, lines: Sequence[str], budget: str, trust: bool
) -> tuple[list[tuple[SuiteTask, Files, Recipe]], dict[str, str]]:
    """Find the tasks whose files are there and whose labels the model can learn; say of the others why not."""
    recipes: list[tuple[SuiteTask, Files, Recipe]] = []
    left_out: dict[str, str] = {}
    _check_folders(suite, folders)
    learns = _labels(model, trust)
    for task in suite.tasks:
        found = find(task, folders)
        if isinstance(found, str):
            left_out[task.name] = f"{found} is not there"
            continue
        own = _settings(suite, task, found)
        label = next((line.partition("=")[2] for line in own if line.startswith("data.label=")), "class")
        if label not in learns:
            left_out[task.name] = f"{model} does not learn a {label}"
            continue
        recipe = replace(load_recipe(model, [*own, *lines], trust=trust), name=f"{suite.name}/{task.name}")
        recipes.append((task, found, budgeted(recipe, budget) if budget else recipe))
    if not recipes:
        what = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise InputError(f"No task of {suite.name} can be run with {', '.join(map(str, folders))}. {what}.")
    for *_, recipe in recipes:
        check_inputs(recipe, trust)
    return recipes, left_out


def _check_folders(suite: Suite, folders: Sequence[Path]) -> None:
    if not folders:
        raise InputError(f"Name the folder with the files of {suite.name}: segue suite {suite.name} FOLDER")
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}. Expected the folder with the files of {suite.name}.")


def _labels(model: str, trust: bool) -> tuple[str, ...]:
    """Return the kinds of labels that a model learns; refuse one that learns no labels of texts."""
    recipe = load_recipe(model, trust=trust)
    if recipe.shape is not LABELLED:
        raise InputError(
            f"{model} is made for {recipe.task.name}, and a suite is for models that learn labels of texts. Name a "
            "classifier: --model nbsvm; or put a head on the run of a body: model.body=RUN"
        )
    return tuple(recipe.model_class.labels)


def _settings(suite: Suite, task: SuiteTask, found: Files) -> list[str]:
    """Return the settings of a task: those of the suite, its own, and its files."""
    test = next(iter(found.tests.values()))
    data = {"path": found.training, "test": test, "columns": found.columns, "metric": task.metrics[0]}
    return [*suite.settings, *task.settings, *(f"data.{key}={value}" for key, value in data.items())]


def _check_place(place: Path, suite: Suite) -> None:
    """Refuse a folder that holds anything but the runs of this suite."""
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file. Choose another --out.")
    own = {".lock", SUBMISSION, "report.html", "result.json", *(task.name for task in suite.tasks)}
    if place.is_dir() and (strange := sorted(files.entries(place) - own)):
        raise InputError(
            f"{place} holds something else than the runs of {suite.name}: {strange[0]}. Choose another --out."
        )


# Training and scoring


def _scored(one: Planned, seeds: int, place: Path, progress: Progress, trust: bool) -> list[Scored]:
    """Train a task with every seed unless that is done, score each of its test files, and predict."""
    task, recipe = one.task, one.recipe
    first = recipe.train.seed if recipe.train.has("seed") else None  # without one there is no chance in training
    numbers = [None] if first is None else [first + seed for seed in range(seeds)]
    shared = Shared(place / task.name / ".ids") if len(numbers) > 1 else None
    runs, evaluations = [], []
    try:
        for at, number in enumerate(numbers):
            run = _trained(recipe, number, place / task.name / f"seed{at}", one.corpus, progress, trust, shared)
            runs.append(run.path)
            evaluations.append(_evaluations(run, one.files, progress))
            if not at:
                _predict(run, one, place / SUBMISSION, progress)
    finally:
        if shared:
            shared.remove()
    seconds = fmean(float(files.read_result(path)["train_seconds"]) for path in runs)
    columns = [column for column in task.tests if column in one.files.tests]
    by_column = {column: [each[column] for each in evaluations] for column in columns}
    return [_column(task, column, found, seconds, runs) for column, found in by_column.items()]


def _trained(
    recipe: Recipe,
    seed: int | None,
    place: Path,
    corpus: Corpus,
    progress: Progress,
    trust: bool,
    shared: Shared | None,
) -> Run:
    """Train one seed, or go on with it, and evaluate it on the first test file."""
    own = recipe if seed is None else recipe.with_values("train", seed=seed)
    begun = (place / "recipe.toml").exists()
    run = train(own, out=place, resume=begun, progress=progress, trust=trust, shared=shared)
    if run.evaluation is None:
        files.check_same_files(corpus.ledger.files, place)
        run.evaluation = run.evaluate_split(corpus, "test", progress)
    return run


def _evaluations(run: Run, found: Files, progress: Progress) -> dict[str, Evaluation]:
    """Evaluate a run on each test file; the first was scored when it was trained."""
    first, *others = found.tests
    assert run.evaluation is not None
    evaluations = {first: run.evaluation}
    for column in others:
        with run.corpus_for(found.tests[column], progress) as (other, split):
            evaluations[column] = run.evaluate_split(other, split, progress)
    return evaluations


def _column(task: SuiteTask, column: str, seeds: Sequence[Evaluation], seconds: float, runs: Sequence[Path]) -> Scored:
    by_metric = {metric: [ranked_by(one, metric) for one in seeds] for metric in task.metrics}
    values = {metric: [float(one.result[metric]) for one in found] for metric, found in by_metric.items()}
    intervals = {metric: interval(found) for metric, found in by_metric.items()}
    rows = len(seeds[0].pieces_NK)
    return Scored(task.name, column, task.says, values, intervals, rows, seconds, [str(run) for run in runs])


# Predictions


def _predict(run: Run, one: Planned, folder: Path, progress: Progress) -> None:
    """Write the predictions for the files without labels, as GLUE's server takes them: index and prediction."""
    for name, path in one.files.predict.items():
        columns = one.task.predict_columns
        _, data, form = run.split_settings([f"data.columns={columns}"] if columns else [], "a prediction")
        # Every row must have its prediction: none is skipped.
        file = QuestionFile(path, replace(data, on_error="stop"), run.recipe.shape, form)
        found, asked = file.asked(run.example_of)
        asked, again = tee(asked)
        answers = run.predict_examples(each.example for each in asked)
        written = ["index\tprediction"]
        for each, answer in zip(again, answers, strict=True):
            index = each.question.line - (2 if found.header else 1)
            said = f"{answer.number:.3f}" if run.recipe.data.label == "number" else answer.label
            written.append(f"{index}\t{said}")
            progress(f"predicting {name}", len(written) / (file.count + 1))
        folder.mkdir(exist_ok=True)
        files.write_atomic(folder / name, "\n".join(written) + "\n")


# Means


class Mean(NamedTuple):
    """The mean of some columns."""

    value: float | None
    """None: no column has a figure."""
    over: tuple[str, ...]
    """The columns that have one."""
    missing: tuple[str, ...]


def mean(of: Columns, scores: Mapping[str, float]) -> Mean:
    """Average columns, those of a group first; a column without a figure is left out, and named."""
    groups = [[name for name in ((one,) if isinstance(one, str) else one) if name in scores] for one in of]
    means = [fmean(scores[name] for name in group) for group in groups if group]
    over = tuple(name for group in groups for name in group)
    missing = tuple(name for name in flat(of) if name not in scores)
    return Mean(fmean(means) if means else None, over, missing)


def _by_seed(of: Columns, scored: Sequence[Scored]) -> list[float]:
    """The mean of each seed, over the same columns."""
    count = min((len(values) for one in scored for values in one.seeds.values()), default=0)
    found = []
    for seed in range(count):
        scores = {one.column: 100 * fmean(values[seed] for values in one.seeds.values()) for one in scored}
        value = mean(of, scores).value
        found += [value] if value is not None else []
    return found


def _half(of: Columns, scored: Sequence[Scored]) -> float:
    """Half the 95 % interval of a mean of columns whose test rows are independent; the metrics of one column are not,
    so that their widths are averaged."""
    halves = {one.column: 100 * fmean((high - low) / 2 for low, high in one.intervals.values()) for one in scored}
    groups = [[halves[name] for name in ((one,) if isinstance(one, str) else one) if name in halves] for one in of]
    parts = [math.sqrt(sum(half**2 for half in group)) / len(group) for group in groups if group]
    return math.sqrt(sum(part**2 for part in parts)) / len(parts) if parts else math.inf


# The table and the page


def _report(
    suite: Suite,
    scored: Sequence[Scored],
    left_out: Mapping[str, str],
    skipped: Mapping[str, dict[str, Any]],
    model: str,
    lines: Sequence[str],
    command: str,
    place: Path,
) -> dict[str, Any]:
    scores = {one.column: one.score for one in scored}
    written = sorted(path.name for path in (place / SUBMISSION).glob("*")) if (place / SUBMISSION).exists() else []
    result = {
        "suite": suite.name,
        "says": suite.says,
        "model": model,
        "settings": list(lines),
        "report": str(place / "report.html"),
        "rows": [_row(one) for one in scored],
        "means": [_mean_row(name, of, scores, scored) for name, of in suite.means.items()],
        "left_out": dict(left_out),
        "skipped": dict(skipped),
        "published": _published(suite, scored) if suite.published else None,
        "submission": [str(place / SUBMISSION / name) for name in written],
        "train_seconds": sum(one.seconds * len(one.runs) for one in {one.task: one for one in scored}.values()),
    }
    files.write_json(place / "result.json", result)
    machine = files.read_json(Path(scored[0].runs[0]) / "environment.json")
    made = page.Made(command, __version__, datetime.date.today().isoformat(), _machine(machine))
    files.write_atomic(place / "report.html", page.render(result, made))
    return result


def _machine(made_with: Mapping[str, Any]) -> str:
    return f"{made_with['processor']}, {made_with['cores']} cores, Python {made_with['versions']['python']}"


def _row(one: Scored) -> dict[str, Any]:
    figures = {
        metric: {"median": median(values), "ci": list(one.intervals[metric]), "seeds": values}
        for metric, values in one.seeds.items()
    }
    own = {"task": one.task, "column": one.column, "says": one.says, "figures": figures, "score": one.score}
    return {**own, "rows": one.rows, "train_seconds": one.seconds, "runs": one.runs}


def _mean_row(name: str, of: Columns, scores: Mapping[str, float], scored: Sequence[Scored]) -> dict[str, Any]:
    found, seeds, half = mean(of, scores), _by_seed(of, scored), _half(of, scored)
    ends = None if found.value is None else [max(-100.0, found.value - half), min(100.0, found.value + half)]
    return {
        "mean": name,
        "value": found.value,
        "ci": ends,
        "seeds": seeds,
        "over": found.over,
        "missing": found.missing,
    }


def _published(suite: Suite, scored: Sequence[Scored]) -> dict[str, Any]:
    """Set our figures beside those of others: the same metrics, and means over the same columns."""
    theirs: Published | None = suite.published
    assert theirs is not None
    figures = {one.column: one.figures for one in scored}
    ours = {column: 100 * figures[column][theirs.metrics[column]] for column in theirs.columns if column in figures}
    rows = {f"{suite.name} here": ours} | {
        name: dict(zip(theirs.columns, row, strict=True)) for name, row in theirs.rows.items()
    }
    return {
        "says": theirs.says,
        "columns": list(theirs.columns),
        "metrics": theirs.metrics,
        "ran": list(ours),
        "rows": [_beside(suite, name, row, list(ours)) for name, row in rows.items()],
    }


def _beside(suite: Suite, name: str, row: Mapping[str, float], ran: Sequence[str]) -> dict[str, Any]:
    """One row of the published table: its figures, each mean over all of its columns, and over those that ran here."""
    whole = {title: mean(of, row) for title, of in suite.means.items()}
    same = {title: mean(of, {column: row[column] for column in ran}) for title, of in suite.means.items()}
    return {
        "name": name,
        "figures": dict(row),
        "means": {title: None if found.missing else found.value for title, found in whole.items()},
        "means_of_those_that_ran": {title: found.value for title, found in same.items()},
    }

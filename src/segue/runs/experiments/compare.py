"""Compare many models under one budget in one table: which is best, by how much, and whether by more than chance.

Every model gets the same splits of the same data and the same budget; no settings are searched for any
of them. A trial is one model with all its seeds and folds. The figures of a trial are made of the pieces
of the test text (blocks or sentences), folds end to end, so that two trials can be compared piece by piece
and seed by seed. The seeds of a trial share what does not depend on the seed: tokenizer, ids on disk.
"""

from __future__ import annotations

import fnmatch
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from segue import tasks
from segue.data.config import Config as DataConfig
from segue.data.corpus import Corpus
from segue.data.from_list import guess_rows
from segue.data.shapes import Shape
from segue.data.sources import guess_shape
from segue.errors import InputError, SegueError
from segue.inference import metrics
from segue.inference.evaluation import LOWER_IS_BETTER, Evaluation, main_figure
from segue.inference.evaluation import compare as compare_two
from segue.inference.evaluation import interval as interval_of
from segue.inference.text_metrics import METRICS
from segue.look.page.frozen import lecture_task
from segue.look.page.report import write
from segue.models import model_class
from segue.models import task_of as task_of_kind
from segue.models.base import TaskName
from segue.models.names import recipe_names
from segue.recipe import Recipe, budgeted, kind_of, load_recipe
from segue.runs import folder as files
from segue.runs.display import Comparison
from segue.runs.experiments.pretraining import changes_of, frozen_pairs, notes
from segue.runs.experiments.verdict import Trial, question, stem, summary
from segue.runs.from_run import from_run, is_run, named_settings, with_settings
from segue.runs.gather import alignments, entry_of, page_of, passage_of, trend_of
from segue.runs.leaks import leak, trained_runs
from segue.runs.prepare import Shared
from segue.runs.resume import (
    Data,
    Out,
    Settings,
    check_inputs,
    data_name,
    named_data,
    recipe_from,
    rows_by_number,
    setting_lines,
    taken,
    undo_rows,
)
from segue.runs.run import Run, evaluate_opened
from segue.runs.train import train
from segue.tasks.base import Task
from segue.training import device as devices
from segue.training.log import Progress, silent

HELD_OUT = 0.2
"""The default of data.test: a fifth of a few hundred kB is enough text to tell models apart."""


def compare(
    data: Data = None,
    models: Sequence[str] | str = (),
    budget: str | int = "",
    seeds: int | None = None,
    folds: int | None = None,
    out: Out = None,
    task: TaskName | None = None,
    settings: Settings = (),
    progress: Progress = silent,
    trust: bool = False,
    resume: bool = False,
    threads: int = 0,
) -> Comparison:
    """Train several models under one budget (60s if none is given) and write one page; return the table's rows, best
    first. `models` are names, each with settings of its own if need be ("rnn_lm model.cell=gru"), or run folders to
    begin from; or one string with commas between them. A budget that is a number is one of steps. With
    `resume` go on with the comparison in `out`: only what is given again must be as it was."""
    begun = time.perf_counter()
    models = [_taken(name, data, progress) for name in names_of(models)]
    given = _Given(data, tuple(models), str(budget), seeds, folds, task, setting_lines(settings), trust)
    if resume:
        with devices.using_threads(threads):
            return Comparison(_go_on(given, out, progress))  # how long it took before is not known
    listed = data is not None and not isinstance(data, str | Path)
    chosen = tasks.task(task or task_of(data if listed else str(data or "pydoc"), models, trust))
    path, made = _place(out, f"compare-{data_name(data)}")
    rows = None
    try:
        name, rows = named_data(data, path, chosen.shape)
        asked = given.asked(name or "pydoc", chosen)
        recipes = _recipes(asked, trust)
        empty = partial(_check_empty, path)
        with devices.using_threads(threads), rows_by_number(rows), files.held(path, made, _again(path), empty):
            return Comparison(_compare(asked, recipes, path, progress, trust), wall_seconds=time.perf_counter() - begun)
    except BaseException:
        undo_rows(rows, path, made)
        with suppress(OSError):  # a default folder is made before it is locked
            for folder in made:
                folder.rmdir()
        raise


@dataclass(frozen=True)
class Asked:
    """What a comparison was asked for: comparison.json in its folder, by which it goes on."""

    data: str
    models: list[str]
    budget: str
    seeds: int
    folds: int
    task: TaskName
    settings: list[str]
    left_out: list[str]
    """A sentence about the models of the task that cannot learn the labels."""


def names_of(models: Sequence[str] | str) -> list[str]:
    """Return the names of models, which may be one string with commas between them."""
    if not isinstance(models, str):
        return list(models)
    names = [name.strip() for name in models.split(",") if name.strip()]
    if models and not names:
        raise InputError(f"--models '{models}' names no model. Expected recipes with commas between: ngram,rnn_lm/gru")
    return names


def _taken(entry: str, data: Data, progress: Progress) -> str:
    """Return an entry of `models` with the kind or recipe that its name means."""
    name, settings = named_settings(entry)
    return entry if is_run(name) else " ".join([taken(name, data, progress), *settings])


class _Given(NamedTuple):
    """What the caller of `compare` gave; the rest has its default, or is as it was when the comparison began."""

    data: Data
    models: Sequence[str]
    budget: str
    seeds: int | None
    folds: int | None
    task: TaskName | None
    settings: list[str]
    trust: bool

    def asked(self, data: str, task: Task) -> Asked:
        """Fill in the defaults of a new comparison."""
        seeds, folds = 1 if self.seeds is None else self.seeds, self.folds or 0
        if seeds < 1 or folds == 1 or folds < 0:
            raise InputError(
                f"Expected --seeds of 1 or more, and --folds of 0 or 2 and more; found {seeds} and {folds}."
            )
        ladder, left_out = (self.models, _own_ways(self.models)) if self.models else _ladder(task, data, self.settings)
        names = _expanded(ladder)
        return Asked(data, names, self.budget or "60s", seeds, folds, task.name, self.settings, left_out)

    def differs(self, begun: Asked, path: Path) -> str:
        """Return the first value that is not as it was when the comparison in `path` began, as key, old and new."""
        listed = self.data is not None and not isinstance(self.data, str | Path)
        given = {
            "data": str(path.parent / f"{path.name}.data.jsonl") if listed else self.data and str(self.data),
            "--models": _expanded(self.models) if self.models else None,
            "--budget": self.budget or None,
            "--seeds": self.seeds,
            "--folds": self.folds,
            "--task": self.task,
            "settings": self.settings or None,
        }
        old = {f"--{key}" if key not in ("data", "settings") else key: value for key, value in asdict(begun).items()}
        return next((f"{k} {old[k]}, not {v}" for k, v in given.items() if v is not None and v != old[k]), "")


def _go_on(given: _Given, out: Out, progress: Progress) -> dict[str, Any]:
    """Go on with the comparison in a folder: finished runs are evaluated, begun ones resumed, the others trained."""
    if out is None:
        raise InputError("Which comparison should go on? Name its folder: segue compare --out FOLDER --resume")
    path = Path(out)
    if not (path / files.COMPARISON).exists():
        raise InputError(f"There is no comparison in {path} to go on with. To begin one there, leave --resume out.")
    asked = _read_asked(path / files.COMPARISON)
    if differs := given.differs(asked, path):
        raise InputError(
            f"{path} was begun with {differs}. Go on with it as it was: segue compare --out {path} --resume. For "
            "other settings choose another --out."
        )
    recipes = _recipes(asked, given.trust)
    with files.held(path, [], _again(path)):
        return _compare(asked, recipes, path, progress, given.trust)


def _read_asked(path: Path) -> Asked:
    values = files.read_json(path)
    kinds = {"data": str, "models": list, "budget": str, "seeds": int, "folds": int, "task": str}
    kinds |= {"settings": list, "left_out": list}
    whole = isinstance(values, dict) and {key: type(value) for key, value in values.items()} == kinds
    if not whole or values["task"] not in tasks.names():
        raise InputError(f"{path} is damaged: these are no settings of a comparison. Begin another one.")
    return Asked(**values)


def _place(out: Out, stem: str) -> tuple[Path, list[Path]]:
    """Return the folder of a comparison, and which folders must be made for it. A default one is made at once, so that
    two comparisons that begin together take two names."""
    if out is not None:
        return Path(out), files.missing(Path(out))
    while True:
        path = files.free_name(stem)
        made = files.missing(path)
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return path, made


def _again(path: Path) -> str:
    """Return the command that goes on with a comparison."""
    threads = devices.asked_threads()
    named = f" --threads {threads}" if threads else ""
    return f"segue compare --out {shlex.quote(str(path))} --resume{named}"


def _check_empty(path: Path) -> None:
    found = files.entries(path) - {".lock"}
    if files.COMPARISON in found:
        raise InputError(
            f"{path} holds a comparison. Go on with it: segue compare --out {path} --resume, or choose another --out."
        )
    if found:
        raise InputError(f"{path} exists already; nothing is overwritten. Choose another --out.")


def _compare(asked: Asked, recipes: list[Recipe], out: Path, progress: Progress, trust: bool) -> dict[str, Any]:
    corpus = Corpus(recipes[0].data, recipes[0].shape, progress)
    if not corpus.counts["test"]:
        raise InputError("Nothing is held out to compare on. Give data.test as a path or a share, such as 0.05.")
    for recipe in recipes:
        check_inputs(recipe, trust)
    files.write_json(out / files.COMPARISON, asdict(asked))
    trials, failed = _trained(asked, recipes, corpus, out, progress, trust)
    return _report(_ranked(trials), corpus, "test", out, asked.budget, asked.seeds, asked.left_out, failed)


def _ladder(task: Task, data: str, overrides: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Return the task's models for such sources that can learn the labels of the data, and a sentence about the
    others, if any."""
    if task.ladders:
        source = load_recipe(task.ladder[0], overrides, {"data": {"path": data}}).data.source
        return task.ladders.get(source, task.ladder), []
    given = [word.partition("=")[2] for word in overrides if word.startswith(("data.label=", "label="))]
    label = given[-1] if given else "class"
    able = [name for name in task.ladder if label in model_class(name.split("/")[0]).labels]
    others = [name for name in task.ladder if name not in able]
    if not able or not others:
        return task.ladder, []
    return able, [f"Left out, since they learn one class a row: {', '.join(others)}."]


def _recipes(asked: Asked, trust: bool) -> list[Recipe]:
    base: dict[str, Any] = {"data": {"path": asked.data, "validation": 0.05, "test": HELD_OUT}}
    if asked.folds:
        base["data"]["test"] = f"1/{asked.folds}"
    first = [_recipe(entry, asked, base, trust) for entry in asked.models]
    for recipe in first if asked.folds else ():
        if recipe.data.fold() is None:
            raise InputError(
                f"--folds {asked.folds} makes the test part itself, but data.test is {recipe.data.test!r}. Leave one "
                "out."
            )
    # If one model needs canonical text, all get it: they must read the same bytes.
    for key in ("canonical", "unit"):
        values = {asdict(recipe.data)[key] for recipe in first if recipe.data.canonical}
        if values:
            base["data"][key] = values.pop()
    # If recipes disagree about carrying context, none does.
    if len({recipe.data.carry for recipe in first}) > 1:
        base["data"]["carry"] = False
    recipes = [_budgeted(_recipe(entry, asked, base, trust), asked.budget) for entry in asked.models]
    _check_same_data(recipes)
    _check_names(recipes, asked.task)
    return recipes


def _recipe(entry: str, asked: Asked, base: Mapping[str, Any], trust: bool) -> Recipe:
    """Load the recipe of a model as it is named in a comparison: a recipe or a run to begin from, with settings."""
    name, own = named_settings(entry)
    settings = [*asked.settings, *own]
    if is_run(name):
        recipe = recipe_from(from_run(name, tasks.task(asked.task).shape, settings, trust), settings, base, trust)
    else:
        recipe = load_recipe(name, settings, base, trust)
    return replace(recipe, name=with_settings(recipe.name, own))


def _budgeted(recipe: Recipe, budget: str) -> Recipe:
    """Return the recipe under a budget; a network without weights may be made larger by it. A head on a body keeps the
    epochs and the rate of its recipe, and uses as many of the seconds as it needs: tuned for long, a body forgets."""
    fitted = budgeted(recipe, budget, plan="epochs" if recipe.train.init else "size")
    if recipe.model.body and fitted.train.seconds:
        return fitted.with_values("train", epochs=recipe.train.epochs, plan="none")
    return fitted


def _check_names(recipes: Sequence[Recipe], task: str) -> None:
    """Refuse models whose runs would have one folder, and models of another task."""
    places: dict[str, str] = {}
    for recipe in recipes:
        place = _folder(recipe).casefold()  # some file systems do not tell capitals apart
        if place in places:
            raise InputError(
                f"Two of the models have the same name: {places[place]} and {recipe.name} would both be in "
                f"{_folder(recipe)}. Give each a `name = …` of its own, or rename a run."
            )
        places[place] = recipe.name
    wrong = [recipe.name for recipe in recipes if recipe.task.name != task]
    if wrong:
        raise InputError(
            f"{', '.join(wrong)} cannot be compared on {task}: models of one task at a time. Leave it out of --models."
        )


def _folder(recipe: Recipe) -> str:
    """Return the name of a model's run folder."""
    return recipe.name.replace("/", "-").replace(" ", "-")


def _check_same_data(recipes: Sequence[Recipe]) -> None:
    """Refuse models that read different units, splits or columns: their figures could not be compared."""
    first = recipes[0]
    for other in recipes[1:]:
        for key, value, theirs in _data_pairs(first, other):
            if theirs != value:
                raise InputError(
                    f"{first.name} reads the data with data.{key}={value}, {other.name} with data.{key}={theirs}. "
                    f"Expected the same text for all; say data.{key}=… on the command line, for every model."
                )


def _data_pairs(one: Recipe, other: Recipe) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key of [data] with its value in both recipes."""
    theirs = asdict(other.data)
    for key, value in asdict(one.data).items():
        yield key, value, theirs[key]


def _expanded(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(found for name in names for found in _expand(name)))


def _expand(name: str) -> list[str]:
    """The recipes of a name or a pattern. A pattern leaves out recipes of one published corpus (ngram/ptb), which read
    the data in a way of their own."""
    if "*" not in named_settings(name)[0]:
        return [name]
    found = fnmatch.filter(recipe_names(), name)
    found = [one for one in found if load_recipe(one).data == DataConfig()] or found
    if not found:
        raise InputError(f"No recipe is called {name}. `segue recipes` lists them.")
    return [one for one in found if not _reads_its_own_way(one)] or found


def _own_ways(models: Sequence[str]) -> list[str]:
    """Return a sentence about the recipes that a `*` leaves out, if any."""
    matched = {one for name in models if "*" in name for one in fnmatch.filter(recipe_names(), name)}
    others = sorted(matched - set(_expanded(models)))
    return [f"Left out of *, since they read the data in their own way: {', '.join(others)}."] if others else []


def _reads_its_own_way(name: str) -> bool:
    """Whether a recipe is made for one corpus, such as the words of the Penn Treebank: it reads the data in another way
    than its kind does, and all models of a comparison would have to."""
    return bool(load_recipe(name).data != load_recipe(name.split("/")[0]).data)


def _trained(
    asked: Asked, recipes: Sequence[Recipe], corpus: Corpus, out: Path, progress: Progress, trust: bool
) -> tuple[list[Trial], dict[str, str]]:
    """Train every model; also return why some failed. The first is a trial of the data: if it is refused, the others
    are not tried."""
    trials: list[Trial] = []
    failed: dict[str, str] = {}
    for recipe in recipes:
        corpus.check_unchanged()
        try:
            trials.append(_trial(recipe, asked, corpus, out, progress, trust))
        except SegueError as error:
            nothing = isinstance(error, InputError) and not (trials or failed)
            if nothing or (recipe is recipes[-1] and not trials):
                raise
            failed[recipe.name] = str(error)
            progress(f"{recipe.name} failed: {error}", 0.0)
    return trials, failed


def _trial(recipe: Recipe, asked: Asked, corpus: Corpus, out: Path, progress: Progress, trust: bool) -> Trial:
    """Train a model with all its seeds and folds; what is finished is only evaluated, what has begun goes on."""
    seeds, folds = asked.seeds, asked.folds
    learns = recipe.train.has("seed")
    numbers = [recipe.train.seed + seed for seed in range(seeds)] if learns else []
    recipes = [recipe.with_values("train", seed=number) for number in numbers] or [recipe]
    # A name cannot begin with a dot, so that no model's folder is called so.
    shared = [Shared(out / f".ids-{fold}") if len(recipes) > 1 else None for fold in range(folds or 1)]
    runs: list[list[Run]] = [[] for _ in recipes]
    try:
        for (seed, one), (fold, ids) in product(enumerate(recipes), enumerate(shared, 1)):
            one = one.with_values("data", test=f"{fold}/{folds}") if folds else one
            place = out / (_folder(recipe) + _suffix(seed, fold, seeds, folds))
            begun = (place / "recipe.toml").exists()
            run = train(one, out=place, resume=begun, progress=progress, trust=trust, shared=ids)
            if run.evaluation is None:
                text = Corpus(one.data, recipe.shape, progress) if folds else corpus
                files.check_same_files(text.ledger.files, place)
                run.evaluation = run.evaluate_split(text, "test", progress)
            runs[seed].append(run)
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
    result.pop("confusions", None)  # the most frequent of each fold are not those of all
    if "span_counts" in result:
        result |= metrics.by_type(result["types"], result["span_counts"])
    pieces = np.concatenate([fold.pieces_NK for fold in folds])
    examples = [example for fold in folds for example in fold.examples]
    ordered = any(fold.ordered for fold in folds)
    lengths = [fold.lengths_N for fold in folds if fold.lengths_N is not None]
    whole = replace(folds[0], result=result, pieces_NK=pieces, examples=examples, ordered=ordered)
    return _figures(replace(whole, lengths_N=np.concatenate(lengths) if lengths else None))


def mean_of(seeds: Sequence[Evaluation]) -> Evaluation:
    """Average evaluations over seeds; what has no mean (confusions, examples) is taken from the first."""
    if len(seeds) == 1:
        return seeds[0]
    result = seeds[0].result | _averages(seeds, [1.0] * len(seeds))
    mean = _figures(replace(seeds[0], result=result, pieces_NK=np.mean([e.pieces_NK for e in seeds], 0)))
    if mean.figure in mean.result:
        mean.result[f"{mean.figure}_ci"] = list(interval_of(seeds))  # holds the chance of training too
    return mean


_SUMMED = (
    *("confusion", "calibration", "span_counts", "rows", "sentences", "words", "tokens", "bytes"),
    *("unknown_tokens", "zero_probability_tokens", "tokens_cut"),
)
_AVERAGED = (
    *("matthews", "positive_f1", "macro_f1", "micro_f1", "span_f1", "precision", "recall", "accuracy"),
    *("perplexity", "bits_per_byte"),
    *(*METRICS, "distinct1", "distinct2"),
    *("masked_bits_per_byte", "masked_perplexity", "masked_accuracy", "next_sentence_accuracy"),
    *("spelling_bits_per_byte", "best_possible", "mean_absolute_error", "pearson", "spearman"),
)


def _averages(evaluations: Sequence[Evaluation], weights: Sequence[float]) -> dict[str, Any]:
    averages = _means([e.result for e in evaluations], weights)
    best = _means([e.result.get("best", {}) for e in evaluations], weights)
    return averages | ({"best": best} if best else {})


def _means(figures: Sequence[dict[str, Any]], weights: Sequence[float]) -> dict[str, Any]:
    found = {name: [one.get(name) for one in figures] for name in _AVERAGED}
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


_DRAWN = 3
"""Models whose alignments are drawn, the best that have any."""


def _report(
    trials: list[Trial],
    corpus: Corpus,
    split: str,
    out: Path,
    budget: str = "",
    seeds: int = 1,
    left_out: Sequence[str] = (),
    failed: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Write the page and result.json; `budget` is empty for runs that were trained before."""
    task = trials[0].recipe.task
    passage = passage_of(corpus, split) if "generate" in task.verbs else None
    results = [files.read_json(trial.runs[0].path / "result.json") for trial in trials]
    entries = [
        entry_of(trial.runs[0], trial.evaluation, result, passage, trial.differs)
        for trial, result in zip(trials, results, strict=True)
    ]
    *facts, verdict = summary(trials, corpus, budget, seeds)
    lost = [f"{name} could not be trained: {why}" for name, why in failed.items()]
    left_out = [*left_out, *notes(trials, results, budget)]
    sentences = [*facts, *left_out, *lost, *(_sooner(results, trials) if budget else []), verdict]
    title = f"{stem(corpus.config.path)}: {len(trials)} models compared"
    column = question(trials)
    page = page_of(title, sentences, entries, passage, trials[0].evaluation)
    trend = trend_of([trial.recipe for trial in trials], entries)
    drawn = filter(None, (alignments(trial.runs[0], trial.evaluation.examples) for trial in trials))
    frozen = frozen_pairs(trials)
    page = replace(page, column=column, trend=trend, views=list(chain(*islice(drawn, _DRAWN))))
    page = replace(
        page, changes=changes_of(trials, results), frozen=frozen, lecture_task=lecture_task(corpus.config.path)
    )
    write(page, out / "report.html")
    rows = [_row(trial, result, column) for trial, result in zip(trials, results, strict=True)]
    trained = [files.read_json(run.path / "result.json")["train_seconds"] for trial in trials for run in trial.runs]
    result = {
        "train_seconds": sum(trained),
        "report": str(out / "report.html"),
        "task": task.name,
        "figure": main_figure(trials[0].evaluation.result),
        "best_possible": trials[0].evaluation.result.get("best_possible"),
        "best": trials[0].evaluation.result.get("best"),
        "column": column,
        "rows": rows,
        "frozen": [one._asdict() for one in frozen],
        "same_tokens": all(trial.runs[0].tokenizer.content == trials[0].runs[0].tokenizer.content for trial in trials),
        "left_out": list(left_out),
        "failed": dict(failed),
        "verdict": verdict,
    }
    files.write_json(out / "result.json", result)
    return result


_BESIDE = (
    *("perplexity", "bits_per_byte", "accuracy", "precision", "recall", "by_type", "micro_f1", "macro_f1"),
    *("matthews", "positive_f1", "calibration_error", "mean_absolute_error", "pearson", "spearman"),
    *("masked_perplexity", "masked_accuracy", "next_sentence_accuracy"),
    *(*METRICS, "distinct1", "distinct2", "by_length", "edits"),
)


def _sooner(results: Sequence[dict[str, Any]], trials: Sequence[Trial]) -> list[str]:
    """Name the models that gave a part of their budget back: early stopping, or the most epochs that a plan allows."""
    pairs = zip(results, trials, strict=True)
    names = [trial.recipe.name for result, trial in pairs if result.get("stopped_early") or "seconds_left" in result]
    return [f"Ended before its time, as more would not have helped: {', '.join(names)}."] if names else []


def _row(trial: Trial, result: dict[str, Any], column: str) -> dict[str, Any]:
    figures = trial.evaluation.result
    main = main_figure(figures)
    extra: dict[str, Any] = {key: figures[key] for key in _BESIDE if key in figures}
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
        "pretrained": result.get("pretrained"),
        "steps": result["steps"],
        "tokens_per_second": result["tokens_per_second"],
        "run": str(trial.runs[0].path),
    }


# Comparing finished runs


def compare_runs(
    runs: Sequence[str | Path],
    data: Data = None,
    out: Out = None,
    settings: Settings = (),
    progress: Progress = silent,
    trust: bool = False,
) -> Comparison:
    """Compare finished runs without training, on the text that all of them held out, or on `data`, which none of them
    may have seen; write one page, and return the table's rows, best first."""
    if len({Path(run).resolve() for run in runs}) < max(2, len(runs)):
        raise InputError(
            f"Expected two different runs or more to compare; found {', '.join(map(str, runs)) or 'none'}."
        )
    opened = _named([Run.open(run, trust=trust) for run in runs])
    wrong = next((run for run in opened if run.task is not opened[0].task), None)
    if wrong:
        raise InputError(f"{wrong.path} is made for {wrong.task.name}, {opened[0].path} for {opened[0].task.name}.")
    path, made = _place(out, f"compare-{'-'.join(Path(run).name for run in runs)}"[:80])
    with ExitStack() as held:
        held.enter_context(files.held(path, made, _again(path), partial(_check_empty, path)))
        lines = setting_lines(settings)
        judged = [run.judged_with(lines) for run in opened]
        _check_one_metric(opened, [one.codec.data.metric for one, _ in judged])
        texts = [
            held.enter_context(run.corpus_for(data, progress, reading))
            for run, (_, reading) in zip(opened, judged, strict=True)
        ]
        _check_one_text(opened, texts, data)
        corpus, split = texts[0]
        with corpus.unchanged():
            trials = []
            for run, (one, _) in zip(opened, judged, strict=True):
                evaluation = evaluate_opened(run.recipe, one, corpus, split, progress)
                trials.append(Trial(run.recipe, [run], [evaluation], evaluation))
            _check_same_pieces(trials)
            say = [_HAD_A_SAY] if split == "validation" else []
            return Comparison(_report(_ranked(trials), corpus, split, path, left_out=say))


_HAD_A_SAY = "This is validation text, which had a say in runs that chose weights or settings by it."


def _named(runs: list[Run]) -> list[Run]:
    """Call each run in the table by as many parts of its path as tell it from the others."""
    parts = [run.path.resolve().parts for run in runs]
    depth = next(n for n in range(1, 1000) if len({part[-n:] for part in parts}) == len(parts))
    for run, part in zip(runs, parts, strict=True):
        run.recipe = replace(run.recipe, name="/".join(part[-depth:]))
    return runs


def _check_one_text(runs: Sequence[Run], texts: Sequence[tuple[Corpus, str]], data: Data) -> None:
    """Refuse runs that would be scored on different texts, or on text that one of them was trained on."""
    other = "Name a text that none of them was trained on: --data FILE"
    sums = [(corpus.sha256(split), split) for corpus, split in texts]
    for run, one in zip(runs, sums, strict=True):
        if one != sums[0]:
            how = f"held out another text than {runs[0].path}" if data is None else "reads the text in other pieces"
            keys = _unlike(runs[0].recipe, run.recipe)
            reason = f" ({', '.join(keys)})" if keys else ""
            raise InputError(f"{run.path} {how}{reason}, so that their figures cannot be compared. {other}")
    for run, (corpus, split) in zip(runs, texts, strict=True):
        found = leak(trained_runs(run.path, run.recipe, own=data is None), corpus, split)
        if found:
            share, of = found["leak"]["share"], found["leak"]["of"]
            raise InputError(
                f"{100 * share:.0f} % {of} stood in the training data of {found['leak']['run']}, so that it has an "
                f"advantage. {other}"
            )


def _check_one_metric(runs: Sequence[Run], metrics: Sequence[str]) -> None:
    """Refuse runs that rank by different figures."""
    for run, metric in zip(runs, metrics, strict=True):
        if metric != metrics[0]:
            raise InputError(
                f"{runs[0].path} is ranked by data.metric={metrics[0]}, {run.path} by {metric}. Say one for all: "
                f"data.metric={metrics[0]}"
            )


def _unlike(one: Recipe, other: Recipe) -> list[str]:
    """List the settings by which two recipes read their data in different ways."""
    return [f"data.{key}: {value}, {theirs}" for key, value, theirs in _data_pairs(one, other) if value != theirs]


def _check_same_pieces(trials: Sequence[Trial]) -> None:
    """Refuse runs of which one was scored on less of the text than another (train.validate_tokens)."""
    amounts = {trial.recipe.task.amount(trial.evaluation) for trial in trials}
    if len(amounts) > 1:
        raise InputError(
            f"The runs score different amounts of the validation text: {', '.join(sorted(amounts))} "
            "(train.validate_tokens). Name a text that none of them was trained on: --data FILE"
        )


def task_of(data: Any, names: Sequence[str], trust: bool = False) -> TaskName:
    """Return the task of the first model, or guess it from the data."""
    if names and is_run(run := named_settings(names[0])[0]):
        return task_of_kind(from_run(run, _guessed(data), (), trust).kind)
    if names:
        first = _expand(named_settings(names[0])[0])[0]
        kind = kind_of(first)
        return load_recipe(first, trust=trust).task.name if kind.endswith(".py") else task_of_kind(kind)
    return tasks.of_shape(_guessed(data).name)


def _guessed(data: Any) -> Shape:
    return guess_shape(data) if isinstance(data, str) else guess_rows(data)

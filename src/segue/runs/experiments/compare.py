"""Many models, one budget, one table: who wins, by how much, and whether by more than chance.

Every model gets the same splits of the same data and the same budget; no settings are searched for any
of them. A trial is one model with all its seeds and folds. The figures of a trial are made of the pieces
of the test text (blocks or sentences), folds end to end and seeds averaged, so that two trials can be
compared piece by piece.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from segue.runs import folder as files
from segue.data.corpus import Corpus
from segue.data.sources import guess_shape
from segue.errors import InputError
from segue.inference import metrics
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES, SHARES, Evaluation, main_figure
from segue.inference.evaluation import compare as compare_two
from segue.inference.statistics import FEWEST, bootstrap, corpus_bootstrap, share_interval
from segue.runs.run import Run
from segue.look.page.markup import short_count
from segue.look.page.report import write
from segue.models import model_class
from segue.models.base import Task
from segue.runs.gather import entry_of, page_of, passage_of
from segue.recipe import TASKS, Recipe, load_recipe, recipe_names
from segue.runs.train import train
from segue.training.log import Progress, silent

LADDERS: dict[Task, tuple[str, ...]] = {
    "lm": (
        "ngram/unigram",
        "ngram/bigram",
        "ngram/trigram",
        "ngram/kn7",
        "neural_lm",
        "rnn_lm/elman",
        "rnn_lm/gru",
        "rnn_lm/lstm",
        "gpt/rotary",
    ),
    "classify": (
        "naive_bayes",
        "nbsvm",
        "ngram_bag",
        "bow",
        "cbow",
        "deep_cbow",
        "dan",
        "cnn_classifier",
        "rnn_classifier",
    ),
    "tag": ("window_tagger/one", "window_tagger", "cnn_tagger/words", "rnn_tagger/words", "cnn_tagger", "rnn_tagger"),
    "seq2seq": ("rnn_seq2seq/elman", "rnn_seq2seq", "rnn_seq2seq/every"),
    "embed": ("word2vec/next", "word2vec/cbow", "word2vec"),
}
"""The models that tell the story of the field, for each task."""


A_POINT = 0.01
"""Accuracy that few would pay for with a model that takes much longer."""
A_TWENTIETH = 0.05
"""The same of the error of numbers, as a share of it."""
FEW_PIECES = 20
"""With fewer independent pieces of test text, intervals and p are rough, and the page says so."""
UNTESTED = "–"
"""Whether two models differ, where there are too few pieces for any difference to show."""


@dataclass(frozen=True)
class Trial:
    """One model of a comparison, with all its seeds and folds."""

    recipe: Recipe
    runs: list[Run]
    """The run of every seed and fold; the first is the one that is shown."""
    evaluation: Evaluation
    """Over all folds, seeds averaged."""
    by_seed: list[float]
    """The main figure of each seed."""
    differs: str = ""
    """Whether it differs from the next one beyond chance: "yes (p < 0.001)", "no (p = 0.550)" or UNTESTED."""


def compare(
    data: str,
    names: Sequence[str] = (),
    budget: str = "60s",
    seeds: int = 1,
    folds: int = 0,
    out: Path | None = None,
    task: Task | None = None,
    overrides: Sequence[str] = (),
    progress: Progress = silent,
    trust: bool = False,
) -> dict[str, Any]:
    """Trains every model under the same budget, writes the page, and returns its rows, best first."""
    task = task or task_of(data, names, trust)
    ladder, left_out = (names, []) if names else _ladder(task, overrides)
    recipes = _recipes(ladder, data, budget, folds, overrides, trust)
    called = [recipe.name for recipe in recipes]
    if len(set(called)) < len(called):
        raise InputError(f"Two of the models have the same name: {', '.join(called)}. Give each `name = …` of its own.")
    wrong = [recipe.name for recipe in recipes if recipe.task != task]
    if wrong:
        raise InputError(
            f"{', '.join(wrong)} cannot be compared on {task}: models of one task at a time. Leave it out of --models."
        )
    out = out or files.free_name(f"compare-{_stem(data)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    corpus = Corpus(recipes[0].data, recipes[0].shape, progress)
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
    """The models of a task that learn such labels as the data has, and a sentence on the others, if there are any."""
    given = [word.partition("=")[2] for word in overrides if word.startswith("data.label=")]
    label = given[-1] if given else "class"
    able = [name for name in LADDERS[task] if label in model_class(name.split("/")[0]).labels]
    others = [name for name in LADDERS[task] if name not in able]
    if not able or not others:
        return LADDERS[task], []
    return able, [f"Left out, since they learn one class a row: {', '.join(others)}."]


def _recipes(
    names: Sequence[str], data: str, budget: str, folds: int, overrides: Sequence[str], trust: bool
) -> list[Recipe]:
    expanded = list(dict.fromkeys(found for name in names for found in _expand(name)))
    base: dict[str, Any] = {"data": {"path": data, "validation": 0.05, "test": 0.05}}
    if folds:
        base["data"]["test"] = f"1/{folds}"
    first = [load_recipe(name, overrides, base, trust) for name in expanded]
    for recipe in first if folds else ():
        if recipe.data.fold() is None:
            raise InputError(
                f"--folds {folds} makes the test part itself, but data.test is {recipe.data.test!r}. Leave one out."
            )
    # Text that one model needs in canonical form is canonical for all, or they would not read the same bytes.
    for key in ("canonical", "unit"):
        values = {getattr(recipe.data, key) for recipe in first if recipe.data.canonical}
        if values:
            base["data"][key] = values.pop()
    recipes = [budgeted(load_recipe(name, overrides, base, trust), budget) for name in expanded]
    _check_same_data(recipes)
    return recipes


def _check_same_data(recipes: Sequence[Recipe]) -> None:
    """Figures on other units, splits or columns are figures of another text."""
    first = recipes[0]
    for other in recipes[1:]:
        for key, value in asdict(first.data).items():
            if (theirs := getattr(other.data, key)) != value:
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


def budgeted(recipe: Recipe, budget: str) -> Recipe:
    """The recipe under a budget: 60s and 2min are time, a plain number is steps."""
    units = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
    number = budget.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = budget[len(number) :].strip()
    try:
        amount = float(number)
    except ValueError:
        amount = 0.0
    in_steps = unit in ("", "step", "steps")
    if not 0 < amount < math.inf or not (in_steps or unit in units) or (in_steps and amount != int(amount)):
        raise InputError(
            f"--budget {budget} is not understood. Expected seconds such as 60s, 5min, or steps such as 500."
        )
    if not recipe.train.has("steps"):
        if unit in units and recipe.train.has("seconds"):
            return recipe.with_values("train", seconds=amount * units[unit])
        return recipe  # a model that counts reads its text once, whatever the budget
    if unit in units:
        return recipe.with_values("train", seconds=amount * units[unit], steps=0, epochs=0.0)
    return recipe.with_values("train", steps=int(amount), seconds=0.0, epochs=0.0)


def _trial(recipe: Recipe, out: Path, seeds: int, folds: int, progress: Progress, trust: bool) -> Trial:
    runs: list[Run] = []
    tables: list[list[Any]] = []
    learns = recipe.train.has("seed")
    for seed in range(seeds if learns else 1):
        tables.append([])
        for fold in range(1, (folds or 1) + 1):
            one = recipe.with_values("train", seed=recipe.train.seed + seed) if learns else recipe
            one = one.with_values("data", test=f"{fold}/{folds}") if folds else one
            place = out / (recipe.name.replace("/", "-") + _suffix(seed, fold, seeds, folds))
            tables[-1].append(train(one, place, progress=progress, trust=trust).evaluation)
            runs.append(Run(place, trust=trust))
    evaluations = [_joined(folds_of) for folds_of in tables]
    main = main_figure(evaluations[0].result)
    by_seed = [evaluation.result[main] for evaluation in evaluations if main in evaluation.result]
    return Trial(recipe, runs, mean_of(evaluations), by_seed)


def _suffix(seed: int, fold: int, seeds: int, folds: int) -> str:
    return (f"-seed{seed}" if seeds > 1 else "") + (f"-fold{fold}" if folds else "")


def _joined(folds: list[Evaluation]) -> Evaluation:
    """The folds end to end, as one evaluation."""
    if len(folds) == 1:
        return folds[0]
    sums = {
        name: np.sum([fold.result.get(name, 0) for fold in folds], 0).tolist()
        for name in _SUMMED
        if any(name in fold.result for fold in folds)
    }
    # A fold weighs as much as there is in it: bytes, words or rows.
    weights = [len(f.statistics) if f.task == "seq2seq" else f.statistics[:, 1].sum() for f in folds]
    result = folds[0].result | sums | _averages(folds, weights)
    statistics = np.concatenate([fold.statistics for fold in folds])
    return _figures(Evaluation(result, statistics, [e for fold in folds for e in fold.examples]))


def mean_of(seeds: list[Evaluation]) -> Evaluation:
    """The mean over seeds; what has none (confusions, examples) is that of the first."""
    if len(seeds) == 1:
        return seeds[0]
    result = seeds[0].result | _averages(seeds, [1.0] * len(seeds))
    return _figures(replace(seeds[0], result=result, statistics=np.mean([e.statistics for e in seeds], 0)))


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
    """The main figure and its interval, made anew from the pieces; tokens that lose text have none."""
    main, table = main_figure(evaluation.result), evaluation.statistics
    if main not in evaluation.result:
        return evaluation
    if sums := evaluation.result.get("calibration"):
        evaluation.result["calibration_error"] = metrics.calibration_error(sums)
    if evaluation.task == "seq2seq":
        value = float(metrics.bleu_of_sums(table.sum(0)[None])[0])
        interval = corpus_bootstrap(table, metrics.bleu_of_sums)
    else:
        value = float(table[:, 0].sum() / table[:, 1].sum())
        interval = (share_interval if main in SHARES else bootstrap)(table[:, 0], table[:, 1])
    return replace(evaluation, result=evaluation.result | {main: value, f"{main}_ci": list(interval)})


def _ranked(trials: list[Trial]) -> list[Trial]:
    """Best first, each with a word on whether the next one differs."""
    main = main_figure(trials[0].evaluation.result)
    sign = 1 if main in LOWER_IS_BETTER else -1
    trials = sorted(trials, key=lambda trial: sign * trial.evaluation.result.get(main, float("inf")))
    ranked = []
    for trial, after in zip(trials, [*trials[1:], None], strict=True):
        ranked.append(replace(trial, differs=_differs(trial, after) if after else ""))
    return ranked


def _differs(trial: Trial, after: Trial) -> str:
    if main_figure(after.evaluation.result) not in after.evaluation.result:
        return ""  # of two such, neither has a figure; they come last
    if len(trial.evaluation.statistics) < FEWEST:
        return UNTESTED
    paired = compare_two(trial.evaluation, after.evaluation)
    p = "p < 0.001" if paired.p < 0.001 else f"p = {paired.p:.3f}"
    return f"{'yes' if paired.p < 0.05 else 'no'} ({p})"


def _report(
    trials: list[Trial], corpus: Corpus, out: Path, budget: str, seeds: int, left_out: list[str]
) -> dict[str, Any]:
    task = trials[0].recipe.task
    passage = passage_of(corpus, "test") if task == "lm" else None
    results = [files.read_json(trial.runs[0].path / "result.json") for trial in trials]
    entries = [
        entry_of(trial.runs[0], trial.evaluation, result, passage, trial.differs)
        for trial, result in zip(trials, results, strict=True)
    ]
    *facts, verdict = _summary(trials, corpus, budget, seeds)
    summary = [*facts, *left_out, *_sooner(results, trials), verdict]
    title = f"{_stem(corpus.config.path)}: {len(trials)} models compared"
    write(page_of(title, summary, entries, passage, trials[0].evaluation), out / "report.html")
    rows = [_row(trial, result) for trial, result in zip(trials, results, strict=True)]
    result = {
        "report": str(out / "report.html"),
        "task": task,
        "figure": main_figure(trials[0].evaluation.result),
        "best_possible": trials[0].evaluation.result.get("best_possible"),
        "rows": rows,
        "left_out": left_out,
        "verdict": verdict,
    }
    files.write_json(out / "result.json", result)
    return result


_BESIDE = ("perplexity", "micro_f1", "macro_f1", "span_f1", "chrf", "calibration_error")


def _sooner(results: Sequence[dict[str, Any]], trials: Sequence[Trial]) -> list[str]:
    """A sentence on the models that did not take all of their time."""
    pairs = zip(results, trials, strict=True)
    names = [trial.recipe.name for result, trial in pairs if result.get("stopped_early")]
    return [f"Stopped before its time, as validation got no better: {', '.join(names)}."] if names else []


def _row(trial: Trial, result: dict[str, Any]) -> dict[str, Any]:
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
        "differs_from_next": trial.differs,
        **extra,
        "spelling_bits_per_byte": figures.get("spelling_bits_per_byte"),
        "parameters": result["parameters"],
        "train_seconds": result["train_seconds"],
        "steps": result["steps"],
        "tokens_per_second": result["tokens_per_second"],
        "run": str(trial.runs[0].path),
    }


def _summary(trials: list[Trial], corpus: Corpus, budget: str, seeds: int) -> list[str]:
    task, figures = trials[0].recipe.task, trials[0].evaluation.result
    main = main_figure(figures)
    held = {
        "lm": f"{figures.get('bytes', 0):,} bytes",
        "embed": f"{figures.get('places', 0):,} places of text",
    }.get(task, f"{len(trials[0].evaluation.statistics):,} rows")
    machine = files.read_json(trials[-1].runs[0].path / "environment.json")
    sentences = [
        f"{len(trials)} models of {_stem(corpus.config.path)}, each with a budget of {budget}, one setting each.",
        f"Scored on {held} held out{', read as ' + figures['way'] if task == 'lm' else ''}.",
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['versions']['python']}.",
    ]
    pieces = len(trials[0].evaluation.statistics)
    if pieces < FEW_PIECES and trials[0].differs != UNTESTED:
        sentences.append(f"There are few {_pieces(task)} ({pieces}): small differences do not show.")
    if seeds > 1:
        sentences.append(f"Means over {seeds} seeds.")
    return [*sentences, _verdict(trials, NAMES.get(main, main))]


def _verdict(trials: list[Trial], figure: str) -> str:
    best = trials[0]
    value = best.evaluation.result.get(main_figure(best.evaluation.result))
    if value is None:
        lossy = f"{best.runs[0].tokenizer.kind} tokens lose a part of the text"
        why = lossy if "perplexity" in best.evaluation.result else "scores are no probabilities"
        return f"None of these has {figure}: {why}."
    shown = f"{best.recipe.name} is best, with {value:.3f} {figure}"
    if not best.differs:
        return f"{shown}."
    after = trials[1].recipe.name
    if best.differs == UNTESTED:
        return f"{shown}, but {_too_short(best, after)}"
    clear = (
        f"ahead of {after} by more than chance"
        if best.differs.startswith("yes")
        else f"but not surely better than {after}"
    )
    use = f": {_advice(trials)}" if best.recipe.task in ("classify", "tag", "embed") else ""
    return f"{shown}, {clear} {best.differs.partition(' ')[2]}{use}."


def _too_short(best: Trial, after: str) -> str:
    """That nothing can be told of the difference, and what to do."""
    task, share = best.recipe.task, best.recipe.data.test
    few = "text is too short" if task == "lm" else f"{_pieces(task)} are too few"
    have = f"{len(best.evaluation.statistics)} of the {FEWEST} {_pieces(task)} that a test takes"
    larger = f", or hold out a larger share of it (data.test is {share:g})" if isinstance(share, float) else ""
    what = "text" if task in ("lm", "embed") else "data"
    return f"the held-out {few} to tell whether it is better than {after} ({have}). Give more {what}{larger}."


def _pieces(task: Task) -> str:
    """What the held-out data is cut into to be tested."""
    return {"lm": "blocks of 2,048 bytes", "embed": "texts"}.get(task, "rows")


def _advice(trials: list[Trial]) -> str:
    """Which to use: of those that are neither surely worse than the best nor by more than a point (of numbers: than a
    twentieth of its error), the one that was trained soonest; of several that took about as long, the smallest."""
    best, *others = trials
    main = main_figure(best.evaluation.result)
    lower = main in LOWER_IS_BETTER

    def figure(trial: Trial) -> float:
        return float(trial.evaluation.result.get(main, math.inf if lower else -math.inf))

    near = A_TWENTIETH * figure(best) if lower else A_POINT
    alike = [
        trial
        for trial in others
        if abs(figure(best) - figure(trial)) <= near and compare_two(best.evaluation, trial.evaluation).p >= 0.05
    ]
    costs = {id(trial): _cost(trial) for trial in [best, *alike]}
    soon = max(0.5, 1.5 * min(seconds for seconds, _ in costs.values()))
    chosen = min(
        (trial for trial in [best, *alike] if costs[id(trial)][0] <= soon), key=lambda trial: costs[id(trial)][1]
    )
    (seconds, parameters), (slower, more) = costs[id(chosen)], costs[id(best)]
    if chosen is best:
        return f"use {best.recipe.name} (trained in {seconds:,.1f} s, {short_count(parameters)} parameters)"
    within = "5 %" if lower else "a point"
    return (
        f"use {chosen.recipe.name}, as good within {within} ({figure(chosen):.3f}) and trained in {seconds:,.1f} s "
        f"rather than {slower:,.1f} s, with {short_count(parameters)} parameters rather than {short_count(more)}"
    )


def _cost(trial: Trial) -> tuple[float, int]:
    """Seconds of training, and parameters."""
    result = files.read_json(trial.runs[0].path / "result.json")
    return float(result["train_seconds"]), int(result["parameters"])


def task_of(data: str, names: Sequence[str], trust: bool = False) -> Task:
    """The task of the first model, or the one that the data speaks of."""
    if names:
        return load_recipe(_expand(names[0])[0], trust=trust).task
    return TASKS[guess_shape(data).name]


def _stem(data: str) -> str:
    return re.sub("[+:]+", "-", Path(data.split(",")[0]).name.split(".")[0]) or "text"

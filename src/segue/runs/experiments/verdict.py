"""The verdict of a comparison in words: which model is best, whether by more than chance, and which to use."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from segue.data.corpus import Corpus
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES, Evaluation, main_figure
from segue.inference.evaluation import compare as compare_two
from segue.inference.statistics import FEWEST
from segue.look.page.markup import short_count
from segue.recipe import Recipe
from segue.runs import folder as files
from segue.runs.run import Run

A_POINT = 0.01
"""A difference in accuracy that is not worth a model that takes much longer to train."""
A_TWENTIETH = 0.05
"""The same for models of numbers, as a share of the error."""
FEW_PIECES = 20
"""With fewer independent pieces of test text, intervals and p are rough, and the page says so."""
UNTESTED = "–"
"""The answer to whether two models differ, if there are too few pieces for any test."""


@dataclass(frozen=True)
class Trial:
    """One model of a comparison, with all its seeds and folds."""

    recipe: Recipe
    runs: list[Run]
    """The run of every seed and fold; the page shows the first."""
    evaluation: Evaluation
    """The evaluation over all folds, averaged over seeds."""
    by_seed: list[float]
    """The main figure of each seed."""
    differs: str = ""
    """Whether it differs from the next one beyond chance: "yes (p < 0.001)", "no (p = 0.550)" or UNTESTED."""


def summary(trials: list[Trial], corpus: Corpus, budget: str, seeds: int) -> list[str]:
    task, figures = trials[0].recipe.task, trials[0].evaluation.result
    main = main_figure(figures)
    held_out = task.amount(trials[0].evaluation)
    machine = files.read_json(trials[-1].runs[0].path / "environment.json")
    sentences = [
        f"{len(trials)} models of {stem(corpus.config.path)}, each with a budget of {budget}, one setting each.",
        f"Scored on {held_out} held out{', read as ' + figures['way'] if task.spells else ''}.",
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['versions']['python']}.",
    ]
    pieces = len(trials[0].evaluation.pieces_NK)
    if pieces < FEW_PIECES and trials[0].differs != UNTESTED:
        sentences.append(f"There are few {task.pieces} ({pieces}): small differences do not show.")
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
    use = f": {_advice(trials)}" if best.recipe.task.decides else ""
    return f"{shown}, {clear} {best.differs.partition(' ')[2]}{use}."


def _too_short(best: Trial, after: str) -> str:
    """Say that the data are too few for a test, and what to do."""
    task, share = best.recipe.task, best.recipe.data.test
    few = "text is too short" if task.spells else f"{task.pieces} are too few"
    have = f"{len(best.evaluation.pieces_NK)} of the {FEWEST} {task.pieces} that a test takes"
    larger = f", or hold out a larger share of it (data.test is {share:g})" if isinstance(share, float) else ""
    what = "text" if task.shape.running else "data"
    return f"the held-out {few} to tell whether it is better than {after} ({have}). Give more {what}{larger}."


def _advice(trials: list[Trial]) -> str:
    """Recommend a model: among those not significantly worse than the best, and by at most a point (for numbers: a
    twentieth of its error), the one that trained fastest; if several took about as long, the smallest."""
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
    """Return the seconds of training and the number of parameters."""
    result = files.read_json(trial.runs[0].path / "result.json")
    return float(result["train_seconds"]), int(result["parameters"])


def stem(data: str) -> str:
    """Return the name of the data for the page."""
    return re.sub("[+:]+", "-", Path(data.split(",")[0]).name.split(".")[0]) or "text"

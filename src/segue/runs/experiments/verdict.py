"""The verdict of a comparison in words: which model is best, whether by more than chance, and which to use.

Two questions are kept apart. With one seed: do these two trained runs differ on text like this? Another seed may turn
it round. With several seeds, or where training has no chance in it (counting): is this kind of model better?
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.data.corpus import Corpus
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES, Evaluation, main_figure
from segue.inference.evaluation import compare as compare_two
from segue.inference.score import BLOCK
from segue.inference.statistics import FEWEST, Paired, needed
from segue.look.page.markup import figure as written
from segue.look.page.markup import short_count
from segue.recipe import Recipe
from segue.runs import folder as files
from segue.runs.run import Run

A_POINT = 0.01
"""A difference in accuracy that is not worth a model that takes much longer to train."""
A_TWENTIETH = 0.05
"""The same for models of numbers, as a share of the error."""
A_MOMENT = 0.5
"""Seconds of training by which two models may differ from one time to the next."""
UNTESTED = "–"
"""The answer to whether two models differ, if there are too few pieces for any test."""
THIS_RUN, BETTER = "this run", "better than next"
"""The two questions, as the table's column names them: do these two runs differ, or is the model better?"""


@dataclass(frozen=True)
class Trial:
    """One model of a comparison, with all its seeds and folds."""

    recipe: Recipe
    runs: list[Run]
    """The run of every seed and fold; the page shows the first."""
    evaluations: list[Evaluation]
    """The evaluation of each seed, over all folds."""
    evaluation: Evaluation
    """Their mean."""
    paired: Paired | None = None
    """The test of the difference from the next one; None for the last and where one of them has no figure."""

    @property
    def by_seed(self) -> list[float]:
        """The main figure of each seed."""
        main = main_figure(self.evaluation.result)
        return [evaluation.result[main] for evaluation in self.evaluations if main in evaluation.result]

    @property
    def with_chance(self) -> bool:
        """Whether another seed could change the figure, and no other seed was tried."""
        return self.recipe.train.has("seed") and len(self.evaluations) == 1

    @property
    def differs(self) -> str:
        """Whether it differs from the next one by more than chance: "yes (p < 0.001)", "no (p = 0.550)", UNTESTED or
        empty."""
        if self.paired is None:
            return ""
        if len(self.evaluation.pieces_NK) < FEWEST:
            return UNTESTED
        return f"{'yes' if self.paired.p < 0.05 else 'no'} ({shown_p(self.paired.p)})"


def shown_p(p: float) -> str:
    """Return a p-value as people write it."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def question(trials: Sequence[Trial]) -> str:
    """Return which question the tests of these trials answer."""
    return THIS_RUN if any(trial.with_chance for trial in trials) else BETTER


def summary(trials: list[Trial], corpus: Corpus, budget: str, seeds: int) -> list[str]:
    """Say what was compared and how, and the verdict last. `budget` is empty for runs that were trained before."""
    task, figures = trials[0].recipe.task, trials[0].evaluation.result
    main = main_figure(figures)
    held_out = task.amount(trials[0].evaluation)
    machine = files.read_json(trials[-1].runs[0].path / "environment.json")
    name = stem(corpus.config.path)
    sentences = [
        f"{len(trials)} models of {name}, each with a budget of {budget}, one setting each."
        if budget
        else f"{len(trials)} runs that were trained before, compared on {name}.",
        f"Scored on {held_out} held out{', read as ' + figures['way'] if task.spells else ''}.",
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['versions']['python']}.",
    ]
    if seeds > 1:
        sentences.append(f"Means over {seeds} seeds; p holds the chance of the text and of training.")
    elif question(trials) == THIS_RUN:
        sentences.append("One seed each: p holds the chance of the text, not of training.")
    return [*sentences, _verdict(trials, NAMES.get(main, main))]


def _verdict(trials: list[Trial], figure: str) -> str:
    best = trials[0]
    value = best.evaluation.result.get(main_figure(best.evaluation.result))
    if value is None:
        lossy = f"{best.runs[0].tokenizer.kind} tokens lose a part of the text"
        why = lossy if "perplexity" in best.evaluation.result else "scores are no probabilities"
        return f"None of these has {figure}: {why}."
    if not best.differs:
        return f"{best.recipe.name} is best, with {written(value, figure)} {figure}."
    shown = f"{best.recipe.name} {'comes first' if question(trials[:2]) == THIS_RUN else 'is best'}"
    shown = f"{shown}, with {written(value, figure)} {figure}"
    if best.differs == UNTESTED:
        return f"{shown}, but {_too_short(best, trials[1].recipe.name)}"
    use = f" {_advice(trials)}." if best.recipe.task.decides else ""
    return f"{shown}{_clear(best, trials[1])}.{use}"


def _clear(best: Trial, after: Trial) -> str:
    """Say whether the first is ahead of the second by more than chance, and of which chance."""
    assert best.paired is not None
    sure, name, task = best.paired.p < 0.05, after.recipe.name, best.recipe.task
    where = "this text" if task.shape.running else f"these {task.pieces}"
    if question([best, after]) == THIS_RUN:
        if sure:
            return (
                f": these two runs, {best.recipe.name} and {name}, differ on {where} "
                f"({shown_p(best.paired.p)}); another seed may turn it round (--seeds 3 tells)"
            )
        return f", but it and {name} do not differ on {where} by more than chance ({_more(best)})"
    seeds = max(len(best.evaluations), len(after.evaluations))
    if sure:
        counted = f"{seeds} seeds" if seeds > 1 else "no chance in training"
        return f", better than {name} by more than chance ({shown_p(best.paired.p)}, {counted})"
    why = f"{shown_p(best.paired.p)}, {seeds} seeds" if seeds > 1 else _more(best)
    return f", but not better than {name} by more than chance ({why})"


def _more(best: Trial) -> str:
    """Return p and, where it is not hopeless, how much data would show a difference as large as this one."""
    assert best.paired is not None
    pieces = len(best.evaluation.pieces_NK)
    more = needed(pieces, best.paired)
    hopeful = best.paired.difference and more < 100 * pieces
    would = f"; {_amount(best, more)} held out would show such a difference" if hopeful else ""
    return f"{shown_p(best.paired.p)}{would}"


def _amount(trial: Trial, pieces: int) -> str:
    """Say how much data so many pieces are: bytes of text, or rows."""
    task = trial.recipe.task
    if not task.spells:
        return f"about {pieces:,} {task.pieces}"
    each = BLOCK if trial.evaluation.ordered else float(trial.evaluation.pieces_NK[:, 1].mean())
    return f"about {short_count(round(pieces * each))} bytes"


def _too_short(best: Trial, after: str) -> str:
    """Say that the data are too few for a test, and what to do."""
    task, share = best.recipe.task, best.recipe.data.test
    few = "text is too short" if task.spells else f"{task.pieces} are too few"
    would = f" or {_amount(best, FEWEST).removeprefix('about ')}" if task.spells else ""
    have = f"{len(best.evaluation.pieces_NK)} of the {FEWEST} {task.pieces}{would} that a test takes"
    larger = f", or hold out a larger share of it (data.test is {share:g})" if isinstance(share, float) else ""
    what = "text" if task.shape.running else "data"
    return f"the held-out {few} to tell whether it is better than {after} ({have}). Give more {what}{larger}."


def _advice(trials: list[Trial]) -> str:
    """Recommend a model: the best, or one that is cheaper and not significantly worse, by at most a point (for numbers:
    a twentieth of its error). Of several that train about as fast, the smallest."""
    best, *others = trials
    main = main_figure(best.evaluation.result)
    lower = main in LOWER_IS_BETTER

    def figure(trial: Trial) -> float:
        return float(trial.evaluation.result.get(main, math.inf if lower else -math.inf))

    near = A_TWENTIETH * figure(best) if lower else A_POINT
    alike = [
        trial
        for trial in others
        if abs(figure(best) - figure(trial)) <= near
        and _cheaper(_cost(trial), _cost(best), figure(trial) == figure(best))
        and compare_two(best.evaluations, trial.evaluations).p >= 0.05
    ]
    costs = {id(trial): _cost(trial) for trial in [best, *alike]}
    soon = max(A_MOMENT, 1.5 * min(seconds for seconds, _ in costs.values()))
    chosen = min(
        (trial for trial in [best, *alike] if costs[id(trial)][0] <= soon), key=lambda trial: costs[id(trial)][1]
    )
    (seconds, parameters), (slower, more) = costs[id(chosen)], costs[id(best)]
    before = ", pre-training counted" if any(map(_pretraining, (best, chosen))) else ""
    if chosen is best:
        return f"Use {best.recipe.name} (trained in {seconds:,.1f} s{before}, {short_count(parameters)} parameters)"
    within = f"{'5 %' if lower else 'a point'} ({written(figure(chosen), NAMES.get(main, main))})"
    return (
        f"Use {chosen.recipe.name}, as good within {within} and trained in {seconds:,.1f} s rather than "
        f"{slower:,.1f} s{before}, with {short_count(parameters)} parameters rather than {short_count(more)}"
    )


def _cheaper(cost: tuple[float, int], best: tuple[float, int], as_good: bool) -> bool:
    """Whether a model is worth using instead of the best: it trains clearly faster; or it is smaller and trains as fast
    within the noise of timing, and is not both worse and slower."""
    (seconds, parameters), (slower, more) = cost, best
    if seconds < slower / 1.5 and seconds < slower - A_MOMENT:
        return True
    as_fast = seconds <= max(1.5 * slower, slower + A_MOMENT) if as_good else seconds <= slower
    return as_fast and parameters < more


def _cost(trial: Trial) -> tuple[float, int]:
    """Return the seconds of training, with those of the runs that it began from, and the number of parameters."""
    result = files.read_json(trial.runs[0].path / "result.json")
    return float(result["train_seconds"]) + _pretraining(trial), int(result["parameters"])


def _pretraining(trial: Trial) -> float:
    """Return the seconds that the run which it began from had been trained, as far as they are known."""
    found = files.read_json(trial.runs[0].path / "result.json").get("pretrained") or {}
    return float(found.get("seconds") or 0.0)


def stem(data: str) -> str:
    """Return the name of the data for the page."""
    return re.sub("[+:]+", "-", Path(data.split(",")[0]).name.split(".")[0]) or "text"

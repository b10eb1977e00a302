"""How results and runs show themselves in Python: printed, the command line's table; in a notebook, HTML.

print(run.evaluate())          the table of `segue evaluate`
run.history                    in a notebook: the learning curve
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from segue.errors import SegueError
from segue.inference.evaluation import NAMES, main_figure
from segue.look import terminal
from segue.look.page.curves import Learnt, learning_curves
from segue.look.page.markup import figure, percent, short_count, text
from segue.look.page.report import framed

if TYPE_CHECKING:
    from segue.runs.run import Run

Answer = TypeVar("Answer")
_SAMPLE = 60
"""Tokens of the sample that a notebook shows."""


class Figures(dict[str, Any]):
    """The figures of an evaluation. It is a dict; printed, it is the table that the command line prints."""

    _print: Callable[[dict[str, Any]], None] = staticmethod(terminal.print_figures)

    def __repr__(self) -> str:
        return printed(self._print, self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows: the same figures and sentences as the command line."""
        rows, sentences = terminal.figures_told(self)
        title = f"<p><b>{text(terminal.scored_text(self))}</b></p>" if "run" in self else ""
        heads = ["", "adapted", "static", ""] if "static" in self else []
        said = "".join(f"<br>{text(sentence)}" for sentence in sentences).removeprefix("<br>")
        return f"{title}{_table(heads, rows)}<p>{said}</p>{_confusion(self)}{_types(self)}"


class Comparison(Figures):
    """What `segue compare` found: a dict with the table's rows, the verdict, and where the page is."""

    _print = staticmethod(terminal.print_comparison)

    def _repr_html_(self) -> str:
        main, column = self["figure"], self["column"]
        heads = ["model", "tokens", NAMES.get(main, main), "95 % interval", column, "parameters", "seconds"]
        rows = [
            (
                row["model"],
                row["tokens"],
                figure(row[main], NAMES.get(main, main)),
                _interval(row[f"{main}_ci"], NAMES.get(main, main)),
                row[column.replace(" ", "_")],
                short_count(row["parameters"]),
                f"{row['train_seconds']:.1f}",
            )
            for row in self["rows"]
        ]
        return f"{_table(heads, rows)}<p>{text(self['verdict'])}</p>{_link(self['report'])}"


class ClaimResult(Figures):
    """What `segue claim` found: a dict with the table's rows, the verdict, and where the page and the picture are."""

    _print = staticmethod(terminal.print_claim)

    def _repr_html_(self) -> str:
        shown = terminal.claim_table(self)
        return f"<p>{text(self['says'])}</p>{_table(shown['head'], shown['rows'])}<p>{text(self['verdict'])}</p>" + (
            _link(self["report"])
        )


class SuiteResult(Figures):
    """What `segue suite` found: a dict with a row a task, the means, and where the page is."""

    _print = staticmethod(terminal.print_suite)

    def _repr_html_(self) -> str:
        shown = terminal.suite_table(self)
        said = "".join(f"<p>{text(line)}</p>" for line in terminal.suite_means(self))
        return f"<p>{text(self['says'])}</p>{_table(shown['head'], shown['rows'])}{said}{_link(self['report'])}"


class Challenge(Figures):
    """What `segue challenge` found: a dict with a row a kind of sentence, and the verdict."""

    _print = staticmethod(terminal.print_challenge)

    def _repr_html_(self) -> str:
        rows = [(row["kind"], str(row["right"]), str(row["sentences"])) for row in self["kinds"]]
        return f"{_table(['sentences', 'right', 'of'], rows)}<p>{text(self['verdict'])}</p>"


class Answers(Iterator[Answer]):
    """The answers of `predict` or `score`, each made when it is asked for."""

    def __init__(self, answers: Iterator[Answer]) -> None:
        self._answers = answers

    def __next__(self) -> Answer:
        return next(self._answers)

    def __repr__(self) -> str:
        return "<answers, each made when it is asked for: list(…) has all of them, next(…) the first>"


class History(list[dict[str, Any]]):
    """The records of a training run, as in metrics.jsonl; in a notebook it shows the learning curve."""

    def __init__(self, records: Iterable[dict[str, Any]] = (), run: Run | None = None) -> None:
        super().__init__(records)
        self.run = run

    def __repr__(self) -> str:
        validated = sum(record.get("kind") == "validation" for record in self)
        return f"{len(self)} records, {validated} of them validations"

    def _repr_html_(self) -> str:
        curve = learning_curve(self.run) if self.run is not None else ""
        return curve or f"<p>{text(repr(self))}</p>"


def learning_curve(run: Run) -> str:
    """Draw the learning curve of the run's page; a model that counts has none."""
    from segue.runs.gather import curves_of  # which imports this file

    result = run.result
    curve, loss = curves_of(run, result, result)
    metric = NAMES.get(main_figure(result), "") if "figure" in result else "loss"
    learnt = Learnt(run.recipe.name, 0, curve, loss)
    drawn = learning_curves([learnt], metric, result.get("best_possible"), result.get("split", "validation"))
    return framed(drawn, 960 if loss else 500) if drawn else ""


def described(run: Run) -> str:
    """Describe a run in one line: where it is, what it is, and its figure."""
    said = [f"Run('{run.path}'): {run.recipe.name}"]
    result = run.result
    if "parameters" in result:
        said.append(f"{short_count(result['parameters'])} parameters")
    if "figure" in result and result.get(main_figure(result)) is not None:
        main = main_figure(result)
        name = NAMES.get(main, main)
        said.append(f"{name} {figure(result[main], name)} on the {result.get('split', 'held-out')} text")
    return ", ".join(said)


def card(run: Run) -> str:
    """Show a run in a notebook: its figures, its learning curve, and for a language model what it writes."""
    parts = [f"<p><b>{text(described(run))}</b></p>", run.result._repr_html_(), learning_curve(run)]
    if "generate" in run.task.verbs:
        with contextlib.suppress(SegueError):  # without smoothing, a model may have nothing to say
            parts.append(f"<pre>{text(run.written([''], max_tokens=_SAMPLE, seed=0)[0][0])}</pre>")
    if run.report is not None:
        parts.append(_link(run.report))
    return "".join(parts)


def printed(show: Callable[..., None], *what: Any) -> str:
    """Return what a function prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show(*what)
    return out.getvalue().rstrip("\n")


def _confusion(result: dict[str, Any]) -> str:
    """How often each label was taken for each other, where there are few."""
    labels = result.get("labels", [])
    if not 0 < len(labels) <= 12:
        return ""
    rows = [[label, *(f"{count:,}" for count in row)] for label, row in zip(labels, result["confusion"], strict=True)]
    return f"<p>Rows are the true labels, columns what was predicted:</p>{_table(['', *labels], rows)}"


def _types(result: dict[str, Any]) -> str:
    """Precision, recall and F1 of each type of span."""
    if "by_type" not in result:
        return ""
    shares = ("precision", "recall", "f1")
    rows = [[one["type"], *(percent(one[share]) for share in shares), f"{one['true']:,}"] for one in result["by_type"]]
    return _table(["type", "precision", "recall", "F1", "spans"], rows)


def _interval(pair: Sequence[float | None] | None, metric: str) -> str:
    if not pair or any(end is None or not math.isfinite(end) for end in pair):
        return ""
    return " to ".join(figure(end, metric) for end in pair)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = f"<thead><tr>{''.join(f'<th>{text(cell)}</th>' for cell in heads)}</tr></thead>" if heads else ""
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _link(page: str | Path) -> str:
    return f'<p><a href="{text(os.path.relpath(page))}">the page</a></p>'

"""How results and runs show themselves in Python: printed, the command line's table; in a notebook, HTML.

print(run.evaluate())          the table of `segue evaluate`
run.history                    in a notebook: the learning curve
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from segue.errors import SegueError
from segue.inference.evaluation import HIDDEN_ZEROS, MEANINGS, NAMES, main_figure
from segue.look import terminal
from segue.look.inside.view import View
from segue.look.page.markup import figure, short_count, text
from segue.training.log import read_metrics

if TYPE_CHECKING:
    from segue.runs.run import Run

_SAMPLE = 60
"""Tokens of the sample that a notebook shows."""


class Figures(dict[str, Any]):
    """The figures of an evaluation. It is a dict; printed, it is the table that the command line prints."""

    _print: Callable[[dict[str, Any]], None] = staticmethod(terminal.print_figures)

    def __repr__(self) -> str:
        return printed(self._print, self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return _table(["", "value", "95 % interval", ""], _figures(self))


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


class Challenge(Figures):
    """What `segue challenge` found: a dict with a row a kind of sentence, and the verdict."""

    _print = staticmethod(terminal.print_challenge)

    def _repr_html_(self) -> str:
        rows = [(row["kind"], str(row["right"]), str(row["sentences"])) for row in self["kinds"]]
        return f"{_table(['sentences', 'right', 'of'], rows)}<p>{text(self['verdict'])}</p>"


class History(list[dict[str, Any]]):
    """The records of a training run, as in metrics.jsonl; in a notebook it shows the learning curve."""

    def __repr__(self) -> str:
        validated = sum(record.get("kind") == "validation" for record in self)
        return f"{len(self)} records, {validated} of them validations"

    @property
    def curve(self) -> View | None:
        """The loss of training and of validation after each validation; None if there are not two."""
        losses: list[float] = []
        points: list[tuple[int, float, float]] = []
        for record in self:
            loss = record.get("cross_entropy", record.get("loss"))
            if loss is None:
                continue
            if record["kind"] == "train":
                losses.append(loss)
            elif record["kind"] == "validation" and record["step"]:
                points.append((record["step"], float(np.mean(losses)) if losses else math.nan, loss))
                losses = []
        if len(points) < 2:
            return None
        steps, training, validation = zip(*points, strict=True)
        values_PRC = np.array([[training, validation]], np.float64)
        note = "Loss (nats a target) against steps, both axes logarithmic."
        columns = tuple(str(step) for step in steps)
        return View("growth", "Learning curve", note, ("",), ("training", "validation"), columns, values_PRC)

    def _repr_html_(self) -> str:
        curve = self.curve
        return curve._repr_html_() if curve else f"<p>{text(repr(self))}</p>"


def history_of(path: Path) -> History:
    """Read the records of a run."""
    return History(read_metrics(path))


def described(run: Run) -> str:
    """Describe a run in one line: where it is, what it is, and its figure."""
    said = [f"Run('{run.path}'): {run.recipe.name}"]
    result = run.result
    if "parameters" in result:
        said.append(f"{short_count(result['parameters'])} parameters")
    if "figure" in result and result.get(main_figure(result)) is not None:
        main = main_figure(result)
        said.append(
            f"{NAMES.get(main, main)} {figure(result[main], main)} on the {result.get('split', 'held-out')} text"
        )
    return ", ".join(said)


def card(run: Run) -> str:
    """Show a run in a notebook: its figures, its learning curve, and for a language model what it writes."""
    curve = run.history.curve
    parts = [f"<p><b>{text(described(run))}</b></p>", run.result._repr_html_(), curve._repr_html_() if curve else ""]
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


def _figures(result: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(name, value, interval, meaning) of every number in a result that has something to tell."""
    found = []
    for key, value in result.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or (key in HIDDEN_ZEROS and not value):
            continue
        name = NAMES.get(key, key)
        shown = f"{value:,}" if isinstance(value, int) else figure(value, name)
        found.append((name, shown, _interval(result.get(f"{key}_ci"), name), MEANINGS.get(key, "")))
    return found


def _interval(pair: Sequence[float | None] | None, metric: str) -> str:
    if not pair or any(end is None or not math.isfinite(end) for end in pair):
        return ""
    return " to ".join(figure(end, metric) for end in pair)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{text(cell)}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _link(page: str | Path) -> str:
    return f'<p><a href="{text(os.path.relpath(page))}">the page</a></p>'

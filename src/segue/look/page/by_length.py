"""The figure against the length of the source: a curve a model, and the numbers with their intervals in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from segue.look.page.charts import Axes, Line, legend, line_chart
from segue.look.page.markup import figure, is_number, lower_is_better, table, text


@dataclass(frozen=True)
class Part:
    """The figure of the sources of some length."""

    low: float
    high: float
    """Words or seconds of the shortest and of the longest source at the most."""
    mean: float
    """Mean number of words or seconds."""
    rows: int
    value: float
    interval: tuple[float, float]
    unit: str = "words"


@dataclass(frozen=True)
class Lengths:
    """One model: its parts, the shortest sources first."""

    model: str
    colour: int
    parts: Sequence[Part]


def by_length(models: Sequence[Lengths], metric: str) -> str:
    """Draw the curves, and give their numbers."""
    lines = [
        Line(one.model, one.colour, [part.mean for part in one.parts], [part.value for part in one.parts])
        for one in models
    ]
    unit = models[0].parts[0].unit
    axes = Axes(f"{unit} of the source", metric, lower_is_better(metric), from_zero=True, all=True)
    wide, narrow = (line_chart(lines, axes, size) for size in ("wide", "narrow"))
    said = (
        f"{metric[:1].upper()}{metric[1:]} of sources of like length. A model that keeps a long source in one vector "
    )
    said += "loses the most on the long ones; attention reads the source again for every word."
    names = legend(lines, lambda value: figure(value, metric))
    return f'<p class="aside">{text(said)}</p><figure>{wide}{narrow}</figure>{names}{_numbers(models, metric)}'


def _numbers(models: Sequence[Lengths], metric: str) -> str:
    """A row for each range of lengths, a column a model; intervals below the figures."""
    ranges = [[f"{part.low:g}–{part.high:g}", f"{part.rows:,}"] for part in models[0].parts]
    columns = [[_cell(part, metric) for part in one.parts] for one in models]
    rows = [[*first, *cells] for first, *cells in zip(ranges, *columns, strict=True)]
    head = [models[0].parts[0].unit, "rows", *(one.model for one in models)]
    return table(head, rows)


def _cell(part: Part, metric: str) -> str:
    value = figure(part.value, metric)
    if not all(map(is_number, part.interval)):
        return value
    low, high = (figure(bound, metric).removesuffix(" %") for bound in part.interval)
    return f"{value} <small>{low} – {high}</small>"

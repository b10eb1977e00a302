"""A view: numbers with names, drawn in characters, as SVG, as a page, or sent as JSON.

Every view of look/inside returns one, so that the terminal, `--html`, the server and notebooks know one thing alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.output.png import data_uri

Kind = Literal["heat", "table", "lines", "text", "points", "scatter", "growth", "bars", "patches"]
Floats = NDArray[np.float64]


class Picture(NamedTuple):
    """The source itself, if it is no text: the picture, or the spectrogram of the sound."""

    png: bytes
    levels_RC: Floats
    """How dark it is, from 0 to 1, in the cells that a terminal shows of it."""


class View(NamedTuple):
    """What one look into a model shows.

    heat      a panel is a matrix: rows, columns, and a shade for each value
    table     a panel is a matrix of numbers to be read: counts, probabilities; each after its cell, if there are cells
    lines     a panel is a chart: a line a row over the columns
    text      a panel is a text: the columns are its words or tokens, each shaded by its value in the first row
    points    a panel is a plane: a point a row; columns x, y and group
    scatter   a panel is a plane with logarithmic axes: a point a row; the two columns are the names of x and y
    growth    the same axes: a line a row over the columns, whose names are the numbers x
    bars      a panel is a table: a bar a row, made of one part a column
    patches   a panel is a picture: a patch for each row and column, the clearer the greater its value
    """

    kind: Kind
    title: str
    note: str
    """What the picture shows, in sentences; a line each."""
    panels: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values_PRC: Floats
    cells_RC: tuple[tuple[str, ...], ...] = ()
    """What stands beside each value, such as the count that it comes from; empty: nothing."""
    picture: Picture | None = None
    """What patches lie on; over a matrix, what stands above it."""
    beside: tuple[View, ...] = ()
    """The same view of other runs."""

    @property
    def all(self) -> tuple[View, ...]:
        """This view, and those beside it."""
        return (self, *self.beside)

    def terminal(self, width: int = 100, colour: bool = False) -> str:
        """Draw it in characters, at most `width` in a line; `colour`: the terminal understands ANSI codes."""
        from segue.look.inside.draw_terminal import draw

        return draw(self, width, colour)

    def svg(self) -> str:
        """Draw it as one SVG that needs no other file, on a light ground or a dark one as the reader has it."""
        from segue.look.inside.draw_svg import alone

        return alone(self)

    def html(self) -> str:
        """Draw it as a page of its own."""
        from segue.look.inside.draw_svg import page

        return page(self)

    def __repr__(self) -> str:
        return self.terminal()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from segue.look.inside.draw_svg import draw

        return draw(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is no finite number is None."""
        shown: dict[str, Any] = {
            "kind": self.kind,
            "title": self.title,
            "note": self.note,
            "panels": list(self.panels),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": _plain(self.values_PRC.tolist()),
        }
        if self.cells_RC:
            shown["cells"] = [list(row) for row in self.cells_RC]
        if self.picture:
            shown["picture"] = data_uri(self.picture.png, "image/png")
        if self.beside:
            shown["beside"] = [view.to_dict() for view in self.beside]
        return shown

    def json(self) -> str:
        """Strict JSON: there is no NaN and no Infinity in it."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else None


def largest(view: View) -> float:
    """The greatest absolute value of the view and those beside it, so that they share a scale; 1 where all are 0."""
    every = np.concatenate([np.abs(one.values_PRC).ravel() for one in view.all])
    return float(finite(every).max(initial=0.0)) or 1.0


def top_of_heat(view: View) -> float:
    """The value of the darkest shade of a matrix: at least 1, but over a sound, whose columns share a word's attention,
    the greatest."""
    return largest(view) if view.picture is not None else max(1.0, largest(view))


def longest_bar(view: View) -> float:
    """The greatest sum of a row, which is the length of the longest bar."""
    sums = np.concatenate([finite(one.values_PRC).sum(-1).ravel() for one in view.all])
    return float(sums.max(initial=0.0)) or 1.0


def finite(values: Floats) -> Floats:
    """The same with 0 for what cannot be drawn: NaN and infinity."""
    return np.where(np.isfinite(values), values, 0.0)


def written(values_RC: Floats, cells_RC: Sequence[Sequence[str]] = ()) -> list[list[str]]:
    """The numbers of a table as text: whole ones as such, others with four places; 0 is 0. Each after its cell."""
    whole = bool((finite(values_RC) == np.round(finite(values_RC))).all())
    numbers = [[_figure(value, whole) for value in row] for row in values_RC.tolist()]
    if not cells_RC:
        return numbers
    return [[" ".join(one) for one in zip(*rows, strict=True)] for rows in zip(cells_RC, numbers, strict=True)]


def _figure(value: float, whole: bool) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if whole or value == 0:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 5e-5 else f"{value:.0e}"


class LogAxis(NamedTuple):
    """A logarithmic axis: whole powers of ten, from the first to the last."""

    low: int
    high: int

    def place(self, value: float) -> float:
        """Between 0 and 1; nan for what has no logarithm."""
        if not (math.isfinite(value) and value > 0):
            return math.nan
        return (math.log10(value) - self.low) / (self.high - self.low)


def numbers_of(columns: Sequence[str]) -> list[float]:
    """The numbers that columns are called by; nan for one that is called by a word."""
    found = []
    for column in columns:
        try:
            found.append(float(column.replace(",", "")))
        except ValueError:
            found.append(math.nan)
    return found


def log_axis(values: Floats) -> LogAxis:
    """The axis that holds all values but those that have no logarithm."""
    powers = np.log10(values[np.isfinite(values) & (values > 0)])
    if not powers.size:
        return LogAxis(0, 1)
    low = math.floor(powers.min())
    return LogAxis(low, max(low + 1, math.ceil(powers.max())))


def scaled(values: Floats) -> Floats:
    """Moved and stretched to lie between 0 and 1."""
    if not values.size:
        return values
    values = finite(values)
    return np.asarray((values - values.min()) / (np.ptp(values) or 1.0))

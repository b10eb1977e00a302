"""A figure against a number on a logarithmic axis: a point a model, and the power law through them.

A power law, figure = a · number^b, is a straight line there. Without one the figure's own axis is plain.
`alone` makes any chart of the page a picture in a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

from segue.look.page.charts import ticks
from segue.look.page.markup import figure, hue, short_count, text


@dataclass(frozen=True)
class Point:
    """One model."""

    name: str
    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """What is drawn, from left to right."""

    x_title: str
    metric: str
    points: list[Point]
    law: tuple[float, float] | None = None
    """The factor and the exponent of the fitted power law."""


LEFT, TOP, FOOT, RIGHT = 54.0, 24.0, 48.0, 40.0
LEAST_GAP = 44.0
"""Pixels between two numbers below the axis."""


def trend_chart(trend: Trend, narrow: bool) -> str:
    """The picture as SVG, in one of the page's two widths."""
    width, height = (358.0, 300.0) if narrow else (720.0, 400.0)
    x = _scale([point.x for point in trend.points], LEFT + 30, width - RIGHT, log=True)
    extent = _extent(trend)
    y = _scale(extent, height - FOOT, TOP, log=trend.law is not None)
    name = f"{trend.metric} against {trend.x_title}"
    return (
        f'<svg class="chart {"narrow" if narrow else "wide"} trend" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{text(name)}">{_axes(trend, x, y, extent, width, height)}{_line(trend, x, y)}'
        f"{''.join(_point(point, trend, x, y) for point in trend.points)}</svg>"
    )


Place = Callable[[float], float]


def _scale(values: Sequence[float], begin: float, end: float, log: bool) -> Place:
    """From values to pixels; a single value stands in the middle."""
    by = math.log if log else float
    low, high = by(min(values)), by(max(values))
    if high == low:
        return lambda value: (begin + end) / 2
    return lambda value: begin + (end - begin) * (by(value) - low) / (high - low)


def _extent(trend: Trend) -> tuple[float, float]:
    """From a little below to a little above all values; intervals may go out of the picture, points may not."""
    values = [point.value for point in trend.points]
    if trend.law:
        values += [trend.law[0] * point.x ** trend.law[1] for point in trend.points]
    low, high = min(values), max(values)
    margin = 0.15 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin if low > margin else low / 2, high + margin


def _axes(trend: Trend, x: Place, y: Place, extent: tuple[float, float], width: float, height: float) -> str:
    right, bottom, parts = width - RIGHT / 2, height - FOOT, []
    marks = ticks(*extent, 6)
    decimals = max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9)) if len(marks) > 1 else 1
    for mark in marks:
        at = y(mark)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>')
        label = f"{mark:,.{decimals}f}".replace("-", "−")
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    last = -math.inf
    for point in trend.points:
        at = x(point.x)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        if at - last >= LEAST_GAP:
            label = short_count(round(point.x)) if point.x >= 1000 else f"{point.x:.3g}"
            parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
            last = at
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right:.1f}" y1="{bottom}" y2="{bottom}"/>')
    title = f"{trend.x_title} (logarithmic)"
    parts.append(f'<text class="tick" x="{right:.1f}" y="{bottom + 38}" text-anchor="end">{text(title)}</text>')
    way = f"{trend.metric}{' (logarithmic)' if trend.law else ''}"
    return "".join(parts) + f'<text class="tick" x="4" y="12">{text(way)}</text>'


def _line(trend: Trend, x: Place, y: Place) -> str:
    """The fitted law, dotted; where there is none, what joins the points."""
    if trend.law is None:
        path = " ".join(f"{x(point.x):.1f},{y(point.value):.1f}" for point in trend.points)
        return f'<g class="series {hue(0)}"><polyline points="{path}"/></g>'
    factor, exponent = trend.law
    (x1, y1), (x2, y2) = ((x(p.x), y(factor * p.x**exponent)) for p in (trend.points[0], trend.points[-1]))
    return f'<line class="best" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _point(point: Point, trend: Trend, x: Place, y: Place) -> str:
    metric, law = trend.metric, trend.law
    below = law is not None and point.value < law[0] * point.x ** law[1]
    label = y(point.value) + (20 if below else -10)  # clear of the line
    hover = f"{point.name}: {figure(point.value, metric)} ({figure(point.low, metric)} to {figure(point.high, metric)})"
    return (
        f'<g class="series {hue(0)}"><circle cx="{x(point.x):.1f}" cy="{y(point.value):.1f}" r="4.5">'
        f"<title>{text(hover)}</title></circle>"
        f'<text class="tick" x="{x(point.x):.1f}" y="{label:.1f}" text-anchor="middle">'
        f"{figure(point.value, metric)}</text></g>"
    )


def alone(chart: str) -> str:
    """A chart as a file of its own: with the page's colours and lines, which follow the reader's light or dark."""
    css = resources.files("segue.look.page").joinpath("page.css").read_text(encoding="utf-8")
    colours, lines = css.split("\n* {")[0], css.partition("/* Charts */")[2].partition("\n\n")[0]
    begin, _, rest = chart.partition(">")
    style = f"<style>{colours}{lines}.chart {{ background: var(--card) }}</style>"
    return begin.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1) + ">" + style + rest + "\n"

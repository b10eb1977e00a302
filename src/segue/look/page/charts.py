"""Charts as inline SVG: curves, interval bars on one common scale, and the confusion matrix.

They are written by hand so that the page needs nothing else: text stays sharp, colours follow the reader's
light or dark scheme through the style sheet, and every mark has a title to hover over. Coordinates of the
curves are pixels in a fixed frame, drawn twice (wide and narrow) so that letters are never scaled; small charts
stand side by side in as many columns as the page has room for. Interval bars use per cent of their cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from segue.look.page.markup import figure, hue, is_number, is_share, percent, short_count, swatch, table, text

_MOST_POINTS = 80
_MOST_CLASSES = 20
_LABEL_GAP = 16.0
_LETTER = 7.8


Size = Literal["wide", "narrow", "small"]
"""Wide and narrow ones are the same chart, of which the style sheet shows one; a small one stands beside others."""


class Mark(NamedTuple):
    """A point of a curve with a ring around it, and the words beside it."""

    x: float
    y: float
    said: str


@dataclass(frozen=True)
class Line:
    """One curve: where it goes, and in which of the page's colours."""

    name: str
    colour: int
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False
    faint: bool = False
    """Drawn grey and without points, behind the others: the same curve of other models, to compare with."""
    mark: Mark | None = None


@dataclass(frozen=True)
class Axes:
    """The words around a chart of curves."""

    x_title: str
    metric: str
    lower_is_better: bool
    best: float | None = None
    """Drawn as a dotted line: nothing can be better."""
    log: bool = False
    """Whether equal factors of x, and not equal steps, are equally far apart."""
    whole: bool = False
    """Whether x counts something, from 1: 1, 2, 3, …"""
    y_title: str = ""
    """The words above the y axis; empty: the metric."""
    log_y: bool = False
    """The same as `log`, for y."""
    from_zero: bool = False
    """Whether the y axis begins at 0, as it should for shares."""
    all: bool = False
    """Whether every point is in the picture, a bad beginning too."""


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers inside [low, high], one, two or five times a power of ten apart."""
    if not high - low > 1e-9 * max(1.0, abs(high)):  # equal, but for the last digits of a sum
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int = 10) -> list[float]:
    """Powers of ten inside [low, high]; with their doubles and fives where not more than `count` come of it."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = [10.0**k for k in range(first, last + 1)]
    few = 3 * math.log10(high / low) <= count
    marks = [d * m for d in decades for m in ((1, 2, 5) if few else (1,))]
    return [m for m in marks if low * 0.999 <= m <= high * 1.001]


def is_log(lines: Sequence[Line]) -> bool:
    """Whether the ends of the curves lie so far apart that equal steps would press some against the axis."""
    ends = [line.xs[-1] for line in lines if line.xs and line.xs[-1] > 0]
    return len(ends) > 1 and max(ends) / min(ends) > 30


class _Frame:
    """The box of a chart and the two scales that lead into it."""

    def __init__(self, lines: Sequence[Line], axes: Axes, size: Size) -> None:
        self.left, self.top, self.foot = 54.0, 30.0, 44.0
        wide = size == "wide"
        self.width = 1040.0 if wide else 358.0
        room = max((len(_end_label(line, axes)) for line in lines), default=0)
        self.right = 30.0 + min(room, 40) * _LETTER if wide else 14.0
        self.height = max(400.0, len(lines) * _LABEL_GAP + 90) if wide else 300.0 if size == "narrow" else 250.0
        self.inner_width, self.inner_height = self.width - self.left - self.right, self.height - self.top - self.foot
        self.log, self.whole, self.log_y = axes.log, axes.whole, axes.log_y
        self.x_low, self.x_high = _whole_range(lines) if self.whole else _x_range(lines, axes)
        self.y_low, self.y_high = _y_range(lines, axes)

    def x(self, value: float) -> float:
        low, high = self.x_low, self.x_high
        if self.log:
            # Zero has no logarithm: such a point lies left of the picture, and its curve comes in from there.
            value, low, high = math.log(max(value, low / 100)), math.log(low), math.log(high)
        return self.inner_width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_low, self.y_high
        if self.log_y:
            value, low, high = math.log(max(value, low / 100)), math.log(low), math.log(high)
        return self.inner_height * (high - value) / (high - low)

    def y_ticks(self) -> list[float]:
        return log_ticks(self.y_low, self.y_high, 8) if self.log_y else ticks(self.y_low, self.y_high, 6)

    def x_ticks(self) -> list[float]:
        if self.log:
            return log_ticks(self.x_low, self.x_high, 5 if self.width < 500 else 13)
        if self.whole:
            every = math.ceil((self.x_high - self.x_low) / (10 if self.width < 500 else 30))
            return [float(x) for x in range(math.ceil(self.x_low), math.floor(self.x_high) + 1, every)]
        return ticks(self.x_low, self.x_high, 4 if self.width < 500 else 8)


def _whole_range(lines: Sequence[Line]) -> tuple[float, float]:
    xs = [x for line in lines for x in line.xs]
    return min(xs) - 0.2, max(xs) + 0.2


def _x_range(lines: Sequence[Line], axes: Axes) -> tuple[float, float]:
    xs = [x for line in lines for x in line.xs]
    if not axes.log:
        widest = max(xs) or 1.0
        return -0.01 * widest, 1.02 * widest
    positive = [x for x in xs if x > 0] or [1.0]
    if axes.all:
        return min(positive) / 1.2, max(positive) * 1.2
    # A first point at almost no seconds would stretch the axis over empty decades.
    ends = [line.xs[-1] for line in lines if line.xs[-1] > 0] or [1.0]
    return max(min(positive), min(ends) / 10) * 0.8, max(positive) * 1.1


def _y_range(lines: Sequence[Line], axes: Axes) -> tuple[float, float]:
    """All last values and at least half of the way to them; a worse beginning may lie outside the picture."""
    ys = [y for line in lines for y in line.ys]
    last = [line.ys[-1] for line in lines]
    low, high = min(ys), max(ys)
    if axes.log_y:
        return low / 1.3, high * 1.3
    if axes.from_zero:
        return 0.0, 1.06 * high or 1.0
    if axes.whole or axes.all:
        pass
    elif axes.lower_is_better:
        high = min(high, max(max(last), low + 0.5 * (high - low)))
    else:
        low = max(low, min(min(last), high - 0.5 * (high - low)))
    if axes.best is not None:
        low, high = min(low, axes.best), max(high, axes.best)
    apart = high - low > 1e-6 * abs(high)  # figures that differ by rounding alone are the same
    margin = 0.06 * (high - low) if apart else 0.05 * abs(high) or 1.0
    if is_share(axes.metric) and high <= 1:
        return low - margin, min(high + margin, 1 + 0.06 * (1 - low + margin))  # no share is above 100 %
    return low - margin, high + margin


def _finite(line: Line) -> Line:
    """The points that can be drawn, not more than the eye can tell apart; the last one is always kept."""
    points = [(x, y) for x, y in zip(line.xs, line.ys, strict=True) if is_number(x) and is_number(y)]
    if len(points) > _MOST_POINTS:
        stride = (len(points) - 1) / (_MOST_POINTS - 1)
        points = [points[round(i * stride)] for i in range(_MOST_POINTS)]
    mark = line.mark if line.mark and is_number(line.mark.x) and is_number(line.mark.y) else None
    return replace(line, xs=[x for x, _ in points], ys=[y for _, y in points], mark=mark)


def line_chart(lines: Sequence[Line], axes: Axes, size: Size, scale: Sequence[Line] = ()) -> str:
    """Curves with their names at the line ends (wide) or without (narrow, small: the page has a legend beside it).
    `scale`: all lines of a row of charts that share their scales; none: the scales are those of this chart."""
    drawn = [line for line in map(_finite, lines) if line.xs]
    if not drawn:
        return ""
    frame = _Frame([line for line in map(_finite, scale) if line.xs] or drawn, axes, size)
    w, h = frame.width, frame.height
    name = f"{axes.metric} against {axes.x_title}"
    parts = [
        f'<svg class="chart {size}" viewBox="0 0 {w:.0f} {h:.0f}" role="img" '
        f'aria-label="{text(name)}" data-left="{frame.left:.0f}" data-top="{frame.top:.0f}">',
        _grid(frame, axes),
        # An inner svg cuts off what lies outside it, so curves may begin above the picture.
        f'<svg x="{frame.left}" y="{frame.top}" width="{frame.inner_width:.1f}" height="{frame.inner_height:.1f}">',
        *(_faint(line, frame) for line in drawn if line.faint),
        *(_series(line, frame, axes) for line in reversed(drawn) if not line.faint),
        *(_marked(line.mark, line.colour, frame) for line in drawn if line.mark),
        "</svg>",
        _end_labels([line for line in drawn if not line.faint], frame, axes) if size == "wide" else "",
        "</svg>",
    ]
    return "".join(parts)


def _faint(line: Line, frame: _Frame) -> str:
    path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True))
    return f'<polyline class="faint" points="{path}"/>'


def _marked(mark: Mark, colour: int, frame: _Frame) -> str:
    """The ring, and its words above it, or below where there is no room; never across the picture's edges."""
    x, y = frame.x(mark.x), frame.y(mark.y)
    side = "start" if x < frame.inner_width / 4 else "end" if x > 3 * frame.inner_width / 4 else "middle"
    below = y + 22 if y < 30 else y - 12
    return (
        f'<g class="mark {hue(colour)}"><circle cx="{x:.1f}" cy="{y:.1f}" r="7"/>'
        f'<text x="{x:.1f}" y="{below:.1f}" text-anchor="{side}">{text(mark.said)}</text></g>'
    )


def _grid(frame: _Frame, axes: Axes) -> str:
    right, bottom = frame.left + frame.inner_width, frame.top + frame.inner_height
    y_ticks = frame.y_ticks()
    labels = [_short(v) for v in y_ticks] if frame.log_y else _labels(y_ticks, axes.metric)
    parts = [f'<text class="tick" x="4" y="13">{text(axes.y_title or axes.metric)}{_logarithmic(frame.log_y)}</text>']
    for value, label in zip(y_ticks, labels, strict=True):
        y = frame.top + frame.y(value)
        parts.append(f'<line class="grid" x1="{frame.left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{frame.left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    x_ticks = frame.x_ticks()
    for value, label in zip(x_ticks, [_short(v) for v in x_ticks] if frame.log else _labels(x_ticks), strict=True):
        x = frame.left + frame.x(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{bottom + 4:.1f}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{label}</text>')
    parts.append(f'<line class="axis" x1="{frame.left}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>')
    title = text(axes.x_title) + _logarithmic(frame.log)
    parts.append(f'<text class="tick" x="{right:.1f}" y="{bottom + 37:.1f}" text-anchor="end">{title}</text>')
    if axes.best is not None:
        y = frame.top + frame.y(axes.best)
        parts.append(f'<line class="best" x1="{frame.left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = f"best possible {figure(axes.best, axes.metric)}"
        above = y - 6 if y - frame.top > 20 else y + 15
        parts.append(f'<text class="tick" x="{frame.left + 6}" y="{above:.1f}">{label}</text>')
    return "".join(parts)


def _logarithmic(log: bool) -> str:
    return " (logarithmic)" if log else ""


def _short(value: float) -> str:
    """A tick of a logarithmic axis, which may span many decades: 0.001, 10, 20 k."""
    return short_count(round(value)).replace(".0 ", " ") if value >= 10_000 else f"{value:,g}"


def _labels(values: Sequence[float], metric: str = "") -> list[str]:
    """Tick labels with just the decimals that tell them apart."""
    scale, unit = (100, " %") if figure(0.5, metric).endswith("%") else (1, "")
    gap = scale * (values[1] - values[0] if len(values) > 1 else abs(values[0]) or 1)
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    return [f"{scale * v:,.{decimals}f}{unit}".replace("-", "−") for v in values]


def _series(line: Line, frame: _Frame, axes: Axes) -> str:
    """One curve with its points, and a thin line from its last value to the right edge."""
    pixels = [(frame.x(x), frame.y(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    values = [figure(y, axes.metric) for y in line.ys]
    end_x, end_y = pixels[-1]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    parts = [f'<g class="series {hue(line.colour)}" data-name="{text(line.name)}">']
    if end_x < frame.inner_width - 4 and frame.width > 500:
        parts.append(f'<line class="rest" x1="{end_x:.1f}" x2="100%" y1="{end_y:.1f}" y2="{end_y:.1f}"/>')
    if len(pixels) > 1:
        dashes = ' stroke-dasharray="7 4"' if line.dashed else ""
        parts.append(f'<polyline points="{path}"{dashes}/>')
    for i, ((x, y), at, value) in enumerate(zip(pixels, line.xs, values, strict=True)):
        radius = 4.5 if i == len(pixels) - 1 else 2.2
        hover = f"{text(line.name)}: {value} at {at:,.4g} {text(axes.x_title)}"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{hover}</title></circle>')
    return "".join(parts) + "</g>"


def _end_label(line: Line, axes: Axes) -> str:
    return f"{line.name}  {figure(line.ys[-1], axes.metric)}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones (in rising order), at least `gap` apart, inside [low, high] where there is room."""
    places = list(wanted)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    if places and places[-1] > high:
        places[-1] = high
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - gap)
    if places and places[0] < low:
        return [low + i * gap if low + i * gap > p else p for i, p in enumerate(places)]
    return places


def _end_labels(lines: Sequence[Line], frame: _Frame, axes: Axes) -> str:
    """Each curve's name at the right of its last value; names that would overlap are moved apart."""
    ordered = sorted(lines, key=lambda line: frame.y(line.ys[-1]))
    wanted = [frame.top + frame.y(line.ys[-1]) for line in ordered]
    places = spread(wanted, _LABEL_GAP, frame.top + 4, frame.top + frame.inner_height)
    x = frame.left + frame.inner_width
    parts = []
    for line, from_y, to_y in zip(ordered, wanted, places, strict=True):
        leader = f"{x + 3:.1f},{from_y:.1f} {x + 14:.1f},{to_y:.1f} {x + 19:.1f},{to_y:.1f}"
        parts.append(
            f'<g class="label {hue(line.colour)}"><polyline points="{leader}"/>'
            f'<text x="{x + 24:.1f}" y="{to_y + 4:.1f}">{text(line.name)} '
            f'<tspan class="value">{figure(line.ys[-1], axes.metric)}</tspan></text></g>'
        )
    return "".join(parts)


@dataclass(frozen=True)
class Scale:
    """The one scale that all interval bars of a table share."""

    low: float
    high: float
    metric: str
    best: float | None = None

    def percent(self, value: float) -> float:
        """Where a value stands, in per cent of the width, with a little room at both ends."""
        share = (value - self.low) / (self.high - self.low)
        return 4 + 92 * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """As many round numbers as a narrow column has room for."""
        finer = (ticks(self.low, self.high, count) for count in (6, 5, 4, 3, 2))
        return next((marks for marks in finer if len(marks) <= 4), ticks(self.low, self.high, 1))

    def holds(self, value: float | None) -> bool:
        return value is not None and self.low <= value <= self.high


Bounds = tuple[float, float] | None


def common_scale(values: Sequence[tuple[float | None, Bounds]], metric: str, best: float | None) -> Scale | None:
    """One scale for values and intervals, given best first; None where there is nothing to draw.

    It covers all of them, unless the worse half is so far off that the better half would shrink to a spot: then
    it covers the better half.
    """
    full = _extent(values, best)
    if full is None:
        return None
    near = _extent(values[: max(3, math.ceil(len(values) / 2))], best)
    if near is not None and near[1] > near[0] and full[1] - full[0] > 3 * (near[1] - near[0]):
        full = near
    low, high = full
    most = max(1.0, high)  # an error rate may be above 1
    # Values that differ by rounding alone are one value.
    apart = high - low > 1e-6 * abs(high)
    margin = 0.04 * (high - low) if apart else 0.05 * abs(high) or 0.5
    low, high = low - margin, high + margin
    return Scale(max(low, 0.0), min(high, most), metric, best) if is_share(metric) else Scale(low, high, metric, best)


def _extent(values: Sequence[tuple[float | None, Bounds]], best: float | None) -> tuple[float, float] | None:
    every = [best, *(x for value, bounds in values for x in (value, *(bounds or ())))]
    finite = [x for x in every if x is not None and math.isfinite(x)]
    return (min(finite), max(finite)) if finite else None


def interval_bar(value: float | None, interval: Bounds, scale: Scale, colour: int) -> str:
    """A dot at the value and a bar over its interval; what lies beyond the scale is an arrow out of the picture."""
    marks = [f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="100%"/>' for x in _places(scale)]
    if scale.best is not None:
        x = f"{scale.percent(scale.best):.2f}%"
        marks.append(f'<line class="best" x1="{x}" x2="{x}" y1="0" y2="100%"/>')
    hover = figure(value, scale.metric)
    if interval is not None:
        hover += f", 95 % interval {figure(interval[0], scale.metric)} to {figure(interval[1], scale.metric)}"
    if value is not None and scale.holds(value):
        marks += _dot_and_bar(value, interval, scale)
    elif value is not None and value > scale.high:
        marks.append('<text class="beyond" x="99%" y="50%" dy="5" text-anchor="end">→</text>')
    elif value is not None and value < scale.low:
        marks.append('<text class="beyond" x="1%" y="50%" dy="5">←</text>')
    return f'<svg class="interval {hue(colour)}" role="img"><title>{hover}</title>{"".join(marks)}</svg>'


def _dot_and_bar(value: float, interval: Bounds, scale: Scale) -> list[str]:
    dot = f'<circle cx="{scale.percent(value):.2f}%" cy="50%" r="4.5"/>'
    if interval is None or not all(map(is_number, interval)):
        return [dot]
    low, high = (scale.percent(bound) for bound in interval)
    caps = [f'<line class="cap" x1="{x:.2f}%" x2="{x:.2f}%" y1="36%" y2="64%"/>' for x in (low, high)]
    return [f'<line class="whisker" x1="{low:.2f}%" x2="{high:.2f}%" y1="50%" y2="50%"/>', *caps, dot]


def interval_axis(scale: Scale) -> str:
    """The numbers above a column of interval bars."""
    labels = _labels(scale.ticks(), scale.metric)
    marks = "".join(
        f'<text class="tick" x="{x}" y="12" text-anchor="middle">{label}</text>'
        for x, label in zip(_places(scale), labels, strict=True)
    )
    return f'<svg class="interval-axis" aria-hidden="true">{marks}</svg>'


def _places(scale: Scale) -> list[str]:
    return [f"{scale.percent(value):.2f}%" for value in scale.ticks()]


def confusion_matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Rows are the true labels, columns the predicted ones; shades are shares of a row, right ones apart from wrong.

    With many labels a matrix says little: then the commonest confusions are listed instead.
    """
    if len(labels) > _MOST_CLASSES:
        return _commonest(labels, counts)
    head = "".join(f'<th scope="col"><span>{text(label)}</span></th>' for label in labels)
    rows = []
    for i, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row) or 1
        cells = "".join(
            f'<td class="{"right" if i == j else "wrong"}{_shade(n / total)}" '
            f'title="{text(label)} taken for {text(labels[j])}: {n:,} of {sum(row):,}">{f"{n:,}" if n else "·"}</td>'
            for j, n in enumerate(row)
        )
        rows.append(f'<tr><th scope="row">{text(label)}</th>{cells}</tr>')
    return (
        '<div class="scroll"><table class="confusion"><thead><tr><th class="corner">true ↓ predicted →</th>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _shade(share: float) -> int:
    """0 … 8; small shares are lifted, for an error of 2 % is worth seeing."""
    return min(8, math.ceil(8 * math.sqrt(share)))


def _commonest(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    pairs = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if i != j and n]
    largest = sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))[:_MOST_CLASSES]
    rows = [[text(labels[i]), text(labels[j]), f"{n:,}", percent(n / sum(counts[i]))] for n, i, j in largest]
    said = f"{len(labels)} labels: the {len(rows)} commonest confusions of {len(pairs):,}."
    return f"<p>{said}</p>" + table(["true", "predicted", "times", "of its label"], rows)


def legend(lines: Sequence[Line], write: Callable[[float], str], always: bool = False) -> str:
    """Names and last values as a list, for where the chart is too narrow for them, or `always`."""
    items = "".join(
        f"<li>{swatch(line.colour, line.dashed)}{text(line.name)} <b>{write(line.ys[-1]) if line.ys else '–'}</b></li>"
        for line in lines
        if not line.faint
    )
    return f'<ul class="legend{" shown" if always else ""}">{items}</ul>'

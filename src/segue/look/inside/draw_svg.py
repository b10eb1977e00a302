"""A view drawn as SVG, and as a page: by itself, without scripts, fonts or other files.

Colours are written into the marks, and text takes the colour of what is around it, so that the picture can be read on
a light ground and on a dark one. Whatever a model or a user wrote is escaped (look/page/markup.py).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from segue.look.inside.view import (
    Floats,
    LogAxis,
    View,
    finite,
    largest,
    log_axis,
    longest_bar,
    numbers_of,
    scaled,
    top_of_heat,
    written,
)
from segue.look.page.markup import figure, text, visible
from segue.output.png import data_uri

_HUES = ("#4f83d6", "#d9792f", "#2f9e67", "#c9559f", "#8a63d2", "#1f93a8", "#d65656", "#a08b1d", "#9a6b47", "#6b7a8f")
_FOR, _AGAINST = "#d9792f", "#4f83d6"
"""Grounds of values above 0 and below."""
_LETTER, _LINE = 7.2, 18.0
"""Pixels of a letter and of a line."""
_CELL = 16.0
_SOUND = 84.0
"""Pixels of a spectrogram above a matrix."""
_PICTURE = 128.0
"""Pixels of a picture, at least."""
_GREY, _HIDDEN = "#808080", 0.85
"""What lies over a patch, and how opaque it is where the value is 0: black and white are both seen apart from it."""
_SHADES = 64
"""Steps from the greyest patch to the clearest."""
_WIDE = 1000.0
_GAP = 28.0
_MOST_LABEL, _MOST_BAR_LABEL = 16, 24
_PLANE = 560.0
_NAMED = 40
"""Points of a plane that all have their words beside them."""
_PLANE_WITH_AXES, _HALF = (720.0, 400.0), (340.0, 220.0)
"""Pixels of a plane with axes, alone and two side by side."""
_NAMES = 130.0
"""Pixels to the right of a plane, for names at the ends of lines."""


class _Sheet:
    """Marks on a sheet that grows with them."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.pictures: set[str] = set()
        self.width = self.height = 0.0

    def grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def write(self, x: float, y: float, words: str, more: str = "") -> None:
        """A line of text that begins at x, its foot at y."""
        self.marks.append(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{text(words)}</text>')
        self.grow(x + _LETTER * len(words) if "text-anchor" not in more else x, y + 4)

    def box(self, x: float, y: float, width: float, height: float, fill: str, share: float, said: str) -> None:
        """A rectangle as opaque as its share, with a title to hover over."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.2f}" height="{height:.1f}"'
        opaque = f'fill="{fill}" fill-opacity="{min(1.0, max(0.0, share)):.3f}"'
        self.marks.append(f"<rect {place} {opaque}><title>{text(said)}</title></rect>")
        self.grow(x + width, y + height)

    def picture(self, x: float, y: float, width: float, height: float, png: bytes) -> None:
        """A PNG that fills a rectangle; its bytes are written once, however often it is drawn."""
        size = f'width="{width:.1f}" height="{height:.1f}"'
        name = f"picture-{zlib.crc32(png + size.encode()):08x}"
        if name not in self.pictures:
            self.pictures.add(name)
            image = f'<image id="{name}" {size} preserveAspectRatio="none" href="{data_uri(png, "image/png")}"/>'
            self.marks.append(f"<defs>{image}</defs>")
        self.marks.append(f'<use href="#{name}" x="{x:.1f}" y="{y:.1f}"/>')
        self.grow(x + width, y + height)


def draw(view: View) -> str:
    """One SVG: title, panels and note of the view, then of those beside it, to the right."""
    sheet, left = _Sheet(), 0.0
    for one in view.all:
        top = 20.0
        sheet.write(left, top, one.title, 'font-weight="bold"')
        bottom = _PANELS[one.kind](sheet, one, view, left, top + 14)
        for line in _wrapped(one.note):
            bottom += _LINE
            sheet.write(left, bottom, line, 'fill-opacity="0.75"')
        sheet.grow(left, bottom + 8)
        left = sheet.width + _GAP
    size = f'width="{sheet.width + 8:.0f}" height="{sheet.height + 8:.0f}"'
    box = f'viewBox="-4 -4 {sheet.width + 8:.0f} {sheet.height + 8:.0f}"'
    style = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" fill="currentColor"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} {style} xml:space="preserve" role="img"'
    return f'{head} aria-label="{text(view.title)}">{"".join(sheet.marks)}</svg>'


def alone(view: View) -> str:
    """The picture as a file: text that follows the reader's light or dark scheme, on a ground of its own."""
    style = "svg{background:#fff;color:#1a1a1a}@media(prefers-color-scheme:dark){svg{background:#16181c;color:#e6e6e6}}"
    begin, _, rest = draw(view).partition(">")
    return f"{begin}><style>{style}</style>{rest}"


def page(view: View) -> str:
    """A page that holds the picture and nothing else."""
    style = "body{margin:24px;color-scheme:light dark}figure{margin:0;overflow-x:auto}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{text(view.title)}</title>'
        f"<style>{style}</style></head><body><figure>{draw(view)}</figure></body></html>\n"
    )


def _wrapped(note: str, most: int = 110) -> list[str]:
    """Lines of whole words."""
    lines: list[str] = []
    for part in note.split("\n") if note else []:
        line = ""
        for word in part.split(" "):
            if line and len(line) + len(word) >= most:
                lines.append(line)
                line = ""
            line += f"{' ' if line else ''}{word}"
        lines.append(line)
    return lines


def _short(name: str, most: int = _MOST_LABEL) -> str:
    shown = visible(name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _number(value: float) -> str:
    return figure(value) if math.isfinite(value) else "∞" if value > 0 else "–"


# Each kind draws its panels below `top` and returns where they end.


def _heat(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """Small multiples: as many panels in a row as fit."""
    scale, sound = top_of_heat(whole), _SOUND if view.picture else 0.0
    names = [_short(row) for row in view.rows]
    label = _LETTER * max(map(len, names), default=0) + 6
    above = _LETTER * max((len(_short(column)) for column in view.columns), default=0) + 22 + sound
    width, height = label + _CELL * len(view.columns) + _GAP, above + _CELL * len(view.rows) + _GAP
    each = max(1, int((_WIDE + _GAP) // width))
    for number, (name, values_RC) in enumerate(zip(view.panels, view.values_PRC, strict=True)):
        x, y = left + width * (number % each), top + height * (number // each)
        sheet.write(x, y + 10, name)
        if view.picture is not None:
            sheet.picture(x + label, y + above - sound, _CELL * len(view.columns), sound - 2, view.picture.png)
        _matrix(sheet, view, values_RC / scale, values_RC, (x + label, y + above), names)
    return top + height * math.ceil(len(view.panels) / each)


def _matrix(
    sheet: _Sheet, view: View, shares_RC: Floats, values_RC: Floats, corner: tuple[float, float], names: Sequence[str]
) -> None:
    x, y = corner
    for c, column in enumerate(view.columns):
        at = x + _CELL * c + 11
        foot = y - 4 - (_SOUND if view.picture else 0.0)
        sheet.write(at, foot, _short(column), f'transform="rotate(-90 {at:.1f} {foot:.1f})"')
    for r, (row, name) in enumerate(zip(view.rows, names, strict=True)):
        sheet.write(x - 4, y + _CELL * r + 12, name, 'text-anchor="end"')
        for c, column in enumerate(view.columns):
            share = float(shares_RC[r, c])
            fill = _FOR if share < 0 else _AGAINST
            said = f"{visible(row)} · {visible(column)}: {_number(float(values_RC[r, c]))}"
            opaque = abs(share) if math.isfinite(share) else 0.0
            sheet.box(x + _CELL * c, y + _CELL * r, _CELL - 1, _CELL - 1, fill, opaque, said)


def _table(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """A panel below the other: the numbers, each on a ground that is the stronger the greater it is."""
    label = _LETTER * max((len(_short(row)) for row in view.rows), default=0) + 8
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        numbers = written(values_RC, [[_short(cell) for cell in row] for row in view.cells_RC])
        longest = max((len(cell) for cells in (*numbers, map(_short, view.columns)) for cell in cells), default=1)
        width = _LETTER * longest + 10
        sheet.write(left, top + 14, name)
        for c, column in enumerate(view.columns):
            sheet.write(left + label + width * (c + 1) - 5, top + 34, _short(column), 'text-anchor="end"')
        shares_RC = np.sqrt(np.abs(finite(values_RC)) / (np.abs(finite(values_RC)).max(initial=0.0) or 1.0))
        for r, row in enumerate(view.rows):
            y = top + 40 + _LINE * r
            sheet.write(left, y + 13, _short(row))
            for c, column in enumerate(view.columns):
                said = f"{visible(row)} · {visible(column)}: {numbers[r][c]}"
                x = left + label + width * c
                sheet.box(x, y, width - 1, _LINE - 1, _AGAINST, 0.6 * float(shares_RC[r, c]), said)
                sheet.write(x + width - 5, y + 13, numbers[r][c], 'text-anchor="end"')
        top += 40 + _LINE * len(view.rows) + 12
    return top


def _lines(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """A chart a panel; a colour a row."""
    high, low = largest(whole), min(0.0, *(float(finite(one.values_PRC).min(initial=0.0)) for one in whole.all))
    height, step = 160.0, max(8.0, min(40.0, _WIDE / max(1, len(view.columns))))
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        sheet.write(left, top + 12, name)
        for r, (row, values) in enumerate(zip(view.rows, values_RC.tolist(), strict=True)):
            places = [
                f"{left + step * c:.1f},{top + 20 + height * (high - value) / ((high - low) or 1):.1f}"
                for c, value in enumerate(values)
                if math.isfinite(value)
            ]
            hue = _HUES[r % len(_HUES)]
            line = f'fill="none" stroke="{hue}" stroke-width="2"'
            sheet.marks.append(f'<polyline points="{" ".join(places)}" {line}><title>{text(row)}</title></polyline>')
            sheet.write(left + step * len(values) + 8, top + 30 + 16 * r, row, f'fill="{hue}"')
        sheet.grow(left + step * len(view.columns), top + height + 30)
        top += max(height, 16.0 * len(view.rows)) + 40
    return top


def _text(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """The words in their order, each on a ground as strong as its value."""
    scale = largest(whole)
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        x, y = left, top + 16
        if len(view.panels) > 1:
            sheet.write(left, y, name)
            y += _LINE + 4
        for token, value in zip(view.columns, values_RC[0].tolist(), strict=True):
            word = token.replace("\n", "↵").replace("\t", "⇥") or "∎"
            width = _LETTER * len(word)
            if x > left and x + width > left + _WIDE:
                x, y = left, y + _LINE + 4
            share = abs(value) / scale if math.isfinite(value) else 1.0
            said = f"{visible(token)}: {_number(value)} {view.rows[0]}"
            sheet.box(x, y - 13, width, _LINE, _FOR if value >= 0 else _AGAINST, share, said)
            sheet.write(x, y, word, f'textLength="{width:.1f}"')
            x += width + (3 if view.rows[0] != "bits" else 1)
        top = y + 10
    return top


def _points(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """A dot and a word a row; a colour a group. Of many rows, words that would lie on others are left to the mouse."""
    many = len(view.rows) > _NAMED
    for values_RC in view.values_PRC:
        taken: list[tuple[float, float, float]] = []
        x, y = scaled(values_RC[:, 0]) * (_WIDE - 120), scaled(values_RC[:, 1]) * (_PLANE - 40)
        groups = finite(values_RC[:, 2])
        for row, a, b, group in zip(view.rows, x.tolist(), y.tolist(), groups.tolist(), strict=True):
            hue = _HUES[int(group) % len(_HUES)]
            at = (left + a, top + _PLANE - 20 - b)
            place = f'cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3"'
            sheet.marks.append(f'<circle {place} fill="{hue}"><title>{text(row)}</title></circle>')
            name = (at[0] + 6, at[0] + 6 + _LETTER * len(row), at[1] + 4)
            if not (many and any(_overlap(name, other) for other in taken)):
                sheet.write(name[0], name[2], row, f'fill="{hue}"')
                taken.append(name)
        top += _PLANE
        sheet.grow(left + _WIDE, top)
    return top


def _overlap(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Whether two lines of text, each from x to x at a height, lie on each other."""
    return one[0] < other[1] and other[0] < one[1] and abs(one[2] - other[2]) < 13


def _scatter(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """A dot and a name a row on logarithmic axes, with lines at the powers of ten."""
    across, up = _PLANE_WITH_AXES
    for values_RC in view.values_PRC:
        x_axis, y_axis = log_axis(values_RC[:, 0]), log_axis(values_RC[:, 1])
        sheet.write(left, top + 14, view.columns[1])
        corner = (left + 48, top + 24)
        _grid(sheet, x_axis, y_axis, corner, _PLANE_WITH_AXES)
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in values_RC[:, :2].tolist()]
        ats = [(corner[0] + a * across, corner[1] + (1 - b) * up) for a, b in places]
        taken = [(x - 5, x + 5, y + 4) for x, y in ats]
        for r, (row, at, (x, y)) in enumerate(zip(view.rows, ats, values_RC[:, :2].tolist(), strict=True)):
            if math.isfinite(sum(at)):
                hue = _HUES[r % len(_HUES)]
                said = f"<title>{text(f'{row}: {x:.3g}, {y:.3g}')}</title>"
                sheet.marks.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{hue}">{said}</circle>')
                sheet.write(*_free(at, _LETTER * len(row), taken), row, f'fill="{hue}"')
        top = corner[1] + up + 44
        sheet.write(corner[0] + across, top - 8, view.columns[0], 'text-anchor="end"')
    return top


def _free(at: tuple[float, float], width: float, taken: list[tuple[float, float, float]]) -> tuple[float, float]:
    """Where a name of this width goes: right of its point, left, below or above, where no other name or point is."""
    (x, y), middle = at, at[0] - width / 2
    places = [(x + 7, y + 4), (x - 7 - width, y + 4), (middle, y + 18), (middle, y - 9)]
    for left, foot in places:
        if not any(_overlap((left, left + width, foot), other) for other in taken):
            break
    else:
        left, foot = places[0]
    taken.append((left, left + width, foot))
    return left, foot


def _growth(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """Two panels side by side: a line a row on logarithmic axes, its name at its end. A power law is straight there."""
    places, (across, up) = numbers_of(view.columns), _HALF
    x_axis = log_axis(np.array(places))
    for number, (name, values_RC) in enumerate(zip(view.panels, view.values_PRC, strict=True)):
        y_axis = log_axis(values_RC)
        corner = (left + 48 + (across + _NAMES) * (number % 2), top + 24 + (up + 64) * (number // 2))
        sheet.write(corner[0] - 48, corner[1] - 10, name)
        _grid(sheet, x_axis, y_axis, corner, _HALF)
        taken: list[tuple[float, float, float]] = []
        for r, (row, values) in enumerate(zip(view.rows, values_RC.tolist(), strict=True)):
            found = [(x_axis.place(x), y_axis.place(y)) for x, y in zip(places, values, strict=True)]
            ats = [(corner[0] + a * across, corner[1] + (1 - b) * up) for a, b in found if math.isfinite(a + b)]
            _curve(sheet, row, ats, _HUES[r % len(_HUES)], taken)
    return top + (up + 64) * math.ceil(len(view.panels) / 2)


def _curve(
    sheet: _Sheet, name: str, ats: Sequence[tuple[float, float]], hue: str, taken: list[tuple[float, float, float]]
) -> None:
    """Points, a line through them, and a name at the last, where no other name is."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in ats)
    sheet.marks.append(f'<polyline points="{path}" fill="none" stroke="{hue}" stroke-width="2"/>')
    sheet.marks += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{hue}"/>' for x, y in ats]
    if ats:
        sheet.write(*_free(ats[-1], _LETTER * len(name), taken), name, f'fill="{hue}"')


def _grid(
    sheet: _Sheet, x_axis: LogAxis, y_axis: LogAxis, corner: tuple[float, float], size: tuple[float, float]
) -> None:
    """A line and a number at each power of ten."""
    (left, top), (across, up) = corner, size
    faint = 'stroke="currentColor" stroke-opacity="0.2"'
    for power in range(x_axis.low, x_axis.high + 1):
        x = left + across * (power - x_axis.low) / (x_axis.high - x_axis.low)
        sheet.marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{top + up:.1f}" {faint}/>')
        sheet.write(x, top + up + 16, f"1e{power}", 'text-anchor="middle"')
    for power in range(y_axis.low, y_axis.high + 1):
        y = top + up * (y_axis.high - power) / (y_axis.high - y_axis.low)
        sheet.marks.append(f'<line x1="{left:.1f}" x2="{left + across:.1f}" y1="{y:.1f}" y2="{y:.1f}" {faint}/>')
        sheet.write(left - 6, y + 4, f"1e{power}", 'text-anchor="end"')
    sheet.grow(left + across + 30, top + up)


def _bars(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """A bar a row, made of its columns in their colours, which a legend names where there are several."""
    scale, names = longest_bar(whole), [_short(row, _MOST_BAR_LABEL) for row in view.rows]
    label = _LETTER * max(map(len, names), default=0) + 8
    for values_RC in finite(view.values_PRC):
        for r, name in enumerate(names):
            y = top + _LINE * r
            sheet.write(left + label - 4, y + 13, name, 'text-anchor="end"')
            sheet.write(left + label + 4, y + 13, f"{float(values_RC[r].sum()):.4f}")
            x = left + label + 64
            for c, column in enumerate(view.columns):
                width = 420 * float(values_RC[r, c]) / scale
                count = f" ({view.cells_RC[r][c]})" if view.cells_RC and view.cells_RC[r][c] else ""
                said = f"{visible(view.rows[r])}, {column}: {_number(float(values_RC[r, c]))}{count}"
                sheet.box(x, y + 2, width, _LINE - 4, _HUES[c % len(_HUES)], 1.0, said)
                x += width
        top += _LINE * len(names) + 8
    for c, column in enumerate(view.columns if len(view.columns) > 1 else ()):
        sheet.box(left, top + 2, 10, 10, _HUES[c % len(_HUES)], 1.0, column)
        sheet.write(left + 16, top + 12, column)
        top += _LINE
    return top


def _patches(sheet: _Sheet, view: View, whole: View, left: float, top: float) -> float:
    """The picture alone, then once for each panel: the less a patch has, the more grey lies over it."""
    rows, columns = len(view.rows), len(view.columns)
    cell = min(max(_CELL, _PICTURE / max(1, rows)), _WIDE / max(1, columns))
    across, down = cell * columns, cell * rows
    width, height = max(across, _LETTER * _MOST_LABEL) + _GAP, down + 22 + _GAP / 2
    each = max(1, int((_WIDE + _GAP) // width))
    alone = [] if view.picture is None else [("the source", None)]
    panels = [*alone, *zip(view.panels, finite(view.values_PRC), strict=True)]
    for number, (name, values_RC) in enumerate(panels):
        x, y = left + width * (number % each), top + height * (number // each)
        sheet.write(x, y + 10, _short(name))
        if view.picture is not None:
            sheet.picture(x, y + 16, across, down, view.picture.png)
        if values_RC is not None:
            _cover(sheet, name, values_RC, largest(whole), (x, y + 16), cell)
    return top + height * math.ceil(len(panels) / each)


def _cover(sheet: _Sheet, name: str, values_RC: Floats, scale: float, corner: tuple[float, float], cell: float) -> None:
    """Grey over patches: one mark for all that have about the same value, since a long moving picture has thousands."""
    steps_RC = np.round(_SHADES * np.clip(values_RC / scale, 0.0, 1.0))
    for step in np.unique(steps_RC):
        squares = "".join(
            f"M{corner[0] + cell * c:.1f} {corner[1] + cell * r:.1f}h{cell:.1f}v{cell:.1f}h-{cell:.1f}z"
            for r, c in np.argwhere(steps_RC == step)
        )
        share = float(step) / _SHADES
        said = f"<title>{text(f'{visible(name)}: {_number(share * scale)}')}</title>"
        style = f'fill="{_GREY}" fill-opacity="{_HIDDEN * (1 - share):.3f}" shape-rendering="crispEdges"'
        sheet.marks.append(f'<path {style} d="{squares}">{said}</path>')
    sheet.grow(corner[0] + cell * values_RC.shape[1], corner[1] + cell * values_RC.shape[0])


_PANELS = {
    "heat": _heat,
    "table": _table,
    "lines": _lines,
    "text": _text,
    "points": _points,
    "scatter": _scatter,
    "growth": _growth,
    "bars": _bars,
    "patches": _patches,
}

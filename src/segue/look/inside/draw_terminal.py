"""A view drawn in characters: blocks for shades, bars in eighths, words on a coloured ground where there is colour."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import cycle, zip_longest

import numpy as np

from segue.look.inside.view import (
    Floats,
    LogAxis,
    Picture,
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
from segue.look.page.markup import visible

_SHADES = " ░▒▓█"
_LEAST = 0.02
"""A share of the largest value that is not shown as nothing."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR = 24
_TIMES = 4
"""Columns of a sound between two of which the time is written."""
_LABEL = 14
"""Characters of a row's name that are shown."""
_CELL = 26
"""Characters of a number in a table with a text before it."""
_WARM = (255, 230, 229, 223, 222, 216, 215, 209, 203)
"""ANSI colours from white to red: surprising, or speaking for a decision."""
_COLD = (255, 254, 195, 159, 123, 117, 111, 75, 69)
"""The same to blue, for values below 0."""
_HEIGHT, _WIDTH = 24, 100
"""Lines and characters of a plane of points."""
_MARGIN = 8
"""Characters of an axis to the left of a plane."""


def draw(view: View, width: int, colour: bool) -> str:
    """The whole view: its title, its panels, its note; then those beside it."""
    parts = []
    for one in view.all:
        title = "\n".join(_wrapped(one.title, width))
        title = f"\x1b[1m{title}\x1b[0m" if colour else title
        note = "\n".join(part for line in one.note.split("\n") for part in _wrapped(line, width))
        parts.append("\n".join([title, "", *_panels(one, view, width, colour), *(["", note] if note else [])]))
    return "\n\n".join(parts)


def _wrapped(text: str, width: int) -> list[str]:
    """A line in as many lines as it takes."""
    return textwrap.wrap(shown(text), width) or [""]


def _panels(one: View, whole: View, width: int, colour: bool) -> list[str]:
    """The panels of one view; `whole` has those beside it, which share its scale."""
    match one.kind:
        case "heat":
            return _heat(one, top_of_heat(whole), width)
        case "table":
            return _table(one, width)
        case "lines":
            return _lines(one, width)
        case "text":
            return _text(one, largest(whole), width, colour)
        case "points":
            return _points(one, width)
        case "scatter":
            return _scatter(one, width)
        case "growth":
            return _growth(one, width)
        case "bars":
            return _bars(one, longest_bar(whole), width)
        case "patches":
            return _patches(one, largest(whole), width)


def shown(text: str) -> str:
    """Text that can do nothing to a terminal: what cannot be printed stands as its escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cells(text: str) -> int:
    """Places that a text takes in a terminal: Chinese characters take two, accents that stand alone none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fitted(text: str, width: int) -> str:
    """The text in exactly `width` places: filled with blanks, or cut with an ellipsis."""
    if cells(text) > width:
        while cells(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - cells(text))


def _token(token: str, width: int) -> str:
    return fitted(shown(visible(token)), width)


def bar(share: float, width: int = _BAR) -> str:
    """Blocks in eighths."""
    eighths = max(1, round(8 * width * share)) if share > 0 else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def figure(value: float) -> str:
    """A number in six places or a few more."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def _share(value: float) -> str:
    return f"{value:.4f}" if value >= 5e-5 else f"{value:.0e}" if value else "·"


# Heat


def _heat(view: View, top: float, width: int) -> list[str]:
    """Small multiples, as many side by side as fit; a matrix that is too wide goes on below."""
    label = min(_LABEL, max((cells(visible(row)) for row in view.rows), default=0))
    each = max(1, (width - label - 3) // 2)
    blocks = []
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        for begin in range(0, len(view.columns), each):
            part = slice(begin, begin + each)
            block = _matrix(name, view.rows, view.columns[part], values_RC[:, part] / top, label)
            blocks.append(block if view.picture is None else _below_sound(block, view, view.picture, part, label))
    return [*_side_by_side(blocks, width), _scale(top) + _signs(view)]


def _below_sound(block: list[str], view: View, picture: Picture, part: slice, label: int) -> list[str]:
    """A matrix whose columns are times: the spectrogram above it, a time at each fourth column below."""
    name, _, *rows = block
    times = "".join(fitted(column, 2 * _TIMES) for column in view.columns[part][::_TIMES])
    bands = [f"{' ' * label} {''.join(map(_shaded, levels))}" for levels in picture.levels_RC[:, part].tolist()]
    return [name, *bands, *rows, f"{' ' * label} {times} s"]


def _scale(top: float) -> str:
    return f"{_SHADES.strip()} 0 to {figure(top).rstrip('0').rstrip('.')}"


def _patches(view: View, top: float, width: int) -> list[str]:
    """The picture in shades of its darkness, and for each panel the shades of its values."""
    each = max(1, width // 2 - 2)
    drawn = {} if view.picture is None else {"the source": view.picture.levels_RC}
    drawn |= {name: values_RC / top for name, values_RC in zip(view.panels, view.values_PRC, strict=True)}
    blocks = []
    for name, shares_RC in drawn.items():
        for begin in range(0, len(view.columns), each):
            part = shares_RC[:, begin : begin + each]
            size = max(_LABEL, 2 * part.shape[1])
            rows = ["".join(map(_shaded, row)) for row in part.tolist()]
            blocks.append([fitted(shown(name), size), *rows])
    return [*_side_by_side(blocks, width), _scale(top) + _signs(view)]


def _signs(view: View) -> str:
    return "; a minus sign stands before what is below 0" if bool((view.values_PRC < 0).any()) else ""


def _matrix(name: str, rows: Sequence[str], columns: Sequence[str], values_RC: Floats, label: int) -> list[str]:
    """A line a row; two characters a column, the first sign of its name above it."""
    head = "".join(fitted(_first(column), 2) for column in columns)
    drawn = [shown(name), f"{' ' * label} {head}"]
    for row, values in zip(rows, values_RC.tolist(), strict=True):
        drawn.append(f"{_token(row, label)} {''.join(map(_shaded, values))}")
    return drawn


def _first(column: str) -> str:
    """The first sign of a column's name that is no blank."""
    name = shown(visible(column))
    return name.lstrip("␣")[:1] or name[:1]


def _shaded(share: float) -> str:
    """Two characters for a value between -1 and 1."""
    if not math.isfinite(share):
        return "? "
    level = round(abs(share) * (len(_SHADES) - 1))
    level = max(level, 1) if abs(share) >= _LEAST else 0  # attention over many tokens is small everywhere
    shade = _SHADES[min(len(_SHADES) - 1, level)]
    return f"-{shade}" if share < 0 and shade != " " else shade * 2


def _side_by_side(blocks: Sequence[list[str]], width: int) -> list[str]:
    """Blocks of lines in rows, a gap between two."""
    drawn: list[str] = []
    waiting: list[list[str]] = []
    used = 0
    for block in [*blocks, []]:
        size = max((cells(line) for line in block), default=0)
        if waiting and (not block or used + size > width):
            drawn += [*(" ".join(lines).rstrip() for lines in zip_longest(*waiting, fillvalue="")), ""]
            waiting, used = [], 0
        waiting.append([fitted(line, size + 2) for line in block])
        used += size + 3
    return drawn


# Tables


def _table(view: View, width: int) -> list[str]:
    """A line a row, the names of the columns above; columns that find no room go on below."""
    label = min(_LABEL, max((cells(shown(visible(row))) for row in view.rows), default=0))
    drawn: list[str] = []
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        numbers_RC = written(values_RC, [[shown(visible(cell)) for cell in row] for row in view.cells_RC])
        columns = [
            _right([shown(visible(column)), *numbers], _CELL if view.cells_RC else _LABEL)
            for column, numbers in zip(view.columns, _transposed(numbers_RC, len(view.columns)), strict=True)
        ]
        for part in _parted(columns, width - label):
            lines = zip(["", *view.rows], *part, strict=True)
            drawn += [shown(name), *(f"{_token(row, label)}{''.join(figures)}".rstrip() for row, *figures in lines), ""]
    return drawn[:-1]


def _transposed(rows: Sequence[Sequence[str]], columns: int) -> list[list[str]]:
    return [[row[column] for row in rows] for column in range(columns)]


def _right(texts: Sequence[str], most: int) -> list[str]:
    """Texts below each other, ending at the same place, two blanks before the longest; at most so many characters."""
    texts = [text if cells(text) <= most else fitted(text, most) for text in texts]
    width = max(map(cells, texts)) + 2
    return [" " * (width - cells(text)) + text for text in texts]


def _parted(columns: Sequence[list[str]], width: int) -> list[list[list[str]]]:
    """As many columns side by side as fit, at least one."""
    parts: list[list[list[str]]] = [[]]
    for column in columns:
        if parts[-1] and sum(cells(one[0]) for one in parts[-1]) + cells(column[0]) > width:
            parts.append([])
        parts[-1].append(column)
    return parts


# Lines, text, points, bars


def _lines(view: View, width: int) -> list[str]:
    """A row of blocks a line: the higher, the greater the value."""
    low, top = float(finite(view.values_PRC).min(initial=0.0)), largest(view)
    drawn = []
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        drawn.append(shown(name))
        for row, values in zip(view.rows, values_RC.tolist(), strict=True):
            heights = [round(7 * (value - low) / ((top - low) or 1)) if math.isfinite(value) else 0 for value in values]
            blocks = "".join("▁▂▃▄▅▆▇█"[height] for height in heights)[: width - _LABEL - 1]
            drawn.append(f"{_token(row, _LABEL)} {blocks}")
    return [*drawn, f"from {figure(low)} to {figure(top)}"]


def _text(view: View, top: float, width: int, colour: bool) -> list[str]:
    """Shaded words where there is colour; else a word a line, with its value and a bar."""
    drawn = []
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        drawn += [shown(name)] if len(view.panels) > 1 else []
        values = values_RC[0].tolist()
        if colour:
            drawn.append(
                "".join(_ground(token, value / top) for token, value in zip(view.columns, values, strict=True))
            )
            drawn.append(
                f"{shown(view.rows[0])}: {figure(sum(values))} in all, at most {figure(max(values, default=0))}"
            )
            continue
        label = min(width // 2, max((cells(visible(token)) for token in view.columns), default=1))
        for token, value in zip(view.columns, values, strict=True):
            share = min(1.0, abs(value) / top) if math.isfinite(value) else 1.0
            drawn.append(f"{_token(token, label)}  {figure(value):>8}  {bar(share, _room(width, label + 12))}".rstrip())
    return drawn


def _ground(token: str, share: float) -> str:
    shades = _WARM if share >= 0 else _COLD
    place = len(shades) - 1 if not math.isfinite(share) else min(len(shades) - 1, int(abs(share) * len(shades)))
    word = shown(token.replace("\n", "↵"))
    return f"\x1b[38;5;16;48;5;{shades[place]}m{word or ' '}\x1b[0m"


def _points(view: View, width: int) -> list[str]:
    """Words on a plane; a word that finds no room is a dot."""
    width = min(width, _WIDTH)
    drawn = []
    for values_RC in view.values_PRC:
        plane = [[" "] * width for _ in range(_HEIGHT)]
        x, y = (scaled(values_RC[:, i]) for i in (0, 1))
        for row, a, b in zip(view.rows, x.tolist(), y.tolist(), strict=True):
            _put(plane[round((1 - b) * (_HEIGHT - 1))], round(a * (width - 1)), shown(row))
        drawn += ["".join(line).rstrip() for line in plane]
    return drawn


def _scatter(view: View, width: int) -> list[str]:
    """Points with their names on logarithmic axes: powers of ten to the left and below."""
    drawn = []
    for values_RC in view.values_PRC:
        points = [(row, "●", float(x), float(y)) for row, (x, y) in zip(view.rows, values_RC[:, :2], strict=True)]
        drawn += [shown(view.columns[1]), *_plane(points, min(width, _WIDTH) - _MARGIN)]
        drawn.append(f"{shown(view.columns[0]):>{min(width, _WIDTH)}}")
    return drawn


def _growth(view: View, width: int) -> list[str]:
    """Lines on logarithmic axes: a sign a row, its name at the last point."""
    drawn = []
    for name, values_RC in zip(view.panels, view.values_PRC, strict=True):
        points = []
        for row, sign, values in zip(view.rows, cycle("●○▲△◆◇"), values_RC.tolist(), strict=False):
            places = list(zip(numbers_of(view.columns), values, strict=True))
            points += [("" if place != places[-1] else row, sign, *place) for place in places]
        drawn += [shown(name), *_plane(points, min(width, _WIDTH) - _MARGIN), ""]
    return drawn[:-1]


def _plane(points: Sequence[tuple[str, str, float, float]], width: int) -> list[str]:
    """Points (name, sign, x, y) with their names, where there is room for them, and both axes."""
    across, up = (log_axis(np.array([point[i] for point in points])) for i in (2, 3))
    plane = [[" "] * width for _ in range(_HEIGHT)]
    names = []
    for name, sign, x, y in points:
        a, b = across.place(x), up.place(y)
        if math.isfinite(a + b):
            line, place = plane[round((1 - b) * (_HEIGHT - 1))], round(a * (width - 1))
            line[place] = sign
            names.append((line, place, shown(name)))
    for line, place, name in names:
        _name(line, place, name)
    return [*_framed(plane, up), *_below(across, width)]


def _name(line: list[str], place: int, name: str) -> None:
    """Write the name of a point after it or before it, wherever there is room; else nowhere."""
    for begin in (place + 2, place - 1 - len(name)):
        around = line[max(0, begin - 1) : begin + len(name) + 1]
        if begin >= 0 and begin + len(name) <= len(line) and all(c in " " for c in around):
            line[begin : begin + len(name)] = name
            return


def _framed(plane: Sequence[list[str]], up: LogAxis) -> list[str]:
    """The lines of a plane with the axis at their left: a power of ten where it stands."""
    marks = {round((1 - (k - up.low) / (up.high - up.low)) * (len(plane) - 1)): k for k in range(up.low, up.high + 1)}
    heads = [
        f"{f'1e{marks[i]}':>{_MARGIN - 2}} ┤" if i in marks else " " * (_MARGIN - 1) + "│" for i in range(len(plane))
    ]
    return [head + "".join(line).rstrip() for head, line in zip(heads, plane, strict=True)]


def _below(across: LogAxis, width: int) -> list[str]:
    """The axis below a plane, and its powers of ten."""
    line, names = ["─"] * width, [" "] * (width + 4)
    for power in range(across.low, across.high + 1):
        place = round((power - across.low) / (across.high - across.low) * (width - 1))
        line[place] = "┴"
        begin = max(0, min(place - 1, width - 4))
        names[begin : begin + len(f"1e{power}")] = f"1e{power}"
    return [" " * (_MARGIN - 1) + "└" + "".join(line), " " * _MARGIN + "".join(names).rstrip()]


def _put(line: list[str], place: int, word: str) -> None:
    """Write a word where nothing stands, from its place on or up to it."""
    for begin in (place, place - len(word) + 1):
        around = line[max(0, begin - 1) : begin + len(word) + 1]
        if begin >= 0 and begin + len(word) <= len(line) and all(c == " " for c in around):
            line[begin : begin + len(word)] = word
            return
    if line[place] == " ":
        line[place] = "·"


def _room(width: int, taken: int) -> int:
    """Characters of the longest bar beside what takes so many of a line."""
    return max(4, min(_BAR, width - taken))


def _bars(view: View, top: float, width: int) -> list[str]:
    """A table: the name, the sum, a bar, and the parts where a bar has several; below it, if a line has no room."""
    drawn = []
    parts = range(len(view.columns) if len(view.columns) > 1 else 0)
    label = min(max((cells(visible(row)) for row in view.rows), default=1), max(_LABEL, width // 2))
    beside = label + 10 + _BAR + 10 * len(parts) <= width
    length = _BAR if beside else _room(width, label + 10)
    for name, values_RC in zip(view.panels, finite(view.values_PRC), strict=True):
        bars = [
            f"{_token(row, label)}  {figure(total)}  {fitted(bar(total / top, length), length)}".rstrip()
            for row, total in zip(view.rows, values_RC.sum(-1).tolist(), strict=True)
        ]
        head = f"{fitted('', label)}  {shown(name)}"
        if parts and beside:
            drawn += _with_parts(view, values_RC, parts, [fitted(line, label + 10 + _BAR) for line in (head, *bars)])
            continue
        drawn += [*([head] if parts else []), *bars]
        each = max(1, (width - label) // 10)
        for begin in parts[::each]:
            names = [fitted("", label), *(_token(row, label) for row in view.rows)]
            drawn += ["", *_with_parts(view, values_RC, parts[begin : begin + each], names)]
    return drawn or ["Nothing: all values are 0."]


def _with_parts(view: View, values_RC: Floats, parts: range, lines: Sequence[str]) -> list[str]:
    """Lines, a head and one a row, each with some of the parts of its bar, and with their cells below it."""
    drawn = [lines[0] + "".join(f"{shown(view.columns[part]):>10}" for part in parts)]
    for i, line in enumerate(lines[1:]):
        drawn.append(line + "".join(f"{_share(float(values_RC[i, part])):>10}" for part in parts))
        found = [view.cells_RC[i][part] for part in parts] if view.cells_RC else []
        if any(found):
            drawn.append(" " * cells(line) + "".join(f"{cell:>10}" for cell in found))
    return drawn

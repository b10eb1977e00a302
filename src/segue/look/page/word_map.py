"""The map of word vectors, and the lines of an analogy: where they are parallel, adding and taking away works."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from segue.look.page.markup import hue, text
from segue.look.page.projection import Place, WordMap

_WIDTH, _HEIGHT, _MARGIN = 1040.0, 560.0, 46.0
_LETTER, _LINE = 6.6, 13.0
"""Pixels that a letter of a label takes, about."""

Box = tuple[float, float, float, float]


def word_map_charts(shown: WordMap) -> str:
    """Both pictures, each with a sentence."""
    groups = "".join(_words(shown.groups))
    said = (
        "Some frequent words that are unlike one another, each with its nearest neighbours in one colour, on the plane "
        "in which these vectors differ most. Words that find no room are dots; point at one to read it."
    )
    page = f'<p class="aside">{said}</p><figure>{_frame("Map of the words", groups)}</figure>'
    if shown.pairs:
        said = (
            f"Pairs in one relation: {shown.relation}. Where the lines are parallel and of one length, the one less "
            "the other is the same, and an analogy comes out."
        )
        page += f'<p class="aside">{said}</p><figure>{_frame("Lines of an analogy", "".join(_lines(shown)))}</figure>'
    return page


def _frame(name: str, inside: str) -> str:
    box = f'viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" width="100%"'
    return f'<svg {box} role="img" aria-label="{text(name)}">{inside}</svg>'


def _scales(places: Sequence[Place]) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """From the plane to pixels."""

    def scale(values: list[float], size: float) -> Callable[[float], float]:
        low, room = min(values), (max(values) - min(values)) or 1.0
        return lambda value: _MARGIN + (size - 2 * _MARGIN) * (value - low) / room

    return scale([p.x for p in places], _WIDTH), scale([p.y for p in places], _HEIGHT)


def _words(groups: Sequence[Sequence[Place]]) -> list[str]:
    x, y = _scales([place for group in groups for place in group])
    taken: list[Box] = []
    drawn = []
    # First the words that groups are named after, so that they have room.
    ordered = [(i, place, True) for i, group in enumerate(groups) for place in group[:1]]
    ordered += [(i, place, False) for i, group in enumerate(groups) for place in group[1:]]
    for colour, place, first in ordered:
        drawn.append(_label(place, x(place.x), y(place.y), colour, first, taken))
    return drawn


def _lines(shown: WordMap) -> list[str]:
    x, y = _scales([place for pair in shown.pairs for place in pair])
    taken: list[Box] = []
    drawn = []
    for a, b in shown.pairs:
        ends = f'x1="{x(a.x):.1f}" y1="{y(a.y):.1f}" x2="{x(b.x):.1f}" y2="{y(b.y):.1f}"'
        drawn.append(f'<line class="{hue(0)}" style="stroke:var(--hue);opacity:.6" {ends}/>')
    for pair in shown.pairs:
        for colour, place in enumerate(pair):
            drawn.append(_label(place, x(place.x), y(place.y), colour, False, taken))
    return drawn


def _label(place: Place, x: float, y: float, colour: int, bold: bool, taken: list[Box]) -> str:
    """A dot, and the word beside it if it covers no other."""
    width = _LETTER * len(place.word) + 8
    left = x - 6 - width if x + 6 + width > _WIDTH else x + 6
    box = (left, y - _LINE / 2, left + width, y + _LINE / 2)
    free = not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
    word = text(place.word)
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:var(--hue)"><title>{word}</title></circle>'
    if not free:
        return f'<g class="{hue(colour)}">{dot}</g>'
    taken.append(box)
    weight = ";font-weight:700" if bold else ""
    style = f"font-size:12px;fill:var(--hue){weight}"
    return f'<g class="{hue(colour)}">{dot}<text x="{left:.1f}" y="{y + 4:.1f}" style="{style}">{word}</text></g>'

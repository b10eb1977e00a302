"""A view by itself: strict JSON, well-formed pictures that escape what they show, and characters that fit."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import get_args
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.look.inside.draw_terminal import cells, fitted, shown
from segue.look.inside.view import Kind, View

NASTY = '<script>&"\x00\x1b[31m\n'
KINDS = get_args(Kind)


def made(kind: Kind, value: float = 0.5, name: str = "a", beside: tuple[View, ...] = ()) -> View:
    """Two panels, three rows, four columns."""
    values = np.full((2, 3, 4), value)
    values[0, 0, 1] = 0.25
    names = [tuple(f"{name}{i}" for i in range(count)) for count in (2, 3, 4)]
    return View(kind, f"title {name}", f"note {name}", *names, values, beside=beside)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, 0.5, -2.0, np.inf, -np.inf, np.nan])
def test_any_number_can_be_shown_and_sent(kind: Kind, value: float) -> None:
    view = made(kind, value)
    ElementTree.fromstring(view.svg())
    assert view.terminal()
    sent = json.loads(view.json(), parse_constant=lambda word: pytest.fail(word))
    assert sent["values"][1][2][3] == (value if np.isfinite(value) else None)


class Parser(HTMLParser):
    """Which elements a page has, each closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_parses_and_loads_nothing(kind: Kind) -> None:
    page = made(kind, name=NASTY, beside=(made(kind),)).html()
    parser = Parser()
    parser.feed(page.removeprefix("<!doctype html>"))
    parser.close()
    assert not parser.open and "svg" in parser.seen and not parser.seen & {"script", "link", "img", "iframe", "a"}
    assert not re.search(r"(href|src)=|url\(", page) and "<script" not in page and "&lt;script" in page


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("colour", [False, True])
def test_nothing_that_is_shown_can_command_a_terminal(kind: Kind, colour: bool) -> None:
    drawn = made(kind, name=NASTY).terminal(80, colour)
    own = re.sub(r"\x1b\[(0|1|38;5;16;48;5;\d+)m", "", drawn)
    assert "\x1b" not in own and "\x00" not in own
    assert "\x1b[31m" not in drawn


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_wide_matrix_goes_on_below(width: int) -> None:
    names = tuple(f"word{i}" for i in range(90))
    view = View("heat", "t", "n", ("p",), names[:3], names, np.ones((1, 3, 90)))
    drawn = view.terminal(width).split("\n")
    assert max(map(cells, drawn)) <= width and "".join(drawn).count("██") == 3 * 90


def test_bars_are_as_long_as_their_share() -> None:
    view = View("bars", "t", "", ("p",), ("a", "b", "c"), ("p",), np.array([[[0.5], [0.25], [0.0]]]))
    a, b, c = (line.count("█") for line in view.terminal().split("\n")[2:5])
    assert a == 2 * b > 0 and c == 0
    other = view._replace(values_PRC=view.values_PRC * 2)
    assert view._replace(beside=(other,)).terminal().split("\n")[2].count("█") == a / 2  # one scale for both


def test_a_part_of_a_bar_has_its_count() -> None:
    view = made("bars")._replace(cells_RC=(("3−0.50", "", "", ""),) + (("",) * 4,) * 2)
    assert "3−0.50" in view.terminal() and "(3−0.50)" in view.svg() and view.to_dict()["cells"][0][0] == "3−0.50"


@given(st.text(), st.integers(2, 30))
def test_names_fit_their_place(text: str, width: int) -> None:
    assert cells(fitted(shown(text), width)) == width


@given(st.text(max_size=8))
def test_any_name_makes_a_well_formed_picture(name: str) -> None:
    for kind in KINDS:
        ElementTree.fromstring(made(kind, name=name).svg())


@pytest.mark.parametrize("width", [40, 60, 160])
def test_bars_and_their_parts_fit_the_terminal(width: int) -> None:
    rows = ("a", "a long name of a row that is cut")
    values = np.linspace(0.01, 0.9, 12).reshape(1, 2, 6)
    cells_RC = tuple(tuple(f"{row}−{part}" for part in range(6)) for row in range(2))
    view = View("bars", "title " * 20, "note " * 30, ("p",), rows, tuple(f"order {i}" for i in range(6)), values)
    drawn = view._replace(cells_RC=cells_RC).terminal(width)
    assert max(map(cells, drawn.split("\n"))) <= width
    for found in ("order 0", "order 5", "0−0", "1−5", "█"):
        assert found in drawn


@pytest.mark.parametrize("colour", [False, True])
def test_a_text_of_long_words_fits_the_terminal(colour: bool) -> None:
    view = View("text", "t", "", ("p",), ("bits",), ("a", "word" * 9), np.array([[[0.5, 2.0]]]))
    drawn = re.sub(r"\x1b\[[\d;]*m", "", view.terminal(40, colour))
    assert max(map(cells, drawn.split("\n"))) <= 40

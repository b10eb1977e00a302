"""The head of a model's file in terminals of several widths: prose fits, and no equation is torn."""

from __future__ import annotations

import ast
import re

import pytest

from segue.look.explain.layout import equation_lines, laid_out
from segue.models import kinds, source_file

HEAD = """A model (Somebody 1999).

    x_t = E[w_t] + P[t]                     vectors of the token and of its place
    h   = cell(x_t, h_t-1)                  a state
                                            (layers/recurrent.py)

The state is what the model knows. With a = 1 and b = 0, where it begins, it is D = n1 / (n1 + 2·n2) exactly.
"""


def test_what_fits_stays_as_it_is() -> None:
    assert laid_out(HEAD, 120) == HEAD.split("\n")


@pytest.mark.parametrize("width", [36, 44, 60])
def test_a_long_equation_is_broken_where_no_parenthesis_is_open(width: int) -> None:
    equation = "p(w|h) = (c(h,w) − D) / c(h) + (D1 · N1 + D2 · N2) / c(h) · p' = 0.2268,  D = n1 / (n1 + n2)"
    lines = equation_lines(equation, width, "  ")
    assert len(lines) > 1 and all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(equation.split())
    assert all(line.count("(") == line.count(")") for line in lines)
    assert equation_lines(equation, 200, "  ") == [f"  {equation}"]


def test_remarks_go_below_their_equations() -> None:
    assert laid_out(HEAD, 44) == [
        "A model (Somebody 1999).",
        "",
        "    x_t = E[w_t] + P[t]",
        "        vectors of the token and of its",
        "        place",
        "    h   = cell(x_t, h_t-1)",
        "        a state",
        "        (layers/recurrent.py)",
        "",
        "The state is what the model knows. With",
        "a = 1 and b = 0, where it begins, it is",
        "D = n1 / (n1 + 2·n2) exactly.",
        "",
    ]


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("kind", kinds())
def test_every_head_fits_and_keeps_its_equations(kind: str, width: int) -> None:
    head = ast.get_docstring(ast.parse(source_file(kind).read_text(encoding="utf-8"))) or ""
    shown = laid_out(head, width)
    assert " ".join(shown).split() == head.split()  # nothing is lost, and nothing moves
    for line in shown:
        assert len(line) <= width or re.search("= |·", line), line
    for line in head.split("\n"):
        for equation in re.findall(r"\S+ = softmax\(.*?\)(?: |$)", line) if line.startswith("    ") else ():
            assert any(equation.strip() in one for one in shown)

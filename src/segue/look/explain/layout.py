"""The head of a model's file for a terminal of any width: prose is wrapped, equations are not.

Indented lines are equations, with remarks after three blanks or more. Where they do not fit, a remark goes to a line of
its own below its equation; an equation that is too long by itself stays on one line all the same. Equations
with numbers in them, which are longer, are broken where no parenthesis is open.
"""

from __future__ import annotations

import re
from itertools import groupby
from textwrap import wrap

_EQUATION = re.compile(r"= |·")
_INLINE = re.compile(r" ([=·+/-]) ")
"""A sign inside prose, at which no line should end."""
_BLANK = "\N{NO-BREAK SPACE}"


def laid_out(text: str, width: int) -> list[str]:
    """Return the lines of a text for a terminal of this width."""
    lines: list[str] = []
    for kind, group in groupby(text.split("\n"), _kind):
        block = list(group)
        if kind == "prose":
            lines += _wrapped(" ".join(block), width)
        elif kind == "blank" or all(len(line) <= width for line in block):
            lines += block
        else:
            lines += [part for line in block for part in _parted(line, width)]
    return lines


def _kind(line: str) -> str:
    return "blank" if not line.strip() else "equation" if line.startswith("    ") else "prose"


def _parted(line: str, width: int) -> list[str]:
    """A line of equations in parts, each on a line of its own; remarks are wrapped."""
    deep = len(line) - len(line.lstrip()) > 8  # a remark that goes on from the line above
    parts = [("    " if place == 0 and not deep else " " * 8, part) for place, part in enumerate(_split(line))]
    found: list[str] = []
    for indent, part in parts:
        found += [indent + part] if _EQUATION.search(part) else _wrapped(part, width, indent)
    return found


def equation_lines(equation: str, width: int, indent: str = "") -> list[str]:
    """An equation in lines of this width: broken before a sign or after a comma where no parenthesis is open."""
    if len(indent + equation) <= width:
        return [indent + equation]
    lines: list[str] = []
    for term in _terms(equation):
        longer = f"{lines[-1]} {term}" if lines else indent + term
        if lines and len(longer) > width:
            lines.append(f"{indent}    {term}")
        else:
            lines[-1:] = [longer]
    return [part for line in lines for part in ([line] if len(line) <= width else _wrapped(line, width, indent))]


def _terms(equation: str) -> list[str]:
    """The parts of an equation at whose ends it may be broken."""
    depth, begun, terms = 0, 0, []
    for place, sign in enumerate(equation):
        depth += (sign in "([{") - (sign in ")]}")
        after = equation[place + 1 : place + 3]
        if sign == " " and depth == 0 and (after in ("+ ", "= ", "− ") or equation[place - 1] == ","):
            terms.append(equation[begun:place])
            begun = place + 1
    return [term.strip() for term in (*terms, equation[begun:]) if term.strip()]


def _split(line: str) -> list[str]:
    """At three blanks or more, or after a name at the beginning; not before the = of an equation."""
    return re.split(r" {3,}(?![ =])|(?<=[a-z_]{4}) {2}(?=p\()", line.strip())


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    joined = _INLINE.sub(rf"{_BLANK}\1{_BLANK}", text)
    lines = wrap(joined, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(_BLANK, " ") for line in lines]

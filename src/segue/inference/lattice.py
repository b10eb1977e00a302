"""A small lattice: one line that stands for several texts, as a recogniser of speech or print gives alternatives.

    the (cow|caw) eats (grass|glass)        four paths, from "the cow eats grass" to "the caw eats glass"

An alternative may be empty, part of a word, or several words; they are not nested. A backslash before ( ) | or another
backslash makes it an ordinary character. Several blanks become one, so that an empty alternative leaves no gap.
"""

from __future__ import annotations

import math
import re
from itertools import product

from segue.errors import InputError

MOST = 10_000
"""Most paths of one lattice: each is scored by itself."""
_PART = re.compile(r"\\(?P<escaped>[()|\\])|(?P<sign>[()|])|(?P<plain>[^()|\\]+|\\)")


def paths(lattice: str) -> list[str]:
    """List the texts that a lattice stands for, each once, in the order of their alternatives."""
    slots = _slots(lattice)
    count = math.prod(map(len, slots))
    if count > MOST:
        raise InputError(
            f"'{_shown(lattice)}' has {count:,} paths. Expected at most {MOST:,}, since each is scored by itself: "
            "leave out unlikely alternatives, or cut the line in two."
        )
    texts = ("".join(parts) for parts in product(*slots))
    return list(dict.fromkeys(re.sub(" +", " ", text).strip(" ") for text in texts))


def _slots(lattice: str) -> list[list[str]]:
    """Split a lattice into slots; each has its alternatives, plain text is a slot with one."""
    slots: list[list[str]] = [[""]]
    inside = False
    for found in _PART.finditer(lattice):
        sign = found["sign"]
        if sign == "(" and not inside:
            slots.append([""])
            inside = True
        elif sign == ")" and inside:
            slots.append([""])
            inside = False
        elif sign == "|" and inside:
            slots[-1].append("")
        elif sign in ("(", ")"):
            raise _unbalanced(lattice, found.start(), sign)
        else:
            slots[-1][-1] += found["escaped"] or found["plain"] or "|"
    if inside:
        raise _unbalanced(lattice, len(lattice), "the end of the line")
    return slots


def _unbalanced(lattice: str, place: int, found: str) -> InputError:
    return InputError(
        f"'{_shown(lattice)}': found {found} at character {place + 1}. Expected alternatives such as (cow|caw), not "
        "one in another; a parenthesis of the text itself is written with a backslash before it."
    )


def _shown(lattice: str) -> str:
    return lattice if len(lattice) <= 60 else lattice[:60] + "…"

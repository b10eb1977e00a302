"""A delayed copy, made by seed: a letter, a clock that ticks, and the same letter again. Only memory can predict it.

    c0123456789ABCDEc

The letter is one of eight, equally likely, and costs 3 bits when it first comes. All the rest is certain to a model
that remembers it: the clock says itself what comes next, so that nothing else needs a memory. The best possible score
is known exactly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator

from segue.data.example import Example

LINES = 20_000
LETTERS = "abcdefgh"
CLOCK = "0123456789ABCDE"


def lines(n: int = LINES, seed: int = 0) -> Iterator[Example]:
    """The first `n` lines of the endless corpus that the seed names."""
    draw = random.Random(f"copy {seed}")
    for number in range(1, n + 1):
        letter = LETTERS[int(draw.random() * len(LETTERS))]
        yield Example(letter + CLOCK + letter, path="copy", line=number)


def best(examples: Iterable[Example]) -> dict[str, float]:
    """The best possible score: the bits of the letters that are new, over all bytes, with the lines' ends."""
    sizes = [len(example.text) + 1 for example in examples]
    return {"bits_per_byte": len(sizes) * math.log2(len(LETTERS)) / sum(sizes)}

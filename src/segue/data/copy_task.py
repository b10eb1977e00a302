"""A synthetic delayed-copy task, made by seed: a letter, a fixed sequence, and the same letter again. It tests memory.

    c0123456789ABCDEc

The letter is one of eight, equally likely, and costs 3 bits when it first comes. All the rest is certain to a model
that remembers it: each sign of the sequence determines the next, so that nothing else needs a memory. The best possible
score is known exactly.
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
    """Yield the first `n` lines of the endless corpus of this seed."""
    draw = random.Random(f"copy {seed}")
    for number in range(1, n + 1):
        letter = LETTERS[int(draw.random() * len(LETTERS))]
        yield Example(letter + CLOCK + letter, path="copy", line=number)


def best(examples: Iterable[Example]) -> dict[str, float]:
    """Compute the best possible score: the bits of the first letters, over all bytes, with line ends."""
    sizes = [len(example.text) + 1 for example in examples]
    return {"bits_per_byte": len(sizes) * math.log2(len(LETTERS)) / sum(sizes)}

"""Modified Kneser-Ney smoothing: its equations, and the discounts that it takes from counts (Chen & Goodman 1998).

Interpolated Kneser-Ney predicts a word w after a history h from h and from h', which is h without its first word:

    p(w|h) = (c(h,w) - D(c(h,w))) / c(h) + (D1·N1(h) + D2·N2(h) + D3·N3(h)) / c(h) · p(w|h')

c(h,w) is a plain count at the highest order; below, it is the number of different words that stand before (h,w). c(h)
is the sum of c(h,w) over w. N1(h), N2(h), N3(h) are how many words have c(h,w) = 1, 2, and 3 or more. D is 0 for a
count of 0, and D1, D2, D3 for counts of 1, 2, and 3 or more. With n1 … n4, the number of n-grams of an order with a
count of 1 … 4,

    D = n1 / (n1 + 2·n2)      D1 = 1 - 2·D·n2/n1      D2 = 2 - 3·D·n3/n2      D3 = 3 - 4·D·n4/n3

Plain Kneser-Ney and absolute discounting take D from every count.

The recursion above is computed in four places, for speed, since each reads another table: lookup.py (sorted n-grams in
memory-mapped arrays), adaptive_counts.py (the same, and counts that grow while reading), hashed_ngrams.py (contexts of
words and classes, by their hash) and lazy_trie.py (all symbols at once, from a trie that is made as far as needed).
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from segue.compiling import njit

ONE_DISCOUNT = 0.75
"""D of a text that is too small to estimate it: n1 or n2 is 0."""
THREE_DISCOUNTS = (0.5, 1.0, 1.5)
"""D1, D2, D3 of a text that is too small: n1, n2 or n3 is 0, or a discount is above its count or not above 0
(which would leave nothing to words that a context has never seen)."""
_LEAST, _BELOW = 0.05, 0.001
"""A discount that is estimated while the text is read is at least the one, and lies below its count by the other."""


def one_discount(n: NDArray[np.int64]) -> float:
    """D, by n1 … n4."""
    return _one(float(n[0]), float(n[1])) if n[0] and n[1] else ONE_DISCOUNT


def three_discounts(n: NDArray[np.int64]) -> tuple[float, float, float]:
    """D1, D2, D3, by n1 … n4."""
    if not n[:3].all():
        return THREE_DISCOUNTS
    three = _three(*(float(number) for number in n[:4]))
    return three if all(0 < d <= c for c, d in enumerate(three, 1)) else THREE_DISCOUNTS


@register_jitable
def _one(n1: float, n2: float) -> float:
    return n1 / (n1 + 2 * n2)


@register_jitable
def _three(n1: float, n2: float, n3: float, n4: float) -> tuple[float, float, float]:
    one = _one(n1, n2)
    return 1 - 2 * one * n2 / n1, 2 - 3 * one * n3 / n2, 3 - 4 * one * n4 / n3


@njit(cache=True, nogil=True)
def update_discounts(tally, discounts):
    """Estimate discounts[k, 1:] = D1, D2, D3 of each order while the text is read; tally[k, 1:5] are n1 … n4.

    1 is added to each of n1 … n4, and the discounts are kept in bounds, so that they are usable from the first word."""
    for k in range(len(tally)):
        three = _three(tally[k, 1] + 1.0, tally[k, 2] + 1.0, tally[k, 3] + 1.0, tally[k, 4] + 1.0)
        for c in range(3):
            discounts[k, c + 1] = min(max(three[c], _LEAST), c + 1 - _BELOW)

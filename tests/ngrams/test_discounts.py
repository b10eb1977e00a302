"""Kneser-Ney's discounts: Chen and Goodman's equations in exact fractions, and texts too small for them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.ngrams.discounts import ONE_DISCOUNT, THREE_DISCOUNTS, one_discount, three_discounts, update_discounts

COUNTS = st.lists(st.integers(0, 50), min_size=4, max_size=4)


def exact(n: list[int]) -> tuple[Fraction, ...] | None:
    """D, D1, D2, D3 as the paper writes them; None where a number that is divided by is 0."""
    if not all(n[:3]):
        return None
    d = Fraction(n[0], n[0] + 2 * n[1])
    return d, *(c - (c + 1) * d * Fraction(n[c], n[c - 1]) for c in (1, 2, 3))


@settings(deadline=None)
@given(COUNTS)
def test_discounts_are_those_of_the_paper(n: list[int]) -> None:
    right, found = exact(n), three_discounts(np.array(n))
    usable = right is not None and all(0 < d <= c for c, d in enumerate(right[1:], 1))
    on_the_border = right is not None and any(d in (0, c) for c, d in enumerate(right[1:], 1))  # rounding decides there
    if not on_the_border:
        assert found == (pytest.approx([float(d) for d in right[1:]], abs=1e-12) if usable else THREE_DISCOUNTS)
    one = one_discount(np.array(n))
    assert one == (pytest.approx(n[0] / (n[0] + 2 * n[1])) if n[0] and n[1] else ONE_DISCOUNT)


@settings(deadline=None)
@given(st.lists(COUNTS, min_size=1, max_size=4))
def test_discounts_while_reading_have_one_added_and_stay_in_bounds(rows: list[list[int]]) -> None:
    tally = np.array([[0, *n, 0] for n in rows])
    discounts = np.zeros((len(rows), 4))
    update_discounts(tally, discounts)
    assert (discounts[:, 0] == 0).all()
    for n, found in zip(rows, discounts[:, 1:], strict=True):
        right = exact([number + 1 for number in n])
        assert right is not None
        bounded = [min(max(float(d), 0.05), c - 0.001) for c, d in enumerate(right[1:], 1)]
        assert found == pytest.approx(bounded, abs=1e-12)

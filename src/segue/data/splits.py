"""Split a corpus into training, validation and test text.

Positions 0 … n - 1 (units in their order, characters of a single document, or rows by their shuffled rank) are divided
into intervals: training first, then validation, then test. With a fold (3/10), test is the third tenth, and the rest is
divided into training and validation.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
from numpy.typing import NDArray

from segue.data.config import Config
from segue.errors import InputError

Intervals = list[tuple[int, int]]


@dataclass(frozen=True)
class Plan:
    """The intervals of each split, in order; empty ones are left out."""

    total: int
    intervals: dict[str, Intervals]

    def size(self, split: str) -> int:
        return sum(high - low for low, high in self.intervals[split])

    def member(self, positions: NDArray[np.int64], split: str) -> NDArray[np.bool_]:
        """Return, for each position, whether it belongs to the split."""
        inside = np.zeros(positions.shape, dtype=bool)
        for low, high in self.intervals[split]:
            inside |= (positions >= low) & (positions < high)
        return inside


def plan(config: Config, total: int, what: str) -> Plan:
    """Divide `total` positions; `what` names them in the error if there are too few."""
    validation, test = _share(config.validation), _share(config.test)
    fold = config.fold()
    if fold is None:
        sizes = _sizes(config, total, [validation, test], what)
        return _cut(total, sizes[0], sizes[1], (total - sizes[2], total))
    which, of = fold
    low, high = (which - 1) * total // of, which * total // of
    if low == high:
        raise _too_few(config, total, what)
    sizes = _sizes(config, total - (high - low), [validation], what)
    return _cut(total, sizes[0], sizes[1], (low, high))


def _share(value: str | float) -> Fraction:
    """Return the share as a fraction: exactly 0.05, not the nearest binary number; 0 for a path."""
    return Fraction(0) if isinstance(value, str) else Fraction(str(value))


def _sizes(config: Config, total: int, shares: list[Fraction], what: str) -> list[int]:
    """Compute the sizes of training and of each held-out part: cuts at floor((1 - share)·n), at least 1 a share."""
    bounds = [floor((1 - sum(shares[i:])) * total) for i in range(len(shares))] + [total]
    sizes = [after - before for before, after in pairwise(bounds)]
    sizes = [max(size, 1) if share else 0 for size, share in zip(sizes, shares, strict=True)]
    # If there are few units, the shares may take them all: the largest part then gives one back.
    while sum(sizes) >= total and max(sizes) > 1:
        sizes[sizes.index(max(sizes))] -= 1
    if sum(sizes) >= total:
        raise _too_few(config, total, what)
    return [total - sum(sizes), *sizes]


def _cut(total: int, train: int, validation: int, test: tuple[int, int]) -> Plan:
    """Assign training, then validation, to what `test` leaves; either may have text on both sides of `test`."""
    low, high = test
    skipped = high - low
    bounds = {"train": (0, train), "validation": (train, train + validation)}
    intervals = {"test": [test] if low < high else []}
    for split, (begin, end) in bounds.items():
        parts = [(begin, min(end, low)), (max(begin, low) + skipped, end + skipped)]
        intervals[split] = [(a, b) for a, b in parts if a < b]
    return Plan(total, intervals)


def _too_few(config: Config, total: int, what: str) -> InputError:
    asked = f"data.validation={config.validation}, data.test={config.test}"
    return InputError(
        f"{config.path} has only {total} {what}, too few for {asked}. Expected at least one for each part; give more, "
        "cut it more finely (data.unit=line), hold nothing out (data.validation=0), or name files to hold out."
    )

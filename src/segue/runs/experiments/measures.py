"""What a claim may judge of an encoder-decoder besides the figure of all rows: some rows or places by themselves.

length            the figure of sources of at most `at` words (short), and of longer ones (long)
teacher_forcing   the share of the reference's tokens that are predicted, after the reference's own tokens (forced) and
                  after the model's (free), at the first `at` places (early) and at those after them (late)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.data.example import Example
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.inference.teacher_forcing import BothRuns, both_runs

Floats = NDArray[np.float64]
Curve = tuple[list[float], list[float]]
"""x and y of the points of a picture's line."""
_MOST_POINTS = 12


class Measured(NamedTuple):
    """What was measured of one run."""

    parts: dict[str, Evaluation]
    lines: dict[str, Curve]
    """The lines of the picture by their names; "": the variant's own."""


class Measure(NamedTuple):
    """A way to measure: the names of its parts, the picture's x axis, and what measures a run."""

    parts: tuple[str, ...]
    x_title: str
    of: Callable[[Opened, Evaluation, Sequence[Example], int], Measured]


def _by_length(opened: Opened, whole: Evaluation, rows: Sequence[Example], at: int) -> Measured:
    lengths_N = np.array([len(row.text.split()) for row in rows])
    parts = {"short": _of_rows(whole, lengths_N <= at), "long": _of_rows(whole, lengths_N > at)}
    ends = np.unique(np.quantile(lengths_N, np.linspace(0, 1, _MOST_POINTS + 1)[1:], method="higher"))
    bins_N = np.searchsorted(ends, lengths_N)
    xs = [float(lengths_N[bins_N == one].mean()) for one in range(len(ends))]
    ys = [_of_rows(whole, bins_N == one).value for one in range(len(ends))]
    return Measured(parts, {"": (xs, ys)})


def _of_rows(whole: Evaluation, chosen_N: NDArray[np.bool_]) -> Evaluation:
    """The same figure of some rows."""
    result = {key: whole.result[key] for key in ("task", "figure", whole.figure)}
    some = replace(whole, result=result, pieces_NK=whole.pieces_NK[chosen_N], examples=[], lengths_N=None)
    return some.refigured()


def _by_place(opened: Opened, whole: Evaluation, rows: Sequence[Example], at: int) -> Measured:
    runs = list(both_runs(opened, ((row.text, row.target) for row in rows)))
    longest = max(len(one.reference.ids) for one in runs)
    parts, lines = {}, {}
    for name, said in (("forced", "teacher forcing"), ("free", "reading itself")):
        right_NT, there_NT = _right(runs, name == "free", longest)
        for part, places in (("early", slice(at)), ("late", slice(at, None))):
            sums = np.stack([right_NT[:, places].sum(1), there_NT[:, places].sum(1)], 1)
            parts[f"{name}, {part}"] = _accuracy(whole, sums)
        shown = np.flatnonzero(there_NT.sum(0) >= len(runs) / 20)  # a share of few rows says little
        shares = right_NT[:, shown].sum(0) / there_NT[:, shown].sum(0)
        lines[said] = ((shown + 1.0).tolist(), shares.tolist())
    return Measured(parts, lines)


def _right(runs: Sequence[BothRuns], free: bool, longest: int) -> tuple[Floats, Floats]:
    """(N, T) whether each token of the reference is predicted, and whether there is one."""
    right_NT, there_NT = np.zeros((len(runs), longest)), np.zeros((len(runs), longest))
    for row, one in enumerate(runs):
        y, said = one.reference.ids, (one.free if free else one.forced).ids
        same = min(len(y), len(said))
        right_NT[row, :same] = y[:same] == said[:same]
        there_NT[row, : len(y)] = 1
    return right_NT, there_NT


def _accuracy(whole: Evaluation, sums_NK: Floats) -> Evaluation:
    result: dict[str, Any] = {"task": whole.result["task"], "figure": "accuracy", "accuracy": 0.0}
    return Evaluation(result, sums_NK, share=True).refigured()


MEASURES = {
    "length": Measure(("short", "long"), "words of the source", _by_length),
    "teacher_forcing": Measure(
        ("forced, early", "free, early", "forced, late", "free, late"), "place in the target", _by_place
    ),
}

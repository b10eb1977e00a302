"""An evaluation: its figure is a function of the sums over its pieces, whatever the task."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from segue import tasks
from segue.inference.evaluation import LOWER_IS_BETTER, NAMES, Evaluation, compare, length_bins


def shares(right: list[float], asked: list[float], share: bool = True) -> Evaluation:
    pieces = np.array([right, asked], np.float64).T
    evaluation = Evaluation({"task": "tag", "figure": "accuracy"}, pieces, share=share)
    evaluation.result["accuracy"] = float(pieces[:, 0].sum() / pieces[:, 1].sum())
    return evaluation


def test_the_figure_is_that_of_the_sums() -> None:
    """Computed again from the pieces, it is what it was; a figure that was put together otherwise is put right."""
    evaluation = shares([3, 1, 0, 4] * 8, [4, 2, 3, 4] * 8)
    again = evaluation.refigured()
    assert again.result["accuracy"] == pytest.approx(8 / 13)
    assert again.result["accuracy_ci"] == list(evaluation.interval())
    low, high = evaluation.interval()
    assert low < 8 / 13 < high


def test_figures_of_other_sums() -> None:
    """Any function of the sums: here the root of the mean of squares."""
    errors = np.random.default_rng(0).normal(size=200)
    pieces = np.stack([errors**2, np.ones(200)], 1)
    evaluation = Evaluation(
        {"task": "x", "figure": "root"}, pieces, of_sums=lambda sums_RK: np.sqrt(sums_RK[:, 0] / sums_RK[:, 1])
    )
    evaluation.result["root"] = 0.0
    again = evaluation.refigured()
    assert again.result["root"] == pytest.approx(np.sqrt((errors**2).mean()))
    low, high = again.result["root_ci"]
    assert low < again.result["root"] < high
    assert evaluation.size == 200  # rows: such sums need not have a size among them
    assert compare([evaluation], [evaluation]).difference == 0


def test_the_size_is_what_the_figure_is_a_share_of() -> None:
    assert shares([3, 1], [4, 2]).size == 6


def test_without_its_figure_an_evaluation_stays_as_it_is() -> None:
    """As of tokens that lose text, which have no bits per byte."""
    evaluation = Evaluation({"task": "lm", "figure": "bits_per_byte", "perplexity": 9.0}, np.ones((3, 2)))
    assert evaluation.refigured() is evaluation


def test_the_interval_of_a_share_is_never_beyond_0_and_1() -> None:
    assert shares([2] * 30, [2] * 30).interval() == pytest.approx((0.88, 1), abs=0.01)
    assert shares([0] * 30, [2] * 30).interval() == pytest.approx((0, 0.12), abs=0.01)
    low, high = shares([2] * 29 + [1], [2] * 30).interval()
    assert 0.9 < low < 59 / 60 < high < 1


def test_compare_is_a_less_b() -> None:
    draw = np.random.default_rng(0)
    some = draw.integers(0, 3, 60).astype(float).tolist()
    better, worse = shares([3.0] * 60, [4.0] * 60), shares(some, [4.0] * 60)
    gap = compare([better], [worse])
    assert gap.difference == pytest.approx(better.result["accuracy"] - worse.result["accuracy"])
    assert gap.lo > 0 and gap.p < 0.01
    assert compare([worse], [better]).difference == pytest.approx(-gap.difference)
    assert compare([worse], [worse]).p == 1.0
    with pytest.raises(ValueError, match="same text"):
        compare([better], [shares([1.0], [1.0])])


def test_every_task_has_a_figure_that_ranks() -> None:
    figures = {name: tasks.task(name).figure for name in tasks.names()}
    assert {name for name, figure in figures.items() if figure in LOWER_IS_BETTER} == {"lm", "masked_lm"}
    for name, figure in figures.items():
        assert figure in tasks.task(name).beside, name
        assert figure in NAMES or figure.isalpha(), name


def test_ranges_of_length_are_of_one_width_and_have_enough_pieces() -> None:
    lengths = np.random.default_rng(0).poisson(12, 1000) + 1
    bins = length_bins(lengths)
    assert bins[0][0] == lengths.min() and bins[-1][1] == lengths.max()
    assert all(after[0] == before[1] + 1 for before, after in pairwise(bins))
    assert {high % 2 for _, high in bins[:-1]} == {0} and 5 < len(bins) <= 15
    counts = [int(((lengths >= low) & (lengths <= high)).sum()) for low, high in bins]
    assert sum(counts) == 1000 and min(counts) >= 20
    assert length_bins(np.full(5, 7)) == [(7, 7)]
    assert length_bins(np.array([0] * 30 + [400] * 3)) == [(0, 400)]

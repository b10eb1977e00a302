"""Dual coordinate descent: the same weights as liblinear's, for every loss; what is weighed, and what is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import log_softmax as scipy_log_softmax
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from segue.errors import InputError
from segue.linear import solve
from segue.linear.features import Bags
from segue.linear.solve import Linear, Solver, best_scale, log_softmax, parts_of

ROWS, WIDTH = 150, 40


def data(classes: int, seed: int = 0) -> tuple[csr_matrix, Bags, np.ndarray]:
    """Counts of features that lean to a class, with noise, some rows empty."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, ROWS)
    lean = draw.random((classes, WIDTH)) ** 3
    matrix = csr_matrix(draw.poisson(0.6 * lean[labels] * (draw.random((ROWS, 1)) > 0.03)).astype(np.float32))
    bags = Bags(matrix.indices.astype(np.int32), matrix.data, matrix.indptr.astype(np.int64), WIDTH)
    return matrix, bags, labels


def fitted(bags: Bags, labels: np.ndarray, classes: int, weighing: Any = "count", **solver: Any) -> Linear:
    precise = Solver(**{"cost": 0.5, "tolerance": 1e-7, "rounds": 20_000, **solver})
    model = Linear(weighing, False, precise)
    list(model.fit(bags, labels, classes, len(labels), (0, bags.width)))
    return model


def oracle(loss: str, cost: float, balanced: bool, classes: int) -> Any:
    weight = "balanced" if balanced else None
    if loss != "logistic":
        return LinearSVC(C=cost, loss=loss, dual=True, tol=1e-8, max_iter=200_000, class_weight=weight)
    one = LogisticRegression(C=cost, solver="liblinear", tol=1e-10, max_iter=10_000, class_weight=weight)
    return one if classes == 2 else OneVsRestClassifier(one)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
@pytest.mark.parametrize(("classes", "balanced"), [(2, False), (2, True), (4, False)])
@pytest.mark.parametrize("cost", [0.05, 2.0])
def test_scores_are_those_of_liblinear(loss: str, classes: int, balanced: bool, cost: float) -> None:
    matrix, bags, labels = data(classes)
    ours = fitted(bags, labels, classes, loss=loss, cost=cost, balanced=balanced).scores(bags)
    theirs = oracle(loss, cost, balanced, classes).fit(matrix, labels).decision_function(matrix)
    # hinge: the least of the loss is flat in places, so that liblinear itself is only this near
    np.testing.assert_allclose(ours, theirs.reshape(ours.shape), atol=5e-3 if loss == "hinge" else 5e-4)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
def test_no_small_change_of_the_weights_is_better(loss: str) -> None:
    """The objective at the head of solve.py, written down once more."""
    matrix, bags, labels = data(2, seed=3)
    weights = fitted(bags, labels, 2, loss=loss).weights[:, 0].astype(np.float64)
    x = np.hstack([matrix.toarray(), np.ones((ROWS, 1))])
    y = np.where(labels == 1, 1.0, -1.0)
    of = {
        "squared_hinge": lambda m: np.maximum(0, 1 - m) ** 2,
        "hinge": lambda m: np.maximum(0, 1 - m),
        "logistic": lambda m: np.log1p(np.exp(-m)),
    }[loss]

    def value(w: np.ndarray) -> float:
        return float(w @ w / 2 + 0.5 * of(y * (x @ w)).sum())

    least = value(weights)
    draw = np.random.default_rng(0)
    for _ in range(200):
        assert value(weights + 0.02 * draw.normal(size=len(weights))) > least


def test_going_on_from_a_smaller_cost_ends_at_the_same_weights() -> None:
    _, bags, labels = data(3)
    for loss in ("squared_hinge", "hinge", "logistic"):
        model = Linear("count", False, Solver(loss, tolerance=1e-7, rounds=20_000))
        model.borders = np.array([0, WIDTH])
        problem = solve._Problem(model, bags, labels, 3)
        rows = np.arange(ROWS)
        one, other = solve._One(problem, rows, 1), solve._One(problem, rows, 1)
        along = [one.solve(cost)[1].copy() for cost in (0.01, 0.1, 1.0)][-1]
        np.testing.assert_allclose(along, other.solve(1.0)[1], atol=2e-3 if loss == "hinge" else 2e-4)


def test_tfidf_is_that_of_scikit_learn() -> None:
    matrix, bags, labels = data(2)
    model = Linear("tfidf", True, Solver(cost=1.0))
    list(model.fit(bags, labels, 2, ROWS, (0, WIDTH)))
    weighed = model.weighed(bags._replace(values=1 + np.log(bags.values)), model.factors[:, 0])
    ours = csr_matrix((weighed.values, weighed.columns, weighed.starts), matrix.shape)
    theirs = TfidfTransformer(sublinear_tf=True).fit_transform(matrix)
    np.testing.assert_allclose(ours.toarray(), theirs.toarray(), atol=1e-5)


def test_each_group_is_brought_to_length_one_by_itself() -> None:
    _, bags, labels = data(2)
    model = Linear("binary", True, Solver(cost=1.0))
    list(model.fit(bags, labels, 2, ROWS, (0, 10, WIDTH)))
    weighed = model.weighed(bags, np.full(WIDTH, 3.0, np.float32))
    for a, b in zip(bags.starts[:-1], bags.starts[1:], strict=True):
        for group in (weighed.columns[a:b] < 10, weighed.columns[a:b] >= 10):
            squares = (weighed.values[a:b][group].astype(np.float64) ** 2).sum()
            assert squares == pytest.approx(1.0 if group.any() else 0.0, abs=1e-5)


def test_log_ratio_by_hand() -> None:
    """Features 0 and 1 in rows of class a: {0}, {0, 1}; of class b: {1}. p = (3, 2)/5, q = (1, 2)/3."""
    bags = Bags(np.array([0, 0, 1, 1], np.int32), np.ones(4, np.float32), np.array([0, 1, 3, 4]), 2)
    problem = solve._Problem(Linear("ratio", False, Solver()), bags, np.array([1, 1, 0]), 2)
    expected = np.log([(3 / 5) / (1 / 3), (2 / 5) / (2 / 3)])
    np.testing.assert_allclose(problem.factors(np.arange(3))[:, 0], expected, rtol=1e-6)


def test_log_softmax_of_one_and_of_many_columns() -> None:
    scores = np.random.default_rng(0).normal(size=(7, 4)) * 50
    np.testing.assert_allclose(log_softmax(scores, 0.7), scipy_log_softmax(0.7 * scores, axis=1), atol=1e-12)
    two = np.concatenate([np.zeros((7, 1)), scores[:, :1]], axis=1)
    np.testing.assert_allclose(log_softmax(scores[:, :1]), scipy_log_softmax(two, axis=1), atol=1e-12)


def test_the_scale_is_the_likeliest_and_does_not_run_away() -> None:
    draw = np.random.default_rng(1)
    scores = draw.normal(size=(5_000, 1))
    labels = (draw.random(5_000) < 1 / (1 + np.exp(-3 * scores[:, 0]))).astype(int)
    assert best_scale(scores, labels) == pytest.approx(3, rel=0.06)
    sure = best_scale(np.array([[1.0], [-1.0]]), np.array([1, 0]))
    assert 0.5 < sure < 5


def test_the_cost_that_held_out_rows_like_best_is_taken() -> None:
    _, bags, labels = data(2, seed=5)
    model = Linear("binary", True, Solver())
    tried = list(model.fit(bags, labels, 2, 100, (0, WIDTH)))
    assert [choice.cost for choice in tried] == list(solve.COSTS)[: len(tried)]
    worse = [choice.likelihood < model.choice.likelihood for choice in tried]
    assert len(tried) == len(solve.COSTS) or worse[-2:] == [True, True]
    assert model.choice == max(tried, key=lambda choice: choice.likelihood)
    held = Bags(
        bags.columns[bags.starts[100] :], bags.values[bags.starts[100] :], bags.starts[100:] - bags.starts[100], WIDTH
    )
    logp = model.class_logprobs(held)
    assert logp[np.arange(50), labels[100:]].mean() == pytest.approx(model.choice.likelihood, abs=0.01)


def test_rows_that_choose_are_not_learnt_from() -> None:
    """Other labels there change the choice at the most, not the weights of a given cost."""
    _, bags, labels = data(2, seed=5)
    wrong = np.concatenate([labels[:100], 1 - labels[100:]])
    one, two = (Linear("tfidf", True, Solver(cost=1.0)) for _ in range(2))
    list(one.fit(bags, labels, 2, 100, (0, WIDTH)))
    list(two.fit(bags, wrong, 2, 100, (0, WIDTH)))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert one.choice.accuracy == pytest.approx(1 - two.choice.accuracy)


def test_parts_are_even_in_every_class() -> None:
    labels = np.array([0] * 50 + [1] * 10 + [2] * 3)
    part = parts_of(labels, seed=1)
    for k in range(3):
        counts = np.bincount(part[labels == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert (part != parts_of(labels, seed=2)).any() and (part == parts_of(labels, seed=1)).all()


def test_one_thread_and_two_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, bags, labels = data(4)
    two = fitted(bags, labels, 4, cost=0.0, tolerance=0.01, rounds=100)
    monkeypatch.setattr(solve.os, "cpu_count", lambda: 1)
    one = fitted(bags, labels, 4, cost=0.0, tolerance=0.01, rounds=100)
    np.testing.assert_array_equal(one.weights, two.weights)


def test_too_many_classes_are_told_before_anything_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = Bags(np.arange(6, dtype=np.int32), np.ones(6, np.float32), np.arange(7), 6)
    monkeypatch.setattr(solve, "MANY", 2)
    linear = Linear("binary", False, Solver())
    list(linear.fit(bags, np.arange(6) % 3, 3, 6, (0, 6)))  # quick enough
    monkeypatch.setattr(solve, "PACE", 0.01)
    with pytest.raises(InputError, match=r"3 classes are each separated .* Give model.cost=0.1"):
        list(linear.fit(bags, np.arange(6) % 3, 3, 6, (0, 6)))

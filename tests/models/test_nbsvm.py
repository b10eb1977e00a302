"""NBSVM: what it becomes at both ends of `keep`, and what it leaves alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.svm import LinearSVC

from segue.batches.store import Column, columns_of
from segue.models.base import Sizes
from segue.models.nbsvm import Nbsvm
from segue.tasks.classify import TASK


def data(rows: int, seed: int, classes: int = 2) -> tuple[list[list[int]], list[int]]:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, rows).tolist()
    texts = [
        draw.integers(2, 12, draw.integers(2, 9)).tolist() + [12 + label] * (draw.random() < 0.6) for label in labels
    ]
    return texts, labels


def store_of(rows: list[list[int]], labels: list[int]) -> Any:
    lengths = np.array([len(row) for row in rows])
    text = Column(np.array([i for row in rows for i in row], np.int32), np.cumsum(lengths))
    return SimpleNamespace(columns={"text": text, "label": Column(np.array(labels), np.arange(1, len(labels) + 1))})


def fitted(rows: list[list[int]], labels: list[int], classes: int = 2, held: Any = None, **config: Any) -> Nbsvm:
    model = Nbsvm(Nbsvm.Config(**config), Sizes(20, classes))
    list(model.fit(store_of(rows, labels), Nbsvm.Train(), held))
    return model


def said(model: Nbsvm, rows: list[list[int]]) -> np.ndarray:
    return model.class_logprobs(TASK.collate(columns_of(text=[np.array(row, np.int64) for row in rows]), 9999))


def oracle(rows: list[list[int]], labels: list[int]) -> tuple[Any, np.ndarray]:
    """scikit-learn's binarised features, and the log-count ratios from its naive Bayes with the same prior."""
    vectors = CountVectorizer(ngram_range=(1, 2), binary=True, token_pattern=r"\d+")
    matrix = vectors.fit_transform([" ".join(map(str, row)) for row in rows])
    bayes = MultinomialNB(alpha=1.0).fit(matrix, labels)
    return vectors, bayes.feature_log_prob_[1] - bayes.feature_log_prob_[0]


def test_all_svm_is_a_svm_over_log_count_ratios() -> None:
    rows, labels = data(150, 0)
    held, _ = data(40, 1)
    vectors, ratios = oracle(rows, labels)
    x, x_held = (
        vectors.transform([" ".join(map(str, r)) for r in some]).multiply(ratios).tocsr() for some in (rows, held)
    )
    svm = LinearSVC(C=0.1, dual=True, tol=1e-8, max_iter=100_000).fit(x, labels)
    model = fitted(rows, labels, keep=1.0, cost=0.1)
    logp = said(model, held)
    ours = (logp[:, 1] - logp[:, 0]) / model.linear.choice.scale
    np.testing.assert_allclose(ours, svm.decision_function(x_held), atol=0.03)  # descent ends at a tolerance of 0.01


def test_no_svm_is_naive_bayes() -> None:
    """The scores are then those of naive Bayes times one number (but for what the prior's own counts add)."""
    rows, labels = data(150, 0)
    held, _ = data(40, 1)
    vectors, ratios = oracle(rows, labels)
    odds = np.log((sum(labels) + 1) / (len(labels) - sum(labels) + 1))
    expected = vectors.transform([" ".join(map(str, row)) for row in held]) @ ratios + odds
    logp = said(fitted(rows, labels, keep=0.0, cost=0.1), held)
    found = logp[:, 1] - logp[:, 0]
    np.testing.assert_allclose(found / expected, np.full(40, found[0] / expected[0]), rtol=1e-4)


@pytest.mark.parametrize("classes", [2, 4])
def test_it_learns_and_its_probabilities_can_be_believed(classes: int) -> None:
    rows, labels = data(600, 0, classes)
    held, truth = data(3_000, 1, classes)
    logp = said(fitted(rows, labels, classes), held)
    accuracy = float((logp.argmax(1) == truth).mean())
    # six in ten rows say their class, the others nothing
    assert 0.6 + 0.4 / classes - 0.1 < accuracy < 0.6 + 0.4 / classes + 0.1
    assert float(np.exp(logp.max(1)).mean()) == pytest.approx(accuracy, abs=0.06)


def test_held_out_rows_choose_but_are_not_learnt_from() -> None:
    rows, labels = data(200, 0)
    held = data(100, 1)
    model = fitted(rows, labels, held=store_of(*held))
    assert model.linear.choice.accuracy == pytest.approx(float((said(model, held[0]).argmax(1) == held[1]).mean()))
    assert len(model.grams.spell()) == len({ids for ids in fitted(rows, labels).grams.spell()})


@pytest.mark.parametrize("silent", [[], [1, 1, 1]])
def test_where_no_word_is_known_the_shares_of_the_classes_are_left(silent: list[int]) -> None:
    """Rare words lean to the rare class here, which is no reason to take what is unknown for it."""
    texts, labels = data(400, 3, classes=3)
    common = [i for i, label in enumerate(labels) if label != 2 or i % 10 == 0]
    rows = [texts[i] + [1] * (labels[i] == 2) for i in common]
    own = [labels[i] for i in common]
    found = np.exp(said(fitted(rows, own, 3), [silent, rows[0]]))
    np.testing.assert_allclose(found[0], np.bincount(own) / len(own), atol=1e-9)
    assert np.abs(found[1] - found[0]).max() > 0.01


def test_empty_rows_that_were_learnt_from_are_known_again() -> None:
    texts, labels = data(200, 4)
    found = np.exp(said(fitted([*texts, *[[]] * 9], [*labels, *[1] * 9]), [[]]))
    assert found[0, 1] > 0.9
    even = np.exp(said(fitted([*texts[:90], [3]], [0] * 90 + [1], balanced=True), [[]]))
    np.testing.assert_allclose(even[0], [0.5, 0.5])

"""Naive Bayes: a worked example, and the same as scikit-learn's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

import segue
from segue.batches.store import Column, columns_of
from segue.errors import InputError
from segue.models.base import Sizes
from segue.models.naive_bayes import NaiveBayes
from segue.tasks.classify import TASK


def store_of(rows: list[list[int]], labels: list[int]) -> Any:
    lengths = np.array([len(row) for row in rows])
    text = Column(np.array([i for row in rows for i in row], np.int32), np.cumsum(lengths))
    return SimpleNamespace(columns={"text": text, "label": Column(np.array(labels), np.arange(1, len(labels) + 1))})


def fitted(rows: list[list[int]], labels: list[int], classes: int = 2, **config: Any) -> NaiveBayes:
    model = NaiveBayes(NaiveBayes.Config(**config), Sizes(20, classes))
    list(model.fit(store_of(rows, labels), NaiveBayes.Train()))
    return model


def predicted(model: NaiveBayes, *rows: list[int]) -> np.ndarray:
    return np.exp(model.class_logprobs(TASK.collate(columns_of(text=[np.array(row, np.int64) for row in rows]), 9999)))


CHINESE, BEIJING, SHANGHAI, MACAO, TOKYO, JAPAN = range(2, 8)


def test_the_textbook_example() -> None:
    """Manning, Raghavan and Schütze 2008, example 13.1: p(China | Chinese Chinese Chinese Tokyo Japan)
    goes by 3/4 · (3/7)³ · 1/14 · 1/14 ≈ 0.0003, that of the other class by 1/4 · (2/9)³ · 2/9 · 2/9 ≈ 0.0001."""
    rows = [[CHINESE, BEIJING, CHINESE], [CHINESE, CHINESE, SHANGHAI], [CHINESE, MACAO], [TOKYO, JAPAN, CHINESE]]
    model = fitted(rows, [1, 1, 1, 0], words=1, binary=False)
    china, other = 3 / 4 * (3 / 7) ** 3 / 14**2, 1 / 4 * (2 / 9) ** 5
    (p,) = predicted(model, [CHINESE, CHINESE, CHINESE, TOKYO, JAPAN])
    np.testing.assert_allclose(p, [other / (china + other), china / (china + other)], rtol=1e-9)


def test_binarised_counts_a_feature_once_a_row() -> None:
    """The same rows: those of China hold {Chinese, Beijing}, {Chinese, Shanghai}, {Chinese, Macao}, 6 features in all,
    of which Chinese is 3: (1 + 3) / (6 + 6)."""
    rows = [[CHINESE, BEIJING, CHINESE], [CHINESE, CHINESE, SHANGHAI], [CHINESE, MACAO], [TOKYO, JAPAN, CHINESE]]
    model = fitted(rows, [1, 1, 1, 0], words=1, binary=True)
    china, other = 3 / 4 * 4 / 12, 1 / 4 * 2 / 9
    for row in ([CHINESE], [CHINESE, CHINESE, CHINESE]):
        np.testing.assert_allclose(predicted(model, row)[0, 1], china / (china + other), rtol=1e-9)


@pytest.mark.parametrize(("words", "binary", "alpha"), [(1, False, 1.0), (2, True, 1.0), (3, True, 0.1)])
def test_probabilities_are_those_of_scikit_learn(words: int, binary: bool, alpha: float) -> None:
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, 15, draw.integers(1, 9)).tolist() for _ in range(60)]
    labels = [int(row[0] % 3) for row in rows]
    held = [draw.integers(2, 18, 6).tolist() for _ in range(20)]  # some tokens were never seen
    vectors = CountVectorizer(ngram_range=(1, words), binary=binary, analyzer="word", token_pattern=r"\d+")
    spelt, spelt_held = ([" ".join(map(str, row)) for row in some] for some in (rows, held))
    oracle = MultinomialNB(alpha=alpha).fit(vectors.fit_transform(spelt), labels)
    model = fitted(rows, labels, 3, words=words, binary=binary, alpha=alpha)
    np.testing.assert_allclose(predicted(model, *held), oracle.predict_proba(vectors.transform(spelt_held)), atol=1e-9)


def test_balanced_classes_are_equally_likely_before_the_text() -> None:
    rows, labels = [[2], [2], [2], [3]], [0, 0, 0, 1]
    assert predicted(fitted(rows, labels), [9])[0] == pytest.approx([0.75, 0.25])
    assert predicted(fitted(rows, labels, balanced=True), [9])[0] == pytest.approx([0.5, 0.5])


def test_a_class_without_a_row_is_never_predicted() -> None:
    p = predicted(fitted([[2], [3]], [0, 2], classes=3), [2], [3], [])
    assert (p[:, 1] == 0).all() and np.isfinite(p).all()


def test_from_rows_to_labels(tmp_path: Path) -> None:
    data = [("good", "a fine film"), ("bad", "what a dull film")] * 20
    run = segue.train("naive_bayes", data, tmp_path / "run", {"data.validation": 0.2})
    assert [p.label for p in run.predict(["a fine one", "a dull one"])] == ["good", "bad"]
    assert run.evaluate(data)["accuracy"] == 1


def test_one_class_a_row_and_no_other_label() -> None:
    model = NaiveBayes(NaiveBayes.Config(), Sizes(20, 2, label="classes"))
    with pytest.raises(InputError, match=r"data\.label=classes is not for this model"):
        list(model.fit(store_of([[2], [3]], [0, 1]), NaiveBayes.Train()))


def test_where_no_word_is_known_the_shares_of_the_classes_are_left() -> None:
    """UNK comes with the rare class here, and says nothing when it stands alone."""
    model = fitted([[2, 3], [2], [3, 2], [1, 1, 4]], [0, 0, 0, 1])
    np.testing.assert_allclose(predicted(model, [], [1, 1]), [[0.75, 0.25]] * 2)
    assert predicted(model, [1, 2])[0, 1] != pytest.approx(0.25)

"""The bag of n-grams: which features it has, and that each is of use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_union
from sklearn.svm import LinearSVC

import segue
from segue.errors import InputError
from segue.recipe import load_recipe
from segue.runs.run import Run

FILM = ["good", "fine", "dull", "bad", "slow", "warm"]


def reviews(rows: int, seed: int) -> list[tuple[str, str]]:
    draw = np.random.default_rng(seed)
    out = []
    for _ in range(rows):
        words = draw.choice(FILM, 3).tolist()
        score = sum({"good": 1, "fine": 1, "warm": 1}.get(word, -1) for word in words)
        out.append(("pos" if score > 0 else "neg", f"It's {words[0]}, {words[1]} and {words[2]}ish!"))
    return out


def trained(place: Path, data: list[tuple[str, str]], **model: Any) -> Run:
    settings = {f"model.{name}": value for name, value in model.items()}
    return segue.train("ngram_bag", data, place, {"data.validation": 0, **settings})


def accuracy(run: Run, data: list[tuple[str, str]]) -> float:
    return float(run.evaluate(data)["accuracy"])


def test_scores_are_those_of_scikit_learns_pipeline(tmp_path: Path) -> None:
    data, held = reviews(200, 0), [text for _, text in reviews(50, 1)]
    run = trained(tmp_path / "run", data, words=2, characters=4, split=False, cost=1.0)
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"[^\s]+", sublinear_tf=True)
    letters = TfidfVectorizer(
        ngram_range=(2, 4), analyzer="char", sublinear_tf=True, preprocessor=lambda text: f" {text.lower()} "
    )
    union = make_union(words, letters)
    svm = LinearSVC(C=1.0, dual=True, tol=1e-6, max_iter=50_000)
    svm.fit(union.fit_transform([text for _, text in data]), [label for label, _ in data])
    expected = svm.decision_function(union.transform(held))
    p = np.array([prediction.probabilities for prediction in run.predict(held)])
    scores = np.log(p[:, 1] / p[:, 0]) / run.model.linear.choice.scale
    np.testing.assert_allclose(scores, expected, atol=0.05)  # descent ends at a tolerance of 0.01


def test_features_can_be_read(tmp_path: Path) -> None:
    data = [("a", "Don't go"), ("b", "do go there now")] * 3
    features = trained(tmp_path / "run", data, pairs=3, characters=2).model.features()
    words = {"don", "'t", "go", "do", "there", "now", "don 't", "'t go", "do go", "go there", "there now"}
    pairs = {"don … go", "do … there", "do … now", "go … now"}
    assert {f for f in features if len(f.strip()) > 2 or f in words} == words | pairs
    assert {"do", "'t", " d", "t ", "n'", "ow"} <= set(features[len(words | pairs) :])
    assert len(set(features)) == len(features) - len({"do", "go", "'t"})  # both a word and two characters


def nothing_but_pairs(rows: int, seed: int) -> list[tuple[str, str]]:
    """not … bad is good, and so is really … good; one word between makes every bigram new."""
    draw = np.random.default_rng(seed)
    out = []
    for i in range(rows):
        first, last = draw.choice(["not", "really"]), draw.choice(["bad", "good"])
        out.append(("pos" if (first == "not") == (last == "bad") else "neg", f"{first} w{seed}x{i} {last}"))
    return out


def test_pairs_of_words_see_what_bigrams_cannot(tmp_path: Path) -> None:
    """The lecture's combination of features: a linear model of single words cannot know it."""
    data, held = nothing_but_pairs(200, 0), nothing_but_pairs(100, 1)
    without = trained(tmp_path / "without", data, characters=0, words=2)
    beside = trained(tmp_path / "with", data, characters=0, words=2, pairs=2)
    assert accuracy(without, held) < 0.7 < 1.0 == accuracy(beside, held)


def test_characters_see_words_that_were_never_seen(tmp_path: Path) -> None:
    def made(seed: int) -> list[tuple[str, str]]:
        draw = np.random.default_rng(seed)
        return [("ba"[i % 2], f"{'un' * (i % 2)}{''.join(draw.choice(list('aeiokst'), 6))}") for i in range(200)]

    words = trained(tmp_path / "words", made(0), characters=0)
    letters = trained(tmp_path / "letters", made(0), characters=3)
    assert accuracy(words, made(1)) < 0.65 and accuracy(letters, made(1)) > 0.95


def test_rare_features_are_left_out(tmp_path: Path) -> None:
    data = reviews(100, 0)
    few, all_ = (trained(tmp_path / str(least), data, min_rows=least).model for least in (20, 1))
    assert set(few.features()) < set(all_.features())
    counts = {f: sum(f in text.lower() for _, text in data) for f in FILM}
    assert {f for f in FILM if counts[f] >= 20} <= set(few.features())


def test_class_weights_find_the_rare_class(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)

    def made(rows: int) -> list[tuple[str, str]]:
        labels = draw.random(rows) < 0.08
        return [
            ("ab"[rare], " ".join(draw.choice(["x", "y", "y"] if rare else ["x", "x", "y"], 5))) for rare in labels * 1
        ]

    data, held = made(500), made(500)
    found = []
    for balanced in (False, True):
        run = trained(tmp_path / str(balanced), data, balanced=balanced, characters=0, cost=1.0)
        (_, _), (missed, hit) = run.evaluate(held)["confusion"]
        found.append(hit / (hit + missed))
    assert found[0] < 0.2 < 0.5 < found[1]


def test_sensible_where_there_is_little_to_see(tmp_path: Path) -> None:
    data = [("a", ""), ("b", "🙂🙂 שלום עולם"), ("c", "one example")] + [("d", "much the same")] * 30 + [("a", "")] * 5
    run = trained(tmp_path / "run", data)
    texts = ["", "שלום עולם 🙂", "one example", "much the same", "never seen: ¿qué?", "x" * 100_000]
    found = list(run.predict(texts))
    assert [p.label for p in found[:4]] == ["a", "b", "c", "d"]
    assert all(sum(p.probabilities) == pytest.approx(1) for p in found)


def test_the_kind_of_tokens_is_its_own() -> None:
    assert load_recipe("ngram_bag").tokens.kind == "byte"
    with pytest.raises(InputError, match=r"tokens\.kind=word is not for this model"):
        load_recipe("ngram_bag", ["tokens.kind=word"])


def test_a_long_row_is_read_to_its_end(tmp_path: Path) -> None:
    data = [(word, "so so " * 3_000 + word) for word in ("good", "bad")] * 10
    assert accuracy(trained(tmp_path / "run", data, weighing="binary"), data) == 1


def test_a_text_without_a_known_feature_gets_the_shares_of_the_classes(tmp_path: Path) -> None:
    data = reviews(120, 5)
    run = trained(tmp_path / "run", data)
    share = sum(label == "neg" for label, _ in data) / len(data)
    for answer in run.predict(["", "日本"]):
        assert answer.probabilities == pytest.approx((share, 1 - share))
    again = Run.open(tmp_path / "run")
    assert next(iter(again.predict([""]))).probabilities == pytest.approx((share, 1 - share))

"""Learning curves: training beside validation, the kept step, small charts of many models; none without learning."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import pytest

import segue
from segue.data.corpus import Corpus
from segue.look.page.curves import Curve, Learnt, Points, learning_curves, smoothed
from segue.runs.folder import read_json
from segue.runs.gather import curves_of, top_features
from segue.training.log import read_metrics

VALID = Curve([1.0, 2.0, 3.0], [10, 20, 30], [3.0, 1.879, 1.899], kept=20)
TRAINING = Points([0.5, 1.5, 2.5, 3.0], [5, 15, 25, 30], [4.0, 2.0, 1.2, 0.8])


def with_training(curve: Curve = VALID) -> Curve:
    return Curve(curve.seconds, curve.steps, curve.values, curve.metric, curve.kept, TRAINING)


def section(*models: Learnt) -> str:
    return learning_curves(models, "bits per byte", None, "test")


def test_one_run_shows_training_and_validation_and_marks_what_was_kept() -> None:
    page = section(Learnt("lstm", 0, with_training()))
    assert re.findall(r'data-name="(\w+)"', page)[:2] == ["training", "validation"]
    assert "kept 1.879" in page and "1.899" in page  # the ring explains why the end is not the result
    assert "the result above is theirs on the test split" in page
    wide = page.partition("</figure>")[0]
    ring = re.search(r'class="mark hue0"><circle cx="([\d.]+)" cy="([\d.]+)"', wide)
    assert ring is not None
    assert f'<circle cx="{ring[1]}" cy="{ring[2]}" r="2.2"><title>validation: 1.879 at 20 steps' in wide


def test_the_only_network_among_models_that_count_keeps_its_colour_and_is_named() -> None:
    """The table says which colour is which model; the curves must not say otherwise."""
    page = section(Learnt("ngram", 0, Curve([0.3], [1], [2.5])), Learnt("lstm", 5, with_training()))
    assert "lstm</h3>" in page and "ngram" not in page
    assert set(re.findall(r"hue(\d)", page)) == {"5"}


def test_a_single_dot_is_no_curve() -> None:
    assert section(Learnt("ngram", 0, Curve([0.3], [1], [2.5]))) == section(Learnt("nb", 0, Curve())) == ""


def test_several_models_have_a_small_chart_each_on_the_same_scales() -> None:
    far = Curve([1.0, 2.0, 30.0], [10, 20, 30], [5.0, 4.5, 4.0], kept=30)
    page = section(*(Learnt(f"m{i}", i, with_training(far if i == 4 else VALID)) for i in range(5)))
    small = re.findall(r'<svg class="chart small".*?</figure>', page)
    assert len(small) == 5 and "<details" not in page
    ticks = {tuple(re.findall(r'class="tick"[^>]*>([^<]*)<', chart)) for chart in small}
    assert len(ticks) == 1
    assert all(chart.count('class="faint"') == 4 for chart in small)
    assert page.count("data-axis") == 2  # with few models also one chart of all
    many = section(*(Learnt(f"m{i}", i % 3, with_training()) for i in range(21)))
    assert many.count('<svg class="chart small"') == 21 and "15 more" in many and "data-axis" not in many
    same = section(*(Learnt(f"m{i}", 0, with_training()) for i in range(3)))
    assert "data-axis" not in same  # three curves in one colour could not be told apart


def test_the_only_curve_of_a_comparison_has_the_name_and_the_colour_of_its_model() -> None:
    page = section(Learnt("naive_bayes", 0, Curve()), Learnt("bow", 3, with_training()))
    assert "bow</h3>" in page and "hue3" in page and "hue0" not in page
    assert "<h3>" not in section(Learnt("bow", 0, with_training()))


def test_no_axis_of_shares_goes_beyond_all() -> None:
    accuracy = Curve([1.0, 2.0], [10, 20], [1.0, 1.0], "accuracy", kept=20)
    page = section(Learnt("bow", 0, accuracy))
    ticks = [float(tick) for tick in re.findall(r'class="tick"[^>]*>([\d.]+) %<', page)]
    assert ticks and max(ticks) == 100


def test_the_losses_stand_beside_an_accuracy() -> None:
    accuracy = Curve([1.0, 2.0], [10, 20], [0.5, 0.75], "accuracy", kept=20)
    page = section(Learnt("cnn", 0, accuracy, with_training(Curve(*vars(VALID).values()))))
    assert "kept 75.0 %" in page and "loss (nats)" in page and "kept 1.879" in page


def test_smoothing_keeps_the_mean_of_steady_losses_and_the_length() -> None:
    assert smoothed([2.0] * 100) == pytest.approx([2.0] * 100)
    wiggle = [1.0 + (-1) ** i for i in range(100)]
    assert len(smoothed(wiggle)) == 100 and max(smoothed(wiggle)[3:]) == pytest.approx(1.0)
    assert smoothed([3.0, 1.0]) == [3.0, 1.0]


def test_the_training_loss_is_in_the_unit_of_validation(tmp_path: Path) -> None:
    """Nats a token become bits per byte as they do for the validation text: both are known of it."""
    lines = ["the cow eats grass", "a king naps well", "naïve girls buy 3 hats"] * 30
    settings = {"model.width": 8, "data.unit": "line", "train.steps": 8, "train.every": 2, "train.log_every": 2}
    run = segue.train("rnn_lm", lines, tmp_path / "run", settings, device="cpu")
    result = read_json(run.path / "result.json")
    curve, loss = curves_of(run, result, result)
    assert loss is None and curve.kept == result["best_step"] and curve.steps == [2, 4, 6, 8]
    logged = [line["cross_entropy"] for line in read_metrics(run.path) if line["kind"] == "train"]
    each = result["tokens"] / result["bytes"] / math.log(2)
    assert curve.training.values == pytest.approx([each * nats for nats in logged])
    kept = curve.values[curve.steps.index(curve.kept)]
    assert kept == pytest.approx(each * result["validation_loss"])
    assert f"kept {kept:.3f}" in (run.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["ngram", "naive_bayes", "nbsvm"])
def test_a_model_that_counts_has_no_learning_curve(kind: str, tmp_path: Path) -> None:
    rows = [("a", "the cow eats grass"), ("b", "a king naps well"), ("a", "my dog runs")] * 20
    data = [text for _, text in rows] if kind == "ngram" else rows
    run = segue.train(kind, data, tmp_path / "run", {"data.validation": 0.2}, device="cpu")
    html = (run.path / "report.html").read_text(encoding="utf-8")
    assert 'id="curves"' not in html and 'id="result"' in html
    assert ('id="orders"' in html) == (kind == "ngram")
    assert str(tmp_path) not in html.partition("<main>")[0]  # the title has names, not folders


# What else there is to see of a model that counts

TEXTS = [("good good film", "a"), ("good cow", "a"), ("bad film", "b"), ("bad bad dog", "b")]
SENTIMENT = [(label, f"{text} {i}") for i in range(5) for text, label in TEXTS]


def test_the_ngrams_that_speak_for_a_label_are_those_of_its_rows(tmp_path: Path) -> None:
    """Naive Bayes: log p(w | a) - log p(w | b), halved by the mean over two labels, from counts made here."""
    rows = SENTIMENT
    settings = {"data.validation": 0.2, "model.words": 1, "model.binary": False, "model.alpha": 1.0}
    run = segue.train("naive_bayes", rows, tmp_path / "run", settings, device="cpu")
    held_in = list(Corpus(run.recipe.data, run.recipe.shape).examples("train"))
    counts = {label: Counter(" ".join(e.text for e in held_in if e.label == label).split()) for label in "ab"}
    known = set(counts["a"]) | set(counts["b"])
    found = dict(top_features(run))
    assert list(found) == ["a", "b"] and found["a"][0][0] == "good" and found["b"][0][0] == "bad"
    p = {label: (counts[label]["good"] + 1) / (counts[label].total() + len(known)) for label in "ab"}
    assert found["a"][0][1] == pytest.approx(math.log(p["a"] / p["b"]) / 2)
    html = (run.path / "report.html").read_text(encoding="utf-8")
    assert "What speaks for each label" in html and "<bdi>good</bdi>" in html


def test_the_weights_of_nbsvm_have_the_sign_of_their_label(tmp_path: Path) -> None:
    rows = SENTIMENT
    run = segue.train("nbsvm", rows, tmp_path / "run", {"data.validation": 0.2}, device="cpu")
    found = dict(top_features(run))
    assert "good" in [name for name, _ in found["a"]] and "bad" in [name for name, _ in found["b"]]
    assert not {name for name, _ in found["a"]} & {name for name, _ in found["b"]}


def test_pictures_of_the_inside_bring_no_style_for_the_rest_of_the_page(tmp_path: Path) -> None:
    settings = {"model.width": 8, "train.steps": 2, "train.every": 1, "data.unit": "line"}
    run = segue.train("rnn_lm", ["the cow eats grass", "a king naps"] * 20, tmp_path / "run", settings, device="cpu")
    html = (run.path / "report.html").read_text(encoding="utf-8")
    assert 'id="inside"' in html and html.count("<style>") == 1

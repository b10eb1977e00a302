"""Runs on every kind of label, pairs of texts and given vectors, from the rows to what predict and evaluate say."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats  # scikit-learn brings it
from sklearn import metrics as theirs

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference import metrics
from segue.recipe import load_recipe

WORDS = {"food": ["soup", "bread"], "sport": ["goal", "team"], "money": ["bank", "coin"]}
FILL = ["the", "a", "some", "of"]
SMALL = {"model.embedding": 16, "train.steps": 150, "train.optimizer.rate": 0.02}


def several(count: int = 300) -> list[tuple[list[str], str]]:
    draw, rows = random.Random(0), []
    for _ in range(count):
        labels = [name for name in WORDS if draw.random() < 0.4]
        words = [draw.choice(WORDS[name]) for name in labels] + draw.choices(FILL, k=3)
        rows.append((labels, " ".join(draw.sample(words, len(words)))))
    return rows


def numbers(count: int = 300) -> list[tuple[float, str]]:
    draw = random.Random(0)
    texts = [draw.choices(["good", "bad", "film"], k=5) for _ in range(count)]
    return [(1000 + 50 * (words.count("good") - words.count("bad")), " ".join(words)) for words in texts]


def trained(kind: str, data: Any, out: Path, **settings: Any) -> Any:
    overrides = {**SMALL, **{key.replace("__", "."): value for key, value in settings.items()}}
    return segue.train(kind, data, out, overrides)


def test_several_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained("cbow", several(), tmp_path / "run", data__label="classes")
    figures = json.loads((tmp_path / "run" / "result.json").read_text())
    assert figures["accuracy"] > 0.8 and figures["micro_f1"] > 0.9 and figures["macro_f1"] > 0.9
    both, none = run.predict(["the soup of some team", "the a of"])
    assert (both.label, both.chosen) == ("food,sport", ("food", "sport"))
    assert none.label == "" and none.chosen == ()
    assert sum(both.probabilities) > 1.5  # each by itself
    (tmp_path / "in.txt").write_text("the soup of some team\nthe a of\n")
    assert main(["predict", "run", "in.txt", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["labels"] for line in lines] == [["food", "sport"], []]
    assert set(lines[0]["probabilities"]) == set(WORDS)
    assert main(["predict", "run", "in.txt"]) == 0
    assert capsys.readouterr().out == "food,sport\n\n"


def test_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained("cbow", numbers(), tmp_path / "run", data__label="number", model__word_dropout=0.0)
    figures = json.loads((tmp_path / "run" / "result.json").read_text())
    assert figures["pearson"] > 0.95 and figures["mean_squared_error"] < 500 and "accuracy" not in figures
    (found,) = run.predict(["good film good film good"])
    assert found.number == pytest.approx(1150, abs=50) and float(found.label) == pytest.approx(found.number, rel=1e-4)
    (tmp_path / "in.txt").write_text("good film\n")
    assert main(["predict", "run", "in.txt", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"text", "number"}
    again = segue.load(tmp_path / "run").evaluate(str(_written(numbers(40), tmp_path)))
    assert again["rows"] == 40


def _written(rows: list[tuple[float, str]], folder: Path) -> Path:
    path = folder / "held.tsv"
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    return path


def test_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which text has the animal that comes first in the alphabet: the order of the two is seen."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    pairs = [draw.sample(["cat", "dog", "cow"], 2) for _ in range(300)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{'first' if a < b else 'second'}\tthe {a}\ta {b}\n" for a, b in pairs))
    settings = {"data__columns": "1,2,3", "model__width": 16, "model__pooling": "last"}
    run = trained("rnn_classifier", str(path), tmp_path / "run", **settings)
    answers = [found.label for found in run.predict(["the cat\ta dog", "the dog\ta cat"])]
    assert answers == ["first", "second"]
    with pytest.raises(InputError, match=r"pairs.*no tab"):
        list(run.predict(["the cat"]))


@pytest.mark.parametrize("kind", ["nbsvm", "window_tagger", "rnn_lm"])
def test_models_of_one_class_refuse_other_labels(kind: str) -> None:
    with pytest.raises(InputError, match=r"data.label=number"):
        load_recipe(kind, ["data.label=number"])


def test_no_label_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No row"):
        trained("cbow", [("a b", []), ("c", [])] * 10, tmp_path / "run", data__label="classes")


# Figures, against scikit-learn's and scipy's


def test_figures_of_several_classes() -> None:
    draw = np.random.default_rng(0)
    truth, guess = draw.random((40, 4)) < 0.4, draw.random((40, 4)) < 0.5
    found = metrics.several(truth, guess)
    assert found["accuracy"] == pytest.approx(theirs.accuracy_score(truth, guess))
    assert found["micro_f1"] == pytest.approx(theirs.f1_score(truth, guess, average="micro"))
    assert found["macro_f1"] == pytest.approx(theirs.f1_score(truth, guess, average="macro"))
    nothing = np.zeros((3, 2), bool)
    assert metrics.several(nothing, nothing) == {"accuracy": 1.0, "micro_f1": 0.0, "macro_f1": 0.0}


def test_correlations() -> None:
    draw = np.random.default_rng(0)
    a = draw.integers(0, 6, 50).astype(float)
    b = a + draw.normal(size=50).round()
    assert metrics.pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
    assert metrics.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert metrics.pearson(np.ones(3), a[:3]) == 0


# Given vectors


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text("3 4\nsoup 1 2 3 4\ngoal 5 6 7 8\nunmet 0 0 0 1\n")
    return path


def begun(vectors: Path, out: Path, kind: str = "cbow", **settings: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """The weights after one step at hardly any rate, and the tokenizer."""
    few = {"model__embedding": 4, "train__steps": 1, "train__optimizer__rate": 1e-12, "data__label": "classes"}
    run = trained(kind, several(60), out, model__embeddings=str(vectors), **{**few, **settings})
    return load_file(out / "model.safetensors"), run.tokenizer


def test_words_begin_with_their_vectors(vectors: Path, tmp_path: Path) -> None:
    weights, tokenizer = begun(vectors, tmp_path / "run")
    table = weights["vectors.weight"]
    ids = {word: int(tokenizer.encode(word)[0]) for word in ("soup", "goal", "team", "the")}
    torch.testing.assert_close(table[ids["soup"]], torch.tensor([1.0, 2, 3, 4]))
    torch.testing.assert_close(table[ids["goal"]], torch.tensor([5.0, 6, 7, 8]))
    others = torch.stack([table[ids["team"]], table[ids["the"]]])
    assert others.abs().max() > 0.3 and not table[:2].any()  # spread as the vectors are; unknown words say nothing


def test_a_word2vec_run_serves_as_well(vectors: Path, tmp_path: Path) -> None:
    assert main(["import", str(vectors), "--out", str(tmp_path / "words")]) == 0
    from_run, _ = begun(tmp_path / "words", tmp_path / "a")
    from_file, _ = begun(vectors, tmp_path / "b")
    torch.testing.assert_close(from_run["vectors.weight"], from_file["vectors.weight"])


def test_still_vectors_stay_and_the_second_channel_does(vectors: Path, tmp_path: Path) -> None:
    rate = {"train__optimizer__rate": 0.1, "train__steps": 5, "model__filters": 4}
    frozen, tokenizer = begun(vectors, tmp_path / "a", "cnn_classifier", train__freeze="vectors", **rate)
    moved, _ = begun(vectors, tmp_path / "b", "cnn_classifier", model__channels=2, **rate)
    soup, vector = int(tokenizer.encode("soup")[0]), torch.tensor([1.0, 2, 3, 4])
    torch.testing.assert_close(frozen["vectors.weight"][soup], vector)
    torch.testing.assert_close(moved["fixed_vectors"][soup], vector)
    assert (moved["vectors.weight"][soup] - vector).abs().max() > 0.01


def test_vectors_that_do_not_fit_are_refused(vectors: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"4 numbers.*model.embedding=4"):
        begun(vectors, tmp_path / "a", model__embedding=5)
    vectors.write_text("1 4\nnowhere 1 2 3 4\n")
    with pytest.raises(InputError, match="none of the"):
        begun(vectors, tmp_path / "b")
    with pytest.raises(InputError, match="not a run"):
        begun(tmp_path, tmp_path / "c")


# data.metric


def test_data_metric_names_the_figure_that_ranks(tmp_path):
    rows = tmp_path / "rows.tsv"
    rows.write_text(
        "".join(f"{i % 3 == 0:d}\t{'good' if i % 3 == 0 or i % 5 == 0 else 'bad'} film {i}\n" for i in range(120))
    )
    settings = ["data.test=0.5", "data.metric=matthews"]
    result = segue.train("naive_bayes", rows, tmp_path / "run", settings, progress=segue.silent).result
    assert result["figure"] == "matthews" and {"accuracy", "positive_f1", "matthews"} <= result.keys()
    low, high = result["matthews_ci"]
    assert -1 <= low <= result["matthews"] <= high <= 1
    again = segue.load(tmp_path / "run").evaluate(settings=["data.metric=positive_f1"])
    assert again["figure"] == "positive_f1" and again["matthews"] == pytest.approx(result["matthews"])


@pytest.mark.parametrize(
    ("model", "setting", "said"),
    [
        ("naive_bayes", "data.metric=pearson", "accuracy, matthews, positive_f1"),
        ("naive_bayes", "data.metric=bleu", "accuracy, matthews, positive_f1"),
        ("rnn_seq2seq", "data.metric=matthews", "bleu"),
    ],
)
def test_a_metric_of_other_labels_is_refused(model, setting, said):
    with pytest.raises(InputError, match=f"{setting} is not for this model.*{said}"):
        load_recipe(model, [setting])


def test_f1_of_the_positive_class_takes_two_classes(tmp_path):
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{'abc'[i % 3]}\tfilm {i % 3} {i}\n" for i in range(60)))
    with pytest.raises(InputError, match=r"second of two classes, and .* has 3"):
        segue.train("naive_bayes", rows, tmp_path / "run", ["data.metric=positive_f1"], progress=segue.silent)


def test_the_best_weights_are_chosen_by_data_metric(tmp_path):
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{i % 7 / 2}\t{'good ' * (i % 7)}film {i}\n" for i in range(80)))
    settings = {"data.label": "number", "data.metric": "spearman", "train.steps": 6, "train.every": 2}
    settings["data.validation"] = 0.5
    run = segue.train("bow", rows, tmp_path / "run", settings, progress=segue.silent)
    validated = [record for record in run.history if record["kind"] == "validation"]
    best = max(validated, key=lambda record: (record["spearman"], -record["loss"]))
    assert all(-1 <= record["spearman"] <= 1 for record in validated)
    assert run.result["best_step"] == best["step"]

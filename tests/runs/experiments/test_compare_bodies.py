"""Runs as models of a comparison: a new head on a body, frozen and fine-tuned, beside small models."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.recipe import read_recipe
from segue.runs.folder import read_json

BODY = {"model.layers": 1, "model.width": 8, "model.heads": 2, "model.context": 32, "batches.length": 32}
SMALL = {**BODY, "tokens.kind": "char", "train.steps": 2, "data.validation": 0}
MODELS = ["naive_bayes", "runs/bert", "runs/bert model.frozen=true"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A body that has read every text of a table, and the comparison of heads on it."""
    folder = tmp_path_factory.mktemp("bodies")
    draw = random.Random(3)
    words = {"good": ["fine", "great", "lovely"], "bad": ["dull", "awful", "poor"]}
    rows = [
        (label, " ".join(draw.choices(["a", "film", "with", "scenes", *words[label]], k=14)))
        for label in words
        for _ in range(40)
    ]
    (folder / "sst2.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    (folder / "book.txt").write_text("\n".join(text for _, text in rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        segue.train("bert", "book.txt", "runs/bert", SMALL)
        segue.compare("sst2.tsv", MODELS, budget=2, out="runs/compared", settings={"batches.size": 4})
    return folder


@pytest.fixture
def compared(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(place)
    found: dict[str, Any] = read_json(Path("runs/compared/result.json"))
    return found


def test_heads_stand_beside_small_models(compared: dict[str, Any]) -> None:
    rows = {row["model"]: row for row in compared["rows"]}
    assert set(rows) == {"naive_bayes", "bert/head", "bert/head frozen=true"}
    seconds = read_json(Path("runs/bert/result.json"))["train_seconds"]
    assert rows["naive_bayes"]["pretrained"] is None
    assert rows["bert/head"]["pretrained"] == {"run": "runs/bert", "seconds": seconds}
    assert rows["bert/head frozen=true"]["run"] == "runs/compared/bert-head-frozen=true"
    recipe = read_recipe(Path(rows["bert/head frozen=true"]["run"]) / "recipe.toml")
    assert (recipe.kind, recipe.model.body, recipe.model.frozen) == ("finetuned_classifier", "runs/bert", True)


def test_pre_training_and_leaks_are_told(compared: dict[str, Any]) -> None:
    said = " ".join(compared["left_out"])
    assert "began from runs/bert, trained for" in said and "before the budget began" in said
    assert "% of the rows' text (windows of 50 bytes) stood in what runs/bert was trained on" in said


def test_frozen_stands_beside_fine_tuned(compared: dict[str, Any]) -> None:
    rows = {row["model"]: row for row in compared["rows"]}
    [pair] = compared["frozen"]
    assert pair["body"] == "runs/bert"
    assert (
        pair["frozen"] == rows["bert/head frozen=true"]["accuracy"] and pair["tuned"] == rows["bert/head"]["accuracy"]
    )
    page = Path("runs/compared/report.html").read_text(encoding="utf-8")
    assert "Frozen and fine-tuned" in page and "the lecture’s BERT base on SST-2" in page
    assert "Where the weights changed" in page and "layer 1 feed-forward" in page


def test_only_what_learns_has_changed(compared: dict[str, Any]) -> None:
    tuned, frozen = (
        read_json(Path(f"runs/compared/{name}/result.json")) for name in ("bert-head", "bert-head-frozen=true")
    )
    assert "weight_change" not in frozen and frozen["pretrained"]["run"] == "runs/bert"
    parts = {one["part"]: one["change"] for one in tuned["weight_change"]["parts"]}
    assert {"vectors", "layer 1 attention", "layer 1 feed-forward"} <= parts.keys()
    assert all(change > 0 for change in parts.values())
    assert not {"transform", "pooler"} & parts.keys()  # what predicts tokens, and a pooler that has not learnt


def test_the_comparison_goes_on(compared: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--out", "runs/compared", "--resume"]) == 0
    out = capsys.readouterr().out
    assert "runs/bert: frozen" in out and "+ 0 s" in out


def test_a_head_goes_on_from_its_run_when_the_body_is_gone(compared: dict[str, Any], tmp_path: Path) -> None:
    settings = {"train.steps": 1, "batches.size": 4}
    shutil.copytree("runs/bert", "runs/other")
    run = segue.train("runs/other", "sst2.tsv", tmp_path / "run", settings)
    shutil.rmtree("runs/other")
    again = segue.train(run.path, "sst2.tsv", tmp_path / "again", settings)  # which goes on from the run, head and all
    assert again.recipe.train.init == str(run.path)
    before, after = run.result["pretrained"]["seconds"], again.result["pretrained"]["seconds"]
    assert after == pytest.approx(before + run.result["train_seconds"])
    assert "head" in {one["part"] for one in again.result["weight_change"]["parts"]}


def test_a_cost_is_explained(compared: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "finetuned_classifier", "model.body=runs/bert", "model.frozen=true"]) == 0
    frozen = capsys.readouterr().out
    assert "stays as it is" in frozen and "computed once for each row" in frozen
    assert main(["explain", "runs/compared/bert-head"]) == 0
    assert "where the weights changed since runs/bert" in capsys.readouterr().out


def test_a_body_for_other_data_is_refused(compared: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="parallel data cannot train it further"):
        segue.compare("grammar", ["rnn_seq2seq", "runs/bert"], task="seq2seq", budget=1, out="runs/no")

"""Answers on a body, from files to figures: they are learnt, runs go on after a stop, and what is cut is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.data.example import Answer, Example
from segue.data.grammar import sentences
from segue.errors import InputError

BODY = {"model.layers": 2, "model.width": 32, "model.heads": 2, "model.context": 48, "batches.length": 48}
SMALL = {"train.steps": 4, "batches.size": 8, "train.optimizer.rate": 0.001}


def squad(rows: list[Example]) -> str:
    """SQuAD's JSON, a question a paragraph."""
    paragraphs = [
        {
            "context": row.target,
            "qas": [
                {
                    "id": f"q{row.line}",
                    "question": row.text,
                    "answers": [{"text": one.text, "answer_start": one.begin} for one in row.answers],
                    "is_impossible": not row.answers,
                }
            ],
        }
        for row in rows
    ]
    return json.dumps({"version": "v2.0", "data": [{"title": "grammar", "paragraphs": paragraphs}]})


def in_one_sentence(row: Example) -> Example:
    """The same question about the sentence with its answer alone, who or what: where it stands is soon learnt."""
    [answer] = row.answers
    cut = row.target.index(" . ") + 3
    if answer.begin < cut:
        return row._replace(target=row.target[: cut - 1])
    return row._replace(target=row.target[cut:], answers=(Answer(answer.begin - cut, answer.text),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A body of words, and questions about the grammar's sentences: all of them, and those with an answer in one."""
    folder = tmp_path_factory.mktemp("body")
    made = list(sentences("answers", 600))
    (folder / "all.json").write_text(squad(made), encoding="utf-8")
    (folder / "easy.json").write_text(squad([in_one_sentence(row) for row in made if row.answers]), encoding="utf-8")
    text = [f"{row.text} {row.target}" for row in made]
    settings = {**BODY, "tokens.kind": "space", "train.steps": 1, "data.validation": 0.0}
    segue.train("bert", text, folder / "bert", settings, device="cpu")
    return folder


def train(folder: Path, out: Path, settings: dict[str, Any], data: str = "all.json") -> Any:
    settings = SMALL | {"model.body": str(folder / "bert")} | settings
    return segue.train("finetuned_answerer", str(folder / data), out, settings, device="cpu")


def test_answers_are_learnt_from_files_to_figures(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """On a body with hardly more than random weights, the best possible score is reached within a hair."""
    settings = {"train.steps": 120, "batches.size": 32, "train.optimizer.rate": 0.005, "model.dropout": 0.0}
    run = train(folder, tmp_path / "run", settings, "easy.json")
    assert run.labels == ("begin", "end") and run.result["f1"] > 0.97 and run.result["reachable"] == 1.0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "token F1" in page and "begin and end right" in page
    assert main(["predict", str(tmp_path / "run"), str(folder / "easy.json"), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["id"] == "q1" and sum(row["answer"] == row["answers"][0]["text"] for row in rows) > 0.95 * len(rows)
    assert all(row["context"][row["begin"] : row["end"]] == row["answer"] for row in rows)


@pytest.mark.parametrize("values", [{}, {"model.frozen": True, "model.mix": True}], ids=["all learns", "frozen"])
def test_a_run_that_was_stopped_ends_in_the_same_bytes(folder: Path, tmp_path: Path, values: dict[str, Any]) -> None:
    train(folder, tmp_path / "whole", values)
    train(folder, tmp_path / "parts", {**values, "train.steps": 2})
    segue.train(None, out=tmp_path / "parts", settings={"train.steps": 4}, resume=True, device="cpu")
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_a_run_where_a_model_is_named_puts_this_head_on_it(folder: Path, tmp_path: Path) -> None:
    run = segue.train(str(folder / "bert"), str(folder / "all.json"), tmp_path / "run", SMALL, device="cpu")
    assert run.recipe.kind == "finetuned_answerer" and run.labels == ("begin", "end", "none")
    assert run.result["no_answer_questions"] > 0


def test_long_questions_are_cut_and_counted(folder: Path, tmp_path: Path) -> None:
    rows = [("who sees " * 20 + "?", "the dog sees . " * 20 + "the cat naps .", "the cat")] * 10
    run = segue.train(
        *("finetuned_answerer", rows, tmp_path / "run"),
        {**SMALL, "model.body": str(folder / "bert"), "data.validation": 0.0},
        device="cpu",
    )
    cut = 41 - (48 - 3) // 2
    assert json.loads((tmp_path / "run" / "ledger.json").read_text())["tokens_cut"] == 10 * cut
    assert run.labels == ("begin", "end") and run.evaluate(rows[:3])["tokens_cut"] == 3 * cut
    [span] = run.predict([rows[0][:2]])
    assert span.windows > 3 and span.answer and span.no_answer is None


def test_nothing_to_learn_is_refused(folder: Path, tmp_path: Path) -> None:
    rows = [("who ?", "the dog sees .", "")] * 5
    with pytest.raises(InputError, match=r"No question of .* has an answer"):
        segue.train(
            "finetuned_answerer", rows, tmp_path / "run", {"model.body": str(folder / "bert"), "data.validation": 0.0}
        )

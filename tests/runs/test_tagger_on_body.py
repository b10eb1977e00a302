"""Tags on a body, from a file to figures: the run stands alone, goes on after a stop, and cuts no sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.errors import InputError

NAMES, VERBS = ["Ann", "Bob", "Cyril", "Diana"], ["ran", "sat", "fell"]
BODY = {"model.layers": 1, "model.width": 8, "model.heads": 2, "model.context": 24, "batches.length": 24}
SMALL = {"train.steps": 4, "batches.size": 8, "data.label": "bioes", "model.crf": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A body of bytes, and sentences with names of one or two words; one sentence is far longer than its window."""
    folder, draw = tmp_path_factory.mktemp("body"), np.random.default_rng(0)
    rows = [[(str(name), "I-PER") for name in draw.choice(NAMES, draw.integers(1, 3))] for _ in range(40)]
    rows = [[*row, (str(draw.choice(VERBS)), "O")] for row in rows]
    rows.append([word for row in rows for word in row])
    lines = ["".join(f"{word}\t{tag}\n" for word, tag in row) for row in rows]
    (folder / "names.conll").write_text("\n".join(lines), encoding="utf-8")
    settings = {**BODY, "tokens.kind": "byte", "train.steps": 1, "data.validation": 0.0}
    text = [" ".join(word for word, _ in row) for row in rows] * 2
    segue.train("bert", text, folder / "bert", settings, device="cpu")
    return folder


def train(folder: Path, out: Path, settings: dict[str, Any]) -> Any:
    settings = SMALL | {"model.body": str(folder / "bert")} | settings
    return segue.train("finetuned_tagger", str(folder / "names.conll"), out, settings, device="cpu")


def test_spans_from_file_to_figures_without_the_body(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    trained = train(copy, tmp_path / "run", {})
    shutil.rmtree(copy / "bert")
    run = segue.load(tmp_path / "run")
    assert run.labels == ("B-PER", "E-PER", "O", "S-PER") and run.tokenizer.kind == "byte"
    long = " ".join(NAMES * 20)
    for said, again in zip(run.predict(["Ann ran", long]), trained.predict(["Ann ran", long]), strict=True):
        assert len(said.tags) == len(said.words) and said == again
    result = run.evaluate(str(copy / "names.conll"))
    assert result["figure"] == "span_f1" and result["words"] > 100 and "tokens_cut" not in result
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger["tokens_cut"] == 0


@pytest.mark.parametrize("values", [{}, {"model.frozen": True, "model.mix": True}], ids=["all learns", "frozen"])
def test_a_run_that_was_stopped_ends_in_the_same_bytes(folder: Path, tmp_path: Path, values: dict[str, Any]) -> None:
    train(folder, tmp_path / "whole", values)
    train(folder, tmp_path / "parts", {**values, "train.steps": 2})
    segue.train(None, out=tmp_path / "parts", settings={"train.steps": 4}, resume=True, device="cpu")
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_tokens_are_the_bodys(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tokens\.kind is byte"):
        train(folder, tmp_path / "run", {"tokens.kind": "space"})

"""train.init: every kind that learns by gradient begins from its own run, and marks are taken by their names."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import segue
from segue import models, tasks
from segue.batches.codec import Sizes
from segue.data import grammar
from segue.data.example import Example
from segue.models import model_class
from segue.models.gpt import Gpt
from segue.models.network import Network
from segue.training.setup import take_weights

NETWORKS = [kind for kind in models.kinds() if issubclass(model_class(kind), Network)]
SMALL = {"width": 8, "embedding": 8, "layers": 1, "heads": 2}
TINY = {"train.steps": 2, "batches.size": 4, "data.validation": 0.1}
ROWS: dict[str, Callable[[Example], Any]] = {
    "text": lambda example: example.text,
    "labelled": lambda example: (example.label, example.text),
    "tagged": lambda example: (list(example.words), list(example.tags)),
    "parallel": lambda example: (example.text, example.target),
    "answers": lambda example: (
        example.text,
        example.target,
        [{"text": one.text, "answer_start": one.begin} for one in example.answers],
    ),
}


def train(kind: str, folder: Path, **settings: Any) -> segue.Run:
    """Train for two steps on a few sentences of the built-in grammar."""
    shape = tasks.task(model_class(kind).task).shape.name
    rows = [ROWS[shape](example) for example in grammar.sentences(shape, 100)]
    return segue.train(kind, rows, folder, TINY | settings, device="cpu")


def begin(kind: str, folder: Path, **settings: Any) -> segue.Run:
    """Train a narrow model."""
    if model_class(kind).framed:
        settings |= {"model.body": str(begin("gpt", folder.parent / "body").path)}
    keys = {field.name: field.default for field in dataclasses.fields(model_class(kind).Config)}
    small = {f"model.{key}": value for key, value in SMALL.items() if keys.get(key)}
    run = train(kind, folder, **small, **settings)
    if model_class(kind).framed:
        shutil.rmtree(folder.parent / "body")  # the run does not need its body's any more
    return run


def follow(kind: str, folder: Path, init: Path) -> segue.Run:
    """Train on from a run, at a rate that changes next to nothing; no other key is set."""
    return train(kind, folder, **{"train.init": str(init), "train.optimizer.rate": 1e-9})


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_kind_begins_from_its_own_run(kind: str, tmp_path: Path) -> None:
    first = begin(kind, tmp_path / "first")
    second = follow(kind, tmp_path / "second", first.path)
    assert second.recipe.model == first.recipe.model
    assert second.recipe.batches == first.recipe.batches
    one, two = (load_file(run.path / "model.safetensors") for run in (first, second))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_a_classifier_begins_from_a_language_model(cell: str, tmp_path: Path) -> None:
    """Token vectors and recurrent layer are the language model's, tokens too; the head has a row a class."""
    narrow = {"model.cell": cell, "model.width": 8, "model.embedding": 6}
    first = train("rnn_lm", tmp_path / "lm", **narrow, **{"tokens.kind": "word"})
    still = {"train.init": str(first.path), "train.optimizer.rate": 1e-9}
    second = train("rnn_classifier", tmp_path / "classifier", **narrow, **still, **{"model.both": False})
    assert second.tokenizer.content == first.tokenizer.content
    one, two = (load_file(run.path / "model.safetensors") for run in (first, second))
    assert one.keys() == two.keys() and len(two["head.weight"]) == len(second.labels)
    for name in one.keys() - {"head.weight", "head.bias"}:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-6)
    with pytest.raises(segue.InputError, match=r"reverse is absent there .* give the same model section"):
        train("rnn_classifier", tmp_path / "both", **narrow, **still)


@pytest.mark.parametrize("tied", [True, False])
def test_marks_are_taken_by_name_and_new_ones_begin_anew(tied: bool, tmp_path: Path, monkeypatch: Any) -> None:
    give_marks(monkeypatch, "mask", "start")
    run = begin("gpt", tmp_path / "run", **{"model.tied": False})
    size, config = run.sizes.vocab_size, dataclasses.replace(run.recipe.model, tied=tied)
    assert run.sizes.marks == ("mask", "start")
    model = Gpt(config, Sizes(size, marks=("end", "mask")))
    drawn = model.vectors.weight.detach().clone()
    take_weights(model, str(run.path))
    taken, theirs = model.vectors.weight.detach(), load_file(run.path / "model.safetensors")["vectors.weight"]
    torch.testing.assert_close(taken[:size], theirs[:size], rtol=0, atol=0)
    torch.testing.assert_close(taken[model.sizes.mark("mask")], theirs[run.sizes.mark("mask")], rtol=0, atol=0)
    torch.testing.assert_close(taken[model.sizes.mark("end")], drawn[model.sizes.mark("end")], rtol=0, atol=0)


def test_a_run_with_marks_begins_from_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begin("gpt", tmp_path / "first", **{"model.tied": False})
    give_marks(monkeypatch, "mask")
    second = follow("gpt", tmp_path / "second", first.path)
    one, two = (load_file(run.path / "model.safetensors")["vectors.weight"] for run in (first, second))
    assert len(two) == len(one) + 1
    torch.testing.assert_close(two[: len(one)], one, rtol=0, atol=1e-6)


def give_marks(monkeypatch: pytest.MonkeyPatch, *marks: str) -> None:
    """Let gpt have these marks."""
    monkeypatch.setattr(Gpt, "marks", classmethod(lambda cls, config: marks))

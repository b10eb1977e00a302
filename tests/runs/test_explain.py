"""`segue explain`: what is said of a kind depends on what its class derives from, so that a new one needs no edit."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from rich.console import Console

from segue import tasks
from segue.cli import main
from segue.look import terminal
from segue.models import kinds, task_of
from segue.recipe import hints_of, load_recipe

OWN = '''"""A log-bilinear language model of my own."""

from dataclasses import dataclass

import torch
from torch import nn

from segue.models.base import LanguageModel, ModelConfig
from segue.models.network import Network


class Mine(Network, LanguageModel):
    task = "lm"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        width: int = 6
        """Numbers in a vector."""

    def __init__(self, config, sizes):
        super().__init__(config, sizes)
        self.vectors = nn.Embedding(sizes.ids, config.width)
        self.middle = nn.Linear(config.width, config.width)
        self.head = nn.Linear(config.width, sizes.vocab_size)

    def forward(self, batch, state=None):
        return self.head(self.middle(self.vectors(batch.tokens_BT))), None

    def start(self, rows, capacity, source=None, source_mask=None):
        return None

    @torch.inference_mode()
    def step(self, tokens_BT, mask_BT, state):
        return self.head(self.middle(self.vectors(tokens_BT[:, -1]))), None
'''


def test_a_model_of_my_own_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its head, its keys and its costs; by hand: 100 vectors of 6, a matrix of 6 x 6, and the output layer."""
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    assert main(["explain", str(path), "--trust"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of my own" in said and "model.width 6 Numbers in a vector." in said
    assert f"middle {6 * 6 + 6} head {6 * 100 + 100} in all {1300 + 42:,}".replace("head", "output layer") in said
    assert "layers 72 2 for each weight of a matrix output layer 1,200" in said
    assert main(["explain", str(path)]) == 2  # its code is not run unasked


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_explained(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", kind])
    said = capsys.readouterr()
    assert code == 0 and "[model]" in said.out and "[data]" in said.out


@pytest.mark.parametrize(("kind", "decodes"), [("word2vec", False), ("bow", False), ("ngram", True)])
def test_keys_of_decoding_are_those_of_models_that_write(
    kind: str, decodes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", kind]) == 0
    assert ("decode.temperature" in capsys.readouterr().out) is decodes


def test_the_norm_that_the_published_gpt_lacks_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt", "model.size=gpt"]) == 0
    said = capsys.readouterr().out
    ours, published = 116_536_320, 116_534_784
    assert ours - published == 2 * 768  # a scale and a shift of the last norm
    assert f"{ours:,}" in said and f"{published:,}" in said
    assert "post-LN and has none" in said
    assert main(["explain", "gpt", "model.size=gpt", "model.norm=post"]) == 0
    said = capsys.readouterr().out
    assert f"{ours:,}" not in said and "post-LN and has none" not in said


def narrow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(terminal, "_console", lambda: Console(highlight=False, width=width))


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("kind", ["gpt", "ngram", "rnn_tagger"])
def test_explain_fits_the_terminal(
    kind: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow(monkeypatch, width)
    assert main(["explain", kind]) == 0
    for line in capsys.readouterr().out.split("\n"):
        assert len(line.rstrip()) <= width or line.startswith("    ") or " = " in line, line


@pytest.mark.parametrize(
    ("kind", "there", "missing"),
    [
        ("ngram", ["data.unit", "decode.seed"], ["batches.", "data.label", "[batches]"]),
        ("word2vec", ["data.unit"], ["batches.", "decode.", "[decode]"]),
        ("naive_bayes", ["data.label", "batches.length"], ["batches.size", "data.unit", "decode."]),
        ("bow", ["batches.size", "batches.tokens"], ["batches.vary", "data.carry"]),
        ("rnn_lm", ["batches.vary", "decode.top_p"], ["batches.tokens", "data.label", "decode.prefix"]),
        ("rnn_seq2seq", ["decode.beam", "decode.prefix", "batches.tokens"], ["decode.stop", "data.label"]),
    ],
)
def test_only_what_a_model_reads_is_explained(
    kind: str, there: list[str], missing: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", kind]) == 0
    lines = capsys.readouterr().out.split("\n")
    for name in there:
        assert any(line.startswith(name) for line in lines), name
    for name in missing:
        assert not any(line.startswith(name) for line in lines), name


def test_every_choice_that_is_checked_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = load_recipe("rnn_tagger")
    sections = (recipe.data, recipe.tokens, recipe.batches, recipe.model, recipe.train, recipe.train.optimizer)
    hints = [(name, hint) for section in sections for name, hint in hints_of(type(section)).items()]
    choices = {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}
    assert {"format", "label", "kind", "name", "schedule", "cell"} <= set(choices)
    assert main(["explain", "rnn_tagger"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for name, values in choices.items():
        if name not in ("unit", "blank_lines", "noise", "kind", "label"):  # not read, or a model takes fewer
            assert f"Choices: {', '.join(values)}" in said, name
    assert f"Choices: {', '.join(recipe.model_class.labels)}" in said


def test_models_stand_by_their_task(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    narrow(monkeypatch, 80)
    assert main(["models"]) == 0
    said = capsys.readouterr().out
    groups = {block.partition(":")[0]: block for block in said.split("\n\n")}
    assert list(groups) == tasks.names()
    for kind in kinds():
        assert f"\n  {kind} " in groups[task_of(kind)]
    assert all(len(line) <= 80 for line in said.split("\n"))

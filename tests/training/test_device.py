"""Threads: how many are used, who says so, and what is refused."""

import json
import os
from pathlib import Path

import pytest
import torch
import typer

import segue
from segue.cli import app
from segue.training import device as devices

TEXT = ["The cows eat grass.", "The cow eats.", "A farmer sees the cows.", "Grass is green."] * 4
TINY = {"model.width": 8, "batches.size": 2, "batches.length": 8, "train.steps": 2, "tokens.kind": "char"}


def test_threads_are_those_of_the_block_only() -> None:
    before = torch.get_num_threads()
    with devices.using_threads(2):
        assert torch.get_num_threads() == devices.asked_threads() == 2
        with devices.using_threads(0):
            torch.set_num_threads(1)
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before and not devices.asked_threads()


def test_a_run_says_its_threads_and_gives_them_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    segue.train("rnn_lm", TEXT, tmp_path / "run", TINY, device="cpu", threads=2)
    assert json.loads((tmp_path / "run/environment.json").read_text())["threads"] == 2
    assert torch.get_num_threads() == before


def test_every_verb_that_computes_takes_threads() -> None:
    commands = typer.main.get_group(app).commands
    computes = ["train", "compare", "claim", "evaluate", "score", "generate", "predict", "challenge", "look", "serve"]
    for name in computes:
        assert "threads" in {option.name for option in commands[name].params}, name


def test_the_threads_of_a_comparison_reach_its_runs(tmp_path: Path) -> None:
    segue.compare(TEXT, ["rnn_lm"], "2", out=tmp_path / "c", settings=TINY | {"data.test": 0.2}, threads=2)
    made = json.loads(next(tmp_path.glob("c/*/environment.json")).read_text())
    assert made["threads"] == 2


def test_word_vectors_take_the_threads_of_a_comparison_too(tmp_path: Path) -> None:
    with devices.using_threads(3):
        run = segue.train("word2vec", TEXT, tmp_path / "run", {"model.width": 4, "tokens.min_count": 1})
    assert run.recipe.train.threads == 3


@pytest.mark.parametrize("threads", [-1, 4 * (os.cpu_count() or 1) + 1, 99_999])
def test_more_threads_than_cores_can_use_are_refused(threads: int) -> None:
    with pytest.raises(segue.InputError, match="Expected 1 to"):
        devices.check_threads(threads)

"""Runs with a body (model.body): they stand alone, go on after a crash, and leave a frozen body as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import segue
from segue.data import grammar
from segue.errors import InputError
from segue.models.heading import Heading
from segue.recipe import load_recipe
from segue.runs.body import rate_for, with_rate
from segue.runs.leaks import trained_runs
from segue.training import frozen_states, trainer

TINY = {"train.steps": 4, "train.every": 2, "batches.size": 8, "data.validation": 0.2, "train.optimizer.warmup": 0}
WORDS = ["the", "old", "cow", "sees", "a", "red", "barn", "near", "my", "lake", "and", "eats"]


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bodies")
    text = [example.text for example in grammar.sentences("text", 200)]
    small = {"model.layers": 2, "model.width": 8, "model.heads": 2, "model.context": 16, "tokens.kind": "char"}
    settings = {**small, "train.steps": 2, "batches.size": 4, "batches.length": 16, "data.validation": 0.1}
    segue.train("bert", text, folder / "bert", settings, device="cpu")
    return folder


def rows_of(count: int = 40) -> list[tuple[str, str]]:
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, size)) for size in draw.integers(1, 12, count)]
    return [("ab"["cow" in text], text) for text in texts]


def train(body: Path, out: Path, rows: Any = None, **settings: Any) -> segue.Run:
    keys = {"model.body": str(body), "model.dropout": 0.2, **TINY}
    keys |= {key.replace("__", "."): value for key, value in settings.items()}
    return segue.train("finetuned_classifier", rows or rows_of(), out, keys, device="cpu")


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_a_run_stands_alone(bodies: Path, tmp_path: Path) -> None:
    shutil.copytree(bodies / "bert", tmp_path / "body")
    run = train(tmp_path / "body", tmp_path / "run")
    assert run.tokenizer.content == segue.load(bodies / "bert", device="cpu").tokenizer.content
    assert run.sizes.marks == ("start", "mask") and run.sizes.window == 16
    assert [str(path) for path in trained_runs(run.path, run.recipe, own=True)] == [str(tmp_path / "body")]
    ledger = json.loads((run.path / "ledger.json").read_text(encoding="utf-8"))
    config = json.loads((bodies / "bert" / "config.json").read_text(encoding="utf-8"))
    assert config["files"]["model.safetensors"]["sha256"] in json.dumps(ledger)
    assert not ledger.get("tokens_cut")  # characters, of which the body sees 16 at once
    texts = ["a cow", "the lake and the barn and the old cow near my lake"]
    said = list(run.predict(texts))
    shutil.rmtree(tmp_path / "body")
    moved = run.path.rename(tmp_path / "moved")
    assert list(segue.load(moved, device="cpu").predict(texts)) == said
    with pytest.raises(InputError, match="has a head already"):
        train(moved, tmp_path / "twice")
    assert [next(iter(run.predict([text]))).label for text in texts] == [one.label for one in said]


class KilledError(BaseException):
    """The process is gone: nothing is cleaned up."""


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("when", ["before the first step", "after a checkpoint"])
def test_it_goes_on_bit_for_bit_without_its_body(
    bodies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen: bool, when: str
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"label": a, "text": b}) + "\n" for a, b in rows_of()), encoding="utf-8")
    whole = train(bodies / "bert", tmp_path / "whole", data, model__frozen=frozen, model__mix=frozen)
    shutil.copytree(bodies / "bert", tmp_path / "body")
    step = trainer.Trainer._step

    def dies(self: Any, *given: Any) -> None:
        if self.step == (0 if when == "before the first step" else 3):
            raise KilledError
        step(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(trainer.Trainer, "_step", dies)
        with pytest.raises(KilledError):
            train(tmp_path / "body", tmp_path / "run", data, model__frozen=frozen, model__mix=frozen)
    shutil.rmtree(tmp_path / "body")
    resumed = segue.train(out=tmp_path / "run", resume=True, device="cpu")
    assert weights(resumed.path) == weights(whole.path)
    assert not (resumed.path / "store").exists()


def test_a_frozen_body_keeps_its_bytes_and_is_written_once(bodies: Path, tmp_path: Path) -> None:
    run = train(bodies / "bert", tmp_path / "run", model__frozen=True)
    before, after = load_file(bodies / "bert" / "model.safetensors"), load_file(run.path / "model.safetensors")
    assert {f"body.{name}" for name in before} == {name for name in after if name.startswith("body.")}
    assert all(torch.equal(before[name], after[f"body.{name}"]) for name in before)
    kept = load_file(run.path / "checkpoints" / "frozen.safetensors")
    assert set(kept) == {name for name in after if name.startswith("body.")}
    for place in run.path.glob("checkpoints/step-*"):
        assert set(load_file(place / "model.safetensors")) == {"head.weight", "head.bias"}


def test_states_of_a_frozen_body_are_computed_once(
    bodies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run learns the same as one that computes them in every step, but for the last bits."""
    steps: list[str] = []
    read = Heading.read

    def watched(self: Any, batch: Any) -> Any:
        steps.extend([self.config.body] if self.training else [])
        return read(self, batch)

    monkeypatch.setattr(Heading, "read", watched)
    run = train(bodies / "bert", tmp_path / "kept", model__frozen=True)
    assert not steps
    monkeypatch.setattr(frozen_states, "MOST", 0)
    other = train(bodies / "bert", tmp_path / "anew", model__frozen=True)
    assert len(steps) == TINY["train.steps"]
    one, two = (load_file(path / "model.safetensors") for path in (run.path, other.path))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("label", ["classes", "number"])
def test_several_labels_and_numbers_of_pairs(bodies: Path, tmp_path: Path, label: str) -> None:
    lines = [f"{i % 7 if label == 'number' else 'ab'[i % 2]}\t{a}\t{b}\n" for i, (b, a) in enumerate(rows_of())]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    data = {"data__label": label, "data__columns": "1,2,3"}
    # At the first place the second text changes a body this small by less than a float32 can hold.
    run = train(bodies / "bert", tmp_path / "run", tmp_path / "pairs.tsv", model__pooling="mean", **data)
    one, two = run.predict(["a cow\tmy lake", "a cow\tthe old cow sees a red barn near my lake and eats"])
    assert one.number != two.number if label == "number" else one.probabilities != two.probabilities


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tokens__kind": "word"}, "brings its tokens along"),
        ({"model__body": ""}, "name that run, model.body=runs/bert"),
        ({"model__body": "nowhere"}, "no run folder nowhere"),
        ({"model__frozen": True, "model__layers": 1}, "leave one out"),
    ],
)
def test_what_cannot_be_is_refused(bodies: Path, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        train(bodies / "bert", tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_the_rate_of_the_recipe_suits_the_body(bodies: Path, tmp_path: Path) -> None:
    """2e-3 for a body 128 wide or less, 3e-5 for BERT-base, twice as much for a head alone; or what is named."""
    recipe = load_recipe("finetuned_classifier", [f"model.body={bodies / 'bert'}"])
    frozen = load_recipe("finetuned_classifier", [f"model.body={bodies / 'bert'}", "model.frozen=true"])
    assert (rate_for(recipe), rate_for(frozen)) == pytest.approx((1e-3, 2e-3))
    shutil.copytree(bodies / "bert", tmp_path / "wide")
    config = json.loads((tmp_path / "wide" / "config.json").read_text(encoding="utf-8"))
    config["config"]["width"] = 768
    (tmp_path / "wide" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    wide = [f"model.body={tmp_path / 'wide'}"]
    assert rate_for(load_recipe("finetuned_classifier", wide)) == pytest.approx(3e-5, rel=0.1)
    config["sizes"]["body"] = {"config": {"width": 768}}
    (tmp_path / "wide" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    goes_on = load_recipe("finetuned_classifier", [f"train.init={tmp_path / 'wide'}"])
    assert rate_for(goes_on) == pytest.approx(3e-5, rel=0.1)
    named = load_recipe("finetuned_classifier", [*wide, "train.optimizer.rate=0.02"])
    assert with_rate(named, 3e-5).train.optimizer.rate == 0.02


def test_an_ensemble_of_heads_says_what_they_say(bodies: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"label": a, "text": b}) + "\n" for a, b in rows_of()), encoding="utf-8")
    runs = [train(bodies / "bert", tmp_path / str(seed), data, train__seed=seed) for seed in (0, 1)]
    names = ",".join(str(run.path) for run in runs)
    both = segue.train("ensemble", None, tmp_path / "both", {"model.runs": names}, device="cpu")
    text = "the lake and the barn and the old cow near my lake"
    *parts, said = [next(iter(run.predict([text]))).probabilities for run in (*runs, both)]
    pooled = np.exp(both.model.weights @ np.log(parts))
    np.testing.assert_allclose(said, pooled / pooled.sum(), rtol=1e-4)

"""T5 on running text: what the data decide, the figure by hand, going on with pairs and labels, holes, and heads."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segue
from segue.batches.batches import Config as BatchConfig
from segue.batches.encode import encode_split
from segue.batches.spans import SpanRows
from segue.data.corpus import Corpus
from segue.errors import InputError
from segue.models.t5 import T5
from segue.recipe import load_recipe
from segue.training.trainer import Trainer

SMALL = [
    *("model.layers=1", "model.width=16", "model.heads=2", "tokens.vocab_size=300", "batches.size=4"),
    *("train.steps=6", "train.optimizer.warmup=0"),
]
LINES = [
    f"The {a} list holds {n} {b} objects, and the {b} call returns {n}."
    for a, b, n in itertools.product(("first", "second", "empty"), ("small", "large"), range(9))
]
PAIRS = [(f"{n} and {m}", f"{m} then {n}") for n in range(8) for m in range(8)]
LABELLED = [(("even", "odd")[n % 2], f"the number {n} is here") for n in range(40)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    """A T5 that was pre-trained a little."""
    place = tmp_path_factory.mktemp("t5")
    (place / "book.txt").write_text("\n".join(LINES), encoding="utf-8")
    return segue.train("t5", place / "book.txt", place / "run", [*SMALL, "batches.length=32", "data.unit=line"])


def written(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return str(path)


# What the data decide


def test_running_text_is_noised_and_pairs_are_not(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n".join(LINES), encoding="utf-8")
    pairs = written(tmp_path / "pairs.tsv", [("source", "target"), *PAIRS])
    labels = written(tmp_path / "labels.tsv", [("label", "text"), *LABELLED])
    text, real, classes = (
        load_recipe("t5", base={"data": {"path": str(path)}}) for path in (tmp_path / "book.txt", pairs, labels)
    )
    assert (text.batches.noise, text.shape.name, text.batches.length) == ("spans", "text", 128)
    assert (real.batches.noise, real.shape.name, real.data.metric) == ("none", "parallel", "auto")
    assert (classes.batches.noise, classes.data.columns, classes.data.metric) == ("none", "text,label", "exact")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("transformer", ["batches.noise=spans"], "batches.noise=spans is for t5"),
        ("t5", ["tokens.sides=each"], "tokens.sides=each is not for t5"),
        ("t5", ["tokens.dropout=0.1"], "tokens.dropout=0.1 is not for t5"),
        ("t5", ["batches.noise=spans", "batches.share=0.9"], "share=0.9 of a text cannot be hidden"),
        ("t5", ["batches.noise=spans", "batches.vary=true"], "all are of one length"),
        ("t5", ["batches.noise=spans", "batches.length=4"], "too short to hide a span"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(kind: str, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_recipe(kind, settings)


# The figure


def test_the_perplexity_is_that_of_the_targets_with_the_same_spans_each_time(run: segue.Run, tmp_path: Path) -> None:
    corpus = Corpus(run.recipe.data, run.recipe.shape)
    held_out = encode_split(corpus, "validation", run.tokenizer, None, tmp_path, 0)
    rows = SpanRows(held_out.store, BatchConfig(size=16, length=32, noise="spans"), 0, run.sizes)
    nats = tokens = right = 0.0
    with torch.inference_mode():
        for step in range(rows.per_epoch):
            (batch,) = rows.at(step)
            logp_BTV = run.model(batch.to("cpu"))[0].double().log_softmax(-1)
            targets = torch.from_numpy(batch.targets)
            nats -= float(logp_BTV.gather(2, targets[..., None]).sum())
            right += float((logp_BTV.argmax(-1) == targets).sum())
            tokens += targets.numel()
    found = run.evaluate()
    assert found["span_perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-5)
    assert found["span_accuracy"] == pytest.approx(right / tokens) and found["tokens"] == tokens
    assert run.evaluate()["span_perplexity"] == found["span_perplexity"] == run.result["span_perplexity"]
    assert "bits_per_byte" not in found and "perplexity" not in found
    low, high = found["span_perplexity_ci"]
    assert low < found["span_perplexity"] < high


def test_a_run_that_was_killed_ends_in_the_same_bytes(run: segue.Run, tmp_path: Path, monkeypatch: Any) -> None:
    settings = [*SMALL, "batches.length=32", "data.unit=line", "train.every=2"]
    whole = segue.train("t5", run.recipe.data.path, tmp_path / "whole", settings)
    step = Trainer._step

    def killed(self: Trainer, *given: Any) -> Any:
        if self.step == 4:
            raise KeyboardInterrupt
        return step(self, *given)

    monkeypatch.setattr(Trainer, "_step", killed)
    with pytest.raises(KeyboardInterrupt):
        segue.train("t5", run.recipe.data.path, tmp_path / "cut", settings)
    monkeypatch.undo()
    segue.train("t5", run.recipe.data.path, tmp_path / "cut", settings, resume=True)
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


# Going on


def test_pairs_go_on_from_its_weights_with_sources_that_end_with_stop(run: segue.Run, tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.tsv", [("source", "target"), *PAIRS])
    settings = ["train.steps=3", "decode.max_tokens=6"]
    short = segue.train(run.path, data, tmp_path / "short", settings)
    long = segue.train("t5", data, tmp_path / "long", [*settings, f"train.init={run.path}"])
    assert (short.path / "model.safetensors").read_bytes() == (long.path / "model.safetensors").read_bytes()
    assert short.recipe.batches.noise == "none" and short.tokenizer.content == run.tokenizer.content
    assert short.sizes.marks == run.sizes.marks and short.result["figure"] == "bleu"
    source = short.task.encode([short.asked("1 and 2")], short.codec, labelled=False)["source"].flat
    assert source.tolist() == [*run.tokenizer.encode("1 and 2"), 0]
    beams = next(short.predict(["1 and 2"], ["decode.beam=3", "decode.n_best=3"]))
    assert len(beams.best) == 3 and "fill" in short.verbs


def test_labels_are_written_as_text(run: segue.Run, tmp_path: Path) -> None:
    settings = ["train.steps=3", "decode.max_tokens=6"]
    made = segue.train(run.path, LABELLED, tmp_path / "labels", settings)
    assert (made.recipe.kind, made.result["figure"], made.recipe.data.columns) == ("t5", "exact", "text,label")
    assert isinstance(next(made.predict(["the number 4 is here"])).text, str)


def test_learning_by_heart_writes_the_labels(tmp_path: Path) -> None:
    settings = [*SMALL, "train.steps=150", "data.validation=0", "train.optimizer.rate=0.02", "model.width=32"]
    made = segue.train("t5", LABELLED, tmp_path / "run", settings)
    texts = [text for _, text in LABELLED]
    said = [one.text for one in made.predict(texts, ["decode.beam=1", "decode.max_tokens=6"])]
    assert np.mean([a == b for a, (b, _) in zip(said, LABELLED, strict=True)]) > 0.9


# Its encoder under a head


def test_its_encoder_is_a_body_that_reads_texts_without_a_start(run: segue.Run, tmp_path: Path) -> None:
    vector_D = run.embed("the first list")
    ids = torch.tensor([[*run.tokenizer.encode("the first list"), 0]])
    assert isinstance(run.model, T5)
    with torch.inference_mode():
        m_BSD, _ = run.model.encoded(ids, None)
    np.testing.assert_allclose(vector_D, m_BSD[0, :-1].mean(0).numpy(), rtol=1e-4, atol=1e-5)
    data = written(tmp_path / "labels.tsv", [("label", "text"), *LABELLED])
    head = segue.train("finetuned_classifier", data, tmp_path / "head", [f"model.body={run.path}", "train.steps=3"])
    assert head.model.pooling == "mean" and head.sizes.stopped
    rows = head.task.encode([head.asked("the number 4")], head.codec, labelled=False)["text"].flat
    assert rows.tolist() == [*run.tokenizer.encode(run.tokenizer.row("the number 4")), 0]
    learnt = {name for name, weight in head.model.named_parameters() if weight.requires_grad}
    assert not any(name.startswith(("body.decoder.", "body.norm.", "body.positions.")) for name in learnt)
    tagged = [(["the", "lists"], ["D", "N"]), (["a", "second"], ["D", "A"])] * 8
    tagger = segue.train("finetuned_tagger", tagged, tmp_path / "tagger", [f"model.body={run.path}", "train.steps=2"])
    assert len(next(tagger.predict([["the", "second", "list"]])).tags) == 3


# Holes


def test_each_hole_is_filled_by_what_the_beam_writes_for_its_sentinel(run: segue.Run) -> None:
    one, two = run.fill(["The [MASK] of the list", "The [MASK] list holds <mask> objects"], top=3)
    assert len(one.holes) == 1 and len(two.holes) == 2
    for answer in (one, two):
        for hole in answer.holes:
            assert 1 <= len(hole) <= 3 and all(0 <= filler.probability <= 1 for filler in hole)
            assert [filler.token for filler in hole] == list(dict.fromkeys(filler.token for filler in hole))
        assert answer.filled == answer.holes[0][0].text
    assert one.filled.startswith("The") and one.filled.endswith(" of the list")


def test_a_text_without_holes_or_with_too_many_is_refused(run: segue.Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no hole"):
        run.fill("The list")
    with pytest.raises(InputError, match="has 101 holes, and this model knows 100 sentinels"):
        run.fill("[MASK] " * 101)

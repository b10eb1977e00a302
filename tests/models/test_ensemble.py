"""Ensembles: the pool of what runs say, weights from validation alone, and a run that stands alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import segue
from segue.batches.batch import IGNORE
from segue.batches.store import columns_of
from segue.cli import main
from segue.errors import InputError
from segue.linear.solve import best_scale
from segue.models.base import Sizes
from segue.models.ensemble import HOLD, Ensemble, best_weights, pooled
from segue.runs.run import Run
from segue.tasks.classify import TASK

KINDS = {
    "bayes": ("naive_bayes", {}),
    "letters": ("ngram_bag", {"model.words": 0}),
    "bow": ("bow", {"train.steps": 60}),
}


def rows(count: int, seed: int) -> str:
    """Half of the rows are told by a word, the others by an ending; a third of them by neither."""
    draw = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        label = int(draw.integers(0, 3))
        told = ("red", "green", "blue")[label] if draw.random() < 0.4 else "thing"
        ending = ("ing", "ment", "ous")[label] if draw.random() < 0.4 else "al"
        lines.append(f"{'abc'[label]}\tthe {told} w{draw.integers(1000)}{ending} was there")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ensemble")
    (folder / "data.tsv").write_text(rows(900, 0))
    (folder / "new.tsv").write_text(rows(600, 1))
    for name, (kind, settings) in KINDS.items():
        segue.train(kind, folder / "data.tsv", folder / name, {**settings, "data.validation": 0.3}, device="cpu")
    parts = ",".join(str(folder / name) for name in KINDS)
    assert main(["train", "ensemble", "--out", str(folder / "all"), f"model.runs={parts}"]) == 0
    return folder


def probabilities(run: Run, texts: list[str]) -> np.ndarray:
    return np.array([p.probabilities for p in run.predict(texts)])


def held(folder: Path) -> tuple[list[str], np.ndarray]:
    lines = [line.split("\t") for line in (folder / "new.tsv").read_text().split("\n") if line]
    return [text for _, text in lines], np.array(["abc".index(label) for label, _ in lines])


def test_it_is_the_weighed_product_of_its_parts(place: Path) -> None:
    texts, _ = held(place)
    run = Run.open(place / "all")
    weights = run.model.weights
    said = [probabilities(Run.open(place / name), texts) for name in KINDS]
    product = np.prod([p**weight for p, weight in zip(said, weights, strict=True)], axis=0)
    np.testing.assert_allclose(probabilities(run, texts), product / product.sum(1, keepdims=True), atol=1e-4)
    assert run.model.parameters_count == 3 + sum(
        json.loads((place / name / "result.json").read_text())["parameters"] for name in KINDS
    )


def test_parts_are_better_together_on_new_rows(place: Path) -> None:
    texts, truth = held(place)
    said = [probabilities(Run.open(place / name), texts) for name in (*KINDS, "all")]
    *alone, together = (-np.log(p[np.arange(len(truth)), truth]).mean() for p in said)
    assert together < min(alone)


def test_the_weights_are_those_of_the_validation_rows(place: Path) -> None:
    """Found once more from what the parts say of them, by another way of finding the least."""
    run = Run.open(place / "all")
    corpus = run._own_corpus(lambda *_: None)
    examples = list(corpus.examples("validation"))
    labels = np.array(["abc".index(example.label) for example in examples])
    said = np.stack([np.log(probabilities(Run.open(place / n), [e.text for e in examples])) for n in KINDS])
    np.testing.assert_allclose(run.model.weights, best_weights(said, labels), atol=1e-3)
    records = [json.loads(line) for line in (place / "all" / "metrics.jsonl").read_text().split("\n") if line]
    assert [r["part"] for r in records[:3]] == [str(place / name) for name in KINDS]
    assert [r["weight"] for r in records[:3]] == pytest.approx(run.model.weights.tolist())


def test_best_weights_against_another_optimiser() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 400)
    truth = np.eye(3)[labels]
    noise = [2.0 * truth + 1.5 * draw.normal(size=truth.shape), 0.5 * truth + draw.normal(size=truth.shape)]
    noise.append(draw.normal(size=truth.shape))
    said = np.stack([pooled(scores[None], np.ones(1)) for scores in noise])
    found = best_weights(said, labels)
    scales = np.array([best_scale(one, labels) for one in said])

    def cost(v: np.ndarray) -> float:
        logp = pooled(said * scales[:, None, None], v)
        return float(-logp[np.arange(400), labels].sum() + HOLD / 2 * ((v - 1 / 3) ** 2).sum())

    other = minimize(cost, np.full(3, 1 / 3), bounds=[(0, None)] * 3, tol=1e-12)
    assert cost(found / scales) <= other.fun + 1e-4
    assert found[0] > found[1] > found[2] >= 0


def test_it_stands_alone(place: Path, tmp_path: Path) -> None:
    """Its parts may go, and it may be moved as one file."""
    texts, _ = held(place)
    expected = probabilities(Run.open(place / "all"), texts[:20])
    moved = tmp_path / "moved"
    for name in KINDS:
        shutil.copytree(place / name, tmp_path / name)
    parts = ",".join(str(tmp_path / name) for name in KINDS)
    assert main(["train", "ensemble", "--out", str(tmp_path / "all"), f"model.runs={parts}"]) == 0
    assert main(["export", str(tmp_path / "all"), "--to", "zip", str(tmp_path / "all.zip")]) == 0
    for name in (*KINDS, "all"):
        shutil.rmtree(tmp_path / name)
    assert main(["import", str(tmp_path / "all.zip"), "--out", str(moved)]) == 0
    np.testing.assert_allclose(probabilities(Run.open(moved), texts[:20]), expected, atol=1e-9)
    assert (moved / "model.safetensors").stat().st_size < 10_000_000


def test_the_words_of_the_contract(place: Path) -> None:
    """Rows alone and together, padding, targets that are not asked for."""
    model = Run.open(place / "all").model
    texts = [
        np.frombuffer(text.encode(), np.uint8).astype(np.int64) + 2 for text in (" the red w1ing", " it", " a wal")
    ]
    batch = TASK.collate(columns_of(text=texts, label=np.array([0, 1, IGNORE])), 9999)
    together, _ = model.logprobs(batch)
    assert together[2] == 0 and (together[:2] < 0).all()
    np.testing.assert_allclose(np.exp(model.class_logprobs(batch)).sum(1), 1, atol=1e-9)
    wider = dataclasses.replace(
        batch, tokens_BT=np.pad(batch.tokens_BT, ((0, 0), (0, 3))), mask_BT=np.pad(batch.mask_BT, ((0, 0), (0, 3)))
    )
    np.testing.assert_allclose(model.logprobs(wider)[0], together, atol=1e-6)
    for i, row in enumerate(texts):
        alone = model.class_logprobs(TASK.collate(columns_of(text=[row], label=np.zeros(1)), 9999))
        np.testing.assert_allclose(alone[0], model.class_logprobs(batch)[i], atol=1e-5)


def test_parts_that_learnt_from_the_validation_rows_are_refused(place: Path, tmp_path: Path) -> None:
    two = f"{place / 'bayes'},{place / 'letters'}"

    def refused(*settings: str, data: Any = None) -> str:
        with pytest.raises(InputError) as error:
            segue.train("ensemble", data, tmp_path / "no", list(settings))
        assert not (tmp_path / "no").exists()
        return str(error.value)

    assert "data.seed" in refused(f"model.runs={two}", "data.seed=3")
    assert "data.validation" in refused(f"model.runs={two}", "data.validation=0.1")
    assert "other files" in refused(f"model.runs={two}", data=place / "new.tsv")
    segue.train("naive_bayes", place / "data.tsv", tmp_path / "other", {"data.validation": 0.3, "data.seed": 1})
    assert "other" in refused(f"model.runs={place / 'bayes'},{tmp_path / 'other'}")


def test_what_else_is_refused(place: Path, tmp_path: Path) -> None:
    def refused(*settings: str, data: Any = None) -> str:
        with pytest.raises(InputError) as error:
            segue.train("ensemble", data, tmp_path / "no", list(settings))
        return str(error.value)

    assert "name two or more" in refused(data=place / "data.tsv")
    assert "name two or more" in refused(f"model.runs={place / 'bayes'}")
    assert "twice" in refused(f"model.runs={place / 'bayes'},{place / 'bayes'}")
    assert "There is no run folder" in refused(f"model.runs={place / 'bayes'},{place / 'nowhere'}")
    for name in ("one", "two"):
        segue.train("naive_bayes", place / "data.tsv", tmp_path / name, {"data.validation": 0})
    assert "weighed on validation rows" in refused(f"model.runs={tmp_path / 'one'},{tmp_path / 'two'}")
    text = tmp_path / "text.txt"
    text.write_text("a b c d\n" * 20)
    for name in ("lm", "lm2"):
        segue.train("ngram", text, tmp_path / name, {"data.unit": "line"})
    assert "name two or more" in refused()  # and not that the default corpus has no labels
    assert "lm is a ngram, made for lm" in refused(f"model.runs={tmp_path / 'lm'},{tmp_path / 'lm2'}")
    assert "lm is a ngram, made for lm" in refused(f"model.runs={place / 'bayes'},{tmp_path / 'lm'}")
    assert not (tmp_path / "no").exists()


def test_an_ensemble_of_nothing_says_nothing() -> None:
    model = Ensemble(Ensemble.Config(), Sizes(258, 2))
    assert model.parameters_count == 0 and model.task == "classify"


def test_pairs_of_texts_reach_every_part(tmp_path: Path) -> None:
    """Each part gets both, with STOP between, as it had them in training."""
    draw = np.random.default_rng(0)
    lines = [f"{'yn'[i % 2]}\tw{draw.integers(9)} a\t{'same' if i % 2 else 'other'} b\n" for i in range(200)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    settings = ["data.columns=1,2,3", "data.validation=0.2"]
    for kind in ("naive_bayes", "ngram_bag"):
        segue.train(kind, tmp_path / "pairs.tsv", tmp_path / kind, settings)
    parts = f"{tmp_path / 'naive_bayes'},{tmp_path / 'ngram_bag'}"
    run = segue.train("ensemble", None, tmp_path / "both", [f"model.runs={parts}"])
    assert run.evaluate()["accuracy"] == 1

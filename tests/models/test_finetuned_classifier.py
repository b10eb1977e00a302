"""A head on a body: pooling, windows, the mix of layers, what learns and what does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.batches.codec import BodySpec, Sizes
from segue.batches.store import columns_of
from segue.batches.windows import in_windows
from segue.errors import InputError
from segue.models import heading
from segue.models.finetuned_classifier import FinetunedClassifier
from segue.models.heading import LayerMix
from segue.tasks import task

BODIES: dict[str, dict[str, Any]] = {
    "bert": {"layers": 2, "width": 16, "context": 16},
    "gpt": {"layers": 2, "width": 16, "context": 16},
    "rnn_lm": {"layers": 2, "width": 16, "embedding": 8},
}
MARKS = {"bert": ("start", "mask")}


def made(kind: str = "bert", window: int = 16, **config: Any) -> FinetunedClassifier:
    torch.manual_seed(0)
    own = Sizes(20, marks=MARKS.get(kind, ()))
    body = BodySpec(kind, BODIES[kind], own)
    sizes = Sizes(20, 3, marks=own.marks, body=body, window=window)
    return FinetunedClassifier(FinetunedClassifier.Config(**{"dropout": 0.0, **config}), sizes)


def batch_of(model: FinetunedClassifier, *lengths: int) -> Batch:
    draw = np.random.default_rng(0)
    rows = [in_windows(model.sizes, draw.integers(2, 20, length))[0] for length in lengths]
    return task("classify").collate(columns_of(text=rows, label=np.arange(len(rows)) % 3), 1 << 24).to("cpu")


def scores(model: FinetunedClassifier, batch: Batch) -> torch.Tensor:
    return model.eval()(batch)[0]


def test_without_a_body_it_says_what_to_name() -> None:
    with pytest.raises(InputError, match=r"model\.body=runs/bert"):
        FinetunedClassifier(FinetunedClassifier.Config(), Sizes(20, 3))


@pytest.mark.parametrize("kind", BODIES)
def test_what_a_body_cannot_do_is_refused(kind: str) -> None:
    if kind != "bert":
        with pytest.raises(InputError, match="has seen nothing"):
            made(kind, pooling="first")
    with pytest.raises(InputError, match=r"model\.layers=3 .* it has 2\."):
        made(kind, layers=3)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("bert", "first"), *((kind, pooling) for kind in BODIES for pooling in ("auto", "last", "mean"))],
)
def test_pooling_as_its_equation(kind: str, pooling: Any) -> None:
    model = made(kind, pooling=pooling)
    batch = batch_of(model, 3, 9)
    hidden_BTD = model.eval().body.encode(batch)[-1]
    expected = []
    for row, mask in zip(hidden_BTD, batch.mask_BT, strict=True):
        places = row[mask]
        if pooling == "auto" and kind == "bert":
            expected.append((model.body.pooler.weight @ places[0] + model.body.pooler.bias).tanh())
        else:
            expected.append({"first": places[0], "mean": places.mean(0)}.get(pooling, places[-1]))
    torch.testing.assert_close(scores(model, batch), model.head(torch.stack(expected)))


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("mix", [False, True])
def test_texts_of_several_windows_are_the_mean_of_theirs(kind: str, mix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch with short ones too, and if the body reads some of the windows at a time."""
    model = made(kind, window=8, mix=mix, pooling="mean")
    batch = batch_of(model, 2, 20, 30)
    assert batch.tokens_BT.shape[1] > 3 * 8
    wholes = []
    for tokens, mask in zip(batch.tokens_BT, batch.mask_BT, strict=True):
        windows = [(t[m][None], m[m][None]) for t, m in zip(tokens.split(8), mask.split(8), strict=True) if m.any()]
        states = [model.eval().states(Batch(t, torch.zeros(1), m))[0, 0] for t, m in windows]
        wholes.append(torch.stack(states).mean(0))
    expected = model.head(torch.stack(wholes))
    torch.testing.assert_close(scores(model, batch), expected)
    monkeypatch.setattr(heading, "AT_ONCE", 16)
    torch.testing.assert_close(scores(model, batch), expected)


def test_reading_in_parts_changes_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(window=8)
    batch = batch_of(model, 2, 20, 30)
    found = []
    for at_once in (1 << 14, 16):
        monkeypatch.setattr(heading, "AT_ONCE", at_once)
        model.zero_grad()
        model.train().loss(batch).terms[0].total.backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name])


def test_equal_weights_give_the_mean_of_the_layers() -> None:
    hidden = torch.randn(3, 2, 5, 4)
    mix = LayerMix(3)
    torch.testing.assert_close(mix(hidden), hidden.mean(0))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, 1.0, 2.0]).log())
        mix.gamma.fill_(3.0)
    torch.testing.assert_close(mix(hidden), 3 * (hidden[0] / 4 + hidden[1] / 4 + hidden[2] / 2))


def learning(model: FinetunedClassifier) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_a_frozen_body_learns_nothing_and_draws_nothing() -> None:
    model = made(frozen=True, mix=True, dropout=0.5)
    model.drop.p = 0.0  # that of the head stays
    assert learning(model) == {"head.weight", "head.bias", "mix.scores", "mix.gamma"}
    batch = batch_of(model, 3, 9)
    before = torch.get_rng_state()
    one, two = (model.train()(batch)[0] for _ in range(2))
    assert torch.equal(one, two) and torch.equal(before, torch.get_rng_state())
    model.loss(batch).terms[0].total.backward()
    assert all(p.grad is None for p in model.body.parameters())


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_learns_has_dropout_too(kind: str) -> None:
    model = made(kind, dropout=0.5, pooling="mean")
    model.drop.p = 0.0
    batch = batch_of(model, 3, 9)
    assert not torch.equal(model.train()(batch)[0], model(batch)[0])


@pytest.mark.parametrize("kind", BODIES)
def test_the_last_layers_learn(kind: str) -> None:
    names = learning(made(kind, layers=1))
    last = {"bert": "blocks.1.", "gpt": "blocks.1.", "rnn_lm": "_l1"}[kind]
    first = {"bert": "blocks.0.", "gpt": "blocks.0.", "rnn_lm": "_l0"}[kind]
    assert any(last in name for name in names) and "head.weight" in names
    assert not any(first in name or "vectors" in name or "positions" in name for name in names)
    assert any("vectors" in name for name in learning(made(kind)))


@pytest.mark.parametrize("kind", BODIES)
def test_what_predicts_tokens_does_not_learn(kind: str) -> None:
    """It has no part in the scores, so that its gradient would be none."""
    model = made(kind)
    model.loss(batch_of(model, 3, 9)).terms[0].total.backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {name for name, p in model.named_parameters() if not p.requires_grad}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("mix", [False, True])
def test_kept_states_give_the_same_scores(kind: str, mix: bool) -> None:
    model = made(kind, window=8, frozen=True, mix=mix)
    batch = batch_of(model, 2, 20)
    kept = model.eval().read(batch).movedim(0, 2).flatten(2)
    torch.testing.assert_close(model(dataclasses.replace(batch, hidden_BND=kept))[0], model(batch)[0])


def test_the_second_text_is_told_from_the_first() -> None:
    model = made()
    with torch.no_grad():
        model.body.segment_vectors.weight.normal_()
    batch = batch_of(model, 6)
    other = dataclasses.replace(batch, segments_BT=(torch.arange(batch.tokens_BT.shape[1]) > 4).long()[None])
    assert not torch.allclose(scores(model, batch), scores(model, other))


@pytest.mark.parametrize("kind", BODIES)
def test_a_step_asks_nothing_of_the_device(kind: str) -> None:
    """Or it could not be recorded on a GPU. Here the device is one that has no numbers to give."""
    model = made(kind, window=8).train()
    batch = batch_of(model, 3, 20).to("meta")
    model.to("meta").loss(batch).terms[0].total.backward()

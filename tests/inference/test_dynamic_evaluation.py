"""Networks that adapt while they read: dynamic evaluation and the neural cache, against slow ones written out."""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import IGNORE, Batch
from segue.inference import dynamic_evaluation, neural_cache
from segue.inference.dynamic_evaluation import DECAY, LEAST, PIECE, RATE, Dynamic
from segue.inference.neural_cache import THETA, NeuralCache
from segue.models import model_class
from segue.models.base import Sizes

VOCAB = 7
SMALL: dict[str, dict[str, Any]] = {
    "rnn_lm": {"width": 6, "embedding": 5, "layers": 2},
    "neural_lm": {"words": 3, "embedding": 4, "width": 6},
    "gpt": {"layers": 2, "width": 8, "heads": 2, "context": 12},
}
WITH_STATES = ["rnn_lm", "gpt"]


def make(kind: str) -> Any:
    torch.manual_seed(0)
    cls = model_class(kind)
    model = cls(cls.Config(**SMALL[kind]), Sizes(VOCAB)).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # so that what was read matters; biases are smaller than LEAST
            weight.add_(torch.randn_like(weight), alpha=0.3)
            if "bias" in name:
                weight.mul_(1e-3)
    return model


def drawn(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, size)


def batch_of(text: np.ndarray, before: int = 0, fresh: bool = True) -> Batch:
    tokens = np.concatenate([[before], text[:-1]])
    return Batch(tokens[None], text[None], np.ones((1, len(text)), bool), np.array([fresh]))


def read(model: Any, text: np.ndarray) -> np.ndarray:
    return np.asarray(model.logprobs(batch_of(text).to("cpu"))[0][0])


def in_pieces(model: Any, text: np.ndarray) -> Any:
    """(tokens with those before them that are seen again, targets) of each piece that is read."""
    tokens = np.concatenate([[0], text[:-1]])
    context = model.config.context if not model.inputs else 0
    length = min(PIECE, context // 2) if context else PIECE
    for begin in range(0, len(text), length):
        end = min(len(text), begin + length)
        first = max(0, end - context) if context else begin
        yield torch.tensor(tokens[None, first:end]), torch.tensor(text[begin:end])


def slow(model: Any, text: np.ndarray) -> np.ndarray:
    """Dynamic evaluation by the equations, weight by weight, on a copy."""
    model = copy.deepcopy(model)
    begun = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    squares = {name: 0.0 for name in begun}
    state, found = None, []
    for n, (tokens, targets) in enumerate(in_pieces(model, text), 1):
        logits, state = model(Batch(tokens, None, torch.ones_like(tokens, dtype=torch.bool)), state)
        state = state.detach() if model.inputs else None
        logp = logits[0, -len(targets) :].log_softmax(-1)[torch.arange(len(targets)), targets]
        found.append(logp.detach().numpy())
        model.zero_grad()
        (-logp.mean()).backward()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                squares[name] = squares[name] + weight.grad**2
                usual = torch.sqrt(squares[name] / n)
                size = max(LEAST, float((begun[name] ** 2).mean()) ** 0.5)
                moved = weight - RATE * size * weight.grad / (usual + 0.1 * usual.mean())
                weight.copy_(moved + DECAY * (begun[name] - moved))
    return np.concatenate(found)


@pytest.mark.parametrize("adapted", [Dynamic, NeuralCache])
def test_the_way_is_what_a_network_with_a_window_is_given(adapted: Any) -> None:
    """At most as many tokens as the window has, of which at most half are new."""
    reader, given = adapted(make("gpt")), []
    real = reader.text.pieces

    def watched(batch: Batch) -> Any:
        for piece, before in real(batch):
            given.append((piece.tokens_BT.shape[1], piece.tokens_BT.shape[1] - before))
            yield piece, before

    reader.text.pieces = watched
    read(reader, drawn(1, 40))
    assert tuple(map(max, zip(*given, strict=True))) == (12, 6)
    assert reader.way == "a window of 12 tokens, moved on by up to 6"
    assert adapted(make("rnn_lm")).way == "each token after all those before it"


@pytest.mark.parametrize("kind", SMALL)
def test_dynamic_evaluation_is_the_slow_one(kind: str) -> None:
    model, text = make(kind), drawn(1, 5 * PIECE + 9)
    found = read(Dynamic(model), text)
    np.testing.assert_allclose(found, slow(model, text), rtol=1e-8)
    assert np.abs(found[-40:] - read(model, text)[-40:]).max() > 1e-4  # something was learnt


@pytest.mark.parametrize("kind", SMALL)
def test_a_token_is_scored_before_it_is_learnt_from(kind: str) -> None:
    model, text = make(kind).float(), drawn(2, 4 * PIECE)
    whole = read(Dynamic(model), text)
    for place in (1, PIECE - 1, PIECE, 2 * PIECE + 5, 4 * PIECE - 1):
        other = text.copy()
        other[place:] = (other[place:] + 1) % VOCAB
        assert np.array_equal(read(Dynamic(model), other)[:place], whole[:place])
        assert not np.array_equal(read(Dynamic(model), other), whole)


@pytest.mark.parametrize("kind", SMALL)
def test_dynamic_evaluation_that_does_not_learn_is_the_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_evaluation, "RATE", 0.0)
    model, text = make(kind), drawn(3, 3 * PIECE)
    if kind == "gpt":
        pieces = list(in_pieces(model, text))
        parts = [
            model(Batch(tokens, None, None))[0][0, -len(y) :].log_softmax(-1)[range(len(y)), y] for tokens, y in pieces
        ]
        expected = torch.cat(parts).detach().numpy()
        # With a window that is full at the same places the model's own reading is the same.
        np.testing.assert_allclose(expected[:6], read(model, text)[:6], rtol=1e-6)
    else:
        expected = read(model, text)
    np.testing.assert_allclose(read(Dynamic(model), text), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", SMALL)
def test_the_model_itself_stays(kind: str) -> None:
    model, text = make(kind), drawn(4, 3 * PIECE)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    one = read(Dynamic(model), text)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert np.array_equal(read(Dynamic(model), text), one)


def adapting_models(kind: str) -> list[Any]:
    return [Dynamic, *([NeuralCache] if kind in WITH_STATES else [])]


@pytest.mark.parametrize("kind", SMALL)
def test_batch_after_batch_is_one_text(kind: str) -> None:
    cuts = [0, 3 * PIECE, 9 * PIECE, 12 * PIECE]  # whole pieces of all three
    model, text = make(kind), drawn(5, cuts[-1])
    for way in adapting_models(kind):
        reading, found = way(model), []
        for begin, end in pairwise(cuts):
            batch = batch_of(text[begin:end], text[begin - 1] if begin else 0, fresh=begin == 0)
            found.append(reading.logprobs(batch)[0][0])
        np.testing.assert_allclose(np.concatenate(found), read(way(model), text), rtol=1e-5)


@pytest.mark.parametrize("kind", SMALL)
def test_padding_changes_nothing(kind: str) -> None:
    model, text = make(kind), drawn(6, 50)
    for way in adapting_models(kind):
        plain = read(way(model), text)
        batch = batch_of(text)
        mask = np.ones(60, bool)
        mask[[0, 7, 8, 20, 33, 41, 42, 43, 58, 59]] = False
        tokens, targets = np.zeros(60, int), np.full(60, IGNORE)
        tokens[mask], targets[mask] = batch.tokens_BT[0], text
        padded = way(model).logprobs(Batch(tokens[None], targets[None], mask[None], np.array([True])))[0][0]
        np.testing.assert_array_equal(padded[mask], plain)
        assert not padded[~mask].any()
        nothing = Batch(tokens[None], np.full((1, 60), IGNORE), np.zeros((1, 60), bool))
        assert not way(model).logprobs(nothing)[0].any()


@pytest.mark.parametrize("kind", SMALL)
def test_one_text_not_several(kind: str) -> None:
    two = np.zeros((2, 3), int)
    for way in adapting_models(kind):
        with pytest.raises(ValueError, match="one text, not 2"):
            way(make(kind)).logprobs(Batch(two, two, two == 0))


def test_what_comes_again_is_learnt() -> None:
    model, text = make("rnn_lm").float(), np.tile(drawn(7, 5), 300)
    still, moving = read(model, text), read(Dynamic(model), text)
    assert moving[:PIECE] == pytest.approx(still[:PIECE], abs=1e-5)
    assert moving[-200:].mean() > still[-200:].mean() + 0.2


# The neural cache


def slow_cache(model: Any, text: np.ndarray, size: int) -> np.ndarray:
    """p of each token, place by place."""
    tokens = np.concatenate([[0], text[:-1]])
    if model.inputs:
        whole = torch.tensor(tokens[None])
        h = model.encode(Batch(whole, None, torch.ones_like(whole, dtype=torch.bool)))[-1, 0]
    else:
        context, rows = model.config.context, []
        for begin in range(0, len(text), context // 2):
            seen = torch.tensor(tokens[None, max(0, begin - context // 2) : begin + context // 2])
            rows.append(
                model.encode(Batch(seen, None, torch.ones_like(seen, dtype=torch.bool)))[
                    -1, 0, min(begin, context // 2) :
                ]
            )
        h = torch.cat(rows)
    h, found = h.detach().numpy(), []
    for t in range(len(text)):
        mass = np.zeros(VOCAB)
        for i in range(max(0, t - size), t):
            cosine = h[t] @ h[i] / math.sqrt((h[t] @ h[t]) * (h[i] @ h[i]))
            mass[text[i]] += math.exp(THETA * cosine)
        found.append(mass[text[t]] / mass.sum() if t else 1 / VOCAB)
    return np.array(found)


@pytest.mark.parametrize("kind", WITH_STATES)
@pytest.mark.parametrize("size", [2000, 9])
def test_the_neural_cache_is_the_slow_one(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural_cache, "SIZE", size)
    monkeypatch.setattr(neural_cache, "_AT_ONCE", 6)
    model, text = make(kind), drawn(8, 60)
    expected = slow_cache(model, text, size)
    found = np.exp(read(NeuralCache(model), text))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-12)
    assert (found[1:] == 0).any() and ((found > 0) & (found < 1)).any()


@pytest.mark.parametrize("kind", WITH_STATES)
def test_the_neural_cache_is_a_distribution(kind: str) -> None:
    model, text = make(kind), drawn(9, 40)
    last = [read(NeuralCache(model), np.append(text, word))[-1] for word in range(VOCAB)]
    assert np.exp(last).sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", WITH_STATES)
def test_the_neural_cache_does_not_look_ahead(kind: str) -> None:
    model, text = make(kind).float(), drawn(10, 400)
    whole = read(NeuralCache(model), text)
    for place in (3, 255, 256, 300):
        other = text.copy()
        other[place:] = (other[place:] + 1) % VOCAB
        assert np.array_equal(read(NeuralCache(model), other)[:place], whole[:place])


def test_a_fresh_text_begins_with_a_fresh_state() -> None:
    model, text = make("rnn_lm"), drawn(11, 30)
    cache = NeuralCache(model)
    read(cache, drawn(12, 30))
    read(cache, text)
    again = NeuralCache(model)
    read(again, text)
    torch.testing.assert_close(cache.h_SD[-30:], again.h_SD)
    torch.testing.assert_close(cache.text.state.h_LBD, again.text.state.h_LBD)

"""Weighted n-grams: Kneser-Ney where nothing is learnt, better where something is; reading on, keeping, small texts."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.models.base import Sizes
from segue.models.ngram import Ngram
from segue.models.weighted_ngram import WeightedNgram, _folds

STOP, V = 0, 9


def text_of(size: int, seed: int = 0) -> np.ndarray:
    """Words of a small language, with slips: 2 to 8, and STOP between some."""
    rng = np.random.default_rng(seed)
    words = [[2, 3, 4, 8], [5, 6, 8], [2, 3, 7, 7, 8], [4, 4, 0], [6, 5, 3, 2, 8]]
    letters = np.concatenate([words[i] for i in rng.choice(5, size, p=[0.4, 0.2, 0.2, 0.1, 0.1])])[:size]
    slips = rng.random(size) < 0.05
    return np.where(slips, rng.integers(2, 9, size), letters)


def fitted(tokens, order: int = 6, carry: bool = False, **config) -> WeightedNgram:
    model = WeightedNgram(WeightedNgram.Config(order=order, **config), Sizes(V, carry=carry))
    list(model.fit(SimpleNamespace(tokens=np.asarray(tokens)), WeightedNgram.Train()))
    return model


def stream(text, fresh: bool = True, first: int = STOP) -> Batch:
    text = np.asarray(text)
    tokens = np.concatenate(([first], text[:-1]))[None]
    return Batch(tokens, text[None], np.ones(tokens.shape, bool), np.array([fresh]))


def test_a_unit_sees_nothing_of_the_one_before_unless_it_is_carried():
    for carry in (False, True):
        model = fitted(text_of(3000), carry=carry)
        begins, unit = ([2, 3, 4, 8, 4, 4, 0], [6, 5, 3, 0], []), [2, 3, 7, 7, 8, 0]
        found = [model.logprobs(stream([*before, *unit]))[0][0, len(before) :] for before in begins]
        assert (np.ptp(found, axis=0) > 1e-3).any() == carry


def nats(model, text) -> float:
    return -float(model.logprobs(stream(text))[0].mean())


def test_without_learning_it_is_the_kneser_ney_of_ngram():
    """The other model with the discounts of this one, wherever the history is longer than the order, so that START, of
    which this one knows nothing, is in no context. (So there is no STOP in the text either.)"""
    order, train, test = 5, text_of(3000), text_of(400, 1)
    train, test = train[train > 0], test[test > 0]
    model = fitted(train, order, rate=0.0)
    other = Ngram(Ngram.Config(order=order), Sizes(V))
    list(other.fit(SimpleNamespace(tokens=train), Ngram.Train()))
    other.discounts = model.discounts[:, 1:].copy()
    other._ready([level.level for level in other.orders])
    a, b = (m.logprobs(stream(test))[0][0] for m in (model, other))
    assert a[order:] == pytest.approx(b[order:], abs=1e-9)
    assert np.ptp(a) > 1
    c = other.logprobs(stream(test))[0][0]
    other.discounts = other.discounts * 0.9
    other._ready([level.level for level in other.orders])
    assert not np.allclose(other.logprobs(stream(test))[0][0][order:], c[order:])  # or the discounts would not matter


def test_learning_pays_and_so_does_reading_on():
    train, test = text_of(20_000), text_of(3000, 1)
    changed = np.where(test > 1, 2 + (test - 2 + 3) % 7, test)  # the same language in other letters
    plain, model = fitted(train, rate=0.0), fitted(train)
    assert nats(model, test) < nats(plain, test) - 0.002
    assert nats(model.adapted(), changed) < nats(plain.adapted(), changed) - 0.02
    assert nats(model.adapted(), changed) < nats(model, changed) - 0.5


def test_it_sums_to_one_and_step_equals_logprobs_while_reading():
    model = fitted(text_of(1000))
    text = text_of(1100, 1)  # more than the place where discounts are estimated anew
    logp, _ = model.adapted().logprobs(stream(text))
    stepping = model.adapted()
    state, token = stepping.start(1, 100), STOP
    for place, target in enumerate(text):
        logits, state = stepping.step(torch.tensor([[token]]), torch.tensor([[True]]), state)
        assert math.exp(logits[0].double().logsumexp(0)) == pytest.approx(1, abs=1e-6)
        assert float(logits[0, target]) == pytest.approx(logp[0, place], abs=1e-6)
        token = target
    prompt = model.adapted()
    tokens = torch.tensor([[STOP, *text[:50], 7, 7]])
    logits, _ = prompt.step(tokens, torch.tensor([[True] * 51 + [False] * 2]), prompt.start(1, 100))
    assert float(logits[0, text[50]]) == pytest.approx(logp[0, 50], abs=1e-6)


def test_pieces_do_not_matter_and_the_model_stays_as_it_was(tmp_path):
    model = fitted(text_of(3000))
    model.save(tmp_path)
    loaded = WeightedNgram(model.config, model.sizes)
    loaded.load(tmp_path)
    assert loaded.parameters_count == model.parameters_count > len(model.nodes) > 100
    text = text_of(20_000, 1)
    before = loaded.logprobs(stream(text[:300]))[0]
    assert np.array_equal(model.logprobs(stream(text[:300]))[0], before)
    whole = loaded.adapted().logprobs(stream(text))[0]
    reading, parts, last = loaded.adapted(), [], STOP
    for begin in range(0, len(text), 3001):
        part = text[begin : begin + 3001]
        parts.append(reading.logprobs(stream(part, begin == 0, last))[0][0])
        last = part[-1]
    assert np.array_equal(np.concatenate(parts), whole[0])
    assert np.array_equal(model.adapted().logprobs(stream(text))[0], whole)
    for one in (model, loaded):
        assert np.array_equal(one.logprobs(stream(text[:300]))[0], before)


def test_nothing_is_read_ahead_and_ignore_is_not_read():
    model = fitted(text_of(2000))
    text, other = text_of(400, 1), text_of(400, 2)
    other[:200] = text[:200]
    a, b = (model.adapted().logprobs(stream(t))[0][0] for t in (text, other))
    assert np.array_equal(a[:200], b[:200]) and not np.array_equal(a[201:], b[201:])
    padded = stream([*text, *[IGNORE] * 5])
    assert np.array_equal(model.adapted().logprobs(padded)[0][0], [*a, *[0.0] * 5])


def test_one_row_and_a_fresh_one_forgets_the_history_but_not_the_counts():
    model, text = fitted(text_of(2000)), text_of(300, 1)
    reading = model.adapted()
    first, state = reading.logprobs(stream(text))
    again, _ = reading.logprobs(stream(text), state)
    assert again.mean() > first.mean() and state.select([0]) is state
    two = Batch(*(np.repeat(a, 2, 0) for a in dataclasses.astuple(stream(text))[:3]))
    for refused in (lambda: reading.logprobs(two), lambda: reading.start(2, 10)):
        with pytest.raises(ValueError, match="2 rows"):
            refused()


@pytest.mark.parametrize("order", [1, 2, 24])
@pytest.mark.parametrize("text", [[2], [STOP], [2, STOP], [3] * 30, [2, 3] * 8], ids=str)
def test_tiny_texts(text, order):
    model = fitted(text, order)
    probe = [2, 3, 3, 5, STOP, 2]
    for one in (model, model.adapted()):
        for place in range(len(probe)):
            state = one.start(1, 10)
            logits, state = one.step(torch.tensor([[STOP, *probe[:place]]]), torch.ones(1, place + 1).bool(), state)
            assert float(logits.double().exp().sum()) == pytest.approx(1, abs=1e-6)
    if len(text) > 20 and order > 1:
        assert nats(model, [3] * 30) < 0.3


def test_texts_that_cannot_be_counted_are_refused():
    with pytest.raises(InputError, match="no tokens"):
        fitted(np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="token 9"):
        fitted([2, 9])


def test_folds_are_apart_and_end_with_the_text():
    for size in (0, 9, 10, 101, 123_456, 3_000_000, 50_000_000):
        folds = _folds(size)
        assert all(low < high for low, high in folds)
        assert all(a[1] <= b[0] for a, b in pairwise(folds))
        assert sum(high - low for low, high in folds) <= min(size, 1_000_000)
        assert size < 10 or (folds[0][0] >= 0 and folds[-1][1] == size)


def test_progress_goes_up_to_one():
    shares: list[float] = []
    model = WeightedNgram(WeightedNgram.Config(), Sizes(V))
    records = list(model.fit(SimpleNamespace(tokens=text_of(40_000)), WeightedNgram.Train(), None, shares.append))
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) > 20
    assert records[-1].values == {"ngrams": len(model.nodes)} and len(records) == 11

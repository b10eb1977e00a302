"""Counting on: a model that has read a text equals one that was trained on both."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import IGNORE, Batch
from segue.models.base import Sizes
from segue.models.ngram import Ngram

STOP, V = 0, 7
SMOOTHINGS = {
    "maximum_likelihood": {},
    "add_alpha": {"alpha": 0.5},
    "interpolation": {},
    "witten_bell": {},
    "absolute_discounting": {"discount": 0.6},
    "kneser_ney": {"discount": 0.6},
    "modified_kneser_ney": {},
    "stupid_backoff": {},
}
texts = st.lists(st.integers(0, 5), min_size=1, max_size=50)


def fitted(tokens, order: int, smoothing: str, **config) -> Ngram:
    model = Ngram(Ngram.Config(order=order, smoothing=smoothing, **SMOOTHINGS[smoothing], **config), Sizes(V))
    list(model.fit(SimpleNamespace(tokens=np.asarray(tokens)), Ngram.Train()))
    return model


def stream(text, fresh: bool = True, first: int = STOP) -> Batch:
    text = np.asarray(text)
    tokens = np.concatenate(([first], text[:-1]))[None]
    return Batch(tokens, text[None], np.ones(tokens.shape, bool), np.array([fresh]))


def same_numbers(model: Ngram, other: Ngram) -> Ngram:
    """The counts of one with the discounts and weights of the other: reading changes counts alone."""
    model.discounts, model.lambdas, model.alpha = other.discounts, other.lambdas, other.alpha
    model._ready([order.level for order in model.orders])
    return model


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@settings(max_examples=40, deadline=None)
@given(texts, texts, st.integers(1, 4), texts)
def test_reading_is_training_on_both(smoothing, before, text, order, probe):
    """The text that is read ends its units; so does the training text, or its end would be a context of the other."""
    before, text = [*before, STOP], [*text, STOP]
    model = fitted(before, order, smoothing)
    reading = model.adapted()
    reading.logprobs(stream(text))
    both = same_numbers(fitted([*before, *text], order, smoothing), model)
    for context in ([STOP], [STOP, *probe]):
        reading.contexts[:] = [0, *[-2] * (order - 1)]
        # Where the probe itself has been read it would count: so only its contexts are moved on, by a model of both.
        expected = both.distribution(context)
        found = np.exp(at(reading, both, context))
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "stupid_backoff"])
def test_a_pruned_model_that_reads_on_sums_to_one(smoothing):
    """What pruning took goes to the lower order; of a first token, exactly as in the model that does not read on."""
    rng = np.random.default_rng(0)
    model = fitted(np.where(rng.random(300) < 0.5, 2, rng.integers(0, 6, 300)), 3, smoothing, min_count=(2,))
    assert any((order.level.profiles[:, 4] > 0).any() for order in model.orders)
    reading = model.adapted()
    state = reading.start(1, 0)
    for place, token in enumerate([STOP, 2, 2, 5, 2, 4, 4, 4]):
        logits, state = reading.step(np.array([[token]]), np.ones((1, 1), bool), state)
        p = logits[0].double().exp().numpy()
        assert p.sum() == pytest.approx(1, abs=1e-6)
        if place == 0:
            assert p == pytest.approx(model.distribution([STOP]), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(texts, texts, st.integers(1, 4), st.booleans())
def test_reading_counts_over_stop_where_context_is_carried(before, text, order, carry):
    """By hand: the share of a token among what followed the longest context that was seen."""
    model = Ngram(Ngram.Config(order=order, smoothing="maximum_likelihood"), Sizes(V, carry=carry))
    list(model.fit(SimpleNamespace(tokens=np.asarray(before)), Ngram.Train()))
    logp, _ = model.adapted().logprobs(stream(text))
    for place, token in enumerate(text):
        read = contexts_of([STOP, *text[:place]], order, carry)
        events = [event for tokens in (before, text[:place]) for event in events_of([STOP, *tokens], order, carry)]
        longest = next((context for context in read if context in dict(events)), None)
        counts = [w for c, w in events if c == longest]
        expected = counts.count(token) / len(counts) if counts else 1 / V
        assert math.exp(logp[0, place]) == pytest.approx(expected, abs=1e-12)


def contexts_of(tokens: list[int], order: int, carry: bool) -> list[tuple[int, ...]]:
    """The contexts at the end of a text, the longest first; none goes on over a STOP unless it is carried."""
    last = 0 if carry else len(tokens) - 1 - tokens[::-1].index(STOP)
    return [tuple(tokens[max(last, len(tokens) - k) :]) for k in range(order - 1, 0, -1)] + [()]


def events_of(tokens: list[int], order: int, carry: bool) -> list[tuple[tuple[int, ...], int]]:
    return [
        (context, tokens[i])
        for i in range(1, len(tokens))
        for context in dict.fromkeys(contexts_of(tokens[:i], order, carry))
    ]


def at(reading, both: Ngram, context) -> np.ndarray:
    """log p after a context, without counting it: step by step over ids that both models know."""
    import copy

    other = copy.copy(reading)
    other.overlay = copy.deepcopy(reading.overlay)
    other.contexts = reading.contexts.copy()
    known = both.start(1, 0).read(np.array([context]), np.ones((1, len(context)), bool)).history_BT[0]
    names = both.contexts(known)
    # The ids of the two differ; find each context of `reading` by walking its words from the longest that is known.
    result = np.full(len(names), -1, np.int64)
    words = [int(w) for w in known]
    for k, name in enumerate(names):
        if name == -2:
            result[k] = -2
            continue
        result[k] = find(other, words[len(words) - k :]) if k else 0
    other.contexts = result
    p = np.empty(V)
    from segue.ngrams.adaptive_counts import score_all

    score_all(other.packed, other.settings, other.contexts, other.overlay.arrays[:5], p)
    with np.errstate(divide="ignore"):
        return np.log(p)


def find(reading, words: list[int]) -> int:
    """The id of an n-gram in a model that has read, -1 if it has none."""
    from segue.ngrams.adaptive_counts import _look

    context = words[0]
    for k, word in enumerate(words[1:], 1):
        context = _look(reading.packed, k, context, word, *reading.overlay.arrays[:3])[0]
        if context < 0:
            return -1
    return int(context)


def test_pieces_do_not_matter_and_the_model_stays_as_it_was(tmp_path):
    rng = np.random.default_rng(0)
    model = fitted(rng.integers(0, 6, 300), 4, "modified_kneser_ney")
    model.save(tmp_path)
    loaded = Ngram(model.config, model.sizes)
    loaded.load(tmp_path)
    text = rng.integers(0, 6, 40_000)
    before, _ = loaded.logprobs(stream(text[:50]))
    whole, _ = loaded.adapted().logprobs(stream(text))
    reading, parts, last = loaded.adapted(), [], STOP
    for begin in range(0, len(text), 7001):
        part = text[begin : begin + 7001]
        parts.append(reading.logprobs(stream(part, begin == 0, last))[0][0])
        last = part[-1]
    assert np.array_equal(np.concatenate(parts), whole[0])
    assert np.array_equal(loaded.logprobs(stream(text[:50]))[0], before)
    assert np.array_equal(model.adapted().logprobs(stream(text))[0], whole)  # mapped or not
    assert whole.mean() > loaded.logprobs(stream(text))[0].mean()


def test_nothing_is_read_ahead_and_ignore_is_not_read():
    rng = np.random.default_rng(1)
    model = fitted(rng.integers(0, 6, 300), 3, "kneser_ney")
    text, other = rng.integers(0, 6, 200), rng.integers(0, 6, 200)
    other[:100] = text[:100]
    a, b = (model.adapted().logprobs(stream(t))[0][0] for t in (text, other))
    assert np.array_equal(a[:100], b[:100]) and not np.array_equal(a[100:], b[100:])
    padded = stream([*text, *[IGNORE] * 5])
    assert np.array_equal(model.adapted().logprobs(padded)[0][0], [*a, *[0.0] * 5])


def test_step_reads_what_it_is_given():
    rng = np.random.default_rng(2)
    model = fitted(rng.integers(0, 6, 300), 4, "modified_kneser_ney")
    text = rng.integers(0, 6, 60)
    logp, _ = model.adapted().logprobs(stream(text))
    stepping = model.adapted()
    state = stepping.start(1, 100)
    token = STOP
    for place, target in enumerate(text):
        logits, state = stepping.step(torch.tensor([[token]]), torch.tensor([[True]]), state)
        assert math.exp(logits[0].double().logsumexp(0)) == pytest.approx(1, abs=1e-6)
        assert float(logits[0, target]) == pytest.approx(logp[0, place], abs=1e-5)
        token = target
    with pytest.raises(ValueError, match="one text"):
        stepping.start(2, 10)

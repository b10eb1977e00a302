"""Class n-grams against a slow model of dictionaries, and what adapting may and may not do."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.models.base import Sizes
from segue.models.class_ngram import ClassNgram
from segue.ngrams import count

VOCAB = 12


def text_of(size: int, seed: int) -> np.ndarray:
    """Words that mostly go on by one or two; word 11 never comes."""
    return np.cumsum(np.random.default_rng(seed).choice([1, 1, 1, 2, 5], size)) % (VOCAB - 1)


def fitted(
    tokens: np.ndarray, held: np.ndarray | None = None, vocab_size: int = VOCAB, carry: bool = False, **config
) -> ClassNgram:
    model = ClassNgram(ClassNgram.Config(**{"classes": 4, **config}), Sizes(vocab_size, carry=carry))
    list(model.fit(SimpleNamespace(tokens=np.asarray(tokens)), ClassNgram.Train(), held))
    return model


@pytest.fixture(scope="module")
def model() -> ClassNgram:
    return fitted(text_of(400, 0), text_of(150, 1), decay=0.9)


def batch_of(text: np.ndarray, fresh: bool = False) -> Batch:
    """A text and, as targets, what follows each token; nothing after the last."""
    tokens = np.asarray(text)[None]
    targets = np.concatenate((tokens[:, 1:], [[IGNORE]]), axis=1)
    return Batch(tokens, targets, np.ones_like(tokens, dtype=bool), np.array([fresh]))


def asking(text: np.ndarray, word: int) -> Batch:
    """A text, and one word as the target everywhere."""
    tokens = np.asarray(text)[None]
    return Batch(tokens, np.full_like(tokens, word), np.ones_like(tokens, dtype=bool), np.array([True]))


def probabilities(model, text: np.ndarray, adapted: bool) -> np.ndarray:
    """(tokens, VOCAB): p of every word after each token."""
    asked = [(model.adapted() if adapted else model).logprobs(asking(text, word))[0][0] for word in range(VOCAB)]
    return np.exp(np.stack(asked, axis=1))


# A slow model


def slow_kn(events: list, asked: tuple, target: int, p: float, discounts: np.ndarray) -> float:
    """Events are (context, target), contexts begin with their root."""
    counts = [Counter(events)]
    for k in range(len(asked) - 1, 0, -1):
        counts.insert(0, Counter((c[:k], t) for c, t in counts[0]))
    for k, level in enumerate(counts):
        row = {t: n for (c, t), n in level.items() if c == asked[: k + 1]}
        if not row:
            break
        taken = {t: discounts[k][min(n, 3)] for t, n in row.items()}
        p = (row.get(target, 0) - taken.get(target, 0) + sum(taken.values()) * p) / sum(row.values())
    return p


def slow_cache(events: list, asked: tuple, target: int, p: float, decay: float) -> float:
    for k in range(len(asked)):
        worth: dict = defaultdict(float)
        for age, (c, t) in enumerate(reversed(events), 1):
            worth[t] += decay**age * (c[: k + 1] == asked[: k + 1])
        p = (worth[target] + p) / (sum(worth.values()) + 1)
    return p


def after_stop(history: list[int]) -> list[int]:
    stops = [i for i, word in enumerate(history) if word == 0]
    return list(history)[stops[-1] + 1 :] if stops else list(history)


def views(model: ClassNgram, history: list[int], word: int) -> list[tuple[tuple, int]]:
    """(context, target) of the five parts, for a word after a history: three that count and two caches."""
    own = list(history) if model.sizes.carry else after_stop(history)
    h = [0] * 9 + [int(w) for w in own]
    classes = [int(c) for c in model.classes]
    w = [h[-lag] for lag in range(1, 7)]
    c = [classes[i] for i in w]
    kind = classes[word]
    both = [symbol for lag in range(model.config.inside_context) for symbol in (c[lag], w[lag])]
    return [
        ((None, *c[: model.config.class_context]), kind),
        ((None, *w[: model.config.word_context]), kind),
        ((kind, *both), word),
        ((None, *w[:3]), kind),
        ((kind, *w[:3]), word),
    ]


def slow(model: ClassNgram, train: np.ndarray, read: list[int], word: int, adapted: bool) -> float:
    """p of a word after a text of which the first token is the STOP that begins it."""
    trained = [views(model, train[:i], int(train[i])) for i in range(len(train))]
    later = [views(model, read[1:i], read[i]) for i in range(1, len(read))] if adapted else []
    asked = views(model, read[1:], word)
    kinds, kind = len(set(model.classes)), model.classes[word]
    members = np.flatnonzero(model.classes == kind)
    seen = np.maximum(np.bincount(train, minlength=VOCAB), 0.5)
    even = [1 / kinds, 1 / kinds, 1 / len(members)]
    kn = [slow_kn([e[k] for e in trained + later], *asked[k], even[k], model.counted[k].discounts) for k in range(3)]
    p = [kn[:2], kn[2:]]
    if adapted:
        below = (seen[members].sum() / seen.sum(), seen[word] / seen[members].sum())
        for k in (0, 1):
            p[k] = [*p[k], slow_cache([e[3 + k] for e in later], *asked[3 + k], below[k], model.config.decay)]
    way = "adapted" if adapted else "static"
    a, b = model.weights[f"{way}.class"][model.classes[read[-1]]], model.weights[f"{way}.word"][kind]
    return float(np.dot(a, p[0]) * np.dot(b, p[1]))


@pytest.mark.parametrize("carry", [False, True], ids=["each unit", "carried"])
@pytest.mark.parametrize("adapted", [False, True], ids=["static", "adapted"])
def test_it_is_the_slow_model(adapted: bool, carry: bool) -> None:
    model = fitted(text_of(400, 0), text_of(150, 1), decay=0.9, carry=carry)
    train, read = text_of(400, 0), np.concatenate(([0], text_of(60, 2)))
    read[30] = 11  # never seen
    found = probabilities(model, read, adapted)
    for i in (0, 1, 2, 5, 29, 30, 31, 60):
        for word in (0, 1, int(read[min(i + 1, 60)]), 11):
            right = slow(model, train, [int(w) for w in read[: i + 1]], word, adapted)
            assert found[i, word] == pytest.approx(right, rel=1e-9), (i, word)


# Sums, stepping, looking ahead


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40),
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=25),
    st.integers(1, 15),
    st.integers(0, 4),
)
def test_every_word_has_a_share_and_all_sum_to_one(train: list, read: list, classes: int, context: int) -> None:
    contexts = dict.fromkeys(("class_context", "word_context", "inside_context"), context)
    model = fitted(np.array(train), classes=classes, **contexts)
    for adapted in (False, True):
        p = probabilities(model, np.array(read), adapted)
        assert (p > 0).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-9)


def test_adapted_step_equals_logprobs(model: ClassNgram) -> None:
    text = np.concatenate(([0], text_of(30, 3)))
    expected = probabilities(model, text, True)
    for size in (1, 4, 31):
        adapted = model.adapted()
        state = adapted.start(1, 0)
        for begin in range(0, len(text), size):
            piece = torch.tensor(text[None, begin : begin + size])
            logp, state = adapted.step(piece, torch.ones_like(piece, dtype=torch.bool), state)
            np.testing.assert_allclose(logp[0].exp().numpy(), expected[min(begin + size, 31) - 1], rtol=1e-5)


def test_what_was_asked_and_what_comes_later_change_nothing(model: ClassNgram) -> None:
    text = np.concatenate(([0], text_of(40, 4)))
    other = np.concatenate((text[:20], (text[20:] + 3) % VOCAB))
    one, two = (model.adapted().logprobs(batch_of(t))[0][0] for t in (text, other))
    np.testing.assert_array_equal(one[:19], two[:19])
    assert not np.allclose(one[20:-1], two[20:-1])
    asked = probabilities(model, text, True)[np.arange(40), text[1:]]
    np.testing.assert_array_equal(np.log(asked), np.log(np.exp(one[:-1])))


# Adapting


def test_adapting_leaves_the_model_as_it_is(model: ClassNgram, tmp_path: Path) -> None:
    text = np.concatenate(([0], text_of(300, 5)))
    still = model.logprobs(batch_of(text))[0]
    model.save(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    one, two = model.adapted(), model.adapted()
    first = one.logprobs(batch_of(text, fresh=True))[0]
    again = one.logprobs(batch_of(text, fresh=True))[0]
    assert again.sum() > first.sum()  # it has read this before
    np.testing.assert_array_equal(two.logprobs(batch_of(text, fresh=True))[0], first)
    np.testing.assert_array_equal(model.logprobs(batch_of(text))[0], still)
    model.save(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_history_goes_on_over_calls_until_a_row_is_fresh(model: ClassNgram) -> None:
    text = np.concatenate(([0], text_of(50, 6)))
    whole = model.adapted().logprobs(batch_of(text))[0][0]
    targets = np.concatenate((text[1:], [IGNORE]))
    for handed in (False, True):
        adapted, state, found = model.adapted(), None, []
        for begin in range(0, len(text), 8):
            piece = np.s_[None, begin : begin + 8]
            batch = Batch(text[piece], targets[piece], np.ones_like(text[piece], dtype=bool), np.array([begin == 0]))
            logp, state = adapted.logprobs(batch, state if handed else None)
            found.append(logp[0])
        np.testing.assert_allclose(np.concatenate(found), whole, rtol=1e-12)
    # Fresh: the history is that of a new text, and its first token is no event.
    one, two = model.adapted(), model.adapted()
    one.logprobs(batch_of(text))
    two.logprobs(batch_of(text))
    fresh = one.logprobs(batch_of(text[:9], fresh=True))[0]
    np.testing.assert_array_equal(two.logprobs(batch_of(text[:9]), two.start(1, 0))[0], fresh)
    assert not np.allclose(model.adapted().logprobs(batch_of(text[:9]))[0], fresh)


def test_padding_is_neither_read_nor_counted(model: ClassNgram) -> None:
    text = np.concatenate(([0], text_of(20, 7)))
    plain = model.adapted().logprobs(batch_of(text))[0][0]
    mask = np.ones(len(text) + 6, bool)
    mask[[0, 1, 9, 10, -2, -1]] = False
    tokens, targets = np.full(len(mask), 5), np.full(len(mask), IGNORE)
    tokens[mask], targets[mask] = text, batch_of(text).targets[0]
    padded = model.adapted().logprobs(Batch(tokens[None], targets[None], mask[None]))[0][0]
    np.testing.assert_array_equal(padded[mask], plain)
    assert (padded[~mask] == 0).all()


def test_an_adapted_model_reads_one_row(model: ClassNgram) -> None:
    adapted = model.adapted()
    two = np.zeros((2, 3), np.int64)
    with pytest.raises(ValueError, match="2 rows"):
        adapted.start(2, 0)
    with pytest.raises(ValueError, match="2 rows"):
        adapted.logprobs(Batch(two, two, two == 0))
    with pytest.raises(ValueError, match="2 rows"):
        adapted.step(two, two == 0, model.start(2, 0))
    assert (adapted.task, adapted.config, adapted.sizes) == ("lm", model.config, model.sizes) and adapted.normalised


# Fitting


def test_the_weights_are_those_that_fit_the_held_out_text(model: ClassNgram) -> None:
    """A text that repeats itself wants the caches; held-out text decides, of its own or the last tenth."""
    train = text_of(400, 0)
    phrase = np.tile([3, 9, 5, 1, 7, 2, 10, 4], 30)
    for weights in (fitted(train, phrase).weights, fitted(np.concatenate((train, phrase[:44]))).weights):
        assert weights["adapted.class"][:, 2].mean() > 2 * model.weights["adapted.class"][:, 2].mean()
        assert all(np.allclose(w.sum(1), 1) for w in weights.values())


@pytest.mark.parametrize("way", ["static", "adapted"])
@pytest.mark.parametrize("what", ["class", "word"])
def test_the_weights_make_the_held_out_text_likelier(way: str, what: str) -> None:
    held = text_of(150, 1)
    text = np.concatenate(([0], held))
    model = fitted(text_of(400, 0), held)
    chosen = model.weights[f"{way}.{what}"]
    nats = []
    for weights in (chosen, np.full_like(chosen, 1 / chosen.shape[1]), np.roll(chosen, 1, axis=1)):
        model.weights[f"{way}.{what}"] = weights
        model._static = model._mixture("static")
        nats.append(-(model if way == "static" else model.adapted()).logprobs(batch_of(text))[0].sum())
    if (way, what) == ("static", "word"):
        assert chosen.shape[1] == 1 and (chosen == 1).all()  # one part: nothing to choose
    else:
        assert nats[0] < min(nats[1:])


def test_without_held_out_text_all_is_counted() -> None:
    tokens = text_of(200, 8)
    whole, given = fitted(tokens), fitted(tokens, tokens[:50])
    for one, two in zip(whole.counted, given.counted, strict=True):
        for name, array in one.arrays().items():
            np.testing.assert_array_equal(array, two.arrays()[name])
    assert whole.counts.sum() == 200


@pytest.mark.parametrize("tokens", [[0], [1], [1] * 30, [2, 0], [3, 3, 0, 3, 3, 0]], ids=str)
@pytest.mark.parametrize("held", [None, [], [1]], ids=str)
def test_small_texts(tokens: list[int], held: list[int] | None, tmp_path: Path) -> None:
    """One word, one repeated, fewer words than classes, contexts longer than the text."""
    model = fitted(np.array(tokens), None if held is None else np.array(held, np.int64), classes=100, class_context=9)
    for adapted in (False, True):
        p = probabilities(model, np.array([0, 1, 11]), adapted)
        assert (p > 0).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-9)
    assert probabilities(model, np.array(tokens), False)[-1].argmax() in tokens


def test_saved_and_fitted_again_are_the_same_to_the_bit(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made = fitted(text_of(300, 9), text_of(100, 10))
        made.save(tmp_path / name)
        files.append((tmp_path / name / "model.safetensors").read_bytes())
    assert files[0] == files[1]
    again = ClassNgram(made.config, made.sizes)
    again.load(tmp_path / "one")
    batch = batch_of(np.concatenate(([0], text_of(80, 11))))
    for one, two in ((made, again), (made.adapted(), again.adapted())):
        np.testing.assert_array_equal(one.logprobs(batch)[0], two.logprobs(batch)[0])
    assert again.parameters_count == made.parameters_count


def test_shares_of_the_work_rise_to_one() -> None:
    for held in (None, text_of(50, 1)):
        told: list[float] = []
        model = ClassNgram(ClassNgram.Config(classes=3), Sizes(VOCAB))
        records = list(model.fit(SimpleNamespace(tokens=text_of(100, 0)), ClassNgram.Train(), held, told.append))
        assert told == sorted(told) and told[-1] == 1 and told[0] > 0 and len(told) > 10
        assert [r.values for r in records] == [{"classes": 3}, {"ngrams": model.parameters_count}]


def test_what_cannot_be_counted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no tokens"):
        fitted(np.array([], np.int64))
    with pytest.raises(ValueError, match="token 12"):
        fitted(np.array([12]))
    monkeypatch.setattr(count, "LONGEST", 5)
    with pytest.raises(InputError, match="at most 5"):
        fitted(text_of(6, 0))
    with pytest.raises(ValueError, match="sweeps"):
        ClassNgram.Train(sweeps=-1)


def test_counting_needs_no_torch() -> None:
    code = "import sys, segue.models.class_ngram; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

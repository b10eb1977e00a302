"""word2vec: the lecture's numbers, an independent reference of every step, and what noise is to converge to."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from segue.errors import InputError
from segue.models import word2vec
from segue.models.base import Sizes
from segue.models.word2vec import Word2vec
from segue.word_vectors import learning, noise_words

HISTORY = ["the", "history", "of", "ai", "is", "a", "history", "of", "fantasies"]
WORDS = list(dict.fromkeys(HISTORY))
PLAIN = {"dynamic": False, "subsample": 0.0, "negatives": 0}


def ids(words: list[str]) -> list[int]:
    return [2 + WORDS.index(word) for word in words]


def store(*texts: list[int]) -> Any:
    tokens = np.array([i for text in texts for i in [*text, 0]], np.uint16)
    tokens.flags.writeable = False  # as a store is, so that the loops are compiled once
    return SimpleNamespace(tokens=tokens)


def fitted(text: Any, vocab: int, train: dict[str, Any], **config: Any) -> tuple[Word2vec, list[float]]:
    """A trained model, and the loss of every epoch."""
    model = Word2vec(Word2vec.Config(**config), Sizes(vocab))
    records = list(model.fit(text, Word2vec.Train(**{"threads": 1, **train})))
    return model, [record.values["loss"] for record in records]


# The lecture


def test_w1_one_word_predicts_the_next() -> None:
    model = Word2vec(Word2vec.Config(method="next"), Sizes(2 + len(WORDS)))
    names = ["start", "", *WORDS]
    pairs = [f"{names[model.neighbours(ids(HISTORY), t)[0][0]]}-{word}" for t, word in enumerate(HISTORY)]
    rows = "start-the the-history history-of of-ai ai-is is-a a-history history-of of-fantasies"
    assert pairs == rows.split()


def test_w2_the_loss_falls_to_what_is_uncertain() -> None:
    """Only "of" has two followers: 2 ln 2 / 9."""
    settings = {"epochs": 3000, "rate": 1.0}
    model, losses = fitted(store(ids(HISTORY)), 2 + len(WORDS), settings, method="next", width=8, **PLAIN)
    lowest = 2 * math.log(2) / 9
    assert lowest == pytest.approx(0.154033, abs=1e-6)
    assert losses[0] > 1.5 and losses[-1] == pytest.approx(lowest, abs=1e-3)
    p = model.expect([(ids(["of"])[0], 1.0)])
    assert p[ids(["ai"])[0]] == pytest.approx(0.5, abs=0.02) and p[ids(["fantasies"])[0]] == pytest.approx(
        0.5, abs=0.02
    )


@pytest.mark.parametrize(
    ("word", "k", "divide", "expected"),
    [
        ("is", 2, "present", {"of": 1 / 4, "ai": 1 / 4, "a": 1 / 4, "history": 1 / 4}),
        ("is", 3, "present", {"history": 2 / 6, "of": 2 / 6, "ai": 1 / 6, "a": 1 / 6}),
        ("the", 2, "window", {"history": 1 / 4, "of": 1 / 4}),
        ("the", 2, "present", {"history": 1 / 2, "of": 1 / 2}),
    ],
)
def test_w3_what_cbow_averages(word: str, k: int, divide: Any, expected: dict[str, float]) -> None:
    model = Word2vec(Word2vec.Config(method="cbow", window=k, divide=divide), Sizes(2 + len(WORDS)))
    found = dict(model.neighbours(ids(HISTORY), HISTORY.index(word)))
    assert found == pytest.approx({ids([name])[0]: weight for name, weight in expected.items()})


def test_w4_predictions_of_two_words_are_multiplied() -> None:
    model = Word2vec(Word2vec.Config(width=2, predicts="centre", negatives=0), Sizes(5))
    model.vectors[2:4] = np.eye(2)
    model.outputs = np.zeros((5, 2), np.float32)
    model.outputs[2:] = np.log([[0.5, 0.6], [0.3, 0.1], [0.2, 0.3]])
    p = model.expect([(2, 1.0), (3, 1.0)])
    np.testing.assert_allclose(p[2:], [0.769231, 0.076923, 0.153846], atol=1e-6)
    assert p[:2].sum() == 0  # STOP and UNK are no words
    sums = model.outputs[2:].sum(1)  # the softmax of the sum of the logits
    np.testing.assert_allclose(p[2:], np.exp(sums) / np.exp(sums).sum(), rtol=1e-6)


@pytest.mark.parametrize("divide", ["present", "window"])
def test_cbow_predicts_from_the_mean_of_the_words_around(divide: Any) -> None:
    model = Word2vec(Word2vec.Config(method="cbow", width=3, window=2, negatives=0, divide=divide), Sizes(6))
    draw = np.random.default_rng(0)
    model.vectors, model.outputs = draw.normal(size=(2, 6, 3)).astype(np.float32)
    x = model.vectors[[2, 3, 5]].sum(0).astype(float) / (3 if divide == "present" else 4)
    expected = np.exp(model.outputs[2:].astype(float) @ x)
    np.testing.assert_allclose(model.between([2, 3, 5])[2:], expected / expected.sum(), rtol=1e-6)


def test_next_predicts_from_one_word() -> None:
    model = Word2vec(Word2vec.Config(method="next", width=3, negatives=0), Sizes(6))
    model.vectors, model.outputs = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(model.between([3]), model.expect([(3, 1.0)]))
    with pytest.raises(InputError, match="from the one before it"):
        model.between([3, 4])


def test_w5_a_vector_is_a_row() -> None:
    model = Word2vec(Word2vec.Config(width=3), Sizes(10))
    table = model._begin(0)[0][:, :3]
    found = table[np.array([[1, 2, 4, 5], [4, 3, 2, 9]])]
    assert found.shape == (2, 4, 3)
    assert (found[0, 2] == found[1, 0]).all() and (found[0, 1] == found[1, 2]).all()
    np.testing.assert_array_equal(np.eye(10)[4] @ table, table[4])


def test_the_papers_direction_by_bayes() -> None:
    """The middle word predicts its neighbours: p(w | c1, c2) is p(w) p(c1 | w) p(c2 | w), made to sum to one."""
    draw = np.random.default_rng(0)
    model = Word2vec(Word2vec.Config(width=3, negatives=0), Sizes(6))
    model.vectors, model.outputs = (draw.normal(size=(6, 3)).astype(np.float32) for _ in range(2))
    model.counts = np.array([0, 0, 5, 3, 1, 1])
    given = np.exp(model.vectors[2:].astype(float) @ model.outputs[2:].astype(float).T)
    given /= given.sum(1, keepdims=True)
    expected = model.counts[2:] * given[:, 0] * given[:, 3]
    np.testing.assert_allclose(model.expect([(2, 1.0), (5, 1.0)])[2:], expected / expected.sum(), rtol=1e-5)


# Every step, by an independent reference


TEXTS = [[2, 3, 4, 2, 5, 1, 6], [6], [3, 3, 2, 6, 5, 4, 7, 2]]


def near_of(config: Word2vec.Config, words: list[int], t: int) -> list[int]:
    if config.method == "next":
        return [words[t - 1] if t else 0]
    low, high = max(0, t - config.window), t + config.window + 1
    return [word for c, word in enumerate(words[low:high], low) if c != t]


def reference(config: Word2vec.Config, train: Word2vec.Train, vocab: int, begin: np.ndarray, noise: Any) -> np.ndarray:
    """Plain gradient steps in double precision; `noise` gives the noise words of a place."""
    v, u = begin.astype(np.float64), np.zeros_like(begin, dtype=np.float64)
    total, read = train.epochs * sum(len(text) + 1 for text in TEXTS), 0
    for _ in range(train.epochs):
        noise.begin()
        for text in TEXTS:
            read += len(text) + 1
            rate = max(train.rate / 500, train.rate - (train.rate - train.rate / 500) * read / total)
            words = noise.kept([w for w in text if w > 1])
            for t, word in enumerate(words):
                near = near_of(config, words, t)
                if near:
                    step(config, v, u, near, word, rate, noise.words(word))
    return v


def step(
    config: Word2vec.Config, v: np.ndarray, u: np.ndarray, near: list[int], word: int, rate: float, noise: list[int]
) -> None:
    if config.method == "skipgram":
        before, change = u.copy(), np.zeros_like(u)
        for c in near:
            v[c] += learn(config, v[c].copy(), u if not noise else before, word, rate, noise, change)
        if noise:  # the words near a place see the same u, which changes once
            u += change
        return
    whole = 2 * config.window if config.divide == "window" and config.method == "cbow" else len(near)
    x = v[near].sum(0) / whole
    change = np.zeros_like(u)
    error = learn(config, x, u, word, rate, noise, change)
    u += change
    for c in near:
        v[c] += error


def learn(
    config: Word2vec.Config, x: np.ndarray, u: np.ndarray, word: int, rate: float, noise: list[int], change: np.ndarray
) -> np.ndarray:
    if not noise:
        p = np.exp(u[2:] @ x)
        g = -p / p.sum()
        g[word - 2] += 1
        error = rate * g @ u[2:]
        target = u if config.method == "skipgram" else change
        target[2:] += rate * np.outer(g, x)
        return error
    skipgram, rows, begin = config.method == "skipgram", [word, *noise], x.copy()
    for block in range(0, len(rows), learning.ROWS):  # in skip-gram each block sees what x has learnt from the last
        error = np.zeros_like(x)
        for i, other in list(enumerate(rows))[block : block + learning.ROWS]:
            g = rate * ((i == 0) - 1 / (1 + np.exp(-u[other] @ (x if skipgram else begin))))
            error += g * u[other]
            (change if skipgram else u)[other] += g * (x if skipgram else begin)
        x = x + error
    return np.asarray(x - begin)


class NoDraws:
    def begin(self) -> None:
        pass

    def kept(self, words: list[int]) -> list[int]:
        return words

    def words(self, word: int) -> list[int]:
        return []


class Draws(NoDraws):
    """The generator of word_vectors/noise_words.py, written again in Python's whole numbers."""

    def __init__(self, model: Word2vec, seed: int) -> None:
        self.state = int(noise_words.seeds(seed, 1)[0])
        _, self.mark, self.other = model._chances()
        self.count = model.config.negatives

    def bits(self) -> int:
        whole = (1 << 64) - 1
        self.state ^= self.state >> 12
        self.state = (self.state ^ (self.state << 25)) & whole
        self.state ^= self.state >> 27
        return self.state * 2685821657736338717 & whole

    def kept(self, words: list[int]) -> list[int]:
        for _ in words:
            self.bits()
        return words

    def words(self, word: int) -> list[int]:
        """Drawn a place ahead; where one is the word itself, another is drawn."""
        found = [self.word(word) if drawn == word else drawn for drawn in self.ahead]
        self.begin()
        return found

    def begin(self) -> None:
        self.ahead = [self.word(1) for _ in range(self.count)]

    def word(self, unwanted: int) -> int:
        drawn = unwanted
        while drawn == unwanted:
            bits = self.bits()
            place = (bits >> 32) * len(self.mark) >> 32
            drawn = int(self.other[place]) if (bits & 0xFFFFFFFF) > self.mark[place] else place
        return drawn


CONFIGS = [
    {"method": "next"},
    {"method": "cbow", "window": 2},
    {"method": "cbow", "window": 3, "divide": "window"},
    {"method": "skipgram", "window": 2},
    {"method": "skipgram", "window": 2, "predicts": "centre"},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("negatives", [0, 1, 5, 8])
def test_training_is_that_of_the_reference(config: dict[str, Any], negatives: int) -> None:
    train = Word2vec.Train(epochs=4, rate=0.2, threads=1, seed=3)
    made = Word2vec.Config(width=5, **PLAIN | {"negatives": negatives} | config)
    model = Word2vec(made, Sizes(9))
    list(model.fit(store(*TEXTS), train))
    begin = model._begin(3)[0][:, :5]
    expected = reference(made, train, 9, begin, Draws(model, 3) if negatives else NoDraws())
    assert abs(expected - begin).max() > 0.005
    np.testing.assert_allclose(model.vectors, expected, atol=1e-3 if negatives else 1e-5)  # sigmoid is a table
    np.testing.assert_array_equal(model.vectors[8], begin[8])  # a word that is not in the text stays where it was


def test_whole_windows_are_the_same_pairs_in_either_direction_and_drawn_ones_are_not() -> None:
    def vectors(**config: Any) -> np.ndarray:
        return fitted(store(*TEXTS), 9, {"epochs": 3}, width=4, window=3, subsample=0.0, **config)[0].vectors

    for dynamic, same in ((False, True), (True, False)):
        two = [vectors(dynamic=dynamic, predicts=which) for which in ("context", "centre")]
        assert np.array_equal(*two) is same


# Noise


def test_noise_leads_to_the_log_of_how_much_likelier_a_follower_is() -> None:
    """The best u·v with K noise words: sigmoid of it is the share of true followers among all that were shown."""
    draw = np.random.default_rng(1)
    chain = draw.integers(2, 6, 4000)
    chain[1::2] = np.where(draw.random(2000) < 0.7, 2 + (chain[::2] - 1) % 4, chain[1::2])
    settings = {"epochs": 60, "rate": 0.1}
    config = {"method": "next", "width": 8, "negatives": 3, "subsample": 0.0, "power": 0.5}
    model, _ = fitted(store(chain.tolist()), 6, settings, **config)
    seen = np.zeros((6, 6))
    np.add.at(seen, (chain[:-1], chain[1:]), 1)
    q = noise_words.noise_chances(model.counts, 0.5)
    # Of a pair (a, w), noise n is drawn by q among the words that are not w.
    shown = np.array(
        [[sum(3 * seen[a, w] * q[n] / (1 - q[w]) for w in range(2, 6) if w != n) for n in range(6)] for a in range(6)]
    )
    expected = np.log(seen[2:, 2:] / shown[2:, 2:])
    assert model.outputs is not None
    found = model.vectors[2:] @ model.outputs[2:].T
    np.testing.assert_allclose(found, expected, atol=0.25)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99


# Runs


def topics(lines: int = 400, seed: int = 0) -> tuple[Any, int]:
    """Texts over one of two sets of ten words each: 2 … 11 and 12 … 21."""
    draw = np.random.default_rng(seed)
    return store(*[(2 + 10 * (i % 2) + draw.integers(0, 10, 12)).tolist() for i in range(lines)]), 22


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("config", [{"method": "skipgram"}, {"method": "cbow"}, {"method": "next"}], ids=str)
def test_words_of_a_kind_come_together(config: dict[str, Any], threads: int) -> None:
    text, vocab = topics()
    model, losses = fitted(
        text, vocab, {"threads": threads, "epochs": 8, "rate": 0.1}, width=16, subsample=0.0, **config
    )
    assert losses[-1] < losses[0]
    unit = model.vectors[2:] / np.linalg.norm(model.vectors[2:], axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    same = np.arange(20) // 10 == cosines.argmax(1) // 10
    assert same.all()


def test_a_seed_and_one_thread_fix_every_number() -> None:
    text, vocab = topics(60)
    one, two = (fitted(text, vocab, {"seed": 4}, width=8)[0].vectors for _ in range(2))
    other = fitted(text, vocab, {"seed": 5}, width=8)[0].vectors
    assert np.array_equal(one, two) and not np.array_equal(one, other)


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    text, vocab = topics(60)
    model, _ = fitted(text, vocab, {}, width=7)
    model.save(tmp_path)
    again = Word2vec(model.config, model.sizes)
    again.load(tmp_path)
    assert np.array_equal(again.vectors, model.vectors) and np.array_equal(again.outputs, model.outputs)
    assert np.array_equal(again.counts, model.counts) and again.parameters_count == 2 * vocab * 7
    narrower = Word2vec(replace(model.config, width=6), model.sizes)
    with pytest.raises(ValueError, match="vectors has the shape"):
        narrower.load(tmp_path)


def test_a_text_of_one_word_is_refused() -> None:
    with pytest.raises(InputError, match="1 different words"):
        fitted(store([2, 2, 1, 2]), 4, {})


@pytest.mark.parametrize(("words", "epochs"), [(100, 25), (1_000_000, 10), (5_000_000, 5)])
def test_a_short_text_is_read_more_often(words: int, epochs: int) -> None:
    text = np.full(words, 1, np.uint16)  # of unknown words, which take no time
    text[:3] = 2, 3, 4
    text.flags.writeable = False
    model, losses = fitted(SimpleNamespace(tokens=text), 5, {}, width=2, subsample=0.0)
    assert model.epochs == len(losses) == epochs


@pytest.mark.parametrize("threads", [1, 2])
def test_time_ends_it_and_the_rate_falls_with_the_time(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that would take far longer, by a clock that is over after ten looks."""
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(word2vec, "_stopwatch", lambda seconds: lambda: next(ticks) / 10 if seconds else 0.0)
    monkeypatch.setattr(word2vec, "_LOOK", 0.01)
    seen: list[float] = []
    heed = word2vec._Work._heed

    def watched(work: Any, spent: float) -> None:
        heed(work, spent)
        seen.append(int(work.read[:-1].sum()) / work.total)  # by which the rate goes
        assert seen[-1] >= min(1.0, spent) - 1e-6

    monkeypatch.setattr(word2vec._Work, "_heed", watched)
    text = SimpleNamespace(tokens=np.random.default_rng(0).integers(0, 500, 2_000_000).astype(np.uint16))
    model, losses = fitted(text, 500, {"epochs": 50, "seconds": 1.0, "threads": threads}, width=16)
    assert 0 < model.epochs < 20 and len(losses) == math.ceil(model.epochs)
    assert seen == sorted(seen) and len(seen) >= 10 and seen[-1] >= 1


def test_time_that_suffices_changes_nothing() -> None:
    text, vocab = topics(60)
    bound, free = (fitted(text, vocab, {"epochs": 3, "seconds": seconds}, width=8)[0] for seconds in (1e6, 0.0))
    assert np.array_equal(bound.vectors, free.vectors) and bound.epochs == free.epochs == 3


def test_texts_longer_than_a_piece_and_without_an_end() -> None:
    long = SimpleNamespace(tokens=np.random.default_rng(0).integers(2, 6, 25_000).astype(np.uint32))
    for threads in (1, 3):
        model, _ = fitted(long, 6, {"threads": threads, "epochs": 1}, width=4, subsample=0.0)
        assert np.isfinite(model.vectors).all() and model.vectors[2:].any(1).all()


def test_padding_behind_a_row_stays_empty_and_rows_begin_at_cache_lines() -> None:
    table = learning.aligned(5, 20)
    assert table.shape == (5, 32) and table.ctypes.data % 64 == 0 and table.strides == (128, 4)


@pytest.mark.parametrize(
    "values", [{"epochs": -1}, {"threads": 0}, {"rate": 0.0}, {"seed": -1}, {"seconds": -1.0}], ids=str
)
def test_impossible_training_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Word2vec.Train(**values)

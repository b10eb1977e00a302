"""Batches of places: a step against a plain reference, the windows of a text, and vectors that make sense."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from segue.data.grammar import sentences
from segue.models.base import Sizes
from segue.models.word2vec import Word2vec
from segue.recipe import load_recipe
from segue.runs.train import train as train_run
from segue.training import device as devices
from segue.word_vectors import on_device
from segue.word_vectors.on_device import Batch, DeviceWork, step

TEXTS = [[2, 3, 4, 2, 5, 1, 6], [6], [3, 3, 2, 6, 5, 4, 7, 2]]


def work(texts: list[list[int]], seed: int = 0, **config: Any) -> DeviceWork:
    """A training on the CPU that has not begun."""
    text = np.array([i for one in texts for i in [*one, 0]], np.uint16)
    model = Word2vec(Word2vec.Config(**{"subsample": 0.0, "width": 5, **config}), Sizes(9))
    model.device, model.counts = "cpu", np.bincount(text, minlength=9)
    model.counts[:2] = 0
    made = model._work(text, Word2vec.Train(epochs=1, seed=seed))
    assert isinstance(made, DeviceWork)
    return made


# One step


def moved(
    inputs: np.ndarray, outputs: np.ndarray, batch: list[tuple[list[int], int, list[int]]], rate: float, whole: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """The same step in double precision, prediction by prediction; `whole` is what cbow divides by, 0 in skip-gram."""
    changes = {id(table): np.zeros_like(table) for table in (inputs, outputs)}
    bends = {id(table): np.zeros(len(table)) for table in (inputs, outputs)}
    loss = 0.0
    for near, word, noise in batch:
        for group in [near] if whole else [[c] for c in near]:
            x = inputs[group].sum(0) / (whole or 1)
            for wanted, other in [(1, word), *((0, n) for n in noise if n != word)]:
                p = 1 / (1 + np.exp(-outputs[other] @ x))
                loss -= np.log(p if wanted else 1 - p)
                changes[id(outputs)][other] += (wanted - p) * x
                bends[id(outputs)][other] += abs(wanted - p) * (on_device.FLOOR + x @ x)
                for c in group:
                    changes[id(inputs)][c] += (wanted - p) * outputs[other]
                    bends[id(inputs)][c] += abs(wanted - p) * (on_device.FLOOR + outputs[other] @ outputs[other])
    after = []
    for table in (inputs, outputs):
        bend = np.maximum(rate * bends[id(table)], 1e-9)
        after.append(table + rate * changes[id(table)] * np.minimum(1, on_device.LIMIT / bend)[:, None])
    return after[0], after[1], loss


PLACES: list[tuple[list[int], int, list[int]]] = [
    ([3, 4, 3], 2, [5, 2]),
    ([2, 6], 3, [3, 3]),
    ([5], 2, [4, 6]),
    *[([4, 6, 4], 7, [2, 5])] * 9,
]
"""(near words, the word, its noise): words that come twice, noise that is the word, and a place nine times over."""


def as_batch(whole: int) -> Batch:
    rows = [near + [8] * (4 - len(near)) for near, _, _ in PLACES]
    there = torch.tensor([[1.0] * len(near) + [0.0] * (4 - len(near)) for near, _, _ in PLACES])
    candidates = torch.tensor([[word, *noise] for _, word, noise in PLACES])
    counts = torch.tensor([[1.0, *(float(n != word) for n in noise)] for _, word, noise in PLACES])
    return Batch(torch.tensor(rows), there, there / max(1, whole), candidates, counts)


@pytest.mark.parametrize("rate", [0.01, 0.8])
@pytest.mark.parametrize("whole", [0, 4], ids=["skipgram", "cbow"])
def test_a_step_is_that_of_the_reference(whole: int, rate: float) -> None:
    draw = np.random.default_rng(0)
    tables = [draw.normal(size=(9, 5)) for _ in range(2)]
    inputs, outputs, loss = moved(tables[0], tables[1], PLACES, rate, whole)
    learnt = tuple(torch.tensor(table, dtype=torch.float32) for table in tables)
    found = step(learnt, as_batch(whole), rate, cbow=whole > 0, look=True)
    np.testing.assert_allclose(learnt[0].numpy(), inputs, atol=1e-5)
    np.testing.assert_allclose(learnt[1].numpy(), outputs, atol=1e-5)
    assert found is not None
    predictions = len(PLACES) if whole else sum(len(near) for near, _, _ in PLACES)
    np.testing.assert_allclose(found.numpy(), [loss, predictions], rtol=1e-5)
    assert abs(inputs - tables[0]).max() > rate / 10 and (inputs[8] == tables[0][8]).all()


def test_a_large_batch_of_the_same_does_not_overshoot() -> None:
    """Two words that stand together a thousand times in a batch: summed steps would swing ever further."""
    batch = Batch(*(column.repeat(1000, 1) for column in as_batch(0).part(2, 3)))
    tables = tuple(torch.randn(9, 5, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    losses = [found[0].item() for _ in range(50) if (found := step(tables, batch, 0.5, False, True)) is not None]
    assert all(after < before for before, after in pairwise(losses)) and losses[-1] < losses[0] / 3


# What a batch is made of


def pairs(texts: list[list[int]], k: int) -> list[tuple[int, int]]:
    """(near word, word) of whole windows; unknown words are not there."""
    found = []
    for text in ([w for w in text if w > 1] for text in texts):
        found += [(text[c], text[t]) for t in range(len(text)) for c in range(len(text)) if 0 < abs(c - t) <= k]
    return sorted(found)


def shown(batch: Batch) -> list[tuple[int, int]]:
    rows, columns = batch.there_PW.nonzero(as_tuple=True)
    return sorted(zip(batch.near_PW[rows, columns].tolist(), batch.candidates_PR[rows, 0].tolist(), strict=True))


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_every_pair_of_a_window_is_there_once(method: str) -> None:
    made = work(TEXTS, method=method, window=3, dynamic=False)
    assert shown(made._piece(made.text)) == pairs(TEXTS, 3)
    parts = [batch for batch, _ in made._batches()]
    assert sorted(pair for batch in parts for pair in shown(batch)) == pairs(TEXTS, 3)


@pytest.mark.parametrize("predicts", ["context", "centre"])
def test_drawn_windows_are_whole_numbers_from_one(predicts: str) -> None:
    """After the paper a word reaches as far on either side as it was drawn, after the lecture one is reached so."""
    text = list(range(2, 9))
    made = work([text], window=3, predicts=predicts, seed=1)
    found = shown(made._piece(made.text))
    for word in text:
        own = [(c, t) for c, t in found if (c if predicts == "context" else t) == word]
        reach = max(abs(c - t) for c, t in own)
        assert sorted(own) == [pair for pair in pairs([text], reach) if pair[0 if predicts == "context" else 1] == word]


@pytest.mark.parametrize(("divide", "shares"), [("present", [1 / 2, 1 / 3, 1 / 3, 1 / 2]), ("window", [1 / 4] * 4)])
def test_what_cbow_divides_by(divide: str, shares: list[float]) -> None:
    made = work([[2, 3, 4, 5]], method="cbow", window=2, dynamic=False, divide=divide)
    batch = made._piece(made.text)
    found = {int(word): row.max().item() for word, row in zip(batch.candidates_PR[:, 0], batch.share_PW, strict=True)}
    assert [found[word] for word in (2, 3, 4, 5)] == pytest.approx(shares)


def test_noise_comes_with_its_chances_and_is_never_an_end_or_unknown() -> None:
    made = work(TEXTS, power=0.5)
    drawn = np.bincount(made._noise(40_000).flatten().numpy(), minlength=9) / 200_000
    chances = np.sqrt(np.bincount([w for text in TEXTS for w in text if w > 1], minlength=9))
    np.testing.assert_allclose(drawn, chances / chances.sum(), atol=0.005)
    assert drawn[:2].sum() == 0 and drawn[8] == 0


def test_frequent_words_are_passed_over() -> None:
    made = work([[2] * 9000 + [3, 4, 5] * 30], subsample=0.01)
    found = np.bincount(made._piece(made.text).candidates_PR[:, 0].numpy(), minlength=9)
    share = 9000 / 9090 / 0.01
    assert found[2] == pytest.approx(9000 * (share**0.5 + 1) / share, rel=0.15) and (found[3:6] == 30).all()


# Whole trainings


def fitted(tokens: np.ndarray, vocab: int, train: dict[str, Any], **config: Any) -> tuple[Word2vec, list[float]]:
    model = Word2vec(Word2vec.Config(**config), Sizes(vocab))
    model.device = "cpu"
    records = list(model.fit(SimpleNamespace(tokens=tokens), Word2vec.Train(**train)))
    return model, [record.values["loss"] for record in records]


def topics(lines: int = 400) -> np.ndarray:
    """Texts over one of two sets of ten words each: 2 … 11 and 12 … 21."""
    draw = np.random.default_rng(0)
    return np.concatenate([[*(2 + 10 * (i % 2) + draw.integers(0, 10, 12)), 0] for i in range(lines)]).astype(np.uint16)


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_words_of_a_kind_come_together(method: Any) -> None:
    model, losses = fitted(topics(), 22, {"epochs": 8, "rate": 0.1}, width=16, subsample=0.0, method=method)
    assert losses[-1] < losses[0]
    unit = model.vectors[2:] / np.linalg.norm(model.vectors[2:], axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    assert (np.arange(20) // 10 == cosines.argmax(1) // 10).all()


def test_both_ways_of_learning_find_the_same_words_alike() -> None:
    """On sentences of the built-in grammar: a loop that goes place by place, and batches."""
    lines = [example.text.split() for example in sentences("text", 8000)]
    names = ["", "", *sorted({word for line in lines for word in line})]
    index = {name: i for i, name in enumerate(names)}
    text = np.array([i for line in lines for i in [*(index[word] for word in line), 0]], np.uint16)
    text.flags.writeable = False  # as a store is, so that the loops are compiled once
    cosines = []
    for device in (None, "cpu"):
        model = Word2vec(Word2vec.Config(width=16), Sizes(len(names)))
        model.device = device
        list(model.fit(SimpleNamespace(tokens=text), Word2vec.Train(epochs=5, threads=1)))
        unit = model.vectors[2:] / np.linalg.norm(model.vectors[2:], axis=1, keepdims=True)
        cosines.append(unit @ unit.T)
    above = np.triu_indices(len(names) - 2, 1)
    assert np.corrcoef(cosines[0][above], cosines[1][above])[0, 1] > 0.9
    like = {names[2 + i] for i in np.argsort(-cosines[1][index["dogs"] - 2])[1:4]}
    assert like <= {"cats", "owls", "frogs", "kings", "nurses", "girls"}


def test_a_seed_fixes_every_number_on_a_cpu() -> None:
    one, two = (fitted(topics(60), 22, {"seed": 4}, width=8)[0].vectors for _ in range(2))
    other = fitted(topics(60), 22, {"seed": 5}, width=8)[0].vectors
    assert np.array_equal(one, two) and not np.array_equal(one, other)


def test_pieces_are_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "PIECE", 100)
    made = work([[2, 3, 4, 5]] * 100)
    places, reads = zip(*((len(batch.near_PW), read) for batch, read in made._batches()), strict=True)
    assert len(reads) == 10 and list(reads) == sorted(reads) and reads[-1] == 500 and sum(places) == 400


def test_time_ends_it() -> None:
    """By a clock that is over at the fourth look: three batches are read, and no more."""
    made = work([[2, 3, 4, 5]] * 100)
    made.size = 64
    ticks = iter(range(10))
    made.epoch(1, lambda share: None, lambda: next(ticks) / 3)
    assert next(ticks) == 4 and made.tokens == pytest.approx(500 * 3 * 64 / 400)


# Which way a run takes


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[list[str], int]]:
    """Trains as on a machine with a GPU, which is the CPU by another name; what was said, and how often it was used."""
    monkeypatch.setattr(devices, "has_driver", lambda: True)
    monkeypatch.setattr(devices, "pick_device", lambda device: "cpu:0")
    used: list[DeviceWork] = []
    begin = DeviceWork.__init__
    monkeypatch.setattr(DeviceWork, "__init__", lambda self, *given: used.append(self) or begin(self, *given))

    def train(device: str, *settings: str) -> tuple[list[str], int]:
        said: list[str] = []
        lines = tmp_path / "lines.txt"
        lines.write_text("the cows eat grass and the sheep eat hay\n" * 40, encoding="utf-8")
        recipe = load_recipe("word2vec", [f"data.path={lines}", "data.unit=line", "train.epochs=2", *settings])
        trained = train_run(recipe, out=tmp_path / "run", device=device, progress=lambda what, *_: said.append(what))
        assert (trained.path / "result.json").exists()
        return [line for line in said if line.endswith(".")], len(used)

    return train


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_a_gpu_is_used_where_there_is_one(told: Any, method: str, device: str) -> None:
    assert told(device, f"model.method={method}") == ([], 1)


def test_a_gpu_is_left_alone_when_asked(told: Any) -> None:
    assert told("cpu") == ([], 0)


@pytest.mark.parametrize("setting", ["model.method=next", "model.negatives=0"])
def test_what_a_gpu_does_not_learn_is_said_once_and_learnt_on_the_cpu(told: Any, setting: str) -> None:
    said, used = told("cuda", setting)
    assert used == 0 and len(said) == 1 and setting in said[0] and "CPU" in said[0]


def test_on_a_cpu_torch_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the cows eat grass and the sheep eat hay\n" * 40, encoding="utf-8")
    code = "import sys\nfrom segue import cli\ntry:\n    cli.main()\nfinally:\n    print('torch' in sys.modules)"
    words = ["train", "word2vec", str(tmp_path / "lines.txt"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1] == "False" and (tmp_path / "run" / "result.json").exists(), done.stderr

"""The training of a model that trains itself: its records, its summary, and what is said on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

from segue.batches.codec import Sizes
from segue.models.base import Counted, Record
from segue.training.fitting import Fitting


class Counter(Counted):
    """Reads its text one and a half times, and compiles something on the way."""

    epochs = 1.5
    parameters_count = 7
    compiled = 0.0

    def fit(
        self, store: Any, train: Any, held_out: Any = None, done: Callable[[float], None] = lambda share: None
    ) -> Iterator[Record]:
        done(0.5)
        begun = time.perf_counter()
        numba.njit(lambda x: x + 1)(1)
        self.compiled = time.perf_counter() - begun
        yield Record(1, "train", {"loss": 2.0})

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


def fitting(said: list[tuple[str, float]], validate: Any = None) -> Fitting:
    store: Any = SimpleNamespace(tokens=np.zeros(10))
    model = Counter(None, Sizes(3))
    return Fitting(
        model, store, None, None, validate, "counting", lambda what, share, note="": said.append((what, share))
    )


def test_records_and_summary() -> None:
    one = fitting([], lambda: {"loss": 1.0})
    records = list(one.fit())
    assert [(record.step, record.kind, record.values["loss"]) for record in records] == [
        *[(1, "train", 2.0), (1, "validation", 1.0)]
    ]
    assert all(record.values["seconds"] <= one.seconds for record in records)
    summary = one.summary()
    assert summary["steps"] == 2 and summary["epochs"] == 1.5 and summary["parameters"] == 7
    assert summary["tokens_per_second"] * summary["train_seconds"] == pytest.approx(15)
    assert [record.kind for record in fitting([]).fit()] == ["train"]


def test_compiling_is_no_training() -> None:
    one, begun = fitting([]), time.perf_counter()
    list(one.fit())
    assert isinstance(one.model, Counter)
    assert 0 < one.seconds < time.perf_counter() - begun - one.model.compiled / 2


def test_compiling_is_said_and_the_end_comes_last() -> None:
    """While it validates, it is not done."""
    said: list[tuple[str, float]] = []
    list(fitting(said, lambda: said.append(("validating", 0.0)) or {"loss": 1.0}).fit())
    assert said[0] == ("counting", 0.99 * 0.5)
    assert ("compiling, once", 0.0) in said
    assert said[-2:] == [("validating", 0.0), ("counting", 1.0)]


def test_the_seconds_of_training_are_without_those_of_compiling() -> None:
    """Otherwise the first model of a comparison seems slower than the next, on a machine where it never ran."""
    list(fitting([]).fit())  # what numba does once a process
    one = fitting([])
    begun = time.perf_counter()
    list(one.fit())  # nearly all of it is compiling
    assert 0 < one.seconds < (time.perf_counter() - begun) / 2

"""Labels of every kind on disk and in batches, and pairs of texts as one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from segue.batches.batches import Config
from segue.batches.collate import classify
from segue.batches.encode import encode, encode_texts, labels_of
from segue.batches.rows import Rows
from segue.batches.store import Store
from segue.data.example import Example
from segue.errors import InputError
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

SEVERAL = [Example("a b", tags=("x", "z")), Example("b", tags=()), Example("a", tags=("y",))]
TOKENIZER = Tokenizer.train(Tokens(kind="space"), ["a b c d"])


def rows_of(store: Store, size: int) -> Rows:
    return Rows(store, Config(size=size, length=99), 0, lambda columns: classify(columns, 99))


def test_several_classes_are_a_yes_or_no_for_each(tmp_path: Path) -> None:
    labels = labels_of(SEVERAL, "classify", "classes")
    assert labels == ["x", "y", "z"]
    store = encode(SEVERAL, TOKENIZER, "classify", labels, tmp_path, label="classes").store
    batch = classify(store.take(np.array([2, 0, 1])), 9)
    assert batch.targets.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]] and batch.count == 9
    with pytest.raises(InputError, match=r"'z' was never seen"):
        encode(SEVERAL, TOKENIZER, "classify", ["x", "y"], tmp_path / "other", label="classes")


def test_one_possible_label_is_a_yes_or_no_too(tmp_path: Path) -> None:
    rows = [Example("a", tags=("x",)), Example("b")]
    store = encode(rows, TOKENIZER, "classify", ["x"], tmp_path, label="classes").store
    (batch,) = rows_of(store, 2).at(0)
    assert sorted(batch.targets.tolist()) == [[0], [1]]


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    rows = [Example("a", "2.5"), Example("b", "-100")]
    assert labels_of(rows, "classify", "number") == []
    store = encode(rows, TOKENIZER, "classify", [], tmp_path, label="number").store
    batch = classify(store.take(np.array([0, 1])), 9)
    assert batch.targets.tolist() == [2.5, -100] and batch.targets.dtype == np.float32
    assert batch.count == 2 and batch.rows([1]).count == 1  # -100 is a number here


def test_stop_stands_between_the_texts_of_a_pair(tmp_path: Path) -> None:
    """Where there is no second text, nothing does; the rows beside it make no difference."""
    a, b, c = (int(TOKENIZER.encode(word)[0]) for word in "abc")
    rows = [Example("a b", "x", target="c"), Example("c", "y")]
    store = encode(rows, TOKENIZER, "classify", ["x", "y"], tmp_path).store
    assert [store.columns["text"].row(i).tolist() for i in range(2)] == [[a, b, TOKENIZER.stop, c], [c]]
    flat, lengths = encode_texts(rows[1:], TOKENIZER)
    assert flat.tolist() == [c] and lengths.tolist() == [1]


def test_rows_of_like_length_stand_together(tmp_path: Path) -> None:
    """So that little is padded, and nothing is left out of an epoch."""
    draw = np.random.default_rng(0)
    rows = [Example(" ".join(["a"] * int(n)), "x" if i % 2 else "y") for i, n in enumerate(draw.integers(1, 40, 320))]
    store = encode(rows, TOKENIZER, "classify", ["x", "y"], tmp_path).store
    batches = rows_of(store, 32)
    masks = [batch.mask_BT for step in range(batches.per_epoch) for batch in batches.at(step)]
    real = sum(int(mask.sum()) for mask in masks)
    assert real == len(store.tokens) and real / sum(mask.size for mask in masks) > 0.85

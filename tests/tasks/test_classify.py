"""Classify: labels of every kind on disk and in batches, and pairs of texts as one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from segue.batches.batch import IGNORE
from segue.batches.batches import Batches, Config
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import encode_texts
from segue.batches.store import Store, columns_of
from segue.data.config import Config as Data
from segue.data.config import Label
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.errors import InputError
from segue.tasks.classify import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

SEVERAL = "x,z\ta b\n\tb\ny\ta\n"
TOKENIZER = Tokenizer.train(Tokens(kind="space"), ["a b c d"])


def codec_of(labels: tuple[str, ...], label: Label = "class", tokenizer: Tokenizer = TOKENIZER) -> Codec:
    sizes = Sizes(tokenizer.vocab_size, len(labels) or 1, label)
    return Codec(tokenizer, labels, Data(label=label), sizes)


def corpus_of(folder: Path, text: str, **values: str) -> Corpus:
    (folder / "rows.tsv").write_text(text, encoding="utf-8")
    return Corpus(Data(path=str(folder / "rows.tsv"), validation=0.0, **values), TASK.shape)


# Batches


def test_rows_are_padded_on_the_right() -> None:
    columns = columns_of(text=[np.array(row) for row in ([5, 6, 7], [8], [])], label=np.array([1, 0, 2]))
    batch = TASK.collate(columns, 9999)
    assert batch.tokens_BT.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert batch.mask_BT.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert batch.targets.tolist() == [1, 0, 2]
    assert batch.count == 3


def test_an_empty_batch_of_rows_still_has_a_column() -> None:
    batch = TASK.collate(columns_of(text=[np.array([], np.int64)], label=np.array([0])), 9999)
    assert batch.tokens_BT.shape == batch.mask_BT.shape == (1, 1)
    assert not batch.mask_BT.any()


def test_without_labels_nothing_is_predicted() -> None:
    """As where a model is asked: the same tokens, every target IGNORE."""
    text = [np.array([5, 6]), np.array([7])]
    asked, told = TASK.collate(columns_of(text=text), 9), TASK.collate(columns_of(text=text, label=[1, 0]), 9)
    assert asked.tokens_BT.tolist() == told.tokens_BT.tolist() and asked.mask_BT.tolist() == told.mask_BT.tolist()
    assert asked.targets.shape == told.targets.shape and (asked.targets == IGNORE).all() and asked.count == 0


def batches_of(store: Store, size: int) -> Batches:
    return TASK.batches(store, Config(size=size, length=99), 0)


# Ids


def test_classes(tmp_path: Path) -> None:
    texts = ["fine film", "a dull film", "grass"]
    corpus = corpus_of(tmp_path, "good\tfine film\nbad\ta dull film\ngood\tgrass\n")
    tokenizer = Tokenizer.train(Tokens(kind="word", min_count=1), [" " + text for text in texts])
    store = TASK.store(corpus, "all", codec_of(("bad", "good"), tokenizer=tokenizer), tmp_path / "store").store
    assert store.columns["label"].flat.tolist() == [1, 0, 1]
    # The first word has a blank before it, so that it is the same word wherever it stands.
    rows = store.columns["text"].rows()
    assert [row.tolist() for row in rows] == [tokenizer.encode(" " + text).tolist() for text in texts]
    assert rows[0][1] == rows[1][2]


def test_a_text_without_a_word_is_a_row_too() -> None:
    columns = TASK.encode([Example("", "y"), Example("a", "x")], codec_of(("x", "y")))
    assert columns["text"].lengths().tolist() == [0, 1] and columns["label"].flat.tolist() == [1, 0]


def test_rows_are_the_same_ids_with_and_without_labels() -> None:
    """What is predicted is encoded as what was trained on."""
    rows = [Example("a b", "x", target="c"), Example("c", "y")]
    told, asked = (TASK.encode(rows, codec_of(("x", "y")), labelled) for labelled in (True, False))
    assert set(told) == {"text", "label"} and set(asked) == {"text"}
    assert told["text"].flat.tolist() == asked["text"].flat.tolist()
    assert told["text"].ends.tolist() == asked["text"].ends.tolist()


def test_an_unknown_label_is_refused_with_its_place() -> None:
    row = Example("a", "goood", path="reviews.tsv", line=7)
    with pytest.raises(InputError) as caught:
        TASK.encode([row], codec_of(("bad", "good")))
    message = str(caught.value)
    assert message.startswith("reviews.tsv:7: ") and "'goood'" in message and "Did you mean '" in message


def test_labels_are_sorted_and_numbers_by_their_value(tmp_path: Path) -> None:
    rows = "".join(f"{label}\ta\n" for label in ("10", "9", "b", "a", "10", "1"))
    assert TASK.labels(corpus_of(tmp_path, rows), Data()) == ("1", "9", "10", "a", "b")


# Several labels, numbers and pairs


def test_several_classes_are_a_yes_or_no_for_each(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, SEVERAL, label="classes")
    labels = TASK.labels(corpus, corpus.config)
    assert labels == ("x", "y", "z")
    store = TASK.store(corpus, "all", codec_of(labels, "classes"), tmp_path / "store").store
    batch = TASK.collate(store.take(np.array([2, 0, 1])), 9)
    assert batch.targets.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]] and batch.count == 9
    with pytest.raises(InputError, match=r"'z' was never seen"):
        TASK.store(corpus, "all", codec_of(("x", "y"), "classes"), tmp_path / "other")


def test_one_possible_label_is_a_yes_or_no_too(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "x\ta\n\tb\n", label="classes")
    store = TASK.store(corpus, "all", codec_of(("x",), "classes"), tmp_path / "store").store
    (batch,) = batches_of(store, 2).at(0)
    assert sorted(batch.targets.tolist()) == [[0], [1]]


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "2.5\ta\n-100\tb\n", label="number")
    assert TASK.labels(corpus, corpus.config) == ()
    store = TASK.store(corpus, "all", codec_of((), "number"), tmp_path / "store").store
    batch = TASK.collate(store.take(np.array([0, 1])), 9)
    assert batch.targets.tolist() == [2.5, -100] and batch.targets.dtype == np.float32
    assert batch.count == 2 and batch.rows([1]).count == 1  # -100 is a number here


def test_stop_stands_between_the_texts_of_a_pair(tmp_path: Path) -> None:
    """Where there is no second text, nothing does; the rows beside it make no difference."""
    a, b, c = (int(TOKENIZER.encode(word)[0]) for word in "abc")
    rows = [Example("a b", "x", target="c"), Example("c", "y")]
    assert [row.tolist() for row in encode_texts(rows, TOKENIZER).rows()] == [[a, b, TOKENIZER.stop, c], [c]]
    assert [row.tolist() for row in encode_texts(rows[1:], TOKENIZER).rows()] == [[c]]
    corpus = corpus_of(tmp_path, "x\ta b\tc\ny\tc\td\n", columns="1,2,3")
    store = TASK.store(corpus, "all", codec_of(("x", "y")), tmp_path / "store").store
    assert store.columns["text"].row(0).tolist() == [a, b, TOKENIZER.stop, c]


def test_rows_of_like_length_stand_together(tmp_path: Path) -> None:
    """So that little is padded, and nothing is left out of an epoch."""
    draw = np.random.default_rng(0)
    rows = ["xy"[i % 2] + "\t" + " ".join(["a"] * int(n)) for i, n in enumerate(draw.integers(1, 40, 320))]
    corpus = corpus_of(tmp_path, "\n".join(rows) + "\n")
    store = TASK.store(corpus, "all", codec_of(("x", "y")), tmp_path / "store").store
    batches = batches_of(store, 32)
    masks = [batch.mask_BT for step in range(batches.per_epoch) for batch in batches.at(step)]
    real = sum(int(mask.sum()) for mask in masks)
    assert len(store) == 320
    assert real == len(store.tokens) and real / sum(mask.size for mask in masks) > 0.85

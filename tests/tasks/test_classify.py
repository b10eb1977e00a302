"""Classify: labels of every kind on disk and in batches, what is predicted, and the figures on made-up answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Batches, Config
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import encode_texts
from segue.batches.store import Store, columns_of
from segue.data.config import Config as Data
from segue.data.config import Label
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import Evaluation, compare
from segue.inference.opened import Opened
from segue.models.bow import Bow
from segue.tasks.classify import SHOWN, TASK, Classify
from segue.tasks.classify import Label as Answer
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

SEVERAL = "x,z\ta b\n\tb\ny\ta\n"
TOKENIZER = Tokenizer.train(Tokens(kind="space"), ["a b c d"])
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
LABELS = ("bad", "fair", "good")


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
    tokenizer = Tokenizer.train(Tokens(kind="word", min_count=1), texts)
    store = TASK.store(corpus, "all", codec_of(("bad", "good"), tokenizer=tokenizer), tmp_path / "store").store
    assert store.columns["label"].flat.tolist() == [1, 0, 1]
    # The first word has a blank before it, so that it is the same word wherever it stands.
    rows = store.columns["text"].rows()
    assert [row.tolist() for row in rows] == [tokenizer.encode(text).tolist() for text in texts]
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


# Predicting


def bow(sizes: Sizes) -> Bow:
    torch.manual_seed(0)
    model = Bow(Bow.Config(dropout=0.5), sizes)
    nn.init.normal_(model.weight.weight)
    return model.train()  # predicting turns dropout off itself


def opened(kind: str = "word", limit: int = 100, make: Any = bow) -> Opened:
    tokenizer = Tokenizer.train(Tokens(kind=kind, min_count=1), [" ".join(WORDS)])
    codec = codec_of(LABELS, tokenizer=tokenizer)
    return Opened(make(codec.sizes), codec, Decode(), limit, TASK)


def answers(one: Opened, *texts: str) -> list[Answer]:
    return list(TASK.predict(one, [Example(text=text) for text in texts]))


def test_labels_are_those_of_the_sums_of_the_words_vectors() -> None:
    """150 texts are three batches: in order, whatever stands beside them."""
    one, draw = opened(), np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, draw.integers(1, 7))) for _ in range(150)]
    W = one.model.weight.weight.detach()
    for text, answer in zip(texts, answers(one, *texts), strict=True):
        p = W[torch.tensor(one.codec.tokenizer.encode(text)).long()].sum(0).softmax(-1)
        assert answer.label == LABELS[int(p.argmax())]
        assert answer.probabilities == pytest.approx(p.tolist(), abs=1e-5)
        assert sum(answer.probabilities) == pytest.approx(1.0, abs=1e-5)


def test_a_word_is_the_same_at_the_head_of_a_text() -> None:
    """The blank before a word belongs to it; the first word gets one, as in training."""
    one = opened()
    alone, after = answers(one, "one", " one")
    ids = one.codec.tokenizer.encode("one")
    assert one.codec.tokenizer.unk not in ids
    assert alone.probabilities != after.probabilities  # a blank that is there is a token of its own
    W = one.model.weight.weight.detach()
    assert alone.probabilities == pytest.approx(W[ids[0]].softmax(-1).tolist(), abs=1e-5)


def test_an_empty_text_is_judged_by_the_bias() -> None:
    (answer,) = answers(opened("char", limit=0), "")
    assert answer.probabilities == pytest.approx([1 / 3] * 3)


def test_what_is_beyond_the_limit_is_not_read_and_counted() -> None:
    one = opened(limit=3)
    short, long = answers(one, "one two three", "one two three four five")
    assert short == long
    assert [TASK.cut(one, Example(text=text)) for text in ("one two", "one two three four five")] == [0, 2]


def test_predictions_stream() -> None:
    """The first answers come before the last texts are read: standard input may have no end."""
    read = 0

    def endless() -> Iterator[Example]:
        nonlocal read
        while True:
            read += 1
            yield Example(text="one two")

    assert isinstance(next(TASK.predict(opened(), endless())), Answer) and read <= 64


def test_the_model_gets_tensors_with_a_mask() -> None:
    seen: list[Batch] = []

    class Spy(Bow):
        def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
            seen.append(batch)
            return torch.zeros(len(batch.tokens_BT), len(LABELS)), None

    one = opened(make=lambda sizes: Spy(Bow.Config(), sizes).train())
    answers(one, "one", "one two three")
    assert seen[0].mask_BT.tolist() == [[True, False, False], [True, True, True]]
    assert isinstance(seen[0].tokens_BT, Tensor) and not one.model.training


def test_a_prediction_is_a_line_and_an_object() -> None:
    one = Answer("good", LABELS, (0.1, 0.2, 0.7))
    assert one.line() == "good"
    assert one.json() == {"label": "good", "probabilities": {"bad": 0.1, "fair": 0.2, "good": 0.7}}
    several = Answer("bad,good", LABELS, (0.6, 0.2, 0.7), chosen=("bad", "good"))
    assert several.line() == "bad,good" and several.json()["labels"] == ["bad", "good"]
    assert Answer("2.5", (), number=2.5).json() == {"number": 2.5}


# Figures


class Told(Classify):
    """Has its answers beforehand; asked for more, it gives the first again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Answer]:
        return (answer for _, answer in zip(examples, chain(self.answers, repeat(self.answers[0])), strict=False))

    def of(self, rows: Sequence[Example], label: Label = "class") -> Evaluation:
        return self.judged(Opened(None, codec_of(LABELS, label), Decode(), 1000, self), rows)


def classified(truth: list[str], guess: list[str]) -> Evaluation:
    rows = [Example(text=f"text {i}", label=label, path="a.tsv", line=i + 1) for i, label in enumerate(truth)]
    return Told(*(Answer(label, LABELS, (0.25, 0.5, 0.25)) for label in guess)).of(rows)


def some_labels(rows: int = 80) -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(0)
    truth = draw.choice(LABELS, rows, p=[0.5, 0.3, 0.2])
    guess = np.where(draw.random(rows) < 0.6, truth, draw.choice(LABELS, rows))
    return truth.tolist(), guess.tolist()


def test_classes_against_scikit_learn() -> None:
    truth, guess = some_labels()
    result = classified(truth, guess).result
    assert result["task"] == "classify" and result["rows"] == 80 and result["labels"] == list(LABELS)
    assert result["accuracy"] == pytest.approx(accuracy_score(truth, guess))
    assert result["macro_f1"] == pytest.approx(f1_score(truth, guess, average="macro"))
    assert result["confusion"] == confusion_matrix(truth, guess, labels=LABELS).tolist()
    low, high = result["accuracy_ci"]
    assert low < result["accuracy"] < high
    normal = 1.96 * math.sqrt(result["accuracy"] * (1 - result["accuracy"]) / 80)  # the interval of a share
    assert high - low == pytest.approx(2 * normal, rel=0.2)
    assert result["figure"] == "accuracy"


@pytest.mark.parametrize(("guess", "low", "high"), [("bad", 0.88, 1), ("good", 0, 0.12)], ids=["all", "none"])
def test_all_or_none_right_is_no_certainty(guess: str, low: float, high: float) -> None:
    """The exact interval of 30 of 30 is 0.884 to 1."""
    several = Told(Answer(guess, LABELS, (0.5,) * 3, chosen=(guess,)))
    for evaluation in (
        classified(["bad"] * 30, [guess] * 30),
        several.of([Example(text="text", tags=("bad",))] * 30, "classes"),
    ):
        assert evaluation.result["accuracy_ci"] == pytest.approx([low, high], abs=0.01)


def test_a_label_that_training_never_saw_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"a\.tsv:2: the label 'goood' was never seen in training\. .*'good'"):
        classified(["bad", "goood"], ["bad", "bad"])


def test_errors_are_shown_with_the_surest_first() -> None:
    rows = [Example(text=str(i), label="bad") for i in range(40)]
    wrong = [Answer("good", LABELS, (0.1, 0.2, 0.5 + i / 100)) for i in range(39)]
    shown = Told(*wrong, Answer("bad", LABELS, (1.0, 0.0, 0.0))).of(rows).examples
    assert len(shown) == SHOWN
    first = {key: shown[0][key] for key in ("text", "label", "predicted", "probability")}
    assert first == {"text": "38", "label": "bad", "predicted": "good", "probability": "0.88"}
    sure = [float(error["probability"]) for error in shown]
    assert sure == sorted(sure, reverse=True)


def test_pieces_are_a_row_a_text() -> None:
    evaluation = classified(["bad", "good", "fair"], ["bad", "bad", "fair"])
    np.testing.assert_array_equal(evaluation.pieces_NK, [[1, 1], [0, 1], [1, 1]])


def test_what_is_said_to_be_likely_is_held_against_what_is_right() -> None:
    """Of three that are said to be right at 80 % one is; of one at 60 %, one: (3 · 0.8 - 1 + 1 - 0.6) / 4."""
    said = [Answer("good", LABELS, p) for p in [(0.1, 0.1, 0.8)] * 3 + [(0.2, 0.2, 0.6)]]
    rows = [Example(text=str(i), label=label) for i, label in enumerate(["good", "bad", "bad", "good"])]
    result = Told(*said).of(rows).result
    assert result["calibration_error"] == pytest.approx((1.4 + 0.4) / 4)
    assert [bin for bin in result["calibration"] if bin[0]] == [[1, 0.6, 1], [3, pytest.approx(2.4), 1]]


def test_compare_rows() -> None:
    truth, guess = some_labels()
    right, some = classified(truth, truth), classified(truth, guess)
    gap = compare([right], [some])
    assert gap.difference == pytest.approx(1 - some.result["accuracy"]) and gap.p < 0.01
    assert compare([some], [some]).p == 1.0


def test_nothing_to_evaluate_on() -> None:
    with pytest.raises(InputError, match="no rows"):
        Told().of([])

"""Asking vectors: nearest, analogies (the lecture's), pairs that people scored, and which word stood there."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference.metrics import spearman
from segue.inference.words import (
    Pair,
    Question,
    Words,
    cloze,
    combined,
    of_questions,
    of_text,
    questions_in,
    signed,
    spearman_interval,
)
from segue.models.base import Sizes
from segue.models.word2vec import Word2vec

CAPITALS = {"Paris": "France", "Tokyo": "Japan", "Berlin": "Germany", "Rome": "Italy"}
LECTURE = [
    ("Paris - France + Japan", "Tokyo"),
    ("scientist - Einstein + Messi", "midfielder"),
    ("scientist - Einstein + Mozart", "violinist"),
    ("scientist - Einstein + Picasso", "painter"),
    ("sushi - Japan + Germany", "bratwurst"),
    ("sushi - Japan + USA", "pizza"),
    ("sushi - Japan + France", "tapas"),
]


def lecture() -> Words:
    """Vectors in which the lecture's analogies hold: a word is who or where it is about, and what it is of them."""
    draw = np.random.default_rng(0)
    about = {
        name: draw.normal(size=40)
        for name in ("France", "Japan", "Germany", "USA", "Einstein", "Messi", "Mozart", "Picasso")
    }
    kind = {name: draw.normal(size=40) for name in ("capital", "job", "dish")}
    vectors = dict(about)
    for what, of in (
        ("capital", {"Paris": "France", "Tokyo": "Japan"}),
        ("dish", {"sushi": "Japan", "bratwurst": "Germany", "pizza": "USA", "tapas": "France"}),
        ("job", {"scientist": "Einstein", "midfielder": "Messi", "violinist": "Mozart", "painter": "Picasso"}),
    ):
        vectors |= {word: about[whose] + kind[what] for word, whose in of.items()}
    vectors |= {f"other{i}": draw.normal(size=40) for i in range(50)}
    return Words(list(vectors), np.stack(list(vectors.values())).astype(np.float32))


@pytest.mark.parametrize("by", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize(("expression", "answer"), LECTURE)
def test_w6_the_lectures_analogies(expression: str, answer: str, by: Any) -> None:
    plus, minus = signed(expression)
    found = lecture().analogy(plus, minus, 3, by)
    assert found[0][0] == answer and len(found) == 3
    assert not {word for word, _ in found} & {*plus, *minus}  # what is asked with is no answer


def test_3cosadd_is_the_cosine_to_the_sum_and_3cosmul_is_as_written() -> None:
    words = lecture()
    unit = words.unit[[words.index[name] for name in ("Paris", "Japan", "France")]].astype(float)
    whole = unit[0] + unit[1] - unit[2]
    (name, score), *_ = words.analogy(["Paris", "Japan"], ["France"], 1)
    b = words.unit[words.index[name]]
    assert score == pytest.approx(float(b @ whole), abs=1e-5)
    cosines = np.array([[0.5, 0.2, 0.1]])
    assert combined(cosines[:, :2], cosines[:, 2:], True)[0] == pytest.approx(0.75 * 0.6 / (0.55 + 0.001))


@pytest.mark.parametrize("by", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize("expression", ["sushi - Sushi", "pizza + tapas + USA - USA - tapas - pizza"])
def test_words_that_cancel_out_have_no_answer(expression: str, by: Any) -> None:
    with pytest.raises(InputError, match=f"'{re.escape(expression)}' comes to a vector of zeros"):
        lecture().analogy(*signed(expression), by=by)


# Predictions


@pytest.fixture
def predicting(tmp_path: Path) -> segue.Run:
    """A run of the lecture's skip-gram whose words i and j predict (x, y, z) by (.5, .3, .2) and (.6, .1, .3)."""
    settings = {"tokens.kind": "space", "tokens.min_count": 1, "data.validation": 0, "train.epochs": 1}
    settings |= {"model.width": 2, "model.predicts": "centre", "model.negatives": 0, "train.threads": 1}
    run = segue.train("word2vec", ["x y z i j"] * 4, tmp_path / "run", settings)
    given = {"x": (0.5, 0.6), "y": (0.3, 0.1), "z": (0.2, 0.3), "i": (0.0, 0.0), "j": (0.0, 0.0)}
    run.model.vectors, run.model.outputs = np.zeros((7, 2), np.float32), np.zeros((7, 2), np.float32)
    for word, p in given.items():
        run.model.outputs[run.tokenizer.encode(word)[0]] = np.log(np.maximum(p, 1e-20))
    run.model.vectors[[run.tokenizer.encode(word)[0] for word in "ij"]] = np.eye(2)
    run.save()
    return run


def command(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_w4_by_the_command(predicting: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Skip-gram's product of predictions: .769231, .076923, .153846. Of one word it is its own prediction."""
    path = str(predicting.path)
    said = command(capsys, "nearest", path, "i", "j", "--by", "prediction", "--top", "3")
    found = {row["word"]: row["probability"] for row in said["predicted"]}
    assert said["context"] == ["i", "j"] and list(found) == ["x", "z", "y"]  # the likeliest first
    assert found == pytest.approx({"x": 0.769231, "z": 0.153846, "y": 0.076923}, abs=1e-6)
    said = command(capsys, "nearest", path, "j", "--by", "prediction")
    assert len(said["predicted"]) == 5  # the word itself is not left out
    assert [row["probability"] for row in said["predicted"][:3]] == pytest.approx([0.6, 0.3, 0.1], abs=1e-6)
    assert main(["nearest", path, "i", "j", "--by", "prediction"]) == 0
    assert "0.76923" in capsys.readouterr().out


def test_the_mode_of_the_prediction_answers_an_analogy(
    predicting: segue.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """i + i - j: x has p = .5² / .6, over the sum of those of all words; the question's own words are no exception."""
    path = str(predicting.path)
    said = command(capsys, "analogy", path, "i + i - j", "--by", "prediction", "--top", "5")
    odds = {"x": 0.25 / 0.6, "y": 0.09 / 0.1, "z": 0.04 / 0.3, "i": 1e-20, "j": 1e-20}
    expected = {word: p / sum(odds.values()) for word, p in odds.items()}
    found = {row["word"]: row["score"] for row in said["answers"]}
    assert said["by"] == "prediction" and list(found)[:3] == ["y", "x", "z"]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("analogy", "i - j", "--by", "cosine"), "--by cosine is not known"),
        (("nearest", "i", "--by", "3cosadd"), "--by 3cosadd is not known"),
        (("nearest", *"ijxyzijxyzi", "--by", "prediction"), "11 words around one: this model's window has 10"),
    ],
)
def test_what_cannot_be_asked(
    predicting: segue.Run, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *rest = words
    assert main([verb, str(predicting.path), *rest]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_vectors_alone_predict_nothing() -> None:
    with pytest.raises(InputError, match="no model that predicts"):
        lecture().predicted(["Paris"])


def test_nearest_is_by_cosine_whatever_the_lengths() -> None:
    words = Words(["a", "b", "c", "d"], np.array([[1, 0], [100, 1], [0.1, 0.1], [-5, 0]], np.float32))
    found = words.nearest("a", 5)
    assert [name for name, _ in found] == ["b", "c", "d"]
    assert [score for _, score in found] == pytest.approx([100 / np.hypot(100, 1), np.sqrt(0.5), -1], abs=1e-6)


def test_a_word_is_found_with_other_capitals_and_behind_a_blank() -> None:
    words = Words(["king", " Queen", "Rome", "FBI"], np.eye(4, dtype=np.float32))
    assert [words.find(word) for word in ("King", "queen", "Queen", "rome", "fbi", "x")] == [0, None, 1, 2, 3, None]
    with pytest.raises(InputError, match=r"'kinga' has no vector here\. Did you mean 'king'"):
        words.place("kinga")
    many = Words([f"w{i}" for i in range(500)], np.eye(500, dtype=np.float32))
    with pytest.raises(InputError, match=r"^The word 'qqq' has no vector here\. Only words") as error:
        many.place("qqq")
    assert len(str(error.value)) < 200  # and not all the words there are


@pytest.mark.parametrize(
    ("expression", "plus", "minus"),
    [
        ("king - man + woman", ["king", "woman"], ["man"]),
        ("  king  ", ["king"], []),
        ("- man + king", ["king"], ["man"]),
        ("well-known − known", ["well-known"], ["known"]),
    ],
)
def test_signs_and_words(expression: str, plus: list[str], minus: list[str]) -> None:
    assert signed(expression) == (plus, minus)


@pytest.mark.parametrize("expression", ["", "king -", "king man", "- man", "king - - man +", "+"])
def test_what_is_no_expression(expression: str) -> None:
    with pytest.raises(InputError, match=r"king - man \+ woman"):
        signed(expression)


# Files


def test_pairs_analogies_and_text_are_told_apart(tmp_path: Path) -> None:
    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    assert questions_in(file("a", "love\tsex\t6.77\ntiger,cat,7.35\n")) == [
        Pair("love", "sex", 6.77),
        Pair("tiger", "cat", 7.35),
    ]
    assert questions_in(file("b", ": capitals\nParis France Rome Italy\n: x\na b c d\n")) == [
        Question("capitals", ("Paris", "France", "Rome", "Italy")),
        Question("x", ("a", "b", "c", "d")),
    ]
    for text in ("the old cow\nsees a barn\n", "since about 1900\nthis is text\n", "\n"):
        assert questions_in(file("c", text)) is None
    with pytest.raises(InputError, match=r"d:3: 3 words"):
        questions_in(file("d", ": x\na b c d\na b c\n"))
    with pytest.raises(InputError, match=r"e:4: 'a b'"):
        questions_in(file("e", "a b 1\nc d 2\ne f 3\na b\n"))
    packed = tmp_path / "f.xz"
    packed.write_bytes(lzma.compress(b"a b 1\nc d 2\n"))
    assert questions_in(packed) == [Pair("a", "b", 1.0), Pair("c", "d", 2.0)]


GOOD = "a b 1\nc d 2\ne f 3\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tiger cat 7.35\nlove sex q\nbook paper 7.46\n", r":2: 'q' is no number\. Expected two words and a number"),
        ("tiger cat q\n" + GOOD, ":1: 'q' is no number"),
        (GOOD + "a,b,nan\n", ":4: 'nan' is no number"),
        ("a\tb\t-inf\n" + GOOD, ":1: '-inf' is no number"),
        ("a\tb\t7,35\n" + GOOD, ":1: 'a\tb\t7,35'"),
        ("tiger cat\n" + GOOD, ":1: 'tiger cat'"),
        (GOOD * 50 + "\nand here is some text\n", ":152: 'and here"),
    ],
)
def test_a_bad_line_among_pairs_is_told(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.ws"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"bad\.ws{told}"):
        questions_in(path)


@pytest.mark.parametrize(
    "header",
    ["Word 1,Word 2,Human (mean)", "word1\tword2\tscore", "# tiger cat, by 13 people", "# two\n\n#\nw1 w2 score"],
)
def test_comments_and_the_names_of_columns_are_skipped(header: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    path.write_text(f"{header}\na,b,1\nc\td\t2\n", encoding="utf-8")
    assert questions_in(path) == [Pair("a", "b", 1.0), Pair("c", "d", 2.0)]
    path.write_text("#metoo movement 7\na b 1\n", encoding="utf-8")
    assert questions_in(path) == [Pair("#metoo", "movement", 7.0), Pair("a", "b", 1.0)]


def test_spearman_of_ranks_with_ties() -> None:
    """Against the correlation of ranks worked by hand: 1, 2.5, 2.5, 4 and 2, 1, 3, 4."""
    a, b = np.array([1, 5, 5, 9]), np.array([0.3, 0.1, 0.7, 0.9])
    x, y = np.array([1, 2.5, 2.5, 4]) - 2.5, np.array([2, 1, 3, 4]) - 2.5
    assert spearman(a, b) == pytest.approx(float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())))
    assert spearman(a, a * 3 + 1) == pytest.approx(1) and spearman(a, -a) == pytest.approx(-1)
    assert spearman(np.ones(4), b) == 0
    low, high = spearman_interval(0.5, 100)
    assert low < 0.5 < high and high - low == pytest.approx(0.31, abs=0.02)


def test_the_figures_of_pairs() -> None:
    words = Words(["a", "b", "c", "d"], np.array([[1, 0], [1, 0.1], [1, 1], [0, 1]], np.float32))
    pairs = [Pair("a", "b", 9), Pair("a", "c", 5), Pair("a", "d", 1), Pair("b", "d", 2), Pair("a", "x", 3)]
    result = of_questions(words, pairs).result
    assert result["spearman"] == pytest.approx(1) and (result["pairs"], result["unknown_pairs"]) == (4, 1)
    with pytest.raises(InputError, match="0 of 1 pairs"):
        of_questions(words, [Pair("x", "y", 1)])
    with pytest.raises(InputError, match=r"All 4 pairs with vectors have the same score, 5, .* undefined"):
        of_questions(words, [pair._replace(score=5) for pair in pairs[:4]] + pairs[4:])
    with pytest.raises(InputError, match="All 4 pairs with vectors have the same cosine"):
        of_questions(words, [Pair("a", "b", score) for score in range(4)])


def test_the_figures_of_analogies() -> None:
    words = lecture()
    right = [
        Question("food", ("Japan", "sushi", "USA", "pizza")),
        Question("towns", ("France", "Paris", "Japan", "Tokyo")),
    ]
    wrong = [Question("towns", ("France", "Paris", "Japan", "Messi")), Question("towns", ("France", "Paris", "x", "y"))]
    assert of_questions(words, right).result["accuracy_ci"][0] < 1  # both are right, which is no certainty
    result = of_questions(words, right + wrong).result
    assert result["accuracy"] == result["accuracy_3cosmul"] == pytest.approx(2 / 3)
    assert (result["analogies"], result["unknown_analogies"]) == (3, 1)
    assert [(one["section"], one["analogies"], one["accuracy"]) for one in result["sections"]] == [
        ("food", 1, 1.0),
        ("towns", 2, 0.5),
    ]
    with pytest.raises(InputError, match="None of the 1"):
        of_questions(words, wrong[1:])


# Text


def model_of(method: Any, predicts: Any, negatives: int, epochs: int) -> Word2vec:
    """A model of texts whose words are all of one of ten kinds of four."""
    draw = np.random.default_rng(0)
    lines = [[*(2 + 4 * draw.integers(10) + draw.integers(0, 4, 8)).tolist(), 0] for _ in range(600)]
    config = Word2vec.Config(method, 16, predicts=predicts, negatives=negatives, subsample=0.0)
    model = Word2vec(config, Sizes(42))
    text = np.array([i for line in lines for i in line], np.uint16)
    text.flags.writeable = False  # as a store is
    list(model.fit(SimpleNamespace(tokens=text), Word2vec.Train(epochs=epochs, rate=0.1, threads=1)))
    return model


def held() -> np.ndarray:
    draw = np.random.default_rng(9)
    lines = [[*(2 + 4 * draw.integers(10) + draw.integers(0, 4, 8)).tolist(), 0] for _ in range(300)]
    return np.array([[1], *[[i] for line in lines for i in line]]).ravel()


@pytest.mark.parametrize(
    ("method", "predicts", "negatives"),
    [
        ("skipgram", "context", 5),
        ("skipgram", "centre", 5),
        ("skipgram", "context", 0),
        ("cbow", "context", 5),
        ("cbow", "context", 0),
        ("next", "context", 5),
    ],
)
def test_cloze_of_what_was_learnt(method: Any, predicts: Any, negatives: int) -> None:
    """Nine words are drawn out of ten kinds, of which on the mean 3/39 · 9 are of the right one, and as likely."""
    answered = cloze(model_of(method, predicts, negatives, 20), held())
    assert answered.asked.sum() == 300 * (7 if method == "next" else 8)
    others = np.random.default_rng(0).binomial(9, 3 / 39, 100_000)
    assert answered.accuracy == pytest.approx(float((1 / (1 + others)).mean()), abs=0.06)


def test_cloze_of_nothing_learnt_is_a_guess_and_frequency_is_no_help() -> None:
    model = model_of("cbow", "context", 5, 1)
    draw = np.random.default_rng(1)
    model.vectors, model.outputs = (draw.normal(size=(42, 16)).astype(np.float32) for _ in range(2))
    assert cloze(model, held()).accuracy == pytest.approx(0.1, abs=0.04)


def test_texts_do_not_look_into_one_another_and_unknown_words_are_left_out() -> None:
    model = model_of("cbow", "context", 5, 1)
    asked = cloze(model, np.array([2, 0, 3, 1, 4, 0, 1, 1, 0, 5, 6])).asked
    assert asked.tolist() == [0, 2, 0, 2]  # alone; two with an unknown one between; none; two without an end
    with pytest.raises(InputError, match="No place"):
        of_text(model, np.array([2, 0, 3, 0]))


def test_imported_vectors_predict_nothing() -> None:
    model = model_of("cbow", "context", 5, 1)
    model.outputs = None
    with pytest.raises(InputError, match="imported"):
        cloze(model, held())

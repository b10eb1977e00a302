"""What a word is worth: against a model that adds up weights, where the answer is the weight itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import count, islice

import pytest

from segue.data.example import Example
from segue.look.explain.leave_one_out import MOST_WORDS, Mattered, Predict, explained, mattered, most_moving, words_read
from segue.tasks.classify import Label

WEIGHTS = {"great": 2.0, "fine": 0.5, "awful": -3.0}


def added(examples: Iterable[Example]) -> Iterator[Label]:
    """log-odds of good = the sum of the weights of the words; it reads a few rows ahead, as a task does."""
    source = iter(examples)
    while group := list(islice(source, 5)):
        for example in group:
            odds = sum(WEIGHTS.get(word, 0.0) for word in f"{example.text} {example.target}".split())
            good = 1 / (1 + math.exp(-odds))
            yield Label("good" if odds > 0 else "bad", ("bad", "good"), (1 - good, good))


def fixed(*answers: Label) -> Predict:
    """The same answers to everything, of whatever form."""
    return lambda examples: (answer for answer, _ in zip(answers, examples, strict=False))


def words_of(text: str, target: str = "", by: Predict = added) -> list[Mattered]:
    [words] = mattered(by, [Example(text=text, target=target)])
    return words


def test_the_drop_of_a_word_is_its_weight() -> None:
    words = words_of("a great  film , fine but awful in parts great")
    assert [word.word for word in words] == ["a", "great", "film", ",", "fine", "but", "awful", "in", "parts", "great"]
    # 2 + 0.5 - 3 + 2 > 0: it is called good.
    assert [word.drop for word in words] == pytest.approx([0, 2, 0, 0, 0.5, 0, -3, 0, 0, 2], abs=1e-9)


def test_what_speaks_for_the_label_given_is_above_zero_whichever_it_is() -> None:
    drops = {word.word: word.drop for word in words_of("awful but fine")}
    assert drops["awful"] == pytest.approx(3.0) and drops["fine"] == pytest.approx(-0.5)


def test_both_texts_of_a_pair_are_looked_at() -> None:
    assert [(w.word, round(w.drop, 6)) for w in words_of("great film", "fine film")] == [
        *[("great", 2.0), ("film", 0.0), ("fine", 0.5), ("film", 0.0)]
    ]


def test_an_empty_text_has_no_words() -> None:
    assert words_of("") == [] and words_of("  \t ") == []


def test_of_a_long_text_the_first_words() -> None:
    assert len(words_of("word " * 5000)) == MOST_WORDS


def test_what_it_takes_is_known_beforehand() -> None:
    assert words_read(Example(text="a b c")) == 9
    assert words_read(Example(text="a " * 500, target="b c")) == 502 * (MOST_WORDS + 2)


def test_texts_stream_and_keep_their_order() -> None:
    endless = (Example(text=" ".join(["great"] * (i % 4))) for i in count())
    first = list(islice(explained(added, endless), 50))
    assert [len(words) for _, words in first] == [i % 4 for i in range(50)]
    assert all(prediction.label == ("good" if words else "bad") for prediction, words in first)


def test_a_probability_of_almost_one_still_tells() -> None:
    """1 - p would be 0 here for both."""
    sure, less = Label("a", "ab", (1.0, 1e-40)), Label("a", "ab", (1.0, 1e-30))
    assert words_of("word", by=fixed(sure, less))[0].drop == pytest.approx(10 * math.log(10))
    gone = Label("a", "ab", (1.0, 0.0))
    assert math.isfinite(words_of("word", by=fixed(gone, less))[0].drop)


def test_of_a_number_it_is_the_number_that_drops() -> None:
    whole, less = Label("3.5", (), number=3.5), Label("1.25", (), number=1.25)
    assert words_of("word", by=fixed(whole, less)) == [Mattered("word", 2.25)]


def test_of_several_labels_it_is_the_likeliest() -> None:
    whole = Label("b", "ab", (0.5, 0.75), chosen=("b",))
    less = Label("", "ab", (0.9, 0.5), chosen=())
    assert words_of("word", by=fixed(whole, less))[0].drop == pytest.approx(math.log(3))


def test_the_largest_are_told_first() -> None:
    words = [Mattered("a", 0.001), Mattered(",", -0.5), Mattered("great", 2.0)]
    assert most_moving(words) == "great +2.00, , -0.50"
    assert most_moving(words, most=1) == "great +2.00"

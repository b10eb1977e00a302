"""The spelling model: proper probabilities, worked by hand, for every string."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.errors import InputError
from segue.tokens.spelling import MARK, OUTCOMES, Speller

WORDS = [" cat", " cart", " card", "dog", " naïve", " 2024"]
SPELLER = Speller.train(WORDS)
KNOWN = sorted(set("".join(WORDS)) | {MARK})


@given(
    st.one_of(st.text(min_size=2, max_size=2), st.sampled_from([MARK, *map("".join, itertools.product(KNOWN, KNOWN))]))
)
def test_next_characters_sum_to_one(context: str) -> None:
    unseen = SPELLER.probability("Ж", context)
    total = sum(SPELLER.probability(char, context) for char in KNOWN) + (OUTCOMES - len(KNOWN)) * unseen
    assert total == pytest.approx(1, abs=1e-9)
    assert unseen > 0


@given(st.text())
def test_every_string_has_finite_bits(word: str) -> None:
    assert 0 < SPELLER.bits(word) < math.inf


def test_one_letter_by_hand() -> None:
    """Of the one word "a": after the mark only a was seen, after mark and a only the mark; once each."""
    speller = Speller.train(["a"])
    alone = (1 + 2 / OUTCOMES) / (2 + 2)
    a_after_mark = (1 + alone) / 2
    mark_after_a = (1 + (1 + alone) / 2) / 2
    assert speller.bits("a") == pytest.approx(-math.log2(a_after_mark * mark_after_a))


def test_untrained_it_is_uniform() -> None:
    assert Speller.train([]).bits("ab") == pytest.approx(3 * math.log2(OUTCOMES))


def test_likely_words_are_cheaper() -> None:
    assert SPELLER.bits(" cat") < SPELLER.bits(" tac") < SPELLER.bits(" ЖЩЫ")


def test_it_learns_from_words_seen_once() -> None:
    learnt = Speller.learn(["the cat and the dog", "dog\tand the  bird"])
    once = Speller.train([" cat", "bird"])
    # "bird" stands after two blanks, and a word takes the last one with it.
    assert learnt.bits(" bird") == Speller.train([" cat", " bird"]).bits(" bird") != once.bits(" bird")
    assert learnt.bits("the") == Speller.train([" cat", " bird"]).bits("the")


def test_with_and_without_blank_is_one_word() -> None:
    assert Speller.learn(["dog eats dog"]).bits("x") == Speller.train([" eats"]).bits("x")


def test_without_words_seen_once_all_are_used() -> None:
    assert Speller.learn(["a b", "a b"]).bits("a") == Speller.train(["a", " b"]).bits("a")


def test_sample_ends_the_reading() -> None:
    assert Speller.learn(["one two", "three"], sample=7).bits("t") == Speller.train(["one", " two"]).bits("t")


def test_save_and_load(tmp_path: Path) -> None:
    SPELLER.save(tmp_path / "spelling.json")
    again = Speller.load(tmp_path / "spelling.json")
    for word in [*WORDS, "", "Ж\n"]:
        assert again.bits(word) == SPELLER.bits(word)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"trigrams": {"abc": {"d": 1}}}', '{"trigrams": {"a": 1}}', "\x00"]
)
def test_damaged_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "spelling.json").write_text(content)
    with pytest.raises(InputError, match=r"spelling\.json"):
        Speller.load(tmp_path / "spelling.json")
    with pytest.raises(InputError, match=r"missing\.json"):
        Speller.load(tmp_path / "missing.json")

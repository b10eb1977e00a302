"""Words as letters: kept in a row with a 0 after each, laid out side by side."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from segue.batches.spelled_words import (
    LONGEST,
    UnknownWords,
    number_unknown,
    pad_letters,
    place_letters,
    spelt,
    take_letters,
    word_column,
)
from segue.batches.store import Column, columns_of
from segue.tasks.tag import TASK
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

WORDS = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=6)


def back(chars: np.ndarray) -> list[str]:
    """Words again, from their letters."""
    return ["".join(chr(c - 1) for c in word if c) for word in chars.tolist()]


def test_letters_are_code_points_plus_one() -> None:
    assert spelt(["aé", "", "😀"]).tolist() == [ord("a") + 1, ord("é") + 1, 0, 0, ord("😀") + 1, 0]
    assert spelt([]).tolist() == []


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 7))
def test_rows_come_back(rows: list[list[str]], words: int) -> None:
    chars = pad_letters([spelt(row) for row in rows], words)
    kept = [row[:words] for row in rows]
    assert chars.shape == (len(rows), words, max([1, *(len(w) for row in kept for w in row)]))
    for row, found in zip(kept, chars, strict=True):
        assert back(found) == row + [""] * (words - len(row))


def test_of_a_long_word_both_ends_are_kept() -> None:
    half = LONGEST // 2
    word = "https://" + "x" * 100 + "/page.html"
    (found,) = back(pad_letters([spelt([word])], 1)[0])
    assert len(found) == LONGEST and found[:half] == word[:half] and found[half:] == word[-half:]
    exactly = "y" * LONGEST
    assert back(pad_letters([spelt([exactly])], 1)[0]) == [exactly]


def test_a_batch_has_the_letters_beside_its_tokens() -> None:
    batch = TASK.collate(
        columns_of(
            text=[np.array([5, 6]), np.array([7])],
            tags=[np.array([1, 0]), np.array([2])],
            letters=[spelt(["ab", "c"]), spelt(["def"])],
        ),
        9999,
    )
    assert batch.chars_BTC.shape == (2, 2, 3)
    assert [back(row) for row in batch.chars_BTC] == [["ab", "c"], ["def", ""]]
    assert batch.to("cpu").chars_BTC.tolist() == batch.chars_BTC.tolist()
    assert batch.rows([1]).chars_BTC.shape == (1, 2, 3)


# Of unknown words alone


def test_unknown_words_are_known_again_after_rows_are_cut() -> None:
    ids, words = np.array([5, 1, 1, 7, 1]), ["gnu", "yak", "emu"]
    numbered = number_unknown(ids, 10)
    assert numbered.tolist() == [5, 10, 11, 7, 12]
    rows = Column.of([numbered[:3], numbered[1:], numbered[3:4]])  # windows that overlap, and one without any
    text, letters = take_letters(rows, words, 10)
    assert text.flat.tolist() == [5, 1, 1, 1, 1, 7, 1, 7] and text.ends.tolist() == rows.ends.tolist()
    unknown = np.array([[False, True, True, False], [True, True, False, True], [False] * 4])
    chars = place_letters(unknown, letters.rows())
    assert chars.shape == (3, 4, LONGEST) and not chars[~unknown].any()
    assert back(chars[unknown]) == ["gnu", "yak", "gnu", "yak", "emu"]
    cut = place_letters(unknown[:, :2], letters.rows())  # a row that is cut has fewer of them
    assert back(cut[unknown[:, :2]]) == ["gnu", "gnu", "yak"]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=9), st.data())
def test_letters_of_running_text_are_found_by_their_places(words: list[str], data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 5), min_size=len(words), max_size=len(words)))
    places = np.cumsum(gaps)
    begin = data.draw(st.integers(0, int(places[0])))
    some = data.draw(st.lists(st.integers(0, len(words) - 1), min_size=1, max_size=6))
    found = UnknownWords(places, word_column(words)).after(begin)
    asked = places[some][None] - begin
    assert back(found.chars(asked, np.ones(asked.shape, bool))[0]) == [words[i] for i in some]
    assert not found.chars(asked, np.zeros(asked.shape, bool)).any()


def test_unknown_names_have_the_blank_of_a_word_token_and_none_of_a_space_token() -> None:
    text = "gnu (yaks) cow\nemu cow"
    for kind, names in (("word", [" gnu", " (", "yaks", ")", "\n", " emu"]), ("space", ["gnu", "(yaks)", "cow\nemu"])):
        tokenizer = Tokenizer.train(Tokens(kind=kind, min_count=1), ["the cow eats"])  # type: ignore[arg-type]
        ids = tokenizer.encode(text)
        assert tokenizer.unknown_names(text, ids) == names
        assert tokenizer.unknown_in("cow") == [] and tokenizer.unknown_in("gnu") == [names[0]]
        found = UnknownWords.of_text(tokenizer, text, ids)
        assert back(found.chars(found.places[None], np.ones((1, len(names)), bool))[0]) == names

"""The word split: the same pieces as the reference pattern, in Python and in the library, whole or in parts."""

from __future__ import annotations

import unicodedata

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from segue.tokens.split import Splitter, blank_words, head, parts, unicode_pattern

SPLIT = Splitter(unicode_pattern())
LIBRARY = pre_tokenizers.Split(tokenizers.Regex(unicode_pattern()), "isolated")
GPT2 = pre_tokenizers.Split(
    tokenizers.Regex(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ),
    "isolated",
)
TRICKY = st.text(st.sampled_from(" \n\t\x1c\x85\u3000a's'rveéЖ一²٣!<>_-.😀𝒳\u0301"), max_size=30)


def pieces(splitter: pre_tokenizers.Split, text: str) -> list[str]:
    return [piece for piece, _ in splitter.pre_tokenize_str(text)]


def test_a_sentence_by_hand() -> None:
    assert SPLIT("I'll say  <stop> 42 times.\n\nYes") == [
        *("I", "'ll", " say", " ", " <", "stop", ">", " 42", " times", ".", "\n", "\n", "Yes")
    ]


@given(st.one_of(st.text(), TRICKY))
def test_python_and_library_cut_alike(text: str) -> None:
    assert SPLIT(text) == pieces(LIBRARY, text)
    assert "".join(SPLIT(text)) == text


@given(st.one_of(st.text(), TRICKY))
def test_it_is_the_split_of_gpt2(text: str) -> None:
    # A newer Unicode knows more letters than an older one, so only characters that this Python knows are compared.
    known = "".join(char for char in text if unicodedata.category(char) != "Cn")
    assert SPLIT(known) == pieces(GPT2, known)


@given(TRICKY, st.integers(1, 8))
def test_parts_have_the_pieces_of_the_whole(text: str, size: int) -> None:
    cut = list(parts(text, size))
    assert "".join(cut) == text
    assert [piece for part in cut for piece in SPLIT(part)] == SPLIT(text)


def test_blank_words_are_between_blanks_only() -> None:
    assert blank_words("a b\tc\n d") == ["a", "b\tc\n", "d"] == blank_words("  a  b\tc\n d ")
    assert blank_words("") == blank_words("  ") == []


def test_parts_are_short() -> None:
    assert max(map(len, parts("some words " * 1000, 100))) < 110


def test_head_counts_bytes_and_cuts_between_characters() -> None:
    assert list(head(["abc", "éé", "later"], 100)) == ["abc", "éé", "later"]
    assert list(head(["abc", "éé", "later"], 6)) == ["abc", "é"]
    assert list(head(["abc", "", "later"], 3)) == ["abc"]

"""Word tokens: the same at the head of a line and within it; texts stay exact, and no two words are written as one."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import segue
from segue.tokens.split import add_line_blanks, drop_line_blanks
from segue.tokens.tokenizer import Config, Tokenizer

LINES = st.text(alphabet="abé1',. \n\t\u2003", max_size=30)
VERSES = ("the king is here", "Montague comes to the house", "Sometimes he speaks of his sword", "o'er well-known seas")


def words(*texts: str) -> Tokenizer:
    return Tokenizer.train(Config("word", min_count=1), texts)


def test_a_word_is_one_token_wherever_it_stands() -> None:
    tokenizer = words("the king\nthe the\n\nking")
    first, second, end, *rest = tokenizer.encode("king the\nking").tolist()
    assert rest == [first] and len({first, second, end}) == 3
    assert tokenizer.encode("the king\n\nthe").tolist()[-1] == second
    assert tokenizer.name(first) == " king" and tokenizer.decode([first]) == "king"


@given(LINES)
def test_blanks_are_added_and_dropped_again(text: str) -> None:
    assert drop_line_blanks(add_line_blanks(text)) == text


@given(LINES)
def test_every_text_comes_back_exactly(text: str) -> None:
    """From our ids, from the library's, and as the pieces that are shown; each stands for at least one byte."""
    tokenizer = words(text + "x")
    ids, surfaces = tokenizer.pieces(text)
    library = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.content))
    if tokenizer.unk not in ids:  # "x" may have become part of the last word
        assert tokenizer.decode(ids.tolist()) == text == library.decode(ids.tolist())
    assert library.encode(text).ids == ids.tolist()
    assert "".join(surfaces) == text and all(surfaces)


@given(st.lists(st.integers(0, 40)))
def test_no_tokens_whatever_make_two_words_one(ids: list[int]) -> None:
    tokenizer = words("\n".join(VERSES))
    found = tokenizer.decode([i % tokenizer.vocab_size for i in ids])
    assert set(re.findall("[a-zA-Z]+", found)) <= set(re.findall("[a-zA-Z]+", " ".join(VERSES)))


def test_a_model_of_lines_writes_no_two_words_as_one(tmp_path: Path) -> None:
    """Smoothing gives every word a chance after every other."""
    text = "\n".join(random.Random(0).choices(VERSES, k=60))
    settings = {"data.validation": 0, "tokens.min_count": 1, "data.unit": "document"}
    run = segue.train("ngram/bigram", [text], tmp_path / "run", settings)
    written = run.generate("", n=40, max_tokens=300, seed=1, temperature=1.5)
    assert sum(one.count("\n") for one in written) > 50
    assert set(re.findall("[a-zA-Z]+", " ".join(written))) == set(re.findall("[a-zA-Z]+", text))
    assert "".join(run.stream("", max_tokens=300, seed=1)) == run.generate("", max_tokens=300, seed=1)

"""Words between blanks as bytes, against Python's own split and Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.tokens import learn, tokenizer
from segue.tokens.space_words import WordTable, joined
from segue.tokens.split import blank_words
from segue.tokens.tokenizer import Config, Tokenizer

texts = st.lists(st.text(alphabet="ab é\t\n漢", max_size=30), max_size=20)


@settings(max_examples=200, deadline=None)
@given(texts, texts)
def test_counts_and_places(first, second):
    table = WordTable()
    for group in (first, second):
        table.count(joined(group))
    expected = Counter(word for text in first + second for word in blank_words(text))
    found = dict(zip((word.decode() for word in table.words()), table.counts.tolist(), strict=True))
    assert found == expected and list(found) == list(expected)  # in the order of their coming
    other = [*second, "new words", ""]
    places, lengths = table.places(joined(other), len(other))
    names = [*found, None]
    assert [names[place] for place in places] == [
        word if word in found else None for text in other for word in blank_words(text)
    ]
    assert lengths.tolist() == [len(blank_words(text)) for text in other]


def test_the_table_grows():
    words = [f"w{i}" for i in range(50_000)]
    table = WordTable()
    for begin in range(0, len(words), 7_000):
        table.count(" ".join(words[begin : begin + 7_000]).encode())
    table.count(" ".join(words).encode())
    assert [word.decode() for word in table.words()] == words and (table.counts == 2).all()


def test_a_unit_with_the_byte_between_is_not_joined():
    assert joined(["a\0b", "c"]) is None and joined([]) == b"" and joined(["a", ""]) == b"a\0"


@pytest.mark.parametrize("odd", ["", "a\0b c"])
def test_the_fast_way_and_the_slow_way_agree(monkeypatch, odd):
    rows = [f"the cow {i} eats {i % 7} \t apples" for i in range(50)] + [odd]
    slow = Tokenizer.train(Config("space"), rows)
    ids, lengths = slow.encode_many([*rows, "unknown words"], stop=True)
    monkeypatch.setattr(learn, "TEXTS_AT_ONCE", 8)
    monkeypatch.setattr(tokenizer, "MANY", 1)
    fast = Tokenizer.train(Config("space"), rows)
    assert fast._file == slow._file
    again, again_lengths = fast.encode_many([*rows, "unknown words"], stop=True)
    assert np.array_equal(ids, again) and np.array_equal(lengths, again_lengths)

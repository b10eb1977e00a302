"""The edit distance against rapidfuzz and the table of its definition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from segue.inference.edit_distance import aligned, edit_distance

WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


@pytest.mark.parametrize(
    ("a", "b", "distance"), [("kitten", "sitting", 3), ("saturday", "sunday", 3), ("", "abc", 3), ("ab", "ba", 2)]
)
def test_known_distances(a: str, b: str, distance: int) -> None:
    assert edit_distance(a, b) == edit_distance(b, a) == distance


@given(WORDS, WORDS)
@settings(max_examples=60, deadline=None)
def test_distance_and_alignment_are_rapidfuzz(a: list[str], b: list[str]) -> None:
    pairs = aligned(a, b)
    assert [word for word, _ in pairs if word is not None] == a
    assert [word for _, word in pairs if word is not None] == b
    assert sum(one != other for one, other in pairs) == edit_distance(a, b) == Levenshtein.distance(a, b)
    kinds = [edit.tag for edit in Levenshtein.editops(a, b)]
    assert kinds.count("delete") == sum(other is None for _, other in pairs)
    assert kinds.count("insert") == sum(one is None for one, _ in pairs)


def test_long_texts_take_no_table() -> None:
    """10,000 words: the table of the definition would have 10^8 entries."""
    draw = random.Random(0)
    a = [str(draw.randrange(500)) for _ in range(10_000)]
    b = [word if draw.random() > 0.2 else str(draw.randrange(500)) for word in a[3:]]
    assert sum(one != other for one, other in aligned(a, b)) == edit_distance(a, b) == Levenshtein.distance(a, b)

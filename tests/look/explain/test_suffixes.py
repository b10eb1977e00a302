"""The suffix array against sorting, matches against looking everywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.errors import InputError
from segue.look.explain import suffixes
from segue.look.explain.suffixes import Suffixes, whole_runs

always = settings(deadline=None, derandomize=True, max_examples=300)


def ids(most: int) -> st.SearchStrategy[list[int]]:
    """Texts over alphabets of one to four ids, where almost everything repeats."""
    return st.integers(0, 3).flatmap(lambda top: st.lists(st.integers(0, top), max_size=most))


def contains(text: Sequence[int], part: Sequence[int]) -> bool:
    """Python's own `in`, over one character an id."""
    return "".join(map(chr, part)) in "".join(map(chr, text))


def longest_at(text: list[int], sample: list[int], place: int) -> int:
    return max(n for n in range(len(sample) - place + 1) if contains(text, sample[place : place + n]))


def is_sorted(text: np.ndarray, order: np.ndarray) -> bool:
    """Every place once; neighbours in order by their first ids, or, where these are equal, by the suffixes behind."""
    rank = np.empty(len(text) + 1, np.int64)
    rank[order] = np.arange(len(text))
    rank[len(text)] = -1
    one, other = order[:-1], order[1:]
    first = text[one].astype(np.int64), text[other].astype(np.int64)
    less = (first[0] < first[1]) | ((first[0] == first[1]) & (rank[one + 1] < rank[other + 1]))
    return bool(less.all()) and sorted(order.tolist()) == list(range(len(text)))


@always
@given(ids(60))
def test_the_order_is_that_of_sorting(text: list[int]) -> None:
    assert Suffixes(np.array(text, np.int32)).order.tolist() == sorted(range(len(text)), key=lambda i: text[i:])


@pytest.mark.parametrize(
    "text",
    [
        np.zeros(5000),
        np.arange(5000),
        np.arange(5000)[::-1],
        np.tile([0, 1], 2500),
        np.tile([1, 0], 2501)[:-1],
        np.tile(np.arange(7), 700),
        np.repeat(np.arange(70), 70)[::-1],
        np.random.default_rng(0).integers(0, 2, 20_000),
        np.random.default_rng(1).integers(0, 60_000, 20_000),
        np.tile(np.random.default_rng(2).integers(0, 5, 1000), 20),
    ],
    ids=["same", "up", "down", "two", "other two", "cycle", "steps", "bits", "words", "copies"],
)
def test_long_texts_and_those_that_repeat(text: np.ndarray) -> None:
    order = Suffixes(text.astype(np.uint16)).order
    assert order.dtype == np.int32
    assert is_sorted(text, order)


def test_the_check_of_the_order_can_fail() -> None:
    text = np.array([1, 0, 1, 0])
    assert is_sorted(text, np.array([3, 1, 2, 0]))
    assert not is_sorted(text, np.array([1, 3, 2, 0]))
    assert not is_sorted(text, np.array([3, 3, 2, 0]))


def test_a_fibonacci_word_goes_down_many_levels() -> None:
    """Where the pieces between valleys never become all different until they are few."""
    one, other = [0], [0, 1]
    while len(other) < 5000:
        one, other = other, other + one
    assert is_sorted(np.array(other), Suffixes(np.array(other)).order)


@always
@given(ids(40), ids(20))
def test_the_longest_match_at_every_place(text: list[int], sample: list[int]) -> None:
    lengths = Suffixes(np.array(text, np.int32)).longest(np.array(sample, np.int32))
    assert lengths.tolist() == [longest_at(text, sample, place) for place in range(len(sample))]


@always
@given(ids(40), ids(20), st.integers(1, 8))
def test_an_ngram_is_new_where_the_match_is_shorter(text: list[int], sample: list[int], n: int) -> None:
    lengths = Suffixes(np.array(text, np.int32)).longest(np.array(sample, np.int32))
    starts = range(max(0, len(sample) - n + 1))
    assert [bool(lengths[i] < n) for i in starts] == [not contains(text, sample[i : i + n]) for i in starts]


@always
@given(ids(40), ids(6))
def test_every_place_of_a_pattern(text: list[int], pattern: list[int]) -> None:
    places = [i for i in range(len(text)) if text[i : i + len(pattern)] == pattern]
    assert Suffixes(np.array(text, np.int32)).find(np.array(pattern, np.int32)).tolist() == places


@always
@given(ids(40), ids(20))
def test_whole_runs_are_those_inside_no_other(text: list[int], sample: list[int]) -> None:
    lengths = Suffixes(np.array(text, np.int32)).longest(np.array(sample, np.int32))
    spans = [(i, j) for i in range(len(sample)) for j in range(i + 1, len(sample) + 1) if contains(text, sample[i:j])]
    whole = [(i, j) for i, j in spans if not any(a <= i and j <= b and (a, b) != (i, j) for a, b in spans)]
    assert whole_runs(lengths) == whole


def test_what_is_nowhere_matches_nothing() -> None:
    """-1 and ids beyond those of the text, which sort before and behind all others."""
    text = Suffixes(np.array([0, 1, 0, 2], np.int32))
    assert text.longest(np.array([-1, 0, 1, 7, 2, -1])).tolist() == [0, 2, 1, 0, 1, 0]
    assert text.find(np.array([7])).tolist() == text.find(np.array([-1])).tolist() == []


def test_a_text_without_tokens() -> None:
    text = Suffixes(np.empty(0, np.int32))
    assert text.longest(np.array([1, 2])).tolist() == [0, 0]
    assert text.find(np.array([1])).tolist() == []


def test_it_tells_how_far_it_is() -> None:
    shares: list[float] = []
    Suffixes(np.random.default_rng(0).integers(0, 9, 1000), shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0 and len(shares) > 2


def test_too_long_a_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffixes, "MOST", 3)
    with pytest.raises(InputError, match="4 tokens"):
        Suffixes(np.zeros(4, np.int32))

"""N-grams of rows: the same as scikit-learn's, exact, and found again; words and letters cut from bytes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from segue.linear.features import Bags, Grams, Rows, Words, one_below_the_other, rows_of_lengths, side_by_side
from segue.ngrams.model_file import Arrays

TEXTS = [
    "there 's nothing i do n't love about this movie",
    "i do n't love this movie , i do n't",
    "",
    "movie",
    "  İstanbul Straße 東京 naïve 🙂🙂 don't",
    "A.B. costs 3.50$ (or so)",
]


def bytes_of(texts: list[str]) -> Rows:
    raw = [text.encode() for text in texts]
    flat = np.frombuffer(b"".join(raw), np.uint8).astype(np.int32) + 2
    return Rows(flat, np.concatenate(([0], np.cumsum([len(row) for row in raw], dtype=np.int64))))


def rows_of(rows: list[list[int]]) -> Rows:
    flat = np.array([i for row in rows for i in row], np.int32)
    return Rows(flat, np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64))))


def spelt(bags: Bags, names: list[object]) -> list[dict[object, float]]:
    """Each row as its features by name, with their values."""
    return [
        {names[c]: float(v) for c, v in zip(bags.columns[a:b], bags.values[a:b], strict=True)}
        for a, b in zip(bags.starts[:-1], bags.starts[1:], strict=True)
    ]


def by_hand(row: list[int], shortest: int, longest: int, pairs: int) -> dict[object, float]:
    counts: Counter[object] = Counter()
    for i in range(len(row)):
        for k in range(shortest, longest + 1):
            if i + k <= len(row):
                counts[tuple(row[i : i + k])] += 1
        for j in range(i + 2, min(len(row), i + pairs + 1)):
            counts[(row[i], -1, row[j])] += 1
    return {key: float(count) for key, count in counts.items()}


rows = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(rows, st.integers(1, 3), st.integers(0, 4), st.integers(0, 4))
def test_every_ngram_is_counted_under_its_own_name(rows: list[list[int]], shortest: int, longest: int, pairs: int):
    grams = Grams(shortest, longest, pairs)
    bags = grams.learn(rows_of(rows))
    assert bags.width == grams.width == len(set(grams.spell()))
    assert spelt(bags, list(grams.spell())) == [by_hand(row, shortest, longest, pairs) for row in rows]
    again = grams.bags(rows_of(rows))
    for one, other in zip(bags, again, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=100, deadline=None)
@given(rows, rows, st.integers(2, 3))
def test_what_training_had_not_is_left_out_of_new_rows(known: list[list[int]], new: list[list[int]], least: int):
    """Also after rare n-grams were left out, and saved and taken again."""
    grams = Grams(1, 3, pairs=2)
    learnt = grams.learn(rows_of(known))
    kept = {
        name
        for name, count in Counter(name for row in spelt(learnt, list(grams.spell())) for name in row).items()
        if count >= least
    }
    grams.keep(learnt.in_rows() >= least)
    other = Grams(1, 3, pairs=2)
    other.take(Arrays(grams.arrays()), 1 << 16)
    for one in (grams, other):
        expected = [{n: c for n, c in by_hand(row, 1, 3, 2).items() if n in kept} for row in new]
        assert spelt(one.bags(rows_of(new)), list(one.spell())) == expected


def test_the_table_grows() -> None:
    many = np.random.default_rng(0).integers(0, 50_000, 60_000)
    grams = Grams(1, 2)
    bags = grams.learn(Rows(many, np.array([0, 30_000, 60_000])))
    pairs = {*pairwise(many[:30_000]), *pairwise(many[30_000:])}
    assert bags.width == len(set(many)) + len(pairs)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_words_are_those_of_scikit_learn(words: int) -> None:
    oracle = CountVectorizer(ngram_range=(1, words), token_pattern=r"[^\s]+", lowercase=True)
    matrix = oracle.fit_transform(TEXTS[:4])
    cut, grams = Words(lowercase=True, split=False), Grams(1, words)
    bags = grams.learn(cut.read(bytes_of(TEXTS[:4]), True)[1])
    names = [" ".join(map(cut.spell, ids)) for ids in grams.spell()]
    expected = [
        dict(zip(oracle.get_feature_names_out()[row.indices], row.data.astype(float), strict=True)) for row in matrix
    ]
    assert spelt(bags, names) == expected


def test_characters_are_those_of_scikit_learn() -> None:
    texts = [text for text in TEXTS[:4] if text]
    oracle = CountVectorizer(ngram_range=(2, 5), analyzer="char", lowercase=True)
    matrix = oracle.fit_transform([f" {text} " for text in texts])
    grams = Grams(2, 5)
    bags = grams.learn(Words(True, False).read(bytes_of(texts), True)[0])
    names = ["".join(map(chr, ids)) for ids in grams.spell()]
    expected = [
        dict(zip(oracle.get_feature_names_out()[row.indices], row.data.astype(float), strict=True)) for row in matrix
    ]
    assert spelt(bags, names) == expected


@pytest.mark.parametrize(
    ("text", "lowercase", "split", "expected"),
    [
        ("I don't, you 're", True, True, ["i", "don", "'t", ",", "you", "'re"]),
        ("I don't, you 're", False, False, ["I", "don't,", "you", "'re"]),
        ("a--b 3.50$", True, True, ["a", "-", "-", "b", "3", ".", "50", "$"]),
        ("Straße ÄRGER naïve\u00a0東京", True, True, ["straße", "ärger", "naïve", "東京"]),
        ("İ", True, True, ["İ"]),  # two characters in lower case: left as it is
        ("'quoted' ''", True, True, ["'quoted", "'", "'", "'"]),
        ("\t \n", True, True, []),
    ],
)
def test_words_are_cut(text: str, lowercase: bool, split: bool, expected: list[str]) -> None:
    cut = Words(lowercase, split)
    _, words = cut.read(bytes_of([text]), True)
    assert [cut.spell(int(word)) for word in words.flat] == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_is_read_as_python_reads_it(texts: list[str]) -> None:
    cut = Words(lowercase=False, split=False)
    letters, words = cut.read(bytes_of(texts), True)
    for i, text in enumerate(texts):
        own = letters.flat[letters.starts[i] : letters.starts[i + 1]]
        padded = f" {' '.join(text.split())} ".replace("  ", " ")
        assert "".join(map(chr, own)) == padded
        assert [cut.spell(int(w)) for w in words.flat[words.starts[i] : words.starts[i + 1]]] == text.split()


def test_bytes_that_are_no_text_are_read_one_by_one() -> None:
    flat = np.array([0xFF, 0xC3, ord("a"), 0xE2, 0x82]) + 2
    letters, _ = Words(True, True).read(Rows(flat, np.array([0, 5])), True)
    assert letters.flat.tolist() == [32, 0xFF, 0xE3, ord("a"), 0xE2, 0x82, 32]  # Ã is ã in lower case


def test_a_word_not_seen_before_is_no_word() -> None:
    cut, grams = Words(True, True), Grams(1, 2)
    grams.learn(cut.read(bytes_of(["a movie about movies"]), True)[1])
    bags = grams.bags(cut.read(bytes_of(["movi a movie zebra movies"]), False)[1])
    names = [" ".join(map(cut.spell, ids)) for ids in grams.spell()]
    assert spelt(bags, names) == [{"a": 1.0, "movie": 1.0, "movies": 1.0, "a movie": 1.0}]


def test_bags_beside_and_below_each_other() -> None:
    a, b = Grams(1, 1), Grams(2, 2)
    rows = rows_of([[1, 2, 1], [], [2]])
    parts = [a.learn(rows), b.learn(rows)]
    names = [*a.spell(), *b.spell()]
    both = side_by_side(parts)
    first, second = (spelt(part, list(grams.spell())) for part, grams in zip(parts, (a, b), strict=True))
    expected = [one | other for one, other in zip(first, second, strict=True)]
    assert spelt(both, names) == expected and both.width == 4
    twice = one_below_the_other(both, both)
    assert spelt(twice, names) == expected + expected


@given(st.lists(st.integers(0, 6), max_size=6), st.integers(1, 7))
def test_rows_are_cut_at_a_limit(lengths: list[int], limit: int) -> None:
    flat = np.arange(sum(lengths))
    rows = rows_of_lengths(flat, np.array(lengths, np.int64), limit)
    begins = np.cumsum([0, *lengths])
    cut = [flat[a : a + n][:limit].tolist() for a, n in zip(begins, lengths, strict=False)]
    assert [rows.flat[a:b].tolist() for a, b in pairwise(rows.starts)] == cut

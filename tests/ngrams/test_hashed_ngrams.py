"""Counting by hash against dictionaries written from the equations, in one go and going on."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from segue.ngrams.discounts import THREE_DISCOUNTS
from segue.ngrams.hashed_ngrams import CLASS, WORD, KneserNey, RecentCounts

VOCAB, SKIP = 7, 4
CLASSES = np.array([0, 1, 1, 2, 2, 0, 3])
MAKES = {
    "classes": ([(CLASS, 1), (CLASS, 2), (CLASS, 3), (CLASS, 4)], False),
    "words": ([(WORD, 1), (WORD, 2)], False),
    "both": ([(CLASS, 1), (WORD, 1), (CLASS, 2), (WORD, 2)], True),
    "nothing": ([], True),
}


def text_of(size: int, seed: int) -> np.ndarray:
    """Words that mostly go on by one, after a history of STOPs."""
    draw = np.random.default_rng(seed)
    words = np.cumsum(draw.choice([1, 1, 1, 2, 5], size)) % (VOCAB - 1)  # word 6 never comes
    return np.concatenate((np.zeros(SKIP, np.int64), words))


def base_of(inside: bool) -> np.ndarray:
    return 1 / np.bincount(CLASSES)[CLASSES] if inside else np.full(4, 0.25)


def context(text: np.ndarray, i: int, symbols: list, inside: bool, word: int) -> tuple:
    """The root and the symbols before text[i], and what is predicted."""
    found = [CLASSES[text[i - lag]] if kind == CLASS else text[i - lag] for kind, lag in symbols]
    return (CLASSES[word] if inside else None, *found), word if inside else CLASSES[word]


class Slow:
    """Kneser-Ney of events (context, target), counted anew."""

    def __init__(self, events: list) -> None:
        self.levels = len(events[0][0])
        highest = Counter(events)
        self.counts = [highest]
        for k in range(self.levels - 1, 0, -1):
            self.counts.insert(0, Counter((c[:k], t) for c, t in self.counts[0]))

    def few(self, k: int) -> list[int]:
        return [sum(n == c for n in self.counts[k].values()) for c in (1, 2, 3, 4)]

    def p(self, asked: tuple, target: int, p: float, discounts: np.ndarray) -> float:
        for k in range(self.levels):
            row = {t: n for (c, t), n in self.counts[k].items() if c == asked[: k + 1]}
            if not row:
                break
            taken = {t: discounts[k][min(n, 3)] for t, n in row.items()}
            own = row.get(target, 0) - taken.get(target, 0)
            p = (own + sum(taken.values()) * p) / sum(row.values())
        return p


def part_of(text: np.ndarray, make: str) -> KneserNey:
    symbols, inside = MAKES[make]
    array = np.array(symbols, np.int64).reshape(-1, 2)
    return KneserNey.count(text, SKIP, CLASSES, array, inside, True, base_of(inside))


def events_of(text: np.ndarray, make: str) -> list:
    return [context(text, i, *MAKES[make], text[i]) for i in range(SKIP, len(text))]


def read(part: KneserNey | RecentCounts, text: np.ndarray, learn: int, word: int, begin: int = SKIP) -> np.ndarray:
    return part.read(text, begin, learn, np.full(len(text) - begin, word), CLASSES)


@pytest.mark.parametrize("make", MAKES)
def test_counts_are_those_of_dictionaries(make: str) -> None:
    train, test = text_of(300, 0), text_of(40, 1)
    part, slow = part_of(train, make), Slow(events_of(train, make))
    assert len(part) == sum(len(counts) for counts in slow.counts)
    for k, taken in enumerate(part.discounts):
        n1, n2, n3, n4 = slow.few(k)
        if n1 and n2 and n3:
            y = n1 / (n1 + 2 * n2)
            right = np.array([1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
            usual = ((right < 0) | (right > [1, 2, 3])).any()
        np.testing.assert_allclose(taken[1:], THREE_DISCOUNTS if not (n1 and n2 and n3) or usual else right, rtol=1e-12)
    for word in range(VOCAB):
        p = read(part, test, len(test), word)
        for i in range(SKIP, len(test)):
            asked, target = context(test, i + 1, *MAKES[make], word)
            assert p[i - SKIP] == pytest.approx(slow.p(asked, target, part.base[target], part.discounts), rel=1e-12)


@pytest.mark.parametrize("make", MAKES)
def test_counting_on_is_counting_both_texts(make: str) -> None:
    train, test = text_of(150, 2), text_of(60, 3)
    still = part_of(train, make)
    before = {name: array.copy() for name, array in still.arrays().items()}
    for word in (1, 3, 6):
        p = read(still.going_on(), test, SKIP, word)
        for i in range(SKIP, len(test), 7):
            slow = Slow(events_of(train, make) + events_of(test[: i + 1], make))
            asked, target = context(test, i + 1, *MAKES[make], word)
            assert p[i - SKIP] == pytest.approx(slow.p(asked, target, still.base[target], still.discounts), rel=1e-12)
    for name, array in still.arrays().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("decay", [0.9, 1.0])
def test_the_cache_is_a_sum_over_what_was_read(make: str, decay: float) -> None:
    symbols, inside = MAKES[make]
    text = text_of(50, 4)
    base = np.array([0.3, 0.7, 0.5, 0.4, 0.6, 0.7, 1.0]) if inside else np.array([0.1, 0.2, 0.3, 0.4])
    events = events_of(text, make)
    for word in range(VOCAB):
        part = RecentCounts(np.array(symbols, np.int64).reshape(-1, 2), inside, True, base, decay)
        p = read(part, text, SKIP, word)
        for i in range(len(events)):
            asked, target = context(text, SKIP + i + 1, *MAKES[make], word)
            right = base[target]
            for k in range(len(symbols) + 1):
                worth: dict = defaultdict(float)
                for j, (c, t) in enumerate(events[: i + 1]):
                    worth[t] += decay ** (i + 1 - j) * (c[: k + 1] == asked[: k + 1])
                right = (worth[target] + right) / (sum(worth.values()) + 1)
            assert p[i] == pytest.approx(right, rel=1e-12)


def test_tables_grow_and_reading_in_pieces_is_reading() -> None:
    text = np.random.default_rng(5).integers(0, VOCAB, 5000)
    train = text_of(50, 6)
    for make in MAKES:
        symbols, inside = MAKES[make]
        array = np.array(symbols, np.int64).reshape(-1, 2)
        for made in (
            lambda make=make: part_of(train, make).going_on(),
            lambda a=array, i=inside: RecentCounts(a, i, True, base_of(i), 0.99),
        ):
            whole, pieces = made(), made()
            p = read(whole, text, SKIP, 2)
            found = [
                read(pieces, text[max(0, begin - SKIP) : begin + 100], SKIP, 2) for begin in range(SKIP, len(text), 100)
            ]
            np.testing.assert_allclose(np.concatenate(found), p, rtol=1e-12)
            outcomes = np.argsort(CLASSES, kind="stable") if inside else np.arange(4)
            dense = whole.dense(text, CLASSES, outcomes)
            sums = np.bincount(CLASSES, dense) if inside else dense.sum()
            np.testing.assert_allclose(sums, 1, rtol=1e-12)
            assert dense[2 if inside else CLASSES[2]] == pytest.approx(p[-1], rel=1e-12)

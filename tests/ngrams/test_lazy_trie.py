"""The lazy trie against strings counted one by one, its predictions against the equations written out, and its steps
of learning against differences of log p."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.ngrams.discounts import update_discounts
from segue.ngrams.lazy_trie import (
    BREAK,
    COUNT,
    FIRST,
    LAST,
    NEXT,
    NONE,
    SYMBOL,
    TOTAL,
    Trie,
    Weights,
    beginning,
    follow,
    score,
    score_next,
)

V = 5
texts = st.lists(st.sampled_from([0, 1, 2, 3, BREAK]), min_size=1, max_size=60)
orders = st.integers(1, 7)


class Counted:
    """Every string of a text, up to a length, in dictionaries."""

    def __init__(self, text: list[int], order: int) -> None:
        self.seen: dict = defaultdict(int)
        self.before: dict = defaultdict(set)
        self.last: dict = {}
        self.met: dict = defaultdict(int)
        """How often a string was read, followed or not."""
        for part, offset in parts(text):
            for i in range(len(part)):
                for k in range(min(order, i + 1)):
                    string = tuple(part[i - k : i + 1])
                    self.seen[string] += 1
                    self.before[string].add(part[i - k - 1] if i > k else ("start", offset))
                    self.last[string] = offset + i
        self.order = order

    def count(self, string: tuple) -> int:
        """Of Kneser-Ney: how often at the highest order, after how many different symbols below."""
        return self.seen[string] if len(string) == self.order else len(self.before[string])

    def followers(self, context: tuple) -> dict:
        return {w: self.count((*context, w)) for w in range(V) if (*context, w) in self.seen}


def parts(text: list[int]) -> list[tuple[list[int], int]]:
    found, begin = [], 0
    for i, symbol in enumerate([*text, BREAK]):
        if symbol == BREAK:
            found.append((text[begin:i], begin))
            begin = i + 1
    return found


def counted(text: list[int], order: int) -> Trie:
    trie = Trie(order, BREAK)
    trie.count(np.array(text))
    return trie


def strings_of(trie: Trie) -> dict[tuple, np.ndarray]:
    found = {}

    def walk(node: int, string: tuple) -> None:
        child, total = trie.nodes[node, FIRST], 0
        while child >= 0:
            longer = (*string, int(trie.nodes[child, SYMBOL]))
            assert longer not in found
            found[longer] = trie.nodes[child]
            total += trie.nodes[child, COUNT]
            walk(child, longer)
            child = trie.nodes[child, NEXT]
        assert total == trie.nodes[node, TOTAL]

    walk(0, ())
    return found


@settings(max_examples=200, deadline=None)
@given(texts, orders)
def test_counts_are_those_of_strings_counted_one_by_one(text, order):
    """Every node is right, and what has no node follows a string that was seen once."""
    slow, trie = Counted(text, order), counted(text, order)
    found = strings_of(trie)
    assert len(found) == trie.used[0] - 1
    for string, node in found.items():
        assert node[COUNT] == slow.count(string) and node[LAST] == slow.last[string]
    for string in slow.seen.keys() - found.keys():
        assert slow.seen[string] == 1 and slow.seen[string[:-1]] == 1
    tally = np.zeros((order, 6), np.int64)
    for string, node in found.items():
        tally[len(string) - 1, min(node[COUNT], 5)] += 1
    assert np.array_equal(trie.tally[:, 1:5], tally[:, 1:5])


@settings(max_examples=100, deadline=None)
@given(texts, texts, orders)
def test_reading_on_is_reading_both(one, two, order):
    both, trie = counted([*one, *two], order), counted(one, order)
    trie.count(np.array(two))
    for a, b in ((trie.nodes[: trie.used[0]], both.nodes[: both.used[0]]), (trie.tally, both.tally)):
        assert np.array_equal(a, b)
    again = Trie.of(*counted(one, order).finished(), counted(one, order).tally, BREAK)
    again.count(np.array([BREAK, *two]))
    assert strings_of(again).keys() == strings_of(counted([*one, BREAK, *two], order)).keys()


# The equations, written out


def slow_scores(slow, history, discounts, values, now=None):
    """s(w) and log q(w) of every symbol, in Python's own numbers."""
    q, scores = np.full(V, 1 / V), np.zeros(V)
    contexts = [tuple(history[len(history) - k :]) for k in range(min(slow.order, len(history) + 1))]
    there = [k for k, context in enumerate(contexts) if k == 0 or context in slow.seen]
    for k in there:
        context = contexts[k]
        followers = slow.followers(context)
        if not followers:
            continue
        total = sum(followers.values())
        taken = {w: discounts[k][min(c, 3)] for w, c in followers.items()}
        lower = sum(taken.values()) / total * q
        q = lower.copy()
        for w, c in followers.items():
            q[w] += (c - taken[w]) / total
            third = group(max(there) - k, (1, 2, 3, 5))
            if now is not None:
                third = group(now - slow.last[(*context, w)], (2**8, 2**11, 2**14, 2**17))
            j = ((k * 5 + group(len(followers), (2, 3, 5, 11))) * 5 + group(c, (2, 3, 5, 17))) * 5 + third
            scores[w] += values[j, 0] * math.log(q[w] / lower[w]) + values[j, 1]
    return scores, np.log(q)


def group(value, bounds):
    return sum(value >= bound for bound in bounds)


def normal(scores):
    return scores - math.log(sum(math.exp(s) for s in scores))


def random_weights(order: int, seed: int) -> Weights:
    weights = Weights.plain(order)
    weights.values += np.random.default_rng(seed).normal(0, 0.3, weights.values.shape)
    return weights


def discounts_of(trie: Trie) -> np.ndarray:
    discounts = np.zeros((len(trie.tally), 4))
    update_discounts(trie.tally, discounts)
    return discounts


@settings(max_examples=150, deadline=None)
@given(texts, orders, st.lists(st.integers(0, 4), max_size=12), st.integers(0, 9))
def test_what_stands_predicts_as_the_equations_say(text, order, history, seed):
    slow, trie = Counted(text, order), counted(text, order)
    discounts, (nodes, kept) = discounts_of(trie), trie.finished()
    for weights in (Weights.plain(order), random_weights(order, seed)):
        contexts, logp = beginning(order), np.empty(V)
        for symbol in history:
            follow(nodes, kept, contexts, symbol, BREAK)
        score_next(nodes, kept, contexts, NONE, discounts, weights.values, logp)
        scores, kneser_ney = slow_scores(slow, history, discounts, weights.values)
        assert logp == pytest.approx(normal(scores), abs=1e-9)
        assert np.exp(logp).sum() == pytest.approx(1, abs=1e-12)
        if (weights.values == Weights.plain(order).values).all():
            assert logp == pytest.approx(kneser_ney, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(texts, st.lists(st.integers(0, 4), min_size=1, max_size=30), orders, st.integers(0, 9))
def test_what_reads_on_predicts_from_all_before(text, more, order, seed):
    """Without learning: each symbol from the counts of all that stands before it, with its age."""
    trie, weights = counted(text, order), random_weights(order, seed)
    discounts, values = discounts_of(trie), weights.values.copy()
    logp = trie.learn(np.array(more), weights, discounts, 0.0, V)
    assert np.array_equal(weights.values, values)
    for i, symbol in enumerate(more):
        before = [*text, *more[:i]]
        history, _ = parts(before)[-1]
        scores, _ = slow_scores(Counted(before, order), history, discounts, values, now=len(before))
        assert logp[i] == pytest.approx(normal(scores)[symbol], abs=1e-9)


def test_discounts_are_kept_up_while_reading():
    rng = np.random.default_rng(0)
    trie = counted(list(rng.integers(0, 4, 500)), 7)
    discounts = discounts_of(trie)
    trie.learn(rng.integers(0, 4, 524), Weights.plain(7), discounts, 0.0, V)  # up to place 1,024
    assert np.array_equal(discounts, discounts_of(trie))
    trie.learn(rng.integers(0, 4, 100), Weights.plain(7), discounts, 0.0, V)
    assert not np.array_equal(discounts, discounts_of(trie))


def test_a_step_goes_along_the_gradient():
    """AdaGrad: with squares from 1, w + rate · g / sqrt(1 + g²), where g is the derivative of log p."""
    rng = np.random.default_rng(1)
    text, history, symbol, order, rate = list(rng.integers(0, 4, 80)), [1, 2, 0, 3], 2, 4, 0.1
    slow, trie = Counted(text, order), counted(text, order)
    discounts, weights = discounts_of(trie), random_weights(order, 2)
    values = weights.values.copy()
    expected, moved = values.copy(), 0
    for place in np.ndindex(values.shape):
        ends = []
        for way in (1e-5, -1e-5):
            near = values.copy()
            near[place] += way
            ends.append(normal(slow_scores(slow, history, discounts, near)[0])[symbol])
        g = (ends[0] - ends[1]) / 2e-5
        expected[place] += rate * g / math.sqrt(1 + g * g)
        moved += abs(g) > 1e-6
    tokens, targets, logp = np.array(history), np.array([-1, -1, -1, symbol]), np.zeros(4)
    nodes, kept = trie.finished()
    learnt = (nodes, kept, beginning(order), BREAK, discounts, weights.values, weights.squares, rate)
    score(*learnt, tokens, targets, V, logp)
    assert moved > 5
    assert weights.values == pytest.approx(expected, abs=1e-7)
    assert logp[3] == pytest.approx(normal(slow_scores(slow, history, discounts, values)[0])[symbol])
    assert not logp[:3].any()


def test_a_text_that_begins_after_a_symbol_is_not_counted_after_what_came_before():
    trie = counted([1, 2, 0], 3)
    trie.begin(0)
    trie.count(np.array([3, 1]))
    assert strings_of(trie).keys() == {(1,), (2,), (0,), (3,), (1, 2), (0, 3)}  # and not (2, 0, 3)
    trie.begin(0)
    trie.count(np.array([3, 1]))
    assert (0, 3, 1) in strings_of(trie)

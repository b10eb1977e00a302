"""A trie of the strings of a text, made only as far as they are met again, and what its orders together predict.

A node is a string; its children are the symbols that followed it, so that a child is both the counter of a symbol after
a context and, with that symbol read, the next context. One look-up an order moves all contexts on.

A string seen once has no children: it keeps the place in the text where it was, and what followed is read there. Its
child is made when the string is met again. Nothing is lost by that, and most strings are seen once.

A node is six numbers of 4 bytes: symbol, count, total of the children's counts, first child, next sibling, last place.
The first child is NONE, a node, or, of a string seen once, -2 - p: what followed is text[p]. So is a context: NONE, a
node, or -2 - p where it lies on in the text from a string seen once. contexts[k] has k symbols; contexts[0] is node 0,
and after the first NONE come only NONEs. In a text, BREAK parts what does not follow from what came before. After
`restart`, the symbol that ends a unit, all contexts but its own are forgotten; nothing is if it is BREAK.

Counts are those of Kneser-Ney: a symbol is counted after the longest context, and after the next shorter one only where
it was new after the longer, since just then another symbol stands before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit
from segue.errors import InputError
from segue.ngrams.discounts import update_discounts

SYMBOL, COUNT, TOTAL, FIRST, NEXT, LAST = range(6)
NONE = -1
BREAK = -1
GRADES = 5
"""Followers, counts, and ages or distances are each put into so many groups."""
FEATURES = GRADES**3
"""Weights of one order."""
REFRESH = 1 << 10
"""While reading on, discounts are estimated anew after so many symbols."""
_PIECE = 1 << 14
"""Symbols read at a time; room for their nodes is made before."""
_MOST_NODES = (1 << 31) - 1

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]


class Weights:
    """The factor a and the bias b of each order's evidence; 1 and 0 at first."""

    def __init__(self, values: Floats, squares: Floats) -> None:
        self.values, self.squares = values, squares
        """(order · FEATURES, 2): a and b; and the sums of their squared gradients, from 1."""

    @classmethod
    def plain(cls, order: int) -> Weights:
        values = np.zeros((order * FEATURES, 2))
        values[:, 0] = 1.0
        return cls(values, np.ones_like(values))

    def copy(self) -> Weights:
        return Weights(self.values.copy(), self.squares.copy())


class Trie:
    """The counts of a text, which can be read on."""

    def __init__(self, order: int, restart: int) -> None:
        self.restart = restart
        self.text: Ids = np.empty(0, np.int32)
        self.length = 0
        """Of the text; the array has room for more. So has that of the nodes."""
        self.nodes: NDArray[np.int32] = np.zeros((1, 6), np.int32)
        self.nodes[0, FIRST] = NONE
        self.used = np.ones(1, np.int64)
        self.tally = np.zeros((order, 6), np.int64)
        """[k, v]: after contexts of k symbols, how many nodes have count v, for v from 1 to 4."""
        self.contexts = beginning(order)

    @classmethod
    def of(cls, nodes: NDArray[np.int32], text: Ids, tally: NDArray[np.int64], restart: int) -> Trie:
        """One that goes on from what another has counted, in arrays of its own."""
        trie = cls(len(tally), restart)
        trie.nodes, trie.text, trie.tally = np.array(nodes), np.array(text), np.array(tally)
        trie.length, trie.used[0] = len(text), len(nodes)
        return trie

    def finished(self) -> tuple[NDArray[np.int32], Ids]:
        """The nodes and the text, no longer to be written to."""
        nodes, text = self.nodes[: self.used[0]], self.text[: self.length]
        nodes.flags.writeable = text.flags.writeable = False
        return nodes, text

    def count(self, text: NDArray[Any], done: Callable[[float], None] = lambda share: None) -> None:
        """Read on."""
        for begin in range(0, len(text), _PIECE):
            self._count_added(self._add(text[begin : begin + _PIECE]))
            done((begin + _PIECE) / len(text))

    def learn(
        self,
        text: NDArray[Any],
        weights: Weights,
        discounts: Floats,
        rate: float,
        size: int,
        done: Callable[[float], None] = lambda share: None,
    ) -> Floats:
        """Read on: log p of each symbol, by which the weights are then learnt and which is then counted. The discounts
        are kept up with the counts."""
        logp = np.zeros(len(text))
        for begin in range(0, len(text), _PIECE):
            first = self._add(text[begin : begin + _PIECE])
            _learn_all(
                *(self.nodes, self.used, self.tally, self.contexts, self.text, self.restart, first, self.length),
                *(discounts, weights.values, weights.squares, rate, size, logp[begin : begin + _PIECE]),
            )
            done((begin + _PIECE) / len(text))
        return logp

    def begin(self, symbol: int) -> None:
        """Another text, which begins after `symbol`; that is not counted."""
        self._count_added(self._add(np.array([BREAK])))
        follow(self.nodes, self.text, self.contexts, symbol, self.restart)
        _make_children(self.nodes, self.used, self.tally, self.contexts, self.text)

    def _count_added(self, first: int) -> None:
        """Count the text from `first` on."""
        _count_all(self.nodes, self.used, self.tally, self.contexts, self.text, self.restart, first, self.length)

    def _add(self, text: NDArray[Any]) -> int:
        """Room for some text and its nodes; where it begins."""
        begin, end = self.length, self.length + len(text)
        self.length = end
        if end > len(self.text):
            self.text = _grown(self.text, end)
        self.text[begin:end] = text
        nodes = int(self.used[0]) + (2 * len(text) + 1) * len(self.contexts)
        if nodes > _MOST_NODES:
            raise InputError(f"More than {_MOST_NODES:,} n-grams, too many to number. Set a lower model.order.")
        if nodes > len(self.nodes):
            self.nodes = _grown(self.nodes, nodes)
        return begin


def beginning(order: int) -> NDArray[np.int64]:
    """The contexts of a text of which nothing is read."""
    contexts = np.full(order, NONE, np.int64)
    contexts[0] = 0
    return contexts


def check_trie(nodes: NDArray[np.int32], text: Ids, size: int) -> None:
    """Check the nodes and the text of a saved model: symbols below `size`, and a tree of the nodes, so that no loop
    leaves the arrays or goes round in a circle."""
    if not len(nodes) or (len(text) and not BREAK <= int(text.min()) <= int(text.max()) < size):
        raise ValueError("text holds a symbol that there is not")
    if not _is_tree(nodes, len(text), size):
        raise ValueError("nodes is not a tree of the strings of the text")


def _grown(array: NDArray[Any], least: int) -> NDArray[Any]:
    grown = np.empty((max(least, len(array) * 5 // 4), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


# Counting


@njit(cache=True, nogil=True)
def _is_tree(nodes, length, size):
    """Whether every node but the first is the child or sibling of at most one, the children of a node have different
    symbols, and their counts sum to its total."""
    met = np.zeros(len(nodes), np.bool_)
    met[0] = True
    whose = np.full(size, -1, np.int64)  # of each symbol, the last node that had a child of it
    for above in range(len(nodes)):
        if above and (nodes[above, COUNT] < 1 or nodes[above, COUNT] > length):
            return False
        if nodes[above, NEXT] < NONE or nodes[above, NEXT] >= len(nodes):
            return False
        node, total = nodes[above, FIRST], np.int64(0)
        if node >= len(nodes) or (node < NONE and -2 - np.int64(node) > length):
            return False
        while node >= 0:
            symbol = nodes[node, SYMBOL]
            if met[node] or symbol < 0 or symbol >= size or whose[symbol] == above:
                return False
            met[node], whose[symbol] = True, above
            total += nodes[node, COUNT]
            node = nodes[node, NEXT]
            if node >= len(nodes):
                return False
        if nodes[above, TOTAL] != total:
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _longest(contexts):
    """The number of symbols of the longest context that is there."""
    k = 0
    while k + 1 < len(contexts) and contexts[k + 1] != NONE:
        k += 1
    return k


@njit(cache=True, nogil=True)
def _make(nodes, used, above, symbol, place):
    """A new first child, seen once, at a place in the text."""
    node = used[0]
    used[0] += 1
    nodes[node, SYMBOL] = symbol
    nodes[node, COUNT] = 1
    nodes[node, TOTAL] = 0
    nodes[node, FIRST] = -2 - (place + 1)
    nodes[node, NEXT] = max(nodes[above, FIRST], NONE)
    nodes[node, LAST] = place
    nodes[above, FIRST] = node
    nodes[above, TOTAL] += 1


@njit(cache=True, nogil=True)
def _make_children(nodes, used, tally, contexts, text):
    """Make the first child of contexts that were seen once and are met again: what followed the first time."""
    for k in range(1, len(contexts)):
        node = contexts[k]
        if node == NONE:
            break
        if nodes[node, FIRST] < NONE:
            place = -2 - nodes[node, FIRST]
            nodes[node, FIRST] = NONE
            if text[place] != BREAK:
                _make(nodes, used, node, text[place], place)
                tally[k, 1] += 1


@njit(cache=True, nogil=True)
def _count(nodes, used, tally, contexts, text, restart, t):
    """Count text[t] after the contexts, and advance these."""
    symbol = text[t]
    if symbol == BREAK:
        contexts[1:] = NONE
        return
    counted = False
    for k in range(_longest(contexts), -1, -1):
        above, before = contexts[k], NONE
        node = nodes[above, FIRST]
        while node >= 0 and nodes[node, SYMBOL] != symbol:
            before = node
            node = nodes[node, NEXT]
        if k + 1 < len(contexts):
            contexts[k + 1] = node  # what stood there is done with: orders go down
        if node < 0:
            _make(nodes, used, above, symbol, t)
            tally[k, 1] += 1
            continue
        if before >= 0:  # the latest follower stands first: short look-ups
            nodes[before, NEXT] = nodes[node, NEXT]
            nodes[node, NEXT] = nodes[above, FIRST]
            nodes[above, FIRST] = node
        nodes[node, LAST] = t
        if not counted:
            counted = True
            count = nodes[node, COUNT]
            nodes[node, COUNT] = count + 1
            nodes[above, TOTAL] += 1
            if count <= 4:
                tally[k, count] -= 1
                tally[k, count + 1] += 1
    if symbol == restart:
        contexts[2:] = NONE
    _make_children(nodes, used, tally, contexts, text)


@njit(cache=True, nogil=True)
def _count_all(nodes, used, tally, contexts, text, restart, begin, end):
    for t in range(begin, end):
        _count(nodes, used, tally, contexts, text, restart, t)


@njit(cache=True, nogil=True)
def follow(nodes, text, contexts, symbol, restart):
    """Advance the contexts over a symbol, without counting."""
    above = contexts[0]
    for k in range(1, len(contexts)):
        node = NONE
        if above != NONE and symbol != BREAK:
            node = above if above < NONE else nodes[above, FIRST]
            if node < NONE:  # a string seen once
                place = -2 - node
                node = node - 1 if place < len(text) and text[place] == symbol else NONE
            else:
                while node >= 0 and nodes[node, SYMBOL] != symbol:
                    node = nodes[node, NEXT]
        above = contexts[k]
        contexts[k] = node
        if above == NONE:
            break
    if symbol == restart:
        contexts[2:] = NONE


# Predicting


@njit(cache=True, nogil=True, inline="always")
def _grade(value, a, b, c, d):
    return 0 if value < a else (1 if value < b else (2 if value < c else (3 if value < d else 4)))


@njit(cache=True, nogil=True)
def _workspace(size, order):
    """For `_predict`: q, scores, p; then symbol, weight and evidence of every term."""
    terms = size * order
    three = (np.empty(size), np.empty(size), np.empty(size))
    return (*three, np.empty(terms, np.int64), np.empty(terms, np.int64), np.empty(terms))


@njit(cache=True, nogil=True)
def _predict(nodes, text, contexts, now, discounts, values, work):
    """Fills in the scores of all symbols after the contexts, p = exp(score) / their sum, and the terms that the scores
    are sums of. Gives the number of terms, and the log of that sum. `now` is the place in the text; where it is NONE,
    the distance of a context from the longest stands for the age. The equations are in models/weighted_ngram.py."""
    q, scores, p, whose, which, evidence = work
    q[:] = 1.0 / len(q)
    scores[:] = 0.0
    terms, longest = 0, _longest(contexts)
    for k in range(longest + 1):
        above = contexts[k]
        third = _grade(longest - k, 1, 2, 3, 5) if now == NONE else 0
        node = above if above < NONE else nodes[above, FIRST]
        if node < NONE:  # seen once, so one follower, seen once
            place = -2 - node
            if place >= len(text) or text[place] == BREAK:
                continue
            symbol = text[place]
            q *= discounts[k, 1]
            add = 1.0 - discounts[k, 1]
            e = np.log1p(add / q[symbol])
            q[symbol] += add
            j = k * FEATURES + third
            whose[terms], which[terms], evidence[terms] = symbol, j, e
            terms += 1
            scores[symbol] += values[j, 0] * e + values[j, 1]
            continue
        followers = ones = twos = 0
        while node >= 0:
            followers += 1
            ones += nodes[node, COUNT] == 1
            twos += nodes[node, COUNT] == 2
            node = nodes[node, NEXT]
        if followers == 0:
            continue
        scale = 1.0 / nodes[above, TOTAL]
        q *= (discounts[k, 1] * ones + discounts[k, 2] * twos + discounts[k, 3] * (followers - ones - twos)) * scale
        group = (k * GRADES + _grade(followers, 2, 3, 5, 11)) * GRADES
        node = nodes[above, FIRST]
        while node >= 0:
            count, symbol = nodes[node, COUNT], nodes[node, SYMBOL]
            add = (count - discounts[k, min(count, 3)]) * scale
            e = np.log1p(add / q[symbol])
            q[symbol] += add
            if now != NONE:
                third = _grade(now - nodes[node, LAST], 1 << 8, 1 << 11, 1 << 14, 1 << 17)
            j = (group + _grade(count, 2, 3, 5, 17)) * GRADES + third
            whose[terms], which[terms], evidence[terms] = symbol, j, e
            terms += 1
            scores[symbol] += values[j, 0] * e + values[j, 1]
            node = nodes[node, NEXT]
    top = scores.max()
    total = 0.0
    for w in range(len(p)):
        p[w] = np.exp(scores[w] - top)
        total += p[w]
    p /= total
    return terms, top + np.log(total)


@njit(cache=True, nogil=True)
def _learn(symbol, terms, work, values, squares, rate, gradient):
    """One step of AdaGrad towards a symbol. `gradient` is zero, and zero again afterwards."""
    _, _, p, whose, which, evidence = work
    for i in range(terms):
        error = (1.0 if whose[i] == symbol else 0.0) - p[whose[i]]
        gradient[which[i], 0] += error * evidence[i]
        gradient[which[i], 1] += error
    for i in range(terms):
        j = which[i]
        for r in range(2):
            g = gradient[j, r]
            if g != 0.0:
                squares[j, r] += g * g
                values[j, r] += rate * g / np.sqrt(squares[j, r])
                gradient[j, r] = 0.0


@njit(cache=True, nogil=True)
def _learn_all(nodes, used, tally, contexts, text, restart, begin, end, discounts, values, squares, rate, size, logp):
    """text[begin:end]: predicted, learnt from, counted."""
    work, gradient = _workspace(size, len(contexts)), np.zeros(values.shape)
    for t in range(begin, end):
        symbol = text[t]
        terms, total = _predict(nodes, text, contexts, t, discounts, values, work)
        logp[t - begin] = work[1][symbol] - total
        _learn(symbol, terms, work, values, squares, rate, gradient)
        _count(nodes, used, tally, contexts, text, restart, t)
        if (t + 1) % REFRESH == 0:
            update_discounts(tally, discounts)


@njit(cache=True, nogil=True)
def score(nodes, text, contexts, restart, discounts, values, squares, rate, tokens, targets, size, logp):
    """Read tokens and compute log p of the target after each, 0 if it is below 0, without counting. At a rate above
    0 the weights learn from the targets."""
    work, gradient = _workspace(size, len(contexts)), np.zeros(values.shape)
    for i in range(len(tokens)):
        follow(nodes, text, contexts, tokens[i], restart)
        if targets[i] >= 0:
            terms, total = _predict(nodes, text, contexts, NONE, discounts, values, work)
            logp[i] = work[1][targets[i]] - total
            if rate > 0.0:
                _learn(targets[i], terms, work, values, squares, rate, gradient)


@njit(cache=True, nogil=True)
def score_next(nodes, text, contexts, now, discounts, values, logp):
    """log p of every symbol after the contexts; `now` as in `_predict`."""
    work = _workspace(len(logp), len(contexts))
    _, total = _predict(nodes, text, contexts, now, discounts, values, work)
    logp[:] = work[1] - total

"""What of a text stands in another: a suffix array, by induced sorting (SA-IS; Nong, Zhang and Chan, 2009).

The suffix array of a text is the order of its suffixes. Whatever occurs in the text begins one of them, so that a
binary search over the order finds it, and the longest match of a sample at a place is with one of the two neighbours of
where the sample would stand. An n-gram of the sample is new where the longest match at its first token is shorter than
n.

    rising    a suffix that is smaller than the next one to its right; the others are falling
    valley    a rising suffix after a falling one

Sorted valleys give all others in two scans: a falling suffix stands after the next one to its right, a rising one
before it. To sort the valleys, the pieces of the text from valley to valley are sorted by the same two scans and given
numbers in that order; where two have the same number, the text of these numbers, at most half as long, is sorted in the
same way.
The time is linear, the memory some 12 bytes a token, the text and the order among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit
from segue.errors import InputError

Numbers = NDArray[np.int32]
Flags = NDArray[np.bool_]
MOST = 2**31 - 1
"""Tokens that a place in 32 bits can count."""


class Suffixes:
    """A text of ids with the order of its suffixes. Ids are 0 or more; in a sample, -1 stands for what is nowhere."""

    def __init__(self, ids: NDArray[Any], done: Callable[[float], None] = lambda share: None) -> None:
        if len(ids) > MOST:
            raise InputError(f"The text has {len(ids):,} tokens. Expected {MOST:,} at most: take less of it.")
        self.ids: Numbers = np.ascontiguousarray(ids, np.int32)
        self.order = _sort(self.ids, int(self.ids.max()) + 1, done) if len(ids) else self.ids
        done(1.0)

    def longest(self, sample: NDArray[Any]) -> Numbers:
        """At each place of a sample, how many tokens from there on stand together somewhere in the text."""
        lengths: Numbers = _longest(self.ids, self.order, np.ascontiguousarray(sample, np.int32))
        return lengths

    def find(self, pattern: NDArray[Any]) -> Numbers:
        """Every place in the text where a pattern begins, in order."""
        wanted = np.ascontiguousarray(pattern, np.int32)
        low, high = (_bound(self.ids, self.order, wanted, after) for after in (False, True))
        return np.sort(self.order[low:high])


def whole_runs(lengths: Numbers) -> list[tuple[int, int]]:
    """Of the longest matches at every place those that are not part of one that begins earlier, as (begin, end)."""
    found, reached = [], 0
    for begin, length in enumerate(lengths.tolist()):
        if length and begin + length > reached:
            reached = begin + length
            found.append((begin, reached))
    return found


def compile_once() -> None:
    """Runs all that is compiled, on a text small enough to take no time where it has been compiled before."""
    text = Suffixes(np.array([1, 0, 1, 0, 1, 2], np.int32))
    text.longest(text.ids)
    text.find(text.ids[:2])


# Sorting


def _sort(text: Numbers, size: int, done: Callable[[float], None] = lambda share: None) -> Numbers:
    """The order of the suffixes of a text whose ids are below `size`."""
    order = np.empty(len(text), np.int32)
    rising = _rising(text)
    starts = _starts(text, size)
    _place_valleys(text, rising, starts, order)
    _induce(text, rising, starts, order)
    done(0.4)
    count, names = _name(text, rising, order)
    numbers = order[len(order) - count :]
    _place_sorted(text, rising, starts, order, _sort(numbers, names) if names < count else _inverse(numbers))
    done(0.7)
    _induce(text, rising, starts, order)
    return order


@njit(cache=True)
def _rising(text: Numbers) -> Flags:
    """Whether each suffix is smaller than the next. The last one is not: nothing follows, and nothing is smallest."""
    rising = np.zeros(len(text), np.bool_)
    for i in range(len(text) - 2, -1, -1):
        rising[i] = text[i] < text[i + 1] or (text[i] == text[i + 1] and rising[i + 1])
    return rising


@njit(cache=True)
def _starts(text: Numbers, size: int) -> Numbers:
    """Where the suffixes that begin with each id begin in the order; last of all, the length of the text."""
    starts = np.zeros(size + 1, np.int32)
    for token in text:
        starts[token + 1] += 1
    for token in range(size):
        starts[token + 1] += starts[token]
    return starts


@njit(cache=True)
def _place_valleys(text: Numbers, rising: Flags, starts: Numbers, order: Numbers) -> None:
    """The valleys at the end of the part of their first id, in no special order; -1 elsewhere."""
    order[:] = -1
    ends = starts[1:].copy()
    for i in range(1, len(text)):
        if rising[i] and not rising[i - 1]:
            ends[text[i]] -= 1
            order[ends[text[i]]] = i


@njit(cache=True)
def _induce(text: Numbers, rising: Flags, starts: Numbers, order: Numbers) -> None:
    """From the valleys in their places: the falling suffixes from left to right, then the rising from the right."""
    last = len(text) - 1
    heads = starts[:-1].copy()
    order[heads[text[last]]] = last
    heads[text[last]] += 1
    for i in range(len(text)):
        before = order[i] - 1
        if before >= 0 and not rising[before]:
            order[heads[text[before]]] = before
            heads[text[before]] += 1
    ends = starts[1:].copy()
    for i in range(last, -1, -1):
        before = order[i] - 1
        if before >= 0 and rising[before]:
            ends[text[before]] -= 1
            order[ends[text[before]]] = before


@njit(cache=True)
def _name(text: Numbers, rising: Flags, order: Numbers) -> tuple[int, int]:
    """Numbers the pieces between valleys by their order; the numbers, as they follow in the text, end `order`.

    Returns how many pieces there are, and how many different ones.
    """
    count = 0
    for i in range(len(order)):
        place = order[i]
        if place > 0 and rising[place] and not rising[place - 1]:
            order[count] = place
            count += 1
    order[count:] = -1
    names = 0
    for i in range(count):
        if i > 0 and not _same_piece(text, rising, order[i - 1], order[i]):
            names += 1
        order[count + order[i] // 2] = names  # valleys are never neighbours
    free = len(order) - 1
    for i in range(len(order) - 1, count - 1, -1):
        if order[i] >= 0:
            order[free] = order[i]
            free -= 1
    return count, names + 1


@njit(cache=True)
def _same_piece(text: Numbers, rising: Flags, one: int, other: int) -> bool:
    """Whether the pieces from two valleys to the next ones are the same; one that reaches the end is like no other."""
    for i in range(len(text) - max(one, other)):
        if text[one + i] != text[other + i] or rising[one + i] != rising[other + i]:
            return False
        if i > 0 and rising[one + i] and not rising[one + i - 1]:
            return True
    return False


@njit(cache=True)
def _inverse(numbers: Numbers) -> Numbers:
    """The order of suffixes that all begin with different numbers."""
    order = np.empty_like(numbers)
    for i in range(len(numbers)):
        order[numbers[i]] = i
    return order


@njit(cache=True)
def _place_sorted(text: Numbers, rising: Flags, starts: Numbers, order: Numbers, valley_order: Numbers) -> None:
    """The valleys at the end of the part of their first id, in their order; -1 elsewhere."""
    count = len(valley_order)
    free = len(order) - count
    for i in range(1, len(text)):
        if rising[i] and not rising[i - 1]:
            order[free] = i
            free += 1
    for i in range(count):
        order[i] = order[len(order) - count + valley_order[i]]
    order[count:] = -1
    ends = starts[1:].copy()
    for i in range(count - 1, -1, -1):
        place, order[i] = order[i], -1
        ends[text[place]] -= 1
        order[ends[text[place]]] = place


# Searching


@njit(cache=True)
def _longest(text: Numbers, order: Numbers, sample: Numbers) -> Numbers:
    """A binary search from every place of the sample; what both bounds have in common with it is not compared again."""
    lengths = np.zeros(len(sample), np.int32)
    for place in range(len(sample)):
        low, high = 0, len(order)
        with_low = with_high = 0
        while low < high:
            middle = (low + high) // 2
            start = order[middle]
            i = min(with_low, with_high)
            most = min(len(sample) - place, len(text) - start)
            while i < most and sample[place + i] == text[start + i]:
                i += 1
            lengths[place] = max(lengths[place], i)
            if place + i == len(sample):
                break
            if start + i == len(text) or text[start + i] < sample[place + i]:
                low, with_low = middle + 1, i
            else:
                high, with_high = middle, i
    return lengths


@njit(cache=True)
def _bound(text: Numbers, order: Numbers, pattern: Numbers, after: bool) -> int:
    """How many suffixes are smaller than all that begin with the pattern; with `after`, those are counted too."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        start = order[middle]
        i = 0
        while i < len(pattern) and start + i < len(text) and pattern[i] == text[start + i]:
            i += 1
        if i == len(pattern):
            smaller = after
        else:
            smaller = start + i == len(text) or text[start + i] < pattern[i]
        if smaller:
            low = middle + 1
        else:
            high = middle
    return low

"""Counted n-grams as a compact trie, on disk as in memory: the content of an n-gram model's `model.safetensors`.

Of each order above the first:

    words.k      the last word of every n-gram, sorted inside its context               2 bytes (4 from 65,537 words)
    counts.k     its count; 255 where it is greater, then it stands in `more`           1 byte
    first.k      for every context, an n-gram of order k - 1: its first follower        4 bytes
    profile.k    for every context: which row of `profiles` describes its followers     2 bytes (4 where there are many)
    profiles.k   total, ones, twos, more, lost: the sum of the counts of the followers; how many have count 1, 2,
                 3 or more; and how much of the total was pruned

Most contexts look like many others (one follower, seen once), so that a row is shared by very many. Order 1 is dense:
`counts.1` of the whole vocabulary. The file is mapped; opening it looks at every number once (model_file.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segue.compiling import njit
from segue.ngrams.count import Array, Column, Table, forget
from segue.ngrams.model_file import Arrays, check_marked

_CONTEXTS = 1 << 18
"""Pack this many contexts at a time."""


@dataclass(frozen=True)
class Level:
    """The n-grams of one order."""

    words: Array
    counts: Array
    more_ids: Array
    """N-grams with a count of 255 or more; `more_counts` has their counts."""
    more_counts: Array
    first: Array
    profile: Array
    profiles: Array

    def __len__(self) -> int:
        return len(self.words)

    def plain_counts(self, low: int, high: int) -> Array:
        """Return the counts of n-grams low … high - 1."""
        counts = self.counts[low:high].astype(np.int64)
        a, b = np.searchsorted(self.more_ids, (low, high))
        counts[self.more_ids[a:b].astype(np.int64) - low] = self.more_counts[a:b]
        return counts


FIELDS = ("words", "counts", "more_ids", "more_counts", "first", "profile", "profiles")


class _Profiles:
    """The different rows that describe followers, each once, in the order of their first context."""

    def __init__(self) -> None:
        self.rows = np.empty((1 << 10, 5), np.int64)
        self.slots = np.full(1 << 11, -1, np.int32)
        self.used = 0

    def make_room(self, more: int) -> None:
        if self.used + more > len(self.rows):
            rows = np.empty((2 * (self.used + more), 5), np.int64)
            rows[: self.used] = self.rows[: self.used]
            self.rows = rows
            self.slots = np.full(1 << (2 * len(rows)).bit_length(), -1, np.int32)
            _place(self.rows[: self.used], self.slots)


def pack(
    table: Table,
    adjusted: Array,
    contexts: Array,
    least: tuple[int, int],
    folder: Path,
    k: int,
) -> tuple[Level, Array]:
    """Pack a counted table; also return how many of its n-grams have a count of 1, 2, 3, 4 (pruned ones too).

    `adjusted` are the counts that the smoothing uses; `contexts` the plain counts of the contexts. N-grams whose plain
    count is below the second of `least` are left out; contexts below the first have been.
    """
    kinds = (table.words.dtype, np.uint8, np.uint32, np.uint32, np.uint32, np.uint32)
    columns = [Column(folder / f"packed.{name}.{k}", kind) for name, kind in zip(FIELDS[:6], kinds, strict=True)]
    columns[4].append(np.zeros(1, np.uint32))
    profiles, counts_of_counts = _Profiles(), np.zeros(5, np.int64)
    for low in range(0, len(contexts), _CONTEXTS):
        high = min(len(contexts), low + _CONTEXTS)
        profiles.make_room(high - low)
        begin, end = int(table.first[low]), int(table.first[high])
        first = table.first[low : high + 1].astype(np.int64) - begin
        kept = contexts[low:high] >= least[0]
        *found, profiles.used = _pack(
            *(np.asarray(table.words[begin:end]), np.asarray(adjusted[begin:end]), np.asarray(table.counts[begin:end])),
            *(first, kept, least[1], profiles.rows, profiles.used, profiles.slots, counts_of_counts),
        )
        base = np.uint32(columns[0].size)
        found[2] += base
        found[4] += base
        for column, numbers in zip(columns, found, strict=True):
            column.append(numbers)
        forget(table.words, table.counts, table.first, adjusted, contexts)
    words, counts, more_ids, more_counts, first, profile = (column.close() for column in columns)
    if profiles.used <= 1 << 16:
        profile = _narrow(profile, folder / f"packed.narrow.{k}")
    rows = profiles.rows[: profiles.used].copy()
    return Level(words, counts, more_ids, more_counts, first, profile, rows), counts_of_counts[1:]


def _narrow(numbers: Array, path: Path) -> Array:
    column = Column(path, np.uint16)
    for begin in range(0, len(numbers), 1 << 22):
        column.append(numbers[begin : begin + (1 << 22)])
    forget(numbers)
    return column.close()


@njit(cache=True, nogil=True)
def _hash(row):
    h = np.uint64(1469598103934665603)
    for j in range(5):
        h = (h ^ np.uint64(row[j])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
    return h


@njit(cache=True, nogil=True)
def _place(rows, slots):
    mask = np.uint64(len(slots) - 1)
    for r in range(len(rows)):
        s = _hash(rows[r]) & mask
        while slots[s] >= 0:
            s = (s + np.uint64(1)) & mask
        slots[s] = r


@njit(cache=True, nogil=True)
def _pack(words, adjusted, plain, first, kept, least, rows, used, slots, counts_of_counts):
    size = len(words)
    out_words, out_counts = np.empty_like(words), np.empty(size, np.uint8)
    big_ids, big_counts = np.empty(size, np.uint32), np.empty(size, np.uint32)
    ends, profile = np.empty(len(kept), np.uint32), np.empty(len(kept), np.uint32)
    row = np.empty(5, np.int64)
    mask = np.uint64(len(slots) - 1)
    found = big = contexts = 0
    for c in range(len(kept)):
        row[:] = 0
        for i in range(first[c], first[c + 1]):
            count = np.int64(adjusted[i])
            if count <= 4:
                counts_of_counts[count] += 1
            row[0] += count
            if plain[i] < least:
                row[4] += count
                continue
            row[min(count, 3)] += count > 0
            out_words[found] = words[i]
            out_counts[found] = min(count, 255)
            if count >= 255:
                big_ids[big], big_counts[big] = found, count
                big += 1
            found += 1
        if not kept[c]:
            continue
        s = _hash(row) & mask
        while slots[s] >= 0 and not np.array_equal(rows[slots[s]], row):
            s = (s + np.uint64(1)) & mask
        if slots[s] < 0:
            rows[used] = row
            slots[s] = used
            used += 1
        profile[contexts] = slots[s]
        ends[contexts] = found
        contexts += 1
    return (
        *(out_words[:found], out_counts[:found], big_ids[:big], big_counts[:big]),
        *(ends[:contexts], profile[:contexts], used),
    )


# On disk


def levels_to_arrays(levels: Sequence[Level]) -> dict[str, Array]:
    return {f"{name}.{k}": getattr(level, name) for k, level in enumerate(levels, 1) for name in FIELDS}


def levels_of_arrays(arrays: Arrays, order: int, vocab_size: int) -> list[Level]:
    """Return the orders, each checked against the order below: its contexts are the n-grams of that."""
    levels: list[Level] = []
    contexts, size = 1, vocab_size
    for k in range(1, order + 1):
        counts = arrays.take(f"counts.{k}", "u1", (size if k == 1 else None,))
        words = arrays.ids(f"words.{k}", (len(counts),), vocab_size)
        more_ids = arrays.take(f"more_ids.{k}", "u4", (None,))
        check_marked(f"more_ids.{k}", counts, 255, more_ids)
        more_counts = arrays.take(f"more_counts.{k}", "u4", (len(more_ids),))
        first = arrays.offsets(f"first.{k}", contexts, len(words))
        profiles = arrays.ids(f"profiles.{k}", (None, 5), 1 << 56, "i8")
        if (profiles @ np.array([1, -1, -2, -3, -1]) < 0).any():
            raise ValueError(f"profiles.{k} holds a total that is less than its parts")
        profile = arrays.ids(f"profile.{k}", (contexts,), len(profiles))
        levels.append(Level(words, counts, more_ids, more_counts, first, profile, profiles))
        contexts = len(words)
    return levels


def bytes_of(levels: Iterable[Level]) -> int:
    return sum(getattr(level, name).nbytes for level in levels for name in FIELDS)


def side_by_side(arrays: Sequence[Array]) -> tuple[Array, list[int]]:
    """Join arrays into one, and return where each begins; without copying if one mapped file holds them all."""
    root = _root(arrays[0])
    places = [array.__array_interface__["data"][0] for array in arrays]
    same = all(_root(array) is root and array.dtype == arrays[0].dtype and array.size for array in arrays)
    if isinstance(root, np.memmap) and same:
        begin = root.__array_interface__["data"][0]
        low, high = min(places), max(place + array.nbytes for place, array in zip(places, arrays, strict=True))
        width = arrays[0].itemsize * math.prod(arrays[0].shape[1:])
        if all((place - low) % width == 0 for place in places) and (high - low) <= 2 * sum(a.nbytes for a in arrays):
            flat = root[low - begin : high - begin].view(arrays[0].dtype).reshape(-1, *arrays[0].shape[1:])
            return flat, [(place - low) // width for place in places]
    joined = np.concatenate(arrays)
    joined.setflags(write=False)
    return joined, [0, *np.cumsum([len(array) for array in arrays])[:-1].tolist()]


def _root(array: Array) -> Any:
    """Return the mapped file that an array is part of, or the array that it is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array

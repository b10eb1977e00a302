"""Counting n-grams without a dictionary: every n-gram of a text, one order after another, in sorted order.

An n-gram of order k is its context (an n-gram of order k - 1, known by its id) and its last word. The positions of
the text are dealt out to their contexts, whose places are known from the counts of the order below; inside a context
they are sorted by word. Positions that now stand together are one n-gram, and its place in that order is its id. So
the table of an order is a sorted trie: `words` and `counts` of its n-grams, and `first`, where the followers of each
context begin.

A text larger than memory goes the same way, some contexts at a time: each pass reads the text once and takes the
positions of one range of contexts. The ids that it finds are dealt out again by position, over files. In one range or
in many, the tables are the same to the bit.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.codec import Sizes
from segue.compiling import njit
from segue.errors import InputError

Array = NDArray[Any]

NOTHING = np.uint32(0x7FFFFFFF)
"""In place of an id: no n-gram of this length ends here."""
_NEW = np.uint32(0x80000000)
"""The bit of an id that is set at the first occurrence of its n-gram."""
LONGEST = int(NOTHING) - 1
"""Most tokens of a text, so that an id and the bit fit 32 bits."""
_WORD = np.uint64(32)
"""A record is one number: above these bits the word, below them the position."""
_RECORD = 64
"""Bytes of working memory that a position takes in a range: record, id, and the share of its n-gram and context."""
_THREADS = 2
_ALONE = 1 << 18
"""Texts with fewer positions are counted on one thread."""
_CHUNK = 1 << 22
"""Read this many positions at a time."""


def check_text(words: Array, vocab_size: int) -> None:
    """Refuse a text that cannot be counted."""
    if not len(words):
        raise InputError("The training text has no tokens, so there is nothing to count. Give a longer text.")
    if len(words) > LONGEST:
        raise InputError(f"The training text has {len(words):,} tokens; at most {LONGEST:,} can be counted.")
    if words.max() >= vocab_size:
        raise ValueError(f"token {words.max()} in a text whose vocabulary has {vocab_size}")


class Column:
    """Numbers appended to a file, then read as one array that is mapped into memory."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self.path, self.dtype, self.size = path, np.dtype(dtype), 0
        self.file = path.open("wb")

    def append(self, numbers: Array) -> None:
        numbers.astype(self.dtype, copy=False).tofile(self.file)
        self.size += len(numbers)

    def close(self) -> Array:
        self.file.close()
        return np.memmap(self.path, self.dtype, "r") if self.size else np.empty(0, self.dtype)


@dataclass(frozen=True)
class Table:
    """The n-grams of one order, sorted by context and word."""

    words: Array
    """The last word of each n-gram."""
    counts: Array
    """How often each was seen."""
    first: Array
    """The followers of context c are the n-grams first[c] … first[c + 1] - 1."""
    before: Callable[[int, int], Array]
    """Counts different words before each of the n-grams low … high - 1 of the order below; 0 if one begins
    with START, which has none before it."""


def count_orders(
    words: Array,
    order: int,
    sizes: Sizes,
    folder: Path,
    memory: int,
    done: Callable[[float], None],
) -> Iterator[Table]:
    """Yield the table of each order, from 1, of the text w1 … wn STOP w1 …

    Order 1 has the whole vocabulary, so that its id is the word. No n-gram goes on over STOP, unless `sizes.carry`. The
    tables are files in `folder`; `memory` is in bytes, for the working arrays.
    """
    vocab_size = sizes.vocab_size
    counts = np.zeros(vocab_size, np.int64)
    for begin in range(0, len(words), _CHUNK):
        counts += np.bincount(words[begin : begin + _CHUNK], minlength=vocab_size)
    word_type = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    every, whole = np.arange(vocab_size, dtype=word_type), np.array([0, vocab_size], np.uint32)
    table = Table(every, counts.astype(np.uint32), whole, lambda low, high: np.zeros(high - low, np.uint32))
    yield table
    ids = words
    for k in range(2, order + 1):
        level = _Level(words, ids, table, sizes, k == 2, folder, f"{k}", memory)
        done((k - 2) / (order - 1))
        table, ids = level.count()
        yield table
    done(1.0)


class _Level:
    """One order, counted from the ids of the order `below`."""

    def __init__(
        self,
        words: Array,
        below: Array,
        contexts: Table,
        sizes: Sizes,
        second: bool,
        folder: Path,
        name: str,
        memory: int,
    ) -> None:
        self.words, self.below, self.contexts = words, below, contexts
        self.stop, self.carry, self.second = sizes.stop, sizes.carry, second
        self.folder, self.name, self.memory = folder, name, memory

    def count(self) -> tuple[Table, Array]:
        """Count; return the table, and the id of the n-gram that ends at each position."""
        words = Column(self.folder / f"words.{self.name}", self.contexts.words.dtype)
        counts = Column(self.folder / f"counts.{self.name}", np.uint32)
        first = Column(self.folder / f"first.{self.name}", np.uint32)
        first.append(np.zeros(1, np.uint32))
        spread = _Spread(len(self.words), self.folder / f"ids.{self.name}", self.memory // 8)
        for records, (grouped, found, ends, ids) in self._counted():
            begun = np.uint32(words.size)
            words.append(grouped.astype(words.dtype))
            counts.append(found)
            first.append(ends + begun)
            spread.put(records, ids, begun)
            forget(self.contexts.words, self.contexts.counts)
        ids = spread.close()
        below = self.below

        def before(low: int, high: int) -> Array:
            out = np.zeros(high - low, np.uint32)
            for begin in range(0, len(ids), _CHUNK):
                _add_before(below[begin : begin + _CHUNK], ids[begin : begin + _CHUNK], low, out)
            forget(below, ids)
            return out

        return Table(words.close(), counts.close(), first.close(), before), ids

    def _counted(self) -> Iterator[tuple[Array, tuple[Array, Array, Array, Array]]]:
        """Yield the n-grams of each range of contexts, in order; two threads count one range each."""

        def one(low: int, followed: Array) -> tuple[Array, tuple[Array, Array, Array, Array]]:
            records = self._deal(low, followed)
            return records, _group(records, np.cumsum(followed), self._bits())

        ranges = self._ranges()
        if len(self.words) < _ALONE:
            yield from (one(*each) for each in ranges)
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            while some := list(islice(ranges, _THREADS)):
                yield from [job.result() for job in [pool.submit(one, *each) for each in some]]

    def _bits(self) -> int:
        return max(1, int(self.contexts.words.max()).bit_length()) if self.second else self.contexts.words.itemsize * 8

    def _ranges(self) -> Iterator[tuple[int, Array]]:
        """Yield ranges of contexts, as many as fit in memory: the first context, and how often each is followed."""
        room = max(1 << 10, min(self.memory * 3 // 8 // _RECORD, len(self.words)) // _THREADS + 1)
        low, last = 0, len(self.contexts.words)
        while low < last:
            followed = self._followed(low, min(last, low + room))
            together = max(1, int(np.searchsorted(np.cumsum(followed), room, side="right")))
            yield low, followed[:together]
            low += together

    def _followed(self, low: int, high: int) -> Array:
        """Count how often each context is followed: as often as it was seen, except at the end of the text."""
        followed = self.contexts.counts[low:high].astype(np.int64)
        unfinished = self.carry or self.words[-1] != self.stop
        if self.second:
            if low <= self.stop < high:  # here STOP is START: there is one before the text and none after it
                followed[self.stop - low] += unfinished
        elif not self.carry:
            followed[self.contexts.words[low:high] == self.stop] = 0
        end = int(self.below[-1]) & int(NOTHING)
        if unfinished and low <= end < high:
            followed[end - low] -= 1
        return followed

    def _deal(self, low: int, followed: Array) -> Array:
        """Return the records of a range, context by context, each in the order of the text."""
        places = np.cumsum(followed) - followed
        records = np.empty(int(followed.sum()), np.uint64)
        context = self.stop if self.second else int(NOTHING)
        for begin in range(0, len(self.words), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            context = _deal(
                *(self.words[part], self.below[part], begin, context, low, places, records),
                *(self.stop, self.second or self.carry),
            )
        forget(self.words, self.below)
        return records


class _Spread:
    """Ids found in the order of n-grams, put in the order of the text: in memory, or over files where that is small."""

    def __init__(self, size: int, path: Path, memory: int) -> None:
        self.size, self.path = size, path
        self.piece = size if size * 4 <= memory else max(1 << 10, memory // 12)
        self.whole = np.full(size, NOTHING, np.uint32) if self.piece >= size else None
        self.files = (
            []
            if self.whole is not None
            else [Column(path.with_name(f"{path.name}.{i}"), np.uint64) for i in range(-(-size // self.piece))]
        )

    def put(self, records: Array, ids: Array, begun: np.uint32) -> None:
        """`ids` are counted from `begun` on."""
        if self.whole is not None:
            _scatter(records, ids, begun, self.whole)
            return
        order, ends = _by_piece(records, ids, begun, self.piece, len(self.files))
        for file, begin, end in zip(self.files, [0, *ends[:-1]], ends, strict=True):
            file.append(order[begin:end])

    def close(self) -> Array:
        if self.whole is not None:
            return self.whole
        joined = Column(self.path, np.uint32)
        for i, file in enumerate(self.files):
            piece = np.full(min(self.piece, self.size - i * self.piece), NOTHING, np.uint32)
            pairs = file.close()
            _unpair(pairs, piece)
            forget(pairs)
            joined.append(piece)
            file.path.unlink()
        return joined.close()


def forget(*arrays: Array) -> None:
    """Let the system drop the pages of mapped files from memory."""
    for numbers in arrays:
        opened = getattr(numbers, "_mmap", None)
        if opened is not None:
            opened.madvise(mmap.MADV_DONTNEED)


@njit(cache=True, nogil=True)
def _deal(words, below, begin, context, low, places, records, stop, over):
    """Put each position of a part of the text into the next free place of its context; return the last context. `over`:
    contexts may end in STOP."""
    contexts = len(places)
    for i in range(len(words)):
        c = np.int64(context) - low
        if 0 <= c < contexts:
            records[places[c]] = (np.uint64(words[i]) << _WORD) | np.uint64(begin + i)
            places[c] += 1
        if over or words[i] != stop:
            context = np.int64(below[i] & NOTHING)
        else:
            context = np.int64(NOTHING)
    return context


@njit(cache=True, nogil=True)
def _group(records, ends, bits):
    """Sort each context's records by word; return the n-grams' words and counts, where each context's end, and every
    record's id."""
    words = np.empty(len(records), np.uint32)
    counts = np.empty(len(records), np.uint32)
    first = np.empty(len(ends), np.uint32)
    ids = np.empty(len(records), np.uint32)
    copy = np.empty(1, np.uint64)
    found, begin = 0, 0
    for c in range(len(ends)):
        end = ends[c]
        size = end - begin
        if size > 1:
            if size > len(copy):
                copy = np.empty(size, np.uint64)
            _sort(records[begin:end], copy, bits)
        last = np.uint64(0xFFFFFFFF)
        for i in range(begin, end):
            word = records[i] >> _WORD
            if word != last:
                last = word
                words[found], counts[found] = word, 1
                ids[i] = np.uint32(found) | _NEW
                found += 1
            else:
                counts[found - 1] += np.uint32(1)
                ids[i] = np.uint32(found - 1)
        first[c] = found
        begin = end
    return words[:found], counts[:found], first, ids


@njit(cache=True, nogil=True)
def _sort(records, copy, bits):
    """Sort by word; records of one word stay in order (stable radix sort)."""
    size = len(records)
    if size <= 48:
        for i in range(1, size):
            one = records[i]
            j = i
            while j > 0 and records[j - 1] > one:
                records[j] = records[j - 1]
                j -= 1
            records[j] = one
        return
    heads = np.empty(256, np.int64)
    for shift in range(32, 32 + bits, 8):
        heads[:] = 0
        for i in range(size):
            heads[(records[i] >> np.uint64(shift)) & np.uint64(255)] += 1
        total = 0
        for b in range(256):
            total, heads[b] = total + heads[b], total
        for i in range(size):
            b = (records[i] >> np.uint64(shift)) & np.uint64(255)
            copy[heads[b]] = records[i]
            heads[b] += 1
        records[:] = copy[:size]


@njit(cache=True, nogil=True)
def _scatter(records, ids, begun, whole):
    for i in range(len(records)):
        whole[records[i] & np.uint64(0xFFFFFFFF)] = ids[i] + begun


@njit(cache=True, nogil=True)
def _by_piece(records, ids, begun, piece, pieces):
    """(position inside its piece, id) of every record as one number, piece by piece; where each piece ends."""
    ends = np.zeros(pieces, np.int64)
    for i in range(len(records)):
        ends[np.int64(records[i] & np.uint64(0xFFFFFFFF)) // piece] += 1
    ends = np.cumsum(ends)
    places = np.empty(pieces, np.int64)
    places[0], places[1:] = 0, ends[:-1]
    pairs = np.empty(len(records), np.uint64)
    for i in range(len(records)):
        p, inside = divmod(np.int64(records[i] & np.uint64(0xFFFFFFFF)), piece)
        pairs[places[p]] = (np.uint64(inside) << _WORD) | np.uint64(ids[i] + begun)
        places[p] += 1
    return pairs, ends


@njit(cache=True, nogil=True)
def _unpair(pairs, piece):
    for i in range(len(pairs)):
        piece[pairs[i] >> _WORD] = pairs[i] & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _add_before(below, ids, low, out):
    for i in range(len(ids)):
        if ids[i] & _NEW:
            c = np.int64(below[i] & NOTHING) - low
            if 0 <= c < len(out):
                out[c] += np.uint32(1)

"""Count and look up words between spaces, as bytes: a hash table with compiled loops.

Text comes as UTF-8 with the byte 0 between units. The byte 32 ends a word and a byte of a longer character is never
32, so that nothing needs to be decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit

Array = NDArray[Any]

BETWEEN = "\0"
"""Separates two units; a text that contains it takes a slower path."""


class WordTable:
    """Different words, numbered in the order of their first occurrence, each with its count."""

    def __init__(self, words: Iterable[bytes] = ()) -> None:
        self.slots = np.full(1 << 12, -1, np.int32)
        self.hashes = np.empty(0, np.uint64)
        self.ends = np.zeros(1, np.int64)
        """The bytes of word i are letters[ends[i]:ends[i + 1]]."""
        self.letters = np.empty(0, np.uint8)
        self.counts = np.empty(0, np.int64)
        listed = b" ".join(words)
        if listed:
            self.count(listed)

    def __len__(self) -> int:
        return len(self.counts)

    def count(self, text: bytes) -> None:
        """Count the words of a text; add new ones."""
        raw = np.frombuffer(text, np.uint8)
        while True:
            size = len(self.counts)
            room = max(1 << 12, size)
            table = (_grown(self.hashes, room), _grown(self.ends, room), _grown(self.counts, room))
            letters = _grown(self.letters, len(raw))
            read, size, used = _count(raw, self.slots, *table, letters, size, len(self.letters))
            self.hashes, self.ends, self.counts = table[0][:size], table[1][: size + 1], table[2][:size]
            self.letters = letters[:used].copy()
            if 2 * (size + room) > len(self.slots):
                self.slots = np.full(4 * len(self.slots), -1, np.int32)
                _place(self.hashes, self.slots)
            if read == len(raw):
                return
            raw = raw[read:]

    def words(self) -> Iterator[bytes]:
        letters = self.letters.tobytes()
        for begin, end in zip(self.ends[:-1].tolist(), self.ends[1:].tolist(), strict=True):
            yield letters[begin:end]

    def places(self, text: bytes, units: int) -> tuple[Array, Array]:
        """Return the number of every word of a text, -1 if it is new, and how many words each unit has."""
        return _find(np.frombuffer(text, np.uint8), self.slots, self.hashes, self.ends, self.letters, units)  # type: ignore[no-any-return]


def joined(texts: Sequence[str]) -> bytes | None:
    """Join units into one text; None if one of them contains the separator."""
    text = BETWEEN.join(texts)
    return text.encode() if text.count(BETWEEN) == max(0, len(texts) - 1) else None


def _grown(numbers: Array, room: int) -> Array:
    out = np.empty(len(numbers) + room, numbers.dtype)
    out[: len(numbers)] = numbers
    return out


@njit(cache=True, nogil=True, inline="always")
def _hash_to(raw, i):
    """Return the end of the word that begins at i, and its hash."""
    h = np.uint64(14695981039346656037)
    while i < len(raw) and raw[i] != 32 and raw[i] != 0:
        h = (h ^ np.uint64(raw[i])) * np.uint64(1099511628211)
        i += 1
    return i, h ^ (h >> np.uint64(32))


@njit(cache=True, nogil=True)
def _same(raw, begin, end, letters, low, high):
    size = end - begin
    i = 0
    while size == high - low and i < size and raw[begin + i] == letters[low + i]:
        i += 1
    return i == size == high - low


@njit(cache=True, nogil=True)
def _place(hashes, slots):
    mask = np.uint64(len(slots) - 1)
    for w in range(len(hashes)):
        s = hashes[w] & mask
        while slots[s] >= 0:
            s = (s + np.uint64(1)) & mask
        slots[s] = w


@njit(cache=True, nogil=True)
def _count(raw, slots, hashes, ends, counts, letters, size, used):
    """Read until the text or the room ends; return how far it came, and the numbers of words and letters."""
    mask = np.uint64(len(slots) - 1)
    i = 0
    while i < len(raw):
        if raw[i] == 32 or raw[i] == 0:
            i += 1
            continue
        end, h = _hash_to(raw, i)
        s = h & mask
        while slots[s] >= 0:
            w = slots[s]
            if hashes[w] == h and _same(raw, i, end, letters, ends[w], ends[w + 1]):
                break
            s = (s + np.uint64(1)) & mask
        if slots[s] < 0:
            if size == len(hashes) or 2 * size >= len(slots):
                return i, size, used
            slots[s] = size
            hashes[size], counts[size] = h, 0
            for j in range(i, end):
                letters[used] = raw[j]
                used += 1
            size += 1
            ends[size] = used
        counts[slots[s]] += 1
        i = end
    return i, size, used


@njit(cache=True, nogil=True)
def _find(raw, slots, hashes, ends, letters, units):
    mask = np.uint64(len(slots) - 1)
    places = np.empty(len(raw) // 2 + 1, np.int32)
    lengths = np.zeros(units, np.int64)
    found = unit = i = 0
    while i < len(raw):
        if raw[i] == 32 or raw[i] == 0:
            unit += raw[i] == 0
            i += 1
            continue
        end, h = _hash_to(raw, i)
        s = h & mask
        places[found] = -1
        while slots[s] >= 0:
            w = slots[s]
            if hashes[w] == h and _same(raw, i, end, letters, ends[w], ends[w + 1]):
                places[found] = w
                break
            s = (s + np.uint64(1)) & mask
        found += 1
        lengths[unit] += 1
        i = end
    return places[:found], lengths

"""Features of a text for linear classifiers: its n-grams, each a column of its own, without a dictionary of strings.

An n-gram is a path in a trie, and a node of the trie is one 64-bit key: the node before it and the next id. So two
n-grams never share a column, whatever their length, and nothing is hashed away; the hash table only finds a key fast.

    words        w_i … w_{i+k-1}, k from `shortest` to `longest`
    pairs        w_i … w_j, with other words between: i + 2 <= j <= i + `pairs`
    characters   the same over letters and the blanks between words

`Words` cuts text that comes as bytes into words and letters, for models that look at both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit
from segue.ngrams.model_file import Arrays

Array = NDArray[Any]

BLANK = 32
CHARACTERS = 0x110000
"""The number of Unicode characters."""
_PAIR = np.uint64(1 << 63)
_ROOM = 1 << 12
FIRST = 2
"""The first id that is a token of the text: STOP and UNK stand before it."""


class Rows(NamedTuple):
    """Ids end to end; row i is flat[starts[i]:starts[i + 1]]."""

    flat: Array
    starts: Array

    def known(self) -> Array:
        """Whether each row has a token that is neither STOP nor UNK: an empty text is read as a lone UNK."""
        words = np.concatenate(([0], np.cumsum(self.flat >= FIRST, dtype=np.int64)))
        return np.asarray(words[self.starts[1:]] > words[self.starts[:-1]])


class Bags(NamedTuple):
    """Rows of features: row i holds columns[starts[i]:starts[i + 1]], each column once, with its value."""

    columns: Array
    values: Array
    starts: Array
    width: int
    """How many columns there are."""

    def in_rows(self) -> Array:
        """Count the rows that have each column (document frequency)."""
        return np.bincount(self.columns, minlength=self.width)


def rows_of_column(column: Any) -> Rows:
    """Return the rows of a column of a store."""
    return Rows(np.asarray(column.flat), np.concatenate(([0], np.asarray(column.ends, np.int64))))


def rows_of_batch(tokens_BT: Any, mask_BT: Any) -> Rows:
    """Return the real tokens of a batch."""
    tokens, mask = np.asarray(tokens_BT), np.asarray(mask_BT)
    return Rows(tokens[mask], np.concatenate(([0], np.cumsum(mask.sum(1), dtype=np.int64))))


def rows_of_lengths(flat: Array, lengths: Array, limit: int) -> Rows:
    """Make rows from ids end to end, each cut at `limit`."""
    starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    if not len(lengths) or lengths.max() <= limit:
        return Rows(flat, starts)
    places = np.arange(len(flat)) - np.repeat(starts[:-1], lengths)
    kept = np.minimum(lengths, limit)
    return Rows(flat[places < limit], np.concatenate(([0], np.cumsum(kept, dtype=np.int64))))


class Grams:
    """N-grams of ids, numbered in the order of their first occurrence."""

    def __init__(self, shortest: int, longest: int, pairs: int = 0) -> None:
        self.settings = (shortest, longest, pairs)
        self.keys = np.empty(0, np.uint64)
        """A node is (1 + the node before) << 32 | id, a pair of words the highest bit, the first and the second."""
        self.columns = np.empty(0, np.int32)
        """The column of each node; -1 where it is only on the way to a longer n-gram."""
        self.slots = _slots(self.keys)
        self.width = 0
        """How many columns there are."""

    def learn(self, rows: Rows) -> Bags:
        """Return the bags of these rows; new n-grams get a column."""
        return self._read(rows, True)

    def bags(self, rows: Rows) -> Bags:
        """Return the bags of these rows, with known n-grams only."""
        return self._read(rows, False)

    def _read(self, rows: Rows, new: bool) -> Bags:
        state = (self.keys, self.columns, self.slots)
        flat = np.ascontiguousarray(rows.flat, dtype=np.int32)
        columns, values, starts, *state_after = _read(flat, rows.starts, *self.settings, *state, self.width, new)
        if new:
            keys, found, self.slots = state_after
            self._set(keys.copy(), found.copy())  # without the room that was left
        return Bags(columns, values, starts, self.width)

    def keep(self, kept: Array) -> None:
        """Drop columns; if an n-gram is dropped, all longer ones that begin with it must be dropped too."""
        places = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        stays = (self.columns < 0) | kept[np.maximum(self.columns, 0)]
        moved = np.concatenate(([0], np.cumsum(stays))).astype(np.uint64)
        before = (self.keys >> np.uint64(32)).astype(np.int64)
        paired = (self.keys & _PAIR) != 0
        renamed = moved[np.where(paired, 0, before)] << np.uint64(32) | (self.keys & np.uint64(0xFFFFFFFF))
        columns = self.columns[stays]
        columns = np.where(columns < 0, -1, places[np.maximum(columns, 0)]).astype(np.int32)
        self._restore(np.where(paired, self.keys, renamed)[stays], columns)

    def arrays(self) -> dict[str, Array]:
        return {"keys": self.keys, "columns": self.columns}

    def take(self, arrays: Arrays, below: int) -> None:
        """Restore from the arrays of a saved model, whose ids are below a number."""
        keys = arrays.take("keys", "u8", (None,))
        paired = keys >= _PAIR if self.settings[2] else np.zeros(len(keys), bool)
        _check_nodes(keys, paired, below)
        columns = arrays.ids("columns", keys.shape, len(keys), "i4", -1)
        self._restore(np.array(keys), np.array(columns))

    def _restore(self, keys: Array, columns: Array) -> None:
        self._set(keys, columns)
        self.slots = _slots(self.keys)

    def _set(self, keys: Array, columns: Array) -> None:
        self.keys, self.columns = keys, columns
        self.width = int(columns.max(initial=-1)) + 1

    def spell(self) -> list[tuple[int, ...]]:
        """Return the ids of each column; a pair has a -1 between its two."""
        nodes: list[tuple[int, ...]] = []
        out: list[tuple[int, ...]] = [()] * self.width
        for key, column in zip(self.keys.tolist(), self.columns.tolist(), strict=True):
            before, last = key >> 32, key & 0xFFFFFFFF
            ids = (before & 0x7FFFFFFF, -1, last) if key >> 63 else (*(nodes[before - 1] if before else ()), last)
            nodes.append(ids)
            if column >= 0:
                out[column] = ids
        return out


class Words:
    """Cuts text that comes as bytes (id = byte + 2) into letters and words; a word's id is its node in a trie."""

    def __init__(self, lowercase: bool, split: bool) -> None:
        """With `split`, words are also cut where letters and other signs meet (it's: it, 's)."""
        self.lowercase, self.split = lowercase, split
        self.keys = np.empty(0, np.uint64)
        self.slots = _slots(self.keys)

    def read(self, rows: Rows, new: bool) -> tuple[Rows, Rows]:
        """Return the rows as letters, with one space around each word, and as words."""
        codes, starts = _decode(np.ascontiguousarray(rows.flat, dtype=np.int32), rows.starts)
        lowered, kinds = self._tables(codes)
        letters, letter_starts = _tidy(codes, starts, lowered, kinds)
        words, word_starts, keys, slots = _words(letters, letter_starts, kinds, self.split, self.keys, self.slots, new)
        if new:
            self.keys, self.slots = keys.copy(), slots
        return Rows(letters, letter_starts), Rows(words, word_starts)

    def _tables(self, codes: Array) -> tuple[Array, Array]:
        """Tabulate the characters that occur: lower case, and whether each is a letter (1), a space (2) or else (0)."""
        met = np.zeros(0x110000, bool)
        met[codes] = True
        lowered, kinds = np.empty(0x110000, np.int32), np.empty(0x110000, np.uint8)
        for code in np.flatnonzero(met).tolist():
            letter = chr(code)
            low = letter.lower() if self.lowercase else letter
            lowered[code] = ord(low) if len(low) == 1 else code
            kinds[code] = 2 if letter.isspace() else int(letter.isalnum() or letter == "_" or not letter.isascii())
            kinds[lowered[code]] = kinds[code]
        kinds[BLANK] = 2
        return lowered, kinds

    def take(self, arrays: Arrays) -> None:
        """Restore from the arrays of a saved model."""
        keys = arrays.take("keys", "u8", (None,))
        _check_nodes(keys, np.zeros(len(keys), bool), CHARACTERS)
        self.keys = np.array(keys)
        self.slots = _slots(self.keys)

    def spell(self, word: int) -> str:
        letters = []
        while word:
            key = int(self.keys[word - 1])
            letters.append(chr(key & 0xFFFFFFFF))
            word = key >> 32
        return "".join(reversed(letters))


def one_below_the_other(above: Bags, below: Bags) -> Bags:
    """Stack the rows of both, over the same columns."""
    starts = np.concatenate((above.starts, above.starts[-1] + below.starts[1:]))
    columns, values = ((np.concatenate(pair)) for pair in zip(above[:2], below[:2], strict=True))
    return Bags(columns, values, starts, above.width)


def side_by_side(parts: list[Bags]) -> Bags:
    """Join bags of the same rows, the columns of each part after those of the one before."""
    if len(parts) == 1:
        return parts[0]
    starts = np.sum([part.starts for part in parts], axis=0)
    columns = np.empty(starts[-1], np.int32)
    values = np.empty(starts[-1], np.float32)
    filled, width = starts[:-1].copy(), 0
    for part in parts:
        _beside(part.columns, part.values, part.starts, width, columns, values, filled)
        width += part.width
    return Bags(columns, values, starts, width)


def _check_nodes(keys: Array, paired: Array, below: int) -> None:
    """Check the nodes of a trie: each follows one that stands before it, and its id is below a number."""
    before, last = keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)
    follows = np.where(paired, 0, before) <= np.arange(len(keys), dtype=np.uint64)
    first = before & np.uint64(0x7FFFFFFF)
    if not (follows.all() and (last < below).all() and (~paired | (first < below)).all()):
        raise ValueError("keys holds a node that follows none before it, or an id that there is not")


def _slots(keys: Array) -> Array:
    """An empty table of twice the room that the keys need, with the keys in it."""
    slots = np.full(1 << max(12, int(2 * len(keys)).bit_length() + 1), -1, np.int32)
    if not _place(keys, len(keys), slots):
        raise ValueError("keys holds a node twice")
    return slots


@njit(cache=True, nogil=True, inline="always")
def _mix(key):
    key = (key ^ (key >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return key ^ (key >> np.uint64(29))


@njit(cache=True, nogil=True)
def _place(keys, size, slots):
    """Put keys into an empty table; False if one is there twice."""
    mask = np.uint64(len(slots) - 1)
    for k in range(size):
        s = _mix(keys[k]) & mask
        while slots[s] >= 0:
            if keys[slots[s]] == keys[k]:
                return False
            s = (s + np.uint64(1)) & mask
        slots[s] = k
    return True


@njit(cache=True, nogil=True, inline="always")
def _find(key, keys, slots):
    """The slot where a key is, or where it would be."""
    mask = np.uint64(len(slots) - 1)
    s = _mix(key) & mask
    while slots[s] >= 0 and keys[slots[s]] != key:
        s = (s + np.uint64(1)) & mask
    return s


@njit(cache=True, nogil=True)
def _longer(numbers):
    out = np.empty(2 * len(numbers) + _ROOM, numbers.dtype)
    out[: len(numbers)] = numbers
    return out


@njit(cache=True, nogil=True)
def _roomier(keys, size):
    whole = _ROOM
    while whole < 8 * size:
        whole *= 2
    slots = np.full(whole, -1, np.int32)
    _place(keys, size, slots)
    return slots


@njit(cache=True, nogil=True)
def _read(flat, starts, shortest, longest, pairs, keys, columns, slots, width, new):
    """Every n-gram of every row; each row sorted by column, with its counts."""
    size = len(keys)
    out = np.empty(len(flat) + _ROOM, np.int32)
    counts = np.empty(len(flat) + _ROOM, np.float32)
    ends = np.zeros(len(starts), np.int64)
    row = np.empty(_ROOM, np.int32)
    found = 0
    for r in range(len(starts) - 1):
        n = 0
        for i in range(starts[r], starts[r + 1]):
            before = np.uint64(0)
            for k in range(longest + max(0, pairs - 1)):
                paired = k >= longest
                j = i + k - longest + 2 if paired else i + k
                if j >= starts[r + 1]:
                    if paired:
                        break
                    continue
                if paired:
                    key = _PAIR | (np.uint64(flat[i]) << np.uint64(32)) | np.uint64(flat[j])
                elif k and before == 0:
                    continue  # the shorter one was never seen
                else:
                    key = (before << np.uint64(32)) | np.uint64(flat[j])
                s = _find(key, keys, slots)
                node = slots[s]
                if node < 0:
                    if not new:
                        before = np.uint64(0)
                        continue
                    if size == len(keys):
                        keys, columns = _longer(keys), _longer(columns)
                    node = size
                    keys[node], columns[node] = key, -1
                    if paired or k + 1 >= shortest:
                        columns[node] = width
                        width += 1
                    slots[s] = node
                    size += 1
                    if 2 * size > len(slots):
                        slots = _roomier(keys, size)
                if not paired:
                    before = np.uint64(node + 1)
                if columns[node] >= 0:
                    if n == len(row):
                        row = _longer(row)
                    row[n] = columns[node]
                    n += 1
        while found + n > len(out):
            out, counts = _longer(out), _longer(counts)
        row[:n].sort()
        for i in range(n):
            if i and row[i] == row[i - 1]:
                counts[found - 1] += 1
            else:
                out[found], counts[found] = row[i], 1
                found += 1
        ends[r + 1] = found
    return out[:found], counts[:found], ends, keys[:size], columns[:size], slots


@njit(cache=True, nogil=True)
def _decode(flat, starts):
    """UTF-8 to characters; what is not UTF-8 is taken byte by byte."""
    codes = np.empty(len(flat), np.int32)
    ends = np.zeros(len(starts), np.int64)
    found = 0
    for r in range(len(starts) - 1):
        i = starts[r]
        while i < starts[r + 1]:
            lead = flat[i] - 2
            more = 3 if lead >= 0xF0 else 2 if lead >= 0xE0 else 1 if lead >= 0xC0 else 0
            code = lead & (0x3F >> more) if more else lead
            whole = i + more < starts[r + 1]
            for k in range(1, more + 1):
                whole = whole and ((flat[i + k] - 2) & 0xC0) == 0x80
                if whole:
                    code = (code << 6) | ((flat[i + k] - 2) & 0x3F)
            if not whole or code >= 0x110000 or lead < 0:
                code, more = max(0, lead) & 0xFF, 0
            codes[found] = code
            found += 1
            i += more + 1
        ends[r + 1] = found
    return codes[:found].copy(), ends


@njit(cache=True, nogil=True)
def _tidy(codes, starts, lowered, kinds):
    """One blank before, between and after words."""
    out = np.empty(len(codes) + 2 * len(starts), np.int32)
    ends = np.zeros(len(starts), np.int64)
    found = 0
    for r in range(len(starts) - 1):
        out[found] = BLANK
        found += 1
        for i in range(starts[r], starts[r + 1]):
            code = lowered[codes[i]]
            if kinds[code] == 2:
                if out[found - 1] == BLANK:
                    continue
                code = BLANK
            out[found] = code
            found += 1
        if out[found - 1] != BLANK:
            out[found] = BLANK
            found += 1
        ends[r + 1] = found
    return out[:found].copy(), ends


@njit(cache=True, nogil=True)
def _words(letters, starts, kinds, split, keys, slots, new):
    """Words between blanks, or, with `split`, runs of letters, an apostrophe with its letters, single signs."""
    size = len(keys)
    out = np.empty(len(letters), np.int32)
    ends = np.zeros(len(starts), np.int64)
    found = 0
    for r in range(len(starts) - 1):
        i = starts[r]
        while i < starts[r + 1]:
            if letters[i] == BLANK:
                i += 1
                continue
            before, known, first = np.uint64(0), True, i
            while i < starts[r + 1] and letters[i] != BLANK:
                if split and i > first:
                    goes_on = kinds[letters[i]] == 1 and (
                        kinds[letters[i - 1]] == 1 or (letters[i - 1] == 39 and i == first + 1)
                    )
                    if not goes_on:
                        break
                key = (before << np.uint64(32)) | np.uint64(letters[i])
                i += 1
                if not known:
                    continue
                s = _find(key, keys, slots)
                if slots[s] < 0:
                    if not new:
                        known = False
                        continue
                    if size == len(keys):
                        keys = _longer(keys)
                    keys[size] = key
                    slots[s] = size
                    before = np.uint64(size + 1)
                    size += 1
                    if 2 * size > len(slots):
                        slots = _roomier(keys, size)
                else:
                    before = np.uint64(slots[s] + 1)
            out[found] = np.int32(before) if known else 0
            found += 1
        ends[r + 1] = found
    return out[:found], ends, keys[:size], slots


@njit(cache=True, nogil=True)
def _beside(columns, values, starts, first, out_columns, out_values, filled):
    for r in range(len(starts) - 1):
        for i in range(starts[r], starts[r + 1]):
            out_columns[filled[r]] = columns[i] + first
            out_values[filled[r]] = values[i]
            filled[r] += 1

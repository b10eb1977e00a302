"""N-gram counts in hash tables, for contexts that mix words and classes: Kneser-Ney and a cache.

A part predicts one target from a root and a list of context symbols, the nearest first; level k is the root with the
first k symbols. Either the target is the class of the next word and the root is nothing, or the target is the word and
the root its class. The hash of a context at level k + 1 is that of level k mixed with one symbol more.

    Kneser-Ney   p_k(t) = (n_k(t) - D_k(n_k(t))) / N_k + (D_k(1)·n1 + D_k(2)·n2 + D_k(3)·n3) / N_k · p_{k-1}(t)

n_k(t) is how often t followed the context at the highest level, and at a lower level after how many different contexts
of one symbol more; N_k is the sum of n_k, and n1, n2, n3 are how many targets have n_k = 1, 2, 3 or more. A context
that was never seen leaves p as it is; below level 0 p is even. D are Chen and Goodman's three discounts of each level.

    Recent counts (a cache)   p_k(t) = (c_k(t) + p_{k-1}(t)) / (C_k + 1)

c_k(t) counts what was read, each time worth `decay` to the power of the tokens since; C_k is its sum.

What was counted in training is in a fixed table: the first bits of a hash are its bucket, of six n-grams or so, and 32
bits more are kept to tell these apart. With ten million n-grams, two share a hash in about one model of a hundred. What
is counted afterwards goes into a second table, which holds the differences and grows with the different n-grams that
are read. A pair of context and target adds one at the highest level; at the next level down only if it was
new at this one; and so on. That gives what counting both texts at once would give, with the discounts of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from segue.compiling import njit
from segue.ngrams.count import Array
from segue.ngrams.discounts import three_discounts
from segue.ngrams.model_file import Arrays
from segue.tokens.file_format import STOP

WORD, CLASS = 0, 1
"""What a symbol of a context is: the word so many places back, or its class."""
_BUCKET = 6
_LEAST = 1 << 10
"""Places of a table that begins to grow."""
_SEED = np.uint64(88172645463325252)


class Table(NamedTuple):
    """Numbers by hash, which no longer change."""

    shift: int
    """So many bits of a hash come after the first ones."""
    first: Array
    """Where each bucket begins. The bucket of a hash is its first bits."""
    keys: Array
    """The last 32 bits of each hash."""
    codes: Array
    """Its row in `rows`: few different rows are shared by very many."""
    rows: Array


_ARRAYS = Table._fields[1:]


class Added(NamedTuple):
    """Differences by hash (open addressing): a hash stands at its own place or at the next free one; 0 is free."""

    contexts: Array
    context_rows: Array
    """What is added to N, n1, n2, n3."""
    pairs: Array
    pair_rows: Array
    used: Array
    """Numbers of contexts and of pairs."""


@dataclass
class KneserNey:
    """One part, counted in training."""

    symbols: Array
    """(levels, 2): WORD or CLASS, and how many places back."""
    inside: bool
    """Whether the target is the word in its class, and not the class."""
    carry: bool
    """Whether context is carried over STOP."""
    base: Array
    """p of each target below level 0."""
    pairs: Table
    contexts: Table
    """With rows N, n1, n2, n3."""
    discounts: Array
    """(levels + 1, 4): what is taken from a count of 0, 1, 2, and 3 or more."""
    added: Added = field(default_factory=lambda: _nothing_added(1))

    @classmethod
    def count(
        cls,
        text: Array,
        skip: int,
        classes: Array,
        symbols: Array,
        inside: bool,
        carry: bool,
        base: Array,
        done: Callable[[float], None] = lambda share: None,
    ) -> KneserNey:
        """Count text[skip:], from the highest level down: one position of each different pair goes on to the next."""
        positions = np.arange(skip, len(text))
        pairs, counts, contexts, profiles, discounts = [], [], [], [], []
        for level in range(len(symbols), -1, -1):
            context, pair = _hash(text, positions, classes, symbols[:level], inside, carry)
            order = np.argsort(pair)
            begin = _begins(pair[order])
            count, order = np.diff(begin, append=len(order)), order[begin]
            positions, context = positions[order], context[order]
            pairs.append(pair[order])
            counts.append(count)
            discounts.append((0.0, *three_discounts(np.bincount(np.minimum(count, 5), minlength=6)[1:5])))
            order = np.argsort(context)
            context, count = context[order], count[order]
            begin = _begins(context)
            columns = (count, count == 1, count == 2, count >= 3)
            contexts.append(context[begin])
            profiles.append(np.stack([np.add.reduceat(c, begin, dtype=np.int64) for c in columns], axis=1))
            done((len(symbols) + 1 - level) / (len(symbols) + 1))
        return cls(
            symbols,
            inside,
            carry,
            base,
            _fixed_table(np.concatenate(pairs), np.concatenate(counts)[:, None]),
            _fixed_table(np.concatenate(contexts), np.concatenate(profiles)),
            np.array(discounts[::-1]),
        )

    def __len__(self) -> int:
        """Number of different n-grams counted in training, of all levels."""
        return len(self.pairs.keys)

    def going_on(self) -> KneserNey:
        """Return a copy that counts can be added to."""
        return replace(self, added=_nothing_added(_LEAST))

    def read(self, text: Array, skip: int, learn: int, targets: Array, classes: Array) -> Array:
        """p of targets[i], which follows text[skip + i]; 1 where it is negative. Each token from text[learn] is
        counted before the target that follows it."""
        added = self.added = _room(self.added, max(0, len(text) - learn) * (len(self.symbols) + 1))
        p = np.ones(len(targets))
        parts = (self.symbols, self.inside, self.carry, self.base)
        _read(text, skip, learn, targets, classes, *parts, *self._tables, added, p)
        return p

    def dense(self, text: Array, classes: Array, outcomes: Array) -> Array:
        """p of every outcome after a text, each in its place; outcomes of one class stand together."""
        p = np.empty(len(outcomes))
        parts = (self.symbols, self.inside, self.carry, self.base)
        _dense(text, outcomes, classes, *parts, *self._tables, self.added, p)
        return p

    @property
    def _tables(self) -> tuple[Table, Table, Array]:
        return self.pairs, self.contexts, self.discounts

    def arrays(self) -> dict[str, Array]:
        """Return the tables by name, to be saved."""
        tables = (("pairs", self.pairs), ("contexts", self.contexts))
        found = {f"{name}.{part}": getattr(table, part) for name, table in tables for part in _ARRAYS}
        return found | {"discounts": self.discounts}

    @classmethod
    def of_arrays(cls, arrays: Arrays, symbols: Array, inside: bool, carry: bool, base: Array) -> KneserNey:
        pairs, contexts = _table_of(arrays.part("pairs."), 1), _table_of(arrays.part("contexts."), 4)
        discounts = np.array(arrays.numbers("discounts", (len(symbols) + 1, 4), 0.0))
        if (discounts > np.arange(4)).any():
            raise ValueError("discounts holds one that is greater than its count")
        return cls(symbols, inside, carry, base, pairs, contexts, discounts)


@dataclass
class RecentCounts:
    """One part that knows only what it has read, the latest best."""

    symbols: Array
    inside: bool
    carry: bool
    base: Array
    """As those of KneserNey."""
    decay: float
    now: int = 0
    """Tokens read."""
    keys: Array = field(default_factory=lambda: np.zeros(_LEAST, np.uint64))
    mass: Array = field(default_factory=lambda: np.zeros((_LEAST, 2)))
    """The decayed count of each hash at its last update, and the time of that update."""
    used: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    def read(self, text: Array, skip: int, learn: int, targets: Array, classes: Array) -> Array:
        """As KneserNey.read."""
        more = 2 * max(0, len(text) - learn) * (len(self.symbols) + 1)
        self.keys, self.mass = _grown(self.keys, self.mass, int(self.used[0]) + more)
        p = np.ones(len(targets))
        parts = (self.symbols, self.inside, self.carry, self.base, self.decay, self.now)
        _recall(text, skip, learn, targets, classes, *parts, self.keys, self.mass, self.used, p)
        self.now += len(text) - skip
        return p

    def dense(self, text: Array, classes: Array, outcomes: Array) -> Array:
        """As KneserNey.dense."""
        p = np.empty(len(outcomes))
        parts = (self.symbols, self.inside, self.carry, self.base, self.decay, self.now)
        _recall_dense(text, outcomes, classes, *parts, self.keys, self.mass, p)
        return p


# Tables


def _begins(sorted_: Array) -> Array:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1])))


def _fixed_table(keys: Array, numbers: Array) -> Table:
    """The rows of numbers, each different one once, by hash."""
    codes = np.zeros(len(keys), np.int64)
    several = np.flatnonzero(numbers[:, 0] > 1)  # most are 1, and then the row is 1, or 1 1 0 0
    order = several[np.lexsort(numbers[several].T[::-1])]
    ordered = numbers[order]
    new = np.ones(len(order), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    codes[order] = np.cumsum(new)
    single = np.array([[1, 1, 0, 0]])[:, : numbers.shape[1]]
    rows = np.concatenate((single, ordered[new]))
    bits = max(1, (len(keys) // _BUCKET).bit_length())
    kind = np.uint16 if len(rows) <= 1 << 16 else np.uint32
    arrays = (*_deal(keys, codes.astype(kind), 64 - bits), rows)
    for array in arrays:
        array.flags.writeable = False  # as it is when mapped from a file: the loops are compiled once for both
    return Table(64 - bits, *arrays)


def _table_of(arrays: Arrays, width: int) -> Table:
    """The fixed table of a saved model, with rows of so many numbers."""
    rows = arrays.ids("rows", (None, width), 1 << 31, "i8")
    if (rows[:, 0] < np.maximum(1, rows[:, 1:] @ np.arange(1, width))).any():
        raise ValueError("rows holds a total that is less than its parts")
    keys = arrays.take("keys", "u4", (None,))
    codes = arrays.ids("codes", keys.shape, len(rows))
    buckets = len(arrays.take("first", "u4", (None,))) - 1
    if buckets < 2 or buckets & (buckets - 1):
        raise ValueError(f"first has {buckets} buckets, not a power of two")
    return Table(65 - buckets.bit_length(), arrays.offsets("first", buckets, len(keys)), keys, codes, rows)


def _nothing_added(size: int) -> Added:
    keys = (np.zeros(size, np.uint64) for _ in range(2))
    return Added(
        next(keys), np.zeros((size, 4), np.int32), next(keys), np.zeros((size, 1), np.int32), np.zeros(2, np.int64)
    )


def _room(added: Added, more: int) -> Added:
    """The table, with room for so many more."""
    if not more:
        return added
    contexts = _grown(added.contexts, added.context_rows, int(added.used[0]) + more)
    return Added(*contexts, *_grown(added.pairs, added.pair_rows, int(added.used[1]) + more), added.used)


def _grown(keys: Array, rows: Array, need: int) -> tuple[Array, Array]:
    """A table in which so many fill two thirds at the most."""
    size = 1 << (need * 3 // 2).bit_length()
    if size <= len(keys):
        return keys, rows
    new, new_rows = np.zeros(size, np.uint64), np.zeros((size, rows.shape[1]), rows.dtype)
    _move(keys, rows, new, new_rows)
    return new, new_rows


@njit(cache=True, nogil=True)
def _deal(keys, codes, shift):
    shift = np.uint64(shift)
    first = np.zeros(np.int64(np.uint64(0xFFFFFFFFFFFFFFFF) >> shift) + 2, np.uint32)
    for key in keys:
        first[np.int64(key >> shift) + 1] += np.uint32(1)
    for bucket in range(len(first) - 1):
        first[bucket + 1] += first[bucket]
    at = first[:-1].copy()
    out_keys, out_codes = np.empty(len(keys), np.uint32), np.empty_like(codes)
    for i in range(len(keys)):
        bucket = np.int64(keys[i] >> shift)
        place = at[bucket]
        at[bucket] += np.uint32(1)
        out_keys[place] = np.uint32(keys[i] & np.uint64(0xFFFFFFFF))
        out_codes[place] = codes[i]
    return first, out_keys, out_codes


@njit(cache=True, nogil=True)
def _move(keys, rows, new, new_rows):
    for i in range(len(keys)):
        if keys[i]:
            place = _slot(new, keys[i])
            new[place] = keys[i]
            new_rows[place] = rows[i]


@njit(cache=True, nogil=True)
def _slot(keys, key):
    """Find the slot of a hash, or the free slot where it would go."""
    mask = np.uint64(len(keys) - 1)
    place = key & mask
    while keys[place] != np.uint64(0) and keys[place] != key:
        place = (place + np.uint64(1)) & mask
    return np.int64(place)


@njit(cache=True, nogil=True)
def _find(table, key):
    """The row of a hash in a fixed table; -1 if it is not there."""
    bucket = np.int64(key >> np.uint64(table.shift))
    low = np.uint32(key & np.uint64(0xFFFFFFFF))
    for place in range(np.int64(table.first[bucket]), np.int64(table.first[bucket + 1])):
        if table.keys[place] == low:
            return np.int64(table.codes[place])
    return np.int64(-1)


# Hashes


@njit(cache=True, nogil=True)
def _mix(a, b):
    x = (a ^ (np.uint64(b) + np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(32))


@njit(cache=True, nogil=True)
def _pair(context, target):
    return _mix(context, np.uint64(target) + np.uint64(1 << 32))


@njit(cache=True, nogil=True)
def _chain(text, i, classes, root, symbols, carry, chain):
    """The hashes of the context before text[i], level by level. Before a STOP nothing is seen but STOPs, unless context
    is carried over it."""
    chain[0] = _mix(_SEED, np.uint64(root))
    begun = False
    for k in range(len(symbols)):
        symbol = np.int64(STOP) if begun else np.int64(text[i - symbols[k, 1]])
        begun = begun or (symbol == STOP and not carry)
        if symbols[k, 0] == CLASS:
            symbol = classes[symbol]
        chain[k + 1] = _mix(chain[k], np.uint64(symbol))


@njit(cache=True, nogil=True)
def _hash(text, positions, classes, symbols, inside, carry):
    """Hash, for each position, its whole context, and context and target together."""
    contexts, pairs = np.empty(len(positions), np.uint64), np.empty(len(positions), np.uint64)
    chain = np.empty(len(symbols) + 1, np.uint64)
    for n in range(len(positions)):
        i = positions[n]
        kind = classes[text[i]]
        _chain(text, i, classes, kind + 1 if inside else 0, symbols, carry, chain)
        contexts[n], pairs[n] = chain[-1], _pair(chain[-1], text[i] if inside else kind)
    return contexts, pairs


# Kneser-Ney


@njit(cache=True, nogil=True)
def _look(chain, contexts, discounts, added, total, kept):
    """N and the discounted mass of each level whose context was seen; how many levels there are."""
    for k in range(len(chain)):
        found, more = _find(contexts, chain[k]), _slot(added.contexts, chain[k])
        total[k], kept[k] = added.context_rows[more, 0], 0.0
        if found >= 0:
            total[k] += contexts.rows[found, 0]
        if total[k] == 0:
            return k
        for c in range(1, 4):
            number = added.context_rows[more, c]
            if found >= 0:
                number += contexts.rows[found, c]
            kept[k] += discounts[k, c] * number
    return len(chain)


@njit(cache=True, nogil=True)
def _seen(pairs, added, key):
    found, more = _find(pairs, key), _slot(added.pairs, key)
    count = added.pair_rows[more, 0]
    return count + pairs.rows[found, 0] if found >= 0 else count


@njit(cache=True, nogil=True)
def _probability(chain, levels, target, p, pairs, discounts, added, total, kept):
    for k in range(levels):
        count = _seen(pairs, added, _pair(chain[k], target))
        p = (count - discounts[k, min(count, 3)] + kept[k] * p) / total[k]
    return p


@njit(cache=True, nogil=True)
def _add(chain, target, pairs, added):
    for k in range(len(chain) - 1, -1, -1):
        key = _pair(chain[k], target)
        count = _seen(pairs, added, key)
        place, pair = _slot(added.contexts, chain[k]), _slot(added.pairs, key)
        added.used[0] += added.contexts[place] == 0
        added.used[1] += added.pairs[pair] == 0
        added.contexts[place], added.pairs[pair] = chain[k], key
        added.pair_rows[pair, 0] += 1
        row = added.context_rows[place]
        row[0] += 1
        if count < 3:
            row[count + 1] += 1
            if count:
                row[count] -= 1
        if count:
            return


@njit(cache=True, nogil=True)
def _read(text, skip, learn, targets, classes, symbols, inside, carry, base, pairs, contexts, discounts, added, p):
    chain = np.empty(len(symbols) + 1, np.uint64)
    total, kept = np.empty(len(chain)), np.empty(len(chain))
    for i in range(skip, len(text)):
        if i >= learn:
            kind = classes[text[i]]
            _chain(text, i, classes, kind + 1 if inside else 0, symbols, carry, chain)
            _add(chain, text[i] if inside else kind, pairs, added)
        if targets[i - skip] >= 0:
            kind = classes[targets[i - skip]]
            target = targets[i - skip] if inside else kind
            _chain(text, i + 1, classes, kind + 1 if inside else 0, symbols, carry, chain)
            levels = _look(chain, contexts, discounts, added, total, kept)
            p[i - skip] = _probability(chain, levels, target, base[target], pairs, discounts, added, total, kept)


@njit(cache=True, nogil=True)
def _dense(text, outcomes, classes, symbols, inside, carry, base, pairs, contexts, discounts, added, p):
    chain = np.empty(len(symbols) + 1, np.uint64)
    total, kept = np.empty(len(chain)), np.empty(len(chain))
    known, levels = -1, 0
    for target in outcomes:
        root = classes[target] + 1 if inside else 0
        if root != known:
            _chain(text, len(text), classes, root, symbols, carry, chain)
            levels = _look(chain, contexts, discounts, added, total, kept)
            known = root
        p[target] = _probability(chain, levels, target, base[target], pairs, discounts, added, total, kept)


# Recent counts


@njit(cache=True, nogil=True)
def _worth(keys, mass, key, decay, now):
    place = _slot(keys, key)
    return mass[place, 0] * decay ** (now - mass[place, 1])


@njit(cache=True, nogil=True)
def _touch(keys, mass, key, decay, now, used):
    place = _slot(keys, key)
    used[0] += keys[place] == 0
    keys[place] = key
    mass[place, 0] = mass[place, 0] * decay ** (now - mass[place, 1]) + 1
    mass[place, 1] = now


@njit(cache=True, nogil=True)
def _recent(chain, target, p, decay, now, keys, mass, total):
    for k in range(len(chain)):
        p = (_worth(keys, mass, _pair(chain[k], target), decay, now) + p) / (total[k] + 1)
    return p


@njit(cache=True, nogil=True)
def _recall(text, skip, learn, targets, classes, symbols, inside, carry, base, decay, now, keys, mass, used, p):
    chain = np.empty(len(symbols) + 1, np.uint64)
    total = np.empty(len(chain))
    for i in range(skip, len(text)):
        if i >= learn:
            kind = classes[text[i]]
            _chain(text, i, classes, kind + 1 if inside else 0, symbols, carry, chain)
            for k in range(len(chain)):
                _touch(keys, mass, chain[k], decay, now, used)
                _touch(keys, mass, _pair(chain[k], text[i] if inside else kind), decay, now, used)
        now += 1
        if targets[i - skip] >= 0:
            kind = classes[targets[i - skip]]
            target = targets[i - skip] if inside else kind
            _chain(text, i + 1, classes, kind + 1 if inside else 0, symbols, carry, chain)
            for k in range(len(chain)):
                total[k] = _worth(keys, mass, chain[k], decay, now)
            p[i - skip] = _recent(chain, target, base[target], decay, now, keys, mass, total)


@njit(cache=True, nogil=True)
def _recall_dense(text, outcomes, classes, symbols, inside, carry, base, decay, now, keys, mass, p):
    chain = np.empty(len(symbols) + 1, np.uint64)
    total = np.empty(len(chain))
    known = -1
    for target in outcomes:
        root = classes[target] + 1 if inside else 0
        if root != known:
            _chain(text, len(text), classes, root, symbols, carry, chain)
            for k in range(len(chain)):
                total[k] = _worth(keys, mass, chain[k], decay, now)
            known = root
        p[target] = _recent(chain, target, base[target], decay, now, keys, mass, total)

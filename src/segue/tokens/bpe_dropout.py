"""BPE-dropout (Provilkov et al. 2020): cut words into subwords at random, by skipping merges.

    pieces <- the bytes of the word
    repeat    of all neighbours that could be merged, drop each with probability p;
              merge those of the rest whose merge was learnt first (the leftmost of several); end if none is left

p = 0 is BPE itself, p = 1 leaves single bytes. A model that reads a word cut in many ways learns what its parts mean.
A draw follows from its key alone, so that it does not matter where and when it is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit
from segue.tokens.tokenizer import Ids, Tokenizer

Array = NDArray[Any]

NO_LIMIT = np.iinfo(np.int64).max
TRIES = 8
"""A row that is longer than it may be is drawn again; after so many times it gets the ids of BPE without dropout."""
_LONGEST = 512
"""Longer words, in bytes, keep the ids of BPE: the time of a draw grows with the square of a word's length."""
_NONE = 1 << 40
"""The rank of two neighbours that no merge joins."""
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31, _S32 = (np.uint64(bits) for bits in (11, 27, 30, 31, 32))


class BpeDropout:
    """Draws other ids for the same text; for tokens of kind bpe."""

    def __init__(self, tokenizer: Tokenizer, share: float) -> None:
        """`share`: the probability with which a merge is skipped."""
        model, self.share = tokenizer.content["model"], share
        vocab: dict[str, int] = model["vocab"]
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        left, right = (np.array([vocab[pair[side]] for pair in pairs], np.int64) for side in (0, 1))
        self.products = np.array([vocab["".join(pair)] for pair in pairs], np.int64)
        self.pairs = left << 32 | right
        self.slots = np.full(4 << max(4, len(pairs).bit_length()), -1, np.int64)
        _fill(self.pairs, self.slots)
        single = np.zeros(256, np.int64)
        spelled = [tokenizer.bytes_of(i) for i in range(tokenizer.vocab_size)]
        for i, letters in enumerate(spelled):
            if i > tokenizer.unk and len(letters) == 1:
                single[letters[0]] = i
        self.letters = single[np.frombuffer(b"".join(spelled), np.uint8)]
        """The single bytes, as ids, of all tokens: those of token i are letters[ends[i]:ends[i + 1]]."""
        self.ends = np.concatenate([[0], np.cumsum([len(letters) for letters in spelled])])

    def draw(self, ids: Array, begins: Array, ends: Array, keys: Array, rooms: Array) -> tuple[Ids, Array]:
        """Draw new ids for rows, and return them with the new ends. Row i is ids[ends[i - 1]:ends[i]]; `begins` is 1
        where a word begins; keys[i] decides the draw, which has at most rooms[i] ids if BPE's own have no more."""
        ids = ids.astype(np.int64)
        out = np.empty(int(np.diff(self.ends)[ids].sum()), np.int32)
        tables = (self.letters, self.ends, self.slots, self.pairs, self.products)
        ends = _draw(ids, begins, ends, keys, rooms, *tables, self.share, out)
        return out[: ends[-1] if len(ends) else 0], ends


@njit(cache=True, nogil=True)
def _mix(x: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@njit(cache=True, nogil=True)
def _fill(pairs: Array, slots: Array) -> None:
    """Put the number of each pair of neighbours, its rank, into a hash table; the first of two equal pairs counts."""
    for rank in range(len(pairs)):
        if _rank(pairs[rank], slots, pairs) < _NONE:
            continue
        slot = int(_mix(np.uint64(pairs[rank])) >> _S32) % len(slots)
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = rank


@njit(cache=True, nogil=True)
def _rank(pair: int, slots: Array, pairs: Array) -> int:
    slot = int(_mix(np.uint64(pair)) >> _S32) % len(slots)
    while slots[slot] >= 0:
        if pairs[slots[slot]] == pair:
            return int(slots[slot])
        slot = (slot + 1) % len(slots)
    return _NONE


@njit(cache=True, nogil=True)
def _merge(
    pieces: Array, ranks: Array, slots: Array, pairs: Array, products: Array, share: float, state: np.uint64
) -> tuple[int, np.uint64]:
    """Merge the bytes of a word in place; return how many pieces it has, and the state of the random numbers."""
    size = len(pieces)
    for i in range(size - 1):
        ranks[i] = _rank(np.int64(pieces[i]) << 32 | np.int64(pieces[i + 1]), slots, pairs)
    while True:
        best, at = _NONE, -1
        for i in range(size - 1):
            if ranks[i] < best:  # whether a later merge is dropped does not matter
                state = state + _GOLDEN
                if (_mix(state) >> _S11) * 2.0**-53 >= share:
                    best, at = ranks[i], i
        if at < 0:
            return size, state
        pieces[at] = products[best]
        size -= 1
        for i in range(at + 1, size):
            pieces[i], ranks[i - 1] = pieces[i + 1], ranks[i]
        for i in (at - 1, at):
            if 0 <= i < size - 1:
                ranks[i] = _rank(np.int64(pieces[i]) << 32 | np.int64(pieces[i + 1]), slots, pairs)


@njit(cache=True, nogil=True)
def _draw(
    ids: Array,
    begins: Array,
    ends: Array,
    keys: Array,
    rooms: Array,
    letters: Array,
    letter_ends: Array,
    slots: Array,
    pairs: Array,
    products: Array,
    share: float,
    out: Array,
) -> Array:
    ranks, new_ends = np.empty(_LONGEST, np.int64), np.empty_like(ends)
    first = 0
    for row in range(len(ends)):
        begin, end, state = ends[row - 1] if row else 0, ends[row], keys[row]
        for attempt in range(TRIES + 1):
            place, word = first, begin
            while word < end:
                behind, size = word, 0
                while behind < end and (behind == word or not begins[behind]):
                    size += letter_ends[ids[behind] + 1] - letter_ends[ids[behind]]
                    behind += 1
                if size > _LONGEST or attempt == TRIES:
                    size = behind - word
                    out[place : place + size] = ids[word:behind]
                else:
                    at = place
                    for i in range(word, behind):
                        for letter in range(letter_ends[ids[i]], letter_ends[ids[i] + 1]):
                            out[at] = letters[letter]
                            at += 1
                    size, state = _merge(out[place:at], ranks, slots, pairs, products, share, state)
                place, word = place + size, behind
            if place - first <= rooms[row]:
                break
        first = place
        new_ends[row] = first
    return new_ends

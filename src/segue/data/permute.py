"""A pseudo-random permutation without memory: a keyed bijection of 0 … n - 1, computed for any index directly.

An index is written as two digits, i = left·b + right with left < a and right < b, where a·b is the least such product
that reaches n. A Feistel network turns the digits in rounds, each digit shifted by a hash of the other:

    left  <- (left  + hash(right, key_1)) mod a
    right <- (right + hash(left,  key_2)) mod b        and so on

Every round can be undone, so the whole is a bijection of 0 … a·b - 1. An image of n or more goes through again until it
falls below n (cycle walking), which keeps it a bijection of 0 … n - 1; since a·b is just above n this is rare.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from math import isqrt
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
SMALL = 256
"""Up to this n the indices are sorted by their hashes: two digits of few values each would mix too little."""

_U64 = np.uint64


@overload
def permute(index: int, n: int, key: tuple[int, ...]) -> int: ...
@overload
def permute(index: NDArray[Any], n: int, key: tuple[int, ...]) -> NDArray[np.int64]: ...


def permute(index: int | NDArray[Any], n: int, key: tuple[int, ...]) -> int | NDArray[np.int64]:
    """Return where the shuffle of range(n) with this key puts `index`."""
    indices = np.atleast_1d(np.asarray(index, dtype=np.int64))
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        raise ValueError(f"an index is outside range({n})")
    images = _sorted_by_hash(n, key)[indices] if n <= SMALL else _walk(indices.astype(_U64), n, key)
    return images if isinstance(index, np.ndarray) else int(images[0])


@lru_cache(maxsize=64)
def _round_keys(n: int, key: tuple[int, ...]) -> tuple[np.uint64, ...]:
    digest = hashlib.blake2b(repr((n, *map(int, key))).encode(), digest_size=8 * ROUNDS).digest()
    return tuple(np.frombuffer(digest, dtype="<u8").astype(_U64))


@lru_cache(maxsize=64)
def _sorted_by_hash(n: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    first, second, *_ = _round_keys(n, key)
    hashes = mix(mix(np.arange(n, dtype=_U64) ^ first) ^ second)
    return np.argsort(hashes, kind="stable").astype(np.int64)


def _walk(indices: NDArray[np.uint64], n: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    keys = _round_keys(n, key)
    images = _feistel(indices, a, b, keys)
    outside = np.flatnonzero(images >= n)
    while outside.size:
        images[outside] = _feistel(images[outside], a, b, keys)
        outside = outside[images[outside] >= n]
    return images.astype(np.int64)


def _feistel(indices: NDArray[np.uint64], a: int, b: int, keys: tuple[np.uint64, ...]) -> NDArray[np.uint64]:
    left, right = np.divmod(indices, _U64(b))
    for number, key in enumerate(keys):
        if number % 2 == 0:
            left = _shift(left, right, key, _U64(a))
        else:
            right = _shift(right, left, key, _U64(b))
    return left * _U64(b) + right


def _shift(digit: NDArray[np.uint64], other: NDArray[np.uint64], key: np.uint64, size: np.uint64) -> NDArray[np.uint64]:
    """(digit + hash(other)) mod size; the hash is brought below `size` by a product, which is faster than division."""
    shifted = digit + ((mix(other ^ key) >> _U64(32)) * size >> _U64(32))
    return np.where(shifted >= size, shifted - size, shifted)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit touches every output bit."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return x ^ (x >> _U64(31))

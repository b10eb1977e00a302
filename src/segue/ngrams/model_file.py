"""The file of a counted model, model.safetensors: write its arrays; take them back, each checked against its bounds.

Compiled loops index one array by the numbers of another and do not look at bounds: a damaged or foreign file would make
them read and write anywhere. So a model's `load` takes every array through `Arrays`, which says what is wrong by a
ValueError: another type or shape, an id beyond the table that it points into, offsets that fall, a number that is NaN
or infinite. Every array is read once, about as fast as memory gives it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from segue.ngrams.count import Array, forget

_PIECE = 1 << 22
"""Look at this many numbers at a time where a check needs memory of its own."""
Shape = tuple[int | None, ...]
"""The expected shape; None: any size."""


class Arrays:
    """The arrays of a file, or those whose names begin with a prefix."""

    def __init__(self, found: dict[str, Array]) -> None:
        self.found = found

    @classmethod
    def of(cls, path: Path) -> Arrays:
        """Map the arrays of a safetensors file into memory."""
        return cls(_mapped(path))

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def part(self, prefix: str) -> Arrays:
        """Return the arrays whose names begin with this, by the rest of their names."""
        return Arrays({name[len(prefix) :]: one for name, one in self.found.items() if name.startswith(prefix)})

    def take(self, name: str, kinds: str, shape: Shape) -> Array:
        """Return an array of one of these types (`u2 u4`, as numpy calls them) and of this shape."""
        if name not in self.found:
            raise ValueError(f"{name} is missing")
        array = self.found[name]
        if array.dtype.str[1:] not in kinds.split():
            raise ValueError(f"{name} holds numbers of type {array.dtype}, not {' or '.join(kinds.split())}")
        if array.ndim != len(shape) or any(b not in (a, None) for a, b in zip(array.shape, shape, strict=True)):
            expected = tuple("any" if size is None else size for size in shape)
            raise ValueError(f"{name} has the shape {array.shape}, not {expected}")
        return array

    def text(self, name: str) -> bytes:
        """Return the bytes of a file that is kept in the model file."""
        return bytes(self.take(name, "u1", (None,)).tobytes())

    def numbers(self, name: str, shape: Shape, least: float = -math.inf, most: float = math.inf) -> Array:
        """Return an array of numbers between `least` and `most`, none of them NaN or infinite."""
        array = self.take(name, "f4 f8", shape)
        # A NaN makes both the least and the greatest NaN, and NaN compares false.
        if array.size and not max(least, -_GREATEST) <= float(array.min()) <= float(array.max()) <= min(
            most, _GREATEST
        ):
            raise ValueError(f"{name} holds a number that is NaN, infinite or out of range")
        return array

    def logs(self, name: str, shape: Shape, most: float = math.inf) -> Array:
        """Return an array of logarithms: as `numbers`, but that of 0 may be there, minus infinity."""
        array = self.take(name, "f4 f8", shape)
        if array.size and not float(array.max()) <= min(most, _GREATEST):
            raise ValueError(f"{name} holds a number that is NaN, infinite or above {most:g}")
        return array

    def ids(self, name: str, shape: Shape, below: int, kinds: str = "u2 u4", least: int = 0) -> Array:
        """Return an array of whole numbers from `least` to `below` - 1."""
        array = self.take(name, kinds, shape)
        if array.size and not least <= int(array.min()) <= int(array.max()) < below:
            raise ValueError(f"{name} holds a number that is not between {least} and {below - 1}")
        return array

    def offsets(self, name: str, size: int, into: int, kinds: str = "u4") -> Array:
        """Return where each of `size` parts of another array begins, and where the last ends: 0 … `into`."""
        array = self.take(name, kinds, (size + 1,))
        falls = any(
            (array[i + 1 : i + 1 + _PIECE] < array[i : i + _PIECE][: len(array) - 1 - i]).any()
            for i in range(0, size, _PIECE)
        )
        if falls or int(array[0]) != 0 or int(array[-1]) != into:
            raise ValueError(f"{name} does not divide {into} numbers into {size} parts")
        return array


_GREATEST = float(np.finfo(np.float64).max)


def check_marked(name: str, counts: Array, mark: int, places: Array) -> None:
    """Check that `places` are just those where `counts` is `mark`, in order."""
    found = [np.flatnonzero(counts[i : i + _PIECE] == mark) + i for i in range(0, len(counts), _PIECE)]
    if not np.array_equal(np.concatenate([np.empty(0, np.int64), *found]), places):
        raise ValueError(f"{name} does not name the places of the large counts")


# On disk


def write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write a safetensors file array by array: the widest numbers first, so that all are aligned in memory."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    place = 0
    for name in names:
        array = arrays[name]
        size = array.size * array.itemsize
        header[name] = {
            "dtype": _DTYPES[array.dtype.str[1:]],
            "shape": list(array.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            flat = arrays[name].reshape(-1)
            for begin in range(0, len(flat), 1 << 24):
                np.ascontiguousarray(flat[begin : begin + (1 << 24)]).tofile(file)
            forget(arrays[name])


_DTYPES = {"u1": "U8", "u2": "U16", "u4": "U32", "i4": "I32", "u8": "U64", "i8": "I64", "f4": "F32", "f8": "F64"}


def _mapped(path: Path) -> dict[str, Array]:
    """Map the arrays of a safetensors file into memory; ValueError if the file is not whole."""
    kinds = {name: np.dtype(kind) for kind, name in _DTYPES.items()}
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= size - 8:
            raise ValueError("its header is not whole")
        header = json.loads(file.read(length))
    begin = 8 + length
    bytes_ = np.memmap(path, np.uint8, "r", offset=0)
    arrays = {}
    for name, facts in header.items():
        if name == "__metadata__":  # other writers may leave one
            continue
        kind, (low, high) = kinds[facts["dtype"]], facts["data_offsets"]
        whole = 0 <= low <= high <= size - begin and all(length >= 0 for length in facts["shape"])
        if not whole or math.prod(facts["shape"]) * kind.itemsize != high - low:
            raise ValueError(f"{name} is not whole")
        if (begin + low) % kind.itemsize:
            raise ValueError(f"{name} is not aligned")
        arrays[name] = bytes_[begin + low : begin + high].view(kind).reshape(facts["shape"])
    return arrays

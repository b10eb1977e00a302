"""Read a data frame by the interchange protocol of data frames (`__dataframe__`), which pandas, Arrow and others have.

https://data-apis.org/dataframe-protocol. None of them is imported here: a column gives the addresses of its buffers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import InputError

_NUMBERS = {0: "i", 1: "u", 2: "f"}
_BOOL, _STRING, _CATEGORY = 20, 21, 23
_SENTINEL, _BITS, _BYTES = 2, 3, 4
_CPU = 1


def frame_rows(frame: Any) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the names of the columns that hold texts, numbers or categories, and the rows; a missing value is None."""
    table = frame.__dataframe__()
    names = [name for name in table.column_names() if _readable(table.get_column_by_name(name))]
    if not names:
        raise InputError(f"The {type(frame).__name__} has no column of texts or numbers. Expected a column of texts.")
    return [str(name) for name in names], _rows(table, names)


def _readable(column: Any) -> bool:
    return int(column.dtype[0]) in (*_NUMBERS, _BOOL, _STRING, _CATEGORY)


def _rows(table: Any, names: list[Any]) -> Iterator[tuple[Any, ...]]:
    for chunk in table.get_chunks():
        yield from zip(*(_values(chunk.get_column_by_name(name)) for name in names), strict=True)


def _values(column: Any) -> list[Any]:
    """Return the values of one column of a chunk."""
    kind, begin, end = int(column.dtype[0]), int(column.offset), int(column.offset) + int(column.size())
    buffers = column.get_buffers()
    if kind == _STRING:
        data = _bytes(buffers["data"][0])
        bounds = _numbers(*buffers["offsets"])[begin : end + 1].tolist()
        values: list[Any] = [data[a:b] for a, b in pairwise(bounds)]
        known = _known(column, buffers, begin, end)
        return [
            text.decode("utf-8", "surrogatepass") if there else None for text, there in zip(values, known, strict=True)
        ]
    if kind == _CATEGORY:
        names = _values(column.describe_categorical["categories"])
        codes = _numbers(*buffers["data"])[begin:end].tolist()
        known = _known(column, buffers, begin, end)
        return [names[code] if there and code >= 0 else None for code, there in zip(codes, known, strict=True)]
    numbers = _numbers(*buffers["data"])[begin:end]
    numbers = numbers.astype(bool) if kind == _BOOL else numbers
    known = _known(column, buffers, begin, end)
    return [value if there else None for value, there in zip(numbers.tolist(), known, strict=True)]


def _known(column: Any, buffers: Any, begin: int, end: int) -> list[bool]:
    """Return which values are there."""
    kind, missing = column.describe_null
    if int(kind) in (_BITS, _BYTES) and buffers["validity"] is not None:
        buffer, dtype = buffers["validity"]
        if int(kind) == _BITS:
            flags = np.unpackbits(np.frombuffer(_bytes(buffer), np.uint8), bitorder="little")[begin:end]
        else:
            flags = _numbers(buffer, dtype)[begin:end]
        return [bool(flag != missing) for flag in flags]
    if int(kind) == _SENTINEL:
        return [bool(value != missing) for value in _numbers(*buffers["data"])[begin:end]]
    return [True] * (end - begin)  # none is missing, or NaN says so itself


def _numbers(buffer: Any, dtype: Any) -> NDArray[Any]:
    kind, bits = int(dtype[0]), int(dtype[1])
    raw = _bytes(buffer)
    if kind == _BOOL and bits == 1:
        return np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    return np.frombuffer(raw, np.dtype(f"{_NUMBERS.get(kind, 'u')}{bits // 8}"))


def _bytes(buffer: Any) -> bytes:
    if int(buffer.__dlpack_device__()[0]) != _CPU:
        raise InputError("The data frame is on a GPU. Expected one in the memory of the CPU.")
    return ctypes.string_at(buffer.ptr, buffer.bufsize) if buffer.bufsize else b""

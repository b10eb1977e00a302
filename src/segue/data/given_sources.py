"""Sounds and pictures that the caller gives in Python: names of files, their bytes, or arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from segue.data.media import is_path, media_among, media_of
from segue.data.tables import PEEKED_ROWS
from segue.errors import InputError
from segue.output.png import data_uri, png
from segue.output.wav import wav


def named(given: Any, rate: int) -> Any:
    """Return the name of what is given: a path, or a data URI of a file's bytes, of samples at `rate` or of pixels (H,
    W, 3). A text stays as it is."""
    if isinstance(given, np.ndarray):
        given = _file_of(given, rate)
    if isinstance(given, bytes):
        return data_uri(given, "audio/wav" if given[:4] == b"RIFF" else "image/png")
    return str(given) if isinstance(given, Path) else given


def _file_of(array: Any, rate: int) -> bytes:
    if array.ndim == 1 and np.issubdtype(array.dtype, np.floating):
        return wav(array, rate)
    try:
        return png(array)
    except ValueError as error:
        raise InputError(f"An array is a sound, floats from -1 to 1 of one axis, or a picture; {error}.") from None


def with_whole_paths(rows: Iterator[Any], rate: int) -> Iterator[Any]:
    """Name what rows of pairs give, by whole paths, since the rows are written to a file in another folder. Texts that
    look like names are texts, unless most of the first rows have one."""
    head = [_mapped(row, rate, False) for row in islice(rows, PEEKED_ROWS)]
    named_ones = media_among([_first_name(row) for row in head]) is not None
    return (_mapped(row, rate, named_ones) for row in chain(head, rows))


def _first_name(row: Any) -> str:
    """The first cell of a row that names a sound or a picture, or some other cell."""
    texts = [value for value in _values(row) if isinstance(value, str)]
    return next((text for text in texts if media_of(text)), "-")


def _values(row: Any) -> list[Any]:
    return list(row.values()) if isinstance(row, Mapping) else list(row[:1]) if isinstance(row, list | tuple) else []


def _mapped(row: Any, rate: int, whole: bool) -> Any:
    def one(value: Any) -> Any:
        name = named(value, rate) if isinstance(value, bytes | Path | np.ndarray) else value
        return (
            str(Path(name).resolve()) if whole and isinstance(name, str) and media_of(name) and is_path(name) else name
        )

    if isinstance(row, Mapping):
        return {key: one(value) for key, value in row.items()}
    return (one(row[0]), *row[1:]) if isinstance(row, list | tuple) and row else row

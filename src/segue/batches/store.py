"""The corpus as ids on disk, mapped into memory: written once, streaming, read at any place.

A store is a folder of columns. A column is one flat file of numbers and, where it has rows, a file of their ends.
Running text has the column `text` alone: w1 … wn STOP w1 …; several corpora of it are the rows of `text`, with a
`weight` each; rows have `text` and `label`, or `text` and `tags`, or `source` and `text`, and for BPE-dropout
`text_begins`, 1 where a word begins. A `source` of sound or pictures has frames of several numbers each.
`complete.json` is written last: without it a store does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

BEGINS = "_begins"
"""Behind the name of a column of ids: the column that has 1 where a word begins."""


class Column(NamedTuple):
    """Numbers end to end; row i is flat[ends[i - 1]:ends[i]]. Of frames, each of `width` numbers, lengths and ends
    count frames, and a row is a matrix of them."""

    flat: NDArray[Any]
    ends: NDArray[np.int64]
    width: int = 1

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Column:
        """Make a column of rows that are in memory."""
        flat = np.concatenate([np.ravel(row) for row in rows]) if len(rows) else np.empty(0, np.int64)
        return cls(flat, np.cumsum([np.size(row) for row in rows], dtype=np.int64))

    def row(self, i: int) -> NDArray[Any]:
        return self._frames[self.ends[i - 1] if i else 0 : self.ends[i]]

    @property
    def _frames(self) -> NDArray[Any]:
        return self.flat if self.width == 1 else self.flat.reshape(-1, self.width)

    def rows(self, limit: int | None = None) -> list[NDArray[Any]]:
        """List all rows, each cut at `limit`."""
        return [self.row(i)[:limit] for i in range(len(self))]

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every row."""
        return np.diff(self.ends, prepend=0)

    def take(self, rows: NDArray[np.int64], most: int = 0) -> Column:
        """Copy the given rows, in the given order, into a new column; of frames, the first `most` of each (0: all)."""
        begins = np.where(rows > 0, self.ends[rows - 1], 0)
        lengths = self.ends[rows] - begins
        if most and self.width > 1:  # half an hour of sound has 58 MB
            lengths = np.minimum(lengths, most)
        ends = np.cumsum(lengths, dtype=np.int64)
        places = np.arange(lengths.sum()) + np.repeat(begins + lengths - ends, lengths)
        return Column(np.asarray(self._frames[places]).reshape(-1), ends, self.width)


Columns = dict[str, Column]
"""Columns of the same rows, by name: `text` and `label`, `text` and `tags`, `source` and `text`."""


def columns_of(**rows: Sequence[Any]) -> Columns:
    """Make columns of rows that are in memory."""
    return {name: Column.of(some) for name, some in rows.items()}


class Store:
    """The columns of a folder, opened for reading."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: Columns = {}
        for name, facts in json.loads((folder / "complete.json").read_text()).items():
            flat = _map(folder / f"{name}.ids", np.dtype(facts["dtype"]))
            ends = _map(folder / f"{name}.ends", np.dtype(np.int64))
            self.columns[name] = Column(flat, ends, facts.get("width", 1))

    @property
    def tokens(self) -> NDArray[Any]:
        """The ids of the text, end to end."""
        return self.columns["text"].flat

    def __len__(self) -> int:
        return len(self.columns["text"])

    def take(self, rows: NDArray[np.int64], most: int = 0) -> Columns:
        """Copy the given rows of every column; of frames, the first `most` of each row (0: all)."""
        return {name: column.take(rows, most) for name, column in self.columns.items()}


class StoreWriter:
    """Appends rows to the columns of a new store."""

    def __init__(self, folder: Path, dtypes: dict[str, str], widths: dict[str, int] | None = None) -> None:
        """`widths`: numbers in a frame, of columns that have frames."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.dtypes, self.widths = folder, dtypes, widths or {}
        self.sizes = dict.fromkeys(dtypes, 0)
        (folder / "complete.json").unlink(missing_ok=True)
        self.files: dict[str, tuple[BinaryIO, BinaryIO]] = {
            name: ((folder / f"{name}.ids").open("wb"), (folder / f"{name}.ends").open("wb")) for name in dtypes
        }

    def append(self, name: str, flat: NDArray[Any], lengths: NDArray[Any] | None = None) -> None:
        """Append numbers to a column, and the lengths of the rows in them where it has rows."""
        ids, ends = self.files[name]
        flat.astype(self.dtypes[name], copy=False).tofile(ids)
        if lengths is not None:
            (np.cumsum(lengths, dtype=np.int64) + self.sizes[name]).tofile(ends)
        self.sizes[name] += len(flat) // self.widths.get(name, 1)

    def close(self) -> Store:
        for pair in self.files.values():
            for file in pair:
                file.close()
        facts: dict[str, dict[str, Any]] = {
            name: {"dtype": dtype, "size": self.sizes[name]} for name, dtype in self.dtypes.items()
        }
        for name, width in self.widths.items():
            facts[name]["width"] = width
        (self.folder / "complete.json").write_text(json.dumps(facts))
        return Store(self.folder)


def id_dtype(vocab_size: int) -> str:
    """Choose the smallest type that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def _map(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")

"""The corpus as ids on disk, mapped into memory: written once, streaming, read at any place.

A store is a folder of columns. A column is one flat file of numbers and, where it has rows, a file of
their ends. Running text has the column `text` alone: w1 … wn STOP w1 …; several corpora of it are the
rows of `text`, with a `weight` each; rows have `text` and `label`, or `text` and `tags`, or `source` and
`text`. `complete.json` is written last: without it a store does not exist.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Column(NamedTuple):
    """Numbers end to end; row i is flat[ends[i - 1]:ends[i]]."""

    flat: NDArray[Any]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def row(self, i: int) -> NDArray[Any]:
        return self.flat[self.ends[i - 1] if i else 0 : self.ends[i]]

    def lengths(self) -> NDArray[np.int64]:
        """The length of every row."""
        return np.diff(self.ends, prepend=0)


class Store:
    """The columns of a folder, opened for reading."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: dict[str, Column] = {}
        for name, facts in json.loads((folder / "complete.json").read_text()).items():
            flat = _map(folder / f"{name}.ids", np.dtype(facts["dtype"]))
            self.columns[name] = Column(flat, _map(folder / f"{name}.ends", np.dtype(np.int64)))

    @property
    def tokens(self) -> NDArray[Any]:
        """The ids of the text, end to end."""
        return self.columns["text"].flat

    def __len__(self) -> int:
        return len(self.columns["text"])


class StoreWriter:
    """Appends rows to the columns of a new store."""

    def __init__(self, folder: Path, dtypes: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.dtypes = folder, dtypes
        self.sizes = dict.fromkeys(dtypes, 0)
        (folder / "complete.json").unlink(missing_ok=True)
        self.files: dict[str, tuple[BinaryIO, BinaryIO]] = {
            name: ((folder / f"{name}.ids").open("wb"), (folder / f"{name}.ends").open("wb")) for name in dtypes
        }

    def append(self, name: str, flat: NDArray[Any], lengths: NDArray[Any] | None = None) -> None:
        """Numbers for a column, and the lengths of the rows in them where it has rows."""
        ids, ends = self.files[name]
        flat.astype(self.dtypes[name], copy=False).tofile(ids)
        if lengths is not None:
            (np.cumsum(lengths, dtype=np.int64) + self.sizes[name]).tofile(ends)
        self.sizes[name] += len(flat)

    def close(self) -> Store:
        for pair in self.files.values():
            for file in pair:
                file.close()
        facts = {name: {"dtype": dtype, "size": self.sizes[name]} for name, dtype in self.dtypes.items()}
        (self.folder / "complete.json").write_text(json.dumps(facts))
        return Store(self.folder)


def id_dtype(vocab_size: int) -> str:
    """The smallest type that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def _map(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")

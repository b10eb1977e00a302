"""Data frames by the interchange protocol: texts, numbers, categories, missing values, slices and chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.data.dataframe import frame_rows

TEXT, CATEGORY, INT, DATE = 21, 23, 0, 22


class Buffer:
    def __init__(self, values: Any, device: int = 1) -> None:
        self.array, self.device = np.ascontiguousarray(values), device
        self.ptr, self.bufsize = self.array.ctypes.data, self.array.nbytes

    def __dlpack_device__(self) -> tuple[int, None]:
        return self.device, None


class Column:
    """A column as the protocol describes it: buffers, an offset into them, and which values are missing."""

    def __init__(self, kind: int, buffers: dict[str, Any], size: int, null: Any = (0, None), **more: Any) -> None:
        self.dtype, self.buffers, self._size, self.describe_null = (kind, 8, "", "="), buffers, size, null
        self.offset = more.get("offset", 0)
        self.describe_categorical = {"categories": more.get("categories")}

    def size(self) -> int:
        return self._size

    def get_buffers(self) -> dict[str, Any]:
        return {"validity": None, "offsets": None, **self.buffers}


def texts(values: list[str | None], offset: int = 0, device: int = 1) -> Column:
    """Strings with a validity of bits; the first `offset` are of another slice."""
    raw = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *map(len, raw)]).astype(np.int64)
    bits = np.packbits([value is not None for value in values], bitorder="little")
    buffers = {
        "data": (Buffer(np.frombuffer(b"".join(raw), np.uint8), device), (1, 8, "", "=")),
        "offsets": (Buffer(ends), (0, 64, "", "=")),
        "validity": (Buffer(bits), (20, 1, "", "=")),
    }
    return Column(TEXT, buffers, len(values) - offset, (3, 0), offset=offset)


def numbers(values: list[int], kind: int = INT, **more: Any) -> Column:
    return Column(kind, {"data": (Buffer(np.array(values, np.int8)), (0, 8, "", "="))}, len(values), **more)


class Frame:
    def __init__(self, *chunks: dict[str, Column]) -> None:
        self.chunks = chunks

    def __dataframe__(self) -> Frame:
        return self

    def column_names(self) -> list[str]:
        return list(self.chunks[0])

    def get_column_by_name(self, name: str) -> Column:
        return self.chunks[0][name]

    def get_chunks(self) -> list[Frame]:
        return [Frame(chunk) for chunk in self.chunks]


def test_every_kind_of_column() -> None:
    frame = Frame(
        {
            "label": numbers([0, 1, -1], CATEGORY, categories=texts(["good", "bad"]), null=(2, -1)),
            "text": texts(["other slice", "ein schöner Film", None, ""], offset=1),
            "stars": numbers([5, 1, 3], null=(2, 3)),
            "date": numbers([1, 2, 3], DATE),
        }
    )
    names, rows = frame_rows(frame)
    assert names == ["label", "text", "stars"]
    assert list(rows) == [("good", "ein schöner Film", 5), ("bad", None, 1), (None, "", None)]


def test_a_frame_on_a_gpu_is_refused() -> None:
    with pytest.raises(segue.InputError, match="on a GPU"):
        list(frame_rows(Frame({"text": texts(["a"], device=2)}))[1])


def test_a_frame_is_trained_on_and_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chunk = {"sentiment": texts(["good", "bad"] * 10), "review": texts(["a fine film", "a dull film"] * 10)}
    run = segue.train("naive_bayes", Frame(chunk, chunk), progress=segue.silent)
    assert run.labels == ("bad", "good")
    assert [answer.label for answer in run.predict(Frame({"review": texts(["dull", "fine"])}))] == ["bad", "good"]

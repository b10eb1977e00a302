"""The store: what is written comes back, mapped into memory, and only when it is whole."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.store import Column, Store, StoreWriter, columns_of, id_dtype

rows_of_ids = st.lists(st.lists(st.integers(0, 65_535), max_size=6), max_size=8)


def write(folder: Path, columns: dict[str, list[list[int]]], dtype: str = "uint16", group: int = 1) -> Store:
    """Each column's rows, appended `group` at a time."""
    writer = StoreWriter(folder, dict.fromkeys(columns, dtype))
    for name, rows in columns.items():
        for first in range(0, len(rows), group):
            some = rows[first : first + group]
            writer.append(name, np.array([*chain(*some)], np.int64), np.array([len(row) for row in some]))
    return writer.close()


@settings(deadline=None, max_examples=40)
@given(text=rows_of_ids, tags=rows_of_ids, group=st.integers(1, 4))
def test_every_column_comes_back(text, tags, group, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("store")
    write(folder, {"text": text, "tags": tags}, group=group)
    store = Store(folder)
    assert len(store) == len(text)
    for name, rows in {"text": text, "tags": tags}.items():
        column = store.columns[name]
        assert [column.row(i).tolist() for i in range(len(column))] == rows
        assert column.lengths().tolist() == [len(row) for row in rows]
    assert store.tokens.tolist() == [*chain(*text)]


def test_it_is_mapped_not_read(tmp_path: Path) -> None:
    store = write(tmp_path, {"text": [[1, 2, 3]]})
    assert isinstance(store.tokens, np.memmap)
    assert isinstance(store.columns["text"].ends, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        store.tokens[0] = 5


def test_a_column_may_be_empty(tmp_path: Path) -> None:
    store = write(tmp_path, {"text": [], "source": [[], []]})
    assert len(store) == 0
    assert store.tokens.tolist() == []
    assert [store.columns["source"].row(i).tolist() for i in range(2)] == [[], []]


def test_running_text_needs_no_rows(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, {"text": "uint16"})
    writer.append("text", np.array([4, 5]))
    writer.append("text", np.array([6]))
    assert writer.sizes == {"text": 3}
    assert writer.close().tokens.tolist() == [4, 5, 6]


def test_without_complete_json_it_does_not_exist(tmp_path: Path) -> None:
    write(tmp_path, {"text": [[1, 2]]})
    (tmp_path / "complete.json").unlink()
    with pytest.raises(FileNotFoundError):
        Store(tmp_path)


def test_a_store_that_is_being_written_again_does_not_exist(tmp_path: Path) -> None:
    write(tmp_path, {"text": [[1, 2]]})
    writer = StoreWriter(tmp_path, {"text": "uint16"})
    with pytest.raises(FileNotFoundError):
        Store(tmp_path)
    writer.append("text", np.array([9]), np.array([1]))
    assert writer.close().tokens.tolist() == [9]


@pytest.mark.parametrize("vocabulary", [2, 65_535, 65_536, 65_537, 1 << 20])
def test_the_type_holds_every_id_and_is_small(vocabulary: int, tmp_path: Path) -> None:
    dtype = id_dtype(vocabulary)
    last = vocabulary - 1
    assert np.iinfo(dtype).max >= last
    assert np.dtype(dtype).itemsize == (2 if last < 1 << 16 else 4)
    assert write(tmp_path, {"text": [[last]]}, dtype).tokens.tolist() == [last]


@given(
    rows=st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=8),
    chosen=st.lists(st.integers(0, 7), max_size=12),
)
def test_taken_rows_are_the_rows(rows: list[list[int]], chosen: list[int]) -> None:
    column = Column.of([np.array(row, np.uint16) for row in rows])
    places = np.array([place % len(rows) for place in chosen], np.int64)
    taken = column.take(places)
    assert [row.tolist() for row in taken.rows()] == [rows[place] for place in places]
    assert [row.tolist() for row in taken.rows(2)] == [rows[place][:2] for place in places]
    assert taken.flat.dtype == np.uint16 and taken.lengths().tolist() == [len(rows[place]) for place in places]


def test_columns_are_taken_together(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, {"text": "uint16", "label": "int32"})
    writer.append("text", np.array([5, 6, 7]), np.array([2, 1]))
    writer.append("label", np.array([3, 4]), np.ones(2))
    found, expected = writer.close().take(np.array([1, 0])), columns_of(text=[[7], [5, 6]], label=[4, 3])
    for name, column in expected.items():
        assert [row.tolist() for row in found[name].rows()] == [row.tolist() for row in column.rows()]

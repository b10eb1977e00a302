"""The arrays of a model file are refused where a compiled loop would leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segue.ngrams.model_file import Arrays, check_marked, write_arrays


def arrays(**found: Any) -> Arrays:
    return Arrays({name: np.asarray(array) for name, array in found.items()})


def test_what_is_written_is_taken_back(tmp_path: Path) -> None:
    written = {"a": np.arange(5, dtype=np.uint16), "b": np.ones((2, 3)), "c": np.zeros(0, np.float32)}
    write_arrays(tmp_path / "x", written)
    found = Arrays.of(tmp_path / "x")
    assert found.ids("a", (5,), 5).tolist() == [0, 1, 2, 3, 4] and found.numbers("c", (0,)).size == 0
    assert np.array_equal(found.numbers("b", (2, None), 1.0, 1.0), written["b"])


@pytest.mark.parametrize(
    ("offsets", "shape"), [([-8, 0], [1]), ([0, 80], [10]), ([0, 16], [1]), ([16, 8], [-1]), ([4, 12], [1])]
)
def test_places_outside_the_file_are_refused(tmp_path: Path, offsets: list[int], shape: list[int]) -> None:
    header = json.dumps({"a": {"dtype": "F64", "shape": shape, "data_offsets": offsets}}).encode()
    header += b" " * (-len(header) % 8)
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(ValueError, match="is not"):
        Arrays.of(tmp_path / "x")


def test_types_and_shapes() -> None:
    found = arrays(a=np.zeros((2, 3), np.uint32))
    for kinds, shape in (("u2", (2, 3)), ("u4", (3, 2)), ("u4", (2, 3, 1)), ("f4", (None, None))):
        with pytest.raises(ValueError, match=r"a ha|a ho"):
            found.take("a", kinds, shape)
    with pytest.raises(ValueError, match="b is missing"):
        found.take("b", "u4", (None,))


def test_numbers_are_finite_and_in_range() -> None:
    for bad in (np.nan, np.inf, -np.inf, -0.5, 1.5):
        for place in range(3):
            values = np.full(3, 0.5)
            values[place] = bad
            with pytest.raises(ValueError, match="NaN, infinite"):
                arrays(a=values).numbers("a", (3,), 0.0, 1.0)
    assert arrays(a=[0.0, -np.inf]).logs("a", (2,), 0.0)[1] == -np.inf
    for bad in (np.nan, np.inf, 0.5):
        with pytest.raises(ValueError, match="NaN, infinite"):
            arrays(a=[-1.0, bad]).logs("a", (2,), 0.0)


def test_ids_and_offsets_stay_inside() -> None:
    with pytest.raises(ValueError, match="not between 0 and 6"):
        arrays(a=np.array([0, 7], np.uint16)).ids("a", (2,), 7)
    with pytest.raises(ValueError, match="not between -1 and 6"):
        arrays(a=np.array([0, -2], np.int32)).ids("a", (2,), 7, "i4", -1)
    good = np.array([0, 2, 2, 5], np.uint32)
    assert arrays(a=good).offsets("a", 3, 5).tolist() == [0, 2, 2, 5]
    for bad, size, into in (([0, 3, 2, 5], 3, 5), ([1, 2, 2, 5], 3, 5), ([0, 2, 2, 4], 3, 5), ([0, 2, 5], 3, 5)):
        with pytest.raises(ValueError, match="a "):
            arrays(a=np.array(bad, np.uint32)).offsets("a", size, into)


def test_large_counts_are_where_they_are_said_to_be() -> None:
    counts = np.array([1, 255, 3, 255], np.uint8)
    check_marked("more", counts, 255, np.array([1, 3], np.uint32))
    for places in ([1], [1, 2], [3, 1], []):
        with pytest.raises(ValueError, match="more"):
            check_marked("more", counts, 255, np.array(places, np.uint32))

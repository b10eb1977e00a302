from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.data.permute import permute

keys = st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=3).map(tuple)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 3000), key=keys)
def test_it_is_a_bijection_of_range_n(n: int, key: tuple[int, ...]) -> None:
    images = permute(np.arange(n), n, key)
    assert np.array_equal(np.sort(images), np.arange(n))


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 2**50), key=keys, data=st.data())
def test_one_index_is_the_same_as_many(n: int, key: tuple[int, ...], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5))
    together = permute(np.array(some), n, key)
    assert together.tolist() == [permute(i, n, key) for i in some]
    assert all(0 <= image < n for image in together.tolist())
    assert len(set(together.tolist())) == len(set(some))


@pytest.mark.parametrize("n", [5, 100, 257, 5000])
def test_every_place_is_equally_likely(n: int) -> None:
    """Over 4,000 keys, the image of one index is uniform: chi-square over five bins, 1 in 10,000 (4 degrees: 23.5)."""
    images = np.array([permute(n // 2, n, (key,)) for key in range(4000)])
    bins = np.bincount(images * 5 // n, minlength=5)
    expected = np.bincount(np.arange(n) * 5 // n, minlength=5) * 4000 / n
    assert ((bins - expected) ** 2 / expected).sum() < 23.5


def test_neighbours_are_torn_apart_and_keys_differ() -> None:
    n = 100_000
    a, b = (permute(np.arange(n), n, (0, epoch)) for epoch in (0, 1))
    for x, y in ((a, b), (a[:-1], a[1:]), (a, np.arange(n))):
        assert abs(np.corrcoef(x, y)[0, 1]) < 0.02
    assert (a == b).mean() < 0.001


def test_an_index_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        permute(10, 10, (0,))

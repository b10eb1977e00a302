"""Windows of a file, and the batches of a window."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.data.example import Example
from segue.inference import by_length
from segue.inference.by_length import batches_by_length, by_tokens, windows


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 100), st.integers(1, 20))
def test_every_row_is_in_one_batch_within_its_limits(lengths: list[int], tokens: int, rows: int) -> None:
    batches = list(by_tokens(lengths, tokens, rows))
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= rows
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= tokens
    order = [lengths[place] for batch in batches for place in batch]
    assert order == sorted(order, reverse=True)
    assert all(len(batch).bit_count() == 1 for batch in batches[:-1])


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 100))
def test_rows_of_one_length_stand_together(lengths: list[int], tokens: int) -> None:
    batches = list(batches_by_length(lengths, tokens))
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    order = [lengths[place] for batch in batches for place in batch]
    assert order == sorted(order, reverse=True)
    for batch in batches:
        longest = max(1, lengths[batch[0]])
        assert len(batch) == 1 or len(batch) * longest <= tokens
        mixed = [place for place in batch if lengths[place] < lengths[batch[0]]]
        one_length = (len(batch) - len(mixed)) * longest
        assert not mixed or 4 * one_length < tokens  # a batch of a quarter of the tokens takes no shorter row


@given(st.integers(0, 70), st.integers(1, 9))
def test_windows_are_the_file_in_its_order(rows: int, first: int) -> None:
    found = list(windows((Example(text=str(i)) for i in range(rows)), first))
    assert [example.text for _, window in found for example in window] == [str(i) for i in range(rows)]
    assert all(int(window[0].text) == number for number, window in found)
    sizes = [len(window) for _, window in found]
    assert sizes[:-1] == [first * 2**i for i in range(len(sizes) - 1)]


def test_a_window_of_long_lines_has_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_length, "_CHARACTERS", 100)
    sizes = [len(window) for _, window in windows([Example(text="x" * 40)] * 10, 8)]
    assert sizes == [3, 3, 3, 1]

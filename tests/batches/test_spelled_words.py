"""Words as letters: kept in a row with a 0 after each, laid out side by side."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from segue.batches.spelled_words import LONGEST, pad_letters, spelt
from segue.batches.store import columns_of
from segue.tasks.tag import TASK

WORDS = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=6)


def back(chars: np.ndarray) -> list[str]:
    """Words again, from their letters."""
    return ["".join(chr(c - 1) for c in word if c) for word in chars.tolist()]


def test_letters_are_code_points_plus_one() -> None:
    assert spelt(["aé", "", "😀"]).tolist() == [ord("a") + 1, ord("é") + 1, 0, 0, ord("😀") + 1, 0]
    assert spelt([]).tolist() == []


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 7))
def test_rows_come_back(rows: list[list[str]], words: int) -> None:
    chars = pad_letters([spelt(row) for row in rows], words)
    kept = [row[:words] for row in rows]
    assert chars.shape == (len(rows), words, max([1, *(len(w) for row in kept for w in row)]))
    for row, found in zip(kept, chars, strict=True):
        assert back(found) == row + [""] * (words - len(row))


def test_of_a_long_word_both_ends_are_kept() -> None:
    half = LONGEST // 2
    word = "https://" + "x" * 100 + "/page.html"
    (found,) = back(pad_letters([spelt([word])], 1)[0])
    assert len(found) == LONGEST and found[:half] == word[:half] and found[half:] == word[-half:]
    exactly = "y" * LONGEST
    assert back(pad_letters([spelt([exactly])], 1)[0]) == [exactly]


def test_a_batch_has_the_letters_beside_its_tokens() -> None:
    batch = TASK.collate(
        columns_of(
            text=[np.array([5, 6]), np.array([7])],
            tags=[np.array([1, 0]), np.array([2])],
            letters=[spelt(["ab", "c"]), spelt(["def"])],
        ),
        9999,
    )
    assert batch.chars_BTC.shape == (2, 2, 3)
    assert [back(row) for row in batch.chars_BTC] == [["ab", "c"], ["def", ""]]
    assert batch.to("cpu").chars_BTC.tolist() == batch.chars_BTC.tolist()
    assert batch.rows([1]).chars_BTC.shape == (1, 2, 3)

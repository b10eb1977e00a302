"""The letters of words, for models that look inside them.

A letter is its Unicode code point plus 1, so that 0 is free to stand after the last letter of a word: there is no
vocabulary of letters, and none is unknown. In the store a sentence is the letters of its words, a 0 after each word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 32
"""Letters kept of a word. A longer word, mostly a web address, keeps half of them from its beginning, half its end."""


def spelt(words: Sequence[str]) -> NDArray[np.uint32]:
    """Write the letters of the words one after the other, 0 after each."""
    half = LONGEST // 2
    kept = [word if len(word) <= LONGEST else word[:half] + word[-half:] for word in words]
    points = np.frombuffer("".join(kept).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(word) + 1 for word in kept], dtype=np.int64) - 1
    letters = np.zeros(len(points) + len(kept), np.uint32)
    real = np.ones(len(letters), bool)
    real[ends] = False
    letters[real] = points + 1
    return letters


def pad_letters(rows: Sequence[NDArray[Any]], words: int) -> NDArray[np.int64]:
    """Stack rows of `spelt` words, padded, into (rows, words, letters of the longest word); cut rows at `words`."""
    flat = np.concatenate([np.empty(0, np.uint32), *rows])
    lengths = np.diff(np.flatnonzero(flat == 0), prepend=-1)  # the 0 included
    counts = np.array([(row == 0).sum() for row in rows], np.int64)
    row_of = np.repeat(np.arange(len(rows)), counts)
    word_of = np.arange(len(lengths)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    real = (flat > 0) & np.repeat(word_of < words, lengths)
    row, word = np.repeat(row_of, lengths)[real], np.repeat(word_of, lengths)[real]
    chars = np.zeros((len(rows), words, 1 + int(place[real].max(initial=0))), np.int64)
    chars[row, word, place[real]] = flat[real]
    return chars

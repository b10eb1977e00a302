"""The letters of words, for models that look inside them.

A letter is its Unicode code point plus 1, so that 0 is free to stand after the last letter of a word: there is no
vocabulary of letters, and none is unknown. In the store a sentence is the letters of its words, a 0 after each word.

Of a model that knows the letters of its vocabulary (ELMo), only those of unknown words are kept: of rows, the letters
of the unknown words of each; of running text, those of every unknown word, and the places where they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.store import Column, Columns
from segue.tokens.file_format import UNK

if TYPE_CHECKING:
    from segue.tokens.tokenizer import Tokenizer

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


def number_unknown(ids: NDArray[Any], first: int) -> NDArray[np.int64]:
    """Give every unknown token a number of its own from `first` on, so that it is known again after rows are cut."""
    unknown = ids == UNK
    return np.where(unknown, first + np.cumsum(unknown) - 1, ids)


def unknown_words(texts: Iterable[str], tokenizer: Tokenizer) -> list[str]:
    """List the unknown words of texts, in order."""
    return [word for text in texts for word in tokenizer.unknown_names(text, tokenizer.encode(text))]


def take_letters(text: Column, words: Sequence[str], first: int) -> tuple[Column, Column]:
    """Make numbered tokens unknown again; return the column of ids, and for each row the letters of its unknown words,
    in order, 0 after each."""
    rows = [spelt([words[i - first] for i in row[row >= first].tolist()]) for row in text.rows()]
    letters = Column.of(rows)
    ids = np.where(text.flat >= first, UNK, text.flat)
    return Column(ids, text.ends), Column(letters.flat.astype(np.uint32), letters.ends)


def place_letters(unknown_BT: NDArray[np.bool_], rows: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Put the letters of each row's unknown words, as `take_letters` gives them, where its tokens are unknown."""
    chars_BTC = np.zeros((*unknown_BT.shape, LONGEST), np.int64)
    counts = unknown_BT.sum(1)
    laid = pad_letters(rows, max(1, int(counts.max(initial=0))))
    for row, count in enumerate(counts.tolist()):
        places = np.flatnonzero(unknown_BT[row])
        chars_BTC[row, places, : laid.shape[2]] = laid[row, :count]
    return chars_BTC


class UnknownWords(NamedTuple):
    """The letters of the unknown words of a running text, by their places."""

    places: NDArray[np.int64]
    """Where the unknown words stand, in order."""
    letters: Column
    """Row i: the letters of the one at places[i]."""
    begin: int = 0
    """The place that counts as the first."""

    @classmethod
    def of(cls, columns: Columns) -> UnknownWords | None:
        """The unknown words of a store; None: they were not kept."""
        return cls(columns["unknown"].flat, columns["letters"]) if "letters" in columns else None

    @classmethod
    def of_text(cls, tokenizer: Tokenizer, text: str, ids: NDArray[Any]) -> UnknownWords:
        """The unknown words of one text, `ids = tokenizer.encode(text)`."""
        return cls(np.flatnonzero(ids == UNK), word_column(tokenizer.unknown_names(text, ids)))

    def after(self, begin: int) -> UnknownWords:
        """The same for a text that begins at this place."""
        return self._replace(begin=self.begin + begin)

    def chars(self, places_BT: NDArray[np.int64], unknown_BT: NDArray[np.bool_]) -> NDArray[np.int64]:
        """chars_BTC of the tokens at some places; 0 where a token is not unknown."""
        chars_BTC = np.zeros((*unknown_BT.shape, LONGEST), np.int64)
        found = np.searchsorted(self.places, places_BT[unknown_BT] + self.begin)
        some = self.letters.take(found)
        lengths = some.lengths()
        place = np.arange(len(some.flat)) - np.repeat(some.ends - lengths, lengths)
        laid = np.zeros((len(found), LONGEST), np.int64)
        laid[np.repeat(np.arange(len(found)), lengths), place] = some.flat
        chars_BTC[unknown_BT] = laid
        return chars_BTC


def word_column(words: Sequence[str]) -> Column:
    """The letters of words, a row each."""
    flat = spelt(words)
    ends = np.flatnonzero(flat == 0)
    return Column(flat[flat > 0], ends - np.arange(len(ends)))

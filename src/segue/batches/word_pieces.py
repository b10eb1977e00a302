"""Words by their pieces: how a body that reads subwords, characters or bytes is given words that have a tag each.

A row is the pieces of all words, framed (start … STOP), and the place of each word in it: that of its first piece, as
BERT has it, or of its last piece where the body is causal, since the first one has not seen the rest of the word.

A sentence with more pieces than the body sees is read in windows. Each has as many whole words as fit. The next one
begins so that the two overlap by about a quarter, by whole words; a word that stands in both belongs to the one where
it is farther from the edge, since there it has more context.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.batches.spelled_words import number_unknown, place_letters, take_letters
from segue.batches.store import Column, Columns, id_dtype
from segue.tokens.file_format import UNK


def encode_pieces(
    sentences: Sequence[Sequence[str]], codec: Codec, window: int, last: bool
) -> tuple[Columns, NDArray[np.int64]]:
    """Encode sentences as rows of at most `window` places. Columns: `text`, the framed pieces; `firsts`, the place of
    each word, that of its `last` piece or of its first; `own`, 1 for a word that belongs to this row and 0 for one that
    is only context here; `letters`, those of the unknown pieces of each row, if the model reads them. Return also which
    word each of them is, counted over all sentences."""
    room, start = window - codec.sizes.frame_places(1), codec.sizes.before
    words = [word for sentence in sentences for word in sentence]
    encoded, lengths = codec.tokenizer.encode_words(words)
    ids: NDArray[Any] = number_unknown(encoded, codec.sizes.ids) if codec.letters else encoded
    ends = np.cumsum([0, *lengths])
    text, firsts, own, numbers = list[Any](), list[Any](), list[Any](), list[Any]()
    for before, end in pairwise(np.cumsum([0, *map(len, sentences)]).tolist()):
        for one in word_windows(lengths[before:end], room):
            word = np.arange(before + one.first, before + one.after)
            begin = ends[before + one.first]
            text.append(codec.frame(ids[begin : ends[before + one.after]])[0])
            # Of a word that is longer than the window, `collate` cuts the end.
            places = ends[word + 1] - begin - 1 if last else ends[word] - begin
            firsts.append(np.minimum(places + start, room - 1 + start))
            own.append((word >= before + one.own_first) & (word < before + one.own_after))
            numbers.append(word)
    columns = {"text": (text, id_dtype(codec.sizes.ids)), "firsts": (firsts, "uint32"), "own": (own, "uint8")}
    made = {name: (Column.of(rows), dtype) for name, (rows, dtype) in columns.items()}
    if codec.letters:
        unknown = [name for word in words for name in codec.tokenizer.unknown_in(word)]
        ids_column, letters = take_letters(made["text"][0], unknown, codec.sizes.ids)
        made |= {"text": (ids_column, made["text"][1]), "letters": (letters, "uint32")}
    return {n: Column(c.flat.astype(dtype), c.ends) for n, (c, dtype) in made.items()}, np.concatenate(numbers)


def collate_pieces(columns: Columns, limit: int, tags: Sequence[NDArray[Any]] | None) -> Batch:
    """Make a batch of such rows, each cut at `limit`. `tags`: of each row the tag of every word, or (words, C), 0 or 1
    for every tag. A word that belongs to another window has no target here."""
    text = columns["text"].rows(limit)
    firsts = [row[row < limit] for row in columns["firsts"].rows()]
    firsts_BW = pad(firsts, IGNORE)
    targets = np.full_like(firsts_BW, IGNORE)
    if tags is not None:
        targets = pad([row[: len(places)] for row, places in zip(tags, firsts, strict=True)], IGNORE)
        own = [row[: len(places)] for row, places in zip(columns["own"].rows(), firsts, strict=True)]
        targets[pad(own) == 0] = IGNORE
    hidden = columns.get("hidden")
    tokens_BT, chars_BTC = pad(text), None
    if "letters" in columns and hidden is None:
        chars_BTC = place_letters(tokens_BT == UNK, columns["letters"].rows())
    hidden_BND = None if hidden is None else pad(hidden.rows(), dtype=np.float32)
    given: dict[str, Any] = {"firsts_BW": firsts_BW, "hidden_BND": hidden_BND, "chars_BTC": chars_BTC}
    return Batch(tokens_BT, targets, mask_of(text), **given)


class Window(NamedTuple):
    """The words first … after - 1, of which own_first … own_after - 1 belong to this window."""

    first: int
    after: int
    own_first: int
    own_after: int


def word_windows(lengths: NDArray[Any], room: int) -> list[Window]:
    """Cut a sentence into windows of at most `room` pieces; `lengths`: the pieces of each word. A word with more pieces
    than that is a window by itself. Every word belongs to exactly one window."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if ends[-1] <= room:
        return [Window(0, len(lengths), 0, len(lengths))]
    spans = _spans(ends, room)
    borders = [0, *(_border(ends, right[0], left[1]) for left, right in pairwise(spans)), len(lengths)]
    return [Window(*span, *own) for span, own in zip(spans, pairwise(borders), strict=True)]


def _spans(ends: NDArray[Any], room: int) -> list[tuple[int, int]]:
    """The first word of each window, and the word after its last. `ends[i]`: the pieces before word i."""
    spans, first, words = list[tuple[int, int]](), 0, len(ends) - 1
    while True:
        after = max(first + 1, int(np.searchsorted(ends, ends[first] + room, "right")) - 1)
        spans.append((first, after))
        if after == words:
            return spans
        # The overlap is at least a quarter, but leaves room for the next word: else no window would reach it.
        wanted = int(np.searchsorted(ends, ends[after] - room // 4, "right")) - 1
        needed = int(np.searchsorted(ends, ends[after + 1] - room))
        first = max(first + 1, min(after, max(wanted, needed)))


def _border(ends: NDArray[Any], first: int, after: int) -> int:
    """The first word that belongs to the right one of two windows, which share the words first … after - 1: the one
    whose middle is beyond the middle of what they share."""
    middles = (ends[first:after] + ends[first + 1 : after + 1]) / 2
    return first + int(np.searchsorted(middles, (ends[first] + ends[after]) / 2, "right"))

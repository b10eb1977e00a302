"""Framed texts, as a body reads them: start text STOP, or start text STOP text STOP.

A text, or a pair, that is longer than the body's window is read in several windows, each of exactly the window's
length, which overlap by a quarter or more, so that nothing is cut. The row in the store is its windows end to end; a
row of one window is as long as its text. Of a pair, the longer text is cut into parts, and the shorter too if it takes
more than half of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.codec import Sizes
from segue.batches.spelled_words import number_unknown, take_letters, unknown_words
from segue.batches.store import Column, Columns, id_dtype
from segue.data.example import Example
from segue.tokens.tokenizer import Tokenizer

Ids = NDArray[np.integer[Any]]


def encode_framed(
    group: Sequence[Example], tokenizer: Tokenizer, sizes: Sizes, pairs: bool, letters: bool = False
) -> Columns:
    """Encode texts, or pairs of them, as framed rows, and of pairs the segment of each token. `letters`: also those of
    the unknown words of each row."""
    sides = [[tokenizer.row(example.text) for example in group]]
    sides += [[tokenizer.row(example.target) for example in group]] if pairs else []
    encoded, lengths = tokenizer.encode_many([text for side in sides for text in side])
    flat: Ids = number_unknown(encoded, sizes.ids) if letters else encoded
    texts = np.split(flat, np.cumsum(lengths)[:-1])
    firsts, seconds = texts[: len(group)], texts[len(group) :] if pairs else [None] * len(group)
    rows = [in_windows(sizes, first, second) for first, second in zip(firsts, seconds, strict=True)]
    ends = np.cumsum([len(ids) for ids, _ in rows], dtype=np.int64)
    columns = {"text": Column(np.concatenate([ids for ids, _ in rows]), ends)}
    if letters:
        words = unknown_words([text for side in sides for text in side], tokenizer)
        columns["text"], columns["letters"] = take_letters(columns["text"], words, sizes.ids)
    columns["text"] = Column(columns["text"].flat.astype(id_dtype(sizes.ids)), ends)
    if pairs:
        columns["segments"] = Column(np.concatenate([segments for _, segments in rows]).astype(np.uint8), ends)
    return columns


def in_windows(sizes: Sizes, first: Ids, second: Ids | None = None) -> tuple[Ids, Ids]:
    """Frame a text or a pair; return ids and segments, of all its windows end to end."""
    texts = [first] if second is None else [first, second]
    room = sizes.window - sizes.frame_places(len(texts))
    if not sizes.window or sum(map(len, texts)) <= room:
        return sizes.framed(first, second)
    shorter = min(min(map(len, texts)), room // 2) if second is not None else 0
    longest = int(np.argmax([len(text) for text in texts]))
    parts = [room - shorter if i == longest else shorter for i in range(len(texts))]
    count = max(_count(len(text), part) for text, part in zip(texts, parts, strict=True))
    windows = [
        sizes.framed(*(_part(text, part, i, count) for text, part in zip(texts, parts, strict=True)))
        for i in range(count)
    ]
    return np.concatenate([ids for ids, _ in windows]), np.concatenate([segments for _, segments in windows])


def _count(length: int, part: int) -> int:
    """Count the parts of a text that overlap by a quarter or more."""
    return 1 if length <= part else 1 + -(-(length - part) // max(1, part - -(-part // 4)))


def _part(text: Ids, part: int, i: int, count: int) -> Ids:
    """Take part i of a text: the first begins at its beginning, the last ends at its end."""
    begin = (len(text) - part) * i // max(1, count - 1)
    return text[begin : begin + part]


def parts_of(length: int, part: int) -> list[int]:
    """Return where the parts of a text begin that have `part` tokens each and overlap by a quarter or more."""
    count = _count(length, part)
    return [(length - part) * i // max(1, count - 1) if count > 1 else 0 for i in range(count)]

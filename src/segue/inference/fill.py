"""Fill the holes of a text with a masked language model: "Paris is the [MASK] of France."

[MASK] or <mask> stands for one token. Each hole is filled by itself, given the text and with the other holes hidden; or
all of them together, the surest first, then the others again given that one. A text longer than the model's window is
read once for each hole, in a window around it. A model that learnt from hidden spans fills a hole with any number of
tokens (fill_spans.py).

Where tokens hold the blank in front of a word (bpe, unigram, word, sentencepiece), a hole takes the blank before it:
"the [MASK] of" is read as "the", a hole, " of", and " capital" fills it. So does RoBERTa. "un[MASK]able" has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.codec import Codec
from segue.batches.collate import mask_of, pad
from segue.data.example import Example
from segue.data.units import tidy
from segue.errors import InputError
from segue.inference.by_length import batches_by_length, windows
from segue.inference.opened import Opened
from segue.models.base import SpanModel
from segue.tokens.file_format import UNK
from segue.tokens.tokenizer import Tokenizer

HOLE = re.compile(r"\[MASK\]|<mask>")
MASK = "[MASK]"
_BLANK_IN_FRONT = ("bpe", "unigram", "word", "sentencepiece")
"""Kinds of tokens that hold the blank before a word."""
_LINE_BLANK = ("word", "sentencepiece")
"""Those of them that put a blank before the first word, too."""
_TOKENS = 4096
"""Tokens of one batch."""
_LOGITS = 1 << 25
"""Logits of one batch."""
_FIRST = 64
"""Texts of the first window."""

Ids = NDArray[np.integer[Any]]


class Filler(NamedTuple):
    """A token in a hole."""

    token: str
    """With the blank that belongs to it."""
    probability: float
    text: str
    """The text with the hole filled; holes that are not filled yet stay."""


class Filled(NamedTuple):
    """A text and what fills its holes."""

    text: str
    """As it was given."""
    holes: tuple[tuple[Filler, ...], ...]
    """The fillers of each hole, the likeliest first."""
    filled: str
    """The text with the likeliest token in every hole."""
    unread: int
    """Tokens that a hole was filled without, since the text is longer than the window."""

    def json(self) -> dict[str, Any]:
        """Return plain values."""
        holes = [[filler._asdict() for filler in hole] for hole in self.holes]
        return {"text": self.text, "filled": self.filled, "holes": holes, "unread": self.unread}


def check_holes(text: str) -> None:
    """Refuse a text without a hole."""
    if not HOLE.search(text):
        raise InputError(
            f"There is no hole in “{text[:60]}”. Write {MASK} (or <mask>) in the place of each token to be filled in, "
            f"as in: Paris is the {MASK} of France."
        )


def fill(opened: Opened, texts: Iterable[str], top: int = 5, together: bool = False) -> Iterator[Filled]:
    """Fill the holes of texts; yield one answer a text, in order."""
    opened.model.eval()
    if isinstance(opened.model, SpanModel):
        from segue.inference.fill_spans import fill_spans  # it imports from here

        yield from fill_spans(opened, texts, top)
        return
    for _, window in windows((Example(text=text) for text in texts), _FIRST):
        read = [checked(example.text, opened.codec) for example in window]
        while waiting := [one for one in read if one.waiting]:
            _fill_once(opened, waiting, top, together)
        yield from (one.result(opened.model.window) for one in read)


@dataclass(eq=False)
class Holed:
    """A text with holes, being filled."""

    text: str
    kind: str
    between: list[str]
    """What stands before the first hole, between the holes and after the last, without the blanks that holes take."""
    marks: list[str]
    """Each hole as it is written, with the blank that it takes."""
    sides: list[Ids]
    """The ids of the text, or of both texts of a pair; the mask where a hole is."""
    places: list[tuple[int, int]]
    """Side and place of each hole."""
    added: int
    """Tokens that the frame adds."""
    fillers: dict[int, tuple[Filler, ...]] = field(default_factory=dict)
    chosen: dict[int, str] = field(default_factory=dict)
    """The likeliest filler of each hole that is filled."""

    @property
    def waiting(self) -> list[int]:
        """The holes that are not filled yet."""
        return [hole for hole in range(len(self.places)) if hole not in self.fillers]

    @property
    def length(self) -> int:
        return sum(map(len, self.sides)) + self.added

    def take(self, hole: int, found: Sequence[tuple[str, float]], filled: dict[int, str]) -> None:
        """Keep the fillers of a hole; `filled`: what stands in the other holes."""
        self.fillers[hole] = tuple(Filler(name, p, self.written({**filled, hole: name})) for name, p in found)
        self.chosen[hole] = found[0][0]

    def written(self, names: dict[int, str]) -> str:
        """The text with tokens in some of its holes."""
        text = self.between[0]
        for hole, after in enumerate(self.between[1:]):
            text = _followed(text, names[hole], self.kind) if hole in names else text + self.marks[hole]
            text += after
        return text

    def result(self, window: int) -> Filled:
        holes = tuple(self.fillers[hole] for hole in range(len(self.places)))
        unread = max(0, self.length - window) if window else 0
        return Filled(self.text, holes, self.written(self.chosen), unread)


def _followed(text: str, name: str, kind: str) -> str:
    """A text with a token after it."""
    if kind == "wordpiece" and name.startswith("##"):
        return text.rstrip(" ") + name[2:]
    if kind == "wordpiece" and text[-1:].isalnum():
        return f"{text} {name}"
    begins = not text or text[-1] in "\n\t"
    return text + (name.removeprefix(" ") if begins and kind in _LINE_BLANK else name)


# Reading


def framed(text: str, codec: Codec) -> tuple[Ids, Ids]:
    """The ids and segments of a text, or of a pair with a tab between, as a masked language model reads it: the mask
    where a hole is."""
    return codec.frame(*_read(text, codec).sides)


def checked(text: str, codec: Codec, mark_of: Callable[[int], int] | None = None) -> Holed:
    """Cut a text at its holes, of which it must have one; `mark_of`: the id that stands for each, if not the mask."""
    check_holes(text)
    return _read(text, codec, mark_of)


def _read(text: str, codec: Codec, mark_of: Callable[[int], int] | None = None) -> Holed:
    """Cut a text at its holes, and encode what stands between them."""
    given = "\t".join(map(tidy, text.split("\t"))) if codec.data.canonical else text
    if (tabs := given.count("\t")) > 1:
        raise InputError(f"“{text[:60]}” has {tabs} tabs. Expected one text, or two with a tab between.")
    between, marks, kind = HOLE.split(given), HOLE.findall(given), codec.tokenizer.kind
    if kind in _BLANK_IN_FRONT:
        for hole, mark in enumerate(marks):
            bare = between[hole].rstrip(" ")
            marks[hole] = " " * (bare != between[hole]) + mark
            between[hole] = bare
    sides: list[list[Ids]] = [[]]
    places: list[tuple[int, int]] = []
    for hole, part in enumerate(between):
        first, *second = part.split("\t")
        sides[-1].append(_encoded(first, codec.tokenizer, bool(sides[-1])))
        if second:
            sides.append([_encoded(second[0], codec.tokenizer, False)])
        if hole < len(marks):
            places.append((len(sides) - 1, sum(map(len, sides[-1]))))
            sides[-1].append(np.array([codec.sizes.mark("mask") if mark_of is None else mark_of(hole)]))
    added = codec.sizes.frame_places(len(sides))
    return Holed(text, kind, between, marks, [np.concatenate(side) for side in sides], places, added)


def _encoded(text: str, tokenizer: Tokenizer, after_hole: bool) -> Ids:
    """The ids of a part of a text. Word tokens put a blank before the first word: after a hole a letter stands before
    the part, and its token is dropped, so that a full stop is read as one that follows a word."""
    if tokenizer.kind == "word" and after_hole and text and not text[0].isalnum():
        return tokenizer.encode("a" + text)[1:].astype(np.int64)
    return tokenizer.encode(text).astype(np.int64)


class _Row(NamedTuple):
    """A text, or a window of it, as the model reads it."""

    text: Holed
    holes: list[int]
    """The holes that this row fills."""
    ids: Ids
    segments: Ids
    places: list[int]
    """Those of the holes."""


def _rows(codec: Codec, text: Holed, window: int) -> Iterator[_Row]:
    """The text as one row, or a row for each hole if it is longer than the window."""
    if not window or text.length <= window:
        yield _row(codec, text, text.waiting, [(0, len(side)) for side in text.sides])
        return
    for hole in text.waiting:
        yield _row(codec, text, [hole], _spans(text, hole, window - text.added))


def _spans(text: Holed, hole: int, room: int) -> list[tuple[int, int]]:
    """Begin and end of what is read of each side: of a hole's side what stands around it, of the other its
    beginning."""
    lengths = [len(side) for side in text.sides]
    keep = [room]
    if len(lengths) == 2:
        first = min(lengths[0], max(room // 2, room - lengths[1]))
        keep = [first, min(lengths[1], room - first)]
    own, place = text.places[hole]
    begins = [0] * len(lengths)
    begins[own] = max(0, min(place - keep[own] // 2, lengths[own] - keep[own]))
    return [(begin, min(begin + size, length)) for begin, size, length in zip(begins, keep, lengths, strict=True)]


def _row(codec: Codec, text: Holed, holes: list[int], spans: list[tuple[int, int]]) -> _Row:
    sides = [side[begin:end] for side, (begin, end) in zip(text.sides, spans, strict=True)]
    ids, segments = codec.frame(*sides)
    second = 1 + len(sides[0]) + codec.sizes.separators
    places = []
    for hole in holes:
        side, place = text.places[hole]
        places.append((second if side else 1) + place - spans[side][0])
    return _Row(text, holes, ids, segments, places)


# Predicting


def _fill_once(opened: Opened, texts: Sequence[Holed], top: int, together: bool) -> None:
    """Fill every hole of some texts; `together`: of each text the surest alone."""
    rows = [row for text in texts for row in _rows(opened.codec, text, opened.model.window)]
    most = max(len(row.places) for row in rows)
    tokens = max(1, min(_TOKENS, _LOGITS // (most * opened.codec.sizes.vocab_size) * opened.model.window))
    found: dict[Holed, dict[int, tuple[list[int], list[float]]]] = {text: {} for text in texts}
    for batch in batches_by_length([len(row.ids) for row in rows], tokens):
        some = [rows[place] for place in batch]
        for row, likeliest in zip(some, _likeliest(opened, some, top), strict=True):
            found[row.text].update(zip(row.holes, likeliest, strict=True))
    name = opened.codec.tokenizer.name
    for text in texts:
        answers = found[text]
        surest = max(answers, key=lambda hole: answers[hole][1][0])
        before = dict(text.chosen) if together else {}
        for hole in [surest] if together else list(answers):
            ids, chances = answers[hole]
            text.take(hole, [(name(i), p) for i, p in zip(ids, chances, strict=True)], before)
            side, place = text.places[hole]
            text.sides[side][place] = ids[0]


def _likeliest(opened: Opened, rows: Sequence[_Row], top: int) -> Iterator[list[tuple[list[int], list[float]]]]:
    """The likeliest ids and their probabilities at the holes of each row. STOP and UNK are no fillers."""
    import torch

    ids = [row.ids for row in rows]
    mask_BT, places_BK = mask_of(ids), pad([np.array(row.places) for row in rows])
    segments_BT = pad([row.segments for row in rows])
    unpadded = bool(mask_BT.all())
    batch = Batch(pad(ids), None, mask_BT, segments_BT=segments_BT, places_BK=places_BK, unpadded=unpadded)
    with torch.inference_mode():
        logits_BKV, _ = opened.model(batch.to(opened.device))
        p_BKV = logits_BKV.float().softmax(-1)[..., UNK + 1 :]
        best = p_BKV.topk(min(top, p_BKV.shape[-1]))
        ids_BKN, p_BKN = (best.indices + UNK + 1).tolist(), best.values.tolist()
    for row, found, chances in zip(rows, ids_BKN, p_BKN, strict=True):
        count = len(row.places)
        yield list(zip(found[:count], chances[:count], strict=True))

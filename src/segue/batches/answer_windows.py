"""Questions about a text as framed rows: start question STOP text STOP, with the places where an answer may stand.

A text that is longer than the body's window is read in several windows, each with the whole question and a part of the
text; they overlap by a quarter or more. So a row of data may give several rows here. A question may take half of a
window at the most; tokens of it beyond that are cut, and counted.

An answer begins and ends at places of the text. One more place says that this window has no answer: the start mark, as
BERT has it, or the last STOP (`none_last`) if the body is causal, since only there it has read the text, or if it has
no start (T5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import Codec, Sizes
from segue.batches.collate import mask_of, pad
from segue.batches.spelled_words import number_unknown, place_letters, take_letters, unknown_words
from segue.batches.store import Column, Columns, id_dtype
from segue.batches.windows import parts_of
from segue.data.example import Answer, Example
from segue.tokens.file_format import UNK
from segue.tokens.tokenizer import Tokenizer

Ids = NDArray[np.integer[Any]]
Ints = NDArray[np.int64]


class Tokens(NamedTuple):
    """The tokens of a text, and the characters that each stands for."""

    ids: Ids
    begins: Ints
    ends: Ints

    def places(self, answer: Answer) -> tuple[int, int] | None:
        """Return the first and the last token of an answer; None if no token has a character of it."""
        lead = len(answer.text) - len(answer.text.lstrip())
        first = int(np.searchsorted(self.ends, answer.begin + lead, "right"))
        last = int(np.searchsorted(self.begins, answer.begin + len(answer.text.rstrip()), "left")) - 1
        return (first, last) if first <= last else None

    def characters(self, text: str, first: int, last: int) -> tuple[int, int]:
        """Return where these tokens begin and end in the text, blanks at the ends left out."""
        begin, end = int(self.begins[first]), int(self.ends[last])
        inside = text[begin:end]
        end -= len(inside) - len(inside.rstrip())
        return min(end, begin + len(inside) - len(inside.lstrip())), end


class Window(NamedTuple):
    """A question with a part of its text."""

    row: int
    """The number of its example."""
    first: int
    """The first token of the text that it has."""
    size: int
    """How many of them it has."""
    head: int
    """The place of that token in the row."""

    def place(self, token: int) -> int:
        """Return the place of a token of the text."""
        return token - self.first + self.head

    def token(self, place: int) -> int:
        """Return the token of the text at a place."""
        return place - self.head + self.first


class Asked(NamedTuple):
    """Questions laid out in windows."""

    windows: list[Window]
    tokens: list[Tokens]
    """Of the text of each example."""
    columns: Columns
    """A row a window: `text`, the framed ids; `segments`; `asked`, 1 where an answer may begin or end; `letters`, those
    of the row's unknown words, if the model reads them."""
    cut: int
    """Tokens of questions that were cut."""


def lay_out(group: Sequence[Example], codec: Codec, none_last: bool) -> Asked:
    """Frame questions and texts."""
    sizes, tokens, questions = codec.sizes, tokens_of(group, codec.tokenizer), _questions(group, codec.tokenizer)
    words: list[str] = []
    if codec.letters:
        questions, tokens, words = _numbered(group, questions, tokens, codec)
    room = sizes.window - sizes.frame_places(2)
    most = max(1, room // 2)
    asked, cut = list[tuple[Window, Ids, Ids, Ids]](), 0
    for row, (question, text) in enumerate(zip(questions, tokens, strict=True)):
        cut += max(0, len(question) - most)
        part = room - len(question[:most])
        for first in parts_of(len(text.ids), part):
            some = text.ids[first : first + part]
            asked.append(_framed(sizes, row, first, question[:most], some, none_last))
    columns = {
        name: Column(np.concatenate(rows).astype(dtype), np.cumsum([len(one) for one in rows], dtype=np.int64))
        for name, dtype, rows in (
            ("text", "int64", [one[1] for one in asked]),
            ("segments", "uint8", [one[2] for one in asked]),
            ("asked", "uint8", [one[3] for one in asked]),
        )
    }
    if codec.letters:
        columns["text"], columns["letters"] = take_letters(columns["text"], words, sizes.ids)
    columns["text"] = Column(columns["text"].flat.astype(id_dtype(sizes.ids)), columns["text"].ends)
    return Asked([one[0] for one in asked], tokens, columns, cut)


def _numbered(
    group: Sequence[Example], questions: list[Ids], tokens: list[Tokens], codec: Codec
) -> tuple[list[Ids], list[Tokens], list[str]]:
    """Number the unknown words, so that they are known again after texts are cut; return them, too."""
    sides = [*questions, *(text.ids for text in tokens)]
    flat = number_unknown(np.concatenate(sides), codec.sizes.ids)
    parts = np.split(flat, np.cumsum([len(side) for side in sides])[:-1])
    texts = [codec.tokenizer.row(text) for text in (*(one.text for one in group), *(one.target for one in group))]
    numbered = [text._replace(ids=ids) for text, ids in zip(tokens, parts[len(group) :], strict=True)]
    return [*parts[: len(group)]], numbered, unknown_words(texts, codec.tokenizer)


def tokens_of(group: Sequence[Example], tokenizer: Tokenizer) -> list[Tokens]:
    """Encode the texts of some questions, each once: most have several."""
    known = {text: Tokens(*tokenizer.offsets(text)) for text in dict.fromkeys(example.target for example in group)}
    return [known[example.target] for example in group]


def _questions(group: Sequence[Example], tokenizer: Tokenizer) -> list[Ids]:
    flat, lengths = tokenizer.encode_many([tokenizer.row(example.text) for example in group])
    return np.split(flat, np.cumsum(lengths)[:-1])


def _framed(
    sizes: Sizes, row: int, first: int, question: Ids, part: Ids, none_last: bool
) -> tuple[Window, Ids, Ids, Ids]:
    ids, segments = sizes.framed(question, part)
    head = len(ids) - 1 - len(part)
    allowed = np.zeros(len(ids), np.uint8)
    allowed[head : head + len(part)] = 1
    allowed[-1 if none_last else 0] = 1
    return Window(row, first, len(part), head), ids, segments, allowed


def spans_of(group: Sequence[Example], asked: Asked, none_last: bool) -> Column:
    """Return the places of the first answer's first and last token in each window, or twice the place that says that
    there is none; IGNORE if no token has a character of the answer."""
    lengths, spans = asked.columns["text"].lengths().tolist(), list[tuple[int, int]]()
    for window, length in zip(asked.windows, lengths, strict=True):
        answers = group[window.row].answers
        none = length - 1 if none_last else 0
        found = asked.tokens[window.row].places(answers[0]) if answers else None
        if found is None:
            spans.append((IGNORE, IGNORE) if answers else (none, none))
        elif window.first <= found[0] and found[1] < window.first + window.size:
            spans.append((window.place(found[0]), window.place(found[1])))
        else:
            spans.append((none, none))
    return Column(np.array(spans, np.int32).ravel(), np.arange(2, 2 * len(spans) + 1, 2))


def collate_asked(columns: Columns, limit: int | None = None) -> Batch:
    """Make a batch of such rows; targets (B, 2) are begin and end. `limit`: cut rows there, only to look at them."""
    text = columns["text"].rows(limit)
    targets = np.full((len(text), 2), IGNORE, np.int64)
    if "span" in columns:
        targets = columns["span"].flat.reshape(-1, 2).astype(np.int64)
    hidden, tokens_BT, chars_BTC = columns.get("hidden"), pad(text), None
    if "letters" in columns and hidden is None:
        chars_BTC = place_letters(tokens_BT == UNK, columns["letters"].rows())
    return Batch(
        tokens_BT,
        targets,
        mask_of(text),
        chars_BTC=chars_BTC,
        segments_BT=pad(columns["segments"].rows(limit)),
        answers_BT=pad(columns["asked"].rows(limit), dtype=bool),
        hidden_BND=None if hidden is None else pad(hidden.rows(), dtype=np.float32),
    )

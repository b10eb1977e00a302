"""Encode examples into ids on disk, streaming: once, for every epoch and every model."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.batches.spelled_words import unknown_words, word_column
from segue.batches.store import Column, Columns, Store, StoreWriter, id_dtype
from segue.data.corpus import Corpus, Example
from segue.errors import InputError
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Tokenizer

STOP_BYTES = {"line": 1, "paragraph": 2, "document": 0}
"""Bytes of the raw text that the STOP of a unit stands for: its line end, its blank line, nothing."""
_IDS = ("source", "text")
"""The columns that are text."""
_GROUP = 1 << 20
_LETTERS = {"letters": "uint32", "unknown": "int64"}
"""The columns of unknown words (spelled_words.py)."""


class Encoded(NamedTuple):
    """A store, and how many tokens were unknown or cut."""

    store: Store
    tokens: int
    unknown: int
    cut: int
    frames_cut: int = 0
    """Frames of sounds or pictures that were cut."""


def encode(
    examples: Iterable[Example],
    to_columns: Callable[[Sequence[Example]], Columns],
    tokenizer: Tokenizer,
    folder: Path,
    limit: int = 0,
    done: Callable[[int], None] = lambda rows: None,
    together: int = 0,
) -> Encoded:
    """Write the rows that `to_columns` makes of examples, group by group. Tokens beyond `limit` count as cut.
    `together`: most rows of a group (0: a megabyte of text)."""
    writer: StoreWriter | None = None
    unknown = rows = 0
    cut = {"tokens": 0, "frames": 0}
    for group in grouped(examples, together):
        columns = to_columns(group)
        if writer is None:
            widths = {name: column.width for name, column in columns.items() if column.width > 1}
            writer = StoreWriter(folder, {name: str(column.flat.dtype) for name, column in columns.items()}, widths)
        for name, column in columns.items():
            writer.append(name, column.flat, column.lengths())
            if name in _IDS:
                unknown += int((column.flat == tokenizer.unk).sum()) if tokenizer.closed and column.width == 1 else 0
                beyond = int(np.maximum(column.lengths() - limit, 0).sum()) if limit else 0
                cut["tokens" if column.width == 1 else "frames"] += beyond
        rows += len(group)
        done(rows)
    if writer is None:
        raise InputError("There are no rows to read. Check the file and data.columns.")
    tokens = sum(writer.sizes.get(name, 0) for name in _IDS if name not in writer.widths)
    return Encoded(writer.close(), tokens, unknown, cut["tokens"], cut["frames"])


def encode_text(
    examples: Iterable[Example],
    tokenizer: Tokenizer,
    folder: Path,
    done: Callable[[int], None] = lambda rows: None,
    letters: bool = False,
) -> Encoded:
    """Write running text: w1 … wn STOP w1 …, one stream. `letters`: also those of its unknown words."""
    writer = StoreWriter(folder, {"text": id_dtype(tokenizer.vocab_size), **(_LETTERS if letters else {})})
    unknown = rows = 0
    for group in grouped(examples):
        texts = [example.text for example in group]
        flat, _ = tokenizer.encode_many(texts, group[0].ends)
        unknown += int((flat == tokenizer.unk).sum()) if tokenizer.closed else 0
        if letters:
            _append_letters(writer, tokenizer, texts, flat)
        writer.append("text", flat)
        rows += len(group)
        done(rows)
    return Encoded(writer.close(), writer.sizes["text"], unknown, 0)


def _append_letters(
    writer: StoreWriter, tokenizer: Tokenizer, texts: Sequence[str], flat: NDArray[Any], most: int = sys.maxsize
) -> None:
    """Write the letters of the unknown words of some texts, and where they stand, before their ids are written; of the
    first `most` tokens."""
    places = np.flatnonzero(flat[:most] == tokenizer.unk)
    column = word_column(unknown_words(texts, tokenizer)[: len(places)] if len(places) else [])
    writer.append("letters", column.flat, column.lengths())
    writer.append("unknown", writer.sizes["text"] + places)


def encode_texts(group: Sequence[Example], tokenizer: Tokenizer) -> Column:
    """Encode texts to classify. In a pair, STOP stands between the two."""
    dtype = id_dtype(tokenizer.vocab_size)
    if not any(example.target for example in group):
        flat, lengths = tokenizer.encode_many([tokenizer.row(example.text) for example in group])
        return Column(flat.astype(dtype, copy=False), np.cumsum(lengths, dtype=np.int64))
    rows = []
    for example in group:
        first, second = (tokenizer.encode(tokenizer.row(text)) for text in (example.text, example.target))
        rows.append(np.concatenate([first, [tokenizer.stop], second]) if example.target else first)
    return Column(np.concatenate(rows).astype(dtype), np.cumsum([len(row) for row in rows], dtype=np.int64))


def encode_mixed(
    texts: Sequence[Iterable[Example]],
    weights: Sequence[Fraction] | None,
    tokenizer: Tokenizer,
    folder: Path,
    done: Callable[[int], None] = lambda rows: None,
    letters: bool = False,
) -> Encoded:
    """Write running text of several corpora, one after the other: row i of the column `text` is corpus i, and `weight`
    has the proportions in which they are drawn, in whole numbers; without weights, by their tokens."""
    more = _LETTERS if letters else {}
    writer = StoreWriter(folder, {"text": id_dtype(tokenizer.vocab_size), "weight": "int64", **more})
    unknown = rows = 0
    sizes = []
    for text in texts:
        begun = writer.sizes["text"]
        for group in grouped(text):
            units = [example.text for example in group]
            flat, _ = tokenizer.encode_many(units, group[0].ends)
            unknown += int((flat == tokenizer.unk).sum()) if tokenizer.closed else 0
            if letters:
                _append_letters(writer, tokenizer, units, flat)
            writer.append("text", flat)
            rows += len(group)
            done(rows)
        writer.append("text", np.empty(0), np.zeros(1))  # the end of the row
        sizes.append(writer.sizes["text"] - begun)
    scale = math.lcm(*(weight.denominator for weight in weights or ()))
    whole = sizes if weights is None else [int(weight * scale) for weight in weights]
    writer.append("weight", np.array(whole, np.int64))
    return Encoded(writer.close(), writer.sizes["text"], unknown, 0)


def grouped(examples: Iterable[Example], together: int = 0) -> Iterator[list[Example]]:
    """Group examples until they have about a megabyte, or are so many; pieces of a long unit are never grouped with
    whole units."""
    group: list[Example] = []
    size = 0
    for example in examples:
        full = size >= _GROUP or len(group) == together
        if group and (full or example.ends != group[0].ends):
            yield group
            group, size = [], 0
        group.append(example)
        size += len(example.text) + 8 * len(example.words) + len(example.target) + 1
    if group:
        yield group


class HeldOutText(NamedTuple):
    """Held-out running text, ready to be scored: ids, the bytes each stands for, and what unknown words cost."""

    store: Store
    spelled: dict[int, float]
    """Bits of spelling the unknown token, by its place."""
    bytes: int
    ends: tuple[int, ...] = ()
    """Where each corpus ends: the place behind its last token."""
    cut: bool = False
    """Whether the text was cut at the limit."""
    unit: str = "document"
    carry: bool = False
    """As in [data]: what one text is, and whether context is carried over its end."""


def encode_split(
    corpus: Corpus,
    split: str,
    tokenizer: Tokenizer,
    speller: Speller | None,
    folder: Path,
    limit: int = 0,
    letters: bool = False,
) -> HeldOutText:
    """Encode a split of running text, all its corpora; a limit is shared in proportion to their sizes. `letters`: also
    those of its unknown words."""
    shares = corpus.shares(split) if limit else [0.0] * len(corpus.parts_of(split))
    limits = [math.ceil(limit * share) for share in shares]
    texts = zip(corpus.texts(split), limits, strict=True)
    held_out = encode_held_out(texts, tokenizer, speller, corpus.config.unit, folder, letters)
    return held_out._replace(carry=corpus.config.carry)


def encode_held_out(
    texts: Iterable[tuple[Iterable[Example], int]],
    tokenizer: Tokenizer,
    speller: Speller | None,
    unit: str,
    folder: Path,
    letters: bool = False,
) -> HeldOutText:
    """Encode running text, with the bytes of every token (`bytes`): texts one after the other, each with its limit of
    about so many tokens (0: all of them)."""
    more = _LETTERS if letters else {}
    writer = StoreWriter(folder, {"text": id_dtype(tokenizer.vocab_size), "bytes": "uint32", **more})
    spelled: dict[int, float] = {}
    ends: list[int] = []
    total, cut = 0, False
    for examples, limit in texts:
        for example in examples:
            begun = writer.sizes["text"]
            left = limit - begun + (ends[-1] if ends else 0) if limit else sys.maxsize
            if left <= 0:
                cut = True
                break
            ids = tokenizer.encode(example.text)
            sizes = tokenizer.byte_lengths(example.text, ids)
            if tokenizer.closed and speller is not None:
                words = zip(np.flatnonzero(ids == tokenizer.unk), tokenizer.unknown(example.text, ids), strict=True)
                spelled |= {begun + int(place): speller.bits(word) for place, word in words if place < left}
            if letters:
                _append_letters(writer, tokenizer, [example.text], ids, left)
            if example.ends:
                ids, sizes = np.append(ids, tokenizer.stop), np.append(sizes, STOP_BYTES[unit])
            writer.append("text", ids[:left])
            writer.append("bytes", sizes[:left])
            total += int(sizes[:left].sum())
            cut = cut or len(ids) > left
        ends.append(writer.sizes["text"])
    return HeldOutText(writer.close(), spelled, total, tuple(ends), cut, unit)

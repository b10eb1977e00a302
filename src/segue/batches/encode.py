"""Examples to ids on disk, streaming: what the text is, once, for every epoch and every model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from segue.batches.store import Store, StoreWriter, id_dtype
from segue.data.corpus import Example
from segue.errors import InputError, nearest
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Tokenizer

STOP_BYTES = {"line": 1, "paragraph": 2, "document": 0}
"""Bytes of the raw text that the STOP of a unit stands for: its line end, its blank line, nothing."""
_GROUP = 1 << 20


class Encoded(NamedTuple):
    """A store, and what it cost to make the text into ids."""

    store: Store
    tokens: int
    unknown: int
    cut: int


def encode(
    examples: Iterable[Example],
    tokenizer: Tokenizer,
    task: str,
    labels: Sequence[str],
    folder: Path,
    limit: int = 0,
    done: Callable[[int], None] = lambda rows: None,
) -> Encoded:
    """Writes the columns of a task. What is longer than `limit` counts as cut (batches leave it out)."""
    ids = id_dtype(tokenizer.vocab_size)
    columns = {"lm": {}, "classify": {"label": "int32"}, "tag": {"tags": "int32"}, "seq2seq": {"source": ids}}[task]
    writer = StoreWriter(folder, {"text": ids, **columns})
    index = {label: i for i, label in enumerate(labels)}
    unknown = cut = rows = 0

    def put(name: str, texts: list[str], stop: bool = False) -> None:
        nonlocal unknown, cut
        flat, lengths = tokenizer.encode_many(texts, stop)
        unknown += int((flat == tokenizer.unk).sum()) if tokenizer.closed else 0
        cut += int(np.maximum(lengths - limit, 0).sum()) if limit else 0
        writer.append(name, flat, None if task == "lm" else lengths)

    for group in grouped(examples):
        if task == "lm":
            put("text", [example.text for example in group], stop=group[0].ends)
        elif task == "classify":
            put("text", [" " + example.text for example in group])
            classes = np.array([_index(index, example.label, example) for example in group])
            writer.append("label", classes, np.ones(len(group), np.int64))
        elif task == "tag":
            words = [tokenizer.encode_words(example.words) for example in group]
            unknown += sum(int((row == tokenizer.unk).sum()) for row in words)
            tags = [_index(index, tag, example) for example in group for tag in example.tags]
            lengths = np.array([len(row) for row in words])
            cut += int(np.maximum(lengths - limit, 0).sum()) if limit else 0
            writer.append("text", np.concatenate(words), lengths)
            writer.append("tags", np.array(tags), lengths)
        else:
            put("source", [example.text for example in group])
            put("text", [example.target for example in group])
        rows += len(group)
        done(rows)
    return Encoded(writer.close(), writer.sizes["text"] + writer.sizes.get("source", 0), unknown, cut)


def grouped(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Examples together until they are about a megabyte; pieces that go on are never mixed with whole units."""
    group: list[Example] = []
    size = 0
    for example in examples:
        if group and (size >= _GROUP or example.ends != group[0].ends):
            yield group
            group, size = [], 0
        group.append(example)
        size += len(example.text) + 8 * len(example.words) + len(example.target) + 1
    if group:
        yield group


def _index(index: dict[str, int], label: str, example: Example) -> int:
    try:
        return index[label]
    except KeyError:
        raise InputError(
            f"{example.path}:{example.line}: the label '{label}' was never seen in training.{nearest(label, index)}"
        ) from None


class Held(NamedTuple):
    """Held-out running text, ready to be scored: ids, the bytes each stands for, and what unknown words cost."""

    store: Store
    spelled: dict[int, float]
    """Bits that spelling takes, by the place of the unknown token."""
    bytes: int


def encode_held(
    examples: Iterable[Example], tokenizer: Tokenizer, speller: Speller | None, unit: str, folder: Path, limit: int = 0
) -> Held:
    """Running text with the bytes of every token (`bytes`); stops after about `limit` tokens if that is not 0."""
    writer = StoreWriter(folder, {"text": id_dtype(tokenizer.vocab_size), "bytes": "uint32"})
    spelled: dict[int, float] = {}
    total = 0
    for example in examples:
        begun = writer.sizes["text"]
        left = limit - begun if limit else sys.maxsize
        if left <= 0:
            break
        ids = tokenizer.encode(example.text)
        sizes = tokenizer.byte_lengths(example.text, ids)
        if tokenizer.closed and speller is not None:
            words = zip(np.flatnonzero(ids == tokenizer.unk), tokenizer.unknown(example.text, ids), strict=True)
            spelled |= {begun + int(place): speller.bits(word) for place, word in words if place < left}
        if example.ends:
            ids, sizes = np.append(ids, tokenizer.stop), np.append(sizes, STOP_BYTES[unit])
        writer.append("text", ids[:left])
        writer.append("bytes", sizes[:left])
        total += int(sizes[:left].sum())
    return Held(writer.close(), spelled, total)


def labels_of(examples: Iterable[Example], task: str) -> list[str]:
    """Every label or tag, sorted; numbers in the order of numbers."""
    found: set[str] = set()
    for example in examples:
        found.update(example.tags if task == "tag" else (example.label,))
    return sorted(found, key=_as_number)


def _as_number(label: str) -> tuple[Any, ...]:
    return (0, float(label), label) if label.isdecimal() else (1, 0.0, label)

"""Examples to ids on disk, streaming: what the text is, once, for every epoch and every model."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from segue.batches.spelled_words import spelt
from segue.batches.store import Store, StoreWriter, id_dtype
from segue.data.config import Label
from segue.data.corpus import Corpus, Example
from segue.data.example import names_of
from segue.errors import InputError, nearest
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Tokenizer

STOP_BYTES = {"line": 1, "paragraph": 2, "document": 0}
"""Bytes of the raw text that the STOP of a unit stands for: its line end, its blank line, nothing."""
LABELS: dict[Label, str] = {"class": "int32", "classes": "uint8", "number": "float32"}
"""How each kind of label is stored: its class, a yes or no for every class, or the number."""
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
    label: Label = "class",
) -> Encoded:
    """Writes the columns of a task. What is longer than `limit` counts as cut (batches leave it out)."""
    ids = id_dtype(tokenizer.vocab_size)
    columns = {
        "lm": {},
        "classify": {"label": LABELS.get(label, "int32")},
        "tag": {"tags": "uint8" if label == "classes" else "int32", "letters": "uint32", "folded": ids},
        "seq2seq": {"source": ids},
    }[task]
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
            flat, lengths = encode_texts(group, tokenizer)
            unknown += int((flat == tokenizer.unk).sum()) if tokenizer.closed else 0
            cut += int(np.maximum(lengths - limit, 0).sum()) if limit else 0
            writer.append("text", flat, lengths)
            targets = _targets(group, index, label)
            writer.append("label", targets.ravel(), np.full(len(group), targets[0].size))
        elif task == "tag":
            words = [tokenizer.encode_words(example.words) for example in group]
            unknown += sum(int((row == tokenizer.unk).sum()) for row in words)
            lengths = np.array([len(row) for row in words])
            cut += int(np.maximum(lengths - limit, 0).sum()) if limit else 0
            writer.append("text", np.concatenate(words), lengths)
            tags = _tags(group, index, label)
            writer.append("tags", tags.ravel(), lengths * (tags.size // max(1, len(tags))))
            letters = [spelt(example.words) for example in group]
            writer.append("folded", np.concatenate([tokenizer.fold_words(e.words) for e in group]), lengths)
            writer.append("letters", np.concatenate(letters), np.array([len(row) for row in letters]))
        else:
            put("source", [example.text for example in group])
            put("text", [example.target for example in group])
        rows += len(group)
        done(rows)
    return Encoded(writer.close(), writer.sizes["text"] + writer.sizes.get("source", 0), unknown, cut)


def encode_texts(group: Sequence[Example], tokenizer: Tokenizer) -> tuple[Any, Any]:
    """The ids of texts to classify, end to end, and how many each has. Of a pair, STOP stands between the two."""
    if not any(example.target for example in group):
        return tokenizer.encode_many([" " + example.text for example in group])
    rows = []
    for example in group:
        first, second = (tokenizer.encode(" " + text) for text in (example.text, example.target))
        rows.append(np.concatenate([first, [tokenizer.stop], second]) if example.target else first)
    return np.concatenate(rows), np.array([len(row) for row in rows])


def _targets(group: Sequence[Example], index: dict[str, int], label: Label) -> Any:
    """What rows are labelled with: the class of each, (rows, classes) of yes and no, or a number."""
    if label == "number":
        return np.array([float(example.label) for example in group])
    if label == "class":
        return np.array([_index(index, example.label, example) for example in group])
    yes = np.zeros((len(group), len(index)), np.uint8)
    for row, example in enumerate(group):
        yes[row, [_index(index, name, example) for name in example.tags]] = 1
    return yes


def _tags(group: Sequence[Example], index: dict[str, int], label: Label) -> Any:
    """The tags of all words, end to end; where a word may have several, (words, tags) of yes and no."""
    words = [(example, tag) for example in group for tag in example.tags]
    if label != "classes":
        return np.array([_index(index, tag, example) for example, tag in words])
    yes = np.zeros((len(words), len(index)), np.uint8)
    for row, (example, tag) in enumerate(words):
        yes[row, [_index(index, name, example) for name in names_of(tag)]] = 1
    return yes


def encode_mixed(
    texts: Sequence[Iterable[Example]],
    weights: Sequence[Fraction] | None,
    tokenizer: Tokenizer,
    folder: Path,
    done: Callable[[int], None] = lambda rows: None,
) -> Encoded:
    """Running text of several corpora, one after the other: row i of the column `text` is corpus i, and `weight` says
    in which proportion they are drawn, in whole numbers; without weights, by their tokens."""
    writer = StoreWriter(folder, {"text": id_dtype(tokenizer.vocab_size), "weight": "int64"})
    unknown = rows = 0
    sizes = []
    for text in texts:
        begun = writer.sizes["text"]
        for group in grouped(text):
            flat, _ = tokenizer.encode_many([example.text for example in group], group[0].ends)
            unknown += int((flat == tokenizer.unk).sum()) if tokenizer.closed else 0
            writer.append("text", flat)
            rows += len(group)
            done(rows)
        writer.append("text", np.empty(0), np.zeros(1))  # the end of the row
        sizes.append(writer.sizes["text"] - begun)
    scale = math.lcm(*(weight.denominator for weight in weights or ()))
    whole = sizes if weights is None else [int(weight * scale) for weight in weights]
    writer.append("weight", np.array(whole, np.int64))
    return Encoded(writer.close(), writer.sizes["text"], unknown, 0)


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
    ends: tuple[int, ...] = ()
    """The place behind the last token of each corpus."""
    cut: bool = False
    """Whether there was more than the limit."""


def encode_split(
    corpus: Corpus, split: str, tokenizer: Tokenizer, speller: Speller | None, folder: Path, limit: int = 0
) -> Held:
    """A split of running text, all its corpora; of a limit, each gets as much as it has of the text."""
    shares = corpus.shares(split) if limit else [0.0] * len(corpus.parts_of(split))
    limits = [math.ceil(limit * share) for share in shares]
    texts = zip(corpus.texts(split), limits, strict=True)
    return encode_held_out(texts, tokenizer, speller, corpus.config.unit, folder)


def encode_held_out(
    texts: Iterable[tuple[Iterable[Example], int]],
    tokenizer: Tokenizer,
    speller: Speller | None,
    unit: str,
    folder: Path,
) -> Held:
    """Encode running text, with the bytes of every token (`bytes`): texts one after the other, each with its limit of
    about so many tokens (0: all of them)."""
    writer = StoreWriter(folder, {"text": id_dtype(tokenizer.vocab_size), "bytes": "uint32"})
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
            if example.ends:
                ids, sizes = np.append(ids, tokenizer.stop), np.append(sizes, STOP_BYTES[unit])
            writer.append("text", ids[:left])
            writer.append("bytes", sizes[:left])
            total += int(sizes[:left].sum())
            cut = cut or len(ids) > left
        ends.append(writer.sizes["text"])
    return Held(writer.close(), spelled, total, tuple(ends), cut)


def labels_of(examples: Iterable[Example], task: str, label: Label = "class") -> list[str]:
    """Every label or tag, sorted; numbers in the order of numbers. Where the label is itself a number there is none."""
    if label == "number":
        return []
    found: set[str] = set()
    for example in examples:
        found.update(tags_of(example, label) if task == "tag" or label == "classes" else (example.label,))
    return sorted(found, key=_as_number)


def tags_of(example: Example, label: Label) -> Iterable[str]:
    """Every tag of a sentence, or class of a text, that can be predicted by itself."""
    several = label == "classes" and example.words
    return chain.from_iterable(map(names_of, example.tags)) if several else example.tags


def _as_number(label: str) -> tuple[Any, ...]:
    return (0, float(label), label) if label.isdecimal() else (1, 0.0, label)

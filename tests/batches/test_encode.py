"""Examples to ids: nothing lost, nothing made up, and every byte of held-out text paid for once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from segue.batches.encode import STOP_BYTES, encode, encode_held_out, encode_text, grouped
from segue.batches.store import Columns, columns_of
from segue.data import units
from segue.data.config import Config as DataConfig
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.shapes import TEXT
from segue.errors import InputError
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Config as TokensConfig
from segue.tokens.tokenizer import Tokenizer

WORDS = ["the", "cow", "eats", "green", "grass", "while", "a", "bird", "sings", "über", "hills", "and", "川", "then"]
KINDS = ["char", "byte", "space", "word", "bpe"]


def text_of(words: int, seed: int = 0) -> str:
    drawn = np.random.default_rng(seed).choice(WORDS, words).tolist()
    return " ".join(word + ("\n" if i % 11 == 10 else "") for i, word in enumerate(drawn))


def tokenizer_of(kind: str, *texts: str) -> Tokenizer:
    return Tokenizer.train(TokensConfig(kind=kind, vocab_size=300 if kind == "bpe" else 0, min_count=1), list(texts))


def lines(*texts: str, ends: bool = True) -> list[Example]:
    return [Example(text, ends=ends, path="book.txt", line=i) for i, text in enumerate(texts, 1)]


# Running text


@pytest.mark.parametrize("kind", KINDS)
def test_every_unit_ends_with_stop(kind: str, tmp_path: Path) -> None:
    texts = ["the cow", "a bird sings", "", "the über hills"]
    tokenizer = tokenizer_of(kind, *texts)
    encoded = encode_text(lines(*texts), tokenizer, tmp_path)
    expected = itertools.chain(*([*tokenizer.encode(text).tolist(), tokenizer.stop] for text in texts))
    assert encoded.store.tokens.tolist() == list(expected)
    assert encoded.tokens == len(encoded.store.tokens)
    assert (encoded.unknown, encoded.cut) == (0, 0)


def test_a_piece_that_goes_on_gets_no_stop(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("char", "abcdef")
    examples = [*lines("ab", "cd", ends=False), *lines("ef", "fa")]
    stream = encode_text(examples, tokenizer, tmp_path).store.tokens
    assert stream.tolist() == [*tokenizer.encode("abcdef"), 0, *tokenizer.encode("fa"), 0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_split_is_the_text(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is read in many pieces and cut at a character is encoded as if it were one string."""
    monkeypatch.setattr(units, "PIECE", 500)
    text = text_of(2000).replace("\n", "") if kind == "space" else text_of(2000)  # whose text is canonical
    (tmp_path / "book.txt").write_text(text, encoding="utf-8")
    corpus = Corpus(DataConfig(path=str(tmp_path / "book.txt"), canonical=kind == "space"), TEXT)
    examples = list(corpus.examples("train"))
    assert len(examples) > 10
    joined = "".join(example.text for example in examples)
    assert joined == text[: int(0.9 * len(text))]
    tokenizer = tokenizer_of(kind, joined)
    stream = encode_text(examples, tokenizer, tmp_path / "store").store.tokens
    assert np.array_equal(stream, tokenizer.encode(joined))


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("char", "abc")
    assert encode_text(lines("abz", "yc"), tokenizer, tmp_path).unknown == 2
    assert encode_text(lines("abz"), tokenizer_of("byte"), tmp_path).unknown == 0


def test_groups_lose_nothing_and_do_not_mix_ends() -> None:
    examples = [Example("x" * 300_000, ends=i % 5 != 0) for i in range(20)]
    groups = list(grouped(examples))
    assert [*itertools.chain(*groups)] == examples
    assert all(len({example.ends for example in group}) == 1 for group in groups)
    assert all(sum(len(example.text) for example in group) < 2_000_000 for group in groups)


def test_progress_is_told_in_rows(tmp_path: Path) -> None:
    told: list[int] = []
    encode_text(lines("a", "b", "c"), tokenizer_of("char", "abc"), tmp_path, done=told.append)
    assert told[-1] == 3


# Rows


def test_a_store_without_rows_is_refused(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("word", "a b")
    with pytest.raises(InputError, match="There are no rows to read"):
        encode([], lambda group: columns_of(text=group), tokenizer, tmp_path)
    assert not (tmp_path / "complete.json").exists()


def test_rows_that_cannot_be_encoded_leave_no_store(tmp_path: Path) -> None:
    def refuse(group: Sequence[Example]) -> Columns:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        encode(lines("a"), refuse, tokenizer_of("word", "a b"), tmp_path)
    assert not (tmp_path / "complete.json").exists()


# Held-out text


@pytest.mark.parametrize("unit", ["line", "paragraph", "document"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_are_those_of_the_text(kind: str, unit: str, tmp_path: Path) -> None:
    """Each unit's UTF-8 bytes, and what its STOP stands for, known words or not."""
    texts = [text_of(30, seed).replace("\n", "") for seed in range(5)] + ["naïve zebras 🦓 graze"]
    tokenizer = tokenizer_of(kind, *texts[:3])
    speller = Speller.learn(texts[:3]) if tokenizer.closed else None
    held = encode_held_out([(lines(*texts), 0)], tokenizer, speller, unit, tmp_path)
    expected = sum(len(text.encode()) + STOP_BYTES[unit] for text in texts)
    assert held.bytes == expected
    assert int(held.store.columns["bytes"].flat.sum()) == expected
    assert len(held.store.columns["bytes"].flat) == len(held.store.tokens)
    assert np.array_equal(held.store.tokens, tokenizer.encode_many(texts, stop=True)[0])
    stops = held.store.tokens == tokenizer.stop
    assert stops.sum() == len(texts)
    assert set(held.store.columns["bytes"].flat[stops].tolist()) == {STOP_BYTES[unit]}


@pytest.mark.parametrize("unit", ["line", "paragraph", "document"])
def test_all_bytes_of_a_file_are_counted(unit: str, tmp_path: Path) -> None:
    """A line end is one byte; between paragraphs stand two; a document has only its own."""
    between = {"line": "\n", "paragraph": "\n\n", "document": " "}[unit]
    text = between.join(["the cow", "a bird", "über hills"])
    (tmp_path / "book.txt").write_text(text, encoding="utf-8")
    examples = Corpus(DataConfig(path=str(tmp_path / "book.txt"), unit=unit, validation=0.0), TEXT).examples("train")
    held = encode_held_out([(examples, 0)], tokenizer_of("byte"), None, unit, tmp_path / "store")
    # The end of the last unit counts as the others do, whether or not the file has it.
    assert held.bytes == len(text.encode()) + (0 if unit == "document" else len(between))


def test_bytes_of_pieces_add_up_to_the_document(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("char", "abc über")
    held = encode_held_out(
        [([*lines("ab", "c", ends=False), *lines(" über")], 0)], tokenizer, None, "document", tmp_path
    )
    assert held.bytes == len("abc über".encode())
    assert (held.store.tokens == tokenizer.stop).sum() == 1


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 8, 9, 10, 50])
def test_the_limit_is_kept_and_gives_the_beginning(limit: int, tmp_path: Path) -> None:
    texts = ["zab", "bzca", "zz"]
    tokenizer, speller = tokenizer_of("char", "abc"), Speller.train(["abc"])
    whole = encode_held_out([(lines(*texts), 0)], tokenizer, speller, "line", tmp_path / "whole")
    held = encode_held_out([(lines(*texts), limit)], tokenizer, speller, "line", tmp_path / "part")
    count = min(limit, len(whole.store.tokens))
    assert held.store.tokens.tolist() == whole.store.tokens[:count].tolist()
    assert held.store.columns["bytes"].flat.tolist() == whole.store.columns["bytes"].flat[:count].tolist()
    assert held.bytes == int(whole.store.columns["bytes"].flat[:count].sum())
    assert held.spelled == {place: bits for place, bits in whole.spelled.items() if place < count}


def test_unknown_words_are_spelled_where_they_stand(tmp_path: Path) -> None:
    tokenizer, speller = tokenizer_of("space", "the cow eats grass"), Speller.train(["cow", " grass"])
    held = encode_held_out([(lines("the gnu eats", "zebras eat the cow"), 0)], tokenizer, speller, "line", tmp_path)
    assert held.spelled == {1: speller.bits(" gnu"), 4: speller.bits("zebras"), 5: speller.bits(" eat")}
    assert np.flatnonzero(held.store.tokens == tokenizer.unk).tolist() == [1, 4, 5]

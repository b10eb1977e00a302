"""Masked rows of running text: LECTURES' B1, B3 and B4, whole words, several corpora, and texts of any kind."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import IGNORE, Batch
from segue.batches.batches import Config
from segue.batches.codec import Sizes
from segue.batches.masking import MaskedRows, masked
from segue.batches.store import Store, StoreWriter
from segue.errors import InputError
from segue.tokens.tokenizer import Config as TokenConfig
from segue.tokens.tokenizer import Joins, Tokenizer

VOCAB = 5000
SIZES = Sizes(VOCAB, marks=("start", "mask"))
START, MASK, STOP = SIZES.mark("start"), SIZES.mark("mask"), 0


def store_of(folder: Path, ids: Any) -> Store:
    writer = StoreWriter(folder, {"text": "uint16"})
    writer.append("text", np.asarray(ids))
    return writer.close()


def rows_of(folder: Path, ids: Any, pairs: bool = False, **keys: Any) -> MaskedRows:
    config = Config(**{"size": 8, "length": 64, "noise": "mask", **keys})
    return MaskedRows(store_of(folder, ids), config, 1, SIZES, pairs)


def whole(rows: MaskedRows, step: int) -> Batch:
    (batch,) = rows.at(step)
    return batch


def undone(batch: Batch) -> np.ndarray:
    """The text before it was masked."""
    ids = batch.tokens_BT.copy()
    real = batch.targets != IGNORE
    np.put_along_axis(
        ids, batch.places_BK, np.where(real, batch.targets, np.take_along_axis(ids, batch.places_BK, 1)), 1
    )
    return ids


def same(a: Batch, b: Batch) -> bool:
    ours, theirs = a.arrays(), b.arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def distinct(length: int) -> np.ndarray:
    """A text in which a token names its place."""
    return np.arange(2, length + 2)


# B1


def test_15_percent_are_predicted_and_80_10_10_of_these_are_masked_random_and_the_same() -> None:
    draw = np.random.default_rng(0)
    ids = draw.integers(2, VOCAB, (1000, 100))
    read, places, targets = masked(ids, 0.15, SIZES, draw)
    assert np.array_equal(targets, np.take_along_axis(ids, places, 1))
    seen = np.take_along_axis(read, places, 1)
    chosen, as_masks, as_same = targets.size, int((seen == MASK).sum()), int((seen == targets).sum())
    for count, expected in ((chosen, 15_000), (as_masks, 12_000), (as_same, 1_500)):
        share = expected / 100_000
        assert abs(count - expected) <= 3 * math.sqrt(100_000 * share * (1 - share))
    assert abs(chosen - as_masks - as_same - 1_500) <= 115
    untouched = np.ones(ids.shape, bool)
    np.put_along_axis(untouched, places, False, 1)
    assert np.array_equal(read[untouched], ids[untouched])


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_a_row_has_the_share_of_its_length(tmp_path: Path, share: float) -> None:
    batch = whole(rows_of(tmp_path, distinct(4000), share=share), 0)
    assert batch.places_BK.shape == (8, round(share * 64))
    assert (batch.targets != IGNORE).all() and (np.diff(batch.places_BK) > 0).all()
    assert batch.count == batch.targets.size and batch.unpadded


# What rows are


def test_rows_are_framed_text_over_the_ends_of_units(tmp_path: Path) -> None:
    text = distinct(4000)
    text[::37] = STOP
    rows = rows_of(tmp_path, text)
    batch = whole(rows, 3)
    ids = undone(batch)
    assert (ids[:, 0] == START).all() and (ids[:, -1] == STOP).all()
    ring = np.concatenate([text, text]).astype("<u2").tobytes()
    assert all(row[1:-1].astype("<u2").tobytes() in ring for row in ids)
    assert not (batch.targets == STOP).any() and batch.segments_BT is None and batch.follows_B is None


def test_an_epoch_reads_all_of_the_text(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, distinct(3000), size=7)
    read = np.concatenate([undone(whole(rows, step)) for step in range(rows.per_epoch)])
    assert set(range(2, 3002)) <= set(np.unique(read).tolist())


# B3


def same_in_epochs(rows: MaskedRows, first: int, second: int) -> bool:
    return same(whole(rows, first * rows.per_epoch + 2), whole(rows, second * rows.per_epoch + 2))


def test_static_masks_repeat_in_each_epoch_dynamic_ones_do_not(tmp_path: Path) -> None:
    static, dynamic, ten = (rows_of(tmp_path / str(masks), distinct(4000), masks=masks) for masks in (1, 0, 10))
    assert same_in_epochs(static, 0, 1) and same_in_epochs(static, 0, 7)
    assert not same_in_epochs(dynamic, 0, 1)
    assert not same_in_epochs(ten, 0, 1) and same_in_epochs(ten, 0, 10)
    assert not same(whole(static, 0), whole(static, 1))


def test_a_step_depends_on_nothing_but_seed_and_place_and_parts_join_to_the_whole(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "one", distinct(4000), pairs=True)
    parts = rows_of(tmp_path / "four", distinct(4000), pairs=True, accumulate=4)
    for step in (9, 0, 9):
        joined = {
            name: np.concatenate([part.arrays()[name] for part in parts.at(step)])
            for name in whole(rows, step).arrays()
        }
        assert len(parts.at(step)) == 4
        assert same(dataclasses.replace(whole(rows, step), **joined), whole(rows, step))


# B4


def test_half_of_the_second_chunks_follow_and_the_others_come_from_a_row_away_or_more(tmp_path: Path) -> None:
    length, rows = 4000, rows_of(tmp_path, distinct(4000), pairs=True, size=50)
    follows, distances = [], []
    for step in range(40):
        batch = whole(rows, step)
        ids = undone(batch)
        border = batch.segments_BT.argmax(1)  # the first place of the second chunk
        first, second = ids[np.arange(50), border - 2], ids[np.arange(50), border]
        assert (ids[np.arange(50), border - 1] == STOP).all() and (ids[:, -1] == STOP).all()
        jump = (second - first - 1) % length
        follows.append(batch.follows_B)
        distances.append(np.minimum(jump, length - jump))
    is_next, distance = np.concatenate(follows) == 1, np.concatenate(distances)
    assert abs(is_next.sum() - 1000) <= 3 * math.sqrt(2000 * 0.25)
    assert (distance[is_next] == 0).all() and (distance[~is_next] >= 64).all()


def test_a_border_on_the_end_of_a_unit_is_not_asked_so_that_half_of_the_others_is_true(tmp_path: Path) -> None:
    text = distinct(4000)
    text[::3] = STOP
    rows = rows_of(tmp_path, text, pairs=True, size=50)
    asked = []
    for step in range(40):
        batch = whole(rows, step)
        ids, border = undone(batch), batch.segments_BT.argmax(1)
        before, after = ids[np.arange(50), border - 2], ids[np.arange(50), border]
        assert (batch.follows_B[before == STOP] == IGNORE).all()
        assert (after[batch.follows_B == 1] != STOP).all()
        asked.append(batch.follows_B[batch.follows_B != IGNORE])
    answers = np.concatenate(asked)
    assert abs(answers.sum() - len(answers) / 2) <= 3 * math.sqrt(len(answers) * 0.25)


def test_a_text_without_an_elsewhere_teaches_nothing_about_the_next_sentence(tmp_path: Path) -> None:
    assert (whole(rows_of(tmp_path, distinct(100), pairs=True), 0).follows_B == IGNORE).all()


# Whole words


def words_of(joins: Joins, row: np.ndarray) -> list[list[int]]:
    """The places of each word of a row, one by one."""
    words: list[list[int]] = []
    for place, token in enumerate(row.tolist()):
        text = 1 < token < VOCAB
        before = row[place - 1] if place else 0
        joined = text and 1 < before < VOCAB and joins.goes_on_V[token] and joins.goes_after_V[before]
        words[-1].append(place) if joined else words.append([place])
    return words


def test_all_pieces_of_a_word_are_hidden_together() -> None:
    draw = np.random.default_rng(0)
    joins = Joins(np.arange(VOCAB) % 3 != 0, np.ones(VOCAB, bool))
    ids = draw.integers(0, VOCAB, (50, 64))
    read, places, targets = masked(ids, 0.3, SIZES, draw, joins)
    assert places.shape == (50, 19)
    hidden = [set(row[target != IGNORE].tolist()) for row, target in zip(places, targets, strict=True)]
    for row, own in zip(ids, hidden, strict=True):
        for word in words_of(joins, row):
            assert len(own & set(word)) in (0, len(word))
    assert sum(map(len, hidden)) > 0.8 * places.size
    untouched = targets == IGNORE
    assert np.array_equal(np.take_along_axis(read, places, 1)[untouched], np.take_along_axis(ids, places, 1)[untouched])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_the_tokenizer_says_which_pieces_are_of_one_word(kind: Any) -> None:
    text = "the unbelievable cow (believably) eats; the 1999 cows"
    tokenizer = Tokenizer.train(TokenConfig(kind=kind, vocab_size=300), [text])
    ids = tokenizer.encode(text)
    goes_on = tokenizer.joins.goes_on(ids[None], np.ones((1, len(ids)), bool))[0]
    words: list[str] = []
    for piece, on in zip(tokenizer.pieces(text)[1], goes_on, strict=True):
        words = [*words[:-1], words[-1] + piece] if on else [*words, piece]
    plain = [word.strip() for word in words]
    assert {"the", "unbelievable", "cow", "believably", "eats", ";", "1999"} <= set(plain)


def test_characters_are_no_pieces_of_words() -> None:
    with pytest.raises(InputError, match="char tokens are no pieces of words"):
        _ = Tokenizer.train(TokenConfig(kind="char"), ["the cow"]).joins


# Several corpora


def test_several_corpora_share_the_rows_by_their_weights(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, {"text": "uint16", "weight": "int64"})
    for base in (2, 1002):
        writer.append("text", np.arange(base, base + 900), np.array([900]))
    writer.append("weight", np.array([3, 1]))
    rows = MaskedRows(writer.close(), Config(size=8, length=64, noise="mask"), 1, SIZES, pairs=True)
    shares = []
    for step in range(16):
        batch = whole(rows, step)
        own = undone(batch)[:, 1] >= 1002
        ids = undone(batch)[:, 1:]
        text = (ids > 1) & (ids < VOCAB)
        assert ((ids >= 1002) == own[:, None])[text].all()  # the second chunk is of the same corpus
        shares.append(own.mean())
    assert np.mean(shares) == 0.25
    assert rows.drawn(16) == [16 * 6 * rows.room, 16 * 2 * rows.room]
    with pytest.raises(InputError, match="several corpora have no epochs"):
        MaskedRows(rows.store, Config(size=8, length=64, noise="mask", masks=1), 1, SIZES, pairs=False)


# Any text


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=90),
    st.integers(1, 40),
    st.integers(1, 5),
    st.floats(0, 0.99),
    st.booleans(),
    st.booleans(),
)
def test_any_text_gives_rows_that_can_be_undone(
    tmp_path_factory: Any, ids: list[int], length: int, size: int, share: float, pairs: bool, words: bool
) -> None:
    sizes = Sizes(31, marks=("start", "mask"))
    joins = Joins(np.arange(31) % 2 == 0, np.ones(31, bool)) if words else None
    store = store_of(tmp_path_factory.mktemp("text"), ids)
    rows = MaskedRows(store, Config(size=size, length=length, share=share, noise="mask"), 0, sizes, pairs, joins)
    shapes = set()
    for step in range(rows.per_epoch + 1):
        batch = whole(rows, step)
        text, real = undone(batch), batch.targets != IGNORE
        assert set(text.ravel().tolist()) <= {*ids, STOP, 31}
        assert (batch.targets[real] > 1).all() and (batch.targets[real] < 31).all()
        assert batch.places_BK.min() >= 0 and batch.places_BK.max() < text.shape[1]
        shapes.add((text.shape, batch.places_BK.shape))
    assert len(shapes) == 1

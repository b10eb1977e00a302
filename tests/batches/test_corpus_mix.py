"""Several corpora in one batch: who reads what, how often, and that it is the same whenever it is asked for."""

from __future__ import annotations

import tempfile
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches.batch import Batch
from segue.batches.batches import Config
from segue.batches.corpus_mix import STRETCH
from segue.batches.encode import encode_mixed
from segue.batches.store import Store, StoreWriter
from segue.batches.streams import Streams
from segue.data.example import Example
from segue.data.ledger import elapsed
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer


def store_of(folder: Path, sizes: list[int], weights: list[int]) -> Store:
    """Corpora in which every token is different, all over: 1, 2, 3 … (0 is STOP, which they never hold)."""
    writer = StoreWriter(folder, {"text": "uint32", "weight": "int64"})
    writer.append("text", np.arange(1, sum(sizes) + 1), np.array(sizes))
    writer.append("weight", np.array(weights))
    return writer.close()


def joined(parts: list[Batch]) -> Batch:
    names = ("tokens_BT", "targets", "mask_BT", "fresh_B")
    return Batch(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


mixtures = given(
    corpora=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 50)), min_size=2, max_size=5),
    rows=st.integers(1, 12),
    length=st.integers(1, 9),
    seed=st.integers(0, 5),
    vary=st.booleans(),
)


def mixed(folder: str, corpora: list[tuple[int, int]], config: Config, seed: int) -> Streams:
    sizes, weights = ([pair[i] for pair in corpora] for i in (0, 1))
    return Streams(store_of(Path(folder), sizes, weights), config, seed)


@mixtures
@settings(max_examples=60, deadline=None)
def test_a_row_reads_one_ring_on_and_on_until_it_begins_anew(
    corpora: list[tuple[int, int]], rows: int, length: int, seed: int, vary: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        batches = mixed(folder, corpora, Config(rows, length, 1, vary), seed)
        ends = np.cumsum([size for size, _ in corpora])
        last = np.concatenate([[0], ends])

        def following(token: int) -> int:
            """What comes after a token in the ring of its corpus."""
            return int(last[np.searchsorted(ends, token)]) + 1 if token in ends else token + 1

        before: list[int] = []
        drawn: Counter[int] = Counter()
        for step in range(3 * STRETCH):
            assert batches.drawn(step) == [drawn[i] for i in range(len(corpora))]
            [batch] = batches.at(step)
            assert batch.tokens_BT.shape == batch.targets.shape and batch.mask_BT.all()
            for row in range(len(batch.targets)):
                targets = batch.targets[row].tolist()
                assert all(following(a) == b for a, b in pairwise(targets))
                # A token is predicted from the one before it; the first of a corpus from STOP.
                firsts = (last[:-1] + 1).tolist()
                assert batch.tokens_BT[row].tolist() == [0 if t in firsts else t - 1 for t in targets]
                if not batch.fresh_B[row]:
                    assert targets[0] == following(before[row])
                drawn.update(np.searchsorted(ends, targets).tolist())
            assert step or batch.fresh_B.all()
            assert step % STRETCH == 0 or not batch.fresh_B.any()
            before = batch.targets[:, -1].tolist()


@mixtures
@settings(max_examples=30, deadline=None)
def test_any_step_can_be_had_at_once(
    corpora: list[tuple[int, int]], rows: int, length: int, seed: int, vary: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        batches = mixed(folder, corpora, Config(rows, length, 1, vary), seed)
        steps = [0, 200, 7, STRETCH, 3 * STRETCH - 1, 200, 70_000]
        for step in steps:
            again = Streams(Store(Path(folder)), Config(rows, length, min(2, batches.size), vary), seed)
            one, other = batches.at(step)[0], joined(again.at(step))
            for name in ("tokens_BT", "targets", "fresh_B"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert batches.drawn(step) == again.drawn(step)


@given(
    weights=st.lists(st.integers(1, 1000), min_size=2, max_size=8),
    rows=st.integers(1, 40),
    steps=st.integers(1, 40_000),
    seed=st.integers(0, 9),
)
@settings(max_examples=100, deadline=None)
def test_corpora_are_drawn_by_weight_at_every_moment(weights: list[int], rows: int, steps: int, seed: int) -> None:
    """Never more than a few stretches of one row away, however long it goes on."""
    with tempfile.TemporaryDirectory() as folder:
        length, sizes = 4, [1000 + 37 * i for i in range(len(weights))]
        batches = Streams(store_of(Path(folder), sizes, weights), Config(rows, length), seed)
        drawn = batches.drawn(steps)
        assert sum(drawn) == rows * length * steps
        for count, weight in zip(drawn, weights, strict=True):
            assert abs(count - rows * length * steps * weight / sum(weights)) <= 3 * STRETCH * length


def test_every_token_of_a_corpus_is_read_equally_often(tmp_path: Path) -> None:
    """Rows of 8: 4.8, 2.4 and 0.8 of them."""
    sizes = [500, 203, 61]
    batches = Streams(store_of(tmp_path, sizes, [6, 3, 1]), Config(8, 5), seed=1)
    steps = 40 * STRETCH
    read = Counter(t for step in range(steps) for t in batches.at(step)[0].targets.ravel().tolist())
    begin = 1
    for size, drawn in zip(sizes, batches.drawn(steps), strict=True):
        counts = [read[token] for token in range(begin, begin + size)]
        assert sum(counts) == drawn
        assert max(abs(count - drawn / size) for count in counts) < 3  # of 30 and more
        assert min(counts) > 25
        begin += size


def test_most_rows_keep_their_text(tmp_path: Path) -> None:
    """Only rows that cannot be shared out evenly ever change theirs: here one of 10, in quotas of 7.5 and 2.5."""
    batches = Streams(store_of(tmp_path, [4000, 900], [3, 1]), Config(10, 8), seed=0)
    fresh = np.stack([batches.at(step)[0].fresh_B for step in range(1, 20 * STRETCH)])
    assert not fresh[:, :9].any()
    assert fresh[:, 9].any()


def test_seeds_read_in_another_order(tmp_path: Path) -> None:
    one, other = (Streams(store_of(tmp_path, [4000, 900], [3, 1]), Config(8, 8), seed) for seed in (0, 1))
    assert (one.at(0)[0].targets != other.at(0)[0].targets).any()


@pytest.mark.parametrize("rows", [3, 32, 101])
def test_the_epochs_of_gpt_3(tmp_path: Path, rows: int) -> None:
    """300 G tokens of 499 G, in millions: the weights, rounded, sum to 101 %, so that 303 give each its own."""
    tokens = {"Common Crawl": 410_000, "WebText2": 19_000, "Books1": 12_000, "Books2": 55_000, "Wikipedia": 3_000}
    weights = [60, 22, 8, 8, 3]
    expected = [0.439, 3.474, 2.0, 0.436, 3.0]
    assert sum(tokens.values()) == 499_000 and sum(weights) == 101
    exact = elapsed(list(tokens), [*tokens.values()], weights, [300_000 * weight / 100 for weight in weights])
    assert [round(row["epochs"], 3) for row in exact] == expected
    assert [row["weight"] for row in exact] == pytest.approx([weight / 101 for weight in weights])
    # And what the rows of a run really draw.
    batches = Streams(store_of(tmp_path, [*tokens.values()], weights), Config(rows, 1), seed=0)
    drawn = batches.drawn(303_000 // rows)
    assert [row["epochs"] for row in elapsed(list(tokens), [*tokens.values()], weights, drawn)] == pytest.approx(
        expected, rel=0.02
    )


@pytest.mark.parametrize(("size", "repeats"), [(2**29, 64), (2**27, 256), (2**25, 1024), (2**23, 4096)])
def test_the_repeats_of_t5(size: int, repeats: int) -> None:
    """D5: tokens times repeats are 2^35 in all four rows of T5's table."""
    [row] = elapsed(["C4"], [size], [1], [2**35])
    assert row["epochs"] == repeats and row["tokens"] * row["epochs"] == 34_359_738_368


def test_without_weights_corpora_are_drawn_by_their_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(Tokens(kind="char"), ["abc"])
    texts = [[Example(text="abc" * 10), Example(text="cab")], [Example(text="b" * 7, ends=False)]]
    by_size = encode_mixed(texts, None, tokenizer, tmp_path / "a").store
    assert by_size.columns["text"].lengths().tolist() == [30 + 1 + 3 + 1, 7]
    assert by_size.columns["weight"].flat.tolist() == [35, 7]
    weighed = encode_mixed(texts, [Fraction("0.5"), Fraction("1.25")], tokenizer, tmp_path / "b").store
    assert weighed.columns["weight"].flat.tolist() == [2, 5]
    assert weighed.tokens.tolist() == by_size.tokens.tolist()
    assert tokenizer.decode(weighed.columns["text"].row(1).tolist()) == "b" * 7


def test_blanks_are_drawn_for_several_corpora_too(tmp_path: Path) -> None:
    store = store_of(tmp_path, [400, 300], [1, 2])
    plain, blanked = (Streams(store, Config(8, 16, noise=noise, share=0.4), seed=1) for noise in ("none", "blank"))
    (old,), (new,) = plain.at(3), blanked.at(3)
    blank = new.tokens_BT != old.tokens_BT
    assert 0.2 < blank.mean() < 0.6 and (new.tokens_BT[blank] == 1).all() and np.array_equal(new.targets, old.targets)

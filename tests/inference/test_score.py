"""The scale: total bits over bytes, each token once, in the block of its first byte."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches import unit_rows
from segue.batches.batch import IGNORE, Batch
from segue.batches.encode import HeldOutText, encode_held_out
from segue.batches.scorer import Scorer
from segue.batches.store import StoreWriter
from segue.data.example import Example
from segue.inference import score
from segue.inference.lm_mixture import Mixture
from segue.inference.score import BLOCK, Reading, Scored, score_held_out, stream_logprobs, texts_logprobs
from segue.models.base import Sizes
from segue.models.class_ngram import ClassNgram
from segue.models.gpt import Gpt
from segue.models.neural_lm import NeuralLm
from segue.models.ngram import Ngram
from segue.models.rnn_lm import RnnLm
from segue.models.weighted_ngram import WeightedNgram
from segue.ngrams.cache import CacheLm
from segue.tokens.spelling import Speller
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

LN2 = math.log(2)


class Told(Scorer):
    """A model whose log p is a given function of the token before and the target; it notes what it was asked."""

    def __init__(self, logp: Callable[[Any, Any], Any]) -> None:
        self.logp = logp
        self.asked: list[tuple[int, int]] = []

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Any, Any]:
        assert isinstance(batch.tokens_BT, np.ndarray)  # a model without weights is not given tensors
        asked = batch.targets != IGNORE
        pairs = zip(batch.tokens_BT[asked].tolist(), batch.targets[asked].tolist(), strict=True)
        self.asked += pairs
        return np.where(asked, self.logp(batch.tokens_BT, batch.targets), 0.0), state


def uniform(vocab_size: int) -> Told:
    return Told(lambda before, target: np.full(target.shape, -math.log(vocab_size)))


def held_of(tokens: Any, sizes: Any, folder: Path, spelled: dict[int, float] | None = None) -> HeldOutText:
    writer = StoreWriter(folder, {"text": "uint16", "bytes": "uint32"})
    writer.append("text", np.asarray(tokens))
    writer.append("bytes", np.asarray(sizes))
    return HeldOutText(writer.close(), spelled or {}, int(np.sum(sizes)), carry=True)


def encoded(texts: list[str], unit: str, folder: Path, kind: str = "char", speller: Speller | None = None) -> Any:
    tokenizer = Tokenizer.train(Tokens(kind=kind, min_count=1), texts)
    held = encode_held_out([([Example(text=text) for text in texts], 0)], tokenizer, speller, unit, folder)
    return tokenizer, held


# Bits and bytes


@pytest.mark.parametrize(("unit", "ends"), [("line", 1), ("paragraph", 2), ("document", 0)])
def test_a_uniform_model_pays_log_v_a_token(unit: str, ends: int, tmp_path: Path) -> None:
    """Bytes are those of the raw text: UTF-8, with what the end of a unit stands for."""
    texts = ["the cow eats", "", "¡el niño 😀!"]
    tokenizer, held = encoded(texts, unit, tmp_path)
    scored = score_held_out(uniform(tokenizer.vocab_size), held, tokenizer.vocab_size)
    tokens = sum(map(len, texts)) + len(texts)
    size = sum(len(text.encode()) for text in texts) + ends * len(texts)
    assert scored.tokens == tokens
    assert scored.block_bytes.sum() == held.bytes == size
    assert scored.bits.sum() == pytest.approx(tokens * math.log2(tokenizer.vocab_size))
    assert scored.bits_per_byte == pytest.approx(tokens * math.log2(tokenizer.vocab_size) / size)
    assert scored.perplexity == pytest.approx(tokenizer.vocab_size)


@pytest.mark.parametrize("kind", ["char", "byte", "word", "bpe"])
def test_bytes_do_not_depend_on_the_tokens(kind: str, tmp_path: Path) -> None:
    texts = ["the cow  eats\tgrass", " naïve 😀😀 words "]
    tokenizer, held = encoded(texts, "line", tmp_path, kind)
    scored = score_held_out(uniform(tokenizer.vocab_size), held, tokenizer.vocab_size)
    assert scored.block_bytes.sum() == sum(len(text.encode()) + 1 for text in texts)


def test_perplexity_as_the_literature_counts(tmp_path: Path) -> None:
    """</s> of each line is a token, <s> is none: a unigram of "a b </s>" says 1/3 each time, wherever it stands."""
    tokenizer, held = encoded(["a b"] * 4, "line", tmp_path, "space")
    model = Ngram(Ngram.Config(order=1, smoothing="maximum_likelihood"), Sizes(tokenizer.vocab_size))
    list(model.fit(held.store, Ngram.Train()))
    scored = score_held_out(model, held, tokenizer.vocab_size)
    assert scored.tokens == 12
    assert scored.perplexity == pytest.approx(3.0)
    assert scored.bits_per_byte == pytest.approx(12 * math.log2(3) / 16)


def test_a_single_unit_without_a_stop_is_scored_too(tmp_path: Path) -> None:
    """A piece of a document ends nowhere: its last token is a character."""
    tokenizer = Tokenizer.train(Tokens(kind="char"), ["abc"])
    held = encode_held_out([([Example(text="abca", ends=False)], 0)], tokenizer, None, "document", tmp_path)
    scored = score_held_out(uniform(5), held, 5)
    assert scored.tokens == 4 and scored.bits.sum() == pytest.approx(4 * math.log2(5))


# Every token once, with what stands before it


@pytest.mark.parametrize(("tokens", "row"), [(50, 1 << 17), (50, 10), (5000, 1 << 17), (5000, 700), (131, 2), (65, 1)])
def test_every_token_is_asked_once_with_its_neighbour(tokens: int, row: int, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 40, tokens)
    model = Told(lambda before, target: np.zeros(target.shape))
    scored = score_held_out(model, held_of(ids, np.ones(tokens), tmp_path), 40, row=row)
    assert sorted(model.asked) == sorted(zip([0, *ids[:-1].tolist()], ids.tolist(), strict=True))
    assert scored.tokens == tokens
    assert (
        scored.way == "one stream, each token after all those before it" if tokens < 2 * row else "rows" in scored.way
    )


@pytest.mark.parametrize("row", [1 << 17, 1000, 37])
def test_a_token_belongs_to_the_block_of_its_first_byte(row: int, tmp_path: Path) -> None:
    """Against a plain sum over the tokens; lengths that straddle the ends of blocks, and some of no byte."""
    draw = np.random.default_rng(1)
    sizes, ids = draw.choice([0, 1, 2, 3, 700], 4000, p=[0.1, 0.5, 0.2, 0.19, 0.01]), draw.integers(0, 30, 4000)
    held = held_of(ids, sizes, tmp_path)
    model = Told(lambda before, target: -LN2 * (before + 0.01 * target))
    scored = score_held_out(model, held, 30, row=row)
    blocks = [0.0] * math.ceil(held.bytes / BLOCK)
    begin, before = 0, 0
    for token, size in zip(ids.tolist(), sizes.tolist(), strict=True):
        blocks[min(begin // BLOCK, len(blocks) - 1)] += before + 0.01 * token
        begin, before = begin + size, token
    assert len(blocks) > 5
    np.testing.assert_allclose(scored.bits, blocks)
    assert scored.block_bytes.sum() == held.bytes and set(scored.block_bytes[:-1]) == {float(BLOCK)}
    assert scored.nats == pytest.approx(sum(blocks) * LN2)


def test_a_stop_that_stands_for_no_byte_belongs_to_the_last_block(tmp_path: Path) -> None:
    """Its place is behind the last byte, which may be where a block would begin."""
    held = held_of([2, 3, 0], [BLOCK, BLOCK, 0], tmp_path)
    scored = score_held_out(Told(lambda before, target: -LN2 * (target + 1.0)), held, 4)
    np.testing.assert_allclose(scored.bits, [3.0, 4.0 + 1.0])
    np.testing.assert_array_equal(scored.block_bytes, [BLOCK, BLOCK])


@pytest.mark.parametrize("smoothing", ["kneser_ney", "add_alpha", "interpolation"])
def test_rows_side_by_side_say_what_one_row_says(smoothing: str, tmp_path: Path) -> None:
    """An n-gram sees a few tokens back, and each row has read more than that before its own begin."""
    ids = np.random.default_rng(2).integers(0, 9, 6000)
    held = held_of(ids, np.ones(6000), tmp_path)
    model = Ngram(Ngram.Config(order=5, smoothing=smoothing), Sizes(9))
    list(model.fit(SimpleNamespace(tokens=ids[:3000]), Ngram.Train()))
    one = score_held_out(model, held, 9)
    many = score_held_out(model, held, 9, row=100)
    assert one.way != many.way
    np.testing.assert_allclose(many.bits, one.bits, rtol=1e-12)


def test_a_recurrent_state_is_carried_through_the_windows(tmp_path: Path) -> None:
    """One stream through many windows is what one forward over the whole text says."""
    torch.manual_seed(0)
    model = RnnLm(RnnLm.Config(width=8, embedding=0), Sizes(9)).eval()
    ids = np.random.default_rng(3).integers(0, 9, 2500)
    before = np.concatenate([[0], ids[:-1]])
    batch = Batch(before[None], ids[None], np.ones((1, 2500), bool)).to("cpu")
    expected = model.logprobs(batch)[0][0].numpy()
    found = np.concatenate([logp[0] for _, logp, _ in stream_logprobs(model, ids, 1, 9)])
    np.testing.assert_allclose(found, expected, atol=1e-4)
    scored = score_held_out(model, held_of(ids, np.ones(2500), tmp_path), 9)
    assert scored.nats == pytest.approx(-float(expected.sum()), rel=1e-5)


# Each unit by itself


def networks() -> list[Any]:
    torch.manual_seed(0)
    sizes = Sizes(9)
    made = [
        RnnLm(RnnLm.Config(width=8, embedding=0), sizes),
        NeuralLm(NeuralLm.Config(words=4, width=8, embedding=4), sizes),
        Gpt(Gpt.Config(layers=1, width=8, heads=2, context=7), sizes),
        Gpt(Gpt.Config(layers=1, width=8, heads=2, context=6, position="rotary"), sizes),
    ]
    return [model.eval() for model in made]


def counted(carry: bool = False) -> list[Any]:
    text = SimpleNamespace(tokens=np.random.default_rng(5).integers(0, 9, 900))
    models = (Ngram(Ngram.Config(order=4), Sizes(9, carry=carry)), ClassNgram(ClassNgram.Config(classes=3), Sizes(9)))
    for model in (*models, WeightedNgram(WeightedNgram.Config(order=5), Sizes(9))):
        list(model.fit(text, type(model).Train()))
    return [*models, model]


def units_of(lengths: list[int]) -> list[np.ndarray]:
    draw = np.random.default_rng(6)
    return [np.append(draw.integers(1, 9, length), 0) for length in lengths]


LENGTHS = [3, 0, 0, 1, 45, 7, 6, 12, 5, 1, 13, 30, 2, 7, 0, 8]


@pytest.mark.parametrize("small", [False, True], ids=["whole", "in steps"])
def test_each_unit_is_scored_as_if_it_stood_alone(small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of units, in steps of long units, and for units over the borders of spans."""
    if small:
        monkeypatch.setattr(score, "_WIDEST", 9)
        monkeypatch.setattr(score, "_TOGETHER", 40)
        monkeypatch.setattr(unit_rows, "SPAN", 32)
    units = units_of(LENGTHS)
    ids = np.concatenate(units)
    held = held_of(ids, np.full(len(ids), 100), tmp_path)._replace(carry=False, unit="line")
    mixture = [Mixture([*networks()[1:3], *counted()[:2]], [0.4, 0.1, 0.2, 0.3], ["cpu"] * 4)]
    for model in [*networks(), *counted(), *mixture]:
        alone = [np.concatenate([rows[0] for _, rows, _ in stream_logprobs(model, unit, 1, 9)]) for unit in units]
        expected = np.concatenate(alone)
        found = np.full(len(ids), np.nan)
        for first, logp in Reading(model, held, 9):
            assert np.isnan(found[first : first + len(logp)]).all()
            found[first : first + len(logp)] = logp
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        scored = score_held_out(model, held, 9)
        blocks = np.bincount(np.arange(len(ids)) * 100 // BLOCK, -expected / LN2)
        np.testing.assert_allclose(scored.bits, blocks, rtol=1e-4)
        assert scored.way.startswith("each line by itself")


def test_a_long_unit_is_read_in_rows(tmp_path: Path) -> None:
    """An n-gram sees a few tokens back, so that the rows say what one row says."""
    units = units_of([900, 4, 0, 1200, 60])
    ids = np.concatenate(units)
    held = held_of(ids, np.ones(len(ids)), tmp_path)._replace(carry=False)
    (model, *_) = counted()
    many, one = (score_held_out(model, held, 9, row=row) for row in (100, 1 << 17))
    assert many.nats == pytest.approx(one.nats, rel=1e-12)
    assert one.way == "each document by itself"
    assert (
        many.way == "each document by itself, long ones in up to 12 rows, each with 1,024 tokens before it for context"
    )


def test_one_unit_is_one_stream_with_and_without_carry(tmp_path: Path) -> None:
    (unit,) = units_of([700])
    for i, model in enumerate([*networks(), *counted()]):
        held = held_of(unit, np.ones(len(unit)), tmp_path / str(i))
        carried, alone = score_held_out(model, held, 9), score_held_out(model, held._replace(carry=False), 9)
        assert carried.way == alone.way and carried.way.startswith("one stream")
        np.testing.assert_array_equal(carried.bits, alone.bits)


def test_a_corpus_that_was_cut_does_not_go_on_into_the_next(tmp_path: Path) -> None:
    """The first unit of the second corpus begins with STOP, though the first corpus does not end with one."""
    ids = np.array([2, 3, 0, 4, 5, 6, 2, 0, 3, 0])
    held = held_of(ids, np.ones(10), tmp_path)._replace(carry=False, ends=(5, 10))
    model = Told(lambda before, target: np.zeros(target.shape))
    scored = score_held_out(model, held, 9)
    pairs = [(0, 2), (2, 3), (3, 0), (0, 4), (4, 5), (0, 6), (6, 2), (2, 0), (0, 3), (3, 0)]
    assert sorted(model.asked) == sorted(pairs)
    assert [part.tokens for part in scored.parts] == [5, 5]


@pytest.mark.parametrize("carry", [False, True])
def test_a_model_that_learns_from_what_it_reads_takes_units_in_order(carry: bool, tmp_path: Path) -> None:
    """A cache keeps what it has read; without carry only its history begins anew."""
    ids = np.concatenate(units_of(LENGTHS))
    held = held_of(ids, np.ones(len(ids)), tmp_path)._replace(carry=carry, unit="line")
    places = [first for first, _ in Reading(CacheLm(9), held, 9)]
    assert places == sorted(places) and len(places) == (1 if carry else len(LENGTHS))
    scored = score_held_out(CacheLm(9), held, 9)
    assert np.isfinite(scored.nats)
    kept = (
        "one stream, each token after all those before it"
        if carry
        else "each line by itself, in order, keeping what it has learnt"
    )
    assert scored.way == kept
    one = CacheLm(9)
    units = [ids] if carry else units_of(LENGTHS)
    nats = [-rows.sum() for unit in units for _, rows, _ in stream_logprobs(one, unit, 1, 9)]
    assert scored.nats == pytest.approx(math.fsum(nats), rel=1e-12)


@pytest.mark.parametrize("carry", [False, True])
def test_texts_one_by_one_add_up_to_the_whole(carry: bool, tmp_path: Path) -> None:
    units = units_of(LENGTHS)
    ids = np.concatenate(units)
    held = held_of(ids, np.ones(len(ids)), tmp_path)._replace(carry=carry)
    for model in [*networks(), *counted(carry)]:
        found = [logp.sum() for logp in texts_logprobs(model, units, 9, "cpu", carry)]
        assert -math.fsum(found) == pytest.approx(score_held_out(model, held, 9).nats, rel=1e-5)


def test_a_short_text_in_rows_is_scored_whole(tmp_path: Path) -> None:
    """More rows than there is text for: the last ones are empty, and nothing is scored twice."""
    held = held_of(np.full(65, 2), np.ones(65), tmp_path)
    scored = score_held_out(uniform(4), held, 4, row=1)
    assert scored.bits.sum() == pytest.approx(65 * 2)


def test_progress_ends_at_one(tmp_path: Path) -> None:
    shares: list[float] = []
    score_held_out(uniform(4), held_of(np.full(3000, 2), np.ones(3000), tmp_path), 4, done=shares.append)
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0) and len(shares) > 1


# What cannot be, and what must be spelled


def test_no_probability_at_all_is_infinite_bits(tmp_path: Path) -> None:
    ids = np.full(3 * BLOCK, 2)
    ids[[10, BLOCK + 5, BLOCK + 6]] = 3
    model = Told(lambda before, target: np.where(target == 3, -np.inf, -LN2))
    scored = score_held_out(model, held_of(ids, np.ones(len(ids)), tmp_path), 4)
    assert scored.zeros == 3
    assert np.isinf(scored.bits).tolist() == [True, True, False]
    assert scored.bits[2] == pytest.approx(BLOCK)
    assert scored.bits_per_byte == math.inf and scored.perplexity == math.inf


def test_spelling_is_paid_where_the_word_begins(tmp_path: Path) -> None:
    """In bits per byte, not in the perplexity, where UNK is a word like others."""
    ids, sizes = np.full(40, 2), np.full(40, 100)
    ids[[0, 20, 21, 39]] = 1
    spelled = {0: 5.0, 20: 7.0, 21: 11.0, 39: 13.0}  # bytes 0, 2000, 2100 and 3900
    plain = score_held_out(uniform(4), held_of(ids, sizes, tmp_path / "a"), 4)
    paid = score_held_out(uniform(4), held_of(ids, sizes, tmp_path / "b", spelled), 4)
    np.testing.assert_allclose(paid.bits - plain.bits, [12.0, 24.0])
    assert (paid.spelling_bits, paid.unknown) == (36.0, 4)
    assert (plain.spelling_bits, plain.unknown) == (0.0, 0)
    assert paid.perplexity == plain.perplexity == pytest.approx(4.0)
    assert paid.bits_per_byte == pytest.approx((40 * 2 + 36) / 4000)


def test_unknown_words_are_spelled_by_the_one_character_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(Tokens(kind="word", min_count=1), ["the cow eats", "the cow"])
    speller = Speller.learn(["the cow eats", "the cow"])
    held = encode_held_out([([Example(text="the hen eats hay")], 0)], tokenizer, speller, "line", tmp_path)
    scored = score_held_out(uniform(tokenizer.vocab_size), held, tokenizer.vocab_size)
    assert scored.unknown == 2
    assert scored.spelling_bits == pytest.approx(speller.bits(" hen") + speller.bits(" hay"))
    assert scored.bits.sum() == pytest.approx(5 * math.log2(tokenizer.vocab_size) + scored.spelling_bits)


@pytest.mark.parametrize(("perplexity", "bits"), [(109.0, 6.768), (58.3, 5.865), (35.8, 5.162), (20.5, 4.358)])
def test_the_ladder_of_perplexities_in_bits_a_word(perplexity: float, bits: float, tmp_path: Path) -> None:
    """D7: half of the words are twice as likely as the mean, half are half as likely."""
    held = held_of([2, 3, 2, 4, 2, 4], [1] * 6, tmp_path)
    shares = np.array([1.0, 1.0, 2.0, 0.5, 0.5])  # their product over the six words is 1
    model = Told(lambda before, target: np.log(shares[target] / perplexity))
    scored = score_held_out(model, held, 5)
    assert scored.perplexity == pytest.approx(perplexity)
    assert scored.bits.sum() / scored.tokens == pytest.approx(bits, abs=5e-4)


def test_perplexity_too_large_to_say_is_infinite() -> None:
    scored = Scored(np.ones(1), np.ones(1), 1e6, 10, 0.0, 0, 0, "")
    assert scored.perplexity == math.inf

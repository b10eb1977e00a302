"""Scoring by a masked language model: every token once, in seven passes or in turn, and never STOP or UNK."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import IGNORE, Batch
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import HeldOutText
from segue.batches.store import StoreWriter
from segue.data.config import Config as Data
from segue.inference.decode_settings import Config as Decode
from segue.inference.masked import next_sentence_accuracy, score_in_turn, score_masked
from segue.inference.opened import Opened
from segue.models.bert import Bert
from segue.tasks.masked_lm import TASK
from segue.tokens.tokenizer import Config as TokenConfig
from segue.tokens.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(TokenConfig(kind="char"), ["abcdefghijklm nopqrstuvwxyz"])
V = TOKENIZER.vocab_size
SIZES = Sizes(V, marks=("start", "mask"))
START, MASK, STOP, UNK = SIZES.start, SIZES.mark("mask"), 0, 1


def opened_with(model: Any, limit: int = 20) -> Opened:
    return Opened(model, Codec(TOKENIZER, (), Data(), SIZES), Decode(), limit, TASK)


def held_out(folder: Path, ids: Any, ends: tuple[int, ...] = ()) -> HeldOutText:
    """A text whose tokens have 1, 2, 3, 1, 2, 3 … bytes."""
    ids = np.asarray(ids)
    writer = StoreWriter(folder, {"text": "uint16", "bytes": "uint32"})
    writer.append("text", ids)
    sizes = 1 + np.arange(len(ids)) % 3
    writer.append("bytes", sizes)
    return HeldOutText(writer.close(), {}, int(sizes.sum()), ends or (len(ids),))


class Uniform:
    """A model that holds every token for as likely as any other, and keeps what it was given to read."""

    window = 20

    def __init__(self) -> None:
        self.read: list[Batch] = []

    def __call__(self, batch: Batch) -> tuple[Any, None]:
        self.read.append(batch)
        return torch.zeros(*batch.places_BK.shape, V), None

    def follows(self, batch: Batch) -> Any:
        self.read.append(batch)
        return torch.tensor([[0.0, 1.0]]).expand(len(batch.tokens_BT), 2)


def bert(**given: Any) -> Bert:
    torch.manual_seed(0)
    values = {"width": 16, "heads": 2, "layers": 1, "context": 20} | given
    model = Bert(Bert.Config(**values), SIZES).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def text_of(length: int) -> np.ndarray:
    ids = np.random.default_rng(0).integers(2, V, length)
    ids[5::11], ids[7::13] = STOP, UNK
    return ids


# A text


@pytest.mark.parametrize("length", [1, 3, 18, 19, 100])
def test_every_token_is_masked_once_and_stop_and_unk_never(tmp_path: Path, length: int) -> None:
    ids, model = text_of(length), Uniform()
    found = score_masked(opened_with(model), held_out(tmp_path, ids))
    asked: Counter[int] = Counter()
    for batch in model.read:
        for row, mask, places, targets in zip(
            batch.tokens_BT, batch.mask_BT, batch.places_BK, batch.targets, strict=True
        ):
            real, hidden = int(mask.sum()), targets != IGNORE
            assert row[0] == START and row[real - 1] == STOP
            assert (row == MASK).sum() == hidden.sum() <= math.ceil(18 / 7)
            assert set(places[hidden].tolist()) == set((row == MASK).nonzero()[:, 0].tolist())
            asked.update(targets[hidden].tolist())
    text = ids > UNK
    assert asked == Counter(ids[text].tolist())
    assert found.tokens == text.sum() and found.unknown == (ids == UNK).sum()
    assert found.bytes == (1 + np.arange(length) % 3)[text].sum()
    assert found.nats == pytest.approx(found.tokens * math.log(V))
    if found.tokens:
        assert found.perplexity == pytest.approx(V)
        assert found.bits_per_byte == pytest.approx(found.tokens * math.log2(V) / found.bytes)


def test_blocks_are_of_the_raw_text_and_corpora_are_apart(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(2, V, 3000)
    found = score_masked(opened_with(bert()), held_out(tmp_path, ids, (1000, 3000)))
    assert len(found.pieces_NK) == math.ceil(6000 / 2048)
    assert found.pieces_NK[:, 1].sum() == 6000 and abs(found.pieces_NK[0, 1] - 2048) <= 3
    assert [part.tokens for part in found.parts] == [1000, 2000]
    assert sum(part.nats for part in found.parts) == pytest.approx(found.nats)
    alone = score_masked(opened_with(bert()), held_out(tmp_path / "first", ids[:1000]))
    assert alone.nats == pytest.approx(found.parts[0].nats)


def test_one_pass_scores_a_seventh(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(2, V, 1800)
    found = score_masked(opened_with(Uniform()), held_out(tmp_path, ids), passes=1)
    assert found.tokens == 300  # 3 of each window of 18
    assert found.loss == pytest.approx(math.log(V))


# Sentences


@torch.inference_mode()
def in_turn(model: Bert, ids: list[int]) -> list[float]:
    """log p of each token, masked alone, one after the other: the equation."""
    found = []
    for place, token in enumerate(ids):
        read = torch.tensor([[START, *ids[:place], MASK, *ids[place + 1 :], STOP]])
        logits = model(Batch(read, None, torch.ones_like(read, dtype=torch.bool)))[0]
        found.append(float(logits[0, place + 1].log_softmax(-1)[token]))
    return found


def test_each_token_is_masked_in_turn_and_batches_make_no_difference() -> None:
    model, texts = bert(), ["the cow", "a", "", "eats green grass", "the cow"]
    lines = list(score_in_turn(opened_with(model), texts))
    assert [line.text for line in lines] == texts
    for line in lines:
        expected = in_turn(model, TOKENIZER.encode(line.text).tolist())
        assert line.pseudo_log_likelihoods == pytest.approx(expected)
        assert line.pseudo_log_likelihood == pytest.approx(sum(expected))
        assert "".join(line.tokens) == line.text
    assert lines[0].pseudo_perplexity == pytest.approx(math.exp(-lines[0].pseudo_log_likelihood / 7))


def test_a_token_of_a_long_text_is_read_with_what_stands_around_it() -> None:
    model, text = bert(), "the green cow eats grass and sings of hills"
    (line,) = score_in_turn(opened_with(model), [text])
    ids = TOKENIZER.encode(text).tolist()
    for place, first in ((0, 0), (20, 11), (len(ids) - 1, len(ids) - 18)):
        around = in_turn(model, ids[first : first + 18])
        assert line.pseudo_log_likelihoods[place] == pytest.approx(around[place - first])


def test_unknown_tokens_are_given() -> None:
    (line,) = score_in_turn(opened_with(bert()), ["coẅ"])
    assert line.tokens == ["c", "o", "ẅ"] and line.pseudo_log_likelihoods[2] is None
    assert line.pseudo_log_likelihood == pytest.approx(sum(line.pseudo_log_likelihoods[:2]))
    assert "logprob" not in line.json() and "bits" not in line.json()


# The next sentence


def test_a_model_that_says_yes_to_all_pairs_is_right_in_half(tmp_path: Path) -> None:
    model = Uniform()
    ids = np.random.default_rng(0).integers(2, V, 40_000)
    accuracy = next_sentence_accuracy(opened_with(model), held_out(tmp_path, ids))
    truth = torch.cat([batch.follows_B for batch in model.read]).double()
    assert accuracy == pytest.approx(float(truth.mean()))
    assert abs(accuracy - 0.5) < 3 * math.sqrt(0.25 / len(truth))


def test_a_short_text_has_no_pairs(tmp_path: Path) -> None:
    assert next_sentence_accuracy(opened_with(Uniform()), held_out(tmp_path, text_of(30))) is None

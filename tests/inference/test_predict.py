"""From texts to labels, tags and translations: in order, in batches, and with what is beyond the limit left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from segue.inference.predict import Prediction, Predictor
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.data.example import Example
from segue.inference.decode_settings import Config as Decode
from segue.models.base import Sizes
from segue.models.bow import Bow
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.window_tagger import WindowTagger
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
LABELS = ("a", "b", "c")


def tokenizer_of(kind: str) -> Tokenizer:
    return Tokenizer.train(Tokens(kind=kind, min_count=1), [" " + " ".join(WORDS)])


def texts(rows: int) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 7))) for _ in range(rows)]


def predictor(task: str, model: Any, kind: str, limit: int = 100, **decode: Any) -> Predictor:
    tokenizer = tokenizer_of(kind)
    sizes = Sizes(tokenizer.vocab_size, len(LABELS))
    return Predictor(
        model(sizes), task, tokenizer, LABELS, sizes, Decode(**{"beam": 1, "max_tokens": 20} | decode), limit
    )


def examples(rows: list[str]) -> list[Example]:
    return [Example(text=text, words=tuple(text.split())) for text in rows]


def bow(sizes: Sizes) -> Bow:
    torch.manual_seed(0)
    model = Bow(Bow.Config(dropout=0.5), sizes)
    nn.init.normal_(model.weight.weight)
    return model.train()  # a predictor turns dropout off itself


def tagger(sizes: Sizes) -> WindowTagger:
    torch.manual_seed(0)
    return WindowTagger(WindowTagger.Config(embedding=5, width=6), sizes).train()


# Classes


def test_labels_are_those_of_the_sums_of_the_words_vectors() -> None:
    """150 texts are three batches: in order, whatever stands beside them."""
    one = predictor("classify", bow, "word")
    rows = texts(150)
    W = one.model.weight.weight.detach()
    for text, answer in zip(rows, one.predict(examples(rows)), strict=True):
        p = W[torch.tensor(one.tokenizer.encode(" " + text)).long()].sum(0).softmax(-1)
        assert answer.label == LABELS[int(p.argmax())]
        assert answer.probabilities == pytest.approx(p.tolist(), abs=1e-5)
        assert sum(answer.probabilities) == pytest.approx(1.0, abs=1e-5)


def test_a_word_is_the_same_at_the_head_of_a_text() -> None:
    """The blank before a word belongs to it; the first word gets one, as in training."""
    one = predictor("classify", bow, "word")
    (alone, after) = one.predict(examples(["one", " one"]))
    assert one.tokenizer.unk not in one.tokenizer.encode(" one")
    assert alone.probabilities != after.probabilities  # two blanks are two tokens
    W = one.model.weight.weight.detach()
    assert alone.probabilities == pytest.approx(W[one.tokenizer.encode(" one")[0]].softmax(-1).tolist(), abs=1e-5)


def test_an_empty_text_is_judged_by_the_bias() -> None:
    one = predictor("classify", bow, "char")
    one = Predictor(one.model, "classify", one.tokenizer, LABELS, one.sizes, one.decode, 0)
    (answer,) = one.predict([Example(text="")])
    assert answer.probabilities == pytest.approx([1 / 3] * 3)


def test_what_is_beyond_the_limit_is_not_read_and_counted() -> None:
    one = predictor("classify", bow, "word", limit=3)
    short, long = one.predict(examples(["one two three", "one two three four five"]))
    assert short == long
    assert [one.cut(e) for e in examples(["one two", "one two three four five"])] == [0, 2]


# Tags


def test_one_tag_a_word_in_order() -> None:
    one = predictor("tag", tagger, "space")
    rows = texts(130)
    answers = list(one.predict(examples(rows)))
    assert [len(answer.tags) for answer in answers] == [len(text.split()) for text in rows]
    for text, answer in list(zip(rows, answers, strict=True))[::17]:
        (alone,) = one.predict(examples([text]))
        assert alone.tags == answer.tags  # padding and neighbours change nothing
    assert {tag for answer in answers for tag in answer.tags} <= set(LABELS)


def test_long_and_empty_sentences() -> None:
    one = predictor("tag", tagger, "space", limit=4)
    sentence, empty = examples(["one two three four five six", ""])
    answers = list(one.predict([sentence, empty]))
    assert [len(answer.tags) for answer in answers] == [4, 0]
    assert [one.cut(sentence), one.cut(empty)] == [2, 0]


# Translations


@dataclass(frozen=True)
class Copied:
    """How far each row has copied its source."""

    source_BS: Tensor
    place_B: Tensor

    def select(self, rows: Tensor, same_text: bool = False) -> Copied:
        return Copied(self.source_BS[rows], self.place_B[rows])


class Copier:
    """Writes the source again, then STOP, each with probability 0.9 (the rest is spread evenly)."""

    def __init__(self, sizes: Sizes) -> None:
        self.vocab_size = sizes.vocab_size

    def start(self, rows: int, capacity: int, source: Tensor, source_mask: Tensor) -> Copied:
        ended = torch.cat([source.masked_fill(~source_mask, 0), torch.zeros(rows, 1, dtype=torch.long)], 1)
        return Copied(ended, torch.full((rows,), -1))

    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Copied) -> tuple[Tensor, Copied]:
        place_B = state.place_B + mask_BT.sum(1)
        right_B = state.source_BS.gather(1, place_B.clamp(max=state.source_BS.shape[1] - 1)[:, None])
        p_BV = torch.full((len(tokens_BT), self.vocab_size), 0.1 / (self.vocab_size - 1)).scatter(1, right_B, 0.9)
        return p_BV.log(), Copied(state.source_BS, place_B)


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_come_back_as_text(beam: int) -> None:
    one = predictor("seq2seq", Copier, "char", beam=beam, max_tokens=60)
    rows = texts(70)
    answers = list(one.predict(examples(rows)))
    assert [answer.text for answer in answers] == rows
    for text, answer in zip(rows, answers, strict=True):
        assert answer.logprob == pytest.approx((len(text) + 1) * np.log(0.9), rel=1e-4)


def test_a_source_beyond_the_limit_is_cut() -> None:
    one = predictor("seq2seq", Copier, "char", limit=5)
    assert [answer.text for answer in one.predict(examples(["three five"]))] == ["three"]
    assert one.cut(Example(text="three five")) == 5


def test_unknown_is_never_written() -> None:
    """Where the likeliest token is UNK, the next one is taken."""

    class Unsure(Copier):
        def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Copied) -> tuple[Tensor, Copied]:
            logits, state = super().step(tokens_BT, mask_BT, state)
            logits[:, 1] = 5.0
            return logits, state

    (answer,) = predictor("seq2seq", Unsure, "char").predict(examples(["two"]))
    assert answer.text == "two"


def test_an_empty_source_is_translated_too() -> None:
    def network(sizes: Sizes) -> RnnSeq2seq:
        torch.manual_seed(0)
        return RnnSeq2seq(RnnSeq2seq.Config(width=8), sizes)

    one = predictor("seq2seq", network, "char", max_tokens=5)
    together = list(one.predict(examples(["", "one two"])))
    alone = [answer for text in ("", "one two") for answer in one.predict(examples([text]))]
    assert [answer.text for answer in together] == [answer.text for answer in alone]


# All


def test_predictions_stream() -> None:
    """The first answers come before the last texts are read: standard input may have no end."""
    one = predictor("classify", bow, "word")
    read = 0

    def endless() -> Iterator[Example]:
        nonlocal read
        while True:
            read += 1
            yield Example(text="one two")

    answers = one.predict(endless())
    assert isinstance(next(answers), Prediction) and read <= 64


def test_the_model_gets_tensors_with_a_mask() -> None:
    seen: list[Batch] = []

    class Spy(nn.Module):
        def forward(self, batch: Batch) -> tuple[Tensor, None]:
            seen.append(batch)
            return torch.zeros(len(batch.tokens_BT), len(LABELS)), None

    one = predictor("classify", lambda sizes: Spy(), "word")
    list(one.predict(examples(["one", "one two three"])))
    assert seen[0].mask_BT.tolist() == [[True, False, False], [True, True, True]]
    assert isinstance(seen[0].tokens_BT, Tensor) and not one.model.training

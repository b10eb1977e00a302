"""Alignment of words from the attention between tokens, with worked numbers, and as Pharaoh writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.errors import InputError
from segue.inference.alignment import END, Alignment, aligned, attends, word_numbers
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.models.base import EncoderDecoder
from segue.models.network import Network
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.transformer import Transformer
from segue.tasks.seq2seq import TASK
from segue.tokens.tokenizer import Config, Tokenizer

TEXTS = ["ab c", "d ef", "ab d"]


class Diagonal(Network, EncoderDecoder):
    """Place t of the target attends to place t of the source, or to the last one."""

    @dataclass(frozen=True)
    class Config:
        attention: bool = True

    def __init__(self, attention: bool = True) -> None:
        super().__init__(self.Config(attention), Sizes(9))
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def alignment(self, batch: Batch) -> Any:
        if not self.config.attention:
            return None
        last_B1 = batch.source_mask.sum(1, keepdim=True) - 1
        places_BT = torch.minimum(torch.arange(batch.tokens_BT.shape[1])[None], last_B1)
        return torch.nn.functional.one_hot(places_BT, batch.source.shape[1]).float()

    def forward(self, batch: Batch, state: Any = None) -> Any:
        raise NotImplementedError

    def start(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def step(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def opened(kind: Any = "char", attention: bool = True, limit: int = 100) -> Opened:
    tokenizer = Tokenizer.train(Config(kind), TEXTS)
    codec = Codec(tokenizer, (), Data(path="grammar"), Sizes(tokenizer.vocab_size))
    return Opened(Diagonal(attention), codec, Decode(), limit, TASK)


def test_words_of_letters_by_hand() -> None:
    """Source "ab c" has the letters a b blank c, target "d ef" the letters d blank e f and the end. Place t attends to
    place t, the end to the last. The blank belongs to the word after it, so that d gets a (ab); blank, e and f get b,
    the blank and c: a third of ab and two thirds of c; the end gets c."""
    (found,) = aligned(opened(), [("ab c", "d ef")])
    assert found.source == ("ab", "c")
    assert found.target == ("d", "ef", END)
    np.testing.assert_allclose(found.alpha_TS, [[1, 0], [1 / 3, 2 / 3], [0, 1]])
    np.testing.assert_allclose(found.coverage, [4 / 3, 5 / 3])
    assert found.links() == [(0, 0), (1, 1)]
    assert found.line() == "0-0 1-1"


@pytest.mark.parametrize("kind", ["char", "byte", "space", "word", "bpe", "wordpiece"])
def test_rows_sum_to_one_with_every_kind_of_tokens(kind: str) -> None:
    pairs = [("ab c", "d ef"), ("d", "ab ab ab d c"), ("c d ef", "d")]
    for (source, target), found in zip(pairs, aligned(opened(kind), pairs), strict=True):
        assert found.source == tuple(source.split())
        assert found.target == (*target.split(), END)
        np.testing.assert_allclose(found.alpha_TS.sum(1), 1)
        assert [t for _, t in found.links()] == list(range(len(target.split())))


@pytest.mark.parametrize("pairs", [[("", "")], [("", ""), ("ab c", "d"), ("", "d")]])
@pytest.mark.parametrize("kind", [Transformer, RnnSeq2seq])
def test_a_blank_source_has_no_links(kind: Any, pairs: list[tuple[str, str]]) -> None:
    settings = {"layers": 1, "width": 8} | ({"heads": 2} if kind is Transformer else {})
    some = opened()
    found = list(aligned(some._replace(model=kind(kind.Config(**settings), some.codec.sizes)), pairs))
    assert [len(one.links()) for one in found] == [len(source and target.split()) for source, target in pairs]


def test_a_text_that_is_cut_has_only_the_words_that_are_read() -> None:
    (found,) = aligned(opened("space", limit=2), [("ab c d", "d ef ab")])
    assert found.source == ("ab", "c")
    assert found.target == ("d", "ef", "ab")  # collate reads STOP and two words, and predicts three


def test_the_end_is_no_word_of_pharaoh() -> None:
    alpha = np.array([[0.2, 0.8], [0.6, 0.4], [0.0, 1.0]])
    assert Alignment(("a", END), ("b", "c", END), alpha).links() == [(0, 0), (0, 1)]
    assert Alignment(("a", "d"), ("b", "c", END), alpha).links() == [(1, 0), (0, 1)]


def test_tokens_without_a_letter_belong_to_a_word() -> None:
    assert word_numbers("ab  cd", ["a", "", "b", " ", " c", "d"]) == [0, 0, 0, 1, 1, 1]
    assert word_numbers("ab ", ["ab", " "]) == [0, 0]


def test_a_model_without_attention_is_refused() -> None:
    assert attends(Diagonal())
    assert not attends(Diagonal(attention=False))
    with pytest.raises(InputError, match=r"no attention .* nothing to align"):
        next(aligned(opened(attention=False), [("ab", "c")]))


def test_a_blank_source_has_an_empty_alignment_and_the_others_keep_theirs() -> None:
    pairs = [("ab c", "d ef"), ("", ""), ("  ", "d"), ("d", "ab")]
    alone = [next(aligned(opened(), [pair])).links() for pair in pairs]
    assert [found.links() for found in aligned(opened(), pairs)] == alone
    assert alone[1] == alone[2] == []
    assert alone[0] == [(0, 0), (1, 1)]

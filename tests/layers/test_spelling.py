"""Words by their letters: the convolutions by hand, and which words share a vector."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.spelled_words import LONGEST, word_column
from segue.layers.spelling import BEGIN, END, FIRST, Highway, Spelling, framed

WORDS = ["", "?", "cow", "cows", "a", "Straßenbahnhaltestelle", "ox"]


@pytest.fixture
def spelling() -> Spelling:
    torch.manual_seed(0)
    layer = Spelling(len(WORDS), (0, 1), 4, (3, 2, 5), 2, 6).double()
    layer.spell(WORDS)
    return layer


def by_hand(layer: Spelling, letters: list[int]) -> Tensor:
    """The head of the file, window by window; zero vectors stand behind the last letter."""
    x_CD = torch.stack([layer.letter.weight[i] for i in letters] + [torch.zeros(4).double()] * 4)
    found = []
    for k, conv in enumerate(layer.filters, 1):
        windows = [x_CD[i : i + k].T for i in range(len(letters))]  # D, k as Conv1d has its weights
        scores = [(conv.weight * window).sum((1, 2)) + conv.bias for window in windows]  # type: ignore[operator]
        found.append(torch.stack(scores).relu().amax(0))
    m_F = torch.cat(found)
    for highway in layer.highways:
        new, gate = (highway.both.weight @ m_F + highway.both.bias).chunk(2)  # type: ignore[union-attr,operator]
        m_F = gate.sigmoid() * new.relu() + (1 - gate.sigmoid()) * m_F
    return layer.out.weight @ m_F + layer.out.bias


def letters_of(word: str) -> list[int]:
    return [BEGIN, *(ord(letter) + 1 for letter in word), END]


def test_vectors_are_those_of_the_equations_whatever_stands_beside_a_word(spelling: Spelling) -> None:
    tokens_BT = torch.tensor([[2, 3, 5, 2], [4, 0, 6, 1]])
    x_BTD = spelling(tokens_BT)
    special = {0: [BEGIN, FIRST, END], 1: [BEGIN, FIRST + 1, END]}
    for place in np.ndindex(*tokens_BT.shape):
        i = int(tokens_BT[place])
        torch.testing.assert_close(x_BTD[place], by_hand(spelling, special.get(i) or letters_of(WORDS[i])))


def test_unknown_words_are_read_by_their_letters(spelling: Spelling) -> None:
    chars_BTC = torch.zeros(1, 3, LONGEST, dtype=torch.long)
    for place, word in ((0, "gnu"), (1, "cows")):
        column = word_column([word]).flat
        chars_BTC[0, place, : len(column)] = torch.from_numpy(column.astype(np.int64))
    x_BTD = spelling(torch.tensor([[1, 1, 1]]), chars_BTC)
    torch.testing.assert_close(x_BTD[0, 0], by_hand(spelling, letters_of("gnu")))
    torch.testing.assert_close(x_BTD[0, 1], spelling(torch.tensor([[3]]))[0, 0])  # as if it were known
    torch.testing.assert_close(x_BTD[0, 2], spelling(torch.tensor([[1]]))[0, 0])  # without letters it is UNK


def test_fixed_shapes_of_a_gpu_give_the_same(spelling: Spelling) -> None:
    tokens_BT = torch.tensor([[2, 1, 5]])
    every = spelling.vectors(spelling.letters_VC[tokens_BT].flatten(0, 1))
    torch.testing.assert_close(spelling(tokens_BT)[0], every)


def test_before_the_vocabulary_is_known_a_word_is_its_number() -> None:
    torch.manual_seed(0)
    layer = Spelling(30, (0, 1), 4, (8, 8), 0, 6)
    assert len(layer(torch.arange(30)[None])[0].unique(dim=0)) == 30


def test_framed_folds_letters_beyond_the_alphabet_and_has_one_end() -> None:
    letters = framed(torch.tensor([[ord("中") + 1, ord("a") + 1, 0]]))[0]
    assert letters[0] == BEGIN and 0 < letters[1] < BEGIN and letters[3] == END and not letters[4:].any()
    full = framed(torch.full((1, LONGEST), 5))[0]
    assert full[-1] == END and (full == END).sum() == 1 and len(full) == LONGEST + 2


def test_a_highway_carries_most_at_first() -> None:
    torch.manual_seed(0)
    highway, x = Highway(50), torch.randn(20, 50)
    assert (highway(x) - x).abs().mean() < x.abs().mean()

"""CBOW, deep CBOW and DAN: the sum or the mean of vectors, through layers, whatever the order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.store import columns_of
from segue.models.base import Sizes
from segue.models.cbow import Cbow
from segue.models.dan import Dan
from segue.models.deep_cbow import DeepCbow
from segue.tasks.classify import TASK

KINDS = [Cbow, DeepCbow, Dan]
SIZES = Sizes(12, 3)


def made(cls: Any, **values: Any) -> Any:
    torch.manual_seed(0)
    small = {"embedding": 5} | ({} if cls is Cbow else {"width": 4, "dropout": 0.0})
    return cls(cls.Config(**{**small, "word_dropout": 0.0, **values}), SIZES).eval()


def scores(model: Any, *rows: list[int]) -> Tensor:
    out: Tensor = model(TASK.collate(columns_of(text=[np.array(row, np.int64) for row in rows]), 9999).to("cpu"))[0]
    return out.detach()


def by_hand(model: Any, row: list[int]) -> np.ndarray:
    """From the equations at the head of each file, in numpy."""
    E = model.vectors.weight.detach().numpy()
    h = sum((E[word] for word in row), np.zeros(E.shape[1]))
    if isinstance(model, Dan):
        h = h / max(1, len(row))
    for layer in getattr(model, "layers", ()):
        a = layer.weight.detach().numpy() @ h + layer.bias.detach().numpy()
        h = np.maximum(a, 0) if isinstance(model, Dan) else np.tanh(a)
    return model.head.weight.detach().numpy() @ h + model.head.bias.detach().numpy()


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("row", [[3, 7, 3, 9], [5], []])
def test_the_equations(cls: Any, row: list[int]) -> None:
    model = made(cls)
    np.testing.assert_allclose(scores(model, row, [2, 3, 4, 5, 6, 7])[0], by_hand(model, row), atol=1e-6)


@pytest.mark.parametrize("cls", KINDS)
def test_order_does_not_matter(cls: Any) -> None:
    torch.testing.assert_close(scores(made(cls), [3, 7, 5, 9]), scores(made(cls), [9, 5, 7, 3]))


def test_trap_11_a_sum_knows_how_often_and_a_mean_does_not() -> None:
    once, twice = [3, 4], [3, 4, 3, 4]
    torch.testing.assert_close(scores(made(Dan), once), scores(made(Dan), twice))
    for cls in (Cbow, DeepCbow):
        assert (scores(made(cls), once) - scores(made(cls), twice)).abs().max() > 1e-3


def test_dan_averages_the_words_that_are_left() -> None:
    """So that a text keeps its size: every outcome is the score of some of its words, none of them scaled."""
    model = made(Dan, word_dropout=0.5).train()
    possible = torch.cat([scores(made(Dan), row) for row in ([], [3], [7], [3, 7])])
    drawn = scores(model, *[[3, 7]] * 300)
    distance = (drawn[:, None] - possible).abs().amax(-1)
    assert distance.amin(1).max() < 1e-5
    assert distance.argmin(1).bincount(minlength=4).min() > 40


def test_what_is_left_of_a_sum_is_scaled_up() -> None:
    model = made(Cbow, word_dropout=0.25).train()
    drawn = scores(model, *[[3, 7, 5, 9]] * 4000).mean(0)
    torch.testing.assert_close(drawn, scores(made(Cbow), [3, 7, 5, 9])[0], atol=0.02, rtol=0)


@pytest.mark.parametrize("cls", [DeepCbow, Dan])
def test_depth_can_say_of_two_words_what_neither_says_alone(cls: Any) -> None:
    """ "not" (2) turns "good" (3) and "bad" (4) around; a linear model cannot: its scores are sums over words."""
    rows, labels = [[3], [4], [2, 3], [2, 4]], [0, 1, 1, 0]
    batch = TASK.collate(columns_of(text=[np.array(row) for row in rows], label=np.array(labels)), 9999).to("cpu")

    def learnt(model: Any) -> list[int]:
        optimiser = torch.optim.Adam(model.train().parameters(), lr=0.02)
        for _ in range(400):
            optimiser.zero_grad()
            model.loss(batch).terms[0].total.backward()
            optimiser.step()
        return scores(model.eval(), *rows).argmax(-1).tolist()

    assert learnt(made(cls, embedding=8, width=8)) == labels
    assert learnt(made(Cbow, embedding=8)) != labels


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize(("key", "value"), [("word_dropout", 1.0), ("word_dropout", float("nan")), ("embedding", 0)])
def test_impossible_values_are_refused(cls: Any, key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        cls.Config(**{key: value})

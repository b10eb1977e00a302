"""The recurrent classifier: every way of pooling against torch's own layers, row by row, and what order can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.store import columns_of
from segue.layers.probe import record
from segue.models.base import Sizes
from segue.models.rnn_classifier import RnnClassifier
from segue.tasks.classify import TASK

SIZES = Sizes(12, 3)
ROWS = [[3, 7, 5, 9, 4], [3], [8, 2, 2]]


def made(**values: Any) -> RnnClassifier:
    torch.manual_seed(0)
    small = {"embedding": 5, "width": 4, "word_dropout": 0.0, "dropout": 0.0}
    return RnnClassifier(RnnClassifier.Config(**{**small, **values}), SIZES).eval()


def scores(model: RnnClassifier, *rows: list[int]) -> Tensor:
    return model(TASK.collate(columns_of(text=[np.array(row, np.int64) for row in rows]), 9999).to("cpu"))[0].detach()


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_each_pooling_is_that_of_torchs_states(cell: Any, both: bool, pooling: Any) -> None:
    model = made(cell=cell, both=both, pooling=pooling, layers=2)
    together = scores(model, *ROWS)
    for row, found in zip(ROWS, together, strict=True):
        states, end = model.body.core(model.vectors(torch.tensor([row])))
        h_TD = states[0]
        last = end[0] if cell == "lstm" else end
        pooled = {
            "last": lambda last=last: last[-(2 if both else 1) :, 0].flatten(),
            "mean": lambda h_TD=h_TD: h_TD.mean(0),
            "max": lambda h_TD=h_TD: h_TD.amax(0),
            "attention": lambda h_TD=h_TD: model.attention(h_TD)[:, 0].softmax(0) @ h_TD,
        }[pooling]()
        torch.testing.assert_close(found, model.head(pooled).detach())


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_a_text_without_words_is_judged_by_the_bias(pooling: Any) -> None:
    """Beside one that has words, and alone; no gradient is lost in it."""
    model = made(pooling=pooling)
    torch.testing.assert_close(scores(model, [], [3, 4])[0], model.head.bias.detach())
    torch.testing.assert_close(scores(model, [])[0], model.head.bias.detach())
    batch = TASK.collate(columns_of(text=[np.array([], np.int64), np.array([3, 4])], label=np.array([0, 1])), 9999).to(
        "cpu"
    )
    model.loss(batch).terms[0].total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_attention_is_a_weight_for_each_word() -> None:
    with record() as seen:
        scores(made(pooling="attention"), *ROWS)
    (weights,) = seen["attention"]
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    assert weights[1, 0] == 1 and not weights[1, 1:].any() and (weights[0] > 0).all()


def test_order_tells() -> None:
    """Which of two words came first: what no bag of words can learn."""
    rows, labels = [[3, 4], [4, 3], [3, 5, 4], [4, 5, 3]], [0, 1, 0, 1]
    batch = TASK.collate(columns_of(text=[np.array(row) for row in rows], label=np.array(labels)), 9999).to("cpu")
    model = made(cell="gru", pooling="last", both=False, width=8).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(200):
        optimiser.zero_grad()
        model.loss(batch).terms[0].total.backward()
        optimiser.step()
    assert scores(model.eval(), *rows).argmax(-1).tolist() == labels

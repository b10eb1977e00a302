"""Shapes and receptive fields: the lecture's (K3, K4), those of the layers themselves, and what explain says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from segue.batches.store import columns_of
from segue.cli import main
from segue.layers.convolution import MaxOverTime
from segue.look.explain.shapes import places, receptive_field, shapes
from segue.models.base import Sizes
from segue.models.cnn_classifier import CnnClassifier
from segue.models.rnn_classifier import RnnClassifier
from segue.tasks.classify import TASK


@pytest.mark.parametrize(("layers", "width", "field"), [(2, 3, 5), (4, 5, 17), (1, 1, 1)])
def test_k3_receptive_field(layers: int, width: int, field: int) -> None:
    assert receptive_field(layers, width) == field


def test_k4_four_words_of_300_numbers_under_100_filters_of_width_3() -> None:
    assert places(4, 3) == {"narrow": 2, "padded": 4, "wide": 6}
    config = CnnClassifier.Config(embedding=300, widths=(3,), filters=100)
    rows = dict((name, (shape, remark)) for name, shape, remark in shapes(CnnClassifier, config, Sizes(10, 2), 4).rows)
    shape, remark = rows["convolutions, width 3"]
    assert shape == "6 x 100" and remark.startswith("90,100 parameters; sees 3")


def test_k4_a_bilstm_beside_it() -> None:
    config = RnnClassifier.Config(embedding=300, width=100)
    rows = dict((name, (shape, remark)) for name, shape, remark in shapes(RnnClassifier, config, Sizes(10, 2), 4).rows)
    assert rows["body"] == ("4 x 200", "321,600 parameters; sees all words")  # torch's; 320,800 with one bias a gate
    assert rows["  max"][0] == "200"


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_filter_sees_as_many_words_as_is_said(width: int) -> None:
    """By gradient: of one filter at its best place."""
    torch.manual_seed(0)
    layer = MaxOverTime(4, 1, width)
    torch.nn.init.ones_(layer.linear.bias)
    x_BTD = torch.randn(1, 12, 4, requires_grad=True)
    layer(x_BTD, torch.ones(1, 12, dtype=torch.bool)).sum().backward()
    assert x_BTD.grad is not None
    seen = x_BTD.grad[0].abs().sum(1).nonzero()[:, 0]
    assert 1 <= len(seen) <= receptive_field(1, width)
    assert seen.tolist() == list(range(int(seen[0]), int(seen[-1]) + 1))


def test_the_total_is_that_of_the_model() -> None:
    config, sizes = RnnClassifier.Config(embedding=6, width=5, pooling="attention"), Sizes(11, 3)
    model = RnnClassifier(config, sizes)
    assert (
        shapes(RnnClassifier, config, sizes, 7).rows[-1][2]
        == f"{sum(p.numel() for p in model.parameters())} parameters"
    )
    assert model(TASK.collate(columns_of(text=[np.array([3, 4])], label=np.zeros(1)), 9999).to("cpu"))[0].shape == (
        1,
        3,
    )


@pytest.mark.parametrize("kind", ["bow", "cbow", "deep_cbow", "dan", "cnn_classifier", "rnn_classifier"])
def test_explain_tells_them(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", kind]) == 0
    told = capsys.readouterr().out
    assert "Shapes for a text of 20 words" in told and "in all" in told and "sees" in told

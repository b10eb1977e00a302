"""Kim's network: the best n-gram of each filter, however long the row, one channel or two, weights that stay short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from segue.batches.batch import Batch
from segue.batches.store import columns_of
from segue.layers.convolution import MaxOverTime
from segue.models.base import Sizes
from segue.models.cnn_classifier import CnnClassifier
from segue.tasks.classify import TASK

SIZES = Sizes(12, 3)


def made(**values: Any) -> CnnClassifier:
    torch.manual_seed(0)
    small = {"embedding": 5, "filters": 4, "widths": (2, 3), "word_dropout": 0.0, "dropout": 0.0}
    model = CnnClassifier(CnnClassifier.Config(**{**small, **values}), SIZES)
    for layer in model.convolutions:  # larger than they begin, so that something is seen
        torch.nn.init.normal_(layer.linear.weight)
        torch.nn.init.normal_(layer.linear.bias)
    return model.eval()


def batch_of(*rows: list[int]) -> Batch:
    return TASK.collate(columns_of(text=[np.array(row, np.int64) for row in rows]), 9999).to("cpu")


def scores(model: CnnClassifier, *rows: list[int]) -> Tensor:
    return model(batch_of(*rows))[0].detach()


def best_of(layer: MaxOverTime, x: np.ndarray) -> np.ndarray:
    """max over t of relu(F [x_t; …] + b), window by window; windows hold at least one word."""
    k, width = layer.width, x.shape[1]
    F_, b = layer.linear.weight.detach().numpy(), layer.linear.bias.detach().numpy()
    padded = np.concatenate([np.zeros((k - 1, width)), x, np.zeros((k - 1, width))])
    windows = [padded[t : t + k].ravel() for t in range(max(1, len(x)) + k - 1)] if len(x) else [np.zeros(k * width)]
    return np.maximum(0, np.stack([F_ @ window + b for window in windows])).max(0)


@pytest.mark.parametrize("row", [[3, 7, 5, 9, 4], [3], [2, 2], []])
def test_the_equations(row: list[int]) -> None:
    """A text shorter than the filters, and one without words, beside a longer one, too."""
    model = made(norm=0.0)
    x = model.vectors.weight.detach().numpy()[row]
    m = np.concatenate([best_of(layer, x) for layer in model.convolutions])
    expected = model.head.weight.detach().numpy() @ m + model.head.bias.detach().numpy()
    np.testing.assert_allclose(scores(model, row, [2, 3, 4, 5, 6, 7, 8])[0], expected, atol=1e-5)


def test_the_order_of_near_words_matters_and_their_place_does_not() -> None:
    """With a word of zeros around it an n-gram is worth the same wherever it stands (C 308-369)."""
    model = made()
    with torch.no_grad():
        model.vectors.weight[2] = 0
    early, late = [2, 2, 2, 5, 7, 2, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2, 5, 7, 2, 2]
    torch.testing.assert_close(scores(model, early), scores(model, late))
    turned = [2, 2, 2, 7, 5, 2, 2, 2, 2, 2]
    assert (scores(model, early) - scores(model, turned)).abs().max() > 1e-3


def test_two_channels_add_what_each_filter_finds() -> None:
    """c = relu(F * learnt + F * still + b), as Kim writes it; the second channel is no parameter."""
    model = made(channels=2, norm=0.0)
    with torch.no_grad():
        model.fixed_vectors.normal_()
    batch = batch_of([3, 7, 5, 9])
    best = []
    for layer in model.convolutions:
        filters = layer.linear.weight.view(4, layer.width, 5).transpose(1, 2)
        reach = layer.width - 1
        channels = [
            F.embedding(batch.tokens_BT, table).transpose(1, 2) for table in (model.vectors.weight, model.fixed_vectors)
        ]
        sums = sum(F.conv1d(F.pad(x, (reach, reach)), filters) for x in channels)
        best.append((sums + layer.linear.bias[:, None]).relu().amax(2))
    torch.testing.assert_close(model(batch)[0], model.head(torch.cat(best, 1)))
    assert "fixed_vectors" in model.state_dict() and "fixed_vectors" not in dict(model.named_parameters())
    assert "fixed_vectors" not in made().state_dict()


def test_channels_begin_alike() -> None:
    model = CnnClassifier(CnnClassifier.Config(embedding=5, channels=2), SIZES)
    torch.testing.assert_close(model.fixed_vectors, model.vectors.weight.detach())


def test_weights_of_a_class_are_no_longer_than_the_limit() -> None:
    model = made(norm=1.0)
    with torch.no_grad():
        model.head.weight.copy_(torch.cat([3 * torch.eye(1, 8), 0.5 * torch.eye(1, 8), torch.zeros(1, 8)]))
    features = torch.cat(
        [layer(model.vectors(batch_of([3, 7, 5]).tokens_BT), torch.ones(1, 3)) for layer in model.convolutions], 1
    )
    expected = features[:, :1] * torch.tensor([[1.0, 0.5, 0.0]]) + model.head.bias
    torch.testing.assert_close(model(batch_of([3, 7, 5]))[0], expected)


@pytest.mark.parametrize(
    ("key", "value"), [("widths", ()), ("widths", (3, 0)), ("channels", 3), ("norm", -1.0), ("filters", 0)]
)
def test_impossible_values_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        CnnClassifier.Config(**{key: value})

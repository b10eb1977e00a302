"""A layer that is asked at some places alone computes what the whole layer has there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from segue.batches.batch import Batch
from segue.layers.dropout import hashed
from segue.layers.transformer import Gelu
from segue.models.base import Sizes
from segue.models.bert import Bert

SIZES = Sizes(20, marks=("start", "mask"))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("position", ["learned", "rotary", "relative", "sinusoidal"])
def test_the_last_layer_at_some_places_is_that_of_all_places(norm: str, position: str) -> None:
    torch.manual_seed(0)
    config = Bert.Config(layers=2, width=16, heads=2, context=12, norm=norm, position=position)
    model = Bert(config, SIZES).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    tokens_BT, mask_BT = torch.randint(2, 20, (3, 10)), torch.ones(3, 10, dtype=torch.bool)
    mask_BT[1, 7:] = False
    places_BK = torch.tensor([[0, 9, 4], [1, 2, 6], [5, 5, 0]])
    batch = Batch(tokens_BT, None, mask_BT, segments_BT=torch.randint(2, (3, 10)))
    whole_BTD = model.encode(batch)[-1]
    there_BKD = torch.stack([whole_BTD[b, places] for b, places in enumerate(places_BK)])
    assert torch.allclose(model.states_at(batch, places_BK), there_BKD, atol=1e-12)


def test_hashed_numbers_are_even_and_differ_by_seed() -> None:
    shares = []
    for seed in np.random.default_rng(0).integers(1 << 31, size=8):
        kept = hashed(torch.zeros(500, 400), torch.tensor(seed, dtype=torch.int32)) < 0.9 * (1 << 24)
        shares.append(float(kept.double().mean()))
        beside = float((kept[:, 1:] & kept[:, :-1]).double().mean())
        below = float((kept[1:] & kept[:-1]).double().mean())
        assert abs(beside - 0.81) < 0.005 and abs(below - 0.81) < 0.005
    assert all(abs(share - 0.9) < 4 * (0.09 / 200_000) ** 0.5 for share in shares)
    assert len(set(shares)) > 1


def test_gelu_of_compiled_code_is_that_of_torch() -> None:
    x = torch.linspace(-12, 12, 2001, requires_grad=True)
    weights = torch.linspace(-1, 1, 2001)
    ours, exact = Gelu.apply(x), torch.nn.functional.gelu(x)
    assert torch.allclose(ours, exact, atol=1e-6)
    slopes = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, exact)]
    assert torch.allclose(*slopes, atol=1e-6)

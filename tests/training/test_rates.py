"""Optimisers and rates: the schedules as functions, and one step by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from segue.batches.codec import Sizes
from segue.errors import InputError
from segue.models.bert import Bert
from segue.models.network import Network
from segue.training.optimizers import Optimizer
from segue.training.rates import Config, gradient_norm, optimizer, rate_at


def rates(config: Config, steps: int, halvings: int = 0) -> list[float]:
    return [rate_at(config, step, step / steps, halvings) for step in range(steps)]


def test_warm_up_rises_evenly_to_the_rate() -> None:
    found = rates(Config(rate=0.4, warmup=4, schedule="constant"), 10)
    assert found == pytest.approx([0.1, 0.2, 0.3, *[0.4] * 7])


@pytest.mark.parametrize("schedule", ["cosine", "constant", "plateau", "triangular"])
def test_no_rate_is_above_the_highest_or_nothing(schedule: str) -> None:
    for warmup in (0, 3, 50):
        found = rates(Config(rate=0.4, warmup=warmup, schedule=schedule), 20)
        assert all(0 < rate <= 0.4 for rate in found)


def test_cosine_falls_from_the_rate_to_nothing() -> None:
    config = Config(rate=0.4, warmup=0)
    assert rate_at(config, 0, 0.0, 0) == 0.4
    assert rate_at(config, 50, 0.5, 0) == pytest.approx(0.2)
    assert rate_at(config, 25, 0.25, 0) == pytest.approx(0.2 * (1 + math.sqrt(0.5)))
    assert rate_at(config, 100, 1.0, 0) == pytest.approx(0)
    assert rate_at(config, 120, 1.2, 0) == pytest.approx(0)  # a clock may run past its end
    found = rates(config, 50)
    assert found == sorted(found, reverse=True)


def test_only_plateau_minds_halvings() -> None:
    for schedule, factor in {"plateau": 0.125, "constant": 1.0, "cosine": 0.5}.items():
        config = Config(rate=0.4, warmup=0, schedule=schedule)
        assert rate_at(config, 10, 0.5, 3) == pytest.approx(0.4 * factor)


@pytest.mark.parametrize("values", [{"rate": 0.0}, {"rate": -1.0}, {"clip": -1.0}, {"warmup": -1}, {"momentum": 1.0}])
def test_impossible_values_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected|must"):
        Config(**values)


def pair(decay: float = 0.0, name: str = "sgd", **values: float) -> tuple[nn.Linear, Optimizer]:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, -4.0]]))
        model.bias.fill_(3.0)
    model.weight.grad, model.bias.grad = torch.tensor([[1.0, 0.0]]), torch.tensor([0.5])
    return model, optimizer(model, Config(name=name, rate=0.1, weight_decay=decay, **values))


def test_sgd_by_hand() -> None:
    model, steps = pair(momentum=0.5)
    steps.step()
    assert model.weight.tolist() == [[pytest.approx(1.9), -4.0]]
    assert model.bias.item() == pytest.approx(2.95)
    steps.step()  # the same gradient, and half of the last step
    assert model.weight[0, 0].item() == pytest.approx(1.9 - 0.15)


def test_adamw_by_hand() -> None:
    """The first step of Adam is the rate in the gradient's direction, whatever its length."""
    model, steps = pair(name="adamw")
    steps.step()
    assert model.weight.tolist() == [[pytest.approx(1.9), -4.0]]
    assert model.bias.item() == pytest.approx(2.9)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_matrices_are_decayed_and_biases_are_not(name: str) -> None:
    for decay in (0.0, 0.5):
        model, steps = pair(decay, name)
        steps.step()
        assert model.weight[0, 1].item() == pytest.approx(-4.0 * (1 - 0.1 * decay))
        assert model.bias.item() == pytest.approx(2.95 if name == "sgd" else 2.9)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_flag_turns_a_step_into_nothing(name: str) -> None:
    model, steps = pair(name=name)
    steps.step()
    before = [p.detach().clone() for p in model.parameters()]
    model.weight.grad.fill_(math.nan)
    steps.skip = torch.tensor(1.0)
    steps.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    # And it leaves nothing bad behind in the moments.
    model.weight.grad.fill_(1.0)
    steps.skip = torch.tensor(0.0)
    steps.step()
    assert all(p.isfinite().all() for p in model.parameters())
    assert not torch.equal(before[0], model.weight)


def test_what_is_frozen_is_left_out() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    groups = optimizer(model, Config()).groups
    assert [p is model.weight for group in groups for p in group.weights] == [True]


@pytest.mark.parametrize(("limit", "length"), [(1.0, 1.0), (4.0, 4.0), (10.0, 5.0), (0.0, 5.0)])
def test_a_gradient_is_shortened_to_the_limit(limit: float, length: float) -> None:
    """Of length 5 over two tensors; its direction stays; 0 is no limit. What is given back is the first length."""
    model = nn.Linear(1, 1)
    model.weight.grad, model.bias.grad = torch.tensor([[3.0]]), torch.tensor([-4.0])
    assert gradient_norm(model, limit).item() == pytest.approx(5.0)
    assert model.weight.grad.item() == pytest.approx(3.0 * length / 5, rel=1e-5)
    assert model.bias.grad.item() == pytest.approx(-4.0 * length / 5, rel=1e-5)


def test_the_lectures_network_learns_by_one_step() -> None:
    """LECTURES.md K6: 784-512-512-10 of lecture A; its two hidden layers hold 664,576 weights."""
    torch.manual_seed(0)
    hidden = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
    assert sum(p.numel() for p in hidden.parameters()) == 664_576
    model = nn.Sequential(hidden, nn.Linear(512, 10))
    inputs, targets = torch.randn(64, 784), torch.randint(10, (64,))
    steps = optimizer(model, Config(name="sgd", rate=1e-3))
    before = nn.functional.cross_entropy(model(inputs), targets)
    before.backward()
    steps.step()
    assert nn.functional.cross_entropy(model(inputs), targets) < before


def test_a_triangular_rate_rises_over_a_tenth_and_falls_to_a_thirty_second() -> None:
    """Howard and Ruder 2018, with cut_frac = 0.1 and ratio = 32."""
    config = Config(rate=0.32, warmup=0, schedule="triangular")
    found = {progress: rate_at(config, 5, progress, 0) for progress in (0.0, 0.05, 0.1, 0.55, 1.0, 1.2)}
    assert found == pytest.approx({0.0: 0.01, 0.05: 0.165, 0.1: 0.32, 0.55: 0.165, 1.0: 0.01, 1.2: 0.01})


class Layered(Network):
    """Vectors, two layers, and a head."""

    def __init__(self) -> None:
        super().__init__(None, Sizes(3))
        self.vectors = nn.Embedding(3, 2)
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        self.head = nn.Linear(2, 1)

    def forward(self, batch: Any, state: Any = None) -> Any:
        return batch, state


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon"])
def test_a_layer_learns_at_a_share_of_the_rate_of_the_one_above(name: Any) -> None:
    moved = {}
    for decay in (1.0, 0.5):
        torch.manual_seed(0)
        model = Layered()
        steps = optimizer(model, Config(name=name, rate=0.1, momentum=0.0, layer_decay=decay))
        before = {key: p.detach().clone() for key, p in model.named_parameters()}
        for p in model.parameters():
            p.grad = torch.randn(p.shape)
        steps.step()
        moved[decay] = {key: (p.detach() - before[key]).norm() for key, p in model.named_parameters()}
    shares = {key: float(moved[0.5][key] / moved[1.0][key]) for key in moved[1.0]}
    expected = {"vectors.weight": 0.125, "blocks.0.weight": 0.25, "blocks.1.bias": 0.5, "head.weight": 1.0}
    assert {key: shares[key] for key in expected} == pytest.approx(expected, rel=1e-3)


def test_the_bias_of_the_output_learns_as_fast_as_the_head() -> None:
    model = Bert(Bert.Config(layers=2, width=8, heads=2), Sizes(5, marks=("start", "mask")))
    layers = model.layers_of()
    assert layers["bias"] == layers["transform.weight"] == 3 and layers["vectors.weight"] == layers["norm.bias"] == 0


def test_layer_decay_needs_layers() -> None:
    model = Layered()
    del model.blocks
    with pytest.raises(InputError, match="has none"):
        optimizer(model, Config(layer_decay=0.9))

"""SGD and AdamW are torch's, bit for bit; Muon's steps of matrices are orthogonal; a bad gradient moves nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from segue.training.optimizers import AdamW, Group, Muon, Optimizer, Sgd, orthogonal


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_singular_values_become_alike(shape):
    torch.manual_seed(0)
    found = torch.linalg.svdvals(orthogonal(torch.randn(3, *shape)).float())
    assert found.min() > 0.6 and found.max() < 1.3


def test_the_directions_stay():
    torch.manual_seed(0)
    matrix = torch.randn(1, 7, 9)
    u, _, v = torch.linalg.svd(matrix[0], full_matrices=False)
    turned = u.T @ orthogonal(matrix)[0].float() @ v.T
    assert (turned - torch.diag(turned.diag())).abs().max() < 0.05


def taught(optimizer: Optimizer | torch.optim.Optimizer, weights: list[nn.Parameter], steps: int) -> None:
    for _ in range(steps):
        for weight in weights:
            weight.grad = 4 * weight.detach() ** 3
        optimizer.step()


def torchs(name: str, weights: list[nn.Parameter], momentum: float) -> torch.optim.Optimizer:
    groups = [{"params": weights[:1], "weight_decay": 0.3}, {"params": weights[1:], "weight_decay": 0.0}]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.01, momentum=momentum, fused=True)
    return torch.optim.AdamW(groups, lr=0.01, betas=(momentum, 0.99), fused=True)


def ours(name: str, weights: list[nn.Parameter], momentum: float) -> Optimizer:
    return {"sgd": Sgd, "adamw": AdamW}[name]([Group(weights[:1], 0.3), Group(weights[1:])], 0.01, momentum)


def two_pairs() -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    torch.manual_seed(0)
    mine = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(5))]
    return mine, [nn.Parameter(weight.detach().clone()) for weight in mine]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_steps_are_those_of_torch(name: str, momentum: float) -> None:
    mine, theirs = two_pairs()
    taught(ours(name, mine, momentum), mine, 5)
    taught(torchs(name, theirs, momentum), theirs, 5)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_muons_others_get_adamws_step() -> None:
    mine, theirs = two_pairs()
    taught(Muon([Group([]), Group(mine)], 0.01, 0.9), mine, 5)
    taught(AdamW([Group(theirs)], 0.01, 0.9), theirs, 5)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_matrix_goes_as_far_as_adamw_would():
    weight = nn.Parameter(torch.zeros(64, 64))
    optimizer = Muon([Group([weight])], 0.01, 0.9)
    torch.manual_seed(0)
    weight.grad = torch.randn(64, 64)
    optimizer.step()
    # An orthogonal matrix of n rows has entries of 1 / sqrt(n) on the average, so that a step is 0.2 of the rate.
    assert float(weight.detach().square().mean().sqrt()) == pytest.approx(0.2 * 0.01, rel=0.3)


def test_weights_of_one_shape_do_not_disturb_each_other():
    torch.manual_seed(0)
    gradients = [torch.randn(4, 6), torch.randn(4, 6)]
    together = [nn.Parameter(torch.zeros(4, 6)) for _ in range(2)]
    alone = [nn.Parameter(torch.zeros(4, 6)) for _ in range(2)]
    optimizers = [Muon([Group(some, 0.1)], 0.1, 0.9) for some in (together, alone[:1], alone[1:])]
    for weights in (together, alone):
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
    for optimizer in optimizers:
        optimizer.step()
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(together, alone, strict=True))


def test_the_weights_of_a_convolution_are_a_matrix_to_muon() -> None:
    torch.manual_seed(0)
    kernel = nn.Parameter(torch.randn(4, 3, 2, 2))
    matrix = nn.Parameter(kernel.detach().flatten(1).clone())
    for weight in (kernel, matrix):
        taught(Muon([Group([weight], 0.1)], 0.1, 0.9), [weight], 3)
    assert torch.equal(kernel.flatten(1), matrix)


def test_a_bad_gradient_moves_nothing():
    matrix, vector = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))
    optimizer = Muon([Group([matrix], 0.1), Group([vector])], 0.1, 0.9)
    matrix.grad, vector.grad = torch.full((3, 3), float("nan")), torch.full((3,), float("inf"))
    optimizer.skip = torch.ones(())
    optimizer.step()
    assert (matrix == 1).all() and (vector == 1).all()

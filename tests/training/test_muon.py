"""Muon: steps of matrices are orthogonal, the rest is AdamW's, and a bad gradient moves nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from segue.training.muon import Muon, orthogonal


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


def test_others_get_adamws_step():
    torch.manual_seed(0)
    ours, theirs = nn.Parameter(torch.randn(5)), nn.Parameter(torch.empty(5))
    theirs.data = ours.data.clone()
    mine = Muon([], [ours], 0.01, 0.9, 0.0)
    peer = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.99), weight_decay=0.0)
    for _ in range(5):
        for weight, optimizer in ((ours, mine), (theirs, peer)):
            optimizer.zero_grad()
            (weight**4).sum().backward()
            optimizer.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_matrix_goes_as_far_as_adamw_would():
    weight = nn.Parameter(torch.zeros(64, 64))
    optimizer = Muon([weight], [], 0.01, 0.9, 0.0)
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
    optimizers = [Muon(together, [], 0.1, 0.9, 0.1), *(Muon([weight], [], 0.1, 0.9, 0.1) for weight in alone)]
    for weights in (together, alone):
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
    for optimizer in optimizers:
        optimizer.step()
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(together, alone, strict=True))


def test_a_bad_gradient_moves_nothing():
    matrix, vector = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))
    optimizer = Muon([matrix], [vector], 0.1, 0.9, 0.1)
    matrix.grad, vector.grad = torch.full((3, 3), float("nan")), torch.full((3,), float("inf"))
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert (matrix == 1).all() and (vector == 1).all()

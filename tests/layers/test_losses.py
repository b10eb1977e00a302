"""Losses as sums with their counts, against torch's own functions; the lectures' trap 17."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from segue.batches.batch import IGNORE
from segue.layers import losses
from segue.layers.losses import cross_entropy, target_logprobs

SHAPES = [(5,), (2, 4), (2, 3, 2)]


def made(shape: tuple[int, ...], classes: int = 6) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    targets = torch.randint(classes, shape, generator=draw)
    targets.view(-1)[::3] = IGNORE
    return torch.randn(*shape, classes, generator=draw) * 4, targets


@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_is_torchs_sum(shape: tuple[int, ...]) -> None:
    logits, targets = made(shape)
    total, count = cross_entropy(logits, targets)
    real = targets != IGNORE
    torch.testing.assert_close(total, F.nll_loss(logits[real].log_softmax(-1), targets[real], reduction="sum"))
    assert int(count) == int(real.sum())
    mean = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE)
    torch.testing.assert_close(total / count, mean)


@pytest.mark.parametrize("shape", SHAPES)
def test_logprobs_are_torchs_place_by_place(shape: tuple[int, ...]) -> None:
    logits, targets = made(shape)
    expected = logits.log_softmax(-1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    found = target_logprobs(logits, targets)
    assert found.shape == targets.shape
    torch.testing.assert_close(found, expected.masked_fill(targets == IGNORE, 0.0))


def test_they_say_the_same() -> None:
    logits, targets = made((3, 4))
    torch.testing.assert_close(-target_logprobs(logits, targets).sum(), cross_entropy(logits, targets)[0])


def test_ignored_places_get_no_gradient() -> None:
    logits, targets = made((2, 4))
    logits.requires_grad_()
    cross_entropy(logits, targets)[0].backward()
    moved = logits.grad.abs().sum(-1) > 0
    assert torch.equal(moved, targets != IGNORE)


def test_nothing_to_predict_is_a_sum_of_nothing() -> None:
    """0 of 0, not NaN: a part of an update may hold padding alone."""
    logits = torch.zeros(2, 3, 4, requires_grad=True)
    total, count = cross_entropy(logits, torch.full((2, 3), IGNORE))
    assert float(total.detach()) == 0 and int(count) == 0
    total.backward()
    assert (logits.grad == 0).all()


def test_half_precision_is_summed_in_full_and_double_stays_double() -> None:
    """Thousands of bfloat16 losses would lose the small ones; and the loss of 4,096 uniform guesses is known."""
    total, count = cross_entropy(torch.zeros(4096, 8, dtype=torch.bfloat16), torch.zeros(4096, dtype=torch.long))
    assert total.dtype == torch.float32
    assert float(total) / int(count) == pytest.approx(math.log(8), rel=1e-5)
    assert (
        cross_entropy(torch.zeros(2, 8, dtype=torch.float64), torch.zeros(2, dtype=torch.long))[0].dtype
        == torch.float64
    )


def test_an_impossible_target_has_no_probability() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    assert float(target_logprobs(logits, torch.tensor([1]))) == -math.inf
    assert float(target_logprobs(logits, torch.tensor([0]))) == pytest.approx(math.log(0.5))


def test_trap_17_sums_and_counts_give_either_mean() -> None:
    """Lengths 2 and 8 with losses 1 and 2 a token: the mean of sums is 9, the mean over tokens 1.8."""
    targets = torch.zeros(2, 8, dtype=torch.long)
    targets[0, 2:] = IGNORE

    def logits_of(loss: float) -> Tensor:
        """Two classes such that -log p of the first is `loss`."""
        return torch.tensor([0.0, math.log(math.exp(loss) - 1)])

    logits = torch.stack([logits_of(1.0).expand(8, 2), logits_of(2.0).expand(8, 2)])
    parts = [cross_entropy(logits[i], targets[i]) for i in range(2)]
    sums, counts = [float(total) for total, _ in parts], [int(count) for _, count in parts]
    assert sums == pytest.approx([2.0, 16.0]) and counts == [2, 8]
    assert sum(sums) / len(sums) == pytest.approx(9.0)
    total, count = cross_entropy(logits, targets)
    assert float(total) / int(count) == pytest.approx(1.8)
    assert float(total) > 0  # the sign: -log p is lowered, where the lecture raises log p


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_in_parts_give_the_same_loss_and_gradients(monkeypatch, dtype):
    torch.manual_seed(0)
    x = torch.randn(3, 7, 5, dtype=dtype, requires_grad=True)
    weight = torch.randn(11, 5, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, 11, (3, 7))
    targets[0, 2], targets[2, 6] = IGNORE, IGNORE
    whole, count = losses.linear_cross_entropy(x, weight, targets)
    (whole * 0.5).backward()
    expected = [whole.detach(), x.grad.clone(), weight.grad.clone()]
    x.grad = weight.grad = None
    monkeypatch.setattr(losses, "SMALL", 0)
    monkeypatch.setattr(losses, "HELD", 64 * 4)  # four rows at a time
    total, again = losses.linear_cross_entropy(x, weight, targets)
    (total * 0.5).backward()
    assert int(again) == int(count) == 19
    for found, right in zip((total.detach(), x.grad, weight.grad), expected, strict=True):
        assert torch.allclose(found.double(), right.double(), rtol=1e-5, atol=1e-5)


def test_a_wide_layer_is_rounded_while_it_learns_and_only_then(monkeypatch):
    monkeypatch.setattr(losses, "WIDE", 0)
    monkeypatch.setattr(losses, "_has_halves", lambda: True)
    torch.manual_seed(0)
    x, weight, bias = torch.randn(3, 7, 32), torch.randn(50, 32), torch.randn(50)
    leaves = [part.requires_grad_() for part in (x, weight, bias)]
    targets = torch.randint(0, 50, (3, 7))
    targets[0, 2] = IGNORE
    exact, _ = cross_entropy(torch.nn.functional.linear(x, weight, bias), targets)
    expected = torch.autograd.grad(exact, leaves)
    with torch.no_grad():
        assert torch.equal(losses.linear_cross_entropy(x, weight, targets, bias)[0], exact)
    rounded, count = losses.linear_cross_entropy(x, weight, targets, bias)
    assert int(count) == 20 and rounded.dtype == torch.float32
    exact, found = float(exact.detach()), float(rounded.detach())
    assert found != exact and found == pytest.approx(exact, rel=0.01)
    for found, right in zip(torch.autograd.grad(rounded, leaves), expected, strict=True):
        assert found.dtype == torch.float32
        assert float(torch.nn.functional.cosine_similarity(found.flatten(), right.flatten(), 0)) > 0.999


def test_the_bias_is_learnt_in_parts_too(monkeypatch):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64) for shape in ((9, 4), (6, 4), (6,)))
    leaves = [part.requires_grad_() for part in (x, weight, bias)]
    targets = torch.randint(0, 6, (9,))
    expected = torch.autograd.grad(losses.linear_cross_entropy(x, weight, targets, bias)[0], leaves)
    monkeypatch.setattr(losses, "SMALL", 0)
    monkeypatch.setattr(losses, "HELD", 64 * 2)
    found = torch.autograd.grad(losses.linear_cross_entropy(x, weight, targets, bias)[0], leaves)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9)


# Label smoothing


@pytest.mark.parametrize("in_parts", [False, True])
def test_label_smoothing_is_torchs(in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradients, all logits at once and some rows at a time; the mean is over real columns alone."""
    if in_parts:
        monkeypatch.setattr(losses, "SMALL", 0)
        monkeypatch.setattr(losses, "HELD", 200)
    draw = torch.Generator().manual_seed(0)
    x, weight_VD, bias_V = (
        torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((2, 4, 3), (6, 3), (6,))
    )
    _, targets = made((2, 4))
    given = [part.requires_grad_() for part in (x, weight_VD, bias_V)]
    total, count = losses.linear_cross_entropy(x, weight_VD, targets, bias_V, smoothing=0.3)
    flat = F.linear(x, weight_VD, bias_V).flatten(0, 1), targets.flatten()
    expected = F.cross_entropy(*flat, ignore_index=IGNORE, label_smoothing=0.3, reduction="sum")
    torch.testing.assert_close(total, expected)
    assert int(count) == int((targets != IGNORE).sum())
    for found, wanted in zip(torch.autograd.grad(total, given), torch.autograd.grad(expected, given), strict=True):
        torch.testing.assert_close(found, wanted)

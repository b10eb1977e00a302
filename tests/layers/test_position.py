"""Positions against the lectures' numbers (P17, P18) and against their definitions, worked one by one."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from torch import Tensor

from segue.layers.position import BUCKETS, FARTHEST, Position, Positions, bucket, rotate, sinusoids


def near(a: Tensor, b, tolerance=1e-12) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=tolerance, rtol=0)


def test_sinusoids_of_width_4() -> None:
    """P17."""
    near(sinusoids(2, 4)[1], [0.841471, 0.540302, 0.01, 0.999950], 1e-6)
    near(sinusoids(3, 5)[2], [math.sin(2), math.cos(2), *_waves(2, 1, 5), math.sin(2 / 10_000**0.8)], 1e-12)


def _waves(t: int, i: int, width: int) -> list[float]:
    angle = t / 10_000 ** (2 * i / width)
    return [math.sin(angle), math.cos(angle)]


def test_closer_positions_have_higher_dot_products() -> None:
    """P18: by the distance alone, falling until a distance of 43."""
    p_TD = sinusoids(300, 512)
    near(
        (p_TD[7] @ p_TD.T)[[7, 8, 9, 10, 12, 17, 27, 57, 107]],
        [256, 249.102, 231.734, 211.749, 189.597, 173.790, 157.574, 131.091, 111.950],
        5e-4,
    )
    dots = p_TD @ p_TD.T
    near(torch.diagonal(dots, 20), dots[0, 20].expand(280), 1e-9)
    falls = dots[0, 1:] < dots[0, :-1]
    assert falls[:43].all() and not falls[43]


@pytest.mark.parametrize("kind", ["none", "onehot", "sinusoidal", "learned", "relative", "rotary"])
def test_what_is_added_to_vectors(kind: Position) -> None:
    positions = Positions(kind, 6, 8, 2, 4)
    x_BTD, places = torch.randn(2, 3, 8), torch.tensor([[0, 1, 2], [3, 4, 5]])
    added = positions.add(x_BTD, places)
    expected = {
        "onehot": x_BTD + torch.eye(8)[places],
        "sinusoidal": x_BTD + sinusoids(6, 8).float()[places],
    }
    assert positions.scale == (math.sqrt(8) if kind in expected else 1.0)
    if kind == "learned":
        expected["learned"] = x_BTD + positions.table.weight[places]
    near(added, expected.get(kind, x_BTD), 1e-6)
    near(positions.add(x_BTD[:1], torch.arange(3)), added[:1], 1e-6)
    assert ("table.weight" in positions.state_dict()) == (kind in ("learned", "relative"))
    assert len(positions.state_dict()) <= 1  # what is fixed is not saved


def test_rotary_turns_pairs_as_complex_numbers() -> None:
    torch.manual_seed(0)
    positions = Positions("rotary", 9, 8, 1, 6).double()
    x_BHTK, places = torch.randn(1, 1, 2, 6, dtype=torch.float64), torch.tensor([2, 7])
    turned = rotate(x_BHTK, positions.rotation(places))
    for t, place in enumerate(places.tolist()):
        for i in range(3):
            pair = complex(x_BHTK[0, 0, t, i], x_BHTK[0, 0, t, i + 3])
            expected = pair * cmath.exp(1j * place / 10_000 ** (2 * i / 6))
            near(turned[0, 0, t, [i, i + 3]], [expected.real, expected.imag], 1e-6)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    positions = Positions("rotary", 50, 8, 1, 8)
    q, k = torch.randn(2, 1, 1, 1, 8)

    def score(t: int, j: int) -> Tensor:
        turned = [rotate(x, positions.rotation(torch.tensor([place]))) for x, place in ((q, t), (k, j))]
        return (turned[0] * turned[1]).sum()

    near(score(3, 1), score(49, 47), 1e-5)
    assert (score(3, 1) - score(4, 1)).abs() > 1e-3


def test_buckets() -> None:
    """T5's, for looking back: 0 to 15 one each, then 16 that widen, worked out with integers and logarithms."""
    distance = torch.arange(-5, 400)
    expected = []
    for n in distance.tolist():
        n = max(0, n)
        large = 16 + int(math.log(max(n, 16) / 16) / math.log(128 / 16) * 16 + 1e-9)
        expected.append(n if n < 16 else min(31, large))
    assert bucket(distance).tolist() == expected
    assert bucket(torch.tensor([FARTHEST, 10_000])).tolist() == [BUCKETS - 1] * 2
    assert set(bucket(torch.arange(FARTHEST)).tolist()) == set(range(BUCKETS))


def test_relative_bias_is_that_of_the_distance() -> None:
    positions = Positions("relative", 40, 8, 3, 4)
    places = torch.tensor([[5, 6], [30, 31]])
    bias_BHTS = positions.bias(places, 32)
    assert bias_BHTS.shape == (2, 3, 2, 32)
    table = positions.table.weight
    for b, t, s in ((0, 0, 5), (0, 1, 2), (1, 0, 0), (1, 1, 31)):
        near(bias_BHTS[b, :, t, s], table[bucket(places[b, t] - s)])
    near(positions.bias(torch.arange(32), 32)[:, 5], bias_BHTS[0, :, 0])
    assert Positions("learned", 40, 8, 3, 4).bias(places, 32) is None

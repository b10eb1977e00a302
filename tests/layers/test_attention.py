"""Attention against the lectures' worked numbers (P1 to P13), against torch, and its two ways against each other."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.attention import Attention, Past, attend, attention_weights
from segue.layers.position import Position, Positions
from segue.layers.probe import record

POLL = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]], dtype=torch.float64)
"""The vectors of the poll, one a row."""
SWAPPED = POLL[[0, 2, 1, 3]]


def near(a: Tensor, b, tolerance=1e-12) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=tolerance, rtol=0)


def layer(width=6, heads=2, head_width=3) -> Attention:
    """In float64, with random weights and biases: zero biases would hide mistakes."""
    made = Attention(width, heads, head_width, 0.0).double()
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    return made


def poll_layer(scale: float = 1.0) -> Attention:
    """The layer whose last place weighs the poll's vectors .1, .2, .6, .1: W_k = W_v = W_O = I, W_q as in P4."""
    made = Attention(4, 1, 4, 0.0).double()
    with torch.no_grad():
        W_q = torch.zeros(4, 4, dtype=torch.float64)
        W_q[:, 3] = 2 * scale * torch.tensor([math.log(0.1), math.log(0.2), math.log(0.6) / 2, math.log(0.1)])
        eye = torch.eye(4, dtype=torch.float64)
        made.qkv.weight.copy_(torch.cat([W_q, eye, eye]))
        made.out.weight.copy_(eye)
        made.qkv.bias.zero_()
        made.out.bias.zero_()
    return made


# The lectures' numbers


def test_the_poll_and_its_answer_that_nothing_changes() -> None:
    """P1, P2, P4: swapped vectors take their keys with them, so the weights move along."""
    expected = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 2 / 3, 0], [0.1, 0.2, 1.2, 0.1]]
    with record() as seen:
        near(poll_layer()(POLL[None])[0], expected, 1e-6)
    near(seen["attention"][0][0, 0, 3], [0.1, 0.2, 0.6, 0.1], 1e-6)
    with record() as seen:
        swapped = poll_layer()(SWAPPED[None])[0]
    near(seen["attention"][0][0, 0, 3], [0.1, 0.6, 0.2, 0.1], 1e-6)
    near(swapped[3], [0.1, 0.2, 1.2, 0.1], 1e-6)
    near(poll_layer()(POLL[None])[0, 3], swapped[3])


def test_the_polls_wrong_answer_holds_the_weights() -> None:
    """P3: that is what comes of swapping the values alone."""
    near(torch.tensor([0.1, 0.2, 0.6, 0.1], dtype=torch.float64) @ SWAPPED, [0.1, 0.6, 0.4, 0.1])


def test_without_the_scale_the_weights_are_sharper() -> None:
    """P5: d_k = 4, so that scores twice as large square the weights."""
    q, k, _ = poll_layer().qkv(POLL[None]).unflatten(-1, (3, 1, 4)).permute(2, 0, 3, 1, 4)
    near(attention_weights(q, k, scale=1.0)[0, 0, 3], [0.023810, 0.095238, 0.857143, 0.023810], 1e-6)
    near(attention_weights(q, k)[0, 0, 3], [0.1, 0.2, 0.6, 0.1], 1e-6)


def swap_changes(depth: int, causal: bool, kind: Position = "none") -> float:
    """How much the last output changes when tokens 1 and 2 of 5 are swapped."""
    torch.manual_seed(1)
    layers = [layer() for _ in range(depth)]
    x_BTD = torch.randn(1, 5, 6, dtype=torch.float64)
    positions = Positions(kind, 5, 6, 2, 4 if kind == "rotary" else 3).double()
    if kind == "rotary":
        layers = [layer(head_width=4) for _ in range(depth)]

    def last(x: Tensor) -> Tensor:
        places = torch.arange(5)
        x, bias = positions.add(x, places), positions.bias(places, 5)
        sees = torch.ones(5, 5, dtype=torch.bool).tril() if causal else torch.ones(5, 5, dtype=torch.bool)
        bias = sees if bias is None else bias.masked_fill(~sees, -math.inf)
        for one in layers:
            x = one(x, bias, positions.rotation(places))
        return x[0, -1]

    return (last(x_BTD) - last(x_BTD[:, [0, 2, 1, 3, 4]])).abs().max().item()


def test_without_positions_order_is_not_seen_except_by_two_causal_layers() -> None:
    """P6: swapped tokens of the second layer have seen different beginnings."""
    assert swap_changes(1, True) < 1e-12 and swap_changes(1, False) < 1e-12 and swap_changes(2, False) < 1e-12
    assert swap_changes(2, True) > 1e-6


@pytest.mark.parametrize("kind", ["onehot", "sinusoidal", "learned", "relative", "rotary"])
def test_with_positions_order_is_seen(kind: Position) -> None:
    """P7."""
    assert swap_changes(1, True, kind) > 1e-6


def test_the_two_banks_part() -> None:
    """P8 to P10: "the bank is on the river bank", the rows of its two banks. Zeros are scores of minus infinity."""
    words = torch.tensor([0, 1, 2, 3, 0, 4, 1])  # the, bank, is, on, river
    p = torch.zeros(7, 7, dtype=torch.float64)
    p[1, [0, 1, 2, 3]] = torch.tensor([0.2, 0.4, 0.1, 0.3], dtype=torch.float64)
    p[6, [4, 5, 6]] = torch.tensor([0.2, 0.4, 0.4], dtype=torch.float64)
    banks = [1, 6]
    scores = p[banks].log()  # -inf at 0
    nothing = torch.zeros(1, 1, 7, 3, dtype=torch.float64)
    a = attention_weights(nothing[:, :, :2], nothing, bias=scores)[0, 0]
    near(a, p[banks])
    entropy = -(a * a.clamp(min=1e-300).log2()).sum(-1)
    near(entropy, [1.8464, 1.5219], 5e-5)
    seen = attend(nothing[:, :, :2], nothing, F.one_hot(words, 5).double()[None, None], bias=scores)[0, 0]
    near(seen, [[0.2, 0.4, 0.1, 0.3, 0.0], [0.2, 0.4, 0.0, 0.0, 0.4]])
    near(F.cosine_similarity(seen[0], seen[1], dim=0), 0.608581, 1e-6)
    assert (a[0, 2:] > 0).any()  # the first bank looks ahead: this matrix is not causal


def test_without_projections() -> None:
    """P11: C's self-attention, x · x with no scale, x_1 = (1, 0) and x_2 = (0, 1)."""
    x = torch.eye(2, dtype=torch.float64)[None, None]
    a = attention_weights(x, x, bias=torch.zeros(2, 2, dtype=torch.float64), scale=1.0)
    near((a @ x)[0, 0, 0], [0.731059, 0.268941], 1e-6)


def test_counts_of_parameters_and_of_pairs() -> None:
    """P12, P13."""
    made = Attention(4, 2, 2, 0.0)
    assert made.qkv.weight.numel() == 48 and made.out.weight.numel() == 16 and made.out.in_features == 4
    with record() as seen:
        made(torch.randn(1, 4, 4))
    (a_BHTS,) = seen["attention"]
    assert a_BHTS.shape == (1, 2, 4, 4) and (a_BHTS > 0).sum() == 2 * 10
    near(a_BHTS.sum(-1), torch.ones(1, 2, 4), 1e-6)


# torch's


def reference(made: Attention, x_BTD: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """nn.MultiheadAttention with the same weights; `mask` is True where nothing is seen."""
    theirs = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(made.qkv.weight)
        theirs.in_proj_bias.copy_(made.qkv.bias)
        theirs.out_proj.weight.copy_(made.out.weight)
        theirs.out_proj.bias.copy_(made.out.bias)
    return theirs(x_BTD, x_BTD, x_BTD, attn_mask=mask, average_attn_weights=False)


@pytest.mark.parametrize("probed", [False, True])
def test_equals_torchs_multihead_attention(probed: bool) -> None:
    torch.manual_seed(0)
    made, x_BTD = layer(), torch.randn(3, 5, 6, dtype=torch.float64)
    expected, weights = reference(made, x_BTD, ~torch.ones(5, 5, dtype=torch.bool).tril())
    if not probed:
        near(made(x_BTD), expected)
        return
    with record() as seen:
        near(made(x_BTD), expected)
    near(seen["attention"][0], weights)


def test_bias_is_added_to_the_scores_or_says_what_counts() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 5, 4, dtype=torch.float64)
    bias = torch.randn(2, 2, 5, 5, dtype=torch.float64)
    bias[:, :, :, 3] = -math.inf
    sees = torch.rand(5, 5) < 0.6
    sees[:, 0] = True
    for given in (bias, sees):
        expected = F.scaled_dot_product_attention(q, k, v, given)
        near(attend(q, k, v, given), expected)
        near(attention_weights(q, k, given) @ v, expected)


def test_gradients_are_the_same_on_both_ways() -> None:
    made, x_BTD = layer(), torch.randn(2, 5, 6, dtype=torch.float64)
    found = []
    for probed in (False, True):
        made.zero_grad()
        if probed:
            with record():
                made(x_BTD).square().sum().backward()
        else:
            made(x_BTD).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in made.parameters()])
    for a, b in zip(*found, strict=True):
        near(a, b, 1e-10)


def test_dropout_drops_weights_while_training_only() -> None:
    torch.manual_seed(0)
    made, x_BTD = Attention(6, 2, 3, 0.5).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    assert not torch.equal(made(x_BTD), made(x_BTD))
    made.eval()
    assert torch.equal(made(x_BTD), made(x_BTD))


def test_heads_need_not_be_as_wide_as_the_layer() -> None:
    made = layer(head_width=5)
    assert made(torch.randn(1, 4, 6, dtype=torch.float64)).shape == (1, 4, 6)


# What was read before


def test_reading_on_equals_reading_at_once() -> None:
    """Rows of different lengths: three tokens are there in one, two in the other."""
    torch.manual_seed(0)
    made, x_BTD = layer(), torch.randn(2, 6, 6, dtype=torch.float64)
    kept = torch.zeros(2, 2, 2, 8, 3, dtype=torch.float64)
    made(x_BTD[:, :3], past=Past(kept[0], kept[1], None, 3))
    places_BT = torch.tensor([[3, 4, 5], [2, 3, 4]])
    second = torch.stack([x_BTD[0, 3:], x_BTD[1, 2:5]])
    sees = (torch.arange(6) <= places_BT[..., None])[:, None]
    out = made(second, sees, past=Past(kept[0], kept[1], places_BT, 6))
    near(out[0], made(x_BTD)[0, 3:])
    near(out[1], made(x_BTD)[1, 2:5])

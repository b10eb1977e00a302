"""Attention against the lectures' worked numbers (P1 to P13), against torch, and its two ways against each other."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.attention import CrossAttention, SelfAttention, attend, attention_weights
from segue.layers.kv_cache import LayerCache
from segue.layers.position import Position, Positions
from segue.layers.probe import record

POLL = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]], dtype=torch.float64)
"""The vectors of the poll, one a row."""
SWAPPED = POLL[[0, 2, 1, 3]]


def near(a: Tensor, b, tolerance=1e-12) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=tolerance, rtol=0)


def layer(width=6, heads=2, head_width=3, causal=True) -> SelfAttention:
    """In float64, with random weights and biases: zero biases would hide mistakes."""
    made = SelfAttention(width, heads, head_width, 0.0, causal=causal).double()
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    return made


def poll_layer(scale: float = 1.0) -> SelfAttention:
    """The layer whose last place weighs the poll's vectors .1, .2, .6, .1: W_k = W_v = W_O = I, W_q as in P4."""
    made = SelfAttention(4, 1, 4, 0.0, causal=True).double()
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
    """P3: queries and keys of the vectors as they were, values of the swapped ones. The layer does not do that: swapped
    vectors bring their keys."""
    made = poll_layer()
    q, k, _ = made.qkv(POLL[None]).unflatten(-1, (3, 1, 4)).permute(2, 0, 3, 1, 4)
    v = made.qkv(SWAPPED[None]).unflatten(-1, (3, 1, 4)).permute(2, 0, 3, 1, 4)[2]
    held = attend(q, k, v, causal=True)[0, 0, 3]
    near(held, [0.1, 0.6, 0.4, 0.1], 1e-6)
    assert (made(SWAPPED[None])[0, 3] - held).abs().max() > 0.3


def test_without_the_scale_the_weights_are_sharper() -> None:
    """P5: d_k = 4, so that scores twice as large square the weights."""
    q, k, _ = poll_layer().qkv(POLL[None]).unflatten(-1, (3, 1, 4)).permute(2, 0, 3, 1, 4)
    near(attention_weights(q, k, causal=True, scale=1.0)[0, 0, 3], [0.023810, 0.095238, 0.857143, 0.023810], 1e-6)
    near(attention_weights(q, k, causal=True)[0, 0, 3], [0.1, 0.2, 0.6, 0.1], 1e-6)


def swap_changes(depth: int, causal: bool, kind: Position = "none") -> float:
    """How much the last output changes when tokens 1 and 2 of 5 are swapped."""
    torch.manual_seed(1)
    layers = [layer(causal=causal) for _ in range(depth)]
    x_BTD = torch.randn(1, 5, 6, dtype=torch.float64)
    positions = Positions(kind, 5, 6, 2, 4 if kind == "rotary" else 3).double()
    if kind == "rotary":
        layers = [layer(head_width=4, causal=causal) for _ in range(depth)]

    def last(x: Tensor) -> Tensor:
        places = torch.arange(5)
        x, bias = positions.add(x, places), positions.bias(places, 5)
        for one in layers:
            x = one(x, bias=bias, rotation=positions.rotation(places))
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


BANK = {
    0: {0: 0.6, 1: 0.4},
    1: {0: 0.2, 1: 0.4, 2: 0.1, 3: 0.3},
    2: {1: 0.4, 2: 0.4, 3: 0.2},
    3: {3: 0.6, 5: 0.4},
    4: {4: 0.4, 5: 0.6},
    5: {5: 0.5, 6: 0.5},
    6: {4: 0.2, 5: 0.4, 6: 0.4},
}
"""Who looks at whom in "the bank is on the river bank". The rows of the two banks are the lecture's; of the others our
notes have the entropies and how many entries lie above the diagonal, and they are filled in to agree with both."""


def bank() -> Tensor:
    p = torch.zeros(7, 7, dtype=torch.float64)
    for row, weights in BANK.items():
        p[row, list(weights)] = torch.tensor(list(weights.values()), dtype=torch.float64)
    return p


def bank_weights(causal: bool) -> Tensor:
    """The matrix as attention makes it: scores log p where p is not 0, the other keys hidden by the mask."""
    p = bank()
    scores = torch.where(p > 0, p, 1.0).log()
    nothing = torch.zeros(1, 1, 7, 3, dtype=torch.float64)
    return attention_weights(nothing, nothing, causal=causal, mask=(p > 0)[None, None], bias=scores)[0, 0]


def test_the_entropies_of_the_bank_matrix() -> None:
    """P8: all seven rows."""
    a = bank_weights(causal=False)
    near(a.sum(-1), [1.0] * 7)
    near(a, bank())
    entropy = -(a * a.clamp(min=1e-300).log2()).sum(-1)
    near(entropy, [0.9710, 1.8464, 1.5219, 0.9710, 0.9710, 1.0, 1.5219], 5e-5)


def test_the_bank_matrix_is_not_causal_and_has_zeros() -> None:
    """P10: 7 entries above the diagonal and 31 zeros, which softmax only gives to scores of minus infinity."""
    a, above = bank_weights(causal=False), torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert int((a[above] > 0).sum()) == 7 and int((a == 0).sum()) == 31
    causal = bank_weights(causal=True)
    assert not causal[above].any() and int((causal > 0).sum()) == 18 - 7
    near(causal.sum(-1), [1.0] * 7)
    near(causal[1], [1 / 3, 2 / 3, 0, 0, 0, 0, 0])  # .2 and .4 without what lies ahead
    nothing = torch.zeros(1, 1, 7, 3, dtype=torch.float64)
    least = bank().log().clamp(min=-30)
    assert (attention_weights(nothing, nothing, causal=False, bias=least) > 0).all()


def test_the_two_banks_part() -> None:
    """P9: what each bank has gathered, of one-hot words (the, bank, is, on, river)."""
    words = F.one_hot(torch.tensor([0, 1, 2, 3, 0, 4, 1]), 5).double()
    scores = bank().log()  # -inf at 0
    nothing = torch.zeros(1, 1, 7, 3, dtype=torch.float64)
    seen = attend(nothing, nothing, words[None, None], causal=False, bias=scores)[0, 0, [1, 6]]
    near(seen, [[0.2, 0.4, 0.1, 0.3, 0.0], [0.2, 0.4, 0.0, 0.0, 0.4]])
    near(F.cosine_similarity(seen[0], seen[1], dim=0), 0.608581, 1e-6)


def test_without_projections() -> None:
    """P11: C's self-attention, x · x with no scale, x_1 = (1, 0) and x_2 = (0, 1)."""
    x = torch.eye(2, dtype=torch.float64)[None, None]
    a = attention_weights(x, x, causal=False, scale=1.0)
    near((a @ x)[0, 0, 0], [0.731059, 0.268941], 1e-6)


def test_counts_of_parameters_and_of_pairs() -> None:
    """P12, P13."""
    made = SelfAttention(4, 2, 2, 0.0, causal=True)
    assert made.qkv.weight.numel() == 48 and made.out.weight.numel() == 16 and made.out.in_features == 4
    with record() as seen:
        made(torch.randn(1, 4, 4))
    (a_BHTS,) = seen["attention"]
    assert a_BHTS.shape == (1, 2, 4, 4) and (a_BHTS > 0).sum() == 2 * 10
    near(a_BHTS.sum(-1), torch.ones(1, 2, 4), 1e-6)


# torch's


def reference(made: SelfAttention, x_BTD: Tensor, mask: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """nn.MultiheadAttention with the same weights; `mask` and `padding` are True where nothing is seen."""
    theirs = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(made.qkv.weight)
        theirs.in_proj_bias.copy_(made.qkv.bias)
        theirs.out_proj.weight.copy_(made.out.weight)
        theirs.out_proj.bias.copy_(made.out.bias)
    return theirs(x_BTD, x_BTD, x_BTD, attn_mask=mask, key_padding_mask=padding, average_attn_weights=False)


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


def both_ways(q: Tensor, k: Tensor, v: Tensor, **given) -> Tensor:
    """By the fused kernel, and by the equation while a probe records: they must agree."""
    fused = attend(q, k, v, **given)
    with record() as seen:
        near(attend(q, k, v, **given), fused)
    near(seen["attention"][0] @ v, fused)
    return fused


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 3, 5])
def test_mask_bias_and_causal_mask_together(causal: bool, length: int) -> None:
    """The queries are the last of five places; the reference is torch's own, with one mask worked out by hand."""
    torch.manual_seed(0)
    k, v = torch.randn(2, 2, 2, 5, 4, dtype=torch.float64)
    q = torch.randn(2, 2, length, 4, dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True, True], [True, False, True, True, False]])[:, None, None]
    bias = torch.randn(2, length, 5, dtype=torch.float64)
    for given_mask in (None, mask):
        for given_bias in (None, bias):
            numbers = (
                torch.zeros(2, 2, length, 5, dtype=torch.float64) if given_bias is None else bias.expand(2, -1, -1, -1)
            )
            numbers = numbers.clone()
            for t in range(length):
                for s in range(5):
                    if causal and s > 5 - length + t:
                        numbers[:, :, t, s] = -math.inf
                    if given_mask is not None:
                        numbers[~mask[:, 0, 0, s], :, t, s] = -math.inf
            expected = F.scaled_dot_product_attention(q, k, v, numbers, scale=0.3)
            near(both_ways(q, k, v, causal=causal, mask=given_mask, bias=given_bias, scale=0.3), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_nothing_gives_zero_on_both_ways(dtype: torch.dtype, biased: bool, causal: bool) -> None:
    """And its gradient is 0, not NaN. Row 0 sees no key at all; with the causal mask, place 0 of row 1 does not."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 4, 8, dtype=dtype).requires_grad_() for _ in range(3))
    mask = torch.tensor([[False] * 4, [False, True, True, True], [True] * 4])[:, None, None]
    bias = torch.randn(2, 4, 4, dtype=dtype) if biased else None
    found, slopes = [], []
    for probed in (False, True):
        with record() if probed else nullcontext():
            y = attend(q, k, v, causal=causal, mask=mask, bias=bias)
        found.append(y)
        slopes.append(torch.autograd.grad(y.square().sum(), (q, k, v)))
    assert not found[0][0].any() and not found[1][0].any()
    assert found[1][1, :, 0].any() != causal and found[1][2].all()
    near(found[0], found[1], 1e-6)
    for a, b in zip(*slopes, strict=True):
        assert a.isfinite().all() and not a[0].any()
        near(a, b, 1e-5)


def test_attention_without_a_causal_mask_equals_torchs() -> None:
    torch.manual_seed(0)
    made, x_BTD = layer(causal=False), torch.randn(3, 5, 6, dtype=torch.float64)
    mask = torch.rand(3, 5) < 0.7
    mask[:, 0] = True
    expected, _ = reference(made, x_BTD, torch.zeros(5, 5, dtype=torch.bool), ~mask)
    near(made(x_BTD, mask[:, None, None]), expected)


def test_one_head_without_projections_is_the_dot_product() -> None:
    """nn.MultiheadAttention whose matrices are the identity."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    theirs = nn.MultiheadAttention(6, 1, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.eye(6, dtype=torch.float64).repeat(3, 1))
        theirs.out_proj.weight.copy_(torch.eye(6, dtype=torch.float64))
    near(attend(x[:, None], x[:, None], x[:, None], causal=False)[:, 0], theirs(x, x, x)[0])


def test_biases_can_be_left_out_and_the_scale_chosen() -> None:
    made = SelfAttention(6, 2, 3, 0.0, causal=False, biases=False, scale=1.0, probe="source_attention").double()
    assert {name for name, _ in made.named_parameters()} == {"qkv.weight", "out.weight"}
    x_BTD = torch.randn(2, 4, 6, dtype=torch.float64)
    q, k, v = made.qkv(x_BTD).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
    a = (q @ k.mT).softmax(-1)
    with record() as seen:
        near(made(x_BTD), made.out((a @ v).transpose(1, 2).flatten(2)))
    near(seen["source_attention"][0], a)


# Cross-attention


def cross() -> CrossAttention:
    made = CrossAttention(6, 2, 3, 0.0).double()
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    return made


@pytest.mark.parametrize("probed", [False, True])
def test_cross_attention_equals_torchs(probed: bool) -> None:
    torch.manual_seed(0)
    made, x_BTD, m_BSD = cross(), torch.randn(3, 4, 6).double(), torch.randn(3, 5, 6).double()
    theirs = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([made.q.weight, made.kv.weight]))
        theirs.in_proj_bias.copy_(torch.cat([made.q.bias, made.kv.bias]))
    theirs.out_proj.load_state_dict(made.out.state_dict())
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    expected, weights = theirs(x_BTD, m_BSD, m_BSD, key_padding_mask=~mask, average_attn_weights=False)
    memory = made.memory(m_BSD, mask[:, None, None])
    with record() if probed else nullcontext({}) as seen:
        near(made(x_BTD, memory), expected)
    if probed:
        near(seen["cross_attention"][0], weights)


def test_folded_beams_equal_a_copied_memory() -> None:
    torch.manual_seed(0)
    made, m_BSD = cross(), torch.randn(3, 5, 6, dtype=torch.float64)
    mask = (torch.arange(5) < torch.tensor([[5], [2], [4]]))[:, None, None]
    for beams, length in ((1, 2), (4, 1), (2, 3)):
        x_BTD = torch.randn(3 * beams, length, 6, dtype=torch.float64)
        copied = made.memory(m_BSD.repeat_interleave(beams, 0), mask.repeat_interleave(beams, 0))
        near(made(x_BTD, made.memory(m_BSD, mask), beams), made(x_BTD, copied))


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
    made, x_BTD = SelfAttention(6, 2, 3, 0.5, causal=True).double(), torch.randn(2, 5, 6, dtype=torch.float64)
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
    made(x_BTD[:, :3], cache=LayerCache(kept[0], kept[1], None, 3))
    places_BT = torch.tensor([[3, 4, 5], [2, 3, 4]])
    second = torch.stack([x_BTD[0, 3:], x_BTD[1, 2:5]])
    sees = (torch.arange(6) <= places_BT[..., None])[:, None]
    out = made(second, sees, cache=LayerCache(kept[0], kept[1], places_BT, 6))
    near(out[0], made(x_BTD)[0, 3:])
    near(out[1], made(x_BTD)[1, 2:5])

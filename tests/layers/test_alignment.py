"""Attention of a recurrent decoder: its three scores by hand, the hard-wired alignment, coverage, and folded beams."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from segue.layers.alignment import (
    Alignment,
    Score,
    SourceStates,
    contexts,
    coverage_loss,
    fixed_weights,
    masked_softmax,
)

SCORES: list[Score] = ["dot", "bilinear", "additive"]
H = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
"""Three places of a source, two units."""


def near(a: Tensor, b: Tensor | list, error: float = 1e-12) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=error, rtol=0)


def states(alignment: Alignment, h_BSD: Tensor, lengths: list[int] | None = None) -> SourceStates:
    lengths = lengths or [h_BSD.shape[1]] * len(h_BSD)
    mask_BS = torch.arange(h_BSD.shape[1]) < torch.tensor(lengths)[:, None]
    return SourceStates(h_BSD, alignment.keys(h_BSD), mask_BS)


def random_states(score: Score, covers: bool = False, rows: int = 3) -> tuple[Alignment, Tensor, SourceStates]:
    torch.manual_seed(2)
    alignment = Alignment(score, 6, covers).double()
    if alignment.w is not None:
        nn.init.normal_(alignment.w)
    d_BTD, h_BSD = torch.randn(rows, 4, 6).double(), torch.randn(rows, 5, 6).double()
    return alignment, d_BTD, states(alignment, h_BSD, [5, 2, 4][:rows])


def by_hand(e: list[float]) -> list[float]:
    total = sum(math.exp(one) for one in e)
    return [math.exp(one) / total for one in e]


@pytest.mark.parametrize(
    ("score", "e"),
    [
        ("dot", [2.0, -1.0, 1.0]),  # d = (2, -1)
        ("bilinear", [-1.0, 4.0, 3.0]),  # W h = (h_2 · 2, h_1): d · W h = 4 h_2 - h_1
        ("additive", [math.tanh(3.0) + 2 * math.tanh(-1.0), math.tanh(2.0), math.tanh(3.0)]),
    ],
)
def test_weights_of_two_units_by_hand(score: Score, e: list[float]) -> None:
    alignment = Alignment(score, 2).double()
    with torch.no_grad():
        if score == "bilinear":
            alignment.keys.weight.copy_(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        if score == "additive":  # v · tanh(h + d + (0, 0)), v = (1, 2)
            alignment.keys.weight.copy_(torch.eye(2))
            alignment.queries.weight.copy_(torch.eye(2))
            alignment.queries.bias.zero_()
            alignment.v.weight.copy_(torch.tensor([[1.0, 2.0]]))
    alpha = alignment(torch.tensor([[[2.0, -1.0]]]).double(), states(alignment, torch.tensor([H]).double()))
    near(alpha[0, 0], by_hand(e))
    near(
        contexts(alpha, torch.tensor([H]).double())[0, 0],
        [sum(a * h[i] for a, h in zip(by_hand(e), H, strict=True)) for i in (0, 1)],
    )


def test_p15_a_score_that_is_one_tanh_is_bounded_and_v_lifts_the_bound() -> None:
    """As the lecture writes it, e = tanh(W [h; d]) for a W of one row: at best it is 1 once and -1 elsewhere."""
    for n, bound in [(2, 0.8808), (5, 0.6488), (10, 0.4509), (50, 0.1310)]:
        d, h = torch.zeros(1), torch.full((n,), -50.0)
        h[0] = 50.0
        literal = torch.tanh(100 * (h + d)).softmax(0)[0].item()
        assert literal == pytest.approx(math.e**2 / (math.e**2 + n - 1)) == pytest.approx(bound, abs=5e-5)
        alignment = Alignment("additive", 1)
        with torch.no_grad():
            alignment.keys.weight.fill_(100.0)
            alignment.v.weight.fill_(10.0)
        alpha = alignment(d[None, None], states(alignment, h[None, :, None]))
        assert alpha[0, 0, 0] > 0.999


def test_dot_is_attention_without_projections() -> None:
    """torch's attention of one head with identity matrices divides by sqrt(width); queries that are so much longer
    give the same."""
    alignment, d_BTD, source = random_states("dot")
    reference = nn.MultiheadAttention(6, 1, bias=False, batch_first=True).double()
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.eye(6).repeat(3, 1))
        reference.out_proj.weight.copy_(torch.eye(6))
    expected, weights = reference(d_BTD * math.sqrt(6), source.h_BSD, source.h_BSD, key_padding_mask=~source.mask_BS)
    alpha = alignment(d_BTD, source)
    near(alpha, weights)
    near(contexts(alpha, source.h_BSD), expected)


@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_weights_sum_to_one_and_padding_gets_none(score: Score, covers: bool) -> None:
    alignment, d_BTD, source = random_states(score, covers)
    alpha = alignment(d_BTD, source, torch.zeros(3, 5).double() if covers else None)
    near(alpha.sum(-1), torch.ones(3, 4))
    assert not alpha.masked_select(~source.mask_BS[:, None]).any()


def test_an_empty_source_gets_no_attention_and_no_gradient_that_is_nan() -> None:
    e = torch.zeros(2, 3, requires_grad=True)
    alpha = masked_softmax(e, torch.tensor([[True, True, False], [False, False, False]]))
    near(alpha, [[0.5, 0.5, 0], [0, 0, 0]])
    alpha[:, 0].sum().backward()
    assert e.grad.isfinite().all()


def test_fixed_sees_its_own_place_then_the_last() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
    alpha = fixed_weights(torch.arange(4).repeat(3, 1), mask, torch.zeros(()))
    assert alpha.argmax(-1)[:2].tolist() == [[0, 1, 1, 1], [0, 1, 2, 2]]
    assert alpha.sum(-1).tolist() == [[1.0] * 4, [1.0] * 4, [0.0] * 4]


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_coverage_of_three_times_by_hand(score: Score) -> None:
    """One unit, two places, w = -3: what was seen before is seen less."""
    alignment = Alignment(score, 1, covers=True).double()
    h, d, w = (0.5, -0.25), (1.0, 2.0, 1.0), -3.0
    with torch.no_grad():
        alignment.w.fill_(w)
        if score == "additive":
            alignment.keys.weight.fill_(1.0)
            alignment.queries.weight.fill_(1.0)
            alignment.queries.bias.zero_()
            alignment.v.weight.fill_(2.0)
    covered, expected = [0.0, 0.0], []
    for one in d:
        if score == "dot":
            e = [one * h[s] + w * covered[s] for s in (0, 1)]
        else:
            e = [2 * math.tanh(h[s] + one + w * covered[s]) for s in (0, 1)]
        expected.append(by_hand(e))
        covered = [covered[s] + expected[-1][s] for s in (0, 1)]
    source = states(alignment, torch.tensor([[[h[0]], [h[1]]]]).double())
    alpha = alignment(torch.tensor([[[one] for one in d]]).double(), source, torch.zeros(1, 2).double())
    near(alpha[0], expected)
    near(alpha[0].sum(0), covered)


def test_the_coverage_loss_by_hand_and_of_a_copy_word_by_word() -> None:
    alpha = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]]])
    # covered before t: (0, 0), (.5, .5), (.75, 1.25): minima 0, .25 + .5, .75 + 0
    near(coverage_loss(alpha, torch.tensor([[True, True, True]])), torch.tensor(1.5))
    near(coverage_loss(alpha, torch.tensor([[True, True, False]])), torch.tensor(0.75))
    assert coverage_loss(torch.eye(5)[None], torch.ones(1, 5, dtype=torch.bool)) == 0


@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_folded_beams_are_copies_of_the_source(score: Score, covers: bool) -> None:
    """Two rows of the decoder for each row of the source, side by side."""
    alignment, d_BTD, source = random_states(score, covers, rows=2)
    d_BTD = torch.cat([d_BTD, d_BTD.flip(1)])
    covered = torch.rand(4, 5).double() if covers else None
    copied = source.select(torch.tensor([0, 0, 1, 1]))
    alpha = alignment(d_BTD, source, covered)
    near(alpha, alignment(d_BTD, copied, covered))
    near(contexts(alpha, source.h_BSD), contexts(alpha, copied.h_BSD))
    places = torch.arange(4).repeat(4, 1)
    near(fixed_weights(places, source.mask_BS, alpha, beams=2), fixed_weights(places, copied.mask_BS, alpha))


def test_sources_that_join_are_padded_to_the_longest() -> None:
    alignment, d_BTD, long = random_states("bilinear", rows=1)
    short = states(alignment, long.h_BSD[:, :3])
    joined = short.join([long])
    alpha = alignment(d_BTD.repeat(2, 1, 1), joined)
    near(alpha[:1, :, :3], alignment(d_BTD, short))
    near(alpha[1:], alignment(d_BTD, long))

"""Attention as lecture C writes it: P11, P12, and the equations of bilinear heads by plain loops (trap 13)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from segue.layers.attention import SelfAttention
from segue.layers.lecture_attention import Bilinear, Plain, Unmixed
from segue.layers.probe import record
from segue.models.base import Sizes
from segue.models.gpt import Gpt


def test_p11_no_projections() -> None:
    """x_1 = (1, 0), x_2 = (0, 1): the weights are those of the scores 1 and 0."""
    x_BTD = torch.eye(2, dtype=torch.float64)[None]
    own = math.e / (math.e + 1)
    expected = torch.tensor([[[own, 1 - own], [1 - own, own]]], dtype=torch.float64)
    torch.testing.assert_close(Plain(2, 0.0, causal=False)(x_BTD), expected)
    assert own == pytest.approx(0.731059, abs=1e-6)
    expected[0, 0] = torch.tensor([1.0, 0.0])
    torch.testing.assert_close(Plain(2, 0.0, causal=True)(x_BTD), expected)
    assert not list(Plain(2, 0.0, causal=True).parameters())


def test_p12_parameters_with_and_without_the_output_matrix() -> None:
    def count(layer: SelfAttention) -> int:
        return sum(weight.numel() for weight in layer.parameters())

    assert count(Unmixed(4, 2, 2, 0.0, causal=True, biases=False)) == 48
    assert count(SelfAttention(4, 2, 2, 0.0, causal=True, biases=False)) == 48 + 16
    assert count(Bilinear(4, 2, 0.0, causal=True, mix=False)) == 2 * 2 * 4 * 4
    assert count(Bilinear(4, 2, 0.0, causal=True, mix=True)) == 2 * 2 * 4 * 4 + 8 * 4


def test_heads_side_by_side_are_the_output_without_w_o() -> None:
    """The Transformer's layer with W_O = I."""
    torch.manual_seed(0)
    mixed, unmixed = SelfAttention(6, 2, 3, 0.0, causal=True).double(), Unmixed(6, 2, 3, 0.0, causal=True).double()
    unmixed.qkv.load_state_dict(mixed.qkv.state_dict())
    with torch.no_grad():
        mixed.out.weight.copy_(torch.eye(6))
        mixed.out.bias.zero_()
        x_BTD = torch.randn(2, 5, 6, dtype=torch.float64)
        torch.testing.assert_close(unmixed(x_BTD), mixed(x_BTD))


@torch.no_grad()
@pytest.mark.parametrize("mix", [False, True])
def test_bilinear_heads_are_the_equations(mix: bool) -> None:
    torch.manual_seed(0)
    layer, x_TD = Bilinear(3, 2, 0.0, causal=True, mix=mix).double(), torch.randn(4, 3, dtype=torch.float64)
    rows = []
    for t in range(4):
        heads = []
        for h in range(2):
            W, V = layer.scores.weight[3 * h : 3 * h + 3].T, layer.values.weight[3 * h : 3 * h + 3]
            scores = torch.stack([x_TD[t] @ W @ x_TD[j] for j in range(t + 1)])
            heads.append(sum(a * (V @ x_TD[j]) for j, a in enumerate(scores.softmax(0))))
        together = torch.cat(heads)
        rows.append(layer.out.weight @ together if mix else together)
    torch.testing.assert_close(layer(x_TD[None])[0], torch.stack(rows))


@torch.inference_mode()
@pytest.mark.parametrize(
    "given",
    [
        {"attention": "plain", "heads": 1},
        {"attention": "plain", "heads": 1, "position": "rotary"},
        {"attention": "bilinear", "heads": 2, "position": "relative"},
        {"mix_heads": False, "heads": 2},
    ],
)
def test_gpt_steps_with_them_as_it_reads(given: dict[str, Any]) -> None:
    """The KV cache too; and no compiled code takes such a layer for the usual one."""
    torch.manual_seed(0)
    model = Gpt(Gpt.Config(width=8, context=8, **given), Sizes(9)).double().eval()
    tokens_BT = torch.randint(9, (2, 6))
    mask_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
    whole_BTV = model.unembed(torch.stack([model.norm(x) for x in model._layers(tokens_BT)])[-1])
    state = model.start(2, 2)
    for t in range(6):
        logits_BV, state = model.step(tokens_BT[:, t : t + 1], mask_BT[:, t : t + 1], state)
        torch.testing.assert_close(logits_BV, whole_BTV[:, t])
    with record() as seen:
        model.step(tokens_BT, mask_BT, model.start(2, 6))
    torch.testing.assert_close(seen["attention"][0].sum(-1), torch.ones(2, given["heads"], 6, dtype=torch.float64))
    assert not model.stack.blocks[0].attention.usual


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention": "plain"}, "set heads = 1"),
        ({"attention": "bilinear", "mix_heads": False}, "heads = 1"),
        ({"attention": "bilinear", "residual": False}, "residual = false"),
        ({"size": "gpt3-13b", "mix_heads": False}, "as wide as the layer"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gpt.Config(**given)

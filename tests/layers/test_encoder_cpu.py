"""A packed stack computes what its layers compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from segue.layers import encoder_cpu
from segue.layers.attention import SelfAttention
from segue.layers.encoder_cpu import read_packed
from segue.layers.probe import record
from segue.layers.transformer import Block, FeedForward, LayerNorm

WIDTH, HEADS = 16, 2


def block(norm: Any = "post", activation: Any = "gelu_erf", causal: bool = False, residual: bool = True) -> Block:
    attention = SelfAttention(WIDTH, HEADS, WIDTH // HEADS, 0.1, causal=causal)
    norms = [LayerNorm(WIDTH, 1e-12) for _ in range(2)]
    made = Block(attention, FeedForward(WIDTH, activation), norms, norm=norm, residual=residual, dropout=0.1)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made.eval()


def plain(blocks: list[Block], x: Any, mask: Any = None, places: Any = None) -> Any:
    for one in blocks[:-1]:
        x = one(x, mask)
    return blocks[-1](x, mask, places_BK=places)


@pytest.fixture(autouse=True)
def few_tokens_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_cpu, "LEAST", 1)
    torch.manual_seed(0)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu_erf", "gelu", "relu", "silu"])
@torch.inference_mode()
def test_a_packed_stack_computes_what_its_layers_compute(norm: Any, activation: Any) -> None:
    blocks = [block(norm, activation) for _ in range(3)]
    x = torch.randn(5, 7, WIDTH)
    mask = (torch.arange(7) < torch.tensor([7, 3, 1, 5, 7])[:, None])[:, None, None]
    places = torch.tensor([[0, 6], [2, 0], [0, 0], [4, 1], [3, 3]])
    for given in ((None, None), (mask, None), (None, places), (mask, places)):
        found = read_packed(blocks, x, *given)
        assert found is not None
        torch.testing.assert_close(found, plain(blocks, x, *given), atol=1e-4, rtol=1e-4)


def test_threads_share_the_rows() -> None:
    before = torch.get_num_threads()
    blocks, x = [block(), block()], torch.randn(5, 7, WIDTH)
    try:
        with torch.inference_mode():
            torch.set_num_threads(1)
            alone = read_packed(blocks, x, None, None)
            torch.set_num_threads(2)
            shared = read_packed(blocks, x, None, None)
            one_row = read_packed(blocks, x[:1], None, None)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(alone, shared)
    torch.testing.assert_close(one_row, shared[:1])  # type: ignore[index]


def test_weights_that_have_learnt_are_packed_again() -> None:
    blocks, x = [block()], torch.randn(2, 3, WIDTH)
    with torch.inference_mode():
        first = read_packed(blocks, x, None, None)
    with torch.no_grad():
        blocks[0].feed.down.weight.mul_(2)
    with torch.inference_mode():
        second = read_packed(blocks, x, None, None)
        torch.testing.assert_close(second, plain(blocks, x), atol=1e-4, rtol=1e-4)
    assert first is not None and not torch.allclose(first, second)  # type: ignore[arg-type]


def test_what_it_does_not_compute_is_left_to_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, WIDTH)
    usual = [block()]
    assert read_packed(usual, x, None, None) is None  # a gradient may be wanted
    with torch.inference_mode():
        assert read_packed(usual, x, None, None) is not None
        assert read_packed([block(causal=True)], x, None, None) is None
        assert read_packed([block(residual=False)], x, None, None) is None
        assert read_packed(usual, x.double(), None, None) is None
        assert read_packed([block().train()], x, None, None) is None
        with record():
            assert read_packed(usual, x, None, None) is None
        with torch.autocast("cpu", torch.bfloat16):
            assert read_packed(usual, x, None, None) is None
        monkeypatch.setattr(encoder_cpu, "LEAST", 7)
        assert read_packed(usual, x, None, None) is None

"""The layer of a Transformer against the lectures (P16), against torch.nn, and with its parts taken away."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.layers.attention import CrossAttention, SelfAttention
from segue.layers.position import Positions
from segue.layers.probe import record
from segue.layers.transformer import Activation, Block, FeedForward, LayerNorm, Norm


def near(a: Tensor, b, tolerance=1e-12) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=tolerance, rtol=0)


def block(norm: Norm = "pre", residual: bool = True, activation: Activation = "relu") -> Block:
    attention, norms = SelfAttention(8, 2, 4, 0.0, causal=True), (LayerNorm(8), LayerNorm(8))
    made = Block(attention, FeedForward(8, activation), norms, norm=norm, residual=residual, dropout=0.0).double()
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return made


def test_layer_norm_of_1_2_3_4() -> None:
    """P16: the population's deviation, 1.118034; with eps under the root it differs by 6e-6."""
    norm = LayerNorm(4).double()
    a = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    with record() as seen:
        written = norm(a)
    near(written[0], [-1.341641, -0.447214, 0.447214, 1.341641], 1e-5)
    near(seen["deviation"][0], [1.118034], 1e-5)
    near(written, norm(a))
    assert (norm(a)[0, 3].item() - 1.3416407865) == pytest.approx(-6e-6, abs=1e-6)
    near(norm(torch.full((1, 4), 3.0, dtype=torch.float64)), torch.zeros(1, 4))  # a constant vector


def test_layer_norm_equals_torchs_on_both_ways() -> None:
    torch.manual_seed(0)
    norm, theirs = LayerNorm(6).double(), nn.LayerNorm(6).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    theirs.load_state_dict(norm.state_dict())
    a = torch.randn(2, 3, 6, dtype=torch.float64)
    near(norm(a), theirs(a))
    with record():
        near(norm(a), theirs(a))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_equals_torchs_encoder_layer(norm: Norm, activation: Activation) -> None:
    torch.manual_seed(0)
    ours = block(norm, activation=activation)
    phi = F.relu if activation == "relu" else lambda x: F.gelu(x, approximate="tanh")
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, phi, batch_first=True, norm_first=norm == "pre").double()
    names = {"self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj.": "attention.out.", "linear1.": "feed.up."}
    names |= {"linear2.": "feed.down.", "norm1.": "norm_attention.", "norm2.": "norm_feed."}
    state = {}
    for their_name in theirs.state_dict():
        (prefix,) = [prefix for prefix in names if their_name.startswith(prefix)]
        state[their_name] = ours.state_dict()[names[prefix] + their_name.removeprefix(prefix)]
    theirs.load_state_dict(state)
    x_BTD = torch.randn(3, 5, 8, dtype=torch.float64)
    mask = ~torch.ones(5, 5, dtype=torch.bool).tril()
    near(ours(x_BTD), theirs(x_BTD, src_mask=mask), 1e-10)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_with_cross_attention_equals_torchs_decoder_layer(norm: Norm) -> None:
    torch.manual_seed(0)
    parts = (SelfAttention(8, 2, 4, 0.0, causal=True), FeedForward(8, "relu"), [LayerNorm(8) for _ in range(3)])
    ours = Block(*parts, norm=norm, residual=True, dropout=0.0, cross=CrossAttention(8, 2, 4, 0.0)).double()
    for parameter in ours.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    theirs = nn.TransformerDecoderLayer(8, 2, 32, 0.0, batch_first=True, norm_first=norm == "pre").double()
    names = {"self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj.": "attention.out."}
    names |= {"multihead_attn.out_proj.": "cross.out.", "linear1.": "feed.up.", "linear2.": "feed.down."}
    names |= {"norm1.": "norm_attention.", "norm2.": "norm_cross.", "norm3.": "norm_feed."}
    mine = ours.state_dict()
    state = {a + end: mine[b + end] for a, b in names.items() for end in ("weight", "bias")}
    for end in ("weight", "bias"):
        state[f"multihead_attn.in_proj_{end}"] = torch.cat([mine[f"cross.q.{end}"], mine[f"cross.kv.{end}"]])
    theirs.load_state_dict(state)
    x_BTD, m_BSD = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 4, 8, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([[4], [1], [3]])
    ahead = ~torch.ones(5, 5, dtype=torch.bool).tril()
    expected = theirs(x_BTD, m_BSD, tgt_mask=ahead, memory_key_padding_mask=~mask)
    assert ours.cross is not None
    near(ours(x_BTD, memory=ours.cross.memory(m_BSD, mask[:, None, None])), expected, 1e-10)


def test_a_block_takes_any_norm() -> None:
    """As T5 will: torch's RMS norm, no biases, no scale."""
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, 4, 0.0, causal=False, biases=False, scale=1.0)
    made = Block(
        attention, FeedForward(8, "relu"), [nn.RMSNorm(8), nn.RMSNorm(8)], norm="pre", residual=True, dropout=0
    )
    x = torch.randn(2, 3, 8)
    y = x + attention(made.norm_attention(x))
    near(made(x), y + made.feed(y / (y.square().mean(-1, keepdim=True) + torch.finfo(y.dtype).eps).sqrt()), 1e-5)


def test_gelu_is_the_tanh_form() -> None:
    made = block(activation="gelu").feed
    x = torch.randn(1, 2, 8, dtype=torch.float64)
    h = made.up(x)
    f = h / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    near(made(x), made.down(f))


def test_without_layer_norm_the_parts_are_only_added() -> None:
    parts = (SelfAttention(8, 2, 4, 0.0, causal=True), FeedForward(8, "gelu"), [nn.Identity(), nn.Identity()])
    made = Block(*parts, norm="none", residual=True, dropout=0.0).double()
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    y = x + made.attention(x)
    near(made(x), y + made.feed(y))
    assert not any("norm" in name for name, _ in made.named_parameters())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_without_residuals_the_input_is_not_added(norm: Norm) -> None:
    made = block(norm, residual=False)
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    if norm == "pre":
        expected = made.feed(made.norm_feed(made.attention(made.norm_attention(x))))
    else:
        expected = made.norm_feed(made.feed(made.norm_attention(made.attention(x))))
    near(made(x), expected)
    with torch.no_grad():
        for parameter in (*made.attention.out.parameters(), *made.feed.down.parameters()):
            parameter.zero_()
    kept = block(norm)
    kept.load_state_dict(made.state_dict())
    if norm == "pre":
        near(kept(x), x)  # with them a layer that does nothing passes its input on; without them nothing is left
        near(made(x), torch.zeros_like(x))


def test_what_a_probe_sees() -> None:
    made = block()
    with record() as seen:
        out = made(torch.ones(2, 3, 8, dtype=torch.float64).cumsum(1))
    assert [a.shape for a in seen["attention"]] == [(2, 2, 3, 3)] and len(seen["deviation"]) == 2
    near(out, made(torch.ones(2, 3, 8, dtype=torch.float64).cumsum(1)), 1e-10)


@pytest.mark.parametrize("kind", ["learned", "relative", "rotary"])
def test_a_block_is_one_graph(kind: str) -> None:
    """Compiled without a break; "eager" only traces, which is where breaks are found."""
    torch.compiler.reset()  # else it counts what other tests of this process compiled, and gives up
    torch.manual_seed(0)
    made = block().float()
    positions, places = Positions(kind, 6, 8, 2, 4), torch.arange(5)
    given = {"bias": positions.bias(places, 5), "rotation": positions.rotation(places)}
    x_BTD = torch.randn(2, 5, 8)
    compiled = torch.compile(made, fullgraph=True, backend="eager")
    near(compiled(x_BTD, **given), made(x_BTD, **given), 1e-6)


def test_half_precision() -> None:
    torch.manual_seed(0)
    made, x_BTD = block().float(), torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        half = made(x_BTD)
    near(half.float(), made(x_BTD), 0.2)
    assert not torch.equal(half.float(), made(x_BTD))

"""Windows over a sequence: K1 to K5 of the lectures (convolution and shapes)."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from segue.batches.batch import IGNORE
from segue.layers.convolution import Window, masked, windows
from segue.layers.losses import cross_entropy
from segue.layers.recurrent import Recurrent


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def window(d: int, n: int, k: int, seed: int = 0, bias: bool = True) -> Window:
    torch.manual_seed(seed)
    layer = Window(d, n, k).double()
    if not bias:
        nn.init.zeros_(layer.linear.bias)
    return layer


def whole(x_BTD: Tensor) -> Tensor:
    return torch.ones(x_BTD.shape[:2], dtype=torch.bool)


def conv1d(layer: Window, x_BTD: Tensor, padding: int) -> Tensor:
    """The same weights by torch's convolution: W (n, k·d) as (n, d, k)."""
    n, k = layer.linear.out_features, layer.width
    kernel = layer.linear.weight.view(n, k, -1).transpose(1, 2)
    return F.conv1d(x_BTD.transpose(1, 2), kernel, layer.linear.bias, padding=padding).transpose(1, 2)


def near(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize("k", [1, 3, 5, 9])
def test_k1_a_linear_layer_over_windows_is_a_convolution(k: int) -> None:
    x = draw(2, 6, 4)
    layer = window(4, 3, k)
    near(layer(x, whole(x)), conv1d(layer, x, (k - 1) // 2))


def test_k1_the_window_holds_the_words_in_the_order_of_the_text() -> None:
    """W [x_{t-1}; x_t; x_{t+1}] + b, zero vectors beyond the ends."""
    x = draw(1, 4, 2)
    zero = torch.zeros(2, dtype=torch.float64)
    padded = [zero, *x[0], zero]
    expected = torch.stack([torch.cat(padded[t : t + 3]) for t in range(4)])
    near(windows(x, 3)[0], expected)
    layer = window(2, 5, 3)
    near(layer(x, whole(x))[0], expected @ layer.linear.weight.T + layer.linear.bias)


def test_k2_two_linear_layers_of_width_3_fold_into_one_of_width_5() -> None:
    """K[i + j] = sum of B[j] A[i]; away from the ends, where the second layer sees zeros in place of windows."""
    d, h, n, length = 3, 4, 2, 9
    a, b, one = window(d, h, 3, 1, bias=False), window(h, n, 3, 2, bias=False), window(d, n, 5, bias=False)
    A, B = a.linear.weight.view(h, 3, d), b.linear.weight.view(n, 3, h)
    K = torch.zeros(n, 5, d, dtype=torch.float64)
    for i in range(3):
        for j in range(3):
            K[:, i + j] += B[:, j] @ A[:, i]
    one.linear.weight.data = K.detach().flatten(1)
    x = draw(2, length, d)
    stacked, folded = b(a(x, whole(x)), whole(x)), one(x, whole(x))
    near(stacked[:, 1:-1], folded[:, 1:-1])
    assert not torch.allclose(stacked.tanh(), b(a(x, whole(x)).tanh(), whole(x)))  # a non-linearity between undoes it


@pytest.mark.parametrize(("layers", "width", "field"), [(1, 3, 3), (2, 3, 5), (4, 5, 17), (3, 1, 1)])
def test_k3_receptive_field(layers: int, width: int, field: int) -> None:
    """1 + L (m - 1) words reach an output: read from the gradient."""
    assert field == 1 + layers * (width - 1)
    x = draw(1, 41, 2).requires_grad_()
    y = x
    for seed in range(layers):
        y = window(2, 2, width, seed)(y, whole(x))
    y[0, 20].sum().backward()
    reached = x.grad.abs().sum(-1)[0].nonzero().flatten().tolist()
    assert reached == list(range(20 - field // 2, 20 + field // 2 + 1))


def test_k4_shapes_and_parameters() -> None:
    """Four words of width 300 into 100 units, windows of 3: narrow, padded and wide, and a BiLSTM beside them."""
    words, k, m, c = 4, 300, 3, 100
    x, layer = draw(1, words, k), window(k, c, m)
    padded = layer(x, whole(x))
    assert padded.shape == (1, 4, c)
    narrow, wide = conv1d(layer, x, 0), conv1d(layer, x, m - 1)
    assert narrow.shape == (1, 2, c) and wide.shape == (1, 6, c)
    near(padded[:, 1:-1], narrow)
    near(padded, wide[:, 1:-1])
    longer = F.pad(x, (0, 0, 1, 1))
    near(layer(longer, whole(longer)), wide)
    assert sum(p.numel() for p in layer.parameters()) == 90_100
    both = Recurrent("lstm", k, c, 1, 0.0, bidirectional=True).double()
    assert both(x)[0].shape == (1, 4, 2 * c)
    assert sum(p.numel() for p in both.parameters()) == 321_600  # torch has two biases a gate
    assert 321_600 - 2 * 4 * c == 320_800  # one bias a gate, in both directions


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    more=st.integers(0, 3),
    k=st.sampled_from([1, 3, 5]),
    seed=st.integers(0, 9),
)
def test_k5_padding_changes_nothing(lengths: list[int], more: int, k: int, seed: int) -> None:
    """No real place's output, no max-pooled feature, no loss; whatever stands in the padding."""
    d, n = 3, 4
    layer = window(d, n, k)
    width = max(lengths) + more
    x = draw(len(lengths), width, d, seed=seed)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    targets = torch.arange(width).expand(len(lengths), -1).remainder(n).masked_fill(~mask, IGNORE)
    together = layer(x, mask)
    total, count = cross_entropy(together, targets)
    alone = [layer(x[i : i + 1, :length], mask[i : i + 1, :length])[0] for i, length in enumerate(lengths)]
    losses = [cross_entropy(out, targets[i, : len(out)]) for i, out in enumerate(alone)]
    pooled = together.masked_fill(~mask[:, :, None], -torch.inf).amax(1)
    for i, out in enumerate(alone):
        near(together[i, : len(out)], out)
        near(pooled[i], out.amax(0))
    torch.testing.assert_close(total, sum(loss for loss, _ in losses))
    assert int(count) == sum(int(c) for _, c in losses) == sum(lengths)


def test_masked_makes_padding_zero_and_keeps_the_rest() -> None:
    x = draw(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    out = masked(x, mask)
    assert (out[~mask] == 0).all() and (out[mask] == x[mask]).all()

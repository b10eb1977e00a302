"""The dropouts alone: what a mask is shared over, that the mean is kept, and that weights are only borrowed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from segue.layers.dropout import variational_dropout, weight_drop, word_dropout
from segue.layers.recurrent import Recurrent

CELLS = [
    ("elman", "tanh", "after"),
    ("elman", "logistic", "after"),
    ("lstm", "tanh", "after"),
    ("gru", "tanh", "after"),
    ("gru", "tanh", "before"),
]


def layer_of(kind: tuple, width: int = 5) -> Recurrent:
    cell, activation, reset = kind
    torch.manual_seed(2)
    return Recurrent(cell, 3, width, 1, 0.0, activation=activation, reset=reset).double()


def x_of(rows: int = 4, length: int = 6, width: int = 3) -> Tensor:
    return torch.randn(rows, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


# Locked


def test_a_locked_mask_is_the_same_over_time_and_differs_from_row_to_row() -> None:
    torch.manual_seed(0)
    out_BTD = variational_dropout(torch.ones(50, 7, 40), 0.3, True)
    assert torch.equal(out_BTD, out_BTD[:, :1].expand_as(out_BTD))
    kept_BD = out_BTD[:, 0] != 0
    assert (out_BTD[:, 0][kept_BD] - 1 / 0.7).abs().max() < 1e-6
    assert abs(kept_BD.float().mean() - 0.7) < 4 * (0.3 * 0.7 / 2000) ** 0.5
    assert len({tuple(row) for row in kept_BD.tolist()}) == 50


def test_a_locked_mask_is_a_factor_and_so_is_its_gradient() -> None:
    torch.manual_seed(1)
    x = x_of().requires_grad_()
    out = variational_dropout(x, 0.5, True)
    factor = (out / x).detach()
    assert ((factor - 2).abs() < 1e-12).logical_or(factor == 0).all()
    assert (factor == 0).any() and (factor != 0).any()
    out.sum().backward()
    torch.testing.assert_close(x.grad, factor)


# Words


def test_a_word_is_dropped_wherever_it_stands() -> None:
    torch.manual_seed(0)
    vocab_size = 400
    tokens_BT = torch.randint(vocab_size, (30, 60))
    x_BTD = torch.ones(30, 60, 4)
    out_BTD = word_dropout(x_BTD, tokens_BT, vocab_size, 0.2, True)
    seen: dict[int, set[float]] = {}
    for token, vector in zip(tokens_BT.flatten().tolist(), out_BTD.flatten(0, 1).tolist(), strict=True):
        seen.setdefault(token, set()).update(vector)
    assert all(len(values) == 1 for values in seen.values())
    dropped = [token for token, values in seen.items() if values == {0.0}]
    assert abs(len(dropped) / len(seen) - 0.2) < 0.08
    assert {value for values in seen.values() for value in values} == {0.0, 1.25}


def test_masked_words_are_those_of_a_masked_table() -> None:
    """The paper masks the rows of the table; masking what was looked up is the same, and so is the gradient."""
    table = nn.Embedding(9, 3).double()
    tokens_BT = torch.randint(9, (4, 8), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(3)
    word_dropout(table(tokens_BT), tokens_BT, 9, 0.4, True).square().sum().backward()
    mine, table.weight.grad = table.weight.grad, None
    torch.manual_seed(3)
    mask_V = nn.functional.dropout(torch.ones(9, dtype=torch.float64), 0.4)
    nn.functional.embedding(tokens_BT, table.weight * mask_V[:, None]).square().sum().backward()
    torch.testing.assert_close(mine, table.weight.grad)
    assert (mask_V == 0).any()


# Weights


@pytest.mark.parametrize("kind", CELLS)
def test_dropped_weights_are_those_of_a_layer_that_has_them(kind: tuple) -> None:
    """Outputs, state and gradients, in full and with padding, against a layer into which they were written."""
    layer, x = layer_of(kind), x_of()
    mask = torch.arange(6) < torch.tensor([6, 2, 4, 1])[:, None]
    for mask_BT in (None, mask):
        layer.zero_grad()
        torch.manual_seed(7)
        out, state = weight_drop(layer, 0.5, x, mask_BT)
        out.square().sum().backward()
        other = layer_of(kind)
        other.load_state_dict(layer.state_dict())
        torch.manual_seed(7)
        scale = nn.functional.dropout(torch.ones_like(layer.core.weight_hh_l0), 0.5)
        with torch.no_grad():
            other.core.weight_hh_l0.mul_(scale)
        expected, end = other(x, mask_BT)
        expected.square().sum().backward()
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(state.h_LBD, end.h_LBD)
        for name, weight in layer.named_parameters():
            reference = other.get_parameter(name).grad
            torch.testing.assert_close(weight.grad, reference * scale if "weight_hh" in name else reference)
        assert (scale == 0).any() and (scale == 2).any()


@pytest.mark.parametrize("kind", CELLS)
def test_a_layer_only_lends_its_weights(kind: tuple) -> None:
    layer, x = layer_of(kind), x_of()
    before = {name: (weight, weight.detach().clone()) for name, weight in layer.named_parameters()}
    names = list(layer.state_dict())
    first, second = (weight_drop(layer, 0.5, x)[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert list(layer.state_dict()) == names
    for name, weight in layer.named_parameters():
        assert weight is before[name][0] and torch.equal(weight, before[name][1])
    plain = layer(x)[0]
    torch.testing.assert_close(plain, layer.all_layers(x)[0][0])  # the fused kernel has its own weights again
    assert not torch.equal(plain, first)
    layer.eval()
    assert torch.equal(weight_drop(layer, 0.5, x)[0], layer(x)[0])


def test_the_same_mask_at_all_times() -> None:
    """An Elman network whose U is the identity: a unit that loses its entry forgets at every step, another never."""
    layer = Recurrent("elman", 1, 40, 1, 0.0, activation="relu")
    with torch.no_grad():
        for weight in layer.core.parameters():
            weight.zero_()
        layer.core.weight_ih_l0.fill_(1.0)
        layer.core.weight_hh_l0.copy_(torch.eye(40))
    torch.manual_seed(0)
    out_BTD, _ = weight_drop(layer, 0.5, torch.ones(2, 5, 1))
    forgets, keeps = torch.ones(5), torch.tensor([1.0, 3.0, 7.0, 15.0, 31.0])  # h_t = 1 + 2 h_{t-1}
    kinds = [torch.equal(unit, forgets) + 2 * torch.equal(unit, keeps) for unit in out_BTD[0].T]
    assert set(kinds) == {1, 2}
    assert torch.equal(out_BTD[0], out_BTD[1])


# Off


def test_nothing_is_drawn_when_nothing_is_dropped() -> None:
    """So that a run without them has the same random numbers as before there were any."""
    layer, x, tokens = layer_of(CELLS[2]), x_of(), torch.zeros(4, 6, dtype=torch.int64)
    before = torch.get_rng_state()
    for share, training in ((0.0, True), (0.5, False)):
        layer.train(training)
        assert variational_dropout(x, share, training) is x
        assert word_dropout(x, tokens, 3, share, training) is x
        weight_drop(layer, share, x)
    assert torch.equal(torch.get_rng_state(), before)

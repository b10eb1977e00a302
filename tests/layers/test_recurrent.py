"""The recurrent layers against the lectures' worked numbers (R1 to R15) and against torch.nn."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from segue.layers.probe import probe, record, recording
from segue.layers.recurrent import Recurrent, RecurrentState, gru_cell

KINDS = [
    ("elman", "tanh", "after"),
    ("elman", "relu", "after"),
    ("elman", "logistic", "after"),
    ("lstm", "tanh", "after"),
    ("gru", "tanh", "after"),
    ("gru", "tanh", "before"),
]
FUSED = [kind for kind in KINDS if kind[1] != "logistic" and kind[2] != "before"]


def make(kind, input_width=3, width=5, layers=2, bidirectional=False) -> Recurrent:
    """A layer in float64 with random weights and biases: zero biases would hide mistakes."""
    cell, activation, reset = kind
    layer = Recurrent(
        cell, input_width, width, layers, 0.0, activation=activation, reset=reset, bidirectional=bidirectional
    ).double()
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    return layer


def weights(layer: Recurrent, W, U, b=None) -> None:
    """Put these into a layer of one depth; the second bias is 0."""
    core = layer.core
    with torch.no_grad():
        core.weight_ih_l0.copy_(torch.tensor(W))
        core.weight_hh_l0.copy_(torch.tensor(U))
        core.bias_ih_l0.copy_(torch.zeros(len(core.bias_ih_l0)) if b is None else torch.tensor(b))
        core.bias_hh_l0.zero_()


def near(a: Tensor, b, tolerance=1e-6) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=tolerance, rtol=0)


def one_bias(module: nn.Module) -> int:
    """Parameters, where the equations' one bias is counted for torch's two."""
    return sum(p.numel() for name, p in module.named_parameters() if "bias_hh" not in name)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("tanh", [[0.761594, 0], [0, 0.881130], [0.893811, 0.761594]]),
        ("logistic", [[0.731059, 0.5], [0.562177, 0.796657], [0.801919, 0.782635]]),
    ],
)
def test_r1_r2_elman(activation, expected) -> None:
    layer = make(("elman", activation, "after"), 2, 2, 1)
    weights(layer, [[1.0, 0], [0, 1]], [[0, 0.5], [0.5, 0]])
    out_BTD, state = layer(torch.tensor([[[1.0, 0], [0, 1], [1, 1]]], dtype=torch.float64))
    near(out_BTD[0], expected)
    near(state.h_LBD[0, 0], expected[-1])


def test_r4_r7_parameter_counts() -> None:
    for cell, equations, torchs in (("elman", 620, 640), ("lstm", 2480, 2560), ("gru", 1860, 1920)):
        layer = Recurrent(cell, 10, 20, 1, 0.0)
        assert one_bias(layer) == equations
        assert sum(p.numel() for p in layer.parameters()) == torchs
    elman = nn.Sequential(Recurrent("elman", 10, 20, 1, 0.0), nn.Linear(20, 7))
    assert one_bias(elman) == 767


def test_r5_lstm_one_unit() -> None:
    layer = make(("lstm", "tanh", "after"), 1, 1, 1)
    weights(layer, [[0.5]] * 4, [[0.25]] * 4, [0.0, 1, 0, 0])
    begin = RecurrentState(torch.full((1, 1, 1), 0.5).double(), torch.full((1, 1, 1), 0.2).double())
    with record() as seen:
        _, state = layer(torch.ones(1, 1, 1).double(), None, begin)
    gates = {name: round(value.item(), 6) for name, value in seen["gates"][0].items()}
    assert gates["input"] == gates["output"] == 0.651355
    assert (gates["forget"], gates["candidate"]) == (0.835484, 0.554600)
    near(state.c_LBD, [[[0.528338]]])
    near(state.h_LBD, [[[0.315327]]])


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_r6_fused_and_plain_equal_torch(kind, bidirectional) -> None:
    """Forward and gradient, of both ways, against a torch module of its own."""
    layer = make(kind, bidirectional=bidirectional)
    maker = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[kind[0]]
    options = {"nonlinearity": kind[1]} if kind[0] == "elman" else {}
    reference = maker(3, 5, 2, batch_first=True, bidirectional=bidirectional, **options).double()
    reference.load_state_dict(layer.core.state_dict())
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    expected, end = reference(x)
    expected.square().sum().backward()
    for run in (layer, lambda x: tuple_last(layer.all_layers(x))):
        layer.zero_grad()
        out, state = run(x)
        out.square().sum().backward()
        near(out, expected, 1e-12)
        near(state.h_LBD, end[0] if kind[0] == "lstm" else end, 1e-12)
        for ours, theirs in zip(layer.core.parameters(), reference.parameters(), strict=True):
            near(ours.grad, theirs.grad, 1e-10)


def tuple_last(result):
    return result[0][-1], result[1]


@pytest.mark.parametrize("kind", FUSED)
def test_fused_equals_plain_in_single_precision(kind) -> None:
    layer = make(kind, 32, 32).float()
    x = torch.randn(4, 20, 32)
    near(layer(x)[0], layer.all_layers(x)[0][-1], 1e-5)


R8_W = [[0.5], [-0.5], [0.1], [0.2], [1.0], [-1.0]]  # r, z, n of the lecture
R8_U = [[0, 0.4], [0.4, 0], [0.3, 0], [0, 0.3], [0, 1.0], [1.0, 0]]
R8_H = [[0.5, -0.5]]


def gru_step(W, U, reset):
    W, U, h = (torch.tensor(m, dtype=torch.float64) for m in (W, U, R8_H))
    (h,), gates = gru_cell(W.T, h, U, torch.zeros(6, dtype=torch.float64), reset)
    return h[0], gates


def negated(rows):
    """The update's rows with the sign changed: the lecture's z weighs the candidate, torch's the old state."""
    return [[-w for w in row] if i in (2, 3) else row for i, row in enumerate(rows)]


def test_r8_gru_of_the_lecture() -> None:
    h, gates = gru_step(negated(R8_W), negated(R8_U), "before")
    near(gates["update"][0], [0.562177, 0.512497])
    near(gates["reset"][0], [0.574443, 0.425557])
    near(gates["candidate"][0], [0.656832, -0.612416])
    near(h, [0.588167, -0.557613])


def test_r9_gru_with_torchs_conventions_differs() -> None:
    h, gates = gru_step(R8_W, R8_U, "after")
    near(gates["candidate"][0], [0.612416, -0.656832])
    near(h, [0.549219, -0.576456])


def lecture_gru_after(x, h, core) -> Tensor:
    """The lecture's equations with the reset after U_n, z's weights negated out of torch's."""
    W, U, b, d = core.weight_ih_l0, core.weight_hh_l0, core.bias_ih_l0, core.bias_hh_l0
    (Wr, Wz, Wn), (Ur, Uz, Un), (br, bz, bn), (dr, dz, dn) = (m.chunk(3) for m in (W, U, b, d))
    r = torch.sigmoid(Wr @ x + Ur @ h + br + dr)
    z = torch.sigmoid(-(Wz @ x) - Uz @ h - bz - dz)
    n = torch.tanh(Wn @ x + bn + r * (Un @ h + dn))
    return (1 - z) * h + z * n


def test_r10_gru_after_equals_torch_and_before_does_not() -> None:
    after, before = make(("gru", "tanh", "after"), layers=1), make(("gru", "tanh", "before"), layers=1)
    before.load_state_dict(after.state_dict())
    reference = nn.GRU(3, 5, batch_first=True).double()
    reference.load_state_dict(after.core.state_dict())
    x, h = torch.randn(1, 1, 3, dtype=torch.float64), torch.randn(1, 1, 5, dtype=torch.float64)
    expected = reference(x, h)[0]
    near(after.all_layers(x, None, RecurrentState(h))[0][0], expected, 1e-12)
    near(lecture_gru_after(x[0, 0], h[0, 0], after.core), expected[0, 0], 1e-12)
    assert (before(x, None, RecurrentState(h))[0] - expected).abs().max() > 1e-3
    with torch.no_grad():  # U_n diagonal and b_hn = 0: only then is before the same as after
        for core in (before.core, reference):
            core.weight_hh_l0[10:].copy_(torch.diag(torch.arange(1.0, 6)))
            core.bias_hh_l0[10:].zero_()
    near(before(x, None, RecurrentState(h))[0], reference(x, h)[0], 1e-12)


def test_r11_forget_gate_one_keeps_the_cell() -> None:
    """c_T - c_0 is the sum of i * g, and along the cell the derivative is 1 at every step."""
    layer = make(("lstm", "tanh", "after"), 2, 3, 1)
    with torch.no_grad():
        layer.core.weight_hh_l0.zero_()  # the way through h is closed: only the cell is left
        layer.core.weight_ih_l0[3:6].zero_()
        layer.core.bias_ih_l0[3:6].fill_(1e4)  # the forget gate is exactly 1
    c = torch.randn(1, 1, 3, dtype=torch.float64, requires_grad=True)
    with record() as seen:
        _, state = layer(torch.randn(1, 9, 2, dtype=torch.float64), None, RecurrentState(torch.zeros_like(c), c))
    gates = seen["gates"][0]
    near((state.c_LBD - c)[0], (gates["input"] * gates["candidate"]).sum(1), 1e-12)
    (slope,) = torch.autograd.grad(state.c_LBD.sum(), c)
    assert torch.equal(slope, torch.ones_like(slope))


def test_r12_a_constant_forget_gate_decays() -> None:
    for bias, expected in ((0.0, 8.9e-16), (1.0, 1.576e-7), (2.0, 1.753e-3)):
        layer = make(("lstm", "tanh", "after"), 1, 1, 1)
        weights(layer, [[0.0]] * 4, [[0.0]] * 4, [0.0, bias, 0, 0])
        begin = RecurrentState(torch.zeros(1, 1, 1).double(), torch.ones(1, 1, 1).double())
        _, state = layer(torch.zeros(1, 50, 1).double(), None, begin)
        assert math.isclose(state.c_LBD.item(), expected, rel_tol=5e-3)


def slope(layer: Recurrent, x: Tensor) -> Tensor:
    x.requires_grad_()
    return torch.autograd.grad(layer(x)[0][:, -1].sum(), x)[0]


def test_r13_slopes_of_the_activations() -> None:
    tanh, logistic = make(("elman", "tanh", "after"), 1, 1, 1), make(("elman", "logistic", "after"), 1, 1, 1)
    for layer in (tanh, logistic):
        weights(layer, [[1.0]], [[0.0]])
    for x, expected in ((0.0, 1.0), (2.0, 0.070651), (3.0, 0.009866)):
        near(slope(tanh, torch.full((1, 1, 1), x).double()), [[[expected]]])
    grid = slope(logistic, torch.arange(-60, 61).double().view(-1, 1, 1) / 10)
    assert grid.max() == 0.25 and grid.argmax() == 60
    # Ten steps at 0, where the logistic slope is greatest: weight 1, and a bias that holds the state's sum at 0.
    weights(logistic, [[1.0]], [[1.0]], [-0.5])
    first = torch.cat([torch.full((1, 1, 1), 0.5), torch.zeros(1, 9, 1)], 1).double()
    near(slope(logistic, first)[0, 0] * 1e7, [9.5367], 1e-3)  # .25^10 = 9.54e-7


@pytest.mark.parametrize("kind", KINDS)
def test_r14_causality_is_exact(kind) -> None:
    layer = make(kind)
    x = torch.randn(2, 8, 3, dtype=torch.float64)
    changed = x.clone()
    changed[:, 5] += 1
    before, after = layer(x)[0], layer(changed)[0]
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("kind", KINDS)
def test_r15_gradient_is_the_sum_over_unshared_copies(kind) -> None:
    """Unrolled with a copy of the layer for each time: the copies' gradients add up to the shared one's."""
    layer = make(kind, layers=1)
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    layer(x)[0].square().sum().backward()
    copies = [make(kind, layers=1) for _ in range(4)]
    state, total = None, 0
    for t, copy in enumerate(copies):
        copy.load_state_dict(layer.state_dict())
        out, state = copy(x[:, t : t + 1], None, state)
        total = total + out.square().sum()
    total.backward()
    for shared, *apart in zip(layer.parameters(), *(copy.parameters() for copy in copies), strict=True):
        near(shared.grad, sum(p.grad if p.grad is not None else torch.zeros_like(p) for p in apart), 1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing(kind, bidirectional) -> None:
    """Left, right, in the midst, and a row of nothing but padding; plain and fused."""
    layer = make(kind, bidirectional=bidirectional)
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 1, 1], [0] * 7]).bool()
    begin = layer(torch.randn(4, 2, 3, dtype=torch.float64))[1]
    for run in (layer, lambda *args: tuple_last(layer.all_layers(*args))):
        out, end = run(x, mask, begin)
        for row in range(3):
            alone = RecurrentState(*(part[:, row : row + 1] for part in begin.parts()))
            expected, state = layer(x[row : row + 1, mask[row]], None, alone)
            near(out[row, mask[row]], expected[0], 1e-12)
            for ours, theirs in zip(end.parts(), state.parts(), strict=True):
                near(ours[:, row], theirs[:, 0], 1e-12)
        assert all(torch.equal(a[:, 3], b[:, 3]) for a, b in zip(end.parts(), begin.parts(), strict=True))
        assert not out[~mask].any()


def test_forget_gate_begins_at_one_bias() -> None:
    """Trap 7: the 1 stands in one of torch's two biases, so the gate is s(1) = .731 and not s(2) = .881."""
    layer = Recurrent("lstm", 3, 5, 2, 0.0)
    for depth in (0, 1):
        total = getattr(layer.core, f"bias_ih_l{depth}") + getattr(layer.core, f"bias_hh_l{depth}")
        assert torch.equal(total, torch.tensor([0.0] * 5 + [1.0] * 5 + [0.0] * 10))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_only_between_layers_and_only_in_training(kind) -> None:
    cell, activation, reset = kind
    x = torch.randn(2, 6, 3)
    shallow = Recurrent(cell, 3, 8, 1, 0.5, activation=activation, reset=reset)
    assert torch.equal(shallow(x)[0], shallow(x)[0])
    deep = Recurrent(cell, 3, 8, 2, 0.5, activation=activation, reset=reset)
    assert not torch.equal(deep(x)[0], deep(x)[0])
    deep.eval()
    assert torch.equal(deep(x)[0], deep(x)[0])


def test_state_selects_forgets_and_goes_through_a_checkpoint() -> None:
    for cell, names in (("lstm", {"h", "c"}), ("gru", {"h"})):
        state = make((cell, "tanh", "after"))(torch.randn(3, 4, 3, dtype=torch.float64))[1]
        chosen = state.select(torch.tensor([2, 0, 0, 1]))
        forgotten = state.forget(torch.tensor([False, True, False]))
        again = RecurrentState.from_tensors(state.tensors())
        assert set(state.tensors()) == names
        assert all(part.requires_grad for part in state.parts())
        assert not any(part.requires_grad for part in state.detach().parts())
        for part, picked, cut, same in zip(
            state.parts(), chosen.parts(), forgotten.parts(), again.parts(), strict=True
        ):
            assert torch.equal(picked, part[:, [2, 0, 0, 1]])
            assert not cut[:, 1].any() and torch.equal(cut[:, [0, 2]], part[:, [0, 2]])
            assert torch.equal(same, part)


@pytest.mark.parametrize("kind", KINDS)
def test_probe_shows_gates_of_every_layer_and_changes_nothing(kind) -> None:
    layer = make(kind)
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    quiet = layer(x)[0]
    with record() as seen:
        loud = layer(x)[0]
    near(loud, quiet, 1e-12)
    assert len(seen["gates"]) == 2
    assert all(gate.shape == (2, 4, 5) for gates in seen["gates"] for gate in gates.values())
    near(seen["gates"][-1]["hidden"], loud, 1e-12)


def test_probe_records_only_inside_its_block() -> None:
    probe("x", 1)
    with record() as outer:
        probe("x", 2)
        with record() as inner:
            probe("x", 3)
        probe("x", 4)
    probe("x", 5)
    assert (outer, inner) == ({"x": [2, 4]}, {"x": [3]})
    assert not recording()


def test_every_choice_is_built() -> None:
    for (cell, activation, reset), layers in itertools.product(KINDS, (1, 3)):
        out, state = Recurrent(cell, 4, 6, layers, 0.1, activation=activation, reset=reset)(torch.randn(2, 5, 4))
        assert out.shape == (2, 5, 6) and state.h_LBD.shape == (layers, 2, 6)

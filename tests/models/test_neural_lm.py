"""The window model: the lectures' parameter counts, its equation by hand, and the two forms of the first matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.batch import IGNORE, Batch
from segue.models.base import Sizes
from segue.models.neural_lm import NeuralLm, WindowState

V, K = 11, 3
CONFIGS = [
    NeuralLm.Config(words=K, embedding=4, width=6),
    NeuralLm.Config(words=K, embedding=4, width=6, direct=True),
    NeuralLm.Config(words=K, width=6, form="onehot"),
]


@pytest.fixture(params=CONFIGS, ids=["shared", "direct", "onehot"])
def model(request) -> NeuralLm:
    return made(request.param)


def made(config: NeuralLm.Config) -> NeuralLm:
    """In double, every weight random: zeros would hide mistakes."""
    torch.manual_seed(1)
    model = NeuralLm(config, Sizes(V)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def stream(tokens_BT: Tensor, fresh=False) -> Batch:
    targets = torch.cat([tokens_BT[:, 1:], torch.full((len(tokens_BT), 1), IGNORE)], 1)
    return Batch(tokens_BT, targets, torch.ones_like(tokens_BT, dtype=torch.bool), torch.full((len(tokens_BT),), fresh))


def tokens(rows=3, length=9) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(0))


def near(a, b) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-10, rtol=0)


def count(model: NeuralLm) -> int:
    return sum(p.numel() for p in model.parameters())


def by_hand(model: NeuralLm, window: list[int]) -> np.ndarray:
    """Probabilities of what follows these k tokens, from the equation and one-hot vectors."""
    w = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    one_hot = np.eye(V)[window]  # (k, V)
    if model.config.form == "onehot":
        a = one_hot.reshape(-1) @ w["first.weight"] + w["bias"]  # 1 × kV times kV × H
        x = None
    else:
        x = (one_hot @ w["vectors.weight"]).reshape(-1)
        a = w["hidden.weight"] @ x + w["hidden.bias"]
    y = w["head.weight"] @ np.tanh(a) + w["head.bias"]
    if model.config.direct:
        y = y + w["direct.weight"] @ x
    return np.exp(y) / np.exp(y).sum()


def test_r17_parameter_counts() -> None:
    """k = 4, V = 10,000, H = 100: the lecture's one-hot form, Bengio's with vectors of 60, and direct connections."""
    sizes = Sizes(10_000)
    shared = count(NeuralLm(NeuralLm.Config(words=4, embedding=60, width=100), sizes))
    assert count(NeuralLm(NeuralLm.Config(words=4, width=100, form="onehot"), sizes)) == 5_010_100
    assert shared == 1_634_100
    direct = NeuralLm.Config(words=4, embedding=60, width=100, direct=True)
    assert count(NeuralLm(direct, sizes)) - shared == 2_400_000


def test_the_equation_by_hand(model) -> None:
    ids = tokens(2, 7)
    found = model(stream(ids))[0].softmax(-1).detach()
    for row in range(2):
        padded = [0] * (K - 1) + ids[row].tolist()  # STOP before the first token of all
        for t in range(7):
            near(found[row, t], by_hand(model, padded[t : t + K]))


def test_trap_10_sharing_is_the_one_hot_form_with_blocks_that_are_products() -> None:
    """W_1's block j = C A_j: with these blocks the lecture's kV x H matrix gives the same network; others do not."""
    shared, onehot = made(CONFIGS[0]), made(CONFIGS[2])
    C_VM, A_HKM = shared.vectors.weight, shared.hidden.weight.unflatten(1, (K, -1))
    with torch.no_grad():
        onehot.first.weight.copy_(torch.cat([C_VM @ A_HKM[:, j].T for j in range(K)]))
        onehot.bias.copy_(shared.hidden.bias)
    onehot.head.load_state_dict(shared.head.state_dict())
    batch = stream(tokens())
    near(onehot(batch)[0], shared(batch)[0])
    # Sharing is a restriction: the blocks have no more rank than a vector has numbers.
    assert torch.linalg.matrix_rank(onehot.first.weight[:V]) == 4
    # In the one-hot form, what is learnt of a word at one place is learnt for that place alone.
    for model in (onehot, shared):
        model(stream(torch.tensor([[5, 6, 7]])))[0][0, 2].square().sum().backward()
    assert onehot.first.weight.grad.unflatten(0, (K, V))[:, 5].any(-1).tolist() == [True, False, False]
    assert shared.vectors.weight.grad.any(-1).nonzero().flatten().tolist() == [5, 6, 7]


def test_only_the_window_is_seen(model) -> None:
    ids = tokens(1, 9)
    before = model(stream(ids))[0]
    for place in range(9):
        other = ids.clone()
        other[0, place] = (ids[0, place] + 1) % V
        differ = (model(stream(other))[0] != before).any(-1)[0]
        assert differ.tolist() == [place <= t < place + K for t in range(9)]


def test_order_within_the_window_counts(model) -> None:
    a, b = (model(stream(torch.tensor([ids])))[0][0, -1] for ids in ([2, 3, 4], [3, 2, 4]))
    assert not torch.allclose(a, b)


@pytest.mark.parametrize("cuts", [[1] * 9, [9], [2, 3, 4], [1, 8]])
def test_step_and_carried_state_equal_forward(model, cuts) -> None:
    ids = tokens()
    expected, end = model(stream(ids))
    stepped, carried, at = model.start(3, 100), None, 0
    for length in cuts:
        part = ids[:, at : at + length]
        logits, stepped = model.step(part, torch.ones_like(part, dtype=torch.bool), stepped)
        forward, carried = model(stream(part), carried)
        near(forward, expected[:, at : at + length])
        at += length
        near(logits, expected[:, at - 1])
        assert torch.equal(stepped.tokens_BK, carried.tokens_BK)
    assert torch.equal(end.tokens_BK, ids[:, -K:]) and torch.equal(carried.tokens_BK, end.tokens_BK)


def test_rows_at_rest_and_padding_anywhere(model) -> None:
    """Real tokens may stand anywhere in the row; a row without one keeps its window."""
    ids = tokens(3, 6)
    mask = torch.tensor([[1, 0, 1, 1, 0, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
    _, begin = model(stream(tokens(3, 4)))
    logits, end = model.step(ids, mask, begin)
    forward, after = model(Batch(ids, ids, mask), begin)
    assert torch.equal(end.tokens_BK, after.tokens_BK)
    for row in range(2):
        real = ids[row][mask[row]][None]
        alone, state = model(stream(real), begin.select(torch.tensor([row])))
        near(forward[row][mask[row]], alone[0])
        near(logits[row], alone[0, -1])
        assert torch.equal(end.tokens_BK[row], state.tokens_BK[0])
    assert torch.equal(end.tokens_BK[2], begin.tokens_BK[2])
    near(logits[2], model(stream(tokens(3, 4)))[0][2, -1])


def test_a_fresh_row_begins_with_stop(model) -> None:
    ids = tokens()
    _, state = model(stream(ids))
    batch = stream(ids)
    batch.fresh_B[1] = True
    mixed, anew, on = model(batch, state)[0], model(stream(ids))[0], model(stream(ids), state)[0]
    near(mixed[1], anew[1])
    near(mixed[[0, 2]], on[[0, 2]])
    assert not torch.allclose(anew[0, : K - 1], on[0, : K - 1])
    near(anew[:, K - 1 :], on[:, K - 1 :])


def test_state_goes_through_a_checkpoint(model) -> None:
    _, state = model(stream(tokens()))
    again = WindowState.from_tensors(state.detach().tensors())
    assert torch.equal(model(stream(tokens()), again)[0], model(stream(tokens()), state)[0])


def test_direct_connections_begin_at_nothing() -> None:
    torch.manual_seed(0)
    model = NeuralLm(CONFIGS[1], Sizes(V))
    batch = stream(tokens())
    assert not model.direct.weight.any()
    model.loss(batch).terms[0].total.backward()
    assert model.direct.weight.grad.any()


def test_first_guesses_are_near_chance() -> None:
    for config in CONFIGS:
        torch.manual_seed(0)
        model = NeuralLm(config, Sizes(V))
        batch = stream(tokens(20, 30))
        assert abs(model.loss(batch).terms[0].total.item() / batch.count - math.log(V)) < 0.35


def test_dropout_is_off_when_evaluating() -> None:
    model = NeuralLm(NeuralLm.Config(K, dropout=0.5), Sizes(V))
    batch = stream(tokens())
    assert not torch.equal(model(batch)[0], model(batch)[0])
    model.eval()
    assert torch.equal(model(batch)[0], model(batch)[0])


def test_half_precision_is_close_and_learns(model) -> None:
    model.float()
    batch = stream(tokens())
    expected = model.loss(batch).terms[0].total
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(batch)
    assert loss.terms[0].total.dtype == torch.float32
    assert loss.terms[0].total.item() == pytest.approx(expected.item(), rel=0.02)
    loss.terms[0].total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("wrong", [{"words": 0}, {"width": 0}, {"embedding": 0}, {"dropout": 1.0}])
def test_impossible_configs_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NeuralLm.Config(**wrong)


def test_direct_needs_vectors() -> None:
    with pytest.raises(ValueError, match="direct"):
        NeuralLm.Config(direct=True, form="onehot")

"""The recurrent language model: what it carries, what it may see, and that stepping is the same as reading."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from segue.batches.batch import IGNORE, Batch
from segue.layers.losses import target_logprobs
from segue.models.base import Sizes
from segue.models.rnn_lm import RnnLm

V = 11
CONFIGS = [
    RnnLm.Config(width=8, embedding=6, layers=2),
    RnnLm.Config(width=8, embedding=0, tied=True),
    RnnLm.Config(cell="gru", width=8, embedding=0, layers=2),
    RnnLm.Config(cell="gru", reset="before", width=8),
    RnnLm.Config(cell="elman", width=8, layers=2),
    RnnLm.Config(cell="elman", activation="logistic", width=8),
]


@pytest.fixture(params=CONFIGS, ids=lambda c: f"{c.cell}-{c.layers}{c.activation}-{c.reset}")
def model(request) -> RnnLm:
    torch.manual_seed(1)
    return RnnLm(request.param, Sizes(V)).double()


def stream(tokens_BT: Tensor, fresh=False) -> Batch:
    """STOP w1 … predicts w1 …; nothing is predicted at the end."""
    targets = torch.cat([tokens_BT[:, 1:], torch.full((len(tokens_BT), 1), IGNORE)], 1)
    return Batch(tokens_BT, targets, torch.ones_like(tokens_BT, dtype=torch.bool), torch.full((len(tokens_BT),), fresh))


def tokens(rows=3, length=9) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(0))


def near(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def test_step_equals_forward_token_by_token_and_in_chunks(model) -> None:
    ids = tokens()
    expected, end = model(stream(ids))
    for cuts in ([1] * 9, [9], [2, 3, 4]):
        state, at = model.start(3, 100), 0
        for length in cuts:
            part = ids[:, at : at + length]
            logits, state = model.step(part, torch.ones_like(part, dtype=torch.bool), state)
            at += length
            near(logits, expected[:, at - 1])
        near(state.h_LBD, end.h_LBD)


def test_step_with_padding_and_rows_at_rest(model) -> None:
    """Prompts of different lengths in one step; a row without a real token keeps its state."""
    ids, lengths = tokens(), [9, 4, 0]
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    begin = model.step(tokens(3, 2), torch.ones(3, 2, dtype=torch.bool), model.start(3, 100))[1]
    logits, state = model.step(ids * mask, mask, begin)
    for row, length in enumerate(lengths[:2]):
        alone = begin.select(torch.tensor([row]))
        expected, end = model.step(ids[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool), alone)
        near(logits[row], expected[0])
        near(state.h_LBD[:, row], end.h_LBD[:, 0])
    assert torch.equal(state.h_LBD[:, 2], begin.h_LBD[:, 2])


def test_select_reorders_rows(model) -> None:
    ids, rows = tokens(), torch.tensor([2, 0, 2, 1])
    real = torch.ones(3, 1, dtype=torch.bool)
    _, state = model.step(ids, torch.ones_like(ids, dtype=torch.bool), model.start(3, 100))
    expected, _ = model.step(ids[:, :1], real, state)
    logits, _ = model.step(ids[rows, :1], real[[0] * 4], state.select(rows))
    near(logits, expected[rows])


def test_carried_state_equals_one_long_batch(model) -> None:
    ids = tokens(3, 12)
    whole, end = model(stream(ids))
    first, state = model(stream(ids[:, :5], fresh=True))
    second, state = model(stream(ids[:, 5:]), state.detach())
    near(torch.cat([first, second], 1), whole)
    near(state.h_LBD, end.h_LBD)


def test_fresh_rows_begin_anew_and_others_go_on(model) -> None:
    ids = tokens()
    _, state = model(stream(ids))
    batch = stream(ids)
    batch.fresh_B[1] = True
    mixed, anew, on = model(batch, state)[0], model(stream(ids))[0], model(stream(ids), state)[0]
    near(mixed[1], anew[1])
    near(mixed[[0, 2]], on[[0, 2]])
    assert not torch.allclose(anew[0], on[0])


def test_gradient_stops_where_the_state_is_detached(model) -> None:
    """Truncated backpropagation: through an attached state a gradient flows back, through a detached one none does."""
    seen = model.vectors.weight
    _, state = model(stream(torch.full((1, 3), 2)))
    for carried, flows in ((state, True), (state.detach(), False)):
        model.zero_grad()
        model.head.weight.requires_grad_(False)  # a tied head would give row 2 a gradient of its own
        model(stream(torch.full((1, 3), 3)), carried)[0][..., 3].sum().backward(retain_graph=True)
        if model.config.tied:
            assert (seen.grad is None) and not seen.requires_grad
        else:
            assert bool(seen.grad[2].any()) is flows


def test_padding_changes_no_real_output(model) -> None:
    ids = tokens()
    mask = torch.arange(9) < torch.tensor([9, 5, 2])[:, None]
    batch = stream(ids * mask)
    padded = Batch(batch.tokens_BT, batch.targets, mask, batch.fresh_B)
    near(model(padded)[0][mask], model(stream(ids))[0][mask])


def test_r14_a_later_token_never_changes_an_earlier_logit(model) -> None:
    ids = tokens()
    changed = ids.clone()
    changed[:, 6] = (ids[:, 6] + 1) % V
    before, after = model(stream(ids))[0], model(stream(changed))[0]
    assert torch.equal(before[:, :6], after[:, :6]) and not torch.equal(before[:, 6:], after[:, 6:])


def test_r16_loss_is_the_sum_of_minus_log_p(model) -> None:
    batch = stream(tokens())
    loss = model.loss(batch)
    (term,) = loss.terms
    y_star = torch.nn.functional.one_hot(batch.targets[:, :-1], V)
    by_hand = -(y_star * model(batch)[0][:, :-1].softmax(-1).log()).sum()
    assert math.isclose(term.total.item(), by_hand.item(), rel_tol=1e-5)
    assert term.count == batch.count == 3 * 8 and model.counts(batch) == {term.name: 24}
    assert math.isclose(-model.logprobs(batch)[0].sum().item(), term.total.item(), rel_tol=1e-5)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    assert math.isclose(model.loss(batch).terms[0].total.item(), 24 * math.log(V), rel_tol=1e-6)


def test_every_parameter_gets_a_gradient(model) -> None:
    model.loss(stream(tokens(8, 20))).terms[0].total.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_encode_gives_every_layer(model) -> None:
    batch = stream(tokens())
    hidden_LBTD = model.encode(batch)
    assert hidden_LBTD.shape == (model.config.layers, 3, 9, 8)
    near(model.head(hidden_LBTD[-1]), model(batch)[0])


def test_state_goes_through_a_checkpoint(model) -> None:
    _, state = model(stream(tokens()))
    again = type(model.start(1, 1)).from_tensors(state.tensors())
    assert torch.equal(model(stream(tokens()), again)[0], model(stream(tokens()), state)[0])


def test_overfits_one_batch() -> None:
    """Which tests that the model can remember: the same tokens are followed by different ones."""
    torch.manual_seed(0)
    model = RnnLm(RnnLm.Config(width=32), Sizes(V))
    batch = stream(tokens(4, 12))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        (model.loss(batch).terms[0].total / batch.count).backward()
        optimiser.step()
    logp = target_logprobs(model(batch)[0], batch.targets)
    first = target_logprobs(model(batch)[0][:, :1], batch.targets[:, :1])
    assert logp.sum() - first.sum() > -0.01 * batch.count - 12


def test_dropout_is_off_when_evaluating() -> None:
    model = RnnLm(RnnLm.Config(width=16, layers=2, dropout=0.5), Sizes(V))
    batch = stream(tokens())
    assert not torch.equal(model(batch)[0], model(batch)[0])
    model.eval()
    assert torch.equal(model(batch)[0], model(batch)[0])


def test_tied_weights_are_one_table() -> None:
    model = RnnLm(RnnLm.Config(width=8, embedding=0, tied=True), Sizes(V))
    assert model.head.weight is model.vectors.weight


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"layers": 0},
        {"embedding": -1},
        {"dropout": 1.0},
        {"tied": True, "embedding": 64, "width": 128},
        {"activation": "relu"},
        {"reset": "before"},
    ],
)
def test_impossible_configs_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RnnLm.Config(**wrong)

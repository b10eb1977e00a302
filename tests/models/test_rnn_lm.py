"""The recurrent language model: what it carries, what it may see, and that stepping is the same as reading."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from segue.batches.batch import IGNORE, Batch
from segue.errors import InputError
from segue.layers.losses import target_logprobs
from segue.models.base import Sizes
from segue.models.names import recipe_names
from segue.models.rnn_lm import Drop, LayerByLayer, Penalty, RnnLm
from segue.recipe import load_recipe

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
    """The tokens' vectors, filled up with zeros, then every layer; 0 at padding."""
    batch = ragged()
    hidden_LBTD = model.encode(batch)
    assert hidden_LBTD.shape == (model.depth, *batch.tokens_BT.shape, model.width)
    assert not hidden_LBTD[:, ~batch.mask_BT].any()
    near(model.unembed(hidden_LBTD[-1])[batch.mask_BT], model(batch)[0][batch.mask_BT])
    vectors = model.vectors(batch.tokens_BT)
    near(hidden_LBTD[0, ..., : vectors.shape[-1]][batch.mask_BT], vectors[batch.mask_BT])
    assert not hidden_LBTD[0, ..., vectors.shape[-1] :].any()
    whole = stream(tokens())
    _, state = model(whole)
    near(model.encode(whole)[1:, :, -1, : model.config.width], state.h_LBD)


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


@pytest.mark.parametrize("wrong", [{"ar": -1.0}, {"tar": math.inf}])
def test_impossible_weights_in_the_loss_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Penalty(**wrong)


# AWD-LSTM

ALL = {"drop": Drop(0.1, 0.4, 0.25, 0.4, 0.5), "penalty": Penalty(2.0, 1.0)}
AWD = [
    RnnLm.Config(width=8, embedding=5, layers=3, tied=True, **ALL),
    RnnLm.Config(width=5, embedding=8, layers=2, tied=True, dropout=0.1, **ALL),
    RnnLm.Config(cell="gru", width=8, embedding=5, layers=2, **ALL),
    RnnLm.Config(cell="gru", reset="before", width=8, layers=2, **ALL),
    RnnLm.Config(cell="elman", activation="logistic", width=8, embedding=0, layers=2, tied=True, **ALL),
]


@pytest.fixture(params=AWD, ids=lambda c: f"{c.cell}-{c.width}-{c.embedding}-{c.reset}")
def awd(request) -> RnnLm:
    torch.manual_seed(1)
    model = RnnLm(request.param, Sizes(V)).double()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return model


def ragged() -> Batch:
    ids = tokens()
    mask = torch.arange(9) < torch.tensor([9, 5, 2])[:, None]
    batch = stream(ids * mask)
    return Batch(batch.tokens_BT, torch.where(mask, batch.targets, IGNORE), mask, batch.fresh_B)


def test_layers_one_by_one_are_the_fused_ones() -> None:
    """The same weights in both bodies: outputs, every layer's outputs, states, and steps."""
    for cell in ("elman", "lstm", "gru"):
        torch.manual_seed(0)
        plain = RnnLm(RnnLm.Config(cell=cell, width=8, embedding=5, layers=3), Sizes(V)).double().eval()
        config = RnnLm.Config(cell=cell, width=8, embedding=5, layers=3, drop=Drop(between=0.5, weights=0.5))
        stacked = RnnLm(config, Sizes(V)).double().eval()
        assert isinstance(stacked.body, LayerByLayer)
        names = {name: weight for name, weight in plain.state_dict().items() if not name.startswith("body")}
        for number in range(3):
            for name, weight in plain.body.core.named_parameters():
                if name.endswith(f"_l{number}"):
                    names[f"body.layers.{number}.core.{name[:-1]}0"] = weight
        stacked.load_state_dict(names)
        batch = ragged()
        for state in (None, plain(batch)[1]):
            (a, left), (b, right) = plain(batch, state), stacked(batch, state)
            near(a[batch.mask_BT], b[batch.mask_BT])
            for one, other in zip(left.parts(), right.parts(), strict=True):
                near(one, other)
            near(plain.encode(batch, state), stacked.encode(batch, state))
            begin = state or plain.start(3, 9)
            near(*(m.step(batch.tokens_BT, batch.mask_BT, begin)[0] for m in (plain, stacked)))


def test_a_narrower_last_layer_steps_carries_and_comes_back(awd) -> None:
    awd.eval()
    ids = tokens()
    whole, end = awd(stream(ids))
    _, state = awd(stream(ids[:, :4]))
    near(awd(stream(ids[:, 4:]), state)[0], whole[:, 4:])
    stepped = awd.start(3, 9)
    for t in range(9):
        logits, stepped = awd.step(ids[:, t : t + 1], torch.ones(3, 1, dtype=torch.bool), stepped)
        near(logits, whole[:, t])
    for a, b in zip(stepped.parts(), end.parts(), strict=True):
        near(a, b)
    again = type(end).from_tensors(end.tensors())
    assert torch.equal(awd(stream(ids), again)[0], awd(stream(ids), end)[0])
    last = awd.config.widths[-1]
    hidden_LBTD = awd.encode(stream(ids))
    near(awd.head(hidden_LBTD[-1, ..., :last]), whole)
    assert not hidden_LBTD[-1, ..., last:].any()


def test_every_parameter_gets_a_gradient_through_all_the_dropouts(awd) -> None:
    for _ in range(4):
        sum(term.total for term in awd.loss(stream(tokens(8, 20))).terms).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in awd.parameters())


def test_evaluating_drops_nothing_and_draws_nothing(awd) -> None:
    batch = ragged()
    assert not torch.equal(awd(batch)[0], awd(batch)[0])
    awd.eval()
    before = torch.get_rng_state()
    assert torch.equal(awd(batch)[0], awd(batch)[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_ar_and_tar_by_hand() -> None:
    """Over the real tokens, and pairs of neighbours, of each row; h after and before its dropout."""
    config = RnnLm.Config(width=4, embedding=3, penalty=Penalty(2.0, 1.0), drop=Drop(output=0.5))
    model = RnnLm(config, Sizes(V)).double()
    batch = ragged()
    torch.manual_seed(0)
    terms = {term.name: term for term in model.loss(batch).terms}
    torch.manual_seed(0)
    mask_B1D = torch.nn.functional.dropout(torch.ones(3, 1, 4, dtype=torch.float64), 0.5)
    h_BTD = model.encode(batch)[-1]
    squares, changes = [], []
    for row, length in enumerate((9, 5, 2)):
        for t in range(length):
            squares.append((h_BTD[row, t] * mask_B1D[row, 0]).square().mean().item())
            if t:
                changes.append((h_BTD[row, t] - h_BTD[row, t - 1]).square().mean().item())
    assert terms["ar"].total.item() == pytest.approx(sum(squares)) and terms["ar"].weight == 2.0
    assert terms["tar"].total.item() == pytest.approx(sum(changes)) and terms["tar"].weight == 1.0
    assert (terms["ar"].count, terms["tar"].count) == (len(squares), len(changes)) == (16, 13)
    assert model.counts(batch) == {"cross_entropy": batch.count, "ar": 16, "tar": 13}


@pytest.mark.parametrize("part", ["ar", "tar"])
def test_each_term_comes_alone(part) -> None:
    model = RnnLm(RnnLm.Config(width=4, embedding=3, penalty=Penalty(**{part: 0.5})), Sizes(V))
    assert [term.name for term in model.loss(ragged()).terms] == ["cross_entropy", part]
    assert list(model.counts(ragged())) == ["cross_entropy", part]


def test_parts_of_a_batch_add_up(awd) -> None:
    awd.eval()
    batch = ragged()
    whole = {term.name: term for term in awd.loss(batch).terms}
    arrays = ("tokens_BT", "targets", "mask_BT", "fresh_B")
    parts = [Batch(*(getattr(batch, name)[rows] for name in arrays)) for rows in ([0], [1, 2])]
    for name, term in whole.items():
        split = [t for part in parts for t in awd.loss(part).terms if t.name == name]
        assert sum(t.total.item() for t in split) == pytest.approx(term.total.item())
        assert sum(int(t.count) for t in split) == int(term.count)


def test_each_dropout_is_where_it_should_be() -> None:
    """One at a time: what it makes differ, between two rows of the same text and between two times."""
    ids = torch.full((2, 6), 3)
    for name in ("words", "input", "between", "output", "weights"):
        torch.manual_seed(0)
        config = RnnLm.Config(cell="elman", width=40, embedding=40, layers=2, drop=Drop(**{name: 0.5}))
        model = RnnLm(config, Sizes(V)).double()
        logits = [model(stream(ids))[0] for _ in range(8)]
        rows_alike = all(torch.allclose(out[0], out[1]) for out in logits)
        assert rows_alike is (name in ("words", "weights")), name
        assert not all(torch.allclose(out, logits[0]) for out in logits), name
        hidden = [model.encode(stream(ids)) for _ in range(8)]
        first_alike = all(torch.allclose(out[1], hidden[0][1]) for out in hidden)
        assert first_alike is (name in ("between", "output")), name
        last_alike = all(torch.allclose(out[2], hidden[0][2]) for out in hidden)
        assert last_alike is (name == "output"), name


def test_half_precision_is_close_and_learns(awd) -> None:
    awd.float().eval()
    batch = stream(tokens())
    with torch.no_grad():
        expected = awd.loss(batch).terms
    awd.train()
    with torch.autocast("cpu", torch.bfloat16):
        state = awd.loss(batch).state.detach()
        sum(term.total for term in awd.loss(batch, state).terms).backward()
        found = awd.eval().loss(batch).terms
    assert all(p.grad is not None and p.grad.isfinite().all() for p in awd.parameters())
    for one, other in zip(found, expected, strict=True):
        assert one.total.dtype == torch.float32
        assert one.total.item() == pytest.approx(other.total.item(), rel=0.05)


def test_tied_weights_begin_small_and_the_first_guess_is_chance() -> None:
    torch.manual_seed(0)
    model = RnnLm(RnnLm.Config(width=30, embedding=20, layers=2, tied=True), Sizes(V))
    assert model.vectors.weight.abs().max() <= 0.1
    assert not any(weight.any() for name, weight in model.named_parameters() if "bias" in name)
    untied = RnnLm(RnnLm.Config(width=30, embedding=20, layers=2), Sizes(V))
    assert untied.body.core.bias_ih_l0.sum() == 30  # its forget gate begins open
    batch = stream(tokens(8, 20))
    assert model.loss(batch).terms[0].total.item() / batch.count == pytest.approx(math.log(V), abs=0.02)


def test_the_published_model_has_24_million_parameters() -> None:
    """AWD-LSTM on the Penn Treebank's 10,000 words; the equations' one bias is torch's two."""
    recipe = load_recipe("rnn_lm/paper")
    model = RnnLm(recipe.model, Sizes(10_000))
    lstm = sum(4 * o * (i + o + 2) for i, o in ((400, 1150), (1150, 1150), (1150, 400)))
    assert sum(p.numel() for p in model.parameters()) == lstm + 400 * 10_000 + 10_000 == 24_221_600
    assert (recipe.model.layers, recipe.model.width, recipe.model.embedding) == (3, 1150, 400)
    assert recipe.train.optimizer.rate == 30 and recipe.train.optimizer.average == 5


def test_the_published_recipes_validate_once_an_epoch() -> None:
    """Training tokens of the Penn Treebank and of WikiText-2, with the end of each line."""
    for name, tokens_in in {"rnn_lm/paper": 929_589, "rnn_lm/paper-wikitext2": 2_088_628}.items():
        recipe = load_recipe(name)
        columns = tokens_in // recipe.batches.size
        assert recipe.batches.vary and recipe.train.every == math.ceil(columns / (0.975 * recipe.batches.length))
    assert set(recipe_names("rnn_lm")) >= {"rnn_lm/paper", "rnn_lm/paper-wikitext2"}


@pytest.mark.parametrize("name", ["words", "input", "between", "output", "weights"])
def test_impossible_shares_are_refused(name) -> None:
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=name):
            Drop(**{name: share})
    with pytest.raises(InputError, match=rf"model\.drop.*{name} = 1\.5"):
        load_recipe("rnn_lm", [f"model.drop.{name}=1.5"])
    assert getattr(load_recipe("rnn_lm", [f"model.drop.{name}=0.5"]).model.drop, name) == 0.5

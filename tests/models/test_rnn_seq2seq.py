"""The recurrent encoder-decoder: what the decoder sees of the source, its attention against plain loops, padding,
stepping, beams, and a small translation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.batches.store import columns_of
from segue.layers.probe import record
from segue.layers.recurrent import RecurrentState
from segue.models.base import Sizes
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.tasks.seq2seq import TASK

V = 13
ONE_WAY = {"attention": "none", "bidirectional": False}
CONFIGS = [
    RnnSeq2seq.Config(width=8, layers=2, **ONE_WAY, reverse_source=True),
    RnnSeq2seq.Config(width=8, tied="all", **ONE_WAY),
    RnnSeq2seq.Config(width=8, attention="none", tied="sides"),
    RnnSeq2seq.Config(cell="gru", width=8, feeds="every", **ONE_WAY, tied="none"),
    RnnSeq2seq.Config(cell="lstm", width=8, layers=2, feeds="every", attention="none"),
    RnnSeq2seq.Config(cell="elman", width=8, **ONE_WAY, tied="none"),
    RnnSeq2seq.Config(width=8, layers=2),
    RnnSeq2seq.Config(width=8, attention="dot", bidirectional=False, reverse_source=True, tied="sides"),
    RnnSeq2seq.Config(width=8, attention="additive", coverage="score"),
    RnnSeq2seq.Config(cell="gru", width=8, attention="additive", feeds="every", layers=2, tied="sides"),
    RnnSeq2seq.Config(width=8, attention="bilinear", feeds="attentional", coverage="score"),
]


def name_of(config: RnnSeq2seq.Config) -> str:
    ways = "both" if config.bidirectional else "one"
    return f"{config.cell}-{config.layers}-{config.attention}-{config.feeds}-{config.coverage}-{ways}"


def possible(**fixed: Any) -> Iterator[RnnSeq2seq.Config]:
    """Every combination of the choices that makes sense; the refused ones are tested below."""
    choices = {
        "attention": ("none", "fixed", "dot", "bilinear", "additive"),
        "feeds": ("start", "every", "attentional"),
        "coverage": ("none", "score", "loss"),
        "cell": ("elman", "lstm", "gru"),
        "bidirectional": (False, True),
    } | {name: (value,) for name, value in fixed.items()}
    for values in itertools.product(*choices.values()):
        try:
            yield RnnSeq2seq.Config(width=4, **dict(zip(choices, values, strict=True)))
        except ValueError:
            continue


@pytest.fixture(params=CONFIGS, ids=name_of)
def model(request) -> RnnSeq2seq:
    torch.manual_seed(1)
    return RnnSeq2seq(request.param, Sizes(V)).double()


def rows(lengths, seed=0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(2, V, length) for length in lengths]


def batch_of(source, target) -> Batch:
    return TASK.collate(columns_of(source=source, text=target), 9999).to("cpu")


def near(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def test_padding_changes_nothing_on_either_side(model) -> None:
    source, target = rows([6, 2, 4]), rows([3, 7, 1], 1)
    together = model(batch_of(source, target))[0]
    for i, (x, y) in enumerate(zip(source, target, strict=True)):
        alone = model(batch_of([x], [y]))[0]
        near(together[i, : len(y) + 1], alone[0])


def test_step_equals_forward(model) -> None:
    """Token by token and in chunks."""
    batch = batch_of(rows([6, 2, 4]), rows([5, 5, 5], 1))
    expected = model(batch)[0]
    for cuts in ([1] * 6, [6], [2, 1, 3]):
        state, at = model.start(3, 10, batch.source, batch.source_mask), 0
        for length in cuts:
            part = batch.tokens_BT[:, at : at + length]
            logits, state = model.step(part, torch.ones_like(part, dtype=torch.bool), state)
            at += length
            near(logits, expected[:, at - 1])


def test_step_with_padding(model) -> None:
    batch = batch_of(rows([6, 2, 4]), rows([5, 2, 3], 1))
    expected = model(batch)[0]
    logits, _ = model.step(batch.tokens_BT, batch.mask_BT, model.start(3, 10, batch.source, batch.source_mask))
    near(logits, expected[torch.arange(3), batch.mask_BT.sum(1) - 1])


def test_select_reorders_rows(model) -> None:
    batch = batch_of(rows([6, 2, 4]), rows([5, 5, 5], 1))
    real, order = torch.ones(3, 6, dtype=torch.bool), torch.tensor([2, 0, 0])
    _, state = model.step(batch.tokens_BT, real, model.start(3, 10, batch.source, batch.source_mask))
    expected, _ = model.step(batch.tokens_BT, real, state)
    logits, _ = model.step(batch.tokens_BT[order], real, state.select(order))
    near(logits, expected[order])


def test_a_later_target_never_changes_an_earlier_logit_and_every_source_token_does(model) -> None:
    source, target = rows([6]), rows([5], 1)
    before = model(batch_of(source, target))[0]
    later = [target[0].copy()]
    later[0][3] = 2 + (later[0][3] - 1) % (V - 2)
    assert torch.equal(before[:, :4], model(batch_of(source, later))[0][:, :4])
    for s in range(6):
        other = [source[0].copy()]
        other[0][s] = 2 + (other[0][s] - 1) % (V - 2)
        assert not torch.equal(before[:, 0], model(batch_of(other, target))[0][:, 0])


def test_every_parameter_gets_a_gradient(model) -> None:
    batch = batch_of(rows([6, 7, 8, 9]), rows([9, 9, 9, 9], 1))
    loss = model.loss(batch)
    loss.terms[0].total.backward()
    assert loss.state is None and loss.terms[0].count == 40
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_context_start_is_the_encoders_state_in_every_layer() -> None:
    model = RnnSeq2seq(RnnSeq2seq.Config(width=8, layers=2, **ONE_WAY), Sizes(V)).double()
    (source,) = rows([6])
    begin = model.read(torch.tensor(source)[None], None)
    _, end = model.encoder(model.source_vectors(torch.tensor(source)[None]))
    assert begin.source is None and not begin.own
    near(begin.decoder.h_LBD, end.h_LBD)
    near(begin.decoder.c_LBD, end.c_LBD)


def test_trap_30_context_every_reaches_each_update_and_each_output() -> None:
    """The decoder starts at zero, and the last layer's state of the encoder is at both places at every step."""
    config = RnnSeq2seq.Config(width=8, layers=2, feeds="every", reverse_source=True, tied="sides", **ONE_WAY)
    model = RnnSeq2seq(config, Sizes(V)).double()
    batch = batch_of(rows([6]), rows([4], 1))
    begin = model.read(batch.source, batch.source_mask)
    assert not begin.decoder.h_LBD.any()
    _, end = model.encoder(model.source_vectors(batch.source.flip(1)))
    context_BD = begin.own["context"]
    near(context_BD, end.h_LBD[-1])
    state: RecurrentState | None = None
    for t in range(5):
        x = torch.cat([model.vectors(batch.tokens_BT[:, t]), context_BD], -1)
        out, state = model.decoder(x[:, None], None, state)
        near(model.head(torch.cat([out[:, 0], context_BD], -1)), model(batch)[0][:, t])


def test_reversed_source_is_the_source_read_from_its_end() -> None:
    forward = RnnSeq2seq(RnnSeq2seq.Config(width=8, bidirectional=False), Sizes(V)).double()
    backward = RnnSeq2seq(RnnSeq2seq.Config(width=8, bidirectional=False, reverse_source=True), Sizes(V)).double()
    backward.load_state_dict(forward.state_dict())
    source, target = rows([6, 3]), rows([4, 2], 1)
    near(backward(batch_of([x[::-1] for x in source], target))[0], forward(batch_of(source, target))[0])


def test_tables_that_are_tied() -> None:
    def made(**keys: Any) -> RnnSeq2seq:
        return RnnSeq2seq(RnnSeq2seq.Config(width=8, **keys), Sizes(V, source_vocab_size=keys.pop("source", 0)))

    every, sides, none = (made(tied=tied) for tied in ("all", "sides", "none"))
    assert every.source_vectors is every.vectors and every.head.weight is every.vectors.weight
    assert sides.source_vectors is sides.vectors and sides.head.weight.shape == (V, 16)  # it reads [d; c]
    assert none.source_vectors is not none.vectors
    two = RnnSeq2seq(RnnSeq2seq.Config(width=8, tied="all"), Sizes(V, source_vocab_size=7))
    assert two.source_vectors.weight.shape == (7, 8) and two.head.weight is two.vectors.weight


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"width": 7, "bidirectional": True},
        {"layers": 0},
        {"dropout": -0.1},
        {"label_smoothing": 1.0},
        {"reverse_source": True, "bidirectional": True},
        {"feeds": "attentional", "attention": "none"},
        {"coverage": "score", "attention": "fixed"},
        {"coverage": "loss", "attention": "none"},
    ],
    ids=str,
)
def test_impossible_configs_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RnnSeq2seq.Config(**wrong)


def test_a_source_is_needed_to_start() -> None:
    with pytest.raises(ValueError, match="source with 2 rows"):
        RnnSeq2seq(RnnSeq2seq.Config(width=8), Sizes(V)).start(2, 10)


# Attention


def attending(**keys: Any) -> RnnSeq2seq:
    torch.manual_seed(3)
    return RnnSeq2seq(RnnSeq2seq.Config(**{"width": 4} | keys), Sizes(V)).double().eval()


def test_step_equals_forward_for_every_choice() -> None:
    batch = batch_of(rows([4, 2]), rows([3, 3], 1))
    real = torch.ones(2, 1, dtype=torch.bool)
    for config in possible():
        if config.coverage == "loss":  # no other logits than without it
            continue
        model = RnnSeq2seq(config, Sizes(V)).double()
        expected = model(batch)[0]
        state = model.start(2, 4, batch.source, batch.source_mask)
        for t in range(4):
            logits, state = model.step(batch.tokens_BT[:, t : t + 1], real, state)
            torch.testing.assert_close(logits, expected[:, t], atol=1e-10, rtol=0, msg=name_of(config))


@pytest.mark.parametrize("config", list(possible(cell="lstm", bidirectional=True)), ids=name_of)
def test_beams_share_their_source_and_say_what_copies_say(config: RnnSeq2seq.Config) -> None:
    model = RnnSeq2seq(config, Sizes(V)).double()
    batch = batch_of(rows([4, 2]), rows([2, 2], 1))
    state = model.start(2, 4, batch.source, batch.source_mask).covering()
    copies, folded = state.select(torch.tensor([0, 0, 0, 1, 1, 1])), state.spread(3)
    if state.source is not None:
        assert folded.source.h_BSD is state.source.h_BSD and folded.beams == 3
    real = torch.ones(6, 1, dtype=torch.bool)
    moves = [([1, 0, 2, 5, 3, 3], True), ([3, 4, 5], False), ([2, 0], False)]  # within sources, one source, apart
    for tokens, (order, same_text) in zip((2, 5, 7), moves, strict=True):
        ids = torch.arange(len(copies.rows))[:, None] % 3 + tokens
        expected, copies = model.step(ids, real[: len(ids)], copies)
        logits, folded = model.step(ids, real[: len(ids)], folded)
        near(logits, expected)
        if state.source is not None:
            near(folded.attended_BS, copies.attended_BS)
        chosen = torch.tensor(order)
        copies, folded = copies.select(chosen), folded.select(chosen, same_text)
    joined = folded.join([copies.select(torch.tensor([1]))])
    ids = torch.tensor([[3], [4], [4]])
    near(model.step(ids, real[:3], joined)[0][1:2], model.step(ids, real[:3], joined)[0][2:])


@pytest.mark.parametrize("config", list(possible(cell="gru", bidirectional=False)), ids=name_of)
def test_alignment_is_what_is_probed_summed_and_attended_to(config: RnnSeq2seq.Config) -> None:
    model = RnnSeq2seq(config, Sizes(V)).double()
    batch = batch_of(rows([4, 2]), rows([3, 3], 1))
    with record() as seen:
        alpha = model.alignment(batch)
    state = model.start(2, 4, batch.source, batch.source_mask)
    if config.attention == "none":
        assert alpha is None and "alignment" not in seen and state.covering().attended_BS is None
        return
    near(seen["alignment"][0], alpha)
    near(alpha.sum(-1), torch.ones(2, 4).double())
    assert not alpha[1, :, 2:].any()  # padding
    _, after = model.step(batch.tokens_BT, batch.mask_BT, state.covering())
    near(after.attended_BS, alpha.sum(1))
    if config.attention == "fixed":
        assert alpha.argmax(-1).tolist() == [[0, 1, 2, 3], [0, 1, 1, 1]]


def test_attention_over_torchs_own_lstm() -> None:
    """Encoder both ways, decoder from both ends side by side, then d_t · W h_s and softmax(V [d; c] + b)."""
    model = attending(attention="bilinear", layers=2, tied="none")
    batch = batch_of(rows([5]), rows([3], 1))
    encoder = nn.LSTM(4, 2, 2, batch_first=True, bidirectional=True).double()
    decoder = nn.LSTM(4, 4, 2, batch_first=True).double()
    encoder.load_state_dict(model.encoder.core.state_dict())
    decoder.load_state_dict(model.decoder.core.state_dict())
    h_BSD, ends = encoder(model.source_vectors(batch.source))
    start = [torch.stack([torch.cat([end[0], end[1]], -1), torch.cat([end[2], end[3]], -1)]) for end in ends]
    d_BTD, _ = decoder(model.vectors(batch.tokens_BT), tuple(start))
    alpha_BTS = torch.einsum("btd,de,bse->bts", d_BTD, model.scores.keys.weight, h_BSD).softmax(-1)
    near(model.alignment(batch), alpha_BTS)
    near(model(batch)[0], model.head(torch.cat([d_BTD, alpha_BTS @ h_BSD], -1)))


def test_tied_outputs_go_through_one_more_layer() -> None:
    tied, plain = attending(tied="all"), attending(tied="sides")
    plain.load_state_dict(
        {n: w for n, w in tied.state_dict().items() if "narrow" not in n} | {"head.weight": plain.head.weight}
    )
    batch = batch_of(rows([5, 3]), rows([3, 4], 1))
    both_BTD = plain._forced(batch).out_BTD
    a_BTD = torch.tanh(both_BTD @ tied.narrow.weight.T)
    near(tied(batch)[0], a_BTD @ tied.vectors.weight.T + tied.head.bias)


def test_bahdanau_by_the_equations_of_the_paper() -> None:
    """e_tj = v · tanh(W d_{t-1} + U h_j); c_t = sum of alpha_tj h_j; d_t = GRU(d_{t-1}, y_t, c_t). One row, one time
    after the other; W has a bias here, d_0 is the encoder's end, and the output has no maxout layer."""
    model = attending(cell="gru", attention="additive", feeds="every", tied="sides")
    batch = batch_of(rows([5]), rows([4], 1))
    encoder, cell = nn.GRU(4, 2, bidirectional=True).double(), nn.GRUCell(8, 4).double()
    encoder.load_state_dict(model.encoder.core.state_dict())
    cell.load_state_dict({n.removesuffix("_l0"): w for n, w in model.decoder.core.state_dict().items()})
    h_SD, end = encoder(model.vectors(batch.source[0]))
    (v,), U, W = model.scores.v.weight, model.scores.keys.weight, model.scores.queries
    d = end.flatten()
    for t, y in enumerate(batch.tokens_BT[0]):
        e = torch.stack([v @ torch.tanh(W(d) + U @ h) for h in h_SD])
        alpha = e.exp() / e.exp().sum()
        c = sum(a * h for a, h in zip(alpha, h_SD, strict=True))
        d = cell(torch.cat([model.vectors(y), c]), d)
        near(model.alignment(batch)[0, t], alpha)
        near(model(batch)[0][0, t], model.head(torch.cat([d, c])))


def test_luong_by_the_equations_of_the_paper() -> None:
    """alpha_t = softmax(d_t · W_a h_s); a_t = tanh(W_c [d_t; c_t]), which the next step reads beside its token."""
    model = attending(attention="bilinear", feeds="attentional", bidirectional=False, tied="sides")
    batch = batch_of(rows([5]), rows([4], 1))
    encoder, cell = nn.LSTM(4, 4).double(), nn.LSTMCell(8, 4).double()
    encoder.load_state_dict(model.encoder.core.state_dict())
    cell.load_state_dict({n.removesuffix("_l0"): w for n, w in model.decoder.core.state_dict().items()})
    h_SD, (d, memory) = encoder(model.vectors(batch.source[0]))
    state, a = (d[0], memory[0]), torch.zeros(4).double()
    for t, y in enumerate(batch.tokens_BT[0]):
        state = cell(torch.cat([model.vectors(y), a]), state)
        e = torch.stack([state[0] @ model.scores.keys.weight @ h for h in h_SD])
        alpha = e.exp() / e.exp().sum()
        a = torch.tanh(model.narrow.weight @ torch.cat([state[0], alpha @ h_SD]))
        near(model.alignment(batch)[0, t], alpha)
        near(model(batch)[0][0, t], model.head(a))


def test_the_loss_of_coverage_is_a_term_of_its_own() -> None:
    with_it, without = attending(coverage="loss"), attending()
    batch = batch_of(rows([5, 3]), rows([3, 4], 1))
    alpha = with_it.alignment(batch).clone()
    expected, own = 0.0, zip(alpha, (4, 5), strict=True)
    for alpha_TS, length in own:
        for t in range(length):
            expected += float(torch.minimum(alpha_TS[t], alpha_TS[:t].sum(0)).sum())
    cross_entropy, coverage = with_it.loss(batch).terms
    near(cross_entropy.total, without.loss(batch).terms[0].total)
    assert coverage.name == "coverage" and coverage.count == 9
    assert coverage.total.item() == pytest.approx(expected)


def test_label_smoothing_gives_every_token_a_share() -> None:
    model, plain = attending(label_smoothing=0.1), attending()
    batch = batch_of(rows([5, 3]), rows([3, 4], 1))
    logp_BTV, real_BT = plain(batch)[0].log_softmax(-1), batch.targets != IGNORE
    (exact,) = plain.loss(batch).terms
    terms = model.loss(batch).terms
    near(terms[0].total, exact.total)
    expected = 0.9 * exact.total - 0.1 * logp_BTV.mean(-1)[real_BT].sum()
    near(sum(term.weight * term.total for term in terms), expected)
    assert model.counts(batch) == {"cross_entropy": 9, "label_smoothing": 9}


def translation(count: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Word for word, w to w + 4; 'adjectives' 2 and 3 come after their noun in the target."""
    draw, source, target = random.Random(seed), [], []
    for _ in range(count):
        words = [draw.choice((4, 5)) for _ in range(draw.randint(1, 3))]
        words.insert(-1, draw.choice((2, 3)))
        source.append(np.array(words))
        target.append(np.array([*words[:-2], words[-1], words[-2]]) + 4)
    return source, target


def test_learns_a_small_translation() -> None:
    """Greedy decoding through start and step gives every sentence of a toy language right."""
    torch.manual_seed(0)
    model = RnnSeq2seq(RnnSeq2seq.Config(width=48, tied="sides", **ONE_WAY), Sizes(10))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(100):
        batch = batch_of(*translation(32, step))
        optimiser.zero_grad()
        (model.loss(batch).terms[0].total / batch.count).backward()
        optimiser.step()
    source, target = translation(100, 1000)
    batch = batch_of(source, target)
    state, tokens, said = model.start(100, 6, batch.source, batch.source_mask), torch.zeros(100, 1).long(), []
    for _ in range(5):
        logits, state = model.step(tokens, torch.ones(100, 1, dtype=torch.bool), state)
        tokens = logits.argmax(-1, keepdim=True)
        said.append(tokens)
    out = torch.cat(said, 1)
    right = [out[i, : len(y) + 1].tolist() == [*y.tolist(), 0] for i, y in enumerate(target)]
    assert sum(right) >= 98

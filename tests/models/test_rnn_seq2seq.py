"""The recurrent encoder-decoder: what the decoder sees of the source, padding, stepping, and a small translation."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.store import columns_of
from segue.layers.recurrent import RecurrentState
from segue.models.base import Sizes
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.tasks.seq2seq import TASK

V = 13
CONFIGS = [
    RnnSeq2seq.Config(width=8, layers=2),
    RnnSeq2seq.Config(width=8, tied="all", attention="none"),
    RnnSeq2seq.Config(cell="gru", width=8, feeds="every", shared=False),
    RnnSeq2seq.Config(cell="lstm", width=8, layers=2, feeds="every"),
    RnnSeq2seq.Config(cell="elman", width=8, shared=False),
]


@pytest.fixture(params=CONFIGS, ids=lambda c: f"{c.cell}-{c.layers}-{c.feeds}")
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
    model = RnnSeq2seq(RnnSeq2seq.Config(width=8, layers=2, reverse_source=False), Sizes(V)).double()
    (source,) = rows([6])
    begin = model.read(torch.tensor(source)[None], None)
    _, end = model.encoder(model.source_vectors(torch.tensor(source)[None]))
    assert begin.context_BD is None
    near(begin.decoder.h_LBD, end.h_LBD)
    near(begin.decoder.c_LBD, end.c_LBD)


def test_trap_30_context_every_reaches_each_update_and_each_output() -> None:
    """The decoder starts at zero, and the last layer's state of the encoder is at both places at every step."""
    model = RnnSeq2seq(RnnSeq2seq.Config(width=8, layers=2, feeds="every"), Sizes(V)).double()
    batch = batch_of(rows([6]), rows([4], 1))
    begin = model.read(batch.source, batch.source_mask)
    assert not begin.decoder.h_LBD.any()
    _, end = model.encoder(model.source_vectors(batch.source.flip(1)))
    near(begin.context_BD, end.h_LBD[-1])
    state: RecurrentState | None = None
    for t in range(5):
        x = torch.cat([model.vectors(batch.tokens_BT[:, t]), begin.context_BD], -1)
        out, state = model.decoder(x[:, None], None, state)
        near(model.head(torch.cat([out[:, 0], begin.context_BD], -1)), model(batch)[0][:, t])


def test_reversed_source_is_the_source_read_from_its_end() -> None:
    forward = RnnSeq2seq(RnnSeq2seq.Config(width=8, reverse_source=False), Sizes(V)).double()
    backward = RnnSeq2seq(RnnSeq2seq.Config(width=8, reverse_source=True), Sizes(V)).double()
    backward.load_state_dict(forward.state_dict())
    source, target = rows([6, 3]), rows([4, 2], 1)
    near(backward(batch_of([x[::-1] for x in source], target))[0], forward(batch_of(source, target))[0])


def test_shared_and_tied_tables() -> None:
    model = RnnSeq2seq(RnnSeq2seq.Config(width=8, tied=True), Sizes(V))
    assert model.source_vectors is model.vectors and model.head.weight is model.vectors.weight
    assert "source_vectors.weight" in RnnSeq2seq(RnnSeq2seq.Config(width=8, shared=False), Sizes(V)).state_dict()


@pytest.mark.parametrize("wrong", [{"width": 0}, {"layers": 0}, {"dropout": -0.1}, {"tied": True, "feeds": "every"}])
def test_impossible_configs_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RnnSeq2seq.Config(**wrong)


def test_a_source_is_needed_to_start() -> None:
    with pytest.raises(ValueError, match="source with 2 rows"):
        RnnSeq2seq(RnnSeq2seq.Config(width=8), Sizes(V)).start(2, 10)


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
    model = RnnSeq2seq(RnnSeq2seq.Config(width=48), Sizes(10))
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

"""Units as rows: every token is predicted once an epoch, each unit from its own beginning, with little padding."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.batches import unit_rows
from segue.batches.batch import IGNORE
from segue.batches.batches import Config
from segue.batches.store import Store, StoreWriter
from segue.batches.streams import Streams
from segue.batches.unit_rows import UnitRows, are_short, unit_borders
from segue.models.base import Sizes
from segue.models.gpt import Gpt
from segue.models.neural_lm import NeuralLm
from segue.models.rnn_lm import Penalty, RnnLm
from segue.tasks import task as task_named
from segue.tokens.file_format import STOP, UNK


def store_of(folder: Path, lengths: list[int], last_ends: bool = True) -> Store:
    """Units of these lengths, STOP included, whose other tokens are all different: 2, 3, 4 …"""
    tokens = np.arange(2, 2 + sum(lengths))
    ends = np.cumsum(lengths) - 1
    tokens[ends if last_ends else ends[:-1]] = STOP
    writer = StoreWriter(folder, {"text": "uint32"})
    writer.append("text", tokens)
    return writer.close()


def rows_of(batches: UnitRows, epoch: int) -> list[tuple[list[int], list[int]]]:
    """(what is read, what is predicted) of every row of an epoch."""
    rows = []
    for step in range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch):
        for part in batches.at(step):
            assert part.fresh_B.all() and (part.mask_BT.all() or not part.unpadded)
            assert (part.targets[~part.mask_BT] == IGNORE).all() and not part.tokens_BT[~part.mask_BT].any()
            each = zip(part.tokens_BT, part.targets, part.mask_BT, strict=True)
            rows += [(read[mask].tolist(), aims[mask].tolist()) for read, aims, mask in each]
    return rows


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=60),
    last_ends=st.booleans(),
    size=st.integers(1, 9),
    length=st.integers(1, 12),
    accumulate=st.integers(1, 3),
)
def test_an_epoch_reads_every_unit_from_its_beginning(
    lengths: list[int],
    last_ends: bool,
    size: int,
    length: int,
    accumulate: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = store_of(tmp_path_factory.mktemp("u"), lengths, last_ends)
    batches = UnitRows(store, Config(size, length, min(size, accumulate)), seed=3)
    tokens = store.tokens.tolist()
    expected = []
    for end, unit in zip(np.cumsum(lengths).tolist(), lengths, strict=True):
        for begin in range(end - unit, end, length):
            own = tokens[begin : min(begin + length, end)]
            before = STOP if begin == end - unit else tokens[begin - 1]
            expected.append(([before, *own[:-1]], own))
    for epoch in (0, 2):
        assert sorted(rows_of(batches, epoch)) == sorted(expected)


def test_a_batch_is_a_function_of_seed_and_step(tmp_path: Path) -> None:
    store = store_of(tmp_path, np.random.default_rng(0).integers(1, 40, 500).tolist())
    first, again, other = (UnitRows(store, Config(8, 32), seed) for seed in (1, 1, 2))

    def read(batches: UnitRows, step: int) -> list[list[int]]:
        return batches.at(step)[0].tokens_BT.tolist()

    steps = range(first.per_epoch + 3)
    assert [read(again, step) for step in reversed(steps)][::-1] == [read(first, step) for step in steps]
    assert any(read(first, step) != read(other, step) for step in steps)
    assert read(first, 0) != read(first, first.per_epoch)  # another epoch, another order


def test_few_shapes_little_padding_and_the_tokens_of_a_stream(tmp_path: Path) -> None:
    store = store_of(tmp_path, np.random.default_rng(0).integers(1, 100, 4000).tolist())
    batches = UnitRows(store, Config(32, 64), seed=0)
    parts = [batches.at(step)[0] for step in range(batches.per_epoch)]
    assert max(part.tokens_BT.size for part in parts) <= 32 * 64
    assert sum(part.count for part in parts) == len(store.tokens)
    assert sum(part.count for part in parts) > 0.93 * sum(part.tokens_BT.size for part in parts)
    assert len({part.tokens_BT.shape for part in parts}) == batches.shapes < 50


def test_noise_blanks_what_is_read_and_not_what_is_predicted(tmp_path: Path) -> None:
    store = store_of(tmp_path, [20] * 300)
    plain, blanked = (
        UnitRows(store, Config(30, 20, noise=noise, share=0.3), 1).at(0)[0] for noise in ("none", "blank")
    )
    changed = plain.tokens_BT != blanked.tokens_BT
    assert (blanked.tokens_BT[changed] == UNK).all() and 0.2 < changed.mean() < 0.4
    np.testing.assert_array_equal(plain.targets, blanked.targets)


def test_units_are_found_over_the_borders_of_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [3, 1, 40, 2, 2, 7, 30, 1]
    tokens = store_of(tmp_path, lengths).tokens
    monkeypatch.setattr(unit_rows, "SPAN", 5)
    found = list(unit_borders(tokens))
    assert all(one[-1] == other[0] for one, other in pairwise(found))
    assert np.concatenate([np.diff(borders) for borders in found]).tolist() == lengths
    cut = np.concatenate([np.diff(borders) for borders in unit_borders(tokens, (3, 20, len(tokens)))])
    assert cut.tolist() == [3, 1, 16, 24, *lengths[3:]]  # a corpus ends at 20, within a unit


@pytest.mark.parametrize(
    ("lengths", "length", "short"),
    [([5, 5, 5], 5, True), ([5, 5, 6], 5, False), ([1, 1, 1, 17], 5, True), ([4], 5, False), ([400, 3], 64, False)],
)
def test_short_units_are_rows_and_long_ones_a_stream(
    lengths: list[int], length: int, short: bool, tmp_path: Path
) -> None:
    store, config = store_of(tmp_path, lengths), Config(2, length)
    assert are_short(store.tokens, length) == short
    kinds = [type(task_named("lm").batches(store, config, 0, carry)) for carry in (False, True)]
    assert kinds == [UnitRows if short else Streams, Streams]


def test_a_state_is_carried_by_streams_alone(tmp_path: Path) -> None:
    store = store_of(tmp_path, [5] * 20)
    assert Streams(store, Config(2, 5), 0).carries and not UnitRows(store, Config(2, 5), 0).carries


def test_padding_on_the_right_changes_no_loss(tmp_path: Path) -> None:
    """A model may skip the mask of such a batch: its loss is the same as with the mask, and so are the gradients."""
    torch.manual_seed(0)
    sizes = Sizes(400)
    penalty = {"ar": 2.0, "tar": 1.0}
    models = [
        RnnLm(RnnLm.Config(width=6, embedding=5, penalty=Penalty(**penalty)), sizes),
        NeuralLm(NeuralLm.Config(width=6, embedding=5), sizes),
        Gpt(Gpt.Config(layers=1, width=8, heads=2, context=16), sizes),
    ]
    batch = UnitRows(store_of(tmp_path, [3, 9, 1, 16, 7, 2, 12] * 3), Config(8, 16), 0).at(0)[0]
    assert batch.right_padded and not batch.unpadded
    for model in models:
        losses = []
        for right_padded in (True, False):
            terms = model.loss(replace(batch, right_padded=right_padded).to("cpu")).terms
            loss = sum(term.weight * term.total / term.count for term in terms)
            losses.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
        for one, other in zip(*losses, strict=True):
            torch.testing.assert_close(one, other)

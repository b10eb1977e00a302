"""An imported ARPA model: the same words of the contract, and the n-gram model that the file was written of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import segue
from segue.batches.batch import IGNORE, Batch
from segue.interop.arpa.read import import_arpa
from segue.interop.arpa.write import export_arpa
from segue.models import kinds, model_class
from segue.models.arpa_lm import ArpaLm
from segue.models.base import Imported, Sizes

WORDS = ["the", "cows", "eat", "grass", "and", "the", "old", "farmer", "sees", "a", "red", "barn", "near", "my", "lake"]


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda order: f"order {order}")
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[segue.Run, segue.Run]:
    """A run that counted, and the run that its ARPA file gives."""
    folder, draw = tmp_path_factory.mktemp("arpa"), np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 1 + i % 9)) for i in range(60)]
    settings = {"tokens.kind": "space", "data.validation": 0, "data.test": 0, "model.order": request.param}
    run = segue.train("ngram", lines, folder / "run", settings)
    export_arpa(run.path, folder / "a.arpa")
    import_arpa(folder / "a.arpa", folder / "arpa")
    return run, segue.load(folder / "arpa")


def batch_of(size: int, lengths: tuple[int, ...] = (6, 2, 4)) -> Batch:
    draw = np.random.default_rng(1)
    tokens, targets = np.zeros((2, len(lengths), max(lengths)), np.int64)
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    tokens[mask] = draw.integers(1, size, mask.sum())
    tokens[:, 0] = 0
    targets[:, :-1] = tokens[:, 1:]
    return Batch(tokens, np.where(mask, targets, IGNORE), mask)


def test_it_says_what_the_counts_said(models: tuple[segue.Run, segue.Run]) -> None:
    counted, given = models
    batch = batch_of(counted.sizes.vocab_size)
    expected, found = (run.model.logprobs(batch)[0] for run in (counted, given))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (found[batch.targets == IGNORE] == 0).all() and (found[batch.targets != IGNORE] < 0).all()
    for context in ([0], [0, 2, 3, 4], [5, 1]):
        p = given.model.distribution(context)
        np.testing.assert_allclose(p, counted.model.distribution(context), rtol=1e-5)
        assert p.sum() == pytest.approx(1, abs=1e-5)
    assert given.model.parameters_count >= counted.model.parameters_count


def test_steps_say_what_logprobs_says(models: tuple[segue.Run, segue.Run]) -> None:
    model = models[1].model
    batch = batch_of(model.sizes.vocab_size)
    tokens, mask = torch.tensor(batch.tokens_BT), torch.tensor(batch.mask_BT)
    state = model.start(3, 0)
    for place in range(tokens.shape[1]):
        logits, state = model.step(tokens[:, [place]], mask[:, [place]], state)
        asked = np.full_like(batch.targets, IGNORE)
        asked[:, place] = 3
        expected, _ = model.logprobs(dataclasses.replace(batch, targets=np.where(batch.mask_BT, asked, IGNORE)))
        real = batch.mask_BT[:, place]
        np.testing.assert_allclose(logits[real, 3], expected[real, place], atol=1e-6)
    order = [2, 0, 2]
    chosen, _ = model.step(tokens[order, :1], mask[order, :1], state.select(order))
    whole, _ = model.step(tokens[:, :1], mask[:, :1], state)
    assert torch.equal(chosen, whole[order])


def test_state_goes_on_until_a_row_is_fresh(models: tuple[segue.Run, segue.Run]) -> None:
    model = models[1].model
    batch = batch_of(model.sizes.vocab_size, (6, 6, 6))
    whole, _ = model.logprobs(batch)
    arrays = (batch.tokens_BT, batch.targets, batch.mask_BT)
    first, second = (Batch(*(array[:, part] for array in arrays)) for part in (np.s_[:3], np.s_[3:]))
    _, state = model.logprobs(first)
    np.testing.assert_array_equal(model.logprobs(second, state)[0], whole[:, 3:])
    fresh = dataclasses.replace(second, fresh_B=np.array([False, True, False]))
    found, _ = model.logprobs(fresh, state)
    np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2], 3:])
    np.testing.assert_array_equal(found[1], model.logprobs(second)[0][1])


def test_saving_and_loading_change_nothing(models: tuple[segue.Run, segue.Run], tmp_path: Path) -> None:
    model = models[1].model
    model.save(tmp_path)
    again = ArpaLm(model.config, Sizes(model.sizes.vocab_size))
    again.load(tmp_path)
    batch = batch_of(model.sizes.vocab_size)
    np.testing.assert_array_equal(again.logprobs(batch)[0], model.logprobs(batch)[0])
    assert (tmp_path / "model.safetensors").read_bytes() == (models[1].path / "model.safetensors").read_bytes()


def test_it_is_the_only_kind_that_is_imported() -> None:
    """Or tests/test_contract.py would pass over a kind that no other test holds to its words."""
    assert [kind for kind in kinds() if issubclass(model_class(kind), Imported)] == ["arpa_lm"]


@pytest.mark.parametrize("order", [0, -1])
def test_impossible_orders_are_refused(order: int) -> None:
    with pytest.raises(ValueError, match="order"):
        ArpaLm.Config(order=order)

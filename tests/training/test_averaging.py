"""Averaged weights: when validation sets them off, what they are the mean of, who sees them, and that they resume."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from segue.batches.batches import Config as Layout
from segue.batches.store import StoreWriter
from segue.batches.streams import Streams
from segue.models.base import Sizes
from segue.models.neural_lm import NeuralLm
from segue.models.rnn_lm import Drop, Penalty, RnnLm
from segue.training.checkpoint import latest, save_checkpoint
from segue.training.rates import Average, stalled
from segue.training.rates import Config as Optimizer
from segue.training.trainer import Config, Trainer

V = 12
AWD = RnnLm.Config(
    width=7,
    embedding=5,
    layers=3,
    tied=True,
    dropout=0.1,
    drop=Drop(0.1, 0.4, 0.25, 0.4, 0.5),
    penalty=Penalty(2.0, 1.0),
)
SGD = Optimizer(
    name="sgd", rate=2.0, momentum=0.0, clip=0.25, schedule="constant", warmup=0, weight_decay=1e-6, average=1
)


def trainer_of(folder: Path, losses: list[float], model: Any = None, accumulate: int = 1, **train: Any) -> Trainer:
    """Validation finds these losses, one after the other, and keeps the weights that it was shown."""
    torch.manual_seed(0)
    model = model or RnnLm(AWD, Sizes(V))
    writer = StoreWriter(folder, {"text": "uint16"})
    writer.append("text", np.random.default_rng(0).integers(0, V, 400))
    batches = Streams(writer.close(), Layout(4, 14, accumulate, vary=True), seed=1)
    told, shown = iter(losses), []

    def validate(done: Any) -> dict[str, Any]:
        shown.append(weights(model))
        return {"loss": next(told)}

    config = Config(**{"steps": 3 * len(losses), "every": 3, "patience": 0, "log_every": 1, "optimizer": SGD, **train})
    trainer = Trainer(model, batches, config, validate, "cpu")
    trainer.shown = shown  # type: ignore[attr-defined]
    return trainer


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def papers_trigger(losses: list[float], n: int) -> int | None:
    """The published loop: at which validation, from 0, averaging begins."""
    logs: list[float] = []
    for t, loss in enumerate(losses):
        if len(logs) > n and loss > min(logs[:-n]):
            return t
        logs.append(loss)
    return None


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_trigger_is_the_papers(n: int) -> None:
    draw = np.random.default_rng(n)
    begun = set()
    for _ in range(200):
        losses = (np.exp(-np.arange(14) / 4) + draw.normal(0, 0.1, 14)).tolist()
        mine = next((t for t in range(14) if stalled(losses[: t + 1], n)), None)
        assert mine == papers_trigger(losses, n)
        begun.add(mine)
    assert len(begun) > 4
    assert not stalled([3.0, 1.0, *[2.0] * (n - 1)], n)  # 1.0 is not yet old enough to count
    assert stalled([1.0, *[2.0] * (n + 1)], n)
    assert not stalled([math.nan, *[2.0] * (n + 2)], n)


def test_the_mean_is_that_of_all_steps_since() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    average, seen = Average(model), []
    for _ in range(7):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 3))
        seen.append(model.weight.detach().clone())
        average.add()
    torch.testing.assert_close(average.means["weight"], torch.stack(seen).mean(0))
    assert list(average.means) == ["weight"]  # what is frozen has no mean
    own = model.weight
    with average.in_place():
        assert model.weight is own and torch.equal(own, average.means["weight"])
    assert torch.equal(own, seen[-1])


LOSSES = [5.0, 4.0, 4.2, 4.3, 3.0, 3.5]
"""With n = 1 the fourth validation, after step 12, is the first that is worse than one more than one before it."""


def test_validation_and_the_end_see_the_mean_and_training_does_not(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, LOSSES)
    after: dict[int, dict[str, Tensor]] = {}
    averaged = {}
    for record in trainer.fit():
        if record.kind == "train":
            after[record.step] = weights(trainer.model)
        else:
            averaged[record.step] = record.values.get("averaged")
            assert equal(weights(trainer.model), after[record.step])
    assert averaged == {3: None, 6: None, 9: None, 12: None, 15: 3, 18: 6}
    shown = trainer.shown  # type: ignore[attr-defined]
    for number, step in enumerate((3, 6, 9, 12)):
        assert equal(shown[number], after[step])
    for number, step in ((4, 15), (5, 18)):
        for name, mean in shown[number].items():
            own = torch.stack([after[s][name] for s in range(13, step + 1)]).mean(0)
            torch.testing.assert_close(mean, own, atol=1e-6, rtol=0)
    assert trainer.best["step"] == 15 and equal(trainer.best_weights, shown[4])
    assert not equal(trainer.best_weights, after[15])


def test_without_it_nothing_changes(tmp_path: Path) -> None:
    optimizer = Optimizer(**{**SGD.__dict__, "average": 0})
    with_it, without = trainer_of(tmp_path, LOSSES), trainer_of(tmp_path, LOSSES, optimizer=optimizer)
    ends = []
    for trainer in (with_it, without):
        torch.manual_seed(1)
        list(trainer.fit())
        ends.append(weights(trainer.model))
    assert equal(*ends)  # averaging only looks on
    assert without.average is None and "average" not in without.tensors()
    assert not equal(with_it.best_weights, without.best_weights)


@pytest.mark.parametrize("model", ["rnn_lm", "neural_lm"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("stop", [6, 12, 15, 18])
def test_going_on_is_bit_equal(model: str, accumulate: int, stop: int, tmp_path: Path) -> None:
    """All of AWD-LSTM at once, saved before, at and after the trigger, and where the mean is the best so far."""

    def fresh(losses: list[float]) -> Trainer:
        made = None if model == "rnn_lm" else NeuralLm(NeuralLm.Config(3, width=6, dropout=0.3), Sizes(V))
        return trainer_of(tmp_path / "store", losses, made, accumulate, steps=18)

    torch.manual_seed(4)
    whole = fresh(LOSSES)
    records = [record for record in whole.fit() if record.step > stop]
    torch.manual_seed(4)
    killed = fresh(LOSSES)
    for record in killed.fit():
        if record.kind == "validation" and record.step == stop:
            save_checkpoint(tmp_path / "checkpoints", killed.step, killed.tensors(), killed.values())
            break
    torch.manual_seed(99)
    resumed = fresh(LOSSES[stop // 3 :])
    found, _ = latest(tmp_path / "checkpoints")
    assert found is not None
    resumed.restore(*found)
    again = list(resumed.fit())
    assert equal(whole.best_weights, resumed.best_weights) and whole.best == resumed.best
    a, b = whole.tensors(), resumed.tensors()
    assert a.keys() == b.keys() and "average" in a
    assert all(equal(a[name], b[name]) for name in a)
    assert {**whole.values(), "seconds": 0} == {**resumed.values(), "seconds": 0}
    timeless = [[(r.step, r.kind, {**r.values, "seconds": 0}) for r in some] for some in (records, again)]
    assert timeless[0] == timeless[1]


def test_a_checkpoint_from_before_there_were_averages_goes_on(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, LOSSES)
    values = {name: value for name, value in trainer.values().items() if name not in ("losses", "averaged")}
    trainer.restore(trainer.tensors(), values)
    assert trainer.losses == [] and trainer.average is None


def test_the_rate_goes_with_the_length_of_the_step(tmp_path: Path) -> None:
    """Read from the optimiser as each step is made; what is logged is the schedule's."""
    trainer = trainer_of(tmp_path, LOSSES)
    used: list[Any] = []
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda: (used.append(trainer.optimizer.rate), step())  # type: ignore[method-assign, func-returns-value]
    rates = [record.values["rate"] for record in trainer.fit() if record.kind == "train"]
    lengths = [trainer.batches.at(step)[0].tokens_BT.shape[1] for step in range(18)]
    assert used == pytest.approx([2.0 * length / 14 for length in lengths])
    assert len(set(lengths)) > 3 and rates == [2.0] * 18


def test_an_impossible_value_is_refused() -> None:
    with pytest.raises(ValueError, match="average"):
        Optimizer(average=-1)


def test_a_running_mean_forgets_and_begins_as_the_plain_one() -> None:
    model = nn.Linear(1, 1, bias=False)
    average, mean = Average(model, ema=0.75), 0.0
    for step, value in enumerate([4.0, 8.0, 1.0, 5.0, -3.0, 2.0, 9.0], 1):
        nn.init.constant_(model.weight, value)
        average.add()
        mean += (value - mean) * max(1 / step, 0.25)
        assert average.means["weight"].item() == pytest.approx(mean)


def test_a_running_mean_is_what_is_judged_and_kept(tmp_path: Path) -> None:
    ema = Optimizer(name="sgd", rate=2.0, momentum=0.0, schedule="constant", warmup=0, ema=0.9)
    trainer = trainer_of(tmp_path, [3.0, 2.0, 2.5], optimizer=ema)
    for _ in trainer.fit():
        pass
    shown = trainer.shown  # type: ignore[attr-defined]
    assert trainer.average is not None and equal(trainer.best_weights, shown[1])
    assert not equal(shown[2], weights(trainer.model))
    for name, mean in trainer.average.means.items():
        assert torch.equal(mean, shown[2][name])


@pytest.mark.parametrize("settings", [{"ema": 1.0}, {"ema": -0.1}, {"ema": 0.9, "average": 5}])
def test_means_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ema"):
        Optimizer(**settings)

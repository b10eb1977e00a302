"""The loop: counts and not means, rates, budgets, early stopping, the guard against NaN, and going on bit for bit."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as Layout
from segue.batches.store import StoreWriter
from segue.models.base import Loss, Record, Sizes, Term
from segue.models.bow import Bow
from segue.models.rnn_lm import RnnLm
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.models.window_tagger import WindowTagger
from segue.tasks import task as task_named
from segue.tasks.base import Done
from segue.training.checkpoint import latest, save_checkpoint
from segue.training.rates import Config as Optimizer
from segue.training.trainer import Config, DivergedError, Trainer

V, C = 12, 3
KINDS = ["bow", "window_tagger", "rnn_lm", "rnn_seq2seq"]


def model_of(kind: str, dropout: float = 0.0, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    sizes = Sizes(V, C)
    match kind:
        case "bow":
            return Bow(Bow.Config(dropout), sizes)
        case "window_tagger":
            return WindowTagger(WindowTagger.Config(window=3, embedding=4, width=5, dropout=dropout), sizes)
        case "rnn_lm":
            return RnnLm(RnnLm.Config(width=6, embedding=5, layers=2, dropout=dropout), sizes)
        case _:
            return RnnSeq2seq(RnnSeq2seq.Config(width=6, dropout=dropout), sizes)


def batches_of(kind: str, folder: Path, accumulate: int = 1, size: int = 5) -> Batches:
    """Ragged rows: from 1 to 9 words each, so that parts hold different numbers of targets."""
    task = model_of(kind).task
    draw = np.random.default_rng(3)
    lengths = draw.integers(1, 10, 18)
    text = draw.integers(2, V, lengths.sum())
    columns = {
        "lm": {"text": (text, None)},
        "classify": {"text": (text, lengths), "label": (draw.integers(0, C, 18), np.ones(18, np.int64))},
        "tag": {"text": (text, lengths), "tags": (text % C, lengths)},
        "seq2seq": {"source": (text, lengths), "text": (text[::-1], lengths)},
    }[task]
    writer = StoreWriter(folder, dict.fromkeys(columns, "int32"))
    for name, (flat, rows) in columns.items():
        writer.append(name, flat, rows)
    return task_named(task).batches(writer.close(), Layout(size, 5, accumulate), seed=1)


def trainer_of(kind: str, folder: Path, accumulate: int = 1, dropout: float = 0.0, validate=None, **train) -> Trainer:
    config = Config(**{"steps": 9, "seed": 0, **train})
    model = model_of(kind, dropout)
    worth = task_named(model.task).worth
    return Trainer(model, batches_of(kind, folder, accumulate), config, validate, "cpu", worth=worth)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def run(trainer: Trainer) -> list[Record]:
    return list(trainer.fit())


# A loss whose value the test decides


class Told(nn.Module):
    """A model whose loss at each update is what `losses` says, a token, times its one weight (which is 1 at first)."""

    task = "tag"

    def __init__(self, losses: dict[int, float] | None = None, default: float = 1.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, 1))
        self.losses, self.default, self.update = losses or {}, default, 0

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"told": batch.count}

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        self.update += 1
        each = self.losses.get(self.update, self.default)
        return Loss((Term("told", self.w.sum() / 2 * each * batch.count, batch.count),))


def told(folder: Path, model: Told, validate=None, **train: Any) -> Trainer:
    optimizer = Optimizer(name="sgd", rate=0.1, momentum=0.0, clip=0.0, schedule="constant", warmup=0)
    config = Config(**{"steps": 10, "optimizer": optimizer, **train})
    return Trainer(model, batches_of("window_tagger", folder), config, validate, "cpu")


# Accumulation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_parts_of_an_update_equal_the_whole(kind: str, name: str, tmp_path: Path) -> None:
    """In double, so that only a wrong denominator or a lost state could make a difference."""
    ends, losses = [], []
    for accumulate in (1, 2, 4):
        trainer = trainer_of(kind, tmp_path, accumulate, optimizer=Optimizer(name=name, rate=0.05), log_every=1)
        trainer.model.double()
        parts = [len(trainer.batches.at(step)) for step in range(9)]
        assert max(parts) == accumulate
        losses.append([record.values["cross_entropy"] for record in run(trainer) if record.kind == "train"])
        ends.append(weights(trainer))
    for end, loss in zip(ends[1:], losses[1:], strict=True):
        assert loss == pytest.approx(losses[0], abs=1e-9)
        for key, value in ends[0].items():
            torch.testing.assert_close(end[key], value, atol=1e-6, rtol=0)
    assert not torch.allclose(ends[0][key], model_of(kind).double().state_dict()[key], atol=1e-3)


def test_parts_are_ragged(tmp_path: Path) -> None:
    """Otherwise the test above would show nothing."""
    for kind in KINDS:
        batches = batches_of(kind, tmp_path / kind, 2)
        counts = [[part.count for part in batches.at(step)] for step in range(batches.per_epoch)]
        assert any(len(set(some)) == 2 for some in counts), kind


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_mean_is_over_tokens(accumulate: int, tmp_path: Path) -> None:
    """LECTURES.md, trap 17: lengths 2 and 8 with losses 1 and 2 a token make 1.8, not 1.5 or 9."""

    class Lengths(Told):
        def loss(self, batch: Batch, state: Any = None) -> Loss:
            real = batch.mask_BT.sum(1)
            each = torch.where(real == 2, 1.0, 2.0)
            return Loss((Term("told", self.w.sum() / 2 * (each * real).sum(), real.sum()),))

    writer = StoreWriter(tmp_path, {"text": "int32", "tags": "int32"})
    for name in ("text", "tags"):
        writer.append(name, np.zeros(10, np.int64), np.array([2, 8]))
    batches = task_named("tag").batches(writer.close(), Layout(2, 100, accumulate), seed=0)
    assert len(batches.at(0)) == accumulate
    trainer = Trainer(Lengths(), batches, Config(steps=1, log_every=1), None, "cpu")
    (record, _) = run(trainer)
    assert record.values["told"] == pytest.approx(1.8)
    assert trainer.targets == 10


def test_each_term_has_its_own_count_and_weight(tmp_path: Path) -> None:
    """Two terms with different denominators: total = sum of weight · sum / count, and so is the gradient."""

    class Two(Told):
        def counts(self, batch: Batch) -> dict[str, int]:
            return {"tokens": batch.count, "rows": len(batch.tokens_BT)}

        def loss(self, batch: Batch, state: Any = None) -> Loss:
            tokens, rows = batch.count, len(batch.tokens_BT)
            terms = (
                Term("tokens", self.w[0].sum() * 3 * tokens, tokens),
                Term("rows", self.w[1].sum() * rows, rows, 0.5),
            )
            return Loss(terms)

    for accumulate in (1, 4):
        trainer = told(tmp_path, Two(), steps=1, log_every=1)
        trainer.batches = batches_of("window_tagger", tmp_path, accumulate)
        (record, _) = run(trainer)
        assert record.values["tokens"] == pytest.approx(3.0)
        assert record.values["rows"] == pytest.approx(0.5)
        assert trainer.model.w[:, 0].tolist() == pytest.approx([1 - 0.1 * 3, 1 - 0.1 * 0.5])


# Carried state


def test_the_state_is_carried_and_forgotten_at_a_new_epoch(tmp_path: Path) -> None:
    """By the model alone: windows read one after the other end in the state that reading all at once ends in."""
    trainer = trainer_of("rnn_lm", tmp_path, steps=3, optimizer=Optimizer(name="sgd", rate=1e-12))
    batches = trainer.batches
    run(trainer)
    assert batches.per_epoch >= 3
    seen = [batches.at(step)[0].to("cpu") for step in range(3)]
    _, state = trainer.model(
        Batch(*(torch.cat([getattr(b, f) for b in seen], 1) for f in ("tokens_BT", "targets", "mask_BT")))
    )
    (carried,) = trainer.carried
    for a, b in zip(carried.parts(), state.parts(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    # Whatever is carried into the first step of an epoch changes nothing.
    first = batches.at(batches.per_epoch)[0].to("cpu")
    assert first.fresh_B.all()
    with torch.no_grad():
        assert torch.equal(trainer.model(first, carried)[0], trainer.model(first)[0])


def test_no_gradient_crosses_the_border_of_a_batch(tmp_path: Path) -> None:
    """The second update's gradient is that of a loss to which the carried state is a constant."""
    trainer = trainer_of("rnn_lm", tmp_path, steps=2, optimizer=Optimizer(clip=0.0, rate=1e-12, warmup=0))
    run(trainer)
    model, batches = model_of("rnn_lm"), trainer.batches
    first, second = (batches.at(step)[0].to("cpu") for step in range(2))
    with torch.no_grad():
        _, state = model(first)
    (term,) = model.loss(second, state).terms
    (term.total / second.count).backward()
    for mine, reference in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, reference.grad, atol=1e-6, rtol=1e-4)
    assert all(not part.requires_grad for state in trainer.carried for part in state.parts())


def test_the_graph_does_not_grow(tmp_path: Path) -> None:
    trainer = trainer_of("rnn_lm", tmp_path, accumulate=2, log_every=1)
    for _ in trainer.fit():
        assert len(trainer.carried) == 2
        assert all(part.grad_fn is None for state in trainer.carried for part in state.parts())


# Clipping and rates


def test_long_gradients_are_clipped(tmp_path: Path) -> None:
    """A loss 100 times as large makes no longer step; what is logged is the length before."""
    for clip, expected in ((0.0, 50.0), (0.5, 0.5)):
        optimizer = Optimizer(name="sgd", rate=0.001, momentum=0.0, clip=clip, schedule="constant", warmup=0)
        trainer = told(tmp_path, Told(default=100.0 / math.sqrt(2)), steps=1, log_every=1, optimizer=optimizer)
        (record, _) = run(trainer)
        step = (1 - trainer.model.w).norm().item()
        assert step == pytest.approx(0.001 * expected, rel=1e-3)
        assert record.values["gradient"] == pytest.approx(50.0)


def test_the_schedule_is_followed(tmp_path: Path) -> None:
    optimizer = Optimizer(rate=0.8, warmup=3)
    rates = [
        r.values["rate"] for r in run(told(tmp_path, Told(), log_every=1, optimizer=optimizer)) if r.kind == "train"
    ]
    cosine = [0.4 * (1 + math.cos(math.pi * step / 10)) for step in range(10)]
    assert rates == pytest.approx([0.8 / 3, 1.6 / 3, *cosine[2:]])


class Figures:
    """A validation whose losses are told beforehand."""

    def __init__(self, *losses: float) -> None:
        self.losses = iter(losses)

    def __call__(self, done: Done) -> dict[str, Any]:
        assert torch.is_inference_mode_enabled()
        return {"loss": next(self.losses)}


def test_plateau_halves_whenever_nothing_is_better(tmp_path: Path) -> None:
    optimizer = Optimizer(name="sgd", rate=0.8, schedule="plateau", warmup=0)
    validate = Figures(5.0, 4.0, 4.0, 4.5, 3.0, 3.0)
    trainer = told(tmp_path, Told(), validate, steps=6, every=1, log_every=1, optimizer=optimizer, patience=3)
    rates = [record.values["rate"] for record in run(trainer) if record.kind == "train"]
    assert rates == pytest.approx([0.8, 0.8, 0.8, 0.4, 0.2, 0.2])


# Validation and early stopping


def test_early_stopping_stops_and_keeps_the_best(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), Figures(5.0, 4.0, 4.0, 6.0, 1.0), every=2, patience=2)
    at = {}
    records = []
    for record in trainer.fit():
        records.append(record)
        at[record.step] = weights(trainer)
    assert trainer.stopped_early
    assert [r.step for r in records if r.kind == "validation"] == [2, 4, 6, 8]
    assert trainer.step == 8
    assert trainer.best["step"] == 4
    assert trainer.best["loss"] == 4.0
    assert equal(trainer.best_weights, at[4])
    assert not equal(trainer.best_weights, at[8])


def test_without_patience_the_budget_is_spent(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), Figures(*[1.0] * 5), every=2)
    run(trainer)
    assert trainer.step == 10
    assert not trainer.stopped_early


def test_a_loss_that_is_not_a_number_is_never_the_best_for_long(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), Figures(math.nan, 4.0, math.nan, 5.0, 4.5), every=2)
    run(trainer)
    assert (trainer.best["loss"], trainer.best["step"]) == (4.0, 4)


def test_validation_sees_the_model_without_dropout_and_training_goes_on_with_it(tmp_path: Path) -> None:
    modes = []
    trainer = trainer_of("rnn_lm", tmp_path, dropout=0.5, every=3)
    trainer.validate = lambda done: (modes.append(trainer.model.training), {"loss": 1.0})[1]
    for _ in trainer.fit():
        assert trainer.model.training
    assert modes == [False] * 3


def test_without_validation_data_there_are_checkpoints(tmp_path: Path) -> None:
    records = run(told(tmp_path, Told(), every=4))
    assert [record.step for record in records if record.kind == "checkpoint"] == [4, 8, 10]
    assert not [record for record in records if record.kind == "validation"]


# Budgets


def test_a_budget_in_steps(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), steps=7, log_every=3)
    records = run(trainer)
    assert trainer.step == 7
    train = [record for record in records if record.kind == "train"]
    assert [record.step for record in train] == [3, 6, 7]
    assert [record.values["progress"] for record in train] == pytest.approx([3 / 7, 6 / 7, 1])
    assert records[-1].kind == "checkpoint"


@pytest.mark.parametrize(("epochs", "steps"), [(1.0, 4), (2.0, 8), (0.5, 2), (0.01, 1)])
def test_a_budget_in_epochs(epochs: float, steps: int, tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), steps=0, epochs=epochs)
    assert trainer.batches.per_epoch == 4
    run(trainer)
    assert trainer.step == steps


def test_the_nearest_limit_ends_it(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), steps=7, epochs=1.0)
    run(trainer)
    assert trainer.step == 4


def test_no_budget_is_two_thousand_steps(tmp_path: Path) -> None:
    assert told(tmp_path, Told(), steps=0).budget.steps == 2000


class Slow(Told):
    def loss(self, batch: Batch, state: Any = None) -> Loss:
        time.sleep(0.002)
        return super().loss(batch, state)


def test_by_the_clock_checkpoints_without_validation_are_few_too(tmp_path: Path) -> None:
    """Each takes as long as two steps, more than a tenth of the time: they become rarer, and none follows each step."""
    trainer = told(tmp_path, Slow(), steps=0, seconds=0.2)
    saved = []
    for record in trainer.fit():
        if record.kind == "checkpoint":
            saved.append(record.step)
            time.sleep(0.005)
    assert 1 < len(saved) <= 9 and saved[-1] == trainer.step > 20
    assert not any(record + 1 in saved for record in saved[:-2])


@pytest.mark.parametrize("steps", [0, 1_000_000])
def test_a_budget_in_seconds(steps: int, tmp_path: Path) -> None:
    """It is kept, validations and checkpoints included; it is validated on the way and at its end."""
    slow = {"steps": steps, "seconds": 0.25, "log_every": 1}
    trainer = told(tmp_path, Slow(), lambda done: time.sleep(0.002) or {"loss": 1.0}, patience=0, **slow)
    records, spent = [], []
    for record in trainer.fit():
        time.sleep(0.002 if record.kind == "validation" else 0)
        records.append(record)
        spent.append(trainer.spent)
    *before, _ = [at for at, record in zip(spent, records, strict=True) if record.kind == "train"]
    assert before[-1] < 0.25 <= trainer.spent
    validations = [record for record in records if record.kind == "validation"]
    assert trainer.spent >= trainer.seconds + 0.004 * (len(validations) - 1)
    assert 3 <= len(validations) <= 12
    assert validations[-1].step == trainer.step


def test_a_larger_budget_in_seconds_is_validated_on_the_way_too(tmp_path: Path) -> None:
    trainer = told(tmp_path, Slow(), lambda done: {"loss": 1.0}, steps=0, seconds=0.1)
    run(trainer)
    more = told(tmp_path, Slow(), lambda done: {"loss": 1.0}, steps=0, seconds=0.3)
    more.restore(trainer.tensors(), trainer.values())
    assert more.seconds == trainer.seconds
    assert sum(record.kind == "validation" for record in more.fit()) >= 3


@pytest.mark.parametrize(("seconds", "left"), [(0.5, False), (100.0, True)])
def test_only_what_is_worth_saying_of_a_budget_is_said_to_be_left(tmp_path: Path, seconds: float, left: bool) -> None:
    """Steps end both of these; a budget of parts of a second ends a little early without that."""
    trainer = trainer_of("bow", tmp_path, steps=2, seconds=seconds)
    run(trainer)
    assert ("seconds_left" in trainer.summary()) == left


def test_a_run_that_the_clock_ended_gives_nothing_back(tmp_path: Path) -> None:
    """With few and slow steps the decay that the clock fixed ends well before the last second."""
    trainer = trainer_of("bow", tmp_path, steps=0, seconds=100.0)
    trainer.budget.steps = 2
    run(trainer)
    assert trainer.step == 2
    assert "seconds_left" not in trainer.summary()


@pytest.mark.parametrize("values", [{"steps": -1}, {"seconds": -0.5}, {"log_every": 0}, {"validate_tokens": 0}])
def test_impossible_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="or more"):
        Config(**values)


# The guard


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("log_every", [1, 4, 100])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_bad_update_never_lands(bad: float, log_every: int, name: str, tmp_path: Path) -> None:
    """The loss is bad at update 7 only; the error names it, and the weights are those after update 6."""
    optimizer = Optimizer(name=name, rate=0.1, schedule="constant", warmup=0)
    good = told(tmp_path, Told(), steps=6, optimizer=optimizer, every=100)
    run(good)
    trainer = told(tmp_path, Told({7: bad}), steps=20, optimizer=optimizer, every=100, log_every=log_every)
    with pytest.raises(DivergedError) as caught:
        run(trainer)
    assert caught.value.step == 7
    assert "step 7, batch 3 of epoch 2" in str(caught.value)
    assert equal(weights(trainer), weights(good))
    assert trainer.step == {1: 7, 4: 8, 100: 20}[log_every]


class Steep(Told):
    """Its loss is finite; at update 7 its gradient is not."""

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        (term,), _ = super().loss(batch, state)
        if self.update == 7:
            term = term._replace(total=term.total + (self.w - self.w.detach()).abs().sum().sqrt())
        return Loss((term,))


def test_a_bad_gradient_of_a_good_loss_never_lands_nor_do_those_after_it(tmp_path: Path) -> None:
    good = told(tmp_path, Told(), steps=6, every=100)
    run(good)
    trainer = told(tmp_path, Steep(), steps=20, every=100, log_every=10)
    with pytest.raises(DivergedError, match="step 7"):
        run(trainer)
    assert equal(weights(trainer), weights(good))


def test_a_bad_step_is_neither_validated_nor_saved(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told({7: math.nan}), Figures(*[1.0] * 9), steps=20, every=3, log_every=100)
    steps = []
    with pytest.raises(DivergedError):
        for record in trainer.fit():
            steps.append(record.step)
    assert steps == [3, 6]


# Going on


def checkpointed(trainer: Trainer, folder: Path, stop: int) -> None:
    """Runs until the record of step `stop`, and saves there."""
    for record in trainer.fit():
        if record.kind in ("validation", "checkpoint") and record.step == stop:
            save_checkpoint(folder, trainer.step, trainer.tensors(), trainer.values())
            return
    raise AssertionError(f"no checkpoint at step {stop}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize(("stop", "accumulate"), [(3, 1), (6, 2), (9, 1)])
def test_going_on_is_bit_equal(kind: str, name: str, stop: int, accumulate: int, tmp_path: Path) -> None:
    """With dropout, momentum, carried state, plateau and the best weights: all that an uninterrupted run ends in."""
    optimizer = Optimizer(name=name, rate=0.05, schedule="plateau", warmup=2, weight_decay=0.01)

    def fresh(*losses: float) -> Trainer:
        layout = {"accumulate": accumulate, "dropout": 0.4, "optimizer": optimizer, "every": 3, "log_every": 2}
        return trainer_of(kind, tmp_path / "store", validate=Figures(*losses), **layout)

    losses = (2.0, 1.0, 1.5)
    whole = fresh(*losses)
    records = [record for record in run(whole) if record.step > stop]
    checkpointed(fresh(*losses), tmp_path / "checkpoints", stop)
    torch.manual_seed(99)
    resumed = fresh(*losses[stop // 3 :])
    found, _ = latest(tmp_path / "checkpoints")
    assert found is not None
    resumed.restore(*found)
    again = run(resumed)
    assert equal(weights(whole), weights(resumed))
    assert equal(whole.best_weights, resumed.best_weights)
    a, b = whole.tensors(), resumed.tensors()
    assert a.keys() == b.keys()
    assert all(equal(a[name], b[name]) for name in a)
    assert whole.best == resumed.best
    assert (whole.step, whole.targets, whole.halvings) == (resumed.step, resumed.targets, resumed.halvings)
    timeless = [[(r.step, r.kind, {**r.values, "seconds": 0}) for r in some] for some in (records, again)]
    assert timeless[0] == timeless[1]


def test_dropout_was_at_work(tmp_path: Path) -> None:
    """Otherwise the test above would not show that the generator is restored."""
    ends = []
    for seed in (1, 2):
        trainer = trainer_of("rnn_lm", tmp_path, dropout=0.4)
        torch.manual_seed(seed)
        run(trainer)
        ends.append(weights(trainer))
    assert not equal(*ends)


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    a, b = (trainer_of("rnn_lm", tmp_path, dropout=0.4) for _ in range(2))
    for trainer in (a, b):
        torch.manual_seed(5)
        run(trainer)
    assert equal(weights(a), weights(b))


def test_restoring_goes_back_in_a_trainer_that_was_used(tmp_path: Path) -> None:
    trainer = trainer_of("rnn_lm", tmp_path / "store", dropout=0.4, every=3)
    before = trainer.tensors(), trainer.values()
    start = {name: {k: v.clone() for k, v in group.items()} for name, group in before[0].items()}
    run(trainer)
    end = weights(trainer)
    trainer.restore(start, before[1])
    assert trainer.carried == []
    run(trainer)
    assert equal(weights(trainer), end)


def test_loss_falls(tmp_path: Path) -> None:
    for kind in KINDS:
        trainer = trainer_of(kind, tmp_path / kind, steps=150, optimizer=Optimizer(rate=0.02), log_every=1, every=200)
        losses = [record.values["cross_entropy"] for record in run(trainer) if record.kind == "train"]
        assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:3]), kind


def test_by_the_clock_slow_validations_are_few(tmp_path: Path) -> None:
    """With validations that take half of the budget each, there is one on the way at most, and the last one."""
    began: list[int] = []

    def slow(done: Done) -> dict[str, Any]:
        began.append(trainer.step)
        time.sleep(0.2)
        return {"loss": 1.0}

    trainer = trainer_of("bow", tmp_path, validate=slow, steps=0, seconds=0.4)
    for _ in trainer.fit():
        pass
    assert len(began) <= 3
    assert began[-1] == trainer.step


# Warm-up, stable, decay


WSD = Optimizer(name="sgd", rate=0.1, momentum=0.0, clip=0.0, schedule="wsd", warmup=0, decay=0.25)


def test_wsd_is_stable_and_then_falls_in_a_line(tmp_path: Path) -> None:
    trainer = told(tmp_path, Told(), steps=40, optimizer=WSD, log_every=1)
    found = [record.values["rate"] for record in run(trainer) if record.kind == "train"]
    assert found[:31] == [0.1] * 31
    np.testing.assert_allclose(found[30:], 0.1 * np.arange(10, 0, -1) / 10)


def test_when_validation_stalls_the_rate_falls_from_the_best_weights(tmp_path: Path) -> None:
    """The best validation is the fourth; three later ones are worse; the decay is a third of the best step's way."""
    losses = iter([5.0, 4.0, 3.0, 1.0, 2.0, 2.0, 2.0, *[0.5] * 99])
    at_best: dict[str, Tensor] = {}
    rewound: list[bool] = []

    def validate(done: Done) -> dict[str, Any]:
        if trainer.step == 24:
            at_best.update(weights(trainer))
        return {"loss": next(losses)}

    trainer = trainer_of("bow", tmp_path, validate=validate, steps=1000, every=6, patience=3, optimizer=WSD)
    for record in trainer.fit():
        if record.kind == "validation" and record.step == 42:
            rewound.append(equal(weights(trainer), at_best))
    assert rewound == [True]
    assert trainer.budget.decay_at == 42
    assert trainer.step == trainer.budget.steps == 42 + 8
    assert trainer.stopped_early


def test_a_run_that_its_time_cut_short_is_made_again_too(tmp_path: Path) -> None:
    """The steps became slower in the decay, so that time was over before its last step."""

    def trained(folder: str, optimizer: Optimizer, **train: Any) -> Trainer:
        trainer = trainer_of("bow", tmp_path / folder, optimizer=optimizer, **train)
        for _ in trainer.fit():
            if trainer.config.seconds and trainer.budget.decay_at is not None:
                trainer.seconds += 0.01
        return trainer

    timed = trained("timed", WSD, steps=0, seconds=0.3, log_every=1)
    settled = timed.settled()
    assert timed.step == settled["stop"] < settled["steps"]
    again = trained("again", replace(WSD, decay=settled.pop("decay")), **(settled | {"every": 1000}))
    assert again.step == timed.step
    assert equal(weights(again), weights(timed))


@pytest.mark.parametrize("stall", [False, True])
def test_a_run_by_the_clock_is_made_again_in_steps(stall: bool, tmp_path: Path) -> None:
    """What the clock decided, written down as steps, gives the same weights: decay by the clock, and by a stall."""

    def trained(folder: str, optimizer: Optimizer, **train: Any) -> Trainer:
        def validate(done: Done) -> dict[str, Any]:
            return {"loss": 1.0 + abs(trainer.step - 40) / 100 if stall else 1.0 / trainer.step}

        trainer = trainer_of("bow", tmp_path / folder, validate=validate, patience=3, optimizer=optimizer, **train)
        run(trainer)
        return trainer

    timed = trained("timed", WSD, steps=0, seconds=20.0 if stall else 0.3, every=8)
    settled = timed.settled()
    assert (timed.budget.decay_at == 64) == stall
    again = trained("again", replace(WSD, decay=settled.pop("decay")), **settled)
    assert again.step == timed.step
    assert again.best["step"] == timed.best["step"]
    assert equal(weights(again), weights(timed))


def test_decisions_are_judged_by_accuracy_and_then_by_loss(tmp_path: Path) -> None:
    found = [(1.0, 0.5), (0.9, 0.4), (1.2, 0.6), (1.1, 0.6), (1.3, 0.6), (math.nan, 0.9)]
    told = iter(found)

    def validate(done: Done) -> dict[str, Any]:
        loss, accuracy = next(told)
        return {"loss": loss, "accuracy": accuracy}

    trainer = trainer_of("window_tagger", tmp_path, validate=validate, steps=len(found), every=1)
    for _ in trainer.fit():
        pass
    assert (trainer.best["step"], trainer.best["since"]) == (4, 2)


def test_validation_tells_how_far_it_is(tmp_path: Path) -> None:
    shares: list[float] = []

    def validate(done: Done) -> dict[str, Any]:
        done(0.5)
        return {"loss": 1.0}

    trainer = trainer_of("rnn_lm", tmp_path, validate=validate, steps=4, every=2)
    trainer.validating = shares.append
    run(trainer)
    assert shares == [0.5, 0.5]


def test_the_best_weights_are_taken_without_dropout(tmp_path: Path) -> None:
    trainer = trainer_of("rnn_lm", tmp_path, dropout=0.5, validate=Figures(3.0, 1.0, 2.0), every=3)
    run(trainer)
    assert not equal(weights(trainer), trainer.best_weights)
    trainer.take_best()
    assert equal(weights(trainer), trainer.best_weights) and not trainer.model.training
    summary = trainer.summary()
    assert (summary["best_step"], summary["validation_loss"], summary["steps"]) == (6, 1.0, 9)
    assert summary["parameters"] == sum(p.numel() for p in trainer.model.parameters())

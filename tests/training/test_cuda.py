"""Whether compiling pays is decided once, by the pace of some steps and what is left; who waits is not recorded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.batches.batches import Config as Layout
from segue.batches.rows import Rows
from segue.batches.store import StoreWriter
from segue.batches.streams import Streams
from segue.models.base import Sizes
from segue.models.rnn_lm import RnnLm
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.tasks.seq2seq import TASK
from segue.training import cuda
from segue.training.cuda import LONG, MOST, PACE, Compiler, Graphs, ahead, may_record, sent, shapes_of
from segue.training.trainer import Config, Trainer

STREAMS: Any = SimpleNamespace(config=SimpleNamespace(size=4, length=8), shapes=1)


def model(regions: int = 2) -> Any:
    return SimpleNamespace(regions=[object()] * regions)


def test_there_is_nothing_to_decide_off_a_gpu_or_without_regions() -> None:
    assert Compiler(model(), "cuda", STREAMS).waits
    assert not Compiler(model(), "cpu", STREAMS).waits
    assert not Compiler(model(0), "cuda", STREAMS).waits
    assert not Compiler(SimpleNamespace(regions=[]), "cuda", STREAMS).waits


@pytest.mark.parametrize(("shapes", "compiles"), [(1, True), (40, False), (None, False)])
def test_rows_of_many_shapes_are_not_compiled(shapes: int | None, compiles: bool) -> None:
    class Pairs(Rows):
        def __init__(self) -> None:
            self.config = Layout(size=4, length=8)

        @property
        def shapes(self) -> int | None:
            return shapes

    assert Compiler(model(), "cuda", Pairs()).waits is compiles


@pytest.mark.parametrize(("steps_left", "pays"), [(10_000, True), (100, False)])
def test_a_run_is_compiled_where_the_rest_of_it_is_long(steps_left: int, pays: bool) -> None:
    compiler = Compiler(model(), "cuda", STREAMS)
    second_a_step = 0.1
    assert (steps_left * second_a_step > LONG) == pays
    for step in range(10, 10 + PACE, 10):
        assert not compiler.pays(step, step * second_a_step, lambda pace: pace * steps_left) and compiler.waits
    assert compiler.pays(10 + PACE, (10 + PACE) * second_a_step, lambda pace: pace * steps_left) == pays
    assert not compiler.waits


def test_the_pace_leaves_the_first_steps_out() -> None:
    compiler, paces = Compiler(model(), "cuda", STREAMS), []
    compiler.pays(10, 100.0, paces.append)  # type: ignore[arg-type]
    compiler.pays(10 + PACE, 100.0 + 2.0, lambda pace: paces.append(pace) or 0.0)  # type: ignore[func-returns-value]
    assert paces == [2.0 / PACE]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which graphs were recorded and replayed, without a GPU."""
    done: list[str] = []

    class Graph:
        def __init__(self, *_: Any) -> None:
            done.append("recorded")

        def replay(self, batch: Any, counts: Any) -> None:
            done.append("replayed")

    monkeypatch.setattr(cuda, "_Graph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 1)

    def watch(mode: str) -> None:
        done.append(mode)
        if mode == "warn":
            warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", watch)
    return done


class Placed(Batch):
    """A batch for which this machine is the GPU."""

    def to(self, device: Any) -> Batch:
        return self


def batch(length: int = 3) -> Batch:
    tokens_BT = np.zeros((2, length), np.int64)
    return Placed(tokens_BT, tokens_BT, tokens_BT == 0)


def test_a_step_is_written_once_and_then_recorded(recorded: list[str]) -> None:
    graphs = Graphs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            graphs.run(batch(), {}, [], lambda batch, counts, carried: carried)
    assert recorded == ["warn", "default", "recorded", "replayed", "replayed"]


def test_other_warnings_of_a_step_are_not_lost(recorded: list[str]) -> None:
    def step(batch: Batch, counts: Any, carried: list[Any]) -> list[Any]:
        warnings.warn("something else", stacklevel=1)
        return carried

    graphs = Graphs()
    with pytest.warns(UserWarning, match="^something else$"):
        graphs.run(batch(), {}, [], step)
    assert not graphs.waits


def test_a_step_that_waits_for_the_device_stays_as_it_is_written(recorded: list[str]) -> None:
    """As torch tells it, in its debug mode; said once."""
    graphs, steps = Graphs(), []

    def step(batch: Batch, counts: Any, carried: list[Any]) -> list[Any]:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        steps.append(batch)
        return carried

    with pytest.warns(UserWarning, match=r"test_cuda\.py:\d+.* cannot be recorded") as said:
        graphs.run(batch(), {}, [], step)
    assert len(said) == 1
    for _ in range(3):
        with pytest.warns(UserWarning, match="^called"):  # the step's own word, which nobody looks at any more
            graphs.run(batch(), {}, [], step)
    assert len(steps) == 4 and recorded == ["warn", "default"]


def test_every_shape_has_a_graph_of_its_own(recorded: list[str]) -> None:
    graphs = Graphs()
    for length in (3, 4, 3, 4, 3):
        graphs.run(batch(length), {}, [], lambda batch, counts, carried: carried)
    assert recorded == ["warn", "default"] * 2 + ["recorded", "replayed"] * 2 + ["replayed"]


# What a recorded step is sent


@dataclass(frozen=True)
class Later(Batch):
    """A batch with fields that nobody has thought of yet."""

    segments_BT: Any = None
    places_BK: Any = None


def whole(kind: type[Batch]) -> Batch:
    """A batch in which every array is there; those of the one type are told from the others by their numbers."""
    names = [field.name for field in fields(kind) if field.name not in ("unpadded", "source_unpadded", "count")]
    return kind(**{name: np.full((2, 3), i) for i, name in enumerate(names)})


@pytest.mark.parametrize("kind", [Batch, Later])
def test_a_recorded_step_is_sent_every_array(kind: type[Batch]) -> None:
    """Else it would replay the old one in silence."""
    given = whole(kind)
    *arrays, counts = sent(given, {"cross_entropy": 7, "ar": 9})
    for field in fields(kind):
        value = getattr(given, field.name)
        assert isinstance(value, bool | int) or any(array is value for array in arrays), field.name
    assert len(arrays) == len(fields(kind)) - 3
    assert counts.tolist() == [7, 9] and counts.dtype == np.float64


@pytest.mark.parametrize("kind", [Batch, Later])
def test_a_graph_is_for_the_shapes_of_all_arrays(kind: type[Batch]) -> None:
    given = whole(kind)
    assert shapes_of(given) == shapes_of(replace(given, count=5))
    keys = [shapes_of(given), *(shapes_of(replace(given, **{flag: True})) for flag in ("unpadded", "source_unpadded"))]
    for name in given.arrays():
        keys += [shapes_of(replace(given, **{name: array})) for array in (np.zeros((2, 4)), np.zeros((3, 3)), None)]
    assert len(set(keys)) == len(keys) == 3 + 3 * len(given.arrays())


@pytest.mark.parametrize(("shapes", "records"), [(1, True), (MOST, True), (MOST + 1, False), (None, False)])
def test_steps_of_few_shapes_are_recorded(shapes: int | None, records: bool) -> None:
    batches: Any = SimpleNamespace(shapes=shapes)
    assert may_record(batches, "cuda") == records
    assert not may_record(batches, "cpu")


# Training by replays, the graph being a step that is done again on the same tensors


class Again:
    """A recorded step without a GPU: reads what was sent from tensors that stay where they are, as a graph does."""

    def __init__(self, batch: Batch, counts: Mapping[str, int], step: Any, pool: Any) -> None:
        parts = [torch.from_numpy(np.array(part)) for part in sent(batch, counts)]
        self.places = [torch.empty_like(part) for part in parts]
        self.batch = replace(batch, **dict(zip(batch.arrays(), self.places, strict=False)))
        self.counts = dict(zip(counts, self.places[-1].unbind(), strict=True))
        self.step = step

    def replay(self, batch: Batch, counts: Mapping[str, int]) -> None:
        for place, part in zip(self.places, sent(batch, counts), strict=True):
            place.copy_(torch.from_numpy(np.array(part)))
        self.step(self.batch, self.counts)


def trained(kind: str, folder: Path, replays: bool) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and losses after some epochs of batches that are padded, or that carry a state."""
    draw = np.random.default_rng(3)
    lengths = draw.integers(1, 10, 40)
    text = draw.integers(2, 12, lengths.sum())
    writer = StoreWriter(folder, {"text": "int32", "source": "int32"})
    writer.append("text", text, lengths)
    writer.append("source", text[::-1], lengths[::-1])
    torch.manual_seed(0)
    batches: Batches
    if kind == "rnn_lm":
        model: Any = RnnLm(RnnLm.Config(width=6, embedding=5), Sizes(12))
        batches = Streams(writer.close(), Layout(4, 5), seed=1)
    else:
        model = RnnSeq2seq(RnnSeq2seq.Config(width=6), Sizes(12))
        layout = Layout(size=9, length=99, tokens=64)
        batches = TASK.batches(writer.close(), layout, 1)
    trainer = Trainer(model, batches, Config(steps=40, log_every=1), None, "cpu")
    trainer._records = replays
    losses = [record.values["cross_entropy"] for record in trainer.fit() if record.kind == "train"]
    return model.state_dict(), losses


@pytest.mark.parametrize("kind", ["rnn_lm", "rnn_seq2seq"])
def test_replayed_steps_train_as_others_do(
    kind: str, tmp_path: Path, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, though batches of one shape differ in what they hold and in how many targets they have."""
    expected, losses = trained(kind, tmp_path, replays=False)
    placed, graphs = Batch.to, []
    monkeypatch.setattr(Batch, "to", lambda self, device: placed(self, "cpu"))
    monkeypatch.setattr(cuda, "_Graph", lambda *given: graphs.append(Again(*given)) or graphs[-1])
    found, again = trained(kind, tmp_path, replays=True)
    assert len(graphs) > 1 and again == losses
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_large_batches_wait_for_the_device_in_fewer_copies() -> None:
    """32 copies of a batch of sound would take gigabytes."""
    assert ahead([np.zeros((64, 40), np.int64), np.zeros(3)]) == 32
    assert ahead([np.zeros((64, 100, 80), np.float32)]) == (1 << 25) // (64 * 100 * 80 * 4)
    assert ahead([np.zeros((64, 3000, 80), np.float32)]) == 2

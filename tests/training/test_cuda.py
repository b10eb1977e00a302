"""Whether compiling pays is decided once, by the pace of some steps and what is left; who waits is not recorded."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from segue.training import cuda
from segue.training.cuda import LONG, PACE, Compiler, Graphs


def model(regions: int = 2) -> Any:
    return SimpleNamespace(regions=[object()] * regions)


def test_there_is_nothing_to_decide_off_a_gpu_or_without_regions() -> None:
    assert Compiler(model(), "cuda", (4, 8)).waits
    assert not Compiler(model(), "cpu", (4, 8)).waits
    assert not Compiler(model(0), "cuda", (4, 8)).waits
    assert not Compiler(SimpleNamespace(), "cuda", (4, 8)).waits


@pytest.mark.parametrize(("steps_left", "pays"), [(10_000, True), (100, False)])
def test_a_run_is_compiled_where_the_rest_of_it_is_long(steps_left: int, pays: bool) -> None:
    compiler = Compiler(model(), "cuda", (4, 8))
    second_a_step = 0.1
    assert (steps_left * second_a_step > LONG) == pays
    for step in range(10, 10 + PACE, 10):
        assert not compiler.pays(step, step * second_a_step, lambda pace: pace * steps_left) and compiler.waits
    assert compiler.pays(10 + PACE, (10 + PACE) * second_a_step, lambda pace: pace * steps_left) == pays
    assert not compiler.waits


def test_the_pace_leaves_the_first_steps_out() -> None:
    compiler, paces = Compiler(model(), "cuda", (4, 8)), []
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

        def replay(self, batch: Any) -> None:
            done.append("replayed")

    monkeypatch.setattr(cuda, "_Graph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 1)

    def watch(mode: str) -> None:
        done.append(mode)
        if mode == "warn":
            warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", watch)
    return done


def batch() -> Any:
    found = SimpleNamespace(tokens_BT=torch.zeros(2, 3))
    found.to = lambda device: found
    return found


def test_a_step_is_written_once_and_then_recorded(recorded: list[str]) -> None:
    graphs = Graphs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            graphs.run(batch(), [], lambda batch, carried: carried)
    assert recorded == ["warn", "default", "recorded", "replayed", "replayed"]


def test_other_warnings_of_a_step_are_not_lost(recorded: list[str]) -> None:
    def step(batch: Any, carried: list[Any]) -> list[Any]:
        warnings.warn("something else", stacklevel=1)
        return carried

    graphs = Graphs()
    with pytest.warns(UserWarning, match="^something else$"):
        graphs.run(batch(), [], step)
    assert not graphs.waits


def test_a_step_that_waits_for_the_device_stays_as_it_is_written(recorded: list[str]) -> None:
    """As torch tells it, in its debug mode; said once."""
    graphs, steps = Graphs(), []

    def step(batch: Any, carried: list[Any]) -> list[Any]:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        steps.append(batch)
        return carried

    with pytest.warns(UserWarning, match=r"test_cuda\.py:\d+.* cannot be recorded") as said:
        graphs.run(batch(), [], step)
    assert len(said) == 1
    for _ in range(3):
        with pytest.warns(UserWarning, match="^called"):  # the step's own word, which nobody looks at any more
            graphs.run(batch(), [], step)
    assert len(steps) == 4 and recorded == ["warn", "default"]

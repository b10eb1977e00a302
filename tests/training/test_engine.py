"""Whether compiling pays is decided once, by the pace of some steps and what is left of the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from segue.training.engine import LONG, PACE, Compiler


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

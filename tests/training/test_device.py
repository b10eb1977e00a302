"""Threads: how many are used, who says so, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import segue
from segue.cli import app
from segue.training import device as devices

TEXT = ["The cows eat grass.", "The cow eats.", "A farmer sees the cows.", "Grass is green."] * 4
TINY = {"model.width": 8, "batches.size": 2, "batches.length": 8, "train.steps": 2, "tokens.kind": "char"}


def test_threads_are_those_of_the_block_only() -> None:
    before = torch.get_num_threads()
    with devices.using_threads(2):
        assert torch.get_num_threads() == devices.asked_threads() == 2
        with devices.using_threads(0):
            torch.set_num_threads(1)
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before and not devices.asked_threads()


def test_a_run_says_its_threads_and_gives_them_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    segue.train("rnn_lm", TEXT, tmp_path / "run", TINY, device="cpu", threads=2)
    assert json.loads((tmp_path / "run/environment.json").read_text())["threads"] == 2
    assert torch.get_num_threads() == before


def test_every_verb_that_computes_takes_threads() -> None:
    commands = typer.main.get_group(app).commands
    computes = ["train", "compare", "claim", "evaluate", "score", "generate", "predict", "challenge", "look", "serve"]
    for name in computes:
        assert "threads" in {option.name for option in commands[name].params}, name


def test_the_threads_of_a_comparison_reach_its_runs(tmp_path: Path) -> None:
    segue.compare(TEXT, ["rnn_lm"], "2", out=tmp_path / "c", settings=TINY | {"data.test": 0.2}, threads=2)
    made = json.loads(next(tmp_path.glob("c/*/environment.json")).read_text())
    assert made["threads"] == 2


def test_word_vectors_take_the_threads_of_a_comparison_too(tmp_path: Path) -> None:
    with devices.using_threads(3):
        run = segue.train("word2vec", TEXT, tmp_path / "run", {"model.width": 4, "tokens.min_count": 1})
    assert run.recipe.train.threads == 3


@pytest.mark.parametrize("threads", [-1, 4 * (os.cpu_count() or 1) + 1, 99_999])
def test_more_threads_than_cores_can_use_are_refused(threads: int) -> None:
    with pytest.raises(segue.InputError, match="Expected 1 to"):
        devices.check_threads(threads)


# The choice of a run that names no threads


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only goes on when it is told to, and two threads that are never really used."""
    now, threads = [0.0], [2]
    monkeypatch.setattr(devices.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(devices, "use", lambda count: threads.__setitem__(0, count))
    monkeypatch.setattr(devices, "threads_in_use", lambda: threads[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "most", "chosen"),
    [
        ({1: 0.10, 2: 0.06}, 2, 2),
        ({1: 0.10, 2: 0.11}, 2, 2),  # not clearly quicker: it may be chance
        ({1: 0.10, 2: 0.30}, 2, 1),
        ({1: 9.0, 2: 5.0, 4: 3.0, 6: 4.0}, 6, 4),
    ],
)
def test_fewer_threads_are_taken_if_they_are_clearly_quicker(
    clock: list[float], seconds: dict[int, float], most: int, chosen: int
) -> None:
    def step() -> None:
        clock[0] += seconds[devices.threads_in_use()]

    count, share = devices.quickest(step, most)
    assert count == chosen and share == pytest.approx(seconds[most] / seconds[chosen])


def test_the_trial_does_not_change_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And what it chose is written into the run, said, and kept when the run goes on."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(devices.Others, "cores", lambda self: 1.5)
    tried: list[int] = []

    def quickest(step: Callable[[], Any], most: int) -> tuple[int, float]:
        tried.append(most)
        for _ in range(3):
            step()
        return 1, 2.5

    monkeypatch.setattr(devices, "quickest", quickest)
    said: list[str] = []
    with devices.using_threads(0):
        devices.use(2)
        settings = TINY | {"model.dropout": 0.3}
        run = tmp_path / "tried"
        segue.train(
            "rnn_lm", TEXT, run, settings, device="cpu", progress=lambda what, share, note="": said.append(what)
        )
        assert tried == [2] and [line for line in said if "1.5 cores" in line and "1 of 2 threads" in line]
        assert json.loads((run / "environment.json").read_text())["threads"] == 1
        segue.train("rnn_lm", TEXT, tmp_path / "named", settings, device="cpu", threads=1)
        assert (run / "model.safetensors").read_bytes() == (tmp_path / "named/model.safetensors").read_bytes()
        segue.train(None, out=run, settings={"train.steps": 4}, resume=True, device="cpu")
        assert tried == [2] and json.loads((run / "environment.json").read_text())["threads"] == 1


def test_a_run_keeps_its_threads(tmp_path: Path) -> None:
    """Another number gives other last bits."""
    segue.train("rnn_lm", TEXT, tmp_path / "run", TINY, device="cpu", threads=2)
    used: list[int] = []

    def look(what: str, share: float, note: str = "") -> None:
        if what.startswith("training"):
            used.append(torch.get_num_threads())

    segue.train(None, out=tmp_path / "run", settings={"train.steps": 4}, resume=True, device="cpu", progress=look)
    assert used and set(used) == {2}


def test_a_quiet_machine_and_a_named_number_need_no_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(step: Any, most: int) -> Any:
        raise AssertionError("a trial was made")

    monkeypatch.setattr(devices, "quickest", never)
    monkeypatch.setattr(devices.Others, "cores", lambda self: 2.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with devices.using_threads(0):
        devices.use(2)
        segue.train("rnn_lm", TEXT, tmp_path / "named", TINY, device="cpu")
        monkeypatch.delenv("OMP_NUM_THREADS")
        monkeypatch.setattr(devices.Others, "cores", lambda self: 0.1)
        segue.train("rnn_lm", TEXT, tmp_path / "quiet", TINY, device="cpu")
    assert json.loads((tmp_path / "quiet/environment.json").read_text())["threads"] == 2


def test_the_cores_that_others_keep_busy(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[float | None] = [100.0]
    monkeypatch.setattr(devices, "_computed_by_others", lambda: computed[0])
    others = devices.Others()
    clock[0], computed[0] = 0.1, 100.1
    assert others.cores() is None  # too short a time
    clock[0], computed[0] = 2.0, 103.0
    assert others.cores() == pytest.approx(1.5)
    computed[0] = 99.0  # a system that does not count: this process alone has computed more
    assert others.cores() is None
    computed[0] = None
    assert others.cores() is None


def test_threads_are_halved_when_the_pace_falls(clock: list[float]) -> None:
    pace = devices.FallingPace()
    assert pace.look(1000, 1.0) == 0  # too soon to tell
    assert pace.look(2000, 2.0) == 0  # 1,000 targets a second
    assert pace.look(3200, 4.0) == 0  # 600: slower, but not twice
    assert pace.look(4000, 6.0) == 1  # 400
    assert devices.threads_in_use() == 1
    assert pace.look(4400, 8.0) == 0 == pace.look(4500, 10.0)  # fewer than one there are not


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_only_a_run_in_seconds_changes_its_threads(
    seconds: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(devices.Others, "cores", lambda self: 0.0)
    monkeypatch.setattr(devices.FallingPace, "look", lambda self, targets, seconds: 1)
    said: list[str] = []
    settings = TINY | {"train.seconds": seconds, "train.log_every": 2}
    progress = lambda what, share, note="": said.append(what)  # noqa: E731
    segue.train("rnn_lm", TEXT, tmp_path / "run", settings, device="cpu", progress=progress)
    assert any("uses 1 thread from step 2 on" in line for line in said) == bool(seconds)


def test_threads_that_wait_sleep_soon() -> None:
    """OpenMP reads it when torch is loaded, so that it must be set before; what the user says stays."""
    program = "import os, segue, sys; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    chosen = ("1000", "30000")  # by how busy the machine is
    for own, expected in (({}, chosen), ({"GOMP_SPINCOUNT": "7"}, ("7",)), ({"OMP_WAIT_POLICY": "active"}, ("None",))):
        clean = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        said = subprocess.run(
            [sys.executable, "-c", program], env=clean | own, capture_output=True, text=True, check=True
        )
        spins, loaded = said.stdout.split()
        assert spins in expected and loaded == "False"


def test_a_verb_leaves_room_for_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for busy, left in ((None, 4), (0.2, 4), (1.1, 3), (7.0, 1)):
        with devices.using_threads(4):
            devices._asked = 0
            monkeypatch.setattr(devices.Others, "cores", lambda others, busy=busy: busy)
            devices.leave_room()
            assert devices.threads_in_use() == left
    with devices.using_threads(4):  # who names a number gets it
        devices.leave_room()
        assert devices.threads_in_use() == 4

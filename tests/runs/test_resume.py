"""A run that is killed at any moment and resumed ends in the same bytes as one that was never killed.

Starting Python and torch takes longer than the runs here. So a `Stable` holds a process that has imported everything
and done nothing; each run is a fork of it, killed by a real SIGKILL: by the clock, or by itself at the n-th time that
it touches the disk, half-way through writing a file where it writes one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from segue.runs.folder import locked
from segue.training.log import read_metrics

TINY = [
    *("model.width=8", "model.embedding=6", "model.layers=2", "model.dropout=0.3", "tokens.kind=char"),
    *("batches.size=4", "batches.length=8", "train.log_every=2", "train.seed=3", "--device", "cpu"),
]
STEPS, EVERY = 60, 4
STABLE = r"""
import gc, json, os, signal, sys, time
from pathlib import Path
import torch, segue.cli, segue.runs.train, segue.runs.run, segue.runs.gather, segue.look.terminal
import segue.inference.score, segue.inference.decode
import segue.inference.stop_texts, segue.models.rnn_lm, segue.training.trainer, torch._dynamo
from segue.training import checkpoint
from segue.recipe import load_recipe, to_toml

to_toml(load_recipe("rnn_lm"))  # reads the sources of all sections, once for all runs
sys.stdout, kept = open(os.devnull, "w"), sys.stdout
segue.cli.main(["explain", "rnn_lm"])  # loads what the command line loads late
sys.stdout = kept
gc.freeze()  # or the collector of each fork would copy all pages

def fault_at(number):
    '''Dies at the number-th time that it touches the disk.'''
    count = 0
    def dies():
        nonlocal count
        count += 1
        return count == number
    def before(module, name):
        old = getattr(module, name)
        def new(*args, **kwargs):
            if dies():
                os.kill(os.getpid(), signal.SIGKILL)
            return old(*args, **kwargs)
        setattr(module, name, new)
    def half(module, name):
        old = getattr(module, name)
        def new(path, content, *args, **kwargs):
            if dies():
                old(path, content[: len(content) // 2], *args, **kwargs)
                os.kill(os.getpid(), signal.SIGKILL)
            return old(path, content, *args, **kwargs)
        setattr(module, name, new)
    for name in ("fsync", "rename", "replace", "rmdir", "unlink", "mkdir"):
        before(os, name)
    for module, name in ((Path, "write_text"), (Path, "write_bytes"), (checkpoint, "_write")):
        half(module, name)

def child(job):
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(job["log"] + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if job["fault"]:
        fault_at(job["fault"])
    sys.argv = ["segue", *job["args"]]
    code = segue.cli.main()
    sys.stdout.flush()
    os._exit(code)

for line in sys.stdin:
    job = json.loads(line)
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        child(job)
    if job["delay"] is not None:
        time.sleep(job["delay"])
        os.kill(pid, job["signal"])
    status = os.waitpid(pid, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps([code, time.monotonic() - begun]), flush=True)
"""


class End(NamedTuple):
    """How a run ended: its exit code, or minus the signal; what it took, and what it said."""

    code: int
    seconds: float
    stdout: str
    stderr: str


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


class Stable:
    """Runs of `segue`, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.log = str(folder / "log-")
        self.process = subprocess.Popen(
            [sys.executable, "-c", STABLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    def run(self, *args: str, fault: int = 0, delay: float | None = None, by: int = signal.SIGKILL) -> End:
        assert self.process.stdin
        assert self.process.stdout
        job = {"args": args, "fault": fault, "delay": delay, "signal": by, "log": self.log}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        code, seconds = json.loads(self.process.stdout.readline())
        return End(code, seconds, *(Path(self.log + name).read_text() for name in ("stdout", "stderr")))


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stable]:
    stable = Stable(tmp_path_factory.mktemp("stable"))
    yield stable
    stable.process.stdin.close()
    stable.process.wait(10)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    words = random.Random(0).choices(["the", "cow", "eats", "green", "grass", "and", "sings", "über", "hills"], k=400)
    path.write_text(" ".join(words) + "\n", encoding="utf-8")
    return path


def command(text: Path, out: Path, *more: str, steps: int = STEPS, every: int = EVERY) -> list[str]:
    """A small run, begun or gone on with; `more` comes last and so counts most."""
    settings = [*TINY, f"train.steps={steps}", f"train.every={every}"]
    return ["train", "rnn_lm", str(text), "--out", str(out), "--resume", *settings, *more]


def finish(stable: Stable, *args: str) -> End:
    end = stable.run(*args)
    assert end.code == 0, end.stderr
    return end


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


class Whole(NamedTuple):
    """A run that was never killed."""

    out: Path
    seconds: float


@pytest.fixture(scope="module")
def whole(stable: Stable, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    out = tmp_path_factory.mktemp("whole") / "run"
    return Whole(out, finish(stable, *command(text, out)).seconds)


def check(out: Path, whole: Path) -> None:
    """The same weights and the same records, none twice; nothing left of what was being written."""
    assert weights(out) == weights(whole)
    records, expected = (
        [{**record, "seconds": 0, "progress": 0} for record in read_metrics(folder)] for folder in (out, whole)
    )
    assert records == expected
    assert not list(out.glob("checkpoints/.*"))


# Killed


def test_twenty_kills_at_random_moments(stable: Stable, text: Path, whole: Whole, tmp_path: Path) -> None:
    """Moments over a run's whole life. A run that gets to its end before is checked, and another one begun."""
    draw = random.Random(1)
    kills = finished = code = 0
    while kills < 22 or code != 0:
        out = tmp_path / str(finished)
        delay = draw.uniform(0, whole.seconds) if kills < 22 else None
        code, _, _, stderr = stable.run(*command(text, out), delay=delay)
        assert code in (0, -signal.SIGKILL), stderr
        if code == 0:
            check(out, whole.out)
            finished += 1
        else:
            kills += 1


def test_killed_at_every_touch_of_the_disk(stable: Stable, text: Path, tmp_path: Path) -> None:
    """One kill after the other: at the first touch, then at the second, and so on, to the last that a run makes."""
    small = {"steps": 6, "every": 2}
    whole = tmp_path / "whole"
    finish(stable, *command(text, whole, **small))
    kills = finished = in_saving = 0
    unkilled = False
    while not unkilled:
        out = tmp_path / str(finished)
        unkilled = not out.exists()
        code, _, _, stderr = stable.run(*command(text, out, **small), fault=kills + 1)
        assert code in (0, -signal.SIGKILL), f"after a kill at touch {kills}: {stderr}"
        if code == 0:
            check(out, whole)
            finished += 1
        else:
            unkilled = False
            kills += 1
            in_saving += bool(list(out.glob("checkpoints/.writing-*")))
    assert kills >= 60
    assert in_saving >= 30


def test_lines_as_rows_go_on_bit_for_bit(stable: Stable, tmp_path: Path) -> None:
    """Each line by itself (data.carry=false): nothing is carried from step to step, and the batches are the same."""
    draw, text = random.Random(2), tmp_path / "lines.txt"
    text.write_text("".join("".join(draw.choices("abc ", k=draw.randint(1, 12))) + "z\n" for _ in range(150)))
    small = {"steps": 8, "every": 2}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(stable, *command(text, whole, "data.unit=line", **small))
    kills = 0
    for fault in (30, 12, 0):
        code, _, _, stderr = stable.run(*command(text, killed, "data.unit=line", **small), fault=fault)
        assert code in (0, -signal.SIGKILL), stderr
        kills += code != 0
    assert kills >= 2
    check(killed, whole)


def test_masks_and_next_sentences_go_on_bit_for_bit(stable: Stable, text: Path, tmp_path: Path) -> None:
    """They are a function of seed and place, so that a killed run of a masked language model reads the same."""
    settings = ["tokens.kind=char", "batches.size=4", "batches.length=16", "model.next_sentence=true"]
    settings += ["model.width=8", "model.heads=2", "model.layers=1", "model.context=16", "model.dropout=0.1"]
    settings += ["train.steps=8", "train.every=2", "train.validate_tokens=100"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(stable, "train", "bert", str(text), "--out", str(whole), *settings)
    kills = 0
    for fault in (30, 12, 0):
        end = stable.run("train", "bert", str(text), "--out", str(killed), "--resume", *settings, fault=fault)
        assert end.code in (0, -signal.SIGKILL), end.stderr
        kills += end.code != 0
    assert kills >= 2
    check(killed, whole)


def begin(text: Path, out: Path) -> subprocess.Popen[str]:
    """`python -m segue train …`, given back when it has saved its first checkpoint."""
    arguments = [sys.executable, "-m", "segue", *command(text, out)]
    process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("checkpoints/step-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    return process


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_the_command_itself(by: int, stable: Stable, text: Path, whole: Whole, tmp_path: Path) -> None:
    """As a user runs it; Ctrl-C is one message and a run that goes on."""
    out = tmp_path / "run"
    process = begin(text, out)
    process.send_signal(by)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if by == signal.SIGKILL else 1)
    assert not (out / "result.json").exists()
    if by == signal.SIGINT:
        assert "--resume" in stderr
        assert "Traceback" not in stderr
    # The shortest way to go on names only the folder.
    finish(stable, "train", "--out", str(out), "--resume")
    check(out, whole.out)


def test_a_damaged_checkpoint_is_named_and_passed_over(
    stable: Stable, text: Path, whole: Whole, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = begin(text, out)
    process.kill()
    process.communicate()
    last = max(out.glob("checkpoints/step-*"))
    path = last / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    end = finish(stable, *command(text, out))
    assert f"{last} is damaged" in end.stderr
    check(out, whole.out)


# Finished, changed, grown, taken


@pytest.fixture
def done(whole: Whole, tmp_path: Path) -> Path:
    """A finished run that a test may change."""
    return Path(shutil.copytree(whole.out, tmp_path / "done"))


def listing(out: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in out.rglob("*") if p.name != ".lock"}


def refused(end: End, *words: str) -> None:
    assert end.code == 2
    assert all(word in end.stderr for word in words), end.stderr
    assert "Traceback" not in end.stderr
    assert len(end.stderr.strip().splitlines()) == 1


def test_a_finished_run_says_so(stable: Stable, text: Path, done: Path) -> None:
    before = listing(done)
    for args in (command(text, done), ["train", "--out", str(done), "--resume"]):
        assert "This run was finished before" in finish(stable, *args).stdout
    result = json.loads(finish(stable, *command(text, done, "--json")).stdout)["result"]
    assert result["steps"] == STEPS
    assert listing(done) == before


def test_changed_data_is_refused(stable: Stable, text: Path, tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.txt", tmp_path / "run"
    shutil.copy(text, mine)
    assert stable.run(*command(mine, out, steps=8), fault=60).code == -signal.SIGKILL
    assert (out / "ledger.json").exists()
    before = listing(out)
    mine.write_text(mine.read_text(encoding="utf-8").replace("cow", "gnu", 1), encoding="utf-8")
    refused(stable.run(*command(mine, out, steps=8)), str(mine), "changed")
    assert listing(out) == before
    shutil.copy(text, mine)
    finish(stable, *command(mine, out, steps=8))


@pytest.mark.parametrize("setting", ["model.width=9", "train.seed=4", "batches.size=5", "train.optimizer.rate=0.1"])
def test_another_recipe_is_refused(setting: str, stable: Stable, text: Path, done: Path) -> None:
    before = listing(done)
    refused(stable.run(*command(text, done, setting)), setting.partition("=")[0], "another recipe")
    assert listing(done) == before


def test_without_resume_a_run_is_never_overwritten(stable: Stable, text: Path, done: Path) -> None:
    before = listing(done)
    refused(stable.run(*(word for word in command(text, done) if word != "--resume")), "already holds a run")
    assert listing(done) == before


def test_a_larger_budget_goes_on(stable: Stable, text: Path, done: Path) -> None:
    old = weights(done)
    finish(stable, *command(text, done, steps=STEPS + 40))
    assert json.loads((done / "result.json").read_text())["steps"] == STEPS + 40
    steps = [record["step"] for record in read_metrics(done) if record["kind"] == "train"]
    assert steps == list(range(2, STEPS + 41, 2))
    assert weights(done) != old


def test_a_larger_budget_that_is_killed_is_not_finished(stable: Stable, text: Path, done: Path) -> None:
    """The result of the smaller budget must not pass for that of the larger one."""
    grown = command(text, done, steps=STEPS + 40)
    expected = Path(shutil.copytree(done, done.with_name("expected")))
    finish(stable, *command(text, expected, steps=STEPS + 40))
    assert stable.run(*grown, fault=60).code == -signal.SIGKILL
    end = finish(stable, *grown)
    assert "was finished before" not in end.stdout
    check(done, expected)


@pytest.mark.parametrize("resume", [True, False])
def test_two_writers_are_kept_apart(resume: bool, stable: Stable, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    args = [word for word in command(text, out, steps=8) if resume or word != "--resume"]
    with locked(out):
        refused(stable.run(*args), "Another process")
    finish(stable, *args)

"""Ctrl-C and SIGTERM during training: the very step is kept, the message names the command, and no bit is lost."""

import json
import os
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.training import checkpoint, log
from segue.training.interrupt import Interrupts
from segue.training.trainer import Trainer

TEXT = ["The cows eat grass.", "The cow eats.", "A farmer sees the cows.", "Grass is green."] * 4
SETTINGS = {
    "model.width": 8,
    "model.dropout": 0.2,
    "batches.size": 2,
    "batches.length": 8,
    "train.steps": 20,
    "train.every": 6,
    "train.log_every": 4,
    "train.optimizer.ema": 0.9,
    "tokens.kind": "char",
    "data.validation": 0.2,
}
LAST = "model.safetensors"


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Let a signal come in the middle of a step."""

    def interrupt(step: int, number: int) -> None:
        whole = Trainer._begin_step

        def begin(self: Trainer, parts: Any) -> Any:
            if self.step == step - 1:
                send(number)
            return whole(self, parts)

        monkeypatch.setattr(Trainer, "_begin_step", begin)

    return interrupt


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    segue.train("rnn_lm", TEXT, out, SETTINGS, device="cpu")
    return out


def records(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def resumed(run: Path, whole: Path) -> None:
    """Go on, and compare with the run that nobody interrupted."""
    segue.train(None, out=run, resume=True, device="cpu")
    assert (run / LAST).read_bytes() == (whole / LAST).read_bytes()
    assert records(run) == records(whole)


@pytest.mark.parametrize(("step", "number"), [(3, signal.SIGINT), (10, signal.SIGTERM), (12, signal.SIGINT)])
def test_the_very_step_is_kept(at: Any, step: int, number: int, uninterrupted: Path, tmp_path: Path) -> None:
    at(step, number)
    with pytest.raises(KeyboardInterrupt) as error:
        segue.train("rnn_lm", TEXT, tmp_path / "run", SETTINGS, device="cpu")
    said = f"Step {step} is saved. Go on with: segue train --out {tmp_path / 'run'} --resume"
    assert error.value.__notes__ == [said]
    assert (tmp_path / f"run/checkpoints/step-{step:08d}").is_dir()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed(tmp_path / "run", uninterrupted)


def test_a_dropped_validation_is_made_when_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, uninterrupted: Path, tmp_path: Path
) -> None:
    shown = log.Log._validating

    def validating(self: log.Log, share: float) -> None:
        if self.trainer.step == 12:
            send(signal.SIGINT)
        shown(self, share)

    monkeypatch.setattr(log.Log, "_validating", validating)
    for _ in range(2):  # the second time it is interrupted before any step
        with pytest.raises(KeyboardInterrupt):
            segue.train("rnn_lm", TEXT, tmp_path / "run", SETTINGS, resume=True, device="cpu")
        assert max((tmp_path / "run/checkpoints").iterdir()).name == "step-00000012"
    monkeypatch.undo()
    resumed(tmp_path / "run", uninterrupted)


def test_a_second_one_while_saving_leaves_nothing_half_written(
    at: Any, monkeypatch: pytest.MonkeyPatch, uninterrupted: Path, tmp_path: Path
) -> None:
    written = checkpoint._write

    def write(path: Path, content: bytes) -> None:
        written(path, content)
        if path.name == "values.json" and json.loads(content)["step"] == 9:
            send(signal.SIGINT)

    at(9, signal.SIGINT)
    monkeypatch.setattr(checkpoint, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        segue.train("rnn_lm", TEXT, tmp_path / "run", SETTINGS, device="cpu")
    assert sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir()) == ["step-00000006"]
    monkeypatch.undo()
    resumed(tmp_path / "run", uninterrupted)


def test_the_command_line_says_what_goes_on(at: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("\n".join(TEXT))
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    at(2, signal.SIGTERM)
    code = main(["train", "rnn_lm", str(tmp_path / "text"), *settings, "--out", str(tmp_path / "my run")])
    assert code == 128 + signal.SIGTERM
    assert f"segue train --out '{tmp_path / 'my run'}' --resume" in capsys.readouterr().err


def test_signals_are_left_alone_where_they_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread Python allows no handlers, and who ignores Ctrl-C (nohup) goes on ignoring it."""
    errors: list[BaseException] = []

    def begin() -> None:
        try:
            Interrupts().begin()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert not errors
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ignoring = Interrupts()
        ignoring.begin()
        send(signal.SIGINT)
        ignoring.end()
        assert not ignoring.signal and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("asked", "goes_on"),
    [
        ("compare text --models rnn_lm --budget 9 --out out --threads 1", "compare --out out --resume --threads 1"),
        ("claim residual text data.test=0.2 --out 'my out'", "claim residual text data.test=0.2 --out 'my out'"),
    ],
)
def test_a_comparison_and_a_claim_name_their_own_command(
    asked: str,
    goes_on: str,
    at: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("\n".join(TEXT * 4))
    at(3, signal.SIGINT)
    assert main([*shlex.split(asked), "batches.size=2", "batches.length=8"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    settings = " batches.size=2 batches.length=8"
    own = goes_on.replace(" --out", f"{settings} --out") if asked.startswith("claim") else goes_on
    assert said == f"segue: Interrupted. What is finished is kept. Go on with: segue {own}"
    assert list(tmp_path.glob("*out/*/checkpoints/step-00000003"))


def test_a_run_that_cannot_begin_leaves_the_signals_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(log, "Metrics", full)
    with pytest.raises(OSError, match="no space"):
        segue.train("rnn_lm", TEXT, tmp_path / "run", SETTINGS, device="cpu")
    assert signal.getsignal(signal.SIGINT) is before

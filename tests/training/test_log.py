"""metrics.jsonl and what people see: no record twice after a kill, nothing half read, silence for quick work."""

from __future__ import annotations

import io
import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from segue.models.base import Record
from segue.training.log import Bar, Lines, Metrics, progress_for, read_metrics


def write(folder: Path, steps: range, after: int = 0) -> None:
    metrics = Metrics(folder, after)
    for step in steps:
        metrics.write(Record(step, "train", {"loss": 1 / step}))
    metrics.close()


def steps_in(folder: Path) -> list[int]:
    return [line["step"] for line in read_metrics(folder)]


def test_a_record_is_a_line(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, "kind": "train", "loss": 1 / step} for step in (1, 2, 3)]
    assert read_metrics(tmp_path) == lines


def test_records_are_there_at_once(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.write(Record(1, "train", {}))
    assert steps_in(tmp_path) == [1]
    metrics.close()


def test_a_resumed_run_repeats_nothing(tmp_path: Path) -> None:
    write(tmp_path, range(1, 9))
    write(tmp_path, range(6, 11), after=5)
    assert steps_in(tmp_path) == list(range(1, 11))


def test_a_run_that_begins_again_keeps_nothing(tmp_path: Path) -> None:
    write(tmp_path, range(1, 9))
    write(tmp_path, range(1, 3))
    assert steps_in(tmp_path) == [1, 2]


def test_a_half_written_last_line_is_survived(tmp_path: Path) -> None:
    write(tmp_path, range(1, 5))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_text()
    last = len(whole) - len(whole.splitlines()[-1]) - 1
    for end in range(last, len(whole) - 1):
        path.write_text(whole[:end])
        assert steps_in(tmp_path) == [1, 2, 3]
    write(tmp_path, range(4, 6), after=3)
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5]


def test_resuming_never_leaves_less_than_there_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the old records are written again: they are still there."""
    write(tmp_path, range(1, 5))

    def killed(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Metrics(tmp_path, after=4)
    assert steps_in(tmp_path) == [1, 2, 3, 4]


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_a_figure_that_is_not_finite_is_null(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.write(Record(1, "validation", {"loss": math.inf, "bits_per_byte": math.nan, "seconds": 1.5}))
    metrics.close()
    (line,) = read_metrics(tmp_path)
    assert (line["loss"], line["bits_per_byte"], line["seconds"]) == (None, None, 1.5)


@pytest.mark.parametrize("asked", [True, False])
def test_tensorboard_if_asked(asked: bool, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps, after in ((range(1, 9), 0), (range(6, 11), 5)):
        metrics = Metrics(tmp_path, after, tensorboard=asked)
        for step in steps:
            metrics.write(Record(step, "train", {"loss": float(step), "note": "not a number"}))
        metrics.close()
        time.sleep(0.01)
    if not asked:
        assert not (tmp_path / "tensorboard").exists()
        return
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(step, step) for step in range(1, 11)]


# Lines


class Clock:
    """time.monotonic under the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def play(self, lines: Lines, seconds: float, shares: int, what: str = "training") -> None:
        """`shares` equal steps from nothing to the whole, over so many seconds."""
        for i in range(shares + 1):
            lines(what, i / shares, f"step {i}")
            self.now += seconds / shares


def said(file: io.StringIO) -> list[str]:
    return file.getvalue().splitlines()


def test_quick_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    file, clock = io.StringIO(), Clock(monkeypatch)
    for _ in range(10):
        clock.play(Lines(file), 1.9, 50)
    lines = Lines(file)
    for what in ("reading", "encoding", "training"):
        clock.play(lines, 1.9, 50, what)
    assert said(file) == []


def test_long_work_says_a_line_now_and_then_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    Clock(monkeypatch).play(Lines(file), 60.0, 600)
    lines = said(file)
    assert 10 <= len(lines) <= 14
    assert all(line.startswith("training: ") for line in lines)
    assert lines[0].startswith("training: 3 %, ")
    assert "58 s left" in lines[0]
    assert lines[-1] == "training: 100 %  step 600"


def test_time_left_is_in_minutes_when_long(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    Clock(monkeypatch).play(Lines(file), 3600.0, 3600)
    assert "60 min left" in said(file)[0]


def test_a_sentence_is_said_at_once() -> None:
    file = io.StringIO()
    lines = Lines(file)
    lines("training", 0.5)
    lines("Checkpoint x is damaged.", 0.0)
    assert said(file) == ["Checkpoint x is damaged."]


def test_lines_where_there_is_no_terminal() -> None:
    assert isinstance(progress_for(io.StringIO()), Lines)


def test_the_bar_passes_sentences_on(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    bar("training", 0.5, "step 1")
    bar("Checkpoint [x] is damaged.", 0.0)
    bar("training", 1.0)
    bar.close()
    assert "Checkpoint [x] is damaged." in capsys.readouterr().err


def test_progress_that_nobody_reads_any_more_is_dropped() -> None:
    """As in `segue train … 2>&1 | head -1`: the training goes on."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed:
        say = Lines(closed, every=0.0)
        say("A sentence.", 0.0)
        say("training", 0.5)
        say("training", 1.0)
        with suppress(OSError):  # what Python still holds cannot be written either
            closed.close()

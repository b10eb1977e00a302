"""Logging: metrics.jsonl for machines, a progress line on standard error for people."""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TextIO, TypeVar

from segue.data.atomic import atomic_file
from segue.errors import InputError, SegueError
from segue.models.base import Record
from segue.output.streams import open_console
from segue.output.visible import escapes, visible
from segue.training.fitting import Fitting
from segue.training.interrupt import DroppedError
from segue.training.world import World


class Progress(Protocol):
    """A callback: what is being done, and what share of it is done. A sentence, with its full stop, is a message."""

    def __call__(self, what: str, share: float, note: str = "") -> None: ...


def silent(what: str, share: float, note: str = "") -> None:
    """Report no progress."""


P = ParamSpec("P")
R = TypeVar("R")


def reports(verb: Callable[P, R]) -> Callable[P, R]:
    """Let a function that takes `progress` report as the command line does, in a script and a notebook too, unless the
    caller gives another; progress=segue.silent reports nothing."""
    signature = inspect.signature(verb)

    @wraps(verb)
    def reporting(*args: P.args, **named: P.kwargs) -> R:
        bound = signature.bind(*args, **named)
        if "progress" in bound.arguments:
            return verb(*args, **named)
        progress = progress_for(sys.stderr)
        bound.arguments["progress"] = progress
        try:
            return verb(*bound.args, **bound.kwargs)
        finally:
            progress.close()

    return reporting


class Lines:
    """Prints a plain line now and then, for logs and pipes; nothing for work that takes under two seconds. `rewrite`:
    each line overwrites the last one, for a notebook."""

    def __init__(self, file: TextIO | None = None, every: float = 5.0, rewrite: bool = False) -> None:
        self.file, self.every, self.rewrite = file or sys.stderr, every, rewrite
        self.sentences: set[str] = set()
        self.what, self.begun, self.said, self.width = "", 0.0, 0.0, 0

    def __call__(self, what: str, share: float, note: str = "") -> None:
        if what.endswith("."):
            if what not in self.sentences:  # each model of a comparison reads the same files
                self.close()
                self._write(f"{what}\n")
            self.sentences.add(what)
            return
        now = time.monotonic()
        if what != self.what:
            self.what, self.begun, self.said = what, now, now - self.every + 2.0
        due = now - self.said >= self.every
        if due or (share >= 1 and self.said > self.begun):
            self._print(f"{what}: {100 * share:.0f} %{_left(now - self.begun, share)}{note and '  ' + note}")
            self.said = now
        if share >= 1:
            self.what = ""

    def _print(self, line: str) -> None:
        if not self.rewrite:
            self._write(f"{line}\n")
            return
        self._write(f"\r{line:<{self.width}}")
        self.width = len(line)

    def _write(self, text: str) -> None:
        """Write what people see. Where nobody reads any more (a closed pipe), the work goes on without it."""
        with suppress(OSError):
            self.file.write(text)
            self.file.flush()

    def close(self) -> None:
        """End the line that would be overwritten."""
        if self.width:
            self._write("\n")
            self.width = 0


class Bar:
    """Draws a live progress bar with the time left, for a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=open_console(stderr=True),
            transient=True,
        )
        self.sentences: set[str] = set()
        self.what, self.task = "", self.bar.add_task("", note="", visible=False)
        self.bar.start()

    def __call__(self, what: str, share: float, note: str = "") -> None:
        what = visible(what)
        if what.endswith("."):
            if what not in self.sentences:
                self.bar.console.print(what, markup=False, highlight=False)
            self.sentences.add(what)
            return
        if what != self.what:
            self.what = what
            self.bar.reset(self.task, total=1.0, description=what, visible=True, note=note)
        self.bar.update(self.task, completed=min(1.0, share), note=note)

    def close(self) -> None:
        self.bar.stop()


def progress_for(file: TextIO) -> Bar | Lines:
    """Return a Bar for a terminal that can redraw a line, else Lines; in a notebook one line that is overwritten."""
    if file.isatty() and escapes():
        return Bar()
    return Lines(file, every=1.0, rewrite=True) if "ipykernel" in sys.modules else Lines(file)


def _left(elapsed: float, share: float) -> str:
    if not 0 < share < 1:
        return ""
    left = elapsed * (1 - share) / share
    return f", {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"


class Metrics:
    """metrics.jsonl, one record a line; TensorBoard's files beside it if asked."""

    def __init__(self, folder: Path, after: int = 0, tensorboard: bool = False) -> None:
        """`after`: drop records of later steps, since a resumed run will write them again."""
        self.path = folder / "metrics.jsonl"
        kept = [line for line in _lines(self.path) if line["step"] <= after] if after else []
        with atomic_file(self.path) as beside:
            beside.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.file = self.path.open("a")
        self.board = _board(folder / "tensorboard", after) if tensorboard else None

    def write(self, record: Record) -> None:
        values = {name: None if _infinite(value) else value for name, value in record.values.items()}
        self.file.write(json.dumps({"step": record.step, "kind": record.kind, **values}, allow_nan=False) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in record.values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{record.kind}/{name}", value, record.step)

    def close(self) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


class Log:
    """Writes the records of a training: metrics.jsonl, checkpoints, a progress line. Entering it restores the last
    whole checkpoint, if there is one; the error of a diverged loss names the last good checkpoint."""

    def __init__(self, folder: Path, trainer: Any, name: str, world: World, progress: Progress) -> None:
        self.folder, self.trainer, self.world, self.progress = folder, trainer, world, progress
        self.what = f"training {name}"
        self.learns = not isinstance(trainer, Fitting)
        self.metrics: Metrics | None = None
        self.saved_at = -1
        """The step of the last checkpoint that was written here."""

    def __enter__(self) -> Log:
        if self.learns:
            self._restore()
            self.trainer.validating = self._validating
        if self.world.first:
            board = self.learns and self.trainer.config.tensorboard
            self.metrics = Metrics(self.folder, self.trainer.step, board)
        if self.learns:
            self.progress(self.what, self.trainer.progress)
            if self.world.size == 1:  # several processes would not end at the same step
                self.trainer.interrupts.begin()  # last: where something above fails, nobody calls __exit__
        return self

    def _validating(self, share: float) -> None:
        if self.trainer.interrupts.signal:
            raise DroppedError
        # Never show 100 % during validation: the run is not finished.
        self.progress(self.what, min(self.trainer.progress, 0.99), "validating")

    def _restore(self) -> None:
        from segue.training.checkpoint import clear_unfinished, latest

        places = self.folder / "checkpoints"
        if self.world.first:
            clear_unfinished(places)
        checkpoint, damaged = latest(places)
        for sentence in damaged:
            self.progress(sentence, 0.0)
        if checkpoint is None:
            return
        try:
            self.trainer.restore(*checkpoint)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"The checkpoint in {places} does not fit {self.folder / 'recipe.toml'} ({reason[:200]}). Restore the "
                "recipe as the run began with it, or begin another run."
            ) from None

    def write(self, record: Record) -> None:
        """Write a record; after a validation or an interruption, a checkpoint too. Collective: every process must call
        this."""
        saves = self.learns and record.kind in ("validation", "checkpoint", "interrupted")
        saves = saves and self.saved_at != self.trainer.step
        tensors = self.trainer.tensors() if saves else None
        if self.metrics is None:
            return
        if record.kind != "interrupted":
            self._note(self.metrics, record)
        if tensors is not None:
            from segue.training.checkpoint import save_checkpoint

            save_checkpoint(self.folder / "checkpoints", self.trainer.step, tensors, self.trainer.values())
            self.saved_at = self.trainer.step
        if record.kind == "interrupted":
            raise KeyboardInterrupt(self.trainer.interrupts.signal)

    def _note(self, metrics: Metrics, record: Record) -> None:
        """Write a record into metrics.jsonl, and show it."""
        metrics.write(record)
        loss = record.values.get("cross_entropy", record.values.get("loss"))
        if self.learns and record.kind == "train" and loss is not None:
            self.progress(self.what, record.values["progress"], f"step {record.step}, loss {loss:.3f}")
        if count := record.values.get("threads"):
            said = f"uses {count} thread{'s' * (count > 1)} from step {record.step} on"
            self.progress(f"Training has become more than twice as slow, so it {said}.", 0.0)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.learns:
            self.trainer.interrupts.end()
        if self.metrics is not None:
            self.metrics.close()
        if isinstance(error, DivergedError):
            good = max((self.folder / "checkpoints").glob("step-*"), default=None)
            raise SegueError(
                f"{error} That update was not applied. "
                + (f"The last good checkpoint is {good}." if good else "There is no checkpoint yet.")
                + " Try a smaller train.optimizer.rate or train.optimizer.clip."
            ) from None


class DivergedError(SegueError):
    """The loss or its gradient is infinite or NaN; the bad update was not applied."""

    def __init__(self, step: int, batch: str) -> None:
        self.step = step
        super().__init__(f"The loss or its gradient became infinite or NaN at step {step}, {batch}.")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read every record of a run."""
    return _lines(folder / "metrics.jsonl")


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = []
    for number, text in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # the last line of a killed run may be half there
            continue
        if not (isinstance(line, dict) and type(line.get("step")) is int and isinstance(line.get("kind"), str)):
            raise InputError(
                f"{path}:{number} is damaged: no record with a step and a kind. Remove the line, or restore the file."
            )
        lines.append(line)
    return lines


def _board(folder: Path, after: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "train.tensorboard=true needs the tensorboard package: pip install '.[tensorboard]'."
        ) from None
    # purge_step hides what a killed run wrote for later steps.
    return SummaryWriter(str(folder), purge_step=after + 1 if after else None)  # type: ignore[no-untyped-call]

"""Data that changes while a run is made: one message, and no figures of another text than the ledger names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from segue.cli import main
from segue.runs import resume
from segue.runs import train as module

TEXT = "the cow eats the green grass.\na big dog sees the small cow.\n\n" * 60
ROWS = "good\ta fine film\nbad\ta dull film\n" * 30
TAGS = "the\tD\ncow\tN\neats\tV\n\na\tD\ndog\tN\nruns\tV\n\n" * 20
SMALL = ["train.steps=2", "model.width=4"]
LSTM = [*SMALL, "model.embedding=4", "batches.size=2", "batches.length=16"]


def swapped(text: str) -> str:
    return text.replace("good", "?").replace("bad", "good").replace("?", "bad")


CHANGES: dict[str, tuple[str, str, list[str], Any]] = {
    "LM, other text of the same size": ("rnn_lm", TEXT, LSTM, str.upper),
    "LM, cut to half": ("rnn_lm", TEXT, LSTM, lambda text: text[: len(text) // 2]),
    "ngram, other text": ("ngram", TEXT, ["model.order=2"], str.upper),
    "classifier, labels swapped": ("bow", ROWS, ["train.steps=2"], swapped),
    "classifier, cut to half": ("bow", ROWS, ["train.steps=2"], lambda text: text[: len(text) // 2]),
    "classifier, rows appended": ("bow", ROWS, ["train.steps=2"], lambda text: text + "ugly\ta new film\n" * 9),
    "tagger, rows appended": ("window_tagger", TAGS, SMALL, lambda text: text + "new\tX\n\n" * 9),
    "ngram, deleted": ("ngram", TEXT, ["model.order=2"], lambda text: None),
}


def change(path: Path, to: str | None, before: os.stat_result) -> None:
    """Change a file, but not its time: a copy, a sync or a coarse clock may leave that as it was."""
    if to is None:
        path.unlink()
        return
    path.write_text(to)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("what", "when"),
    [
        *((what, when) for what in CHANGES for when in ("after it was counted", "before the figures")),
        ("LM, cut to half", "during the figures"),
        ("tagger, rows appended", "during the figures"),
    ],
)
def test_data_that_changes_while_the_run_is_made(
    what: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text, settings, to = CHANGES[what]
    path = tmp_path / ("data.txt" if text is TEXT else "data.tsv")
    path.write_text(text)
    stat = path.stat()
    owner, name = {
        "after it was counted": (resume, "Corpus"),
        "before the figures": (module, "finish"),
        "during the figures": (module.Run, "evaluate_split"),
    }[when]
    function = vars(owner)[name]

    def changed(*given: Any) -> Any:
        if when == "after it was counted":
            made = function(*given)
            change(path, to(text), stat)
            return made
        change(path, to(text), stat)
        return function(*given)

    monkeypatch.setattr(owner, name, changed)
    assert main(["train", model, str(path), "--out", str(tmp_path / "r"), "data.validation=0.3", *settings]) == 2
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert said.startswith("segue: ") and f"{path.name} has changed while the run was made" in said
    assert not (tmp_path / "r" / "result.json").exists()


@pytest.mark.parametrize("finished", [True, False])
def test_what_a_kill_left_behind_is_removed_when_the_run_goes_on(
    finished: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed between result.json and the end, a run kept its ids and half written files for ever."""
    (tmp_path / "book.txt").write_text(TEXT)
    run = tmp_path / "r"
    assert main(["train", "rnn_lm", str(tmp_path / "book.txt"), "--out", str(run), *LSTM]) == 0
    whole = sorted(run.rglob("*"))
    (run / "store" / "train").mkdir(parents=True)
    (run / ".report.html.4321.writing").write_text("half")
    (run / "checkpoints" / ".writing-step-00000001").mkdir()
    (run / "notes.txt").write_text("mine")
    if not finished:
        (run / "result.json").unlink()
    assert main(["train", "--out", str(run), "--resume"]) == 0
    assert sorted(run.rglob("*")) == sorted([*whole, run / "notes.txt"])


def test_an_old_checkpoint_is_never_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renamed before it is removed, so that what a kill leaves of it is known as a leftover."""
    from segue.training import checkpoint

    removed: list[str] = []
    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda path, **how: removed.append(Path(path).name))
    for step in (1, 2, 3):
        checkpoint.save_checkpoint(tmp_path, step, {}, {})
    assert removed == [".writing-step-00000001"]
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000002", "step-00000003"]

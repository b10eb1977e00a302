"""Several processes give the run of one: the same losses, the same records, checkpoints that either goes on with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.batches.batch import Batch
from segue.errors import InputError
from segue.training.distributed import Processes

# Rows that do not divide evenly, by processes or by parts; state that is carried; terms beside the loss.
RECURRENT = [
    *("batches.size=9", "batches.length=16", "batches.accumulate=2", "model.width=12", "model.penalty.ar=0.5"),
    *("train.log_every=1", "train.every=6", "data.unit=line", "train.validate_tokens=2000"),
    *("train.optimizer.schedule=constant", "train.optimizer.name=adamw"),
]
DROPOUT = [
    *("batches.size=4", "batches.length=16", "model.width=8", "model.heads=2", "model.layers=1", "model.dropout=0.3"),
    *("train.log_every=1", "train.every=6", "data.unit=line", "model.context=16", "train.validate_tokens=2000"),
    *("train.optimizer.ema=0.9", "train.optimizer.schedule=constant"),
]
ROWS = ["batches.size=63", "model.dropout=0", "train.log_every=1", "train.every=3"]
"""190 rows to train on: the last batch of an epoch is one row, and one of two processes gets none of it."""

SCRIPT = """
import json, sys
import segue
for model, data, out, settings, resume in json.loads(sys.argv[1]):
    run = segue.train(model, data, out, settings, resume=resume)
    assert str(run.path) == str(out), (run.path, out)
"""


def together(*calls: tuple[Any, ...]) -> None:
    """Calls of segue.train in two processes."""
    calls_as_text = json.dumps([[model, str(data), str(out), *rest] for model, data, out, *rest in calls])
    environment = os.environ | {"PYTHONPATH": str(Path(segue.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    script = Path(calls[0][2]).parent / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [*launch, str(script), calls_as_text], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def records(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "progress")} for line in lines]


def assert_close(run: Path, other: Path, within: float) -> None:
    ours, theirs = records(run), records(other)
    assert [(r["step"], r["kind"]) for r in ours] == [(r["step"], r["kind"]) for r in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for name in a.keys() - {"kind"}:
            assert a[name] == pytest.approx(b[name], rel=within, abs=within), (a, b)


def test_two_processes_give_the_run_of_one(tmp_path: Path) -> None:
    text, rows = tmp_path / "text.txt", tmp_path / "rows.tsv"
    letters = np.random.default_rng(0)
    text.write_text("".join("".join(letters.choice(list("abcd "), 30)) + "\n" for _ in range(300)))
    labels = letters.integers(0, 2, 211)
    rows.write_text("".join(f"{'yn'[n]}\t{' '.join(letters.choice([*'abc', str(n)], 5))}\n" for n in labels))

    numbers = tmp_path / "numbers.tsv"
    numbers.write_text("".join(f"{n + k / 7:.2f}\t{' '.join('abc'[: 1 + n])}\n" for k, n in enumerate(labels)))

    def steps(settings: list[str], n: int) -> list[str]:
        return [*settings, f"train.steps={n}"]

    def alone(name: str, model: str, data: Path, settings: list[str], resume: bool = False) -> Path:
        segue.train(model, data, tmp_path / name, settings, resume=resume)
        return tmp_path / name

    whole = alone("whole", "rnn_lm", text, steps(RECURRENT, 12))
    alone("begun", "rnn_lm", text, steps(RECURRENT, 6))
    together(
        ("rnn_lm", text, tmp_path / "both", steps(RECURRENT, 12), False),
        ("rnn_lm", text, tmp_path / "begun", steps(RECURRENT, 12), True),
        ("rnn_lm", text, tmp_path / "half", steps(RECURRENT, 6), False),
        ("bow", rows, tmp_path / "bow-both", steps(ROWS, 9), False),
        ("bow", numbers, tmp_path / "number-both", [*steps(ROWS, 9), "data.label=number"], False),
        ("gpt", text, tmp_path / "gpt", steps(DROPOUT, 12), False),
        ("gpt", text, tmp_path / "gpt-half", steps(DROPOUT, 6), False),
        ("gpt", text, tmp_path / "gpt-half", steps(DROPOUT, 12), True),
        ("ngram", text, tmp_path / "counted", ["data.unit=line"], False),
    )
    alone("half", "rnn_lm", text, steps(RECURRENT, 12), resume=True)
    for name in ("both", "begun", "half"):
        assert_close(tmp_path / name, whole, 1e-5)
    assert_close(tmp_path / "bow-both", alone("bow", "bow", rows, steps(ROWS, 9)), 1e-5)
    number = alone("number", "bow", numbers, [*steps(ROWS, 9), "data.label=number"])
    assert_close(tmp_path / "number-both", number, 1e-5)
    assert records(tmp_path / "gpt-half") == records(tmp_path / "gpt")  # dropout and all
    assert segue.load(tmp_path / "counted").generate(max_tokens=3)
    assert json.loads((tmp_path / "both" / "environment.json").read_text())["processes"] == 2


def test_bad_input_is_said_once_and_the_others_say_who_knows(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("good\ta fine film\n" * 20)
    environment = os.environ | {"PYTHONPATH": str(Path(segue.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    words = ["-m", "segue", "train", "bow", str(tmp_path / "one.tsv"), "--out", str(tmp_path / "no"), "--device", "cpu"]
    done = subprocess.run([*launch, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and not (tmp_path / "no").exists()
    said = [line for line in done.stderr.splitlines() if line.startswith("segue: ")]
    assert sum("has the label 'good'" in line for line in said) == 1
    assert not any("went wrong inside" in line for line in said)


def test_rows_are_shared_out_once_each() -> None:
    batch = Batch(np.arange(10).reshape(5, 2), np.arange(5), np.ones((5, 2), bool), unpadded=True)
    parts = [Processes(rank, 3).share(batch) for rank in range(3)]
    assert np.concatenate([part.targets for part in parts]).tolist() == [0, 1, 2, 3, 4]
    assert all(part.unpadded for part in parts)
    one = Batch(batch.tokens_BT[:1], batch.targets[:1], batch.mask_BT[:1])
    shares = [Processes(rank, 2).share(one) for rank in range(2)]
    assert type(shares[0]) is Batch and type(shares[1]) is not Batch  # the second has no row of its own
    assert type(shares[1].to("cpu")) is type(shares[1])


def test_too_many_processes_for_the_rows_are_refused() -> None:
    Processes(0, 4).check(8, 2)
    with pytest.raises(InputError, match=r"batches\.size=8"):
        Processes(0, 4).check(7, 2)

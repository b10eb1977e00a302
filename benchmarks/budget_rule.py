"""The grids by which the rule for budgets was fitted: the constants of runs/plan.py and of `larger` and `dropout_for`.

    SEGUE_DATA=folder python benchmarks/budget_rule.py [--rounds 1,2,3] [--models gpt/rotary] [--device cuda] [--jobs 6]

Each job trains a network of the ladder with one size, dropout and weight decay for a number of epochs, at a stable rate
that falls at the end (wsd), and prints bits per byte of the last tenth of the text. Texts: the first 450,000 characters
of WikiText-2 and the first 1,100,000 of the Linux kernel's C; none that docs/figures.md reports budgets of.

round 1   batches of 8,192 tokens, 40 epochs: which size and dropout
round 2   3, 10 and 40 epochs, weight decay 0.1 and 0.6 (the kernel: 0.6 alone): how much dropout for how many epochs
round 3   batches of 2,048 tokens, as the recipes have them, 20 or 40 epochs: less dropout, decay 0.1 and 0.25, rates

The constants were read from these tables by eye. 316 jobs take about half an hour of an H200; --first N takes the first
N of them. `--write FILE` keeps every figure as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

TEXTS = {
    "wiki": ("wikitext-2/train.txt.xz", 450_000, 350_000),
    "kernel": ("linux-kernel/kernel-4.19.c.txt.xz", 1_100_000, 860_000),
}
"""The file, how many characters of it, and about how many of those are learnt from."""


def shape(width: int, layers: int = 0, heads: int = 6, context: int = 0, words: int = 0) -> tuple[str, ...]:
    values = {"width": width, "layers": layers, "heads": heads if layers else 0, "context": context, "words": words}
    return tuple(f"model.{key}={value}" for key, value in values.items() if value)


SMALL, MIDDLE, LARGE = shape(96, 2, 4, 64), shape(192, 4, 6, 128), shape(384, 6, 6, 256)
"""Sizes of gpt: layers, heads, context."""


class Job(NamedTuple):
    round: int
    model: str
    text: str
    settings: tuple[str, ...]


def job(
    number: int,
    model: str,
    text: str,
    epochs: int,
    size: tuple[str, ...],
    dropout: float,
    decay: float | None = None,
    rate: float | None = None,
    tokens: int = 2048,
) -> Job:
    """Put the settings of a job together, in batches of so many tokens."""
    context = [int(one.split("=")[1]) for one in size if one.startswith("model.context")]
    length = context[0] if context else 64 if tokens == 2048 else 128
    every = max(1, TEXTS[text][2] * epochs // tokens // 40)
    values: dict[str, float] = {"train.epochs": epochs, "train.every": every, "model.dropout": dropout}
    values |= {"batches.size": tokens // length, "batches.length": length}
    values |= {} if decay is None else {"train.optimizer.weight_decay": decay}
    values |= {} if rate is None else {"train.optimizer.rate": rate}
    values |= {} if number == 3 else {"train.optimizer.warmup": 100 if tokens == 8192 else 20}
    fixed = ("train.plan=none", "train.optimizer.schedule=wsd", "train.seconds=90", "train.validate_tokens=30000")
    return Job(number, model, text, (*fixed, *(f"{key}={value}" for key, value in values.items()), *size))


def first(text: str) -> Iterator[Job]:
    add = partial(job, 1, text=text, epochs=40, tokens=8192)
    for dropout in (0.1, 0.3, 0.5):
        for width, rate in ((256, 0.02), (512, 0.02), (512, 0.01), (1024, 0.01)):
            yield add("rnn_lm/lstm", size=shape(width), dropout=dropout, rate=rate)
    for dropout in (0.0, 0.2, 0.35):
        for size, rate in ((SMALL, 0.02), (MIDDLE, 0.02), (LARGE, 0.008), (LARGE, 0.016)):
            yield add("gpt/rotary", size=size, dropout=dropout, rate=rate)
    for dropout in (0.0, 0.3):
        for model, width in product(("rnn_lm/gru", "rnn_lm/elman"), (192, 512)):
            yield add(model, size=shape(width), dropout=dropout)
        for size in (shape(256, words=6), shape(1024, words=10)):
            yield add("neural_lm", size=size, dropout=dropout)


def second(text: str) -> Iterator[Job]:
    sizes = {
        "rnn_lm/lstm": (shape(256), shape(512)),
        "rnn_lm/gru": (shape(192), shape(384)),
        "rnn_lm/elman": (shape(192), shape(384)),
        "neural_lm": (shape(256, words=6), shape(512, words=8)),
        "gpt/rotary": (SMALL, MIDDLE),
    }
    by_epochs = {3: (0.0, 0.2), 10: (0.2, 0.4), 40: (0.2, 0.4, 0.5)}
    for epochs, dropouts in by_epochs.items():
        for decay, model in product((0.1, 0.6) if text == "wiki" else (0.6,), sizes):
            drops = dropouts if text == "wiki" else (0.2, 0.4)
            for size, drop in product(sizes[model], drops):
                dropout = drop / 2 if model == "gpt/rotary" else drop
                yield job(2, model, text, epochs, size, dropout, decay, tokens=8192 if epochs == 40 else 2048)


def third(text: str) -> Iterator[Job]:
    add = partial(job, 3, text=text, epochs=40 if text == "wiki" else 20)
    tried: dict[str, tuple[tuple[str, ...], tuple[float, float], tuple[float, float]]] = {
        "rnn_lm/lstm": (shape(512), (0.3, 0.5), (0.4, 0.01)),
        "gpt/rotary": (MIDDLE, (0.1, 0.2), (0.15, 0.01)),
        "rnn_lm/gru": (shape(384), (0.1, 0.25), (0.2, 0.01)),
        "rnn_lm/elman": (shape(384), (0.0, 0.1), (0.05, 0.005)),
    }
    for model, (size, dropouts, (between, rate)) in tried.items():
        for decay, dropout in product((0.1, 0.25), dropouts):
            yield add(model, size=size, dropout=dropout, decay=decay)
        yield add(model, size=size, dropout=between, decay=0.1, rate=rate)
    for dropout in (0.1, 0.25):
        yield add("neural_lm", size=shape(512, words=8), dropout=dropout, decay=0.0)


ROUNDS = {1: first, 2: second, 3: third}


def work(one: Job, texts: str, device: str) -> dict[str, Any]:
    """Train one job; a run whose loss became infinite counts as an outcome too."""
    from segue.errors import SegueError
    from segue.runs.train import train

    row: dict[str, Any] = {"round": one.round, "model": one.model, "text": one.text, "settings": " ".join(one.settings)}
    with tempfile.TemporaryDirectory() as folder:
        held_out = ("data.validation=0.1", "data.test=0.1")
        path = f"{texts}/{one.text}.txt"
        try:
            run = train(one.model, path, Path(folder) / "run", [*held_out, *one.settings], device=device, threads=1)
        except SegueError as error:
            return row | {"error": str(error)}
        result = json.loads((run.path / "result.json").read_text())
    kept = ("bits_per_byte", "validation_loss", "steps", "best_step", "epochs", "parameters", "train_seconds")
    return row | {key: result[key] for key in kept}


def write_texts(folder: Path) -> None:
    for name, (path, characters, _) in TEXTS.items():
        with lzma.open(Path(os.environ["SEGUE_DATA"]) / path, "rt", encoding="utf-8", newline="\n") as file:
            (folder / f"{name}.txt").write_text(file.read(characters), encoding="utf-8", newline="\n")


def show(row: dict[str, Any]) -> None:
    common = ("train.plan", "train.seconds", "train.validate_tokens", "train.optimizer.schedule", "train.every")
    settings = [one for one in row["settings"].split() if not one.startswith(common)]
    outcome = row["error"].split(".")[0] if "error" in row else f"{row['bits_per_byte']:.4f} bits per byte"
    said = f"round {row['round']} {row['text']:<7} {row['model']:<13} {outcome}"
    print(f"{said}  {' '.join(settings)}", flush=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", default="1,2,3")
    asked.add_argument("--models", default="", help="only these recipes of the ladder")
    asked.add_argument("--device", default="cuda")
    asked.add_argument("--jobs", type=int, default=6, help="trainings at once")
    asked.add_argument("--first", type=int, default=None, help="only so many jobs")
    asked.add_argument("--settings", nargs="*", default=[], help="of every job, such as train.seconds=3")
    asked.add_argument("--write", type=Path, default=None)
    given = asked.parse_args()
    import torch

    if "SEGUE_DATA" not in os.environ or (given.device == "cuda" and not torch.cuda.is_available()):
        print(
            "skipped: there is no GPU here (--device cpu does without), or SEGUE_DATA does not say where the texts are"
        )
        return
    jobs = [one for number in map(int, given.rounds.split(",")) for text in TEXTS for one in ROUNDS[number](text)]
    jobs = [one for one in jobs if not given.models or one.model in given.models.split(",")][: given.first]
    jobs = [one._replace(settings=(*one.settings, *given.settings)) for one in jobs]
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        write_texts(Path(folder))
        for row in pool.imap_unordered(partial(work, texts=folder, device=given.device), jobs):
            show(row)
            if given.write:
                with given.write.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

"""More time never makes it worse: every network of the ladders, at rising budgets.

    python benchmarks/budgets.py --seconds 5,20,60 --seeds 3 [--device cuda] [--jobs 4] [--texts pydoc,shakespeare]

Each network is trained as `segue compare` does, on the same splits, once for every seed and budget; the median over the
seeds is printed, and whether it falls, or gets worse by at most 0.5 %, from each budget to the next. `--jobs` trains
several at once, each on `--threads` cores of its own. Texts but pydoc are found by SEGUE_DATA; `--write FILE` keeps
every figure as a line of JSON, and what stands there is not trained again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

TEXTS = {
    "pydoc": ("lm", "pydoc", []),
    "shakespeare": ("lm", "tinyshakespeare/input.txt.xz", []),
    "mr": ("classify", "sentclass/mr.all.tsv.xz", ["data.test=0.1", "data.validation=0.1"]),
    "trec": ("classify", "sentclass/trec.train.tsv.xz", ["data.test=sentclass/trec.test.tsv.xz"]),
    "ewt": ("tag", "ud-ewt/train.tsv.xz", ["data.validation=ud-ewt/dev.tsv.xz", "data.test=ud-ewt/test.tsv.xz"]),
}
LADDERS = {
    "lm": ("neural_lm", "rnn_lm/elman", "rnn_lm/gru", "rnn_lm/lstm", "gpt/rotary"),
    "classify": ("bow", "cbow", "deep_cbow", "dan", "cnn_classifier", "rnn_classifier"),
    "tag": ("window_tagger", "cnn_tagger", "rnn_tagger"),
}
WORSE = 0.005


def place(path: str) -> str:
    """Return a built-in corpus as it is, and the path of a file of SEGUE_DATA."""
    folder = os.environ.get("SEGUE_DATA", "")
    return str(Path(folder) / path) if "/" in path else path


def work(job: tuple[str, str, float, int, str, int]) -> dict[str, Any]:
    name, text, seconds, seed, device, threads = job
    _pin(threads)
    from segue.recipe import budgeted, load_recipe
    from segue.runs.train import train

    _, path, settings = TEXTS[text]
    shares = {"data": {"path": place(path), "validation": 0.05, "test": 0.1}}
    keys = [f"{key}={place(value)}" for key, value in (one.split("=") for one in settings)]
    recipe = budgeted(load_recipe(name, [*keys, f"train.seed={seed}"], shares), f"{seconds}s", plan="size")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = train(recipe, out=Path(folder) / "run", device=device, threads=threads)
        result = json.loads((run.path / "result.json").read_text())
    kept = ("steps", "epochs", "best_step", "parameters", "train_seconds", "wall_seconds", "stopped_early")
    chosen = {"dropout": vars(run.recipe.model).get("dropout"), "decay": run.recipe.train.optimizer.weight_decay}
    row = {"model": name, "text": text, "seconds": seconds, "seed": seed, "device": device}
    row |= {"figure": result["figure"], "value": result[result["figure"]], **{key: result[key] for key in kept}}
    return row | chosen | {"command": time.perf_counter() - begun}


def _pin(threads: int) -> None:
    """Give each process cores of its own."""
    identity = multiprocessing.current_process()._identity
    cores = sorted(os.sched_getaffinity(0))
    if identity and len(cores) > threads:
        first = (identity[0] - 1) * threads
        os.sched_setaffinity(0, {cores[(first + i) % len(cores)] for i in range(threads)})


def table(rows: list[dict[str, Any]]) -> bool:
    """Print a row a model and text, a column a budget; return whether none got worse."""
    held = True
    groups: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for row in rows:
        key = row["text"], row["model"], row["device"]
        groups.setdefault(key, {}).setdefault(row["seconds"], []).append(row["value"])
    lower = {row["text"]: row["figure"] == "bits_per_byte" for row in rows}
    for (text, model, device), by_seconds in sorted(groups.items()):
        medians = {seconds: statistics.median(values) for seconds, values in sorted(by_seconds.items())}
        ups = [b / a - 1 if lower[text] else a / b - 1 for a, b in pairwise(medians.values())]
        worst = max(ups, default=0.0)
        held &= worst <= WORSE
        shown = "  ".join(f"{seconds:g} s {value:.4f}" for seconds, value in medians.items())
        print(f"{text:12}{model:16}{device:5}{shown}   {'WORSE by' if worst > WORSE else 'at most'} {worst:+.1%}")
    return held


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seconds", default="5,20,60")
    asked.add_argument("--texts", default="pydoc")
    asked.add_argument("--models", default="")
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--threads", type=int, default=2)
    asked.add_argument("--write", type=Path, default=None)
    given = asked.parse_args()
    texts = [text for text in given.texts.split(",") if "/" not in TEXTS[text][1] or "SEGUE_DATA" in os.environ]
    jobs = [
        (model, text, float(seconds), seed, given.device, given.threads)
        for seconds in sorted(given.seconds.split(","), key=float, reverse=True)
        for seed in range(given.seeds)
        for text in texts
        for model in (given.models.split(",") if given.models else LADDERS[TEXTS[text][0]])
    ]
    rows = []
    if given.write and given.write.exists():
        rows = [json.loads(line) for line in given.write.read_text().splitlines()]
    done = {(row["model"], row["text"], row["seconds"], row["seed"], row["device"]) for row in rows}
    jobs = [job for job in jobs if job[:5] not in done]
    begun, total = time.perf_counter(), sum(job[2] for job in jobs)
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for number, row in enumerate(pool.imap_unordered(work, jobs), 1):
            rows.append(row)
            if given.write:
                with given.write.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            said = f"{row['text']} {row['model']} {row['seconds']:g} s seed {row['seed']}: {row['value']:.4f}"
            passed = time.perf_counter() - begun
            left = total / given.jobs * (1 - number / len(jobs))
            print(f"{number}/{len(jobs)} {passed:.0f} s, about {left:.0f} s left  {said}", file=sys.stderr, flush=True)
    held = table(rows)
    print("More time never makes it worse." if held else "More time made some worse.")


if __name__ == "__main__":
    main()

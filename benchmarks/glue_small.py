"""GLUE from 9 million words: pre-train a small BERT on one GPU, put heads on it, score them on GLUE's dev sets.

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/glue_small.py OUT pretrain [SECONDS]
    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/glue_small.py OUT choose
    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/glue_small.py OUT score

`pretrain` reads pretrain/, wikitext-2/ and ptb/ of the data (9.04 million words, nothing of GLUE), and also makes the
same body with random weights. `choose` trains heads on CoLA, MRPC and RTE with each of some settings and keeps the one
with the best mean accuracy on rows cut off their training rows: no dev row has a say. `score` trains heads with five
seeds on both bodies, several at a time, and scores them on the dev sets by `segue suite glue`. Early stopping uses rows
cut off training too. Every stage prints the seconds that it took.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

DATA = Path(os.environ["SEGUE_DATA"])
TEXTS = (
    "pretrain/wiki.train.txt.xz",
    "pretrain/gutenberg.train.txt.xz",
    "wikitext-2/train.txt.xz",
    "ptb/ptb.train.txt.xz",
)
BODY = (
    *("tokens.kind=wordpiece", "tokens.lowercase=true", "tokens.vocab_size=12000", "data.validation=0.003"),
    *("model.layers=12", "model.width=512", "model.heads=8", "model.context=128", "model.norm=pre"),
    *("model.position=rotary", "model.dropout=0.1", "batches.size=256", "batches.length=128", "batches.share=0.25"),
    *("train.plan=none", "train.patience=0", "train.validate_tokens=30000", "train.optimizer.name=muon"),
    *("train.optimizer.rate=0.004", "train.optimizer.weight_decay=0.3", "train.optimizer.warmup=300"),
)
COLUMNS = {"CoLA": "2,4", "MRPC": "Quality,#1 String,#2 String", "RTE": "label,sentence1,sentence2"}
CHOICES = {
    "model.pooling": ("auto", "mean"),
    "train.optimizer.rate": ("0.00005", "0.0001", "0.0002"),
}
HEAD = ("batches.size=32", "train.patience=0", "train.every=1000000")
"""No early stopping: the last weights are scored."""
EPOCHS = {"SST-2": 3, "CoLA": 5, "STS-B": 5, "MRPC": 5, "RTE": 5}
TASKS, SEEDS, AT_ONCE = ("SST-2", "CoLA", "STS-B", "MRPC", "RTE"), range(5), 14


def segue(log: Path, *words: str) -> None:
    """Run a command; what it prints goes into a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        code = subprocess.run(
            [sys.executable, "-m", "segue", *words], stdout=file, stderr=file, env=environment
        ).returncode
    if code:
        print(f"FAILED {' '.join(words)}\n{log.read_text()[-2000:]}", flush=True)


def pretrain(out: Path, seconds: str) -> None:
    text = "+".join(str(DATA / name) for name in TEXTS)
    with ThreadPoolExecutor(2) as pool:
        body = ("train", "bert", text, *BODY, f"train.seconds={seconds}", "--out", str(out / "body"))
        bare = ("train", "bert", text, *BODY, "train.steps=1", "train.optimizer.rate=1e-9", "--device", "cpu")
        done = [pool.submit(segue, out / "body.log", *body)]
        done.append(pool.submit(segue, out / "random.log", *bare, "--out", str(out / "random")))
        for one in done:
            one.result()
    result = json.loads((out / "body" / "result.json").read_text())
    print({name: result.get(name) for name in ("parameters", "steps", "train_seconds", "masked_perplexity")})
    print({name: result.get(name) for name in ("masked_accuracy", "epochs")})


def choose(out: Path) -> None:
    """Keep the settings with the best mean accuracy on rows cut off training."""
    settings = [
        tuple(f"{k}={v}" for k, v in zip(CHOICES, values, strict=True)) for values in product(*CHOICES.values())
    ]
    jobs = [(s, task, seed) for s in settings for task in COLUMNS for seed in (0, 1)]

    def accuracy(job: tuple[tuple[str, ...], str, int]) -> float:
        chosen, task, seed = job
        run = out / "choose" / "-".join((*chosen, task, str(seed))).replace("/", "_")
        data = (str(DATA / "glue" / task / "train.tsv.xz"), f"data.columns={COLUMNS[task]}", "data.validation=0.15")
        own = (f"model.body={out / 'body'}", f"train.seed={seed}", f"train.epochs={EPOCHS[task]}", *HEAD, *chosen)
        segue(run.with_suffix(".log"), "train", "finetuned_classifier", *data, *own, "--out", str(run))
        return float(json.loads((run / "result.json").read_text())["accuracy"])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(jobs, pool.map(accuracy, jobs), strict=True))
    means = {s: statistics.mean(found[job] for job in jobs if job[0] == s) for s in settings}
    for s in settings:
        tasks = {task: round(statistics.mean(found[s, task, seed] for seed in (0, 1)), 3) for task in COLUMNS}
        print(" ".join(s), tasks, f"mean {means[s]:.4f}")
    best = max(settings, key=means.__getitem__)
    (out / "chosen.json").write_text(json.dumps(best))
    print("chosen:", *best)


def score(out: Path) -> None:
    chosen = json.loads((out / "chosen.json").read_text())
    jobs = [(task, body, seed) for task in TASKS for body in ("body", "random") for seed in SEEDS]

    def figures(job: tuple[str, str, int]) -> dict[str, float]:
        task, body, seed = job
        alone = out / "one" / task
        run = out / "score" / body / f"{task}-{seed}"
        own = (f"model.body={out / body}", f"train.seed={seed}", f"train.epochs={EPOCHS[task]}", *HEAD, *chosen)
        segue(run.with_suffix(".log"), "suite", "glue", str(alone), *own, "--out", str(run))
        row = json.loads((run / "result.json").read_text())["rows"][0]
        return {name: values["median"] for name, values in row["figures"].items()} | {
            f"{name} interval": values["ci"] for name, values in row["figures"].items()
        }

    for task in TASKS:  # so that two processes do not make the same link
        (out / "one" / task).mkdir(parents=True, exist_ok=True)
        if not (out / "one" / task / task).exists():
            (out / "one" / task / task).symlink_to((DATA / "glue" / task).resolve())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(jobs, pool.map(figures, jobs), strict=True))
    print("median of five seeds (all five), and the 95 % interval over dev rows of the median seed")
    for task, body in product(TASKS, ("body", "random")):
        rows = [found[task, body, seed] for seed in SEEDS]
        for name in (name for name in rows[0] if not name.endswith("interval")):
            ordered = sorted(rows, key=lambda row: row[name])
            middle = ordered[len(ordered) // 2]
            low, high = middle[f"{name} interval"]
            shown = " ".join(f"{100 * row[name]:.1f}" for row in rows)
            label = "pre-trained" if body == "body" else "random"
            print(f"{task:6} {name:12} {label:12} {100 * middle[name]:5.1f} ({shown})", end="  ")
            print(f"{100 * low:.1f} to {100 * high:.1f}")


def main() -> None:
    out, stage, begun = Path(sys.argv[1]).resolve(), sys.argv[2], time.perf_counter()
    if stage == "pretrain":
        pretrain(out, sys.argv[3] if len(sys.argv) > 3 else "420")
    else:
        {"choose": choose, "score": score}[stage](out)
    print(f"{stage}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""GLUE from 9 million words: pre-train a small BERT on one GPU, put heads on it, score them on GLUE's dev sets.

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/glue_small.py OUT pretrain [SECONDS]
    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/glue_small.py OUT score

`pretrain` reads pretrain/, wikitext-2/ and ptb/ of the data (9.04 million words, nothing of GLUE), and also makes the
same body with random weights. `score` trains heads on both bodies, many at a time, by `segue suite glue`, which scores
them on the dev sets. No dev row has a say: nothing is stopped early, and the last weights are scored. Every stage
prints the seconds that it took.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DATA = Path(os.environ["SEGUE_DATA"])
TEXTS = (
    *("pretrain/wiki.train.txt.xz", "pretrain/gutenberg.train.txt.xz"),
    *("wikitext-2/train.txt.xz", "ptb/ptb.train.txt.xz"),
)
BODY = (
    *("tokens.kind=wordpiece", "tokens.lowercase=true", "tokens.vocab_size=12000", "tokens.sample=15000000"),
    *("model.layers=8", "model.width=512", "model.heads=8", "model.context=128", "model.norm=pre"),
    *("model.position=rotary", "model.dropout=0.1", "batches.size=192", "batches.length=128", "batches.share=0.25"),
    *("train.plan=none", "train.patience=0", "train.every=1000000", "train.validate_tokens=30000"),
    *("train.optimizer.name=muon", "train.optimizer.rate=0.004", "train.optimizer.weight_decay=0.3"),
    *("train.optimizer.warmup=200", "data.validation=0.003"),
)
HEAD = ("batches.size=32", "train.patience=0", "train.every=1000000", "train.optimizer.rate=0.0001")
EPOCHS = {"SST-2": 1, "CoLA": 5, "MRPC": 5, "RTE": 5}
SEEDS = {"body": {task: 5 for task in EPOCHS}, "random": {"SST-2": 1, "CoLA": 3, "MRPC": 3, "RTE": 3}}
AT_ONCE = 32


def segue(log: Path, *words: str) -> None:
    """Run a command; what it prints goes into a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        done = subprocess.run([sys.executable, "-m", "segue", *words], stdout=file, stderr=file, env=environment)
    if done.returncode:
        print(f"FAILED {' '.join(words)}\n{log.read_text()[-1000:]}", flush=True)


def pretrain(out: Path, seconds: str) -> None:
    text = "+".join(str(DATA / name) for name in TEXTS)
    segue(out / "body.log", "train", "bert", text, *BODY, f"train.seconds={seconds}", "--out", str(out / "body"))
    make_random(out)
    result = json.loads((out / "body" / "result.json").read_text())
    names = ("parameters", "steps", "epochs", "train_seconds", "masked_perplexity", "masked_accuracy")
    print({name: result.get(name) for name in names})


def make_random(out: Path) -> None:
    """Make the run of the same body with random weights."""
    import torch

    from segue.runs.run import load

    shutil.copytree(out / "body", out / "random", ignore=shutil.ignore_patterns("checkpoints"))
    run = load(out / "random", "cpu")
    torch.manual_seed(0)
    run.model = type(run.model)(run.recipe.model, run.codec.sizes)
    run.save()


def score(out: Path) -> None:
    jobs = [(task, body, seed) for task in EPOCHS for body in SEEDS for seed in range(SEEDS[body][task])]
    for task in EPOCHS:
        alone = out / "one" / task
        alone.mkdir(parents=True, exist_ok=True)
        (alone / task).symlink_to((DATA / "glue" / task).resolve())

    def figures(job: tuple[str, str, int]) -> dict[str, Any]:
        task, body, seed = job
        run = out / "score" / f"{body}-{task}-{seed}"
        own = (f"model.body={out / body}", f"train.seed={seed}", f"train.epochs={EPOCHS[task]}", *HEAD)
        segue(run.with_suffix(".log"), "suite", "glue", str(out / "one" / task), *own, "--out", str(run))
        try:
            found: dict[str, Any] = json.loads((run / "result.json").read_text())["rows"][0]["figures"]
        except OSError:
            return {}
        shown = {name: round(100 * values["median"], 1) for name, values in found.items()}
        print(f"{task} {body} seed {seed}: {shown}", flush=True)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(jobs, pool.map(figures, jobs), strict=True))
    print("median of the seeds, the 95 % interval over dev rows of the median seed, and every seed")
    for task in EPOCHS:
        for body in SEEDS:
            rows = [values for (*job, _), values in found.items() if job == [task, body] and values]
            for name in rows[0] if rows else ():
                by_seed = [row[name]["median"] for row in rows]
                middle = sorted(rows, key=lambda row, name=name: row[name]["median"])[len(rows) // 2][name]
                low, high = middle["ci"]
                shown = " ".join(f"{100 * value:.1f}" for value in by_seed)
                print(f"{task:6} {name:12} {body:7} {100 * statistics.median(by_seed):5.1f}", end="  ")
                print(f"{100 * low:.1f} to {100 * high:.1f}  ({shown})")


def main() -> None:
    out, stage, begun = Path(sys.argv[1]).resolve(), sys.argv[2], time.perf_counter()
    if stage == "pretrain":
        pretrain(out, sys.argv[3] if len(sys.argv) > 3 else "600")
    else:
        score(out)
    print(f"{stage}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()

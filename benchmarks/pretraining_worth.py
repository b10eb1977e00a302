"""What 15 minutes of pre-training on two cores are worth: 2,000 rows of SST-2, from the body and from nothing.

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/pretraining_worth.py OUT [SECONDS [THREADS]]

Pre-trains a small BERT on WikiText-2 and puts heads on it and on the same body with random weights, five seeds each,
with `segue compare`: its verdict counts chance in the test rows and in training. The rows are drawn from SST-2's
training rows by seed; the test is its dev set, which chooses nothing.
"""

from __future__ import annotations

import json
import lzma
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

DATA = Path(os.environ["SEGUE_DATA"])
BODY = (
    *("tokens.kind=wordpiece", "tokens.lowercase=true", "model.context=64", "batches.length=64", "train.plan=none"),
    *("train.patience=0", "train.every=1000000", "train.validate_tokens=10000"),
)
ROWS, SEEDS = 2000, 5


def segue(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "segue", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def make_random(out: Path) -> None:
    """Make the run of the same body with random weights."""
    import torch

    from segue.runs.run import load

    shutil.copytree(out / "body", out / "random", ignore=shutil.ignore_patterns("checkpoints"))
    run = load(out / "random", "cpu")
    torch.manual_seed(0)
    run.model = type(run.model)(run.recipe.model, run.codec.sizes)
    run.save()


def rows(name: str) -> list[str]:
    """Label and text of each row, as a table has them."""
    lines = lzma.decompress((DATA / "glue" / "SST-2" / f"{name}.tsv.xz").read_bytes()).decode().splitlines()[1:]
    return ["\t".join(reversed(line.split("\t"))) for line in lines]


def main() -> None:
    out = Path(sys.argv[1])
    seconds, threads = sys.argv[2] if len(sys.argv) > 2 else "900", sys.argv[3] if len(sys.argv) > 3 else "2"
    out.mkdir(parents=True, exist_ok=True)
    text, held_out = (DATA / "wikitext-2" / f"{name}.txt.xz" for name in ("train", "valid"))
    if not (out / "body" / "result.json").exists():
        given = (f"data.validation={held_out}", *BODY, f"train.seconds={seconds}", "--threads", threads)
        print(segue("train", "bert", str(text), *given, "--out", str(out / "body")))
        make_random(out)
    (out / "train.tsv").write_text("\n".join(random.Random(0).sample(rows("train"), ROWS)))
    (out / "dev.tsv").write_text("\n".join(rows("dev")))
    models = f"{out / 'body'},{out / 'random'},nbsvm"
    given = ("--models", models, "--seeds", str(SEEDS), f"data.test={out / 'dev.tsv'}", "--threads", threads)
    print(segue("compare", str(out / "train.tsv"), *given, "--out", str(out / "compare")))
    body = json.loads((out / "body" / "result.json").read_text())
    print({name: body.get(name) for name in ("parameters", "steps", "epochs", "wall_seconds", "masked_perplexity")})


if __name__ == "__main__":
    main()

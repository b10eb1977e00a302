"""SQuAD 1.1's dev set after 11,877 training questions: a head on a pre-trained body, and on the same body untrained.

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/squad.py OUT            bodies of glue_small.py in OUT, one GPU
    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/squad.py OUT small [SECONDS]   a small body made here, two cores

First run `glue_small.py OUT pretrain`: it makes OUT/body and OUT/random, the same with random weights. `small` makes
both itself from WikiText-2, in minutes. squad/train-part-v1.1.json.xz (44 articles, 2,430 texts) trains; the official
dev set (10,570 questions, other articles) is scored once, at the end, and has no say. BERT-base, pre-trained on 3,300
million words and trained on 87,599 questions, has 80.8 exact match and 88.5 F1 there (Devlin et al. 2019).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from glue_small import make_random, segue

DATA = Path(os.environ["SEGUE_DATA"])
TRAIN, DEV = (str(DATA / "squad" / name) for name in ("train-part-v1.1.json.xz", "dev-v1.1.json.xz"))
SMALL_BODY = (
    *("tokens.kind=wordpiece", "tokens.lowercase=true", "tokens.vocab_size=8000", "model.layers=4", "model.width=128"),
    *("model.heads=4", "model.context=128", "batches.size=32", "batches.length=128", "train.plan=none"),
    *("train.patience=0", "train.every=1000000", "train.optimizer.rate=0.001", "data.validation=0.003"),
)
HEAD = ("data.validation=0", "train.patience=0", "train.every=1000000")
OF_GPU = ("train.epochs=3", "batches.size=32", "train.optimizer.rate=0.0001")
OF_CPU = ("train.epochs=2", "batches.size=32", "train.optimizer.rate=0.0005")


def make_small(out: Path, seconds: str) -> None:
    """Make a small body, and the same with random weights."""
    if not (out / "body").exists():
        text = str(DATA / "wikitext-2" / "train.txt.xz")
        segue(
            out / "body.log", "train", "bert", text, *SMALL_BODY, f"train.seconds={seconds}", "--out", str(out / "body")
        )
        make_random(out)


def score(out: Path, body: str, settings: tuple[str, ...]) -> None:
    """Train a head on a body, and print the figures on the dev set."""
    run, begun = out / f"squad-{body}", time.perf_counter()
    own = (f"model.body={out / body}", f"data.test={DEV}", *HEAD, *settings)
    segue(run.with_suffix(".log"), "train", "finetuned_answerer", TRAIN, *own, "--out", str(run))
    found = json.loads((run / "result.json").read_text())
    shown = [
        f"{name} {100 * found[key]:.1f} ({100 * found[key + '_ci'][0]:.1f} to {100 * found[key + '_ci'][1]:.1f})"
        for name, key in (("F1", "f1"), ("exact match", "exact"))
    ]
    seconds = f"{found['train_seconds']:.0f} s of training, {time.perf_counter() - begun:.0f} s in all"
    print(f"{body:7} {', '.join(shown)}; reachable {100 * found['reachable']:.2f} %; {seconds}", flush=True)


def main() -> None:
    out, small = Path(sys.argv[1]).resolve(), "small" in sys.argv[2:3]
    if small:
        make_small(out, sys.argv[3] if len(sys.argv) > 3 else "240")
    for body in ("body", "random"):
        score(out, body, (OF_CPU if small else OF_GPU) + tuple(sys.argv[4:]))


if __name__ == "__main__":
    main()

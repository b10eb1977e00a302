"""tinyshakespeare characters on one GPU: validation loss against time, from the start of the command.

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/shakespeare_gpu.py [STEPS ...] [key=value ...]

Each number of steps is a run of its own: `segue train gpt/gpu`, first 90 % of the text to train on, timed from the
start of the process to its end, compilation included. The loss is nanoGPT's: 200 batches of 64 random windows of 256
characters of the last 10 %, each read from cold (published 1.4697 with 10.7 M parameters). All settings were
chosen by that same loss, as nanoGPT's were, so that the figures are a little too good for text that chose nothing. The
two numbers of steps are two recipes: RUNS says what 400 steps set otherwise.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

SETTINGS = ["data.unit=document", "data.validation=0.1", "data.test=0", "train.validate_tokens=20000"]
RUNS = {"400": ["model.dropout=0.1", "batches.noise=none", "train.optimizer.warmup=50"], "2000": []}
"""Steps, and what is set for that many beside the recipe gpt/gpu."""


def nanogpt_loss(run: Path) -> float:
    """The mean over random windows, as nanoGPT's `estimate_loss`."""
    from segue.batches.batch import Batch
    from segue.data.corpus import Corpus
    from segue.layers.losses import cross_entropy
    from segue.runs.run import Run

    opened = Run.open(run, "cuda")
    text = "".join(example.text for example in Corpus(opened.recipe.data, opened.recipe.shape).examples("validation"))
    ids = torch.from_numpy(opened.tokenizer.encode(text).astype(np.int64)).cuda()
    draw = torch.Generator("cuda").manual_seed(0)
    total, count = 0.0, 0
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        for _ in range(200):
            starts = torch.randint(len(ids) - 256, (64,), generator=draw, device="cuda")
            windows = ids[starts[:, None] + torch.arange(257, device="cuda")]
            mask = torch.ones_like(windows[:, 1:], dtype=torch.bool)
            logits, _ = opened.model(Batch(windows[:, :-1], windows[:, 1:], mask))
            loss, some = cross_entropy(logits, windows[:, 1:])
            total, count = total + float(loss), count + int(some)
    return total / count


def main() -> None:
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = Path(os.environ["SEGUE_DATA"]) / "tinyshakespeare" / "input.txt.xz"
        (place / "text.txt").write_bytes(lzma.decompress(source.read_bytes()))
        print(torch.cuda.get_device_name(), torch.__version__)
        extra = [word for word in sys.argv[1:] if "=" in word]
        for steps in [word for word in sys.argv[1:] if "=" not in word] or RUNS:
            run = place / steps
            words = [
                "train",
                "gpt/gpu",
                str(place / "text.txt"),
                "--out",
                str(run),
                f"train.steps={steps}",
                *SETTINGS,
                *RUNS.get(steps, []),
                *extra,
            ]
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "segue", *words, f"train.every={steps}"], check=True, capture_output=True
            )
            seconds = time.perf_counter() - begun
            print(f"{steps} steps: {nanogpt_loss(run):.4f} nats after {seconds:.1f} s {' '.join(extra)}", flush=True)


if __name__ == "__main__":
    main()

"""Parts of speech of UD English EWT (UPOS, gold words) from the treebank alone, within ten minutes on two cores.

    SEGUE_DATA=folder python benchmarks/tagging.py [recipe …] [section.key=value …]

SEGUE_DATA holds ud-ewt/{train,dev,test}.tsv.xz. rnn_tagger/upos validates once, at the end, so that dev chooses no
weights and the last ones are kept (another recipe may validate more often and keep the best); test is looked at once.
The bar is 0.950 and the aim 0.953; UDPipe 1 has 0.945, BiLSTMs over words and letters 0.948 to 0.952.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR, AIM, LIMIT = 0.950, 0.953, 600
"""Accuracy that is asked for, accuracy that is hoped for, seconds from the command to the figure."""


def segue(*words: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "segue", *words, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def tagged(recipe: str, settings: list[str], data: Path, place: Path) -> bool:
    """Trains and tests one recipe; whether it reached the bar in time."""
    begun = time.perf_counter()
    out = str(place / recipe.replace("/", "-"))
    splits = [f"data.validation={data / 'dev.tsv.xz'}", "data.format=conll"]
    segue("train", recipe, str(data / "train.tsv.xz"), "--out", out, *splits, *settings)
    result = segue("evaluate", out, str(data / "test.tsv.xz"))
    seconds = time.perf_counter() - begun
    low, high = result["accuracy_ci"]
    print(
        f"{recipe}: UPOS {result['accuracy']:.4f} ({low:.4f} to {high:.4f}) on {result['words']:,} words, "
        f"{seconds:.0f} s; bar {BAR}, aim {AIM}, limit {LIMIT} s",
        flush=True,
    )
    return result["accuracy"] >= BAR and seconds <= LIMIT


def main() -> int:
    if "SEGUE_DATA" not in os.environ:
        print("skipped: SEGUE_DATA does not say where the data sets are")
        return 0
    recipes = [word for word in sys.argv[1:] if "=" not in word] or ["rnn_tagger/upos"]
    settings = [word for word in sys.argv[1:] if "=" in word]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(os.environ["SEGUE_DATA"]) / "ud-ewt"
        reached = [tagged(recipe, settings, data, Path(folder)) for recipe in recipes]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Parts of speech of UD English EWT by a frozen ELMo, a learnt mix of its layers under a linear layer, beside
rnn_tagger/upos, which reads the treebank alone (0.955).

    SEGUE_DATA=folder python benchmarks/elmo_tagging.py [--seconds 600] [section.key=value …]

SEGUE_DATA holds ud-ewt/{train,dev,test}.tsv.xz and wikitext-2/train.txt.xz; the body reads the latter for so many
seconds first. The same head on the last layer alone says what the mix adds. Settings are those of the body.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BESIDE = 0.955
"""rnn_tagger/upos."""


def segue(*words: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "segue", *words, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def tagged(body: Path, name: str, data: Path, place: Path, *settings: str) -> float:
    """Train a head on the frozen body and test it; return its accuracy."""
    begun, out = time.perf_counter(), str(place / name)
    splits = [f"data.validation={data / 'dev.tsv.xz'}", "data.format=conll"]
    given = [f"model.body={body}", "model.frozen=true", *settings]
    segue("train", "finetuned_tagger", str(data / "train.tsv.xz"), "--out", out, *splits, *given)
    result = segue("evaluate", out, str(data / "test.tsv.xz"))
    low, high = result["accuracy_ci"]
    seconds = time.perf_counter() - begun
    print(f"{name}: UPOS {result['accuracy']:.4f} ({low:.4f} to {high:.4f}), {seconds:.0f} s", flush=True)
    return float(result["accuracy"])


def main() -> int:
    if "SEGUE_DATA" not in os.environ:
        print("skipped: SEGUE_DATA does not say where the data sets are")
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    given, settings = parser.parse_known_args()
    folder = Path(os.environ["SEGUE_DATA"])
    text = folder / "wikitext-2" / "train.txt.xz"
    with tempfile.TemporaryDirectory() as place:
        body = Path(place) / "body"
        budget = f"train.seconds={given.seconds}"
        result = segue("train", "elmo", str(text), "--out", str(body), "tokens.kind=space", budget, *settings)
        print(f"body: perplexity {result['perplexity']:.1f} after {given.seconds:.0f} s", flush=True)
        mixed = tagged(body, "mix", folder / "ud-ewt", Path(place), "model.mix=true")
        last = tagged(body, "last layer", folder / "ud-ewt", Path(place))
    print(f"mix - last layer: {mixed - last:+.4f}; rnn_tagger/upos, from the treebank alone: {BESIDE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

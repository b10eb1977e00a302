"""On `tones` and `shapes`, sounds and pictures that are made by seed, both encoder-decoders come within 2 % of the best
possible bits per byte of the target, and at least 98 % of what they write is right.

The peer is the truth: what a source does not decide (which of two spellings, which thing is named first) is drawn with
known probabilities, so that the bits of the test text are known. What is written is right if it is any of the texts
that the source allows.
Usage: python benchmarks/sources_grammar.py [--seeds 0] [model/recipe …]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import segue
from segue.runs.folder import read_json

RECIPES = {"speech": "tones", "captions": "shapes"}
"""The recipes of each encoder-decoder, and the built-in corpus that each is tried on."""
KINDS = ("rnn_seq2seq", "transformer")
KEYS = {"data.validation": 0.05, "data.test": 0.1}
SMALL = {"batches.size": 64, "model.width": 128, "model.dropout": 0.1, "train.optimizer.ema": 0.99}
TONES = {
    "rnn_seq2seq/speech": {**SMALL, "model.feeds": "attentional", "train.steps": 600},
    "transformer/speech": {**SMALL, "model.layers": 2, "train.steps": 800},
}
"""Other settings than for speech: there is less to learn, so that less will do."""
FURTHEST, LEAST_EXACT = 0.02, 0.98


class Outcome(NamedTuple):
    exact: float
    bits: float
    best: float
    seconds: float

    @property
    def distance(self) -> float:
        """How many more bits than the best possible, as a share."""
        return self.bits / self.best - 1


def trained(recipe: str, seed: int, folder: Path) -> Outcome:
    begun = time.perf_counter()
    corpus = RECIPES[recipe.split("/")[1]]
    settings = KEYS | TONES.get(recipe, {}) | {"train.seed": seed}
    run = segue.train(recipe, corpus, folder / f"{recipe.replace('/', '-')}-{seed}", settings)
    seconds = time.perf_counter() - begun
    result = read_json(run.path / "result.json")
    return Outcome(result["exact"], result["bits_per_byte"], result["best"]["bits_per_byte"], seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", nargs="*", default=[f"{kind}/{name}" for name in RECIPES for kind in KINDS])
    parser.add_argument("--seeds", default="0")
    asked = parser.parse_args()
    print("model                    seed   exact match   bits per byte      best   distance   seconds")
    worst, least = 0.0, 1.0
    with tempfile.TemporaryDirectory() as folder:
        for recipe in asked.recipes:
            for seed in map(int, asked.seeds.split(",")):
                one = trained(recipe, seed, Path(folder))
                figures = f"{one.exact:>11.1%}   {one.bits:>13.4f}   {one.best:>7.4f}   {one.distance:>8.2%}"
                print(f"{recipe:<24} {seed:>4}   {figures}   {one.seconds:>7.0f}", flush=True)
                worst, least = max(worst, one.distance), min(least, one.exact)
    print(f"largest distance {worst:.2%} (at most {FURTHEST:.0%} expected)")
    print(f"least exact match {least:.1%} (at least {LEAST_EXACT:.0%} expected)")


if __name__ == "__main__":
    main()

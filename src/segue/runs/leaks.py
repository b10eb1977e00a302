"""Data leaks: text that is scored and stood in the training data of a run.

A run's own test or validation split is left to its ledger (`overlap`). What any other text shares with the training
data is looked up in train_hashes.safetensors (data/seen_text.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segue.data.corpus import Corpus
from segue.data.seen_text import WINDOW, Sample, hashes_of, sample, windows_of_rows
from segue.recipe import Recipe

FILE = "train_hashes.safetensors"
MUCH = 0.1
"""Warn above this share. Honest splits share less, by phrases that recur: pydoc 2.2 %, the standard library 1.6 %, the
Linux kernel 1.5 %, PTB 1.2 %, WikiText-2 0.1 %, Shakespeare 0 %; of rows, UD EWT 4.5 %, TREC 2 %, CR 0.8 %, MR 0 %."""


def write_hashes(corpus: Corpus, path: Path, init: str) -> None:
    """Write the hashes of the training data into a run folder, with those of the run that it begins from."""
    if (path / FILE).exists():
        return  # the run is resumed, and its data are the same
    own = sample(hashes_of(corpus, "train"))
    first = Path(init) / FILE
    (own.joined(Sample.read(first)) if init and first.exists() else own).write(path / FILE)


def trained_runs(path: Path, recipe: Recipe, own: bool) -> list[Path]:
    """List the runs whose training data a text is looked up in: the run itself; for what it held out itself (`own`),
    only the runs that it began from (train.init, model.body)."""
    before = [Path(name) for name in (recipe.train.init, recipe.model.body) if name]
    return before if own else [path]


def leak(runs: Sequence[Path], corpus: Corpus, split: str) -> dict[str, Any]:
    """Look a text up in the training data of runs: {"leak": …} if much of it stood there, else nothing. Rows are looked
    up whole, and in windows too, since a body read running text. A run that was imported has no hashes."""
    samples = {run: Sample.read(run / FILE) for run in runs if (run / FILE).exists()}
    ways = [(f"of the text (windows of {WINDOW} bytes)", hashes_of)]
    if not corpus.shape.running:
        ways = [("of the rows", hashes_of), (f"of the rows' text (windows of {WINDOW} bytes)", windows_of_rows)]
    shares = {
        str(run): max((known.share(hashes(corpus, split)) or 0.0, what) for what, hashes in ways)
        for run, known in samples.items()
    }
    much = {run: share for run, (share, _) in shares.items() if share > MUCH}
    if not much:
        return {}
    worst = max(much, key=much.__getitem__)
    return {"leak": {"share": much[worst], "run": worst, "runs": much, "of": shares[worst][1]}}

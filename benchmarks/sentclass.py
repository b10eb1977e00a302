"""Accuracy of classifiers on MR, SST-1, SST-2, TREC and CR (Kim 2014), without outside text, by the papers' protocol.

MR and CR: ten folds, each tested once, a tenth of the other rows held out for validation where a model needs some.
SST-1, SST-2: their own validation and test sentences; training on the phrases of the training trees (--sentences: on
whole sentences alone). TREC: its own test questions, a tenth of training held out. Nothing goes from set to set.

A model is a kind or a recipe, with settings of its own after colons: ngram_bag:model.pairs=3. Models that count choose
by cross-validation inside the training rows, so that they learn from all of them (data.validation=0), unless --ensemble
is given: then every model holds the same rows out, and an ensemble of all of them, weighed on those, comes last.

Usage: SEGUE_DATA=… python benchmarks/sentclass.py [--data mr,cr] [--models naive_bayes,nbsvm] [--folds 10] [--jobs 2]

The rows of docs/figures.md, CNN, DAN, nbsvm and the ensemble, are two commands, some hours on two cores; `make bench`
runs neither, only the default, the models that count:

    sentclass.py --ensemble --data mr,trec,cr --models cnn_classifier,dan,nbsvm,ngram_bag
    sentclass.py --ensemble --data sst1,sst2 --models cnn_classifier/phrases,dan/phrases,nbsvm,ngram_bag
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PUBLISHED = {
    "CNN-rand (Kim 2014)": (76.1, 45.0, 82.7, 91.2, 79.8),
    "DAN-RAND (Iyyer et al. 2015)": (77.3, 45.4, 83.2, None, None),
    "NBSVM-bi (Wang and Manning 2012)": (79.4, None, None, None, 81.8),
}
SETS = ("mr", "sst1", "sst2", "trec", "cr")
FOLDED = ("mr", "cr")
DRAWS = 2_000


class Job(NamedTuple):
    """Models to train on one set, or on one fold of it."""

    name: str
    fold: int
    models: tuple[str, ...]
    ensemble: bool
    sentences: bool


class Outcome(NamedTuple):
    model: str
    right: list[bool]
    seconds: float


def read(name: str) -> list[tuple[str, str]]:
    """(label, text) of every row."""
    path = Path(os.environ["SEGUE_DATA"]) / "sentclass" / f"{name}.tsv.xz"
    with lzma.open(path, "rt", encoding="utf8", newline="\n") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file]  # type: ignore[misc]


def phrases(name: str) -> list[tuple[str, str]]:
    """The phrases of the training trees; of SST-2 those that are not neutral, negative or positive."""
    rows = read("sst1.phrases.train")
    if name == "sst1":
        return rows
    return [("1" if label in "34" else "0", text) for label, text in rows if label != "2"]


def written(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    return str(path)


def split(job: Job, folder: Path) -> tuple[str, dict[str, Any], str]:
    """Training data, its settings, and the test file."""
    if job.name in FOLDED:
        rows = read(f"{job.name}.all")
        part = np.random.default_rng(0).permutation(len(rows)) % 10
        training = [row for row, p in zip(rows, part, strict=True) if p != job.fold]
        test = [row for row, p in zip(rows, part, strict=True) if p == job.fold]
        settings: dict[str, Any] = {"data.validation": 0.1}
    elif job.name == "trec":
        training, test, settings = read("trec.train"), read("trec.test"), {"data.validation": 0.1}
    else:
        training = read(f"{job.name}.train") if job.sentences else phrases(job.name)
        test = read(f"{job.name}.test")
        settings = {"data.validation": written(folder / "validation.tsv", read(f"{job.name}.dev"))}
    return written(folder / "training.tsv", training), settings, written(folder / "test.tsv", test)


def run(job: Job) -> list[Outcome]:
    """Trains and tests the models of a job, one after the other."""
    import segue
    from segue.recipe import load_recipe

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training, settings, test = split(job, folder)
        labels, texts = zip(
            *(line.split("\t") for line in Path(test).read_text("utf-8").split("\n") if line), strict=True
        )
        outcomes, places, spent = [], [], 0.0

        def tried(model: str, data: str | None, own: dict[str, Any], called: str) -> None:
            nonlocal spent
            kind, *more = model.split(":")
            place = folder / f"run-{len(places)}"
            begun = time.perf_counter()
            lines = [f"{key}={value}" for key, value in own.items()]
            trained = segue.train(kind, data, place, [*lines, *more])
            seconds = time.perf_counter() - begun
            spent += seconds
            right = [p.label == label for p, label in zip(trained.predict(texts), labels, strict=True)]
            print(f"  {job.name} {job.fold} {called}: {100 * np.mean(right):.2f} after {seconds:.1f} s", flush=True)
            outcomes.append(Outcome(called, right, seconds))
            places.append(place)

        for model in job.models:
            counts = hasattr(load_recipe(model.split(":")[0]).model_class, "fit")
            own = dict(settings)
            if counts and not job.ensemble and not isinstance(settings["data.validation"], str):
                own["data.validation"] = 0
            tried(model, training, own, model)
        if job.ensemble:
            tried("ensemble", None, {"model.runs": ",".join(map(str, places))}, "ensemble")
            outcomes[-1] = outcomes[-1]._replace(seconds=spent)
    return outcomes


def interval(right: np.ndarray) -> tuple[float, float]:
    """Of the accuracy in per cent: 95 % by bootstrap over rows."""
    draws = np.random.default_rng(0).integers(0, len(right), (DRAWS, len(right)))
    low, high = np.quantile(right[draws].mean(1), (0.025, 0.975))
    return 100 * float(low), 100 * float(high)


def main() -> None:
    if "SEGUE_DATA" not in os.environ:
        print("skipped: SEGUE_DATA does not say where the data sets are")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SETS), help="which of mr, sst1, sst2, trec, cr")
    parser.add_argument("--models", default="naive_bayes,nbsvm,ngram_bag", help="kinds or recipes, with :key=value")
    parser.add_argument("--ensemble", action="store_true", help="and an ensemble of them all")
    parser.add_argument("--sentences", action="store_true", help="SST: train on whole sentences, not on phrases")
    parser.add_argument("--folds", type=int, default=10, help="how many of the ten folds of MR and CR")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--json", help="write every outcome to this file")
    options = parser.parse_args()
    models = tuple(options.models.split(","))
    jobs = [
        Job(name, fold, models, options.ensemble, options.sentences)
        for name in options.data.split(",")
        for fold in range(options.folds if name in FOLDED else 1)
    ]
    found: dict[tuple[str, str], list[Outcome]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for job, outcomes in zip(jobs, pool.map(run, jobs), strict=True):
            for outcome in outcomes:
                found.setdefault((outcome.model, job.name), []).append(outcome)
    report(found, options.data.split(","))
    if options.json:
        table = {f"{model} {name}": [o._asdict() for o in outcomes] for (model, name), outcomes in found.items()}
        Path(options.json).write_text(json.dumps(table))


def report(found: dict[tuple[str, str], list[Outcome]], names: list[str]) -> None:
    """One line a model and set: accuracy with its interval, and the seconds of one fit."""
    print(f"\n{'model':<44} {'set':<5} {'accuracy':>8}  {'95 %':<13} {'rows':>6} {'seconds a fit':>13}")
    for (model, name), outcomes in found.items():
        right = np.concatenate([outcome.right for outcome in outcomes]).astype(float)
        low, high = interval(right)
        seconds = statistics.median(outcome.seconds for outcome in outcomes)
        part = "" if name not in FOLDED or len(outcomes) == 10 else f"  ({len(outcomes)} folds of 10)"
        print(
            f"{model[:44]:<44} {name:<5} {100 * right.mean():>8.2f}  {low:.1f}–{high:.1f}     {len(right):>6} "
            f"{seconds:>13.1f}{part}"
        )
    for model, figures in PUBLISHED.items():
        told = [f"{name} {figure}" for name, figure in zip(SETS, figures, strict=True) if figure and name in names]
        print(f"published: {model}: {', '.join(told) or 'none of these'}")


if __name__ == "__main__":
    main()

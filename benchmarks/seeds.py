"""Does `segue compare --seeds 3` keep its word? Trains four recipes with 40 seeds each, then draws groups of three.

A/A: of 800 pairs of groups of three seeds of one recipe, 3 to 7 % must be called different at the 5 % level (pooled).
Power: each recipe is also trained with a tenth more steps. The true difference, known from 40 seeds a side, is scaled
so that Student's t-test on the six figures of two groups finds it in 80 % of draws; `compare` must find it in 75 %.

Each seed's piece table is kept in a folder, so that it is trained once; call again to go on. Texts are built in.
The column "one seed" is how often two runs of one recipe differ on this text by more than its chance (question (a));
"bootstrap" is A/A by the other test that was weighed, a two-way bootstrap that draws seeds and pieces anew.
Usage: python benchmarks/seeds.py [--jobs 1] [--seeds 40] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from segue.inference.evaluation import Evaluation, compare
from segue.inference.statistics import t_beyond

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
DRAWS = 200
"""Pairs of groups of each recipe."""
LM = {"batches.size": 16, "batches.length": 64, "data.validation": 0.02, "data.test": 0.2}
ROWS = {"data.validation": 0.05, "data.test": 0.25}
RECIPES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "rnn_lm": ("pydoc", 60, {**LM, "model.width": 96, "model.embedding": 32}),
    "gpt": ("pydoc", 60, {**LM, "model.width": 48, "model.layers": 2, "model.heads": 2, "model.context": 64}),
    "cnn_classifier": ("labelled.tsv", 40, ROWS),
    "rnn_tagger/words": ("tagged.tsv", 60, ROWS),
}
"""Each recipe's data, steps and settings: a second or two of training on one core."""


class Job(NamedTuple):
    """One run: a recipe, its variant (a, or b with more steps) and its seed."""

    recipe: str
    variant: str
    seed: int
    out: Path

    @property
    def table(self) -> Path:
        return self.out / f"{self.recipe.replace('/', '-')}-{self.variant}-{self.seed:02}.npy"


def write_rows(out: Path) -> None:
    """Write rows with labels and sentences with tags, drawn from the built-in grammar."""
    from segue.data.grammar import sentences

    labelled = [f"{row.label}\t{row.text}" for row in sentences("labelled", 4000)]
    (out / "labelled.tsv").write_text("\n".join(labelled) + "\n", encoding="utf-8")
    tagged = [map("\t".join, zip(row.words, row.tags, strict=True)) for row in sentences("tagged", 3000)]
    (out / "tagged.tsv").write_text("\n\n".join(map("\n".join, tagged)) + "\n", encoding="utf-8")


def trained(job: Job) -> Job:
    """Train one run in a temporary folder and keep its piece table."""
    import torch

    from segue.runs.train import train

    torch.set_num_threads(1)
    data, steps, settings = RECIPES[job.recipe]
    found = job.out / data
    steps = round(steps * (1.1 if job.variant == "b" else 1))
    with tempfile.TemporaryDirectory() as folder:
        own = {**settings, "train.steps": steps, "train.seed": job.seed}
        path = str(found) if found.exists() else data
        run = train(job.recipe, path, Path(folder) / "run", own, device="cpu", threads=1)
        np.save(job.table, run.evaluation.pieces_NK)
    return job


def train_all(jobs: list[Job], processes: int) -> None:
    missing = [job for job in jobs if not job.table.exists()]
    with ProcessPoolExecutor(processes) as pool:
        for i, done in enumerate(as_completed([pool.submit(trained, job) for job in missing])):
            print(f"{i + 1} of {len(missing)}: {done.result().table.name}", flush=True)


# Drawing groups


def evaluations(recipe: str, tables: Iterable[Floats]) -> list[Evaluation]:
    share = not recipe.endswith(("_lm", "gpt"))
    return [Evaluation({"figure": ""}, t, share=share, ordered=recipe != "cnn_classifier") for t in tables]


def groups(seeds: int, draws: int = DRAWS) -> Iterator[tuple[Ids, Ids]]:
    """Draw pairs of groups of three different seeds."""
    draw = np.random.default_rng(0)
    for _ in range(draws):
        drawn = draw.permutation(seeds)[:6]
        yield drawn[:3], drawn[3:]


def found(recipe: str, a: Floats, b: Floats) -> float:
    """The share of draws in which `compare` calls three seeds of a and three of b different."""
    sides = evaluations(recipe, a), evaluations(recipe, b)
    clear = [
        compare([sides[0][i] for i in one], [sides[1][i] for i in other]).p < 0.05 for one, other in groups(len(a))
    ]
    return float(np.mean(clear))


def found_by_bootstrap(a: Floats, resamples: int = 400) -> float:
    """The share of A/A draws that a two-way bootstrap calls different: seeds and pieces drawn with replacement."""
    draw = np.random.default_rng(1)
    clear = []
    for one, other in groups(len(a)):
        weights = draw.multinomial(a.shape[1], np.full(a.shape[1], 1 / a.shape[1]), resamples)
        means = []
        for group in (one, other):
            sums = np.einsum("rn,snk->rsk", weights, a[group])
            figures = sums[..., 0] / sums[..., 1]
            means.append(np.take_along_axis(figures, draw.integers(0, 3, (resamples, 3)), 1).mean(1))
        gap = means[0] - means[1]
        clear.append(2 * min((gap <= 0).mean(), (gap >= 0).mean()) < 0.05)
    return float(np.mean(clear))


def found_by_seeds(a: Floats, b: Floats) -> float:
    """The share of draws in which Student's t-test on the six figures does."""
    x, y = (side[:, :, 0].sum(1) / side[:, :, 1].sum(1) for side in (a, b))
    clear = []
    for one, other in groups(len(a)):
        spread = math.sqrt((x[one].var(ddof=1) + y[other].var(ddof=1)) / 3)
        clear.append(t_beyond((x[one].mean() - y[other].mean()) / spread, 4) < 0.05)
    return float(np.mean(clear))


def scaled(a: Floats, b: Floats, power: float = 0.8) -> Floats:
    """Scale the mean difference of b from a, piece by piece, so that the t-test on seeds finds it with this power."""
    gap = b.mean(0) - a.mean(0)
    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if found_by_seeds(a, b + (middle - 1) * gap) >= power else (middle, high)
    return b + (high - 1) * gap


def report(out: Path, seeds: int) -> None:
    same, power = [], []
    head = f"{'recipe':<18} {'a':>7} {'b':>7} {'deviation':>10} {'A/A':>6} {'bootstrap':>10} {'one seed':>9}"
    print(f"{head} {'t-test':>7} {'compare':>8}")
    for recipe in RECIPES:
        a, b = (np.stack([np.load(Job(recipe, v, s, out).table) for s in range(seeds)]) for v in "ab")
        means = [side[:, :, 0].sum(1) / side[:, :, 1].sum(1) for side in (a, b)]
        moved = scaled(a, b)
        same.append(found(recipe, a, a))
        power.append(found(recipe, a, moved))
        one = evaluations(recipe, a)
        alone = np.mean([compare([one[i[0]]], [one[j[0]]]).p < 0.05 for i, j in groups(seeds)])
        figures = f"{means[0].mean():>7.3f} {means[1].mean():>7.3f} {means[0].std(ddof=1):>10.4f}"
        tested = f"{same[-1]:>6.1%} {found_by_bootstrap(a):>10.1%} {alone:>9.1%}"
        print(f"{recipe:<18} {figures} {tested} {found_by_seeds(a, moved):>7.1%} {power[-1]:>8.1%}", flush=True)
    print(f"A/A: {np.mean(same):.1%} of {DRAWS * len(same)} pairs called different (3 to 7 % expected)")
    print(f"power: {np.mean(power):.1%} where the t-test on seeds has 80 % (at least 75 % expected)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="processes that train at the same time, one thread each")
    parser.add_argument("--seeds", type=int, default=40, help="seeds of each recipe")
    parser.add_argument("--out", type=Path, default=Path("seeds"), help="folder of the piece tables")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    write_rows(asked.out)
    jobs = [Job(recipe, v, seed, asked.out) for recipe in RECIPES for seed in range(asked.seeds) for v in "ab"]
    train_all(jobs, asked.jobs)
    report(asked.out, asked.seeds)


if __name__ == "__main__":
    main()

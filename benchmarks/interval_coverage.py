"""Do 95 % intervals hold the truth in 93 to 97 % of cases? Simulated series, and windows of real text.

Simulated: 20, 50 and 200 pieces with correlations of 0 to 0.6 between neighbours (AR(1)), normal and skewed noise,
10,000 series each. Beside ours stand the interval that takes pieces for independent, and the estimator with the
0.4 n^(2/3) cosines of Lazarus, Lewis, Stock and Watson (2018).

Real, if SEGUE_DATA names the folder of the corpora: bits of blocks of 2,048 bytes of WikiText-2 and the Linux kernel by
n-grams trained on another part of them, and the paired difference of two; windows are held against the whole series'
mean. Such text has longer waves than AR(1) (articles, files), which few blocks cannot show.

Usage: [SEGUE_DATA=…] python benchmarks/interval_coverage.py
"""

from __future__ import annotations

import lzma
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.inference.statistics import cosine_variance, t_quantile, variance_of_mean

Floats = NDArray[np.float64]
SERIES = 10_000
WIKI = ("wikitext-2/valid.txt.xz", "wikitext-2/train.txt.xz")
KERNEL = "linux-kernel/kernel-4.19.c.txt.xz"
LEARNT = 1_000_000
"""Characters of the kernel from which the n-grams are learnt; the rest is scored."""


def correlated(draw: np.random.Generator, pieces: int, rho: float, skewed: bool) -> Floats:
    """Draw series (SERIES, pieces) with mean 0 and variance 1, each value rho times the one before plus noise."""
    shape = (SERIES, pieces + 30)
    noise = (draw.gamma(2.0, 1.0, shape) - 2) / math.sqrt(2) if skewed else draw.standard_normal(shape)
    for t in range(1, shape[1]):
        noise[:, t] = rho * noise[:, t - 1] + math.sqrt(1 - rho * rho) * noise[:, t]
    return noise[:, 30:]


def held(series: Floats, variances: Floats, df: int) -> float:
    """The share of series whose interval holds 0."""
    return float((np.abs(series.mean(1)) <= t_quantile(df) * np.sqrt(variances)).mean())


def line(name: str, series: Floats) -> float:
    ours = held(series, *variance_of_mean(series, ordered=True))
    waves = round(0.4 * series.shape[1] ** (2 / 3))
    theirs = held(series, cosine_variance(series, waves), waves)
    independent = held(series, *variance_of_mean(series, ordered=False))
    print(f"{name:<44} {ours:>7.1%} {theirs:>13.1%} {independent:>12.1%}", flush=True)
    return ours


def simulated() -> list[float]:
    shares = []
    for skewed in (False, True):
        for pieces in (20, 50, 200):
            for rho in (0.0, 0.2, 0.4, 0.6):
                series = correlated(np.random.default_rng([pieces, int(10 * rho)]), pieces, rho, skewed)
                name = f"{pieces} pieces, correlation {rho}, {'skewed' if skewed else 'normal'} noise"
                shares.append(line(name, series))
    return shares


def real(data: Path) -> Iterator[tuple[str, Floats]]:
    """Yield bits per byte of the blocks of real texts, and the differences of two models."""
    from segue.runs.train import train

    def text(name: str) -> str:
        with lzma.open(data / name, "rt", encoding="utf-8", newline="\n") as file:
            return file.read()

    wiki, kernel = (text(WIKI[0]), text(WIKI[1])), text(KERNEL)
    for name, (learnt, scored) in {"WikiText-2": wiki, "Linux kernel": (kernel[:LEARNT], kernel[LEARNT:])}.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "learnt.txt").write_text(learnt, encoding="utf-8", newline="\n")
            (Path(folder) / "scored.txt").write_text(scored, encoding="utf-8", newline="\n")
            settings = {"data.validation": 0.05, "data.test": f"{folder}/scored.txt"}
            bits = []
            for model in ("ngram/fivegram", "ngram"):
                run = train(model, f"{folder}/learnt.txt", f"{folder}/{model.replace('/', '-')}", settings)
                assert run.evaluation is not None
                table = run.evaluation.pieces_NK[:-1]  # the last block is short
                bits.append(table[:, 0] / table[:, 1])
        yield f"{name}, bits", bits[0]
        yield f"{name}, difference of two", bits[1] - bits[0]


def main() -> None:
    print(f"{'intervals that hold the truth':<44} {'ours':>7} {'0.4 n^(2/3)':>13} {'independent':>12}")
    shares = simulated()
    print(f"simulated: {min(shares):.1%} to {max(shares):.1%} (93 to 97 % expected)\n")
    if "SEGUE_DATA" not in os.environ:
        print("SEGUE_DATA is not set: no real text.")
        return
    for name, series in real(Path(os.environ["SEGUE_DATA"])):
        for pieces in (20, 50, 200):
            starts = np.random.default_rng(pieces).integers(0, len(series) - pieces, 3000)
            line(f"{name}, {pieces} blocks", series[starts[:, None] + np.arange(pieces)] - series.mean())


if __name__ == "__main__":
    main()

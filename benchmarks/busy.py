"""Training beside other programs: the default number of threads against one and all; and what that costs when quiet.

    python benchmarks/busy.py [--repeats 3]             beside one busy loop for each core
    python benchmarks/busy.py --before FOLDER           on a quiet machine, against another version

Whole commands are timed by turns. Beside busy loops, which the script starts and ends: with the default, with
`--threads 1` and with as many threads as cores; the default may take at most 1.3 times as long as the better of them.
On a quiet machine: this version and the one in FOLDER, a checkout of the repository, in pairs of five times as many
steps; the median of the ratios of their training seconds may be at most 1.03. Every run validates once, at its end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]
CASES = {"rnn_lm": ("pydoc", 30), "gpt": ("pydoc", 30), "bow": ("grammar", 100), "cnn_classifier": ("grammar", 60)}
"""The text and the steps of each."""
BUSY, QUIET, LONGER = 1.3, 1.03, 5


class Took(NamedTuple):
    """Seconds of a whole command, and of the training in it."""

    wall: float
    training: float


def command(kind: str, options: Sequence[str] = (), version: Path = HERE, times: int = 1) -> Took:
    """Time one command."""
    chosen = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")}
    text, steps = CASES[kind][0], CASES[kind][1] * times
    settings = [f"train.steps={steps}", f"train.every={steps}", "data.validation=0.01"]
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "segue", "train", kind, text, *settings, "--out", f"{folder}/run", *options]
        begun = time.perf_counter()
        said = subprocess.run(
            [*line, "--device", "cpu", "--json"],
            env={**chosen, "PYTHONPATH": str(version / "src")},
            check=True,
            capture_output=True,
        )
        return Took(time.perf_counter() - begun, json.loads(said.stdout)["result"]["train_seconds"])


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def beside_others(kinds: Sequence[str], repeats: int, cores: int) -> bool:
    print(f"Beside {cores} busy loops on {cores} cores; seconds of the whole command, median of {repeats}.")
    print(f"{'':16} {'default':>9} {'1 thread':>9} {f'{cores} threads':>9} {'ratio':>7}")
    held = True
    ways = ([], ["--threads", "1"], ["--threads", str(cores)])
    for kind in kinds:
        with busy_loops(cores):
            times = [[command(kind, way).wall for way in ways] for _ in range(repeats)]
        default, one, all_cores = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = default / min(one, all_cores)
        held = held and ratio <= BUSY
        print(f"{kind:16} {default:9.1f} {one:9.1f} {all_cores:9.1f} {ratio:7.2f}", flush=True)
    return held


def quiet(kinds: Sequence[str], repeats: int, before: Path) -> bool:
    print(f"On a quiet machine; seconds of training, medians of {repeats} pairs; in brackets the whole command.")
    print(f"{'':16} {'before':>16} {'now':>16} {'ratio':>7}")
    held = True
    for kind in kinds:
        command(kind, (), before), command(kind)  # compiles and fills the caches
        pairs = []
        for i in range(repeats):
            first, second = (before, HERE) if i % 2 else (HERE, before)
            took = {version: command(kind, (), version, LONGER) for version in (first, second)}
            pairs.append((took[before], took[HERE]))
        ratio = statistics.median(now.training / earlier.training for earlier, now in pairs)
        held = held and ratio <= QUIET
        shown = []
        for column in zip(*pairs, strict=True):
            wall, training = (statistics.median(values) for values in zip(*column, strict=True))
            shown.append(f"{training:7.2f} ({wall:.2f})")
        print(f"{kind:16} {shown[0]:>16} {shown[1]:>16} {ratio:7.3f}", flush=True)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(CASES), help="which of them, comma separated")
    parser.add_argument("--before", type=Path, help="a checkout of the version to compare with on a quiet machine")
    given = parser.parse_args()
    kinds, cores = given.kinds.split(","), os.cpu_count() or 1
    if given.before is not None:
        held = quiet(kinds, given.repeats, given.before.resolve())
    else:
        held = beside_others(kinds, given.repeats, cores)
    print("held" if held else "NOT HELD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

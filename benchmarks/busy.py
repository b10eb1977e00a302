"""Training beside other programs: the default number of threads against one and all; and what that costs when quiet.

    python benchmarks/busy.py [--repeats 3]             beside one busy loop for each core
    python benchmarks/busy.py --before FOLDER           on a quiet machine, against another version

Whole commands are timed by turns. Beside busy loops, which the script starts and ends: with the default, with
`--threads 1` and with as many threads as cores; the default may take at most 1.3 times as long as the better of them.
On a quiet machine: this version and the one in FOLDER, a checkout of the repository, in pairs; the median of their
ratios may be at most 1.03. Every run validates once, at its end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parents[1]
CASES = {
    "rnn_lm": "pydoc train.steps=30 train.every=30",
    "gpt": "pydoc train.steps=30 train.every=30",
    "bow": "grammar train.steps=100 train.every=100 data.validation=0.01",
    "cnn_classifier": "grammar train.steps=60 train.every=60 data.validation=0.01",
}
BUSY, QUIET = 1.3, 1.03


def seconds(kind: str, options: Sequence[str] = (), version: Path = HERE) -> float:
    """Return the wall time of a whole command."""
    chosen = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")}
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "segue", "train", kind, *CASES[kind].split(), "--out", f"{folder}/run", *options]
        begun = time.perf_counter()
        subprocess.run(
            [*line, "--device", "cpu"],
            env={**chosen, "PYTHONPATH": str(version / "src")},
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - begun


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
            times = [[seconds(kind, way) for way in ways] for _ in range(repeats)]
        default, one, all_cores = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = default / min(one, all_cores)
        held = held and ratio <= BUSY
        print(f"{kind:16} {default:9.1f} {one:9.1f} {all_cores:9.1f} {ratio:7.2f}", flush=True)
    return held


def quiet(kinds: Sequence[str], repeats: int, before: Path) -> bool:
    print(f"On a quiet machine; seconds of the whole command, medians of {repeats} pairs.")
    print(f"{'':16} {'before':>9} {'now':>9} {'ratio':>7}")
    held = True
    for kind in kinds:
        seconds(kind, (), before), seconds(kind)  # compiles and fills the caches
        pairs = []
        for i in range(repeats):
            first, second = (before, HERE) if i % 2 else (HERE, before)
            took = {first: seconds(kind, (), first), second: seconds(kind, (), second)}
            pairs.append((took[before], took[HERE]))
        old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(after / earlier for earlier, after in pairs)
        held = held and ratio <= QUIET
        print(f"{kind:16} {old:9.2f} {new:9.2f} {ratio:7.3f}", flush=True)
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

"""30 million n-grams are written as ARPA (1.2 GB or more) in at most 15 s of one core, in at most 700 MB of memory.

The text is made by seed from Zipf's law, and counted by a 5-gram model. Usage: python benchmarks/arpa.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WORDS, TOKENS, WIDTH = 60_000, 10_400_000, 20
EXPORT = """
import resource, sys, time
from pathlib import Path
from segue.interop.arpa.write import export_arpa
begun = time.perf_counter()
export_arpa(Path(sys.argv[1]), Path(sys.argv[2]))
print(time.perf_counter() - begun, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_text(path: Path) -> None:
    draw = np.random.default_rng(0)
    ends = np.cumsum(1 / np.arange(1, WORDS + 1))
    words = np.array([f"word{number:x}" for number in range(WORDS)], dtype=object)
    with path.open("w") as file:
        for _ in range(20):
            drawn = words[np.minimum(np.searchsorted(ends / ends[-1], draw.random(TOKENS // 20)), WORDS - 1)]
            file.write("\n".join(" ".join(drawn[at : at + WIDTH]) for at in range(0, len(drawn), WIDTH)) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text, run, path = Path(folder) / "text.txt", Path(folder) / "run", Path(folder) / "a.arpa"
        write_text(text)
        settings = ["tokens.kind=space", "model.order=5", "data.validation=0"]
        command = [sys.executable, "-m", "segue", "train", "ngram", str(text), "--out", str(run), *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done = subprocess.run([sys.executable, "-c", EXPORT, run, path], check=True, stdout=subprocess.PIPE, text=True)
        seconds, busy, memory = map(float, done.stdout.split())
        with path.open() as file:
            counts = [int(next(file).partition("=")[2] or 0) for _ in range(6)]
        size = path.stat().st_size / 1e9
        unit = 1e6 if sys.platform == "darwin" else 1e3
        print(
            f"{sum(counts) / 1e6:.1f} million n-grams, {size:.2f} GB, written in {seconds:.1f} s, with {busy:.1f} s of "
            "one core (at most 15 expected)"
        )
        print(f"peak memory: {memory / unit:.0f} MB, the mapped tables included (at most 700 expected)")
        begun = time.perf_counter()
        command = [sys.executable, "-m", "segue", "import", str(path), "--out", str(Path(folder) / "again")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(f"imported again in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()

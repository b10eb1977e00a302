"""`segue --help` takes at most 3 times as long as `python -c "import typer, rich"`.

Usage: python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

PAIRS = 11


def seconds(*command: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    ratios = []
    for pair in range(-1, PAIRS):  # the first warms the caches, and is not counted
        ours, peer = seconds("-m", "segue", "--help"), seconds("-c", "import typer, rich")
        if pair >= 0:
            ratios.append(ours / peer)
            print(f"pair {pair + 1}: segue --help {ours:.3f} s, import typer, rich {peer:.3f} s")
    print(f"median ratio {statistics.median(ratios):.2f} (at most 3 expected)")


if __name__ == "__main__":
    main()

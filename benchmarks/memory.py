"""Memory does not grow with the text: training the tokenizer, encoding and 20 training steps on a 300 MB text peak at
most 700 MB above what the same command needs on a 1 MB text. Encoding characters runs at 20 MB/s or more.

The text is made by seed from Zipf's law. Usage: python benchmarks/memory.py [--megabytes 300] [--tokens char]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from segue.tokens.tokenizer import Config, Tokenizer

WORDS = 20_000


def write_text(path: Path, megabytes: int) -> None:
    """Lines of made-up words, the k-th drawn in proportion to 1 / k."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, size=rng.integers(2, 10))) for _ in range(WORDS)]
    shares = 1 / np.arange(1, WORDS + 1)
    shares /= shares.sum()
    with path.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            drawn = rng.choice(WORDS, size=100_000, p=shares)
            lines = [" ".join(words[i] for i in drawn[at : at + 12]) for at in range(0, len(drawn), 12)]
            file.write("\n".join(lines) + "\n")


def peak(path: Path, out: Path, tokens: str) -> float:
    """The most memory, in MB, of 20 training steps on a text."""
    settings = ["train.steps=20", "train.every=20", f"tokens.kind={tokens}", "train.validate_tokens=20000"]
    code = (
        "import resource, sys; from segue.cli import app; import typer; "
        "typer.main.get_command(app).main(sys.argv[1:], 'segue', standalone_mode=False); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, "train", "rnn_lm", str(path), "--out", str(out), *settings]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return int(done.stdout.split()[-1]) / unit


def encoding_speed(path: Path, megabytes: int = 30) -> float:
    """MB/s of characters to ids, in pieces of a megabyte."""
    with path.open() as file:
        pieces = [file.read(1_000_000) for _ in range(megabytes)]
    tokenizer = Tokenizer.train(Config(kind="char"), pieces)
    begun = time.perf_counter()
    for piece in pieces:
        tokenizer.encode_many([piece])
    return sum(map(len, pieces)) / 1e6 / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--tokens", default="char")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.txt", Path(folder) / "large.txt"
        write_text(small, 1)
        write_text(large, options.megabytes)
        print(f"encoding characters: {encoding_speed(large):.0f} MB/s (at least 20 expected)")
        least = peak(small, Path(folder) / "a", options.tokens)
        begun = time.perf_counter()
        most = peak(large, Path(folder) / "b", options.tokens)
        print(f"peak memory: {least:.0f} MB on 1 MB of text, {most:.0f} MB on {options.megabytes} MB")
        print(f"the large run took {time.perf_counter() - begun:.0f} s")
        print(f"{options.tokens}: {most - least:.0f} MB more (at most 700 expected)")


if __name__ == "__main__":
    main()

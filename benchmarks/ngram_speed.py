"""Counting against KenLM: estimating a 5-gram (modified Kneser-Ney) of 10 million Zipf tokens, its file, and scoring.

    LMPLZ=path/to/lmplz KENLM_PYTHON=path/to/python python benchmarks/ngram_speed.py [PAIRS]

`lmplz` and `build_binary` are found on PATH or beside LMPLZ; KENLM_PYTHON is an interpreter that can import kenlm. Each
figure is printed as it is found; without a peer its part is left out and said to be.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOKENS, TYPES, LINE = 10_000_000, 100_000, 20
MANY = 16_000_000
"""Tokens whose 5-gram model has more than 50 million n-grams."""
SETTINGS = ["data.unit=line", "tokens.kind=space", "model.order=5", "data.validation=0", "data.test=0"]


def zipf(path: Path, tokens: int, seed: int) -> Path:
    draw = np.random.default_rng(seed)
    p = 1 / np.arange(1, TYPES + 1)
    names = np.array([f"w{i}" for i in range(TYPES)])
    with path.open("w") as file:
        for _ in range(0, tokens, 10_000 * LINE):
            for row in names[draw.choice(TYPES, size=(10_000, LINE), p=p / p.sum())]:
                file.write(" ".join(row) + "\n")
    return path


def timed(command: list[str], **options: object) -> tuple[float, float]:
    """Wall seconds and the peak of memory in MB of a command."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return time.perf_counter() - begun, usage.ru_maxrss / 1000


def segue(*words: str) -> list[str]:
    return [sys.executable, "-m", "segue", *words]


def ours(text: Path, out: Path) -> tuple[float, float]:
    shutil.rmtree(out, ignore_errors=True)
    return timed(segue("train", "ngram", str(text), "--out", str(out), *SETTINGS), stdout=subprocess.DEVNULL)


def estimate(text: Path, place: Path, lmplz: str, pairs: int) -> None:
    model, with_arpa, memory = [], [], 0.0
    run, arpa = place / "run", place / "ours.arpa"
    ours(text, run)  # compiled code and files are warm from here on
    for pair in range(pairs):
        with text.open() as source, (place / "theirs.arpa").open("w") as target:
            theirs, their_memory = timed([lmplz, "-o", "5", "-S", "4G", "-T", str(place)], stdin=source, stdout=target)
        seconds, peak = ours(text, run)
        arpa.unlink(missing_ok=True)
        export, _ = timed(segue("export", str(run), "--to", "arpa", str(arpa)), stdout=subprocess.DEVNULL)
        model.append(seconds / theirs)
        with_arpa.append((seconds + export) / theirs)
        memory = max(memory, peak)
        print(
            f"pair {pair + 1}: ours {seconds:.1f} s and {peak:,.0f} MB, ARPA {export:.1f} s more; "
            f"lmplz {theirs:.1f} s and {their_memory:,.0f} MB",
            flush=True,
        )
    print(
        f"model on disk: {statistics.median(model):.2f} of lmplz's time (at most 0.5), {memory:,.0f} MB (at most 1,200)"
    )
    print(f"ARPA written too: {statistics.median(with_arpa):.2f} of lmplz's time (at most 1)")


def limited(text: Path, place: Path) -> None:
    """The same file from less memory."""
    small = place / "small"
    shutil.rmtree(small, ignore_errors=True)
    _, peak = timed(
        segue("train", "ngram", str(text), "--out", str(small), *SETTINGS, "train.memory=600MB"),
        stdout=subprocess.DEVNULL,
    )
    files = [(folder / "model.safetensors").read_bytes() for folder in (place / "run", small)]
    print(f"train.memory=600MB: {peak:,.0f} MB, the same file: {files[0] == files[1]}")


def size(place: Path, lmplz: str) -> None:
    binary = Path(lmplz).with_name("build_binary")
    from segue.runs.run import Run

    run = Run.open(place / "run")
    count = run.model.parameters_count
    mine = (place / "run" / "model.safetensors").stat().st_size / count
    if not binary.exists():
        print(f"{mine:.2f} bytes an n-gram; build_binary is not there to compare")
        return
    trie = place / "theirs.trie"
    timed([str(binary), "trie", str(place / "theirs.arpa"), str(trie)], stdout=subprocess.DEVNULL)
    print(f"{mine:.2f} bytes an n-gram, KenLM's trie {trie.stat().st_size / count:.2f} ({count:,} n-grams)")


SCORING = """
import sys, time, kenlm
model = kenlm.Model(sys.argv[1])
lines = [line.strip() for line in open(sys.argv[2])]
for _ in range(3):
    begun = time.perf_counter()
    total = sum(model.score(line) for line in lines)
    print(time.perf_counter() - begun, total)
"""


def score(place: Path) -> None:
    """Tokens a second on one core, new text: from words to the log probability of every sentence."""
    from segue.batches.batch import Batch
    from segue.runs.run import Run

    path = zipf(place / "new.txt", 1_000_000, 1)
    lines = path.read_text().split("\n")[:-1]
    run = Run.open(place / "run")
    whole, looked = [], []
    for _ in range(4):
        begun = time.perf_counter()
        ids, lengths = run.tokenizer.encode_many(lines, stop=True)
        tokens = np.concatenate(([0], ids[:-1]))[None]
        batch = Batch(tokens, ids[None], np.ones(tokens.shape, bool), np.array([True]))
        encoded = time.perf_counter()
        logp, _ = run.model.logprobs(batch)
        totals = np.add.reduceat(logp[0], np.cumsum(lengths) - lengths)
        looked.append(time.perf_counter() - encoded)
        whole.append(time.perf_counter() - begun)
    speed, with_cutting = (len(ids) / min(seconds) / 1e6 for seconds in (looked, whole))
    print(f"scoring: {speed:.1f} M tokens/s (at least 4), {with_cutting:.1f} M with cutting into words")
    python, trie = os.environ.get("KENLM_PYTHON"), place / "theirs.trie"
    if not python or not trie.exists():
        print("KENLM_PYTHON or the trie is not there: no comparison with KenLM's module")
        return
    said = subprocess.run([python, "-c", SCORING, str(trie), str(path)], capture_output=True, text=True, check=True)
    theirs = [line.split() for line in said.stdout.splitlines()]
    seconds = min(float(row[0]) for row in theirs)
    print(
        f"KenLM's module over the same sentences: {len(ids) / seconds / 1e6:.2f} M tokens/s; "
        f"ours {seconds / min(whole):.1f} times as fast"
    )
    print(f"log10 probabilities of all: {totals.sum() / np.log(10):.1f} and {float(theirs[0][1]):.1f}")
    history = run.model.start(1, 0).read(ids[None, :8].astype(np.int64), np.ones((1, 8), bool)).history_BT[0]
    begun = time.perf_counter()
    for _ in range(200):
        run.model.distribution(history[history >= 0])
    print(
        f"one step, {run.sizes.vocab_size:,} words: {(time.perf_counter() - begun) * 5:.2f} ms (at most 1 for 50,000)"
    )


OPENING = """
import sys, time
from pathlib import Path
from segue.runs.run import Run
Run.open(sys.argv[2])  # imports and compiled code
from segue.models.base import Sizes
from segue.models.ngram import Ngram
run = Run.open(sys.argv[1])
begun = time.perf_counter()
model = Ngram(run.recipe.model, run.sizes)
model.load(Path(sys.argv[1]))
print(time.perf_counter() - begun, model.parameters_count)
"""


def opening(place: Path) -> None:
    text = zipf(place / "many.txt", MANY, 2)
    ours(text, place / "many")
    words = [sys.executable, "-c", OPENING, str(place / "many"), str(place / "run")]
    seconds, count = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    print(f"a model of {int(count):,} n-grams opens in {float(seconds):.3f} s (at most 0.2)")


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    lmplz = os.environ.get("LMPLZ") or shutil.which("lmplz")
    with tempfile.TemporaryDirectory(prefix="segue-ngrams-") as folder:
        place = Path(folder)
        text = zipf(place / "text.txt", TOKENS, 0)
        if lmplz:
            estimate(text, place, lmplz, pairs)
            size(place, lmplz)
        else:
            print("lmplz is neither on PATH nor named by LMPLZ: no comparison of estimating")
            ours(text, place / "run")
        score(place)
        limited(text, place)
        opening(place)


if __name__ == "__main__":
    main()

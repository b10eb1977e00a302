"""How good counting alone is: words (PTB, WikiText-2) and characters (tinyshakespeare, the Linux kernel's C).

    SEGUE_DATA=folder python benchmarks/counting_quality.py [ptb wikitext-2 shakespeare kernel]

SEGUE_DATA holds ptb/, wikitext-2/, tinyshakespeare/ and linux-kernel/. Everything is trained and scored by the command
line, timed together; weights come from validation text or from training text, never from the test. PPMd, a compressor
that learns as it reads, is the peer for characters where `pyppmd` can be imported.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 120
"""Seconds that training and scoring may take together."""
TEXTS = ("ptb", "wikitext-2", "shakespeare", "kernel")


def segue(*words: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "segue", *words, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def unpacked(source: Path, target: Path) -> Path:
    target.write_bytes(lzma.decompress(source.read_bytes()))
    return target


def words(name: str, data: Path, place: Path, bar: float, aim: float) -> None:
    stem = "ptb." if name == "ptb" else ""
    train, valid, test = (
        str(unpacked(data / name / f"{stem}{split}.txt.xz", place / f"{name}.{split}.txt"))
        for split in ("train", "valid", "test")
    )
    common = ["data.unit=line", "tokens.kind=space", f"data.validation={valid}", "data.test=0"]
    begun = time.perf_counter()
    plain = place / f"{name}-ngram"
    segue("train", "ngram", train, "--out", str(plain), *common, "model.order=5")
    simple = segue("evaluate", str(plain), test, "--adapt", "--cache")
    print(
        f"{name}: 5-gram {simple['static']['perplexity']:.2f} static; counting on with a cache "
        f"{simple['perplexity']:.2f} adapted; {time.perf_counter() - begun:.0f} s"
    )
    begun = time.perf_counter()
    runs = []
    for classes in (30, 100, 400):
        runs.append(str(place / f"{name}-{classes}"))
        counted = (f"model.classes={classes}", "data.carry=true")  # as the published mixtures
        segue("train", "class_ngram", train, "--out", runs[-1], *common, *counted)
    mixed = segue("evaluate", "+".join(runs), test, "--mix", "--adapt")
    seconds = time.perf_counter() - begun
    print(
        f"{name}: three class n-grams mixed {mixed['static']['perplexity']:.2f} static, "
        f"{mixed['perplexity']:.2f} adapted (bar {bar}, aim {aim}); {seconds:.0f} s (at most {LIMIT})",
        flush=True,
    )


def characters(
    name: str, source: Path, place: Path, order: int, splits: tuple[float, float], bars: tuple[float, float]
) -> None:
    path = unpacked(source, place / f"{name}.txt")
    begun = time.perf_counter()
    run = str(place / name)
    settings = [f"data.validation={splits[0]}", f"data.test={splits[1]}", f"model.order={order}"]
    segue("train", "weighted_ngram", str(path), "--out", run, *settings, "tokens.kind=char", "data.unit=document")
    result = segue("evaluate", run, "--adapt")
    seconds = time.perf_counter() - begun
    nats = [
        figures["bits_per_byte"] * math.log(2) * result["bytes"] / result["tokens"]
        for figures in (result["static"], result)
    ]
    print(
        f"{name}: {nats[0]:.4f} nats a character static (bar {bars[0]}), {nats[1]:.4f} adapted (bar {bars[1]}); "
        f"{seconds:.0f} s (at most {LIMIT})"
    )
    peer(name, path.read_bytes().decode(), order, splits)


def peer(name: str, text: str, order: int, splits: tuple[float, float]) -> None:
    """PPMd: the bytes that the test text adds to the compressed training text."""
    try:
        import pyppmd
    except ImportError:
        print(f"{name}: pyppmd cannot be imported, so that PPMd is left out")
        return
    train = text[: int(len(text) * (1 - sum(splits)))]
    test = text[int(len(text) * (1 - splits[1])) :]
    best = min(
        len(pyppmd.compress((train + test).encode(), max_order=k, mem_size=1 << 30))
        - len(pyppmd.compress(train.encode(), max_order=k, mem_size=1 << 30))
        for k in (6, 8, 12, 16)
    )
    print(f"{name}: PPMd {best * 8 * math.log(2) / len(test):.4f} nats a character, adapted", flush=True)


def main() -> None:
    if "SEGUE_DATA" not in os.environ:
        print("skipped: SEGUE_DATA does not say where the data sets are")
        return
    data = Path(os.environ["SEGUE_DATA"])
    wanted = sys.argv[1:] or list(TEXTS)
    with tempfile.TemporaryDirectory(prefix="segue-quality-") as folder:
        place = Path(folder)
        if "ptb" in wanted:
            words("ptb", data, place, 120, 108.7)
        if "wikitext-2" in wanted:
            words("wikitext-2", data, place, 180, 160)
        if "shakespeare" in wanted:
            text = data / "tinyshakespeare" / "input.txt.xz"
            characters("shakespeare", text, place, 9, (0.0, 0.1), (1.50, 1.40))
        if "kernel" in wanted:
            text = next((data / "linux-kernel").glob("*.xz"))
            characters("kernel", text, place, 17, (0.05, 0.05), (1.15, 0.80))


if __name__ == "__main__":
    main()

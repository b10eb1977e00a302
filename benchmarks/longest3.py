"""Longest-3 on SAMSum: the three longest turns of a dialogue, in their order, as its summary (Gliwa et al. 2019).

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/longest3.py [SUMMARIES] [--split test]

The folder has samsum/test.tsv.xz and dev.tsv.xz: number, dialogue and summary in a line, turns parted by a written \\n.
SUMMARIES is a file with a summary a line, such as `segue predict` writes: its ROUGE is printed too, and whether it is
better by more than chance.
"""

from __future__ import annotations

import argparse
import lzma
import os
from collections.abc import Sequence
from pathlib import Path

from segue.inference.evaluation import Evaluation, compare
from segue.inference.text_metrics import METRICS

NAMES = ("rouge1", "rouge2", "rougeL")


def longest3(dialogue: str) -> str:
    """Return the three turns with the most characters, in their order, each with its speaker."""
    turns = [turn.strip() for turn in dialogue.splitlines() if turn.strip()]
    longest = sorted(range(len(turns)), key=lambda i: -len(turns[i]))[:3]
    return " ".join(turns[i] for i in sorted(longest))


def rows(path: Path) -> list[tuple[str, str]]:
    """Read dialogues and their summaries."""
    lines = lzma.decompress(path.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    columns = [line.replace("\\n", "\n").split("\t") for line in lines]
    return [(dialogue, summary) for _, dialogue, summary in columns]


def judged(outputs: Sequence[str], references: Sequence[str]) -> dict[str, Evaluation]:
    """Compute ROUGE of some summaries."""
    return {name: Evaluation({"figure": name}, METRICS[name].table(outputs, references)) for name in NAMES}


def said(name: str, found: dict[str, Evaluation]) -> None:
    figures = [
        f"{key} {one.value:.2f} ({one.interval()[0]:.2f} to {one.interval()[1]:.2f})" for key, one in found.items()
    ]
    print(f"{name}: {', '.join(figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("summaries", nargs="?")
    parser.add_argument("--split", default="test", choices=["test", "dev"])
    asked = parser.parse_args()
    pairs = rows(Path(os.environ["SEGUE_DATA"]) / "samsum" / f"{asked.split}.tsv.xz")
    references = [summary for _, summary in pairs]
    baseline = judged([longest3(dialogue) for dialogue, _ in pairs], references)
    said(f"longest-3, {len(pairs)} dialogues", baseline)
    if asked.summaries:
        written = Path(asked.summaries).read_text(encoding="utf-8").rstrip("\n").split("\n")
        own = judged(written, references)
        said(asked.summaries, own)
        for name in NAMES:
            gap = compare([own[name]], [baseline[name]])
            print(f"{name}: {gap.difference:+.2f} ({gap.lo:+.2f} to {gap.hi:+.2f}), p = {gap.p:.2g}")


if __name__ == "__main__":
    main()

"""The n-gram model is KenLM's: 5-grams of ptb.valid, exported, agree with what `lmplz` writes, n-gram by n-gram, to
1e-4 (log10; 1e-3 at order 1), the totals of test sentences to 2e-3, and perplexities to 4 digits after the point.

KenLM's discounts of order 1 have a slip: its counts of counts take the plain count of the last new word, not after how
many words it stands. With that slip copied, order 1 agrees to 1e-4 too, whatever the text.

Usage: SEGUE_DATA=… SEGUE_ORACLES=… python benchmarks/kenlm_agreement.py, where the folders
hold the texts (ptb/ptb.train.txt.xz, …) and the figures of KenLM (kenlm/ptb-valid.order5.arpa.xz, …). KENLM_PYTHON, if
set, is an interpreter that can import kenlm: it then reads the exported file and scores the test sentences as well.
"""

from __future__ import annotations

import lzma
import math
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import segue
from segue.interop.arpa.read import import_arpa
from segue.interop.arpa.write import export_arpa

WORD = "\\u{3c}unk>", "UNKW"
"""The word <unk> of the text, as Segue and as the oracle writes it."""
PERPLEXITIES = {("ptb", 3): 148.2815, ("ptb", 5): 141.1862, ("wikitext-2", 3): 230.8863, ("wikitext-2", 5): 224.8116}
NAMES = {"ptb": "ptb/ptb.{}.txt.xz", "wikitext-2": "wikitext-2/{}.txt.xz"}
SCORES = """
import sys, kenlm
model = kenlm.Model(sys.argv[1])
for line in sys.stdin:
    print(model.score(line.rstrip("\\n").replace("<unk>", "\\\\u{3c}unk>")))
"""


def unpacked(name: str, folder: Path) -> Path:
    """A text of SEGUE_DATA without its compression and without blank lines."""
    path = folder / Path(name).with_suffix("").name
    with lzma.open(Path(os.environ["SEGUE_DATA"]) / name, "rt", encoding="utf-8", newline="\n") as file:
        path.write_text("".join(line for line in file if line.strip()), encoding="utf-8")
    return path


def trained(text: Path, order: int, out: Path) -> segue.Run:
    settings = {"data.unit": "line", "tokens.kind": "space", "data.validation": 0, "data.test": 0, "model.order": order}
    return segue.train("ngram", text, out, settings)


def entries(lines: Iterator[str]) -> dict[str, tuple[float, float]]:
    """Every n-gram of an ARPA file with its two numbers."""
    rows = (line.rstrip("\n").split("\t") for line in lines if "\t" in line)
    return {row[1].replace(*WORD): (float(row[0]), float(row[2]) if len(row) > 2 else 0.0) for row in rows}


def differences(run: Path, oracle: dict[str, tuple[float, float]], folder: Path) -> list[float]:
    """For each order the largest difference of a number, <s> left aside, which is never predicted."""
    path = folder / f"{run.name}.arpa"
    export_arpa(run, path)
    with path.open(encoding="utf-8") as file:
        own = entries(file)
    assert own.keys() == oracle.keys(), f"{len(own)} n-grams, {len(oracle)} in the oracle"
    worst = [0.0] * (1 + max(name.count(" ") for name in own))
    for name, numbers in own.items():
        skip = name == "<s>"
        gaps = [abs(a - b) for a, b in zip(numbers[skip:], oracle[name][skip:], strict=True)]
        worst[name.count(" ")] = max(worst[name.count(" ")], *gaps)
    return worst


def with_slip(run: segue.Run, text: Path, out: Path) -> Path:
    """The same run, with KenLM's slip in the discounts of order 1."""
    shutil.copytree(run.path, out)
    model = segue.load(out).model
    counts = model.orders[0].level.plain_counts(0, run.sizes.vocab_size)
    plain = Counter(text.read_text(encoding="utf-8").split())
    last = list(plain)[-1]
    counts[run.tokenizer.encode(last)] = plain[last]
    model.discounts = model.discounts.copy()
    model.discounts[0] = model._discounts(np.bincount(counts, minlength=5)[1:5])
    beside = out / "beside"
    beside.mkdir()
    model.save(beside)
    (beside / "model.safetensors").replace(out / "model.safetensors")
    return out


def totals(run: segue.Run, text: Path) -> list[float]:
    """log10 of the probability of each line, its end included."""
    lines = text.read_text(encoding="utf-8").splitlines()
    return [line.logprob / math.log(10) for line in run.score(lines, end=True)]


def largest(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def oracle_totals(name: str) -> list[float]:
    with lzma.open(Path(os.environ["SEGUE_ORACLES"]) / "kenlm" / name, "rt") as file:
        return [float(line.split("\t")[0]) for line in file if line[:1] in "-0123456789"]


def perplexity(corpus: str, order: int, folder: Path) -> float:
    """The perplexity of a corpus's test text by n-grams of its training text; the run stays in the folder."""
    text, test = (unpacked(NAMES[corpus].format(split), folder) for split in ("train", "test"))
    run = trained(text, order, folder / f"{corpus}-{order}")
    return float(run.evaluate(str(test))["perplexity"])


def main() -> None:
    if not {"SEGUE_DATA", "SEGUE_ORACLES"} <= os.environ.keys():
        print("skipped: SEGUE_DATA and SEGUE_ORACLES do not say where the data and the peers' figures are")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        test, valid = unpacked("ptb/ptb.test.txt.xz", folder), unpacked("ptb/ptb.valid.txt.xz", folder)
        with lzma.open(
            Path(os.environ["SEGUE_ORACLES"]) / "kenlm/ptb-valid.order5.arpa.xz", "rt", encoding="utf-8"
        ) as file:
            oracle = entries(file)
        run = trained(valid, 5, folder / "plain")
        for name, path in (("", run.path), (", slip copied", with_slip(run, valid, folder / "slip"))):
            worst = differences(path, oracle, folder)
            shown = "  ".join(f"{k}: {gap:.1e}" for k, gap in enumerate(worst, 1))
            print(f"largest difference of {len(oracle):,} ARPA entries{name}, by order  {shown}")
        slip = segue.load(folder / "slip")
        oracle_lines = oracle_totals("ptb-test.scores-by-ptb-valid.order5.tsv.xz")
        gaps = [largest(totals(model, test), oracle_lines) for model in (run, slip)]
        print(
            f"largest difference of a sentence's total, trained on ptb.valid: {gaps[0]:.1e} (at most 2e-3 expected), "
            f"slip copied: {gaps[1]:.1e}"
        )
        import_arpa(folder / "plain.arpa", folder / "again")
        gap = largest(totals(segue.load(folder / "again"), test), totals(run, test))
        print(f"exported and imported again, largest difference of a total: {gap:.1e}")
        if "KENLM_PYTHON" in os.environ:
            command = [os.environ["KENLM_PYTHON"], "-c", SCORES, str(folder / "plain.arpa")]
            done = subprocess.run(command, input=test.read_text(), capture_output=True, text=True, check=True)
            gap = largest([float(line) for line in done.stdout.split()], totals(run, test))
            print(f"KenLM reads the exported file: largest difference of a total {gap:.1e}")
        for (corpus, order), expected in PERPLEXITIES.items():
            found = perplexity(corpus, order, folder)
            print(f"{corpus}, order {order}: perplexity {found:.4f}, KenLM's {expected:.4f}")
            if (corpus, order) == ("ptb", 5):
                text, other = (unpacked(NAMES[corpus].format(split), folder) for split in ("train", "test"))
                run = segue.load(folder / f"{corpus}-{order}")
                oracle_lines = oracle_totals("ptb-test.scores-by-ptb-train.order5.tsv.xz")
                slip = segue.load(with_slip(run, text, folder / "train-slip"))
                gaps = [largest(totals(model, other), oracle_lines) for model in (run, slip)]
                print(
                    f"largest difference of a sentence's total, trained on ptb.train: {gaps[0]:.1e} (at most 2e-3 "
                    f"expected), slip copied: {gaps[1]:.1e}"
                )


if __name__ == "__main__":
    main()

"""Are the figures that README and docs state still true? Computes the cheap ones anew and compares.

    [SEGUE_DATA=folder] python benchmarks/stated.py [--cheapest] [--only NAME,NAME] [--pages FOLDER]

A number stands in one place, the page; this file holds the regular expression that finds it there, the function that
computes it anew, and how far it may be off beyond the rounding of its last digit. --cheapest takes seconds and needs
nothing but the built-in corpora; `make test` runs it. Without it all are run that take some minutes on two cores;
SEGUE_DATA holds the texts that most of them need. A line a number says what is stated, what was found, and the ratio;
the exit code is 1 if one is off. Seconds are not compared, since they belong to the machine. What costs more (a GPU, a
peer, half an hour) is listed with its script.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
PYDOC = "Python 3.11"
"""The version whose `pydoc` is behind the pages: each version has docs of its own."""


class Figure(NamedTuple):
    """Numbers of one sentence or row of a page, and how they are computed."""

    name: str
    page: str
    pattern: str
    """Finds the numbers in the page, its lines joined by blanks; # stands for a number."""
    compute: Callable[[Path], list[float]]
    """Given an empty folder, returns the numbers in the order of the page."""
    script: str = ""
    """The script that the page names beside them; empty where it shows a command instead."""
    cheapest: bool = False
    needs: str = ""
    """SEGUE_DATA, or a version of Python."""
    off: float = 0.0
    """How far a number may be off beyond rounding, as a share of it: another processor rounds otherwise in training,
    and docs of Python change a little within a version."""


class Line(NamedTuple):
    stated: str
    found: float
    right: bool


# What computes them


@cache
def shares(data: str) -> dict[int, list[tuple[float, float]]]:
    """By the number of pieces, the per cent of intervals that hold the truth: ours, and of pieces taken as independent;
    of simulated series, or of real texts in a folder."""
    from interval_coverage import simulated, windows

    held = windows(Path(data)) if data else {0: simulated()}
    return {pieces: [(100 * ours, 100 * other) for ours, other in pairs] for pieces, pairs in held.items()}


def span(pairs: Iterable[tuple[float, float]], which: int) -> list[float]:
    values = [pair[which] for pair in pairs]
    return [min(values), max(values)]


def intervals(folder: Path) -> list[float]:
    held = shares("")[0]
    return [*span(held, 0), *span(held, 1)]


def intervals_of_text(folder: Path) -> list[float]:
    held = shares(os.environ["SEGUE_DATA"])
    ours = [one for pairs in held.values() for one in span(pairs, 0)]
    return [*ours, *span(chain.from_iterable(held.values()), 1)]


def intervals_in_words(folder: Path) -> list[float]:
    held = shares(os.environ["SEGUE_DATA"])
    return [*span(held[20] + held[50], 0), *span(held[200], 0)]


def on_grammar(*models: str) -> Callable[[Path], list[float]]:
    def distances(folder: Path) -> list[float]:
        from grammar import trained

        return [100 * trained(model, folder).distance for model in models]

    return distances


def ladder(folder: Path) -> list[float]:
    """The n-grams of README's table, with the splits of `segue compare`."""
    import segue

    runs = [
        segue.train(f"ngram/{name}", "pydoc", folder / name, {"data.validation": 0.05, "data.test": 0.2})
        for name in ("kn7", "trigram", "bigram", "unigram")
    ]
    return [float(run.evaluation.result["bits_per_byte"]) for run in runs if run.evaluation]


def equation(folder: Path) -> list[float]:
    """The last line of the worked example of `segue explain`, number by number."""
    import segue
    from segue.look.explain.equations import example

    run = segue.train("ngram/jm-3", "pydoc", folder / "run", {"data.validation": 0.02})
    return [number(one) for one in re.findall(NUMBER, example(run.model, run.tokenizer).lines[-1])]


def mixture(folder: Path) -> list[float]:
    import segue
    from segue.runs.folder import read_json

    settings = {"train.steps": 10, "data.validation": 0.005}
    run = segue.train("rnn_lm", "pydoc:3+grammar:1", folder / "run", settings)
    return [float(part["bits_per_byte"]) for part in read_json(run.path / "result.json")["by_corpus"]]


def perplexities(folder: Path) -> list[float]:
    from kenlm_agreement import PERPLEXITIES, perplexity

    return [perplexity(corpus, order, folder) for corpus, order in PERPLEXITIES]


def counted(text: str) -> Callable[[Path], list[float]]:
    def figures(folder: Path) -> list[float]:
        from counting_quality import scored

        return list(scored(text, Path(os.environ["SEGUE_DATA"]), folder))

    return figures


def nbsvm(folder: Path) -> list[float]:
    """Accuracy of nbsvm on the five sets, a tenth of the rows held out as for the ensemble."""
    from sentclass import FOLDED, SETS, Job, run

    figures = []
    for name in SETS:
        model = "nbsvm" if name.startswith("sst") else "nbsvm:data.validation=0.1"
        folds = range(10 if name in FOLDED else 1)
        jobs = [Job(name, fold, (model,), ensemble=False, sentences=False) for fold in folds]
        right = [one for job in jobs for outcome in run(job) for one in outcome.right]
        figures.append(100 * sum(right) / len(right))
    return figures


PAGE = "docs/figures.md"
COVERAGE = "interval_coverage.py"
FIGURES = [
    Figure(
        "intervals",
        PAGE,
        r"simulated series of [^|]* \| # to # % \(93 to 97\); taken as independent # to # %",
        intervals,
        COVERAGE,
        cheapest=True,
    ),
    Figure(
        "intervals-scale",
        "docs/scale.md",
        r"intervals hold the truth in # to # % of cases",
        lambda folder: intervals(folder)[:2],
        cheapest=True,
    ),
    Figure("grammar-ngram", PAGE, r"true model: [^|]* \| n-gram # %", on_grammar("ngram"), "grammar.py", cheapest=True),
    Figure(
        "explain",
        "docs/look.md",
        r"p\(“ used” \| “can be”\) = # · # / # \+ \(# − #\) · # = #",
        equation,
        cheapest=True,
        needs=PYDOC,
        off=0.02,
    ),
    Figure(
        "readme-ngrams",
        "README.md",
        r"ngram/kn7 +char +#.*? ngram/trigram +word +#.*? ngram/bigram +word +#.*? ngram/unigram +word +#",
        ladder,
        needs=PYDOC,
        off=0.01,
        cheapest=True,
    ),
    Figure(
        "mixture",
        "docs/data.md",
        r"bits per byte pydoc [\d,]+ [\d.]+ # grammar [\d,]+ [\d.]+ #",
        mixture,
        needs=PYDOC,
        off=0.02,
    ),
    Figure(
        "grammar-networks",
        PAGE,
        r"true model: [^|]* \| [^|]* LSTM # %, bag of words # %, window tagger # %, encoder-decoder # %",
        on_grammar("rnn_lm", "bow", "window_tagger", "rnn_seq2seq"),
        "grammar.py",
        off=0.5,
    ),
    Figure(
        "intervals-of-text",
        PAGE,
        r"whose waves are longer \| # to #, # to #, # to # %; taken as independent # to # %",
        intervals_of_text,
        COVERAGE,
        needs="SEGUE_DATA",
    ),
    Figure(
        "intervals-scale-text",
        "docs/scale.md",
        r"the whole text's mean in # to # % of cases from 20 or 50 blocks, and in # to # % from 200",
        intervals_in_words,
        needs="SEGUE_DATA",
    ),
    Figure(
        "kenlm",
        PAGE,
        r"agreement with KenLM: [^|]* \| #, #, #, #: the same",
        perplexities,
        "kenlm_agreement.py",
        needs="SEGUE_DATA",
    ),
    *(
        Figure(f"counting-{text}", PAGE, pattern, counted(text), "counting_quality.py", needs="SEGUE_DATA")
        for text, pattern in {
            "ptb": r"counting alone on PTB[^|]* \| #, #",
            "wikitext-2": r"the same on WikiText-2 \| #, #",
            "shakespeare": r"counting alone on tinyshakespeare[^|]* \| #, #",
            "kernel": r"the same on the Linux kernel's C \| #, #",
        }.items()
    ),
    Figure("nbsvm", PAGE, r"`nbsvm` with a tenth [^|]* \| #, #, #, #, #", nbsvm, "sentclass.py", needs="SEGUE_DATA"),
]
ELSEWHERE = {
    "startup.py": "seconds",
    "busy.py": "seconds, on a machine that is quiet, or busy",
    "lstm_speed.py": "seconds",
    "memory.py": "300 MB of text, minutes",
    "ngram_speed.py": "seconds, against KenLM",
    "linear_speed.py": "seconds, against scikit-learn and fastText",
    "word2vec_speed.py": "seconds, and vectors against gensim",
    "generate_speed.py": "seconds, also on a GPU",
    "gpt_speed.py": "a GPU",
    "awd_speed.py": "a GPU",
    "elmo_speed.py": "seconds, also on a GPU",
    "shakespeare_gpu.py": "a GPU",
    "neural_quality.py": "half an hour, or a GPU",
    "tagging.py": "five minutes of two cores with nothing else on them",
    "sentclass.py": "but for nbsvm: an hour and more of training",
    "seeds.py": "320 trainings, about an hour",
    "budgets.py": "budgets in seconds: the card, and two cores with nothing else on them",
    "budget_rule.py": "a GPU",
    "translation_quality.py": "a GPU, or an hour of two cores",
    "translation_training_speed.py": "a GPU",
    "translate_speed.py": "seconds, also on a GPU",
    "marian_agreement.py": "minutes, against transformers and CTranslate2",
    "longest3.py": "SAMSum",
    "sound_reading.py": "seconds, against transformers",
    "spoken_digits.py": "budgets in seconds: two cores with nothing else on them, for an hour",
    "sources_grammar.py": "half an hour of two cores",
    "glue_small.py": "a GPU",
    "bert_speed.py": "a GPU",
    "finetune_speed.py": "seconds, also on a GPU",
    "sentences.py": "seconds, also on a GPU",
    "pretraining_worth.py": "half an hour of two cores",
}
"""What the other figures need: run the script itself."""


# Comparing


def number(text: str) -> float:
    return float(text.replace(",", ""))


def stated(figure: Figure, pages: Path) -> list[str]:
    """The numbers of a figure as its page has them."""
    text = " ".join((pages / figure.page).read_text(encoding="utf-8").split())
    found = re.search(figure.pattern.replace("#", NUMBER), text)
    if found is None:
        raise SystemExit(f"{figure.page} does not state {figure.name!r} as benchmarks/stated.py expects it. Mend one.")
    return list(found.groups())


def compared(text: str, found: float, off: float) -> Line:
    """Whether a number is the one that the page states, rounded as there."""
    decimals = len(text.partition(".")[2])
    wrong = abs(found - number(text))
    return Line(text, found, wrong <= 0.5000001 * 10**-decimals + off * number(text))


def check(figure: Figure, pages: Path) -> list[Line]:
    """Compute a figure anew and compare each of its numbers. What it prints as it works goes to standard error."""
    told = stated(figure, pages)
    with tempfile.TemporaryDirectory(prefix="segue-stated-") as folder, redirect_stdout(sys.stderr):
        found = figure.compute(Path(folder))
    return [compared(text, value, figure.off) for text, value in zip(told, found, strict=True)]


def missing(figure: Figure) -> str:
    """What the figure needs and is not here."""
    if figure.needs == "SEGUE_DATA":
        return "" if "SEGUE_DATA" in os.environ else "SEGUE_DATA is not set"
    here = "Python {}.{}".format(*sys.version_info)
    return "" if figure.needs in ("", here) else f"stated for the pydoc of {figure.needs}, this is {here}"


def lines(figures: list[Figure], pages: Path) -> Iterator[tuple[str, Line]]:
    """Check the figures one by one, and print as it goes."""
    print(f"{'figure':<20} {'stated':>10} {'found':>12} {'ratio':>8}")
    for figure in figures:
        if missing(figure):
            stated(figure, pages)
            print(f"{figure.name:<20} left out: {missing(figure)}")
            continue
        for line in check(figure, pages):
            ratio = line.found / number(line.stated) if number(line.stated) else 1.0
            mark = "" if line.right else f"  OFF: {figure.page} is stale, or something broke"
            print(f"{figure.name:<20} {line.stated:>10} {line.found:>12.4f} {ratio:>8.4f}{mark}", flush=True)
            yield figure.name, line


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cheapest", action="store_true", help="only what takes seconds and needs no data")
    parser.add_argument("--only", default="", help="names of figures, with commas between")
    parser.add_argument("--pages", type=Path, default=ROOT, help="where README.md and docs/ are")
    asked = parser.parse_args(words)
    wanted = asked.only.split(",") if asked.only else [figure.name for figure in FIGURES]
    figures = [one for one in FIGURES if one.name in wanted and (one.cheapest or not asked.cheapest)]
    wrong = [name for name, line in lines(figures, asked.pages) if not line.right]
    if not asked.cheapest and not asked.only:
        print("\nNot computed here; each script measures its own:")
        for script, why in ELSEWHERE.items():
            print(f"  benchmarks/{script:<20} {why}")
    print(f"{len(wrong)} off: {', '.join(sorted(set(wrong)))}" if wrong else "None is off.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""How good neural language models get in little time, alone and mixed with counting.

    SEGUE_DATA=folder python benchmarks/neural_quality.py [shakespeare shakespeare-mixed ptb ptb-gpu]

shakespeare   tinyshakespeare by characters on two cores, 3 minutes: first 90 % of the text to learn from, every
              character of the last 10 % scored once (a 6-gram with Kneser-Ney: 1.5236 nats)
ptb           the Penn Treebank's words on two cores, 30 minutes, counting included (published mixtures: 87.4)
ptb-gpu       one LSTM of AWD-LSTM's shape on a GPU, 9 minutes (AWD-LSTM: 58.8 after 9 hours on its card)

Everything is trained and scored by the command line and timed together. Weights of mixtures come from validation text,
never from the test.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from datetime import date
from math import log
from pathlib import Path

from counting_quality import segue, unpacked


def shakespeare_files(data: Path, place: Path) -> tuple[list[str], str]:
    text = unpacked(data / "tinyshakespeare" / "input.txt.xz", place / "text.txt").read_text()
    cut = int(0.9 * len(text))
    train, test = place / "train.txt", place / "test.txt"
    train.write_text(text[:cut])
    test.write_text(text[cut:])
    return [str(train), "tokens.kind=char", "data.unit=document", "data.test=0"], str(test)


def shakespeare(data: Path, place: Path) -> None:
    common, test = shakespeare_files(data, place)
    network, begun = str(place / "network"), time.perf_counter()
    segue("train", "rnn_lm/minutes", *common, "data.validation=0", "--out", network, "train.seconds=150")
    alone = segue("evaluate", network, test)
    print(f"shakespeare: one LSTM {log(alone['perplexity']):.4f} nats in {time.perf_counter() - begun:.0f} s")


def shakespeare_mixed(data: Path, place: Path) -> None:
    """The weights need text that neither has learnt from: the beginning. The end of the training part is the beginning
    of the play that the test goes on with, so that to leave that out would cost much."""
    common, test = shakespeare_files(data, place)
    text, held = Path(common[0]).read_text(), place / "held.txt"
    cut = len(text) // 50
    held.write_text(text[:cut])
    Path(common[0]).write_text(text[cut:])
    common = [*common, f"data.validation={held}"]
    network, counted, begun = str(place / "network"), str(place / "counted"), time.perf_counter()
    segue("train", "rnn_lm/minutes", *common, "--out", network, "train.seconds=140")
    segue("train", "weighted_ngram", *common, "--out", counted)
    mixed = segue("evaluate", f"{network}+{counted}", test, "--mix")
    both = time.perf_counter() - begun
    adapted = segue("evaluate", f"{network}+{counted}", test, "--mix", "--adapt")
    print(f"shakespeare: mixed with counting {log(mixed['perplexity']):.4f} in {both:.0f} s; ", end="")
    print(f"both adapted {log(adapted['perplexity']):.4f} in {time.perf_counter() - begun:.0f} s")


def ptb_files(data: Path, place: Path) -> tuple[list[str], str]:
    train, valid, test = (
        str(unpacked(data / "ptb" / f"ptb.{split}.txt.xz", place / f"{split}.txt"))
        for split in ("train", "valid", "test")
    )
    # As the published figures: context is carried over the ends of sentences.
    common = [train, "tokens.kind=space", "data.unit=line", "data.carry=true"]
    return [*common, f"data.validation={valid}", "data.test=0"], test


def ptb(data: Path, place: Path) -> None:
    common, test = ptb_files(data, place)
    network, begun = str(place / "network"), time.perf_counter()
    segue("train", "rnn_lm/words", *common, "--out", network, "train.seconds=1590")
    runs = [network]
    for classes in (30, 100, 400):
        runs.append(str(place / f"classes-{classes}"))
        segue("train", "class_ngram", *common, "--out", runs[-1], f"model.classes={classes}")
    alone = segue("evaluate", network, test)
    mixed = segue("evaluate", "+".join(runs), test, "--mix")
    spent = time.perf_counter() - begun
    adapted = segue("evaluate", "+".join(runs), test, "--mix", "--adapt", "--cache")
    print(
        f"ptb: one LSTM {alone['perplexity']:.2f}; mixed with counting {mixed['perplexity']:.2f} in {spent:.0f} s; ",
        end="",
    )
    print(f"adapted {adapted['perplexity']:.2f}")


def ptb_gpu(data: Path, place: Path) -> None:
    common, test = ptb_files(data, place)
    network, begun = str(place / "network"), time.perf_counter()
    segue("train", "rnn_lm/ptb-gpu", *common, "--out", network, "train.seconds=490")
    alone = segue("evaluate", network, test)
    spent = time.perf_counter() - begun
    print(f"ptb-gpu: one LSTM {alone['perplexity']:.2f} in {spent:.0f} s", flush=True)
    adapted = segue("evaluate", network, test, "--adapt", "--cache")
    print(f"ptb-gpu: adapted {adapted['perplexity']:.2f} in {time.perf_counter() - begun:.0f} s")


PARTS = {"shakespeare": shakespeare, "shakespeare-mixed": shakespeare_mixed, "ptb": ptb, "ptb-gpu": ptb_gpu}


def main() -> None:
    if "SEGUE_DATA" not in os.environ:
        print("skipped: SEGUE_DATA does not say where the data sets are")
        return
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name in sys.argv[1:] or ["shakespeare", "shakespeare-mixed", "ptb"]:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(os.environ["SEGUE_DATA"]), Path(folder))


if __name__ == "__main__":
    main()

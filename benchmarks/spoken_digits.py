"""How well spoken digits are recognised (FSDD, the Free Spoken Digit Dataset, 8 kHz) after three minutes on two cores.

    SEGUE_DATA=folder PYTHONPATH=src python3 benchmarks/spoken_digits.py CASE [--seeds 0,1,2,3,4] [--seconds 180]
                        [--tune] [--speaker NAME] [--recipe rnn_seq2seq/speech] [--out FOLDER] [key=value ...]

    digits    the official split: recordings 0 to 4 of each digit and speaker are the test, 300 in all
    speakers  one speaker is left out of training and is the test: six runs, one for each
    strings   3 to 7 recordings of one speaker, joined: training strings from training recordings, test strings from
              test recordings

Nothing is held out to choose the best weights: the last are scored. `--tune` serves to choose settings and does not
read the test: digits and strings are scored on recordings 5 to 9, taken out of training; speakers on two of the six,
each left out in turn. docs/figures.md ("How settings were chosen") says what was seen of the tests before. Keys are
given to `segue train`. The peer is what others give for these data: 99.67 % of the official test, and 70 to 95 % of a
speaker who was never heard.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import segue
from segue.output.wav import wav
from segue.runs.folder import read_json

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
TUNED_ON = ("jackson", "theo")
"""The speakers on whom settings are chosen."""
STRINGS = {"train": 6000, "test": 300}
KEYS = {"data.rate": RATE, "data.validation": 0, "tokens.kind": "word", "model.width": 128}


class Clip(NamedTuple):
    """A recording of one digit."""

    samples: NDArray[np.int16]
    word: str
    speaker: str
    index: int


def clips() -> list[Clip]:
    """Read all recordings."""
    found = np.load(Path(os.environ["SEGUE_DATA"]) / "fsdd" / "fsdd.npz")
    names = [str(name) for name in found["speaker_names"]]
    ends, audio = found["offsets"], found["audio"]
    rows = zip(found["label"], found["speaker"], found["index"], strict=True)
    return [
        Clip(audio[ends[i] : ends[i + 1]], WORDS[label], names[speaker], int(index))
        for i, (label, speaker, index) in enumerate(rows)
    ]


def split(every: Sequence[Clip], tune: bool) -> tuple[list[Clip], list[Clip]]:
    """Part the recordings into those to train on and those to be scored on."""
    learnt = [clip for clip in every if clip.index >= (10 if tune else 5)]
    scored = [clip for clip in every if (clip.index in range(5, 10) if tune else clip.index < 5)]
    return learnt, scored


def joined(some: Sequence[Clip], count: int, seed: int) -> Iterator[Clip]:
    """Join 3 to 7 recordings of one speaker, so many times."""
    rng = random.Random(seed)
    by_speaker = {name: [clip for clip in some if clip.speaker == name] for name in sorted({c.speaker for c in some})}
    for number in range(count):
        own = by_speaker[rng.choice(sorted(by_speaker))]
        parts = [rng.choice(own) for _ in range(rng.randint(3, 7))]
        samples = np.concatenate([part.samples for part in parts])
        yield Clip(samples, " ".join(part.word for part in parts), parts[0].speaker, number)


def table(some: Sequence[Clip], file: Path) -> Path:
    """Write recordings as wav files, and the table that names them."""
    sounds = file.with_suffix("")
    sounds.mkdir(parents=True)
    lines = []
    for number, clip in enumerate(some):
        (sounds / f"{number}.wav").write_bytes(wav(clip.samples / np.float32(32768), RATE))
        lines.append(f"{sounds.name}/{number}.wav\t{clip.word}\n")
    file.write_text("".join(lines))
    return file


class Task(NamedTuple):
    """A table to train on, and one to be scored on."""

    name: str
    learnt: Path
    scored: Path


def tasks(case: str, tune: bool, speaker: str, folder: Path) -> Iterator[Task]:
    """Write the tables of a case; `speaker`: the only one that is left out."""
    every = clips()
    if case == "speakers":
        names = TUNED_ON if tune else sorted({clip.speaker for clip in every})
        for name in [speaker] if speaker else names:
            learnt = table([clip for clip in every if clip.speaker != name], folder / f"without-{name}.tsv")
            yield Task(name, learnt, table([clip for clip in every if clip.speaker == name], folder / f"{name}.tsv"))
        return
    learnt, scored = split(every, tune)
    if case == "strings":
        learnt, scored = (
            list(joined(some, STRINGS[part], seed)) for some, part, seed in ((learnt, "train", 0), (scored, "test", 1))
        )
    yield Task(case, table(learnt, folder / "learnt.tsv"), table(scored, folder / "scored.tsv"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("digits", "speakers", "strings"))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--speaker", default="")
    parser.add_argument("--recipe", default="rnn_seq2seq/speech")
    parser.add_argument("--out", type=Path)
    parser.add_argument("keys", nargs="*")
    asked = parser.parse_intermixed_args()
    own: dict[str, Any] = dict(key.split("=", 1) for key in asked.keys)
    with tempfile.TemporaryDirectory() as beside:
        folder = asked.out or Path(beside)
        found: dict[int, list[dict[str, Any]]] = {}
        for task in tasks(asked.case, asked.tune, asked.speaker, folder):
            for seed in map(int, asked.seeds.split(",")):
                begun = time.perf_counter()
                keys = KEYS | {"train.seconds": asked.seconds, "train.seed": seed, "data.test": str(task.scored)} | own
                run = segue.train(asked.recipe, str(task.learnt), folder / f"{task.name}-{seed}", keys)
                result = read_json(run.path / "result.json")
                found.setdefault(seed, []).append(result)
                wrong = round((1 - result["exact"]) * result["sentences"])
                for one in result["confusions"]:
                    print("   ", *one)
                print(
                    f"{task.name}, seed {seed}: {wrong} of {result['sentences']} wrong, word error rate "
                    f"{result['wer']:.2%}, {time.perf_counter() - begun:.0f} s",
                    flush=True,
                )
        figures = [statistics.mean(one["wer"] for one in results) for results in found.values()]
        print(f"{asked.case}: word error rate, median of {len(figures)} seeds {statistics.median(figures):.2%}", end="")
        print(f" ({min(figures):.2%} to {max(figures):.2%}); {1 - statistics.median(figures):.2%} right")


if __name__ == "__main__":
    sys.exit(main())

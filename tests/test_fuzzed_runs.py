"""Fuzz the files of runs: change them at random, open and use the run in a forked process, and see how that ends.

    python tests/test_fuzzed_runs.py WORK [--cases 2000] [--kinds ngram,nbsvm] [--seed 0]

WORK is a folder for the runs, which are made on the first call. A case changes one file: bytes flipped, cut or
overwritten; an array filled with zeros, the greatest number, -1, NaN or random bytes, of another shape or type; a JSON
or TOML value of another type. The checksums of the run are then made to fit, so that they do not stand before the other
checks. A case must end with exit code 0 or 2 within the limits of time and memory; a signal, another code, or
"Something went wrong inside Segue", is a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from segue.cli import main
from segue.runs.folder import SUMMED, sums_of

SECONDS, MEMORY = 30, 3 << 30
"""The limits of one case: seconds of computing, and bytes beyond what the process has mapped before."""
WORDS = [
    "the",
    "cow",
    "eats",
    "green",
    "grass",
    "a",
    "dog",
    "barks",
    "at",
    "my",
    "old",
    "cat",
    "who",
    "sleeps",
    "on",
    "mats",
    "in",
    "sun",
    "and",
    "rain",
    "all",
    "day",
]
FILES = (
    "model.safetensors",
    "config.json",
    "recipe.toml",
    "tokenizer.json",
    "source_tokenizer.json",
    "speller.json",
    "ledger.json",
    "result.json",
)
ODD = (None, -1, 0, 1, True, 1e300, 10**30, 1 << 62, 1 << 31, "x", "", [], [1], {}, {"a": 1}, [[[]]], "\ud800", 0.5)


class Made(NamedTuple):
    """A kind of run: how it is trained, and the commands that use it."""

    train: str
    uses: tuple[str, ...]


_SCORE, _WRITE = "score RUN TEXTS", "generate RUN --max-tokens 5 --seed 0"
_ADAPT, _PREDICT = "generate RUN --max-tokens 5 --seed 0 --adapt", "predict RUN TEXTS"
KINDS = {
    "ngram": Made("ngram book.txt model.order=4", (_SCORE, _WRITE, _ADAPT)),
    "class_ngram": Made("class_ngram book.txt tokens.kind=word model.classes=4", (_SCORE, _WRITE, _ADAPT)),
    "weighted_ngram": Made("weighted_ngram book.txt model.order=5", (_SCORE, _WRITE, _ADAPT)),
    "word2vec": Made("word2vec book.txt train.epochs=1 model.width=4 train.threads=1", ("nearest RUN cow",)),
    "naive_bayes": Made("naive_bayes rows.tsv", (_PREDICT,)),
    "nbsvm": Made("nbsvm rows.tsv", (_PREDICT,)),
    "ngram_bag": Made("ngram_bag rows.tsv model.pairs=3", (_PREDICT,)),
    "rnn_lm": Made("rnn_lm book.txt model.width=4 train.steps=2", (_SCORE, _WRITE)),
    "gpt": Made("gpt book.txt model.width=4 model.heads=1 model.layers=1 train.steps=2", (_SCORE, _WRITE)),
    "bow": Made("bow rows.tsv train.steps=2", (_PREDICT,)),
    "arpa_lm": Made("", (_SCORE, _WRITE)),
    "ensemble": Made("ensemble model.runs=base/naive_bayes,base/bow", (_PREDICT,)),
    "rnn_tagger": Made("rnn_tagger tags.conll model.width=4 train.steps=2", (_PREDICT,)),
    "window_tagger": Made("window_tagger tags.conll train.steps=2", (_PREDICT,)),
    "cnn_tagger": Made("cnn_tagger tags.conll train.steps=2", (_PREDICT,)),
    "neural_lm": Made("neural_lm book.txt train.steps=2", (_SCORE, _WRITE)),
    "cbow": Made("cbow rows.tsv train.steps=2", (_PREDICT,)),
    "deep_cbow": Made("deep_cbow rows.tsv train.steps=2", (_PREDICT,)),
    "dan": Made("dan rows.tsv train.steps=2", (_PREDICT,)),
    "cnn_classifier": Made("cnn_classifier rows.tsv train.steps=2", (_PREDICT,)),
    "rnn_classifier": Made("rnn_classifier rows.tsv model.width=4 train.steps=2", (_PREDICT,)),
    "rnn_seq2seq": Made("rnn_seq2seq pairs.tsv model.width=4 train.steps=2 decode.max_tokens=5", (_PREDICT,)),
    "two_sides": Made(
        "rnn_seq2seq pairs.tsv tokens.sides=each model.tied=none model.width=4 train.steps=2 decode.max_tokens=5",
        (_PREDICT,),
    ),
}


def make_runs(kinds: list[str]) -> None:
    """Make the data and the runs, into base/ of the current folder, where they are not there yet."""
    draw = random.Random(1)
    if not Path("book.txt").exists():
        lines = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(4, 12))) for _ in range(150)]
        Path("book.txt").write_text("\n".join(lines))
        Path("rows.tsv").write_text("\n".join(f"{draw.choice(['no', 'yes', 'so'])}\t{line}" for line in lines))
        tags = ["\n".join(f"{word}\t{draw.choice('NV')}" for word in line.split()) for line in lines]
        Path("tags.conll").write_text("\n\n".join(tags) + "\n")
        Path("pairs.tsv").write_text("\n".join(f"{line}\t{line.upper()}" for line in lines))
        Path("texts.txt").write_text("the cow eats\nzebras and a dog\n")
    needed = [*kinds]
    if "arpa_lm" in kinds:
        needed.insert(0, "ngram")
    if "ensemble" in kinds:
        needed[:0] = ["naive_bayes", "bow"]
    for kind in needed:
        if Path("base", kind).exists():
            continue
        if kind == "arpa_lm":
            assert (
                quiet("train ngram book.txt tokens.kind=space data.canonical=true model.order=3 --out base/words")[0]
                == 0
            )
            assert quiet("export base/words book.arpa --to arpa")[0] == 0
            assert quiet("import book.arpa --out base/arpa_lm")[0] == 0
        else:
            assert quiet(f"train {KINDS[kind].train} --out base/{kind}")[0] == 0


def quiet(command: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it wrote on standard error."""
    error = io.StringIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(error):
        code = main(command.split(" "))
    return code, error.getvalue()


# Changes


def change(run: Path, draw: random.Random) -> str:
    """Change one file of a run; return what was done."""
    names = [name for name in FILES if (run / name).exists()]
    name = draw.choice(["model.safetensors", "config.json", *names])
    path = run / name
    content = path.read_bytes()
    if name == "model.safetensors" and draw.random() < 0.8:
        done, new = _changed_array(content, draw)
    elif name.endswith(".json") and draw.random() < 0.8:
        done, new = _changed_json(content, draw)
    elif name.endswith(".toml") and draw.random() < 0.8:
        done, new = _changed_toml(content, draw)
    else:
        done, new = _changed_bytes(content, draw)
    path.write_bytes(new)
    if name in SUMMED:
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | {"files": sums_of(run)}))
    return f"{name}: {done}"


def _changed_bytes(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    new = bytearray(content)
    how = draw.choice(["flip", "cut", "overwrite", "empty", "longer"])
    if how == "flip":
        for _ in range(draw.choice([1, 3, 20])):
            new[draw.randrange(len(new))] ^= 1 << draw.randrange(8)
    elif how == "cut":
        new = new[: draw.randrange(len(new))]
    elif how == "overwrite":
        place = draw.randrange(len(new))
        new[place : place + 64] = draw.randbytes(len(new[place : place + 64]))
    elif how == "empty":
        new = bytearray()
    else:
        new += draw.randbytes(100)
    return how, bytes(new)


def _changed_array(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Fill an array, or a part of it, or say that it has another shape or type."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    name = draw.choice([name for name in header if name != "__metadata__"])
    facts = header[name]
    low, high = facts["data_offsets"]
    how = draw.choice(["random", "most", "zero", "minus one", "nan", "one number", "swapped", "shape", "type", "gone"])
    fill = {"random": None, "most": b"\xff\xff\xff\x7f", "zero": b"\0", "minus one": b"\xff", "nan": b"\0\0\xc0\x7f"}
    if how in fill:
        begin = draw.choice([low, low + (high - low) // 2 // 8 * 8]) if high > low else low
        size = high - begin
        some = fill[how]
        data[begin:high] = draw.randbytes(size) if some is None else (some * (size // len(some) + 1))[:size]
    elif how == "one number" and high - low >= 8:
        place = low + draw.randrange((high - low) // 4) * 4
        data[place : place + 4] = draw.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", draw.randbytes(4)])
    elif how == "swapped" and high - low >= 16:
        half = (high - low) // 16 * 8
        data[low : low + half], data[low + half : low + 2 * half] = (
            data[low + half : low + 2 * half],
            data[low : low + half],
        )
    elif how == "shape" and facts["shape"]:
        facts["shape"] = draw.choice([facts["shape"][::-1], [*facts["shape"], 1], [], [-1, -1], [2**62, 4], ["x"]])
    elif how == "type":
        facts["dtype"] = draw.choice(["U8", "U16", "U32", "I32", "U64", "I64", "F32", "F64", "BF16", "X"])
    else:
        how = "gone"
        header.pop(name)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return f"{name} {how}", len(text).to_bytes(8, "little") + text + bytes(data)


def _changed_json(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Give one value of a JSON file another type, or take it away."""
    whole = json.loads(content)
    places = list(_places(whole))
    holder, key = draw.choice(places)
    if draw.random() < 0.2:
        done = f"{key} gone"
        del holder[key]
    else:
        odd = draw.choice(ODD)
        done = f"{key} = {odd!r}"
        holder[key] = odd
    return done, json.dumps(whole).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a value, as (dict or list, key); of long lists and tables only the first and last."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys if len(keys) < 40 else [*keys[:3], *keys[-3:]]:
        yield value, key
        yield from _places(value[key])


def _changed_toml(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    lines = content.decode().split("\n")
    place = draw.choice([i for i, line in enumerate(lines) if re.match(r"\w+ = ", line)])
    key = lines[place].partition(" = ")[0]
    odd = draw.choice(
        [
            *("-1", "0", "3", "1e300", "nan", "inf", "true", '"x"', "[]", "[[[]]]", "{}", "9223372036854775807"),
            *("1" * 24, "1" * 5000, "2147483647", "100000", '"\\u0000"', "[" * 3000 + "]" * 3000, "1979-05-27"),
        ]
    )
    lines[place] = f"{key} = {odd}"
    if draw.random() < 0.1:
        lines = lines[: draw.randrange(len(lines))]
        odd = "cut"
    return f"{key} = {odd[:30]}", "\n".join(lines).encode()


# Cases


class Ended(NamedTuple):
    """How a case ended."""

    fault: str
    """Empty: as it should."""
    message: str


def tried(run: Path, uses: tuple[str, ...]) -> Ended:
    """Use a run in a forked process, under limits."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os._exit(_child(run, uses, write))
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return Ended(f"signal {signal.Signals(os.WTERMSIG(status)).name}", said)
    code = os.WEXITSTATUS(status)
    if "Something went wrong inside" in said or "Traceback" in said:
        return Ended("an error inside", said)
    return Ended("" if code in (0, 2) else f"exit code {code}", said)


def _child(run: Path, uses: tuple[str, ...], write: int) -> int:
    signal.setitimer(signal.ITIMER_REAL, 4 * SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    worst = 0
    for use in uses:
        try:
            code, said = quiet(use.replace("RUN", str(run)).replace("TEXTS", "texts.txt"))
        except BaseException as error:
            code, said = 3, f"Traceback: {type(error).__name__}: {error}"
        worst = max(worst, code)
        os.write(write, said.encode(errors="replace")[:4000])
    return worst


def case(kind: str, seed: int) -> tuple[str, Ended]:
    """Make one changed copy of a run of this kind, and use it; return what was changed, and how it ended."""
    run = Path(f"changed-{os.getpid()}")
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(Path("base", kind), run, ignore=shutil.ignore_patterns("checkpoints", "report.html"))
    draw = random.Random(f"{kind} {seed}")
    done = change(run, draw)
    uses = KINDS[kind].uses
    ended = tried(run, (draw.choice(uses),))
    shutil.rmtree(run, ignore_errors=True)
    return done, ended


@pytest.mark.parametrize("kind", ["ngram", "nbsvm"])
def test_changed_files_end_in_a_message(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small share of the cases of this file."""
    monkeypatch.chdir(tmp_path)
    make_runs([kind])
    for use in KINDS[kind].uses:  # compiled here once, not in each process
        assert quiet(use.replace("RUN", f"base/{kind}").replace("TEXTS", "texts.txt"))[0] == 0
    for seed in range(8):
        done, ended = case(kind, seed)
        assert not ended.fault, (done, ended)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.chdir(asked.work)
    kinds = asked.kinds.split(",")
    make_runs(kinds)
    faults = 0
    for kind in kinds:
        for use in KINDS[kind].uses:  # what is loaded and compiled here is not loaded in each child
            assert quiet(use.replace("RUN", f"base/{kind}").replace("TEXTS", "texts.txt"))[0] == 0, (kind, use)
        begun, refused = time.monotonic(), 0
        for seed in range(asked.seed, asked.seed + asked.cases):
            done, ended = case(kind, seed)
            refused += bool(ended.message)
            if ended.fault:
                faults += 1
                print(ascii(f"{kind} {seed}: {done}: {ended.fault}: {ended.message[-300:]}"), flush=True)
        print(f"{kind}: {asked.cases} cases, {refused} refused, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(_main())

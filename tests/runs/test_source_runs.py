"""Runs that read sound or pictures: bad sources through the command line, what is read again, and resuming."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.batches import frames
from segue.cli import main
from segue.data import checked_sources
from segue.data.config import Config
from segue.data.example import Example
from segue.errors import InputError
from segue.output.png import png
from segue.output.wav import wav
from segue.runs.folder import read_json
from segue.tasks import task

SECOND = np.sin(np.arange(4000) ** 1.3 / 50)
TINY = {
    **{"model.width": 8, "tokens.kind": "char", "batches.size": 2, "train.steps": 4, "train.every": 2},
    **{"train.log_every": 1, "decode.beam": 1, "decode.max_tokens": 3, "data.rate": 4000, "data.validation": 0.25},
    **{"batches.noise": "specaugment", "train.seed": 3, "model.ctc": 0.3, "train.optimizer.ema": 0.5},
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sounds(folder: str, count: int = 8, rows: str = "") -> str:
    """A table of sounds in a folder of its own, and further rows."""
    place = Path(folder)
    place.mkdir()
    for number in range(count):
        (place / f"{number}.wav").write_bytes(wav(SECOND[number * 50 : number * 50 + 300 + 40 * number], 4000))
    said = "".join(f"{number}.wav\tword {number % 3}\n" for number in range(count))
    (place / "table.tsv").write_text(said + rows)
    return str(place / "table.tsv")


def large_png(width: int, height: int) -> bytes:
    """The header of a picture, with little behind it."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


WHOLE = wav(SECOND[:500], 4000)
PICTURE = png(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3))
BAD: dict[str, tuple[bytes | None, str]] = {
    "missing.wav": (None, "does not exist"),
    "empty.wav": (b"", "is empty"),
    "truncated.wav": (WHOLE[:600], "is cut off"),
    "other.wav": (PICTURE, "seems to be PNG"),
    "silent.wav": (wav(np.zeros(500), 4000), "is silent"),
    "gigabytes.wav": (WHOLE[:40] + struct.pack("<I", 4_000_000_000) + WHOLE[44:], "is cut off"),
    "missing.png": (None, "does not exist"),
    "empty.png": (b"", "is empty"),
    "truncated.png": (PICTURE[:60], "truncated"),
    "other.png": (WHOLE, "is WAV sound"),
    "one.png": (large_png(1, 1), "1 x 1 pixels"),
    "large.png": (large_png(20_000, 20_000), "20,000 x 20,000 pixels"),
    "gigabytes.png": (large_png(2**31 - 1, 2**31 - 1), "2,147,483,647 x 2,147,483,647 pixels"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_source_is_told_with_the_line_of_its_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, fault = BAD[name]
    Path("t").mkdir()
    for number in range(4):
        Path(f"t/{number}{name[-4:]}").write_bytes(WHOLE if name.endswith("wav") else PICTURE)
    if content is not None:
        Path("t", name).write_bytes(content)
    rows = [f"{number}{name[-4:]}\tsome words\n" for number in range(4)]
    Path("t/table.tsv").write_text("".join([*rows[:2], f"{name}\tmore\n", *rows[2:]]))
    before = sorted(os.walk("."))
    assert main(["train", "rnn_seq2seq", "t/table.tsv", "--out", "run"]) == 2
    message = capsys.readouterr().err
    assert f"segue: t/table.tsv:3 t/{name} " in message and fault in message and "Traceback" not in message
    assert sorted(os.walk(".")) == before


def test_the_first_five_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    table = sounds("t", 8, "".join(f"none{number}.wav\tx\n" for number in range(7)))
    assert main(["train", "rnn_seq2seq", table, "--out", "run"]) == 2
    message = capsys.readouterr().err
    assert all(f"t/table.tsv:{9 + n} t/none{n}.wav does not exist" in message for n in range(5))
    assert "none5" not in message and "…" in message and not Path("run").exists()
    assert main(["data", table, "data.on_error=skip", "data.rate=4000"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[2].startswith("8 rows;") and shown[3].startswith("7 rows were skipped: t/table.tsv:9 t/none0.wav does")
    assert "t/0.wav (0.07 s at 4,000 Hz) -> [word] [ 0]" in shown


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with contextlib.chdir(folder):
        sounds("t", 8, "none.wav\tx\n")
        segue.train("rnn_seq2seq", "t/table.tsv", "run", {**TINY, "data.on_error": "skip"}, threads=1)
    return folder


@pytest.fixture
def trained(made: Path, monkeypatch: pytest.MonkeyPatch) -> segue.Run:
    """A run that skipped a bad row, in the folder where it was made."""
    monkeypatch.chdir(made)
    return segue.load("run")


def test_evaluate_tells_the_rows_that_it_skipped(trained: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained.evaluate("t/table.tsv")["skipped"] == {"rows": 1, "first": "t/table.tsv:9 t/none.wav does not exist"}
    assert main(["evaluate", "run", "t/table.tsv"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Rows that were skipped: 1. t/table.tsv:9 t/none.wav does not exist." in said
    assert "skipped" not in trained.evaluate()


def test_a_run_on_sounds(
    trained: segue.Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = read_json(trained.path / "ledger.json")
    assert ledger["bad_rows_skipped"]["reasons"] == {"does not exist": 1}
    assert ledger["units"] == {"train": 6, "validation": 2, "test": 0} and trained.recipe.batches.length == 3000
    one = next(iter(trained.predict(["t/0.wav"]))).line()
    assert next(iter(trained.predict("t/0.wav"))).line() == one == next(iter(trained.predict(Path("t/0.wav")))).line()

    def said(*words: str) -> list[str]:
        capsys.readouterr()
        assert main([words[0], str(trained.path), *words[1:]]) == 0
        return capsys.readouterr().out.splitlines()

    assert said("predict", "t/0.wav") == [one]
    assert said("predict", "t/0.wav", "--json")[0].startswith('{"text": "t/0.wav", "translation"')
    Path("t/names.txt").write_text("0.wav\n\n1.wav\n")
    assert [said("predict", "t/names.txt")[n] for n in (0, 1)] == [one, ""]
    assert said("predict", "t")[0] == said("predict", "t/?.wav")[0] == f"t/0.wav\t{one}"
    assert len(said("predict", "tones:17")) == 1
    Path("t/some.tsv").write_text("file\tsaid\n0.wav\tword 0\n1.wav\tword 1\n")
    header, first, second = said("predict", "t/some.tsv")
    assert header == "file\tsaid\tprediction" and first == f"0.wav\tword 0\t{one}" and second.startswith("1.wav\t")
    scored = [json.loads(line) for line in said("score", "t/some.tsv", "--json")]
    assert [line["text"] for line in scored] == ["t/0.wav\tword 0", "t/1.wav\tword 1"]
    assert scored[0]["logprob"] == pytest.approx(next(iter(trained.score([("t/0.wav", "word 0")]))).logprob)
    figures = trained.evaluate("t/some.tsv")
    assert figures["leak"]["share"] >= 0.5  # the same recordings under the same words
    monkeypatch.chdir("t")
    trained.path = Path("../run")
    assert trained.evaluate([("0.wav", "word 0"), ("1.wav", "word 1")])["wer"] == figures["wer"]


def test_bad_sources_of_predictions(trained: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        capsys.readouterr()
        assert main(["predict", str(trained.path), *words]) == 2
        said = capsys.readouterr()
        assert not said.out
        return said.err

    # The run was made with data.on_error=skip; by default a bad row stops it.
    Path("t/names.txt").write_text("0.wav\nnone.wav\n1.wav\n")
    assert "t/names.txt:2 t/none.wav does not exist" in refused("t/names.txt", "data.on_error=stop")
    assert main(["predict", str(trained.path), "t/names.txt"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2 and "1 rows were left out" in said.err
    assert refused("none.wav") == "segue: none.wav does not exist.\n"
    Path("empty").mkdir()
    assert "empty holds no sound" in refused("empty")
    with pytest.raises(InputError, match=r"none\.wav does not exist"):
        list(trained.predict(["none.wav"]))
    with pytest.raises(InputError, match="shapes has names of pictures as its sources"):
        trained.evaluate("shapes")


def test_resuming_is_bit_for_bit_and_sources_are_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    table, calls = sounds("t"), Counter[str]()
    for module in (checked_sources, frames):
        monkeypatch.setattr(module, "decoded", _counting(calls, module.decoded))  # type: ignore[attr-defined]
    segue.train("rnn_seq2seq", table, "once", TINY, threads=1)
    assert sorted(calls.values())[:6] == [2] * 6  # checked and encoded; the two others are held out, and evaluated

    class Killed(BaseException):
        pass

    def killed(what: str, share: float, note: str = "") -> None:
        if note.startswith("step 3"):
            raise Killed

    with pytest.raises(Killed):
        segue.train("rnn_seq2seq", table, "twice", TINY, threads=1, progress=killed)
    assert [path.name for path in Path("twice/checkpoints").iterdir()] == ["step-00000002"]
    segue.train(None, out="twice", resume=True, threads=1)
    assert Path("twice/model.safetensors").read_bytes() == Path("once/model.safetensors").read_bytes()
    # Another recording under the same name is another corpus.
    Path("t/3.wav").write_bytes(wav(SECOND[:900], 4000))
    with pytest.raises(InputError, match=r"what t/table.tsv names has changed since the run in twice began"):
        segue.train(None, out="twice", settings={"train.steps": 6}, resume=True, threads=1)


def _counting(calls: Counter[str], decoded: Callable[..., Any]) -> Callable[..., Any]:
    def counting(name: str, config: Config) -> Any:
        calls[name] += 1
        return decoded(name, config)

    return counting


def test_what_is_cut_is_told_in_seconds(trained: segue.Run) -> None:
    opened = trained.opened._replace(limit=5)
    names = [f"t/{number}.wav" for number in range(8)]
    made = [len(frames.frames_of(name, trained.recipe.data)) for name in names]
    assert [frames.frame_count(name, trained.recipe.data) for name in names] == made
    assert [task("seq2seq").cut(opened, Example(name)) for name in names] == [max(0, n - 5) for n in made]
    sound, picture = Config(source="sound"), Config(source="picture")
    assert frames.frame_count("tones:3", sound) == len(frames.frames_of("tones:3", sound)) > 100
    assert frames.frame_count("shapes:3", picture) == 1
    assert frames.cut_frames(250, 3000, "sound") == "2.5 s of sound beyond 30 s a source were not read"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tokens.sides=each", "tokens.sides=each is for sources that are texts, and these are sounds"),
        ("tokens.dropout=0.1", "tokens.dropout=0.1 is for sources that are texts"),
        ("batches.noise=shift", "batches.noise=shift is for sources that are pictures, and these are sounds"),
        ("batches.noise=blank", "noise=blank is for running text"),
        ("data.source=text", "has names of sounds as its sources, and data.source is text"),
        ("data.source=picture", "has names of sounds as its sources, and data.source is picture"),
    ],
)
def test_settings_that_are_not_for_sound(setting: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "rnn_seq2seq", sounds("t", 2), "--out", "run", setting]) == 2
    assert said in capsys.readouterr().err and not Path("run").exists()

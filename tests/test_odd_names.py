"""Names, encodings and devices that are none: one message, shown escaped; what can be kept is kept."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from segue.cli import main
from segue.data import downloads
from segue.runs.folder import read_json
from segue.runs.run import load

BOOK = "the cows eat grass and hay\n" * 30
ODD = os.fsdecode(b"b\xff\x1b[31m.txt")
ENCODED = {
    "utf-7": b"caf+2AA- the cow\n" * 9,  # half a surrogate pair
    "utf-16": b"the cow\n" * 9,  # no byte order mark
    "unicode_escape": b"caf\\ud800 the cow\n" * 9,
    "raw_unicode_escape": b"caf\\ud800 the cow\n" * 9,
    "punycode": b"the cow\n" * 9,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(BOOK)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    before = sorted(Path().rglob("*"))
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.startswith("segue: ") and said.count("\n") == 1 and "\x1b" not in said
    assert sorted(Path().rglob("*")) == before
    return said


def test_a_recipe_holds_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path(ODD).write_text(BOOK)
    assert r"data.path=b\xff\x1b[31m.txt is not text in UTF-8" in refused(capsys, "train", "ngram", ODD, "--out", "x")
    assert r"\ud800" in refused(capsys, "train", "ngram", "book.txt", "data.columns=\ud800", "--out", "x")


def test_files_and_runs_may_have_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    (Path("folder") / ODD).write_text(BOOK)
    assert main(["train", "ngram", "folder", "--out", ODD]) == 0
    run = Path(ODD).absolute()
    [file] = read_json(run / "ledger.json")["files"]
    assert file["path"].endswith(ODD)
    assert load(run).score(["the cow"])
    assert r"b\xff\x1b[31m.txt" in refused(capsys, "score", ODD, f"no{ODD}")


@pytest.mark.parametrize("encoding", ENCODED)
def test_encodings(encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.txt").write_bytes(ENCODED[encoding])
    assert "data.encoding" in refused(capsys, "train", "ngram", "text.txt", f"data.encoding={encoding}", "--out", "x")


def test_a_link_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.txt").symlink_to("l.txt")
    said = refused(capsys, "train", "ngram", "l.txt", "--out", "x")
    assert "l.txt is a link that leads to no file" in said and "Did you mean" not in said


def test_a_device_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--device tpu is not known" in refused(capsys, "train", "ngram", "book.txt", "--device", "tpu", "--out", "x")
    assert main(["train", "ngram", "book.txt", "--out", "run"]) == 0
    assert "--device tpu is not known" in refused(capsys, "evaluate", "run", "--device", "tpu")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    name = next(iter(downloads.NAMED))
    for words in (["data", "get", name], ["train", "ngram", name, "--out", "x"]):
        assert "HOME" in refused(capsys, *words)


def test_a_number_that_is_too_large_warns_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.txt").write_text("2 3\nthe 1e99 2 3\ncow 1 2 3\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "not finite" in refused(capsys, "import", "v.txt", "--out", "x")

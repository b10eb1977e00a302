"""Standard streams as they may be found: a terminal, a full disk, a closed pipe, another encoding, closed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

import segue
from segue.cli import main
from segue.output.streams import ClosedPipeError, Output, open_console, standard_streams

EVIL = "la\x1b[31mbel\x9b2J\x1b]0;title\x07"
VERBS = ["recipes", "--help", "claim --json"]  # rich writes the first, typer the second, Segue the third


@pytest.fixture
def terminal() -> Iterator[tuple[Any, Any]]:
    """A stream to a terminal, and what reads all that came through it."""
    above, below = os.openpty()
    with open(below, "w", encoding="utf-8", closefd=False) as stream:

        def read() -> str:
            stream.flush()
            os.write(below, b"END")
            found = b""
            while not found.endswith(b"END"):
                found += os.read(above, 4096)
            return found[:-3].decode()

        yield stream, read
    os.close(above)
    os.close(below)


def test_data_in_a_terminal_is_shown(terminal: Any) -> None:
    stream, read = terminal
    Output(stream).write(EVIL)
    assert read() == r"la\x1b[31mbel\x9b2J\x1b]0;title\x07"


def test_styles_are_kept_and_data_is_shown(terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, read = terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table("a", EVIL, box=None)
    table.add_row(Text(EVIL, "bold"), EVIL.replace("[", r"\["))
    monkeypatch.setattr(sys, "stdout", Output(stream))
    open_console(width=200).print(table)
    found = read()
    assert "\x1b[1m" in found and "\x1b[31m" not in found and "\x1b]" not in found and "\x9b" not in found
    assert found.count(r"\x1b[31mbel\x9b2J\x1b]0;title") == 3


def test_data_in_a_file_is_exact() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    Output(file).write(EVIL)
    file.flush()
    assert file.buffer.getvalue() == EVIL.encode()  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", VERBS)
def test_a_full_disk(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words.split()) == 2
        full.flush()  # Python does so when it ends: that must not fail again
    assert capsys.readouterr().err.startswith("segue: The disk is full: standard output could not be written.")


@pytest.mark.parametrize("words", VERBS)
def test_a_reader_that_has_gone(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(words.split()) == 0
        pipe.flush()
    assert capsys.readouterr().err == ""


def test_errors_that_nobody_reads_stop_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as pipe:
        out = Output(pipe, error=True)
        for _ in range(3):
            print("training: 10 %", file=out, flush=True)


def test_an_error_of_output_is_not_forgotten() -> None:
    """typer tries a stream with an empty text, and ignores what that raises."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as pipe:
        out = Output(pipe)
        for _ in range(2):
            with pytest.raises(ClosedPipeError):
                print("a line", file=out, flush=True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("words", VERBS)
def test_another_encoding(words: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", file)
    assert main(words.split()) == 0
    file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_streams_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with standard_streams():
        assert isinstance(sys.stdout, Output)
        print("a line")
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "a line\n"


def test_closed_descriptors(tmp_path: Path) -> None:
    """The next files that are opened must not take their numbers: what is printed would stand in them."""
    code = (
        "import os, sys\nfrom segue.output.streams import standard_streams\n"
        "with standard_streams():\n"
        "    file = open('kept', 'w')\n"
        "    print('lost'); os.write(1, b'lost'); os.write(2, b'lost')\n"
        "    print(sys.stdin.read(), file.fileno(), file=file)\n"
    )
    command = f'"{sys.executable}" -c "$CODE" <&- >&- 2>&-'
    environment = {**os.environ, "CODE": code, "PYTHONPATH": str(Path(segue.__file__).parents[1])}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    words = (tmp_path / "kept").read_text().split()
    assert len(words) == 1 and int(words[0]) > 2

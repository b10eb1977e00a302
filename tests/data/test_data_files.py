from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from segue.data import files
from segue.data.files import blocks, extension, lines
from segue.data.ledger import Ledger
from segue.errors import InputError


def text_of(path: Path, encoding: str = "utf-8", ledger: Ledger | None = None) -> str:
    return "".join(blocks(path, encoding, ledger or Ledger()))


def refusal(path: Path, encoding: str = "utf-8") -> str:
    with pytest.raises(InputError) as caught:
        text_of(path, encoding)
    return str(caught.value)


def as_plain(data: bytes) -> bytes:
    return data


@pytest.mark.parametrize(("suffix", "pack"), [("", as_plain), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_plain_gz_and_xz_give_the_same_text(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"book.txt{suffix}"
    path.write_bytes(pack("wörter\nund noch\x0bmehr\u2028hier".encode()))
    assert text_of(path) == "wörter\nund noch\x0bmehr\u2028hier"
    assert extension(path) == ".txt"


@pytest.mark.parametrize("size", range(1, 9))
def test_a_block_border_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(files, "BLOCK", size)
    path = tmp_path / "book.txt"
    path.write_bytes("\ufeffa\r\nä€😀\r\n\r\rb\r".encode())
    ledger = Ledger()
    assert text_of(path, ledger=ledger) == "a\nä€😀\n\r\rb\r"
    assert list(lines(blocks(path, "utf-8", Ledger()))) == ["a", "ä€😀", "\r\rb\r"]
    assert len(ledger.notes()) == 2
    assert "byte order mark" in ledger.notes()[0]
    assert "line end" in ledger.notes()[1]


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_bytes_that_do_not_decode_are_found_by_offset_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(files, "BLOCK", size)
    path = tmp_path / "latin.txt"
    path.write_bytes("ä\nab\nc".encode() + b"\xe9 d")
    message = refusal(path)
    assert "line 3" in message
    assert "offset 7" in message
    assert "data.encoding" in message
    assert "latin.txt" in message


def test_a_character_cut_off_at_the_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    path.write_bytes(b"ab\n" + "€".encode()[:2])
    assert "line 2" in refusal(path)
    assert "offset 3" in refusal(path)


def test_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("été\n".encode("latin-1"))
    assert text_of(path, "latin-1") == "été\n"
    path.write_bytes("été\r\n".encode("utf-16"))
    assert text_of(path, "utf-16") == "été\n"


def test_nul_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nul.txt"
    path.write_bytes(b"one\ntwo\nth\0ree\n")
    assert "nul.txt, line 3: a NUL byte" in refusal(path)


def test_a_line_of_more_than_ten_megabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"short\n" + b"x" * 10_000_000 + b"\nshort\n")
    assert len(text_of(path)) == 10_000_013
    path.write_bytes(b"short\n" + b"x " * 5_000_000 + b"x\nshort\n")
    assert "long.txt, line 2" in refusal(path)
    assert "10 MB" in refusal(path)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("damage", [lambda d: d[:-9], lambda d: b"plain text", lambda d: d[:40] + b"\xff" * 9 + d[49:]])
def test_damaged_files_are_refused(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"book.txt{suffix}"
    path.write_bytes(damage(pack("".join(str(i**3) for i in range(2000)).encode())))
    assert "is damaged" in refusal(path)


def test_progress_ends_at_the_files_size(tmp_path: Path) -> None:
    path = tmp_path / "book.txt.gz"
    path.write_bytes(gzip.compress(b"some text\n" * 1000))
    seen: list[int] = []
    list(blocks(path, "utf-8", Ledger(), seen.append))
    assert seen[-1] == path.stat().st_size

"""Read files as checked text: plain, gz or xz, in blocks of about 1 MB, so that memory does not grow with the file.

Lines end with "\\n" or "\\r\\n" and with nothing else; the latter becomes the former, and the ledger says so (but not
of a csv, whose lines end so by its standard, RFC 4180). What is not text (bytes that do not decode, NUL bytes, a line
without end) is refused with the file and the line.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.output.visible import visible

BLOCK = 1 << 20
LONGEST_LINE = 10_000_000
COMPRESSED = {".gz": "gzip", ".xz": "xz"}

Tick = Callable[[int], None]
"""A callback: how many bytes of the file, as it is on disk, have been read."""


def extension(path: Path) -> str:
    """Return the extension without compression: `.tsv` for reviews.tsv and for reviews.tsv.gz."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in COMPRESSED else name.suffix


def describe_file(path: Path) -> dict[str, Any]:
    """Describe a file for the ledger: path, bytes, sha256."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"path": str(path), "bytes": file.tell(), "sha256": digest}
    except OSError as error:
        raise _unreadable(path, error) from None


def lines(blocks: Iterator[str], split: Callable[[str], list[str]] | None = None) -> Iterator[str]:
    """Yield the lines, without their ends; text after the last line end is a line too. `split` splits a text."""
    rest = ""
    for block in blocks:
        text, end, rest = (rest + block).rpartition("\n")
        if end:
            yield from split(text) if split else text.split("\n")
    if rest:
        yield from split(rest) if split else [rest]


def blocks(
    path: Path,
    encoding: str,
    ledger: Ledger,
    tick: Tick | None = None,
    *,
    opened: IO[bytes] | None = None,
    longest: int = LONGEST_LINE,
    note_line_ends: bool = True,
) -> Iterator[str]:
    """Yield the file's text, checked, with "\\n" line ends and without a byte order mark. `opened` is read in place of
    the file (standard input); `path` is then its name in messages. `longest`: characters in a line (0: any number)."""
    return _Text(path, encoding, ledger, opened, longest, note_line_ends).blocks(tick)


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, which UTF-8 refuses and some other encodings let pass."""


class _Text:
    """Reads one file once, and keeps the current line number."""

    def __init__(
        self, path: Path, encoding: str, ledger: Ledger, opened: IO[bytes] | None, longest: int, note_line_ends: bool
    ) -> None:
        self.path, self.encoding, self.ledger = path, encoding, ledger
        self.opened, self.longest, self.note_line_ends = opened, longest, note_line_ends
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.bytes_read = 0
        self.line = 1
        self.line_length = 0

    def blocks(self, tick: Tick | None) -> Iterator[str]:
        carriage_return, begun = "", False
        with nullcontext(self.opened) if self.opened else self._open() as raw:
            stream = raw if self.opened else self._unpacked(raw)
            while True:
                packed = self._read(stream)
                text = carriage_return + self._decode(packed)
                if text and not begun:
                    begun, text = True, self._without_mark(text)
                # A "\r" at the very end may be half of "\r\n": it waits for the next block.
                carriage_return = "\r" if packed and text.endswith("\r") else ""
                text = self._unix(text[:-1] if carriage_return else text)
                self._check(text)
                if text:
                    yield text
                if tick:
                    tick(raw.tell())
                if not packed:
                    return

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def _unpacked(self, raw: IO[bytes]) -> IO[bytes]:
        match self.path.suffix.lower():
            case ".gz":
                return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[return-value]
            case ".xz":
                return lzma.LZMAFile(raw)
            case _:
                return raw

    def _read(self, stream: IO[bytes]) -> bytes:
        try:
            # A pipe gives what it has, so that answers need not wait for a whole block.
            if self.opened and isinstance(stream, io.BufferedReader):
                return stream.read1(BLOCK)
            return stream.read(BLOCK)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            kind = COMPRESSED[self.path.suffix.lower()]
            raise InputError(
                f"{self.path} is damaged: {str(error).rstrip('.')}. Expected a whole {kind} file; "
                "fetch or compress it again."
            ) from None
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def _decode(self, packed: bytes) -> str:
        try:
            text = self.decoder.decode(packed, final=not packed)
        except UnicodeDecodeError as error:
            # The decoder may have kept the first bytes of a character back from the block before.
            begin = self.bytes_read + len(packed) - len(error.object)
            good = error.object[: error.start].decode(self.encoding, errors="replace")
            raise InputError(
                f"{self.path}, line {self.line + good.count(chr(10))}: byte {error.object[error.start]:#04x} at offset "
                f"{begin + error.start:,} is not {self.encoding}. Expected text in {self.encoding}; "
                "if the file is in another encoding, name it, for example data.encoding=latin-1."
            ) from None
        except UnicodeError as error:
            raise InputError(f"{self.path} is not {self.encoding}: {error}. Name another data.encoding.") from None
        self.bytes_read += len(packed)
        if self.encoding != "utf-8" and (half := _SURROGATE.search(text)):
            line = self.line + text.count("\n", 0, half.start())
            raise InputError(
                f"{self.path}, line {line}: {visible(half[0])} is half a surrogate pair, which is no character. Mend "
                "the line, or name another data.encoding."
            )
        return text

    def _without_mark(self, text: str) -> str:
        if text[0] != "\ufeff":
            return text
        self.ledger.note("a byte order mark was dropped", str(self.path))
        return text[1:]

    def _unix(self, text: str) -> str:
        if "\r\n" not in text:
            return text
        if self.note_line_ends:
            self.ledger.note('"\\r\\n" was read as a line end', str(self.path))
        return text.replace("\r\n", "\n")

    def _check(self, text: str) -> None:
        """Refuse NUL bytes and endless lines, and count the lines."""
        nul = text.find("\0")
        if nul >= 0:
            raise InputError(
                f"{self.path}, line {self.line + text.count(chr(10), 0, nul)}: a NUL byte. Expected text; "
                "if the file is not text leave it out, if it is UTF-16 say data.encoding=utf-16."
            )
        first = text.find("\n")
        self.line_length += len(text) if first < 0 else first
        if self.longest and self.line_length > self.longest:
            raise InputError(
                f"{self.path}, line {self.line}: the line is longer than {self.longest:,} characters (10 MB). Expected "
                "shorter lines; break it, for example with `fold -s -w 1000`, or leave the file out if it is not text."
            )
        if first >= 0:
            self.line += text.count("\n")
            self.line_length = len(text) - text.rfind("\n") - 1


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be read: {error.strerror or error}. Expected a file that may be read; check its rights."
    )

"""Read and write word vectors in the two formats of the word2vec program, which most toolkits know.

    text      a line "COUNT WIDTH", then a line a word: the word and its numbers, with blanks between
    binary    the same first line, then for each word: the word, a blank, and its numbers as 32-bit floats (some
              programs put a line end behind them)

A text file may lack its first line, as those of GloVe do. Plain, .gz or .xz.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.errors import InputError

Vectors = NDArray[np.float32]
_LONGEST_WORD, _LONGEST_LINE = 1 << 16, 1 << 24
"""Bytes of a word, and of a line, at the most."""
_PROBE = 1 << 12


def is_vectors(path: Path) -> bool:
    """Whether a file begins as a file of vectors does: "COUNT WIDTH" alone in its first line."""
    try:
        with _opened(path) as file:
            first = file.read(64).split(b"\n", 1)
    except (InputError, OSError, EOFError, zlib.error, lzma.LZMAError):
        return False
    cells = first[0].split()
    return len(first) == 2 and len(cells) == 2 and all(cell.isdigit() for cell in cells)


def word_names(tokens: Sequence[str]) -> list[str]:
    """Name words as a file of vectors does: without the blank that belongs to a word token. Where the same letters also
    stand glued to the token before, as a token of its own, that one is named ##letters, as WordPiece has it."""
    known = set(tokens)
    return [f"##{token}" if f" {token}" in known else token.removeprefix(" ") or token for token in tokens]


def read_vectors(path: Path) -> tuple[list[str], Vectors]:
    """Read the words of a file and their vectors, (words, width)."""
    if not path.is_file():
        raise InputError(f"There is no file {path}. Expected vectors of words in the format of word2vec.")
    try:
        with _opened(path) as file:
            line, _, rest = file.read(_PROBE).partition(b"\n")
            file.seek(0)
            cells = line.split()
            if len(cells) == 2 and all(cell.isdigit() for cell in cells):
                file.readline(_PROBE)
                count, width = int(cells[0]), int(cells[1])
                if not width or not count:
                    raise InputError(f"{path}:1: {count} words of {width} numbers. Expected at least one of each.")
                read = _binary if _is_binary(rest, width) else _text
                words, vectors = read(path, file, count, width)
            else:
                words, vectors = _text(path, file, 0, len(cells) - 1)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged: {error}. Fetch or compress it again.") from None
    _check(path, words, vectors)
    return words, vectors


def write_vectors(path: Path, words: Sequence[str], vectors: Vectors) -> None:
    """Write binary if the name ends in .bin (also .bin.gz), else text; numbers read back exactly."""
    binary = ".bin" in path.suffixes[-2:]
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    with _opened(path, "wb") as file:
        file.write(f"{len(words)} {rows.shape[1]}\n".encode())
        for word, row in zip(words, rows, strict=True):
            if binary:
                file.write(word.encode() + b" " + row.tobytes() + b"\n")
            else:
                file.write(f"{word} {' '.join(map(str, row))}\n".encode())


def _is_binary(rest: bytes, width: int) -> bool:
    """Guess whether the file is binary: a text line has as many numbers as the first line says."""
    line = rest.split(b"\n", 1)[0]
    cells = line.split(b" ") if len(rest) > len(line) else line.split(b" ")[:-1]
    try:
        [float(cell) for cell in cells[1:] if cell]
        return len(cells) < 2 or bool(_control(line))
    except ValueError:
        return True


def _control(line: bytes) -> bytes:
    return bytes(byte for byte in line if byte < 32 and byte not in b"\t\r")


def _text(path: Path, file: Any, count: int, width: int) -> tuple[list[str], Vectors]:
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    shift = 1 if count else 0
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1 + shift):
        if len(line) == _LONGEST_LINE:
            raise InputError(f"{path}:{number}: a line of {_LONGEST_LINE:,} bytes or more. Expected a word a line.")
        cells = line.rstrip().rsplit(b" ", width) if width > 0 else []
        try:
            if len(cells) != width + 1:
                raise ValueError
            with np.errstate(over="ignore"):  # infinite numbers are refused below
                rows.append(np.array(cells[1:], dtype=np.float32))
            words.append(cells[0].decode())
        except ValueError:
            raise InputError(
                f"{path}:{number}: '{line[:40].decode(errors='replace').strip()} …'. Expected a word and "
                f"{max(width, 1)} number{'s' if width != 1 else ''}, with blanks between."
            ) from None
    if count and count != len(words):
        raise InputError(f"{path} holds {len(words):,} words, but its first line says {count:,}. Fetch it again.")
    return words, np.stack(rows) if rows else np.empty((0, max(width, 0)), np.float32)


def _binary(path: Path, file: Any, count: int, width: int) -> tuple[list[str], Vectors]:
    """Read the file whole, but not beyond what its first line says: a packed file may hold far more. A space ends each
    word."""
    most, data = count * (4 * width + _PROBE), bytearray()
    while len(data) < most and (piece := file.read(_LONGEST_LINE)):
        data += piece
    if count * 4 * width > len(data):
        raise InputError(
            f"{path} is too short for the {count:,} words of {width:,} numbers of its first line. Fetch it again."
        )
    vectors = np.empty((count, width), np.float32)
    words: list[str] = []
    at = 0
    for i in range(count):
        blank = data.find(b" ", at, at + _LONGEST_WORD)
        end = blank + 1 + 4 * width
        if blank < 0 or end > len(data):
            raise InputError(
                f"{path} ends, or is damaged, at word {i + 1:,} of the {count:,} that it should hold. Fetch it again."
            )
        try:
            words.append(data[at:blank].lstrip(b"\n").decode())
        except UnicodeDecodeError:
            raise InputError(f"{path}: word {i + 1:,} is not UTF-8. Expected a binary file of word2vec.") from None
        vectors[i] = np.frombuffer(data, "<f4", width, blank + 1)
        at = end
    if data[at:].strip(b"\n"):
        raise InputError(f"{path} goes on behind the {count:,} words that its first line says. Fetch it again.")
    return words, vectors


def _check(path: Path, words: list[str], vectors: Vectors) -> None:
    if not words:
        raise InputError(f"{path} holds no words. Expected a word and its numbers in each line.")
    if len(set(words)) < len(words):
        seen: set[str] = set()
        twice = next(word for word in words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
        raise InputError(f"{path}: the word '{twice}' stands there twice. Expected each word once.")
    bad = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(bad):
        raise InputError(f"{path}: a number of '{words[bad[0]]}' is not finite. Expected numbers.")


def _opened(path: Path, mode: Literal["rb", "wb"] = "rb") -> Any:
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(path, mode, mtime=0)
        case ".xz":
            return lzma.LZMAFile(path, mode)
        case _:
            return path.open(mode)

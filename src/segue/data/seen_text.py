"""Find text that stood in the training data, by a sample of its hashes: train_hashes.safetensors in the run folder.

Running text is hashed in windows of 50 bytes, blanks not counted, one at every byte; rows are hashed whole. Of all
hashes the smallest 65,536 are kept (a bottom-k sample, Broder 1997), in 512 KB, whatever the size of the text. Of
another text, those of its hashes are looked up that are not greater than the greatest in the sample: the share that is
found estimates the share of its bytes, or rows, that stood in the training data. A smaller text is known whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from segue.data.atomic import atomic_file
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.errors import InputError

WINDOW = 50
"""Bytes of a window, blanks not counted: some nine words of English."""
KEPT = 1 << 16
"""Hashes in a sample."""
LEAST = 20
"""Hashes that must be looked up to estimate a share from a sample."""
_ALL = np.uint64(2**64 - 1)
_PIECE = 1 << 16
_BASE = 0x9E3779B97F4A7C15
"""An odd number, so that it has an inverse modulo 2^64."""
_BLANKS = b" \t\n\r\v\f"

Hashes = NDArray[np.uint64]


class Sample(NamedTuple):
    """The hashes of a text up to a limit."""

    hashes: Hashes
    """Sorted, each once."""
    limit: np.uint64 = _ALL
    """The greatest hash that is sampled; _ALL: the sample is the whole text."""

    def joined(self, other: Sample) -> Sample:
        """Return the sample of two texts together."""
        limit = min(self.limit, other.limit)
        both = np.union1d(self.hashes, other.hashes)
        return _smallest(both[both <= limit], limit)

    def share(self, hashes: Iterable[Hashes]) -> float | None:
        """Return the share of the hashes of another text that this one has; None if too few can be looked up."""
        looked_up = found = 0
        known = np.append(self.hashes, _ALL)
        for some in hashes:
            some = some[some <= self.limit]
            looked_up += len(some)
            found += int((known[np.searchsorted(known, some)] == some).sum())
        return found / looked_up if looked_up >= (1 if self.limit == _ALL else LEAST) else None

    def write(self, path: Path) -> None:
        """Write the hashes and the limit in the safetensors format."""
        with atomic_file(path) as beside:
            # save_file would make a file that nobody else may read, unlike the others of the run
            beside.write_bytes(save({"hashes": self.hashes, "limit": np.array([self.limit])}))

    @classmethod
    def read(cls, path: Path) -> Sample:
        """Read what `write` wrote."""
        try:
            found = load_file(path)
            return cls(found["hashes"].astype(np.uint64), np.uint64(found["limit"][0]))
        except (OSError, SafetensorError, KeyError, IndexError):
            raise InputError(f"{path} is damaged: it holds no hashes. Restore it, or train the run again.") from None


def sample(hashes: Iterable[Hashes]) -> Sample:
    """Keep the smallest hashes."""
    found, waiting = Sample(np.empty(0, np.uint64)), [np.empty(0, np.uint64)]
    for some in hashes:
        waiting.append(some[some <= found.limit])
        if sum(map(len, waiting)) > KEPT:
            found = _smallest(np.unique(np.concatenate([found.hashes, *waiting])), found.limit)
            waiting = []
    return _smallest(np.unique(np.concatenate([found.hashes, *waiting])), found.limit)


def _smallest(hashes: Hashes, limit: np.uint64) -> Sample:
    return Sample(hashes[:KEPT], hashes[KEPT - 1]) if len(hashes) > KEPT else Sample(hashes, limit)


def hashes_of(corpus: Corpus, split: str) -> Iterator[Hashes]:
    """Yield the hashes of a split of a corpus, some thousands at a time."""
    for text in corpus.texts(split):
        yield from _windows(text) if corpus.shape.running else _rows(text)


def windows_of_rows(corpus: Corpus, split: str) -> Iterator[Hashes]:
    """Yield the hashes of all windows inside the rows of a split, to look rows up in running text. What is shorter than
    a window has none."""
    for text in corpus.texts(split):
        parts = (part for row in text if not row.content for part in (row.text, row.target) if part)
        for letters, ends in _joined_rows(part.encode().translate(None, _BLANKS) for part in parts):
            inside = np.arange(len(letters) - WINDOW + 1) + WINDOW <= ends[: len(letters) - WINDOW + 1]
            yield _rolling(letters)[inside]


def _joined_rows(texts: Iterable[bytes]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Join texts to pieces of at least a window; return for each letter also where its text ends."""
    some, size, half = [], 0, _PIECE // 2
    for text in texts:
        for begin in range(0, len(text), half):
            some.append(text[begin : begin + half])
            size += len(some[-1])
            if size >= half:
                yield _piece(some)
                some, size = [], 0
    if size >= WINDOW:
        yield _piece(some)


def _piece(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    lengths = np.array([len(text) for text in texts])
    return np.frombuffer(b"".join(texts), np.uint8), np.repeat(np.cumsum(lengths), lengths)


def _windows(text: Iterable[Example]) -> Iterator[Hashes]:
    """Hash every window of a running text, over the ends of its units."""
    before = b""
    for piece in _pieces(text):
        letters = before + piece
        if len(letters) >= WINDOW:
            yield _rolling(np.frombuffer(letters, np.uint8))
            before = letters[len(letters) - WINDOW + 1 :]
        else:
            before = letters


def _pieces(text: Iterable[Example]) -> Iterator[bytes]:
    """Join texts without their blanks to pieces that fit into the CPU cache, and cut longer ones."""
    some, size = [], 0
    for example in text:
        letters = example.text.encode().translate(None, _BLANKS)
        some.append(letters)
        size += len(letters)
        if size >= _PIECE:
            whole = b"".join(some)
            yield from (whole[i : i + _PIECE] for i in range(0, len(whole), _PIECE))
            some, size = [], 0
    yield b"".join(some)


def _rolling(letters: NDArray[np.uint8]) -> Hashes:
    """Hash every window of these letters: the sum of letter i times _BASE^i, divided by _BASE^(first i), modulo 2^64,
    then mixed, so that every bit depends on every letter."""
    powers, inverses = _powers()
    sums = np.zeros(len(letters) + 1, np.uint64)
    np.cumsum(powers[: len(letters)] * letters, out=sums[1:])
    hashes: Hashes = (sums[WINDOW:] - sums[:-WINDOW]) * inverses[: len(letters) - WINDOW + 1]
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):  # MurmurHash3
        hashes ^= hashes >> np.uint64(shift)
        hashes *= np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(33))


@cache
def _powers() -> tuple[Hashes, Hashes]:
    """_BASE^i and _BASE^-i modulo 2^64."""
    bases = (_BASE, pow(_BASE, -1, 2**64))
    powers, inverses = (np.full(_PIECE + WINDOW, base, np.uint64) for base in bases)
    powers[0] = inverses[0] = 1
    return np.cumprod(powers, dtype=np.uint64), np.cumprod(inverses, dtype=np.uint64)


def _rows(rows: Iterable[Example]) -> Iterator[Hashes]:
    """Hash rows, each with its translation or the second text of its pair; labels do not count. Of a sound or a picture
    its content counts, not its name."""
    some: list[int] = []
    for row in rows:
        whole = "\n".join(" ".join(text.split()) for text in (row.content or row.text, row.target))
        some.append(int.from_bytes(hashlib.blake2b(whole.encode(), digest_size=8).digest()))
        if len(some) == _PIECE:
            yield np.array(some, np.uint64)
            some = []
    yield np.array(some, np.uint64)

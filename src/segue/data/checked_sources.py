"""Check the sounds or pictures that the rows of a table name, once: on the first pass over the table.

Every source is decoded, one at a time, to find those that cannot be read, and gets a checksum of its bytes, so that two
names of one recording are known as the same. Later passes decode nothing: they skip the same rows. Memory has sixteen
bytes for each good row, and the number of each bad one.
"""

from __future__ import annotations

import hashlib
import os
import time
from array import array
from collections.abc import Iterable
from typing import Any

from segue.data.config import Config
from segue.data.example import Example
from segue.data.files import BLOCK
from segue.data.media import check_name, decoded, is_path, of_uri, opened
from segue.errors import BadSourceError, InputError

TICK = 2_000_000_000
"""Nanoseconds. The time of a file is this coarse in some file systems."""


class CheckedSources:
    """What the first pass found."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.done = False
        """Whether the first pass is finished."""
        self.begin()

    def begin(self) -> Pass:
        """Begin a pass over the table; the first one forgets what an unfinished one found."""
        if not self.done:
            self.bad: set[int] = set()
            """Numbers of the rows that cannot be used."""
            self.contents, self.stamps = array("Q"), array("q")
            """Of each good row, the checksum of its source, and a hash of the size and time of its file."""
            self.bytes, self.sha256 = 0, hashlib.sha256()
            self.began = time.time_ns()
        return Pass(self)

    def describe(self, table: str) -> dict[str, Any]:
        """Return one entry of the ledger for all sources together."""
        found = {"count": len(self.contents), "bytes": self.bytes, "sha256": self.sha256.hexdigest()}
        return {"path": f"what {table} names", **found}

    def check(self, name: str) -> int:
        """Decode a source, and keep its checksum; raise a BadSourceError if it cannot be used."""
        check_name(name, self.config)
        stamp = _stamp(name)
        decoded(name, self.config)  # first: what is refused by its header is not read
        digest, size = checksum(name, self.config.seed)
        self.bytes += size
        self.sha256.update(digest)
        self.stamps.append(stamp[0])
        self.contents.append(_short(digest))
        return self.contents[-1]

    def changed(self, examples: Iterable[Example]) -> str:
        """Return the name of a source that is another one now; '' if there is none. Checksums are computed of files
        whose size or time has changed, and of those that were written shortly before they were checked or later."""
        for example, content, stamp in zip(examples, self.contents, self.stamps, strict=False):
            try:
                now, written = _stamp(example.text)
                sure = now == stamp and written < self.began - TICK
                if not sure and _short(checksum(example.text, self.config.seed)[0]) != content:
                    return example.text
            except BadSourceError:
                return example.text
        return ""


class Pass:
    """One pass over the rows of a table."""

    def __init__(self, checked: CheckedSources) -> None:
        self.checked = checked
        self.rows = self.good = 0

    def next(self, example: Example) -> Example:
        """Return the next row with the checksum of its source; raise a BadSourceError if it cannot be used."""
        checked, row = self.checked, self.rows
        self.rows += 1
        if checked.done:
            if row in checked.bad:
                raise BadSourceError("cannot be used")
            if self.good == len(checked.contents):
                raise InputError(f"{example.path} has changed while it was read. Restore it, and try again.")
            content = checked.contents[self.good]
        else:
            try:
                content = checked.check(example.text)
            except BadSourceError:
                checked.bad.add(row)
                raise
        self.good += 1
        return example._replace(content=f"{content:016x}")

    def finish(self) -> None:
        """Note that every row was checked."""
        self.checked.done = True


def content_of(name: str, seed: int) -> str:
    """Return the checksum of a source: `Example.content`."""
    return f"{_short(checksum(name, seed)[0]):016x}"


def checksum(name: str, seed: int) -> tuple[bytes, int]:
    """Compute the checksum of the bytes of a source, and count them; of an item of a built-in corpus, which has none,
    the checksum of its name and the seed that it is made by."""
    found = hashlib.blake2b(digest_size=32)
    if not is_path(name):
        data = of_uri(name) if name.startswith("data:") else b""
        found.update(data or f"{name} of seed {seed}".encode())
        return found.digest(), len(data)
    with opened(name) as file:
        while block := file.read(BLOCK):
            found.update(block)
        return found.digest(), file.tell()


def _short(digest: bytes) -> int:
    return int.from_bytes(digest[:8])


def _stamp(name: str) -> tuple[int, int]:
    """Return a hash of the size and time of a file, and its time; 0 for what is no file, or cannot be read."""
    if not is_path(name):
        return 0, 0
    try:
        found = os.stat(name)  # noqa: PTH116 (there may be a hundred thousand of them)
    except (OSError, ValueError):
        return 0, 0
    return hash((found.st_size, found.st_mtime_ns)), found.st_mtime_ns

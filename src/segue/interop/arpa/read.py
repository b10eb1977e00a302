"""Read ARPA files of other toolkits and make runs of them (the format is at the head of write.py).

The numbers are kept as they are. The words are space tokens; or, if some contain an escaped space (words.py),
characters or words with the space before them, as they were. N-grams need not be sorted, spaces may replace tabs, and a
missing back-off is 0. As in KenLM, a longer n-gram needs its context (all but its last word), not its end.
"""

from __future__ import annotations

import gzip
import lzma
import math
import os
import re
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from segue.compiling import njit
from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.arpa.numbers import read_number
from segue.interop.arpa.words import RESERVED, START_NAME, STOP_NAME, UNK_NAME, read_names
from segue.interop.imported_run import check_free, write_imported_run
from segue.models.arpa_lm import ArpaLm
from segue.models.base import Sizes
from segue.ngrams.backoff_table import BackoffTable, contexts_of, level_of, sort, unigrams
from segue.ngrams.count import Array
from segue.recipe import load_recipe
from segue.tokens import file_format
from segue.tokens.spelling import Speller
from segue.tokens.split import unicode_pattern
from segue.training.log import Progress, silent

_BLOCK = 1 << 24
"""Read this many bytes at a time."""
_LONGEST = 1 << 20
"""Bytes of a line at the most."""


def import_arpa(path: Path, out: Path, progress: Progress = silent) -> list[str]:
    """Make a run folder from an ARPA file; return notes for the user. A damaged file leaves nothing behind."""
    if not path.is_file():
        raise InputError(f"There is no file {path}. Expected an ARPA file: .arpa or .lm, also gzipped.")
    check_free(out)
    read = _Arpa(path, progress)
    words, tables = read.model()
    notes = _write_run(out, path, words, tables, read.notes)
    progress(f"reading {path.name}", 1.0)
    return notes


def _write_run(out: Path, path: Path, words: list[str], tables: list[BackoffTable], notes: list[str]) -> list[str]:
    kind, names = read_names(words, notes)
    data: dict[str, Any] = {"path": str(path), "validation": 0.0, "test": 0.0}
    if kind == "space":
        data |= {"unit": "line", "canonical": True}
    recipe = load_recipe("arpa_lm", base={"data": data, "tokens": {"kind": kind}, "model": {"order": len(tables)}})
    model = ArpaLm(recipe.model, Sizes(len(words) + 2))
    model.take(tables)
    ledger = Ledger(files=[describe_file(path)])
    for note in notes:
        ledger.note(note, str(path))

    def save(folder: Path) -> None:
        model.save(folder)
        # The file has no unknown words to learn spelling from; its own words are the next best.
        Speller.train(" " + name if kind == "space" else name for name in names).save(folder / "speller.json")

    tokens = file_format.write(kind, names, unicode_pattern() if kind == "word" else "")
    return write_imported_run(out, recipe, model.sizes, tokens, ledger, path, model.parameters_count, save)


class _Arpa:
    """One ARPA file, read once from its beginning to its end."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path, self.progress = path, progress
        self.notes: list[str] = []
        self.buffer, self.place, self.line = b"", 0, 0
        """What was read, how far it was taken, and how many lines that is."""

    def model(self) -> tuple[list[str], list[BackoffTable]]:
        """Read the file; return the words from id 2 on, and the orders."""
        with self.path.open("rb") as raw:
            self.raw = raw
            self.file = _unpacked(raw, self.path.suffix)
            counts = self._counts()
            self._section(1)
            words, ids, level, backoff = self._unigrams(counts[0])
            levels, table = [level], _Words(list(ids))
            numbers = np.array(list(ids.values()), np.int32)
            for k, count in enumerate(counts[1:], 2):
                self._section(k)
                level, backoff = self._ngrams(k, count, table, numbers, levels, backoff)
                levels.append(level)
            self._end(len(counts))
        return words, levels

    # Lines

    def _more(self) -> bool:
        """Read the next bytes into the buffer, after those not used yet, which are a part of a line; False at the end
        of the file."""
        if len(self.buffer) - self.place > _LONGEST:
            raise self._damaged(f"a line of more than {_LONGEST:,} bytes", "an n-gram a line", self.line + 1)
        try:
            block = self.file.read(_BLOCK)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise self._damaged(
                f"the file is damaged ({str(error).rstrip('.')})", "a whole file", self.line + 1
            ) from None
        self.buffer, self.place = self.buffer[self.place :] + block, 0
        size = max(1, os.fstat(self.raw.fileno()).st_size)
        self.progress(f"reading {self.path.name}", min(0.95, self.raw.tell() / size))
        return bool(block)

    def _next(self) -> bytes | None:
        """Return the next line, without its end; None after the last."""
        while (end := self.buffer.find(b"\n", self.place)) < 0:
            if not self._more():
                end = len(self.buffer)
                if self.place == end:
                    return None
                break
        line = self.buffer[self.place : end]
        self.place, self.line = min(end + 1, len(self.buffer)), self.line + 1
        return line.strip(b" \t\r")

    def _filled(self) -> bytes | None:
        """Return the next line that is not empty."""
        while (line := self._next()) == b"":
            pass
        return line

    def _damaged(self, found: str, expected: str, line: int = 0) -> InputError:
        return InputError(
            f"{self.path}:{line or self.line}: {found}. Expected {expected}; make or fetch the file again."
        )

    # Sections

    def _counts(self) -> list[int]:
        while (line := self._next()) != b"\\data\\":
            if line is None:
                raise self._damaged("there is no \\data\\ line, so this is no ARPA file", "one before the counts")
        counts: list[int] = []
        line = self._filled()
        while line and (found := re.fullmatch(rb"ngram\s+(\d{1,9})\s*=\s*(\d{1,18})", line)):
            if int(found[1]) != len(counts) + 1:
                raise self._damaged(f"the count of order {int(found[1])}", f"that of order {len(counts) + 1}")
            counts.append(int(found[2]))
            line = self._next()
        if line and not line.startswith(b"\\"):
            raise self._damaged(f"'{_quoted(line)}'", "a count such as `ngram 1=2000`")
        if not counts:
            raise self._damaged("there are no counts after \\data\\", "a line such as `ngram 1=2000` for each order")
        self.kept = line or None  # a heading without an empty line before it
        return counts

    def _section(self, k: int) -> None:
        line, self.kept = self.kept or self._filled(), None
        if line != b"\\%d-grams:" % k:
            found = "the file ends" if line is None else f"'{_quoted(line)}'"
            raise self._damaged(found, f"the heading \\{k}-grams: (and before it as many n-grams as \\data\\ says)")

    def _end(self, order: int) -> None:
        line = self._filled()
        if line != b"\\end\\":
            found = "the file ends" if line is None else f"'{_quoted(line)}'"
            raise self._damaged(found, f"\\end\\ after the {order}-grams that \\data\\ counts")
        if (line := self._filled()) is not None:
            raise self._damaged(f"'{_quoted(line)}' after \\end\\", "nothing there")

    def _unigrams(self, count: int) -> tuple[list[str], dict[bytes, int], BackoffTable, Array]:
        """Read order 1: words from id 2 on; the id of each written word, -1 for <s>; the table and its back-offs."""
        ids: dict[bytes, int] = {}
        words: list[str] = []
        logp, backoff = {0: -math.inf, 1: -math.inf}, {0: 0.0}
        for row in range(count):
            line = self._next()
            parts = (line or b"").replace(b"\t", b" ").split(b" ")
            parts = [part for part in parts if part]
            if not parts or (len(parts) == 1 and parts[0].startswith(b"\\")):
                raise self._too_few(1, row, count)
            if len(parts) not in (2, 3):
                raise self._damaged(f"{len(parts)} columns", "log10 p, a word and perhaps a back-off")
            p, weight = self._float(parts[0]), self._float(parts[2]) if len(parts) == 3 else 0.0
            if p > 0:
                raise self._damaged(f"log10 p is {p:g}, so p is above 1", "0 or less")
            name = self._text(parts[1])
            if parts[1] in ids:
                raise self._damaged(f"'{name}' stands twice among the 1-grams", "each word once")
            if name == START_NAME:
                ids[parts[1]], backoff[0] = -1, weight
                continue
            special = {STOP_NAME: 0, UNK_NAME: 1, UNK_NAME.upper(): 1}.get(name)
            ids[parts[1]] = number = len(words) + 2 if special is None else special
            logp[number] = p
            if number:
                backoff[number] = weight
            if special is None:
                words.append(next((known for known in RESERVED if name == f"\\u{{3c}}{known[1:]}"), name))
        for name in (START_NAME, STOP_NAME):
            if name.encode() not in ids:
                raise self._damaged(f"{name} is not among the 1-grams", f"both {START_NAME} and {STOP_NAME} there")
        if logp[1] == -math.inf:
            self.notes.append("there is no <unk>, so that a word that is not there has probability 0")
        numbers = range(len(words) + 2)
        level = unigrams(np.array([logp[number] for number in numbers], np.float32))
        return words, ids, level, np.array([backoff.get(number, 0.0) for number in numbers], np.float32)

    def _ngrams(
        self, k: int, count: int, table: _Words, numbers: Array, levels: list[BackoffTable], backoff: Array
    ) -> tuple[BackoffTable, Array]:
        """Read order k; return it sorted, and its back-offs. `backoff` is that of the order below."""
        begin, rows = self.line + 1, 0
        parts: list[tuple[Array, Array, Array]] = []
        while rows < count:
            end = self.buffer.rfind(b"\n") + 1
            if end <= self.place:
                if self._more():
                    continue
                self.buffer += b"\n" * (self.place < len(self.buffer))  # the last line may have no end
                end = len(self.buffer)
                if end == self.place:
                    raise self._too_few(k, rows, count)
            data = np.frombuffer(self.buffer, np.uint8, end - self.place, self.place)
            room = min(count - rows, len(data) // (2 * k + 1) + 1)
            found = np.empty((room, k), np.int32), np.empty(room, np.float32), np.empty(room, np.float32)
            taken, place, fault = _parse(data, *table, *found)
            rows += taken
            self.line += taken
            if fault:
                self.line += 1
                raise self._fault(k, fault, rows, count, data, place)
            self.place += place
            parts.append(tuple(array[:taken].copy() for array in found))  # type: ignore[arg-type]
        ids, logp, own = (np.concatenate(arrays) for arrays in zip(*parts, strict=True)) if parts else _nothing(k)
        return self._sorted(k, begin, numbers[ids], logp, own, levels, backoff)

    def _sorted(
        self, k: int, begin: int, ids: Array, logp: Array, own: Array, levels: list[BackoffTable], backoff: Array
    ) -> tuple[BackoffTable, Array]:
        # No text has <s> after a word or a word after </s>: such n-grams are never looked up.
        rows = np.flatnonzero((ids[:, 1:] >= 0).all(1) & (ids[:, :-1] != 0).all(1))
        if len(rows) < len(ids):
            self.notes.append(f"{len(ids) - len(rows):,} {k}-grams with <s> inside or </s> before the end are left out")
            ids, logp, own = ids[rows], logp[rows], own[rows]
        ids[:, 0] = np.maximum(ids[:, 0], 0)
        contexts = contexts_of(ids, levels)
        if (missing := np.flatnonzero(contexts < 0)).size:
            raise self._damaged(
                f"the context of this {k}-gram (all but its last word) is not among the {k - 1}-grams",
                "it there",
                begin + int(rows[missing[0]]),
            )
        order = sort(contexts, ids[:, -1])
        contexts, words, logp, own = contexts[order], ids[order, -1], logp[order], own[order]
        twice = np.flatnonzero((contexts[1:] == contexts[:-1]) & (words[1:] == words[:-1]))
        if twice.size:
            raise self._damaged(f"this {k}-gram stands twice", "each once", begin + int(rows[order[twice[0] + 1]]))
        return level_of(contexts, words.astype(levels[0].words.dtype), logp, backoff), own

    # Errors

    def _too_few(self, k: int, rows: int, count: int) -> InputError:
        return self._damaged(f"there are {rows:,} {k}-grams before this line", f"{count:,}, as \\data\\ says")

    def _float(self, text: bytes) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value) or value == math.inf:
            raise self._damaged(f"'{_quoted(text)}' is no number", "a log10")
        return value

    def _text(self, word: bytes) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError:
            raise self._damaged(f"'{_quoted(word)}' is not UTF-8", "text in UTF-8") from None

    def _fault(self, k: int, fault: int, rows: int, count: int, data: Array, place: int) -> InputError:
        word = data[place : place + 1000].tobytes().split(b"\n")[0].replace(b"\t", b" ").split(b" ")[0].rstrip(b"\r")
        if fault == _BLANK:
            return self._too_few(k, rows, count)
        if fault == _UNWORD:
            name = self._text(word)
            return self._damaged(f"'{name[:80]}' is not among the 1-grams", f"log10 p, {k} words of the 1-grams")
        if fault == _ABOVE:
            return self._damaged("log10 p is above 0, so p is above 1", "0 or less")
        if fault == _SHORT:
            return self._damaged(f"the line ends before {k} words", f"log10 p, {k} words and perhaps a back-off")
        if fault == _LONG:
            return self._damaged(f"'{_quoted(word)}' after the back-off", f"log10 p, {k} words and perhaps a back-off")
        return self._damaged(f"'{_quoted(word)}' is no number", f"log10 p, {k} words and perhaps a back-off")


def _unpacked(raw: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    return lzma.LZMAFile(raw) if suffix == ".xz" else raw


def _quoted(text: bytes) -> str:
    return text[:80].decode(errors="replace")


def _nothing(k: int) -> tuple[Array, Array, Array]:
    return np.empty((0, k), np.int32), np.empty(0, np.float32), np.empty(0, np.float32)


class _Words(tuple[Array, Array, Array]):
    """Bytes of all words, where each ends, and a hash table of their numbers."""

    def __new__(cls, words: list[bytes]) -> _Words:
        letters, ends = np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)])
        slots = np.full(1 << (2 * len(words)).bit_length(), -1, np.int32)
        _enter(letters, ends, slots)
        return super().__new__(cls, (letters, ends, slots))


_BLANK, _UNNUMBER, _UNWORD, _SHORT, _LONG, _ABOVE = 1, 2, 3, 4, 5, 6


@njit(cache=True, nogil=True)
def _hash(letters, begin, end):
    h = np.uint64(14695981039346656037)
    for i in range(begin, end):
        h = (h ^ np.uint64(letters[i])) * np.uint64(1099511628211)
    return h ^ (h >> np.uint64(32))


@njit(cache=True, nogil=True)
def _enter(letters, ends, slots):
    mask = np.uint64(len(slots) - 1)
    for word in range(len(ends) - 1):
        s = _hash(letters, ends[word], ends[word + 1]) & mask
        while slots[s] >= 0:
            s = (s + np.uint64(1)) & mask
        slots[s] = word


@njit(cache=True, nogil=True)
def _number_of(data, begin, end, letters, ends, slots):
    """Return the number of a word; -1 if it is unknown."""
    mask = np.uint64(len(slots) - 1)
    s = _hash(data, begin, end) & mask
    while slots[s] >= 0:
        word = slots[s]
        if ends[word + 1] - ends[word] == end - begin:
            same = True
            for i in range(end - begin):
                if letters[ends[word] + i] != data[begin + i]:
                    same = False
                    break
            if same:
                return np.int64(word)
        s = (s + np.uint64(1)) & mask
    return np.int64(-1)


@njit(cache=True, nogil=True)
def _column(data, at):
    """Return where the next column begins and ends; both the same at the end of the line."""
    while data[at] == 32 or data[at] == 9 or (data[at] == 13 and data[at + 1] == 10):
        at += 1
    end = at
    while not (data[end] == 32 or data[end] == 9 or data[end] == 10 or (data[end] == 13 and data[end + 1] == 10)):
        end += 1
    return at, end


@njit(cache=True, nogil=True)
def _parse(data, letters, ends, slots, ids, logp, backoff):
    """Parse whole lines of n-grams, as many as fit; return their number, where they end, and the error there."""
    at, rows = 0, 0
    room, order = ids.shape
    while at < len(data) and rows < room:
        begin, end = _column(data, at)
        if begin == end or data[begin] == 92:
            return rows, begin, _BLANK
        p = read_number(data, begin, end)
        if np.isnan(p) or p == np.inf:
            return rows, begin, _UNNUMBER
        if p > 0:
            return rows, begin, _ABOVE
        logp[rows] = p
        for j in range(order):
            begin, end = _column(data, end)
            if begin == end:
                return rows, begin, _SHORT
            word = _number_of(data, begin, end, letters, ends, slots)
            if word < 0:
                return rows, begin, _UNWORD
            ids[rows, j] = word
        begin, end = _column(data, end)
        backoff[rows] = 0.0
        if begin != end:
            weight = read_number(data, begin, end)
            if np.isnan(weight) or weight == np.inf:
                return rows, begin, _UNNUMBER
            backoff[rows] = weight
            begin, end = _column(data, end)
            if begin != end:
                return rows, begin, _LONG
        at = end + 1
        rows += 1
    return rows, at, 0

"""ARPA files, the common tongue of n-gram models (SRILM, KenLM): text, a line an n-gram, log10 p and log10 of the
back-off weight.

    \\data\\                          p(w|h) = p(h,w) as the file has it, where it has (h,w),
    ngram 1=3                       else back-off(h) · p(w|h'), where it has h, else p(w|h')
    \\1-grams:
    -0.6    cows    -0.3            <s> begins a text, </s> ends it, <unk> is any word that is not there
    \\end\\

Out: the probabilities of an interpolated model are written as they are, lower orders mixed in, and its weight of the
lower order is the back-off: the same model. A word of the text that is spelt <s>, </s> or <unk>, and white space in a
token, are written with a backslash and the character's number: \\u{3c}unk> and \\u{20}; so is a backslash, \\u{5c},
that would read as one of these. Numbers have the fewest decimals that read back as the same 32 bits.

In: the numbers are kept as they are, and the words are space tokens; or, where some hold a blank that was written as
above, characters or words with the blank before them, as they were. N-grams need not be sorted, blanks do for tabs, and
a missing back-off is 0. As in KenLM, a longer n-gram needs its context (all but its last word), not its end.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import lzma
import math
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numba import njit

from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.models.arpa_lm import ArpaLm
from segue.models.base import Sizes
from segue.models.ngram import Ngram
from segue.ngrams.backoff_table import BackoffTable, contexts_of, level_of, sort, unigrams
from segue.ngrams.count import Array, Column
from segue.ngrams.lookup import exact, find, prefetch
from segue.recipe import load_recipe, to_toml
from segue.runs import folder as files
from segue.runs.run import load
from segue.tokens import file_format
from segue.tokens.file_format import Kind
from segue.tokens.spelling import Speller
from segue.tokens.split import unicode_pattern
from segue.training.log import Progress, silent

START_NAME, STOP_NAME, UNK_NAME = "<s>", "</s>", "<unk>"
RESERVED = (START_NAME, STOP_NAME, UNK_NAME)
NEVER = -99.0
"""The log10 of a probability of 0, as SRILM writes it."""
_LINES = 1 << 18
"""N-grams that are written at a time."""
_BLOCK = 1 << 24
"""Bytes that are read at a time."""
_NOT_BACKOFF = {
    "maximum_likelihood": "it gives nothing to a word that did not follow, whatever shorter contexts say",
    "add_alpha": "it gives the same to every word that did not follow, whatever shorter contexts say",
    "stupid_backoff": "its scores are no probabilities",
}
_POWERS = 10.0 ** np.arange(19)


# Out


def export_arpa(run: Path, path: Path, progress: Progress = silent) -> list[str]:
    """Writes an n-gram run as an ARPA file, gzipped where the name ends in .gz; returns what its owner should know.

    An existing file is not overwritten.
    """
    if path.exists():
        raise InputError(f"{path} exists already; nothing is overwritten. Choose another name.")
    files.check_run(run)
    loaded = load(run)
    if not isinstance(loaded.model, Ngram | ArpaLm):
        raise InputError(
            f"The run in {run} is a {loaded.recipe.kind}. Only an n-gram model has the form of an ARPA file."
        )
    smoothing = loaded.recipe.model.smoothing if isinstance(loaded.model, Ngram) else ""
    if smoothing in _NOT_BACKOFF:
        raise InputError(
            f"The run in {run} has model.smoothing={smoothing}, which an ARPA file cannot say: "
            f"{_NOT_BACKOFF[smoothing]}. Train with another, such as modified_kneser_ney."
        )
    _, names, _ = file_format.read(json.loads((run / "tokenizer.json").read_text(encoding="utf-8")))
    written = _written(names[2:], isinstance(loaded.model, ArpaLm) and loaded.tokenizer.kind == "space")
    escaped = [(name, other) for name, other in zip(names[2:], written, strict=True) if name != other]
    beside = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        with _writing(beside, path.suffix == ".gz") as file, tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            _write(file, loaded.model, [STOP_NAME, UNK_NAME, *written, START_NAME], Path(scratch), progress)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    if not escaped:
        return []
    shown = ", ".join(f"{name!r} as {other}" for name, other in escaped[:3]) + (", …" if len(escaped) > 3 else "")
    many = "1 token is" if len(escaped) == 1 else f"{len(escaped):,} tokens are"
    return [f"{many} written otherwise, for ARPA has no other way to spell them: {shown}."]


_ESCAPE = re.compile(r"[\s\0]|\\(?=u\{[0-9a-f]+\})")
_ESCAPED = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def _written(names: Sequence[str], given: bool) -> list[str]:
    """How tokens stand in the file; those that came from a file stand as they did there."""
    spelt = {name: f"\\u{{3c}}{name[1:]}" for name in RESERVED}
    if given:
        return [spelt.get(name, name) for name in names]
    return [spelt.get(name) or _ESCAPE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", name) for name in names]


@contextmanager
def _writing(path: Path, packed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as raw:
        if not packed:
            yield raw
            return
        with gzip.GzipFile("", "wb", 2, raw, mtime=0) as file:  # no name, no date: the same run, the same bytes
            yield file  # type: ignore[misc]


class _Chunk(NamedTuple):
    """Some n-grams of an order: the words of each, log10 p and log10 of the back-off weight."""

    words: list[Array]
    logp: Array
    backoff: Array


def _write(file: IO[bytes], model: Ngram | ArpaLm, names: list[str], scratch: Path, progress: Progress) -> None:
    given = isinstance(model, ArpaLm)
    tables: Sequence[Any] = model.tables if given else [order.level for order in model.orders]
    counts = [len(tables[0]) + 1, *map(len, tables[1:])]
    file.write(b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % pair for pair in enumerate(counts, 1)))
    raw = [name.encode() for name in names]
    letters, ends = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    chunks = _given_chunks(model) if given else _counted_chunks(model, scratch)
    written = 0

    def lines(chunk: _Chunk, more: bool) -> Array:
        words = np.stack(chunk.words).astype(np.int64)
        return _lines(words, letters, ends, chunk.logp, chunk.backoff, more)  # type: ignore[no-any-return]

    with ThreadPoolExecutor(1) as pool:  # one thread spells the last n-grams while the other finds the next
        for k, count in enumerate(counts, 1):
            file.write(b"\n\\%d-grams:\n" % k)
            left, waiting = count, None
            while left or waiting is not None:
                chunk = next(chunks) if left else None
                job = pool.submit(lines, chunk, k < len(counts)) if chunk else None
                if waiting is not None:
                    file.write(waiting.result().data)
                waiting = job
                if chunk:
                    left, written = left - len(chunk.logp), written + len(chunk.logp)
                    progress("writing", min(0.99, written / sum(counts)))
    file.write(b"\n\\end\\\n")
    progress("writing", 1.0)


def _given_chunks(model: ArpaLm) -> Iterator[_Chunk]:
    levels = model.tables
    none = np.zeros(max(map(len, levels)), np.float32)
    backoffs = [*(level.backoff for level in levels[1:]), none]
    yield _first_chunk(levels[0].logp, backoffs[0])
    for k in range(2, len(levels) + 1):
        for low, high in _ranges(len(levels[k - 1])):
            yield _Chunk(_words(levels, k, low, high)[0], levels[k - 1].logp[low:high], backoffs[k - 1][low:high])


def _counted_chunks(model: Ngram, scratch: Path) -> Iterator[_Chunk]:
    """The n-grams of a model that counted, order by order: p(w|h) needs p(w|h'), which is in the order before."""
    levels = [order.level for order in model.orders]
    below = model.distribution([])
    suffixes = np.zeros(len(below), np.uint32)  # of every n-gram, the n-gram without its first word
    yield _first_chunk(_log10(below), _backoff(model, 1, 0, len(below)))
    for k in range(2, len(levels) + 1):
        order, level, lower = model.orders[k - 1], levels[k - 1], levels[k - 2]
        counted = (level.words, level.counts, level.more_ids, level.more_counts, level.profile)
        kept = [Column(scratch / f"{name}.{k}", kind) for name, kind in (("p", np.float32), ("suffix", np.uint32))]
        for low, high in _ranges(len(level)):
            words, contexts = _words(levels, k, low, high)
            p, suffix = _interpolate(
                *counted,
                order.scale,
                order.weight,
                order.discounts,
                low,
                contexts,
                lower.words,
                lower.first,
                suffixes,
                below,
            )
            yield _Chunk(words, _log10(p), _backoff(model, k, low, high))
            if k < len(levels):
                kept[0].append(p)
                kept[1].append(suffix)
        below, suffixes = (column.close() for column in kept)


def _first_chunk(logp: Array, backoff: Array) -> _Chunk:
    """Order 1, begun with <unk>, <s>, </s>: <s> is never predicted, and after </s> nothing is."""
    size = len(logp)
    words = np.concatenate(([1, size, 0], np.arange(2, size)))
    logp, backoff = np.append(logp, np.float32(NEVER)), np.append(backoff[:size], backoff[0])
    backoff[0] = 0
    return _Chunk([words], logp[words], backoff[words])


def _ranges(size: int) -> Iterator[tuple[int, int]]:
    return ((low, min(size, low + _LINES)) for low in range(0, size, _LINES))


def _words(levels: Sequence[Any], k: int, low: int, high: int) -> tuple[list[Array], Array]:
    """The words, first to last, of the n-grams low … high - 1 of order k, and their contexts."""
    ids = np.arange(low, high)
    words = [np.asarray(levels[k - 1].words[low:high])]
    contexts = ids
    for j in range(k - 1, 0, -1):
        first = levels[j].first
        ids = _climb(first, ids, np.searchsorted(first, first.dtype.type(ids[0]), "right") - 1)
        contexts = ids if j == k - 1 else contexts
        words.insert(0, levels[j - 1].words[ids] if j > 1 else ids)
    words[0] = np.where(words[0] == 0, len(levels[0]), words[0])  # STOP in front is START
    return words, contexts


def _backoff(model: Ngram, k: int, low: int, high: int) -> Array:
    """The log10 of the weight of n-grams of order k as contexts."""
    if k == len(model.orders):
        return np.zeros(high - low, np.float32)
    order = model.orders[k]
    return _log10(order.weight, above=math.inf)[order.level.profile[low:high]]


def _log10(p: Array, above: float = 0.0) -> Array:
    with np.errstate(divide="ignore"):
        return np.clip(np.log10(p), NEVER, above).astype(np.float32)


@njit(cache=True, nogil=True)
def _climb(first, ids, context):
    """The context of each n-gram; both ascend, from `context` on."""
    out = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        while first[context + 1] <= ids[i]:
            context += 1
        out[i] = context
    return out


@njit(cache=True, nogil=True)
def _interpolate(
    words,
    counts,
    more_ids,
    more_counts,
    profile,
    scale,
    weight,
    discounts,
    begin,
    contexts,
    lower_words,
    lower_first,
    suffixes,
    below,
):
    """p of n-grams `begin` …, and which n-gram of the order below is each without its first word."""
    size = len(contexts)
    p, suffix = np.empty(size, np.float32), np.empty(size, np.uint32)
    before, low, high = np.int64(-1), np.int64(0), np.int64(0)
    for i in range(size):
        if i + 48 < size:  # what will be wanted soon is asked for
            prefetch(suffixes, contexts[i + 48])
            prefetch(lower_first, np.int64(suffixes[contexts[i + 32]]))
            soon = np.int64(lower_first[suffixes[contexts[i + 16]]])
            prefetch(lower_words, soon)
            prefetch(below, soon)
        context = contexts[i]
        if context != before:
            shorter = suffixes[context]
            low, high = np.int64(lower_first[shorter]), np.int64(lower_first[shorter + 1])
            before = context
        # Followers of a context ascend, and all of them follow the shorter context too.
        low = find(lower_words, low, high, words[begin + i])
        row = profile[context]
        count = exact(counts, more_ids, more_counts, begin + i)
        p[i] = (count - discounts[min(count, 3)]) * scale[row] + weight[row] * below[low]
        suffix[i] = low
    return p, suffix


@njit(cache=True, nogil=True)
def _lines(words, letters, ends, logp, backoff, more):
    """The bytes of the lines of n-grams; `more`: with their back-off."""
    order, size = words.shape
    room = np.int64(0)
    for j in range(order):
        for i in range(size):
            room += ends[words[j, i] + 1] - ends[words[j, i]] + 1
    out = np.empty(room + 64 * size, np.uint8)
    at = 0
    for i in range(size):
        at = _number(out, at, logp[i])
        for j in range(order):
            out[at] = 32 if j else 9
            at += 1
            for letter in range(ends[words[j, i]], ends[words[j, i] + 1]):
                out[at] = letters[letter]
                at += 1
        if more:
            out[at] = 9
            at = _number(out, at + 1, backoff[i])
        out[at] = 10
        at += 1
    return out[:at]


@njit(cache=True, nogil=True)
def _number(out, at, value):
    """A number with the fewest decimals, of 5 to 17, that read back as the same 32 bits; without zeros at its end."""
    x = np.float64(value)
    if x < 0:
        out[at] = 45
        at += 1
        x = -x
    places = 0 if x >= 1 << 24 else 5
    whole = np.int64(np.rint(min(x, 9e18) * _POWERS[places]))
    while 0 < places < 17 and np.float32(whole / _POWERS[places]) != np.float32(x):
        places += 1
        whole = np.int64(np.rint(x * _POWERS[places]))
    while places and whole % 10 == 0:
        whole //= 10
        places -= 1
    digits = 1
    while digits <= places or (digits < 19 and whole >= _POWERS[digits]):
        digits += 1
    end = at + digits + (places > 0)
    for i in range(digits):
        if places and i == places:
            out[end - 1 - i] = 46
        out[end - 1 - i - (places > 0 and i >= places)] = 48 + whole % 10
        whole //= 10
    return end


# In


def import_arpa(path: Path, out: Path, progress: Progress = silent) -> list[str]:
    """Makes a run folder of an ARPA file; returns what its owner should know. A damaged file leaves nothing behind."""
    if not path.is_file():
        raise InputError(f"There is no file {path}. Expected an ARPA file: .arpa or .lm, also gzipped.")
    if out.exists():
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    read = _Arpa(path, progress)
    words, levels = read.model()
    beside = out.with_name(f".{out.name}.{os.getpid()}.writing")
    made = files.missing(out.parent)
    try:
        beside.mkdir(parents=True)
        notes = _write_run(beside, path, words, levels, read.notes)
        beside.replace(out)
    except BaseException:
        files.undo(beside, [beside, *made])
        raise
    progress(f"reading {path.name}", 1.0)
    return notes


def _tokens(words: list[str], notes: list[str]) -> tuple[Kind, list[str]]:
    """What the words of a file are, and their names: what stands between blanks holds none."""
    names = [_ESCAPED.sub(lambda found: chr(int(found[1], 16)), word) for word in words]
    if any(" " in name for name in names):
        return "char" if all(len(name) == 1 for name in names) else "word", names
    if any(word.startswith("Ġ") for word in words):
        notes.append("its words look like pieces of words (Ġ), but text is cut at blanks here")
    return "space", words


def _write_run(out: Path, path: Path, words: list[str], levels: list[BackoffTable], notes: list[str]) -> list[str]:
    kind, names = _tokens(words, notes)
    data: dict[str, Any] = {"path": str(path), "validation": 0.0, "test": 0.0}
    if kind == "space":
        data |= {"unit": "line", "canonical": True}
    recipe = load_recipe("arpa_lm", base={"data": data, "tokens": {"kind": kind}, "model": {"order": len(levels)}})
    sizes = Sizes(len(words) + 2)
    model = ArpaLm(recipe.model, sizes)
    model.take(levels)
    model.save(out)
    ledger = Ledger(files=[describe_file(path)])
    for note in notes:
        ledger.note(note, str(path))
    config = {"kind": "arpa_lm", "format": files.FORMAT, "imported": str(path)}
    config |= {"config": dataclasses.asdict(recipe.model)}
    result = {"model": recipe.name, "parameters": model.parameters_count, "train_seconds": 0.0, "steps": 0}
    files.write_atomic(out / "recipe.toml", to_toml(recipe))
    files.write_json(out / "environment.json", files.environment("cpu", 0, 0))
    files.write_json(out / "ledger.json", {**ledger.to_dict(), "summary": ledger.summary()})
    files.write_json(
        out / "tokenizer.json", file_format.write(kind, names, unicode_pattern() if kind == "word" else "")
    )
    # What unknown words look like is not in the file; its words are the next best.
    Speller.train(" " + name if kind == "space" else name for name in names).save(out / "speller.json")
    files.write_json(out / "config.json", config | {"sizes": dataclasses.asdict(sizes), "labels": []})
    (out / "metrics.jsonl").touch()
    files.write_json(out / "result.json", result | {"epochs": 0.0, "tokens_per_second": 0.0})
    return ledger.summary()


class _Arpa:
    """One ARPA file, read once from its beginning to its end."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path, self.progress = path, progress
        self.notes: list[str] = []
        self.buffer, self.place, self.line = b"", 0, 0
        """What was read, how far it was taken, and how many lines that is."""

    def model(self) -> tuple[list[str], list[BackoffTable]]:
        """The words from id 2 on, and the orders."""
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
        """Reads on, after what was not taken yet; False at the end of the file."""
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
        """The next line, without its end; None after the last."""
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
        """The next line that is not blank."""
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
            raise self._damaged(f"'{_shown(line)}'", "a count such as `ngram 1=2000`")
        if not counts:
            raise self._damaged("there are no counts after \\data\\", "a line such as `ngram 1=2000` for each order")
        self.kept = line or None  # a heading that no blank line stands before
        return counts

    def _section(self, k: int) -> None:
        line, self.kept = self.kept or self._filled(), None
        if line != b"\\%d-grams:" % k:
            found = "the file ends" if line is None else f"'{_shown(line)}'"
            raise self._damaged(found, f"the heading \\{k}-grams: (and before it as many n-grams as \\data\\ says)")

    def _end(self, order: int) -> None:
        line = self._filled()
        if line != b"\\end\\":
            found = "the file ends" if line is None else f"'{_shown(line)}'"
            raise self._damaged(found, f"\\end\\ after the {order}-grams that \\data\\ counts")
        if (line := self._filled()) is not None:
            raise self._damaged(f"'{_shown(line)}' after \\end\\", "nothing there")

    def _unigrams(self, count: int) -> tuple[list[str], dict[bytes, int], BackoffTable, Array]:
        """The words from id 2 on; the id of each word as it is written, -1 of <s>; order 1 and its back-offs."""
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
        """Order k, sorted, and its back-offs; `backoff` is that of the order below."""
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
        # No text has <s> after a word or a word after </s>: such n-grams are never asked for.
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

    # What can be wrong

    def _too_few(self, k: int, rows: int, count: int) -> InputError:
        return self._damaged(f"there are {rows:,} {k}-grams before this line", f"{count:,}, as \\data\\ says")

    def _float(self, text: bytes) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value) or value == math.inf:
            raise self._damaged(f"'{_shown(text)}' is no number", "a log10")
        return value

    def _text(self, word: bytes) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError:
            raise self._damaged(f"'{_shown(word)}' is not UTF-8", "text in UTF-8") from None

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
            return self._damaged(f"'{_shown(word)}' after the back-off", f"log10 p, {k} words and perhaps a back-off")
        return self._damaged(f"'{_shown(word)}' is no number", f"log10 p, {k} words and perhaps a back-off")


def _unpacked(raw: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    return lzma.LZMAFile(raw) if suffix == ".xz" else raw


def _shown(text: bytes) -> str:
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
    """The number of a word; -1 if it is unknown."""
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
    """Where the next column begins and ends; both the same at the end of the line."""
    while data[at] == 32 or data[at] == 9 or (data[at] == 13 and data[at + 1] == 10):
        at += 1
    end = at
    while not (data[end] == 32 or data[end] == 9 or data[end] == 10 or (data[end] == 13 and data[end + 1] == 10)):
        end += 1
    return at, end


@njit(cache=True, nogil=True)
def _read_number(data, at, end):
    """A decimal number; not a number where it is none."""
    if end - at == 4 and data[at] == 45 and data[at + 1] | 32 == 105 and data[at + 2] | 32 == 110:  # -inf
        return -np.inf if data[at + 3] | 32 == 102 else np.nan
    sign = 1.0
    if at < end and (data[at] == 45 or data[at] == 43):
        sign = -1.0 if data[at] == 45 else 1.0
        at += 1
    whole, power, digits, point = np.int64(0), np.int64(0), 0, False
    while at < end and (48 <= data[at] <= 57 or (data[at] == 46 and not point)):
        if data[at] == 46:
            point = True
        else:
            digits += 1
            if whole < 100_000_000_000_000_000:
                whole = whole * 10 + (np.int64(data[at]) - 48)
                power -= point
            else:
                power += not point
        at += 1
    if digits == 0:
        return np.nan
    if at < end and data[at] | 32 == 101:
        at += 1
        below = at < end and data[at] == 45
        at += at < end and (data[at] == 45 or data[at] == 43)
        exponent, digits = np.int64(0), 0
        while at < end and 48 <= data[at] <= 57 and digits < 6:
            exponent, digits = exponent * 10 + (np.int64(data[at]) - 48), digits + 1
            at += 1
        if digits == 0:
            return np.nan
        power += -exponent if below else exponent
    if at < end:
        return np.nan
    if -18 <= power <= 0:
        return sign * whole / _POWERS[-power]
    return sign * whole * 10.0**power


@njit(cache=True, nogil=True)
def _parse(data, letters, ends, slots, ids, logp, backoff):
    """Whole lines of n-grams, as many as fit: how many there were, where they ended, and what is wrong there."""
    at, rows = 0, 0
    room, order = ids.shape
    while at < len(data) and rows < room:
        begin, end = _column(data, at)
        if begin == end or data[begin] == 92:
            return rows, begin, _BLANK
        p = _read_number(data, begin, end)
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
            weight = _read_number(data, begin, end)
            if np.isnan(weight) or weight == np.inf:
                return rows, begin, _UNNUMBER
            backoff[rows] = weight
            begin, end = _column(data, end)
            if begin != end:
                return rows, begin, _LONG
        at = end + 1
        rows += 1
    return rows, at, 0

"""Write n-gram models as ARPA files, the common format of n-gram toolkits (SRILM, KenLM): text, a line an n-gram.

    \\data\\                          p(w|h) = p(h,w) as the file has it, where it has (h,w),
    ngram 1=3                       else back-off(h) · p(w|h'), where it has h, else p(w|h')
    \\1-grams:
    -0.6    cows    -0.3            log10 p, the words, log10 of the back-off weight
    \\end\\

The probabilities of an interpolated model are written as they are, lower orders mixed in, and its weight of the lower
order is the back-off: the same model. Words are spelt as in words.py, numbers as in numbers.py.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from segue.compiling import njit
from segue.data.atomic import atomic_file, of_process
from segue.errors import InputError
from segue.interop.arpa.numbers import write_number
from segue.interop.arpa.words import START_NAME, STOP_NAME, UNK_NAME, written_names
from segue.models.arpa_lm import ArpaLm
from segue.models.ngram import Ngram
from segue.ngrams.count import Array, Column
from segue.ngrams.lookup import exact, find, prefetch
from segue.runs import folder as files
from segue.runs.run import load
from segue.tokens import file_format
from segue.training.log import Progress, silent

NEVER = -99.0
"""The log10 of a probability of 0, as SRILM writes it."""
_LINES = 1 << 18
"""Write this many n-grams at a time."""
_NOT_BACKOFF = {
    "maximum_likelihood": "it gives nothing to a word that did not follow, whatever shorter contexts say",
    "add_alpha": "it gives the same to every word that did not follow, whatever shorter contexts say",
    "stupid_backoff": "its scores are no probabilities",
}


def export_arpa(run: Path, path: Path, progress: Progress = silent) -> list[str]:
    """Write an n-gram run as an ARPA file, gzipped if the name ends in .gz; return notes for the user.

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
    if loaded.model.sizes.carry:
        raise InputError(
            f"The run in {run} has data.carry=true: its n-grams go over the ends of units, and those of an ARPA file "
            "begin and end with a sentence. Train with data.carry=false."
        )
    _, names, _ = file_format.read(json.loads((run / "tokenizer.json").read_text(encoding="utf-8")))
    written = written_names(names[2:], isinstance(loaded.model, ArpaLm) and loaded.tokenizer.kind == "space")
    escaped = [(name, other) for name, other in zip(names[2:], written, strict=True) if name != other]
    with (
        atomic_file(path, of_process(path)) as beside,
        _opened(beside, path.suffix == ".gz") as file,
        tempfile.TemporaryDirectory(dir=path.parent) as scratch,
    ):
        _write(file, loaded.model, [STOP_NAME, UNK_NAME, *written, START_NAME], Path(scratch), progress)
    if not escaped:
        return []
    shown = ", ".join(f"{name!r} as {other}" for name, other in escaped[:3]) + (", …" if len(escaped) > 3 else "")
    many = "1 token is" if len(escaped) == 1 else f"{len(escaped):,} tokens are"
    return [f"{many} written otherwise, for ARPA has no other way to spell them: {shown}."]


@contextmanager
def _opened(path: Path, packed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as raw:
        if not packed:
            yield raw
            return
        with gzip.GzipFile("", "wb", 2, raw, mtime=0) as file:  # no name, no date: same run, same bytes
            yield file  # type: ignore[misc]


class _Chunk(NamedTuple):
    """Some n-grams of an order: the words of each, log10 p and log10 of the back-off weight."""

    words: list[Array]
    logp: Array
    backoff: Array


def _write(file: IO[bytes], model: Ngram | ArpaLm, names: list[str], scratch: Path, progress: Progress) -> None:
    if isinstance(model, ArpaLm):
        tables: Sequence[Any] = model.tables
        chunks = _given_chunks(model)
    else:
        tables = [order.level for order in model.orders]
        chunks = _counted_chunks(model, scratch)
    counts = [len(tables[0]) + 1, *map(len, tables[1:])]
    file.write(b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % pair for pair in enumerate(counts, 1)))
    raw = [name.encode() for name in names]
    letters, ends = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
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
    """Yield the n-grams of a counted model, order by order: p(w|h) needs p(w|h') of the order before."""
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
    """Make order 1, which begins with <unk>, <s>, </s>: <s> is never predicted, and nothing follows </s>."""
    size = len(logp)
    words = np.concatenate(([1, size, 0], np.arange(2, size)))
    logp, backoff = np.append(logp, np.float32(NEVER)), np.append(backoff[:size], backoff[0])
    backoff[0] = 0
    return _Chunk([words], logp[words], backoff[words])


def _ranges(size: int) -> Iterator[tuple[int, int]]:
    return ((low, min(size, low + _LINES)) for low in range(0, size, _LINES))


def _words(levels: Sequence[Any], k: int, low: int, high: int) -> tuple[list[Array], Array]:
    """Return the words, first to last, of the n-grams low … high - 1 of order k, and their contexts."""
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
    """Compute the log10 of the back-off weight of n-grams of order k as contexts."""
    if k == len(model.orders):
        return np.zeros(high - low, np.float32)
    order = model.orders[k]
    return _log10(order.weight, above=math.inf)[order.level.profile[low:high]]


def _log10(p: Array, above: float = 0.0) -> Array:
    with np.errstate(divide="ignore"):
        return np.clip(np.log10(p), NEVER, above).astype(np.float32)


@njit(cache=True, nogil=True)
def _climb(first, ids, context):
    """Find the context of each n-gram; both ascend, from `context` on."""
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
    """Compute p of n-grams `begin` …, and find each without its first word in the order below."""
    size = len(contexts)
    p, suffix = np.empty(size, np.float32), np.empty(size, np.uint32)
    before, low, high = np.int64(-1), np.int64(0), np.int64(0)
    for i in range(size):
        if i + 48 < size:  # prefetch what will be needed soon
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
    """Write the lines of n-grams as bytes; `more`: with their back-off."""
    order, size = words.shape
    room = np.int64(0)
    for j in range(order):
        for i in range(size):
            room += ends[words[j, i] + 1] - ends[words[j, i]] + 1
    out = np.empty(room + 64 * size, np.uint8)
    at = 0
    for i in range(size):
        at = write_number(out, at, logp[i])
        for j in range(order):
            out[at] = 32 if j else 9
            at += 1
            for letter in range(ends[words[j, i]], ends[words[j, i] + 1]):
                out[at] = letters[letter]
                at += 1
        if more:
            out[at] = 9
            at = write_number(out, at + 1, backoff[i])
        out[at] = 10
        at += 1
    return out[:at]

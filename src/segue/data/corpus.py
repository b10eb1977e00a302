"""A corpus: examples from any source, in three splits, with a ledger of what was read.

Making it reads everything once, to check, to count and to fill the ledger; after that, `examples(split)` streams a
split as often as it is asked to. Running text may come from several corpora, wiki.txt:3+books.txt:1; each of them is a
`Part` (one_corpus.py) with splits of its own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

import numpy as np

from segue.data.builtin import MADE
from segue.data.checked_sources import TICK
from segue.data.config import Config
from segue.data.example import Example
from segue.data.files import describe_file
from segue.data.ledger import LISTED_ROWS, Ledger, Repeats
from segue.data.one_corpus import Part
from segue.data.shapes import Shape
from segue.data.sources import Made, Progress, corpora
from segue.errors import InputError

__all__ = ["SPLITS", "Config", "Corpus", "Example"]

SPLITS = ("train", "validation", "test")
SMALL = 1 << 20
"""Bytes. The checksum of a smaller file is computed whenever the file may have changed: it costs a millisecond."""
LEAST_OVERLAP = 32
"""Characters. A shorter line of running text (a brace, a heading) may recur without being a leak."""


class Corpus:
    """The text of one recipe."""

    def __init__(self, config: Config, shape: Shape, progress: Progress | None = None) -> None:
        """Read everything once: check it, count it, and fill the ledger."""
        if config.path in MADE and shape.running:
            config = replace(config, unit="line")
        self.config, self.shape = config, shape
        self.ledger = Ledger()
        self.parts = self._open(config.path, config)
        whole = replace(config, validation=0.0, test=0.0)
        self._held_out_files = {split: self._open(path, whole) for split, path in config.held_out_files().items()}
        self._opened = time.time_ns()
        for part in self._all_parts():
            part.count(progress)
        self.counts = {split: sum(self._size(part, split) for part in self.parts_of(split)) for split in SPLITS}
        self.ledger.units = dict(self.counts)
        self._stamps = self._stamped()

    def _open(self, path: str, config: Config) -> list[Part]:
        return [Part(name, config, self.shape, self.ledger, weight) for name, weight in corpora(path, self.shape)]

    def _size(self, part: Part, split: str) -> int:
        return part.units if split in self._held_out_files else part.size(split)

    def _stamped(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of each file; a corpus that is built in has none."""
        paths = {str(file["path"]): Path(file["path"]) for file in self.ledger.files}
        stats = {name: path.stat() for name, path in paths.items() if path.is_file()}
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}

    def check_unchanged(self) -> None:
        """Refuse to go on if a file is not the one in the ledger any more: every pass reads it from the disk again.
        Checksums are computed of files whose size or time has changed since they were counted, of those that were
        changed while they were counted or shortly before (their time may be the same), and of small ones."""
        if name := self._changed_file() or next(filter(None, map(Part.changed_source, self._all_parts())), ""):
            raise InputError(
                f"{name} has changed while the run was made, so that its figures would be of another text than the "
                "ledger names. Restore the file, and train again or go on with --resume."
            )

    def _changed_file(self) -> str:
        now = self._stamped()
        for file in self.ledger.files:
            name = str(file["path"])
            if (stamp := self._stamps.get(name)) is None:
                continue
            sure = now.get(name) == stamp and stamp[1] < self._opened - TICK and stamp[0] > SMALL
            if not sure and (name not in now or describe_file(Path(name))["sha256"] != file["sha256"]):
                return name
        return ""

    def _all_parts(self) -> Iterator[Part]:
        return chain(self.parts, *self._held_out_files.values())

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check the files before and after they are read in the `with` block; an error in it may be due to a change."""
        self.check_unchanged()
        try:
            yield
        except Exception:
            self.check_unchanged()
            raise
        self.check_unchanged()

    @property
    def weights(self) -> list[Fraction] | None:
        """The weights of the corpora as data.path gives them; None if it gives none, so that sizes decide."""
        weights = [part.weight for part in self.parts if part.weight is not None]
        return weights or None

    def parts_of(self, split: str) -> list[Part]:
        """The corpora that a split comes from."""
        return self._held_out_files.get(split, self.parts)

    def texts(self, split: str) -> list[Iterator[Example]]:
        """Stream a split, one iterator for each of its corpora."""
        return [part.examples("all" if split in self._held_out_files else split) for part in self.parts_of(split)]

    def examples(self, split: str) -> Iterator[Example]:
        """Stream a split, one corpus after the other; `all` is all that data.path names."""
        return chain.from_iterable(self.texts(split))

    def mixed(self) -> Iterator[Example]:
        """Stream the training examples of all corpora, interleaved so that their characters keep the proportion of the
        weights until a corpus ends. A sample from the beginning of this stream is a fair one."""
        texts = dict(enumerate(self.texts("train")))
        weights = [float(weight) for weight in self.weights or (part.characters for part in self.parts)]
        taken = [0] * len(weights)
        while texts:
            turn = min(texts, key=lambda i: taken[i] / weights[i])
            example = next(texts[turn], None)
            if example is None:
                del texts[turn]
            else:
                taken[turn] += len(example.text)
                yield example

    def shares(self, split: str) -> list[float]:
        """The share of each corpus in the characters of a split."""
        if len(self.parts_of(split)) == 1:
            return [1.0]
        sizes = [sum(len(example.text) + 1 for example in text) for text in self.texts(split)]
        return [size / max(1, sum(sizes)) for size in sizes]

    def best(self, split: str) -> dict[str, float] | None:
        """The best possible score on a split, if it is known: that of a corpus that is made, not read."""
        source, *others = (part.source for part in self.parts_of(split))
        if others or not isinstance(source, Made) or not any(True for _ in self.examples(split)):
            return None
        return source.best(self.examples(split))

    def sha256(self, split: str) -> str:
        """The checksum of a split as it is read: of its texts and labels, whatever file they stand in."""
        found = hashlib.sha256()
        for row in self.examples(split):
            parts = (
                (row.content or row.text, row.target, row.label, *row.words, *row.tags, *map(str, chain(*row.answers)))
                if not self.shape.running
                else (row.text,)
            )
            found.update("\0".join(parts).encode() + (b"\n\0" if row.ends else b""))
        return found.hexdigest()

    def overlap(self) -> dict[str, float]:
        """For each held-out split: the share of its rows (or longer lines of running text) that are in training too."""
        held_out = {
            split: np.fromiter(map(hash, self._keys(split)), dtype=np.int64)
            for split in ("validation", "test")
            if self.counts[split]
        }
        wanted = set(np.concatenate(list(held_out.values())).tolist()) if held_out else set()
        seen = {key for key in map(hash, self._keys("train")) if key in wanted} if wanted else set()
        known = np.fromiter(seen, dtype=np.int64, count=len(seen))
        shares = {split: float(np.isin(keys, known).mean()) if keys.size else 0.0 for split, keys in held_out.items()}
        self.ledger.overlap = shares
        return shares

    def repeats(self) -> None:
        """Write into the ledger which rows repeat a text, and which texts have several labels."""
        if not self.shape.labelled:
            return
        rows = (row for split in SPLITS for row in self.examples(split))
        # Memory holds two hashes for each row; the few texts that are shown are read again.
        hashes = np.fromiter((half for row in rows for half in _hashes(row)), dtype=np.int64).reshape(-1, 2)
        _, first, times = np.unique(hashes[:, 0], return_index=True, return_counts=True)
        kinds = np.unique(hashes, axis=0)[:, 0]
        texts, ways = np.unique(kinds, return_counts=True)
        contradicted = set(texts[ways > 1].tolist())
        self.ledger.repeats = Repeats(int((times - 1).sum()), len(contradicted))
        order = first[np.isin(hashes[first, 0], list(contradicted))] if contradicted else first[times > 1]
        shown = set(hashes[np.sort(order)[:LISTED_ROWS], 0].tolist())
        if shown:
            for row in (row for split in SPLITS for row in self.examples(split)):
                if (key := _hashes(row)[0]) in shown:
                    self.ledger.repeats.add(key, row)

    def _keys(self, split: str) -> Iterator[str]:
        """What `overlap` compares between splits: rows with their translations, or the long lines of running text."""
        if not self.shape.running:
            yield from map(_whole, self.examples(split))
            return
        for text in self.texts(split):
            yield from _long_lines(text)


def _whole(row: Example) -> str:
    """A row's text, or the checksum of its sound or picture, with its translation or the second text of a pair."""
    return f"{row.content or row.text}\n{row.target}"


def _hashes(row: Example) -> tuple[int, int]:
    """The hash of a row's text, and that of its label or tags."""
    return hash(_whole(row)), hash((row.label, row.tags))


def _long_lines(text: Iterator[Example]) -> Iterator[str]:
    rest = ""
    for example in text:
        *whole, rest = (rest + example.text).split("\n")
        whole, rest = ([*whole, rest], "") if example.ends else (whole, rest)
        yield from (line for line in whole if len(line) >= LEAST_OVERLAP)
    if len(rest) >= LEAST_OVERLAP:
        yield rest

"""A corpus: examples from any source, streamed as often as wanted, in three splits, with a ledger of what was read.

The first reading checks everything, counts, and writes the ledger; from then on `examples(split)` streams. Running text
is split in whole units from the end, a single document by characters, rows at random by the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from segue.data import grammar
from segue.data.config import Config, Task
from segue.data.example import Example
from segue.data.ledger import Ledger
from segue.data.permute import permute
from segue.data.sources import Grammar, Progress, Source, open_source
from segue.data.splits import Plan, plan
from segue.errors import InputError

__all__ = ["SPLITS", "Config", "Corpus", "Example"]

SPLITS = ("train", "validation", "test")
ROWS_AT_ONCE = 1 << 16
LEAST_OVERLAP = 32
"""Shorter lines of running text (a brace, a heading) recur without being a leak."""


class Corpus:
    """The text of one recipe."""

    def __init__(self, config: Config, task: Task, progress: Progress | None = None) -> None:
        """Read everything once: check it, count it, and fill the ledger."""
        if config.path == "grammar" and task == "lm":
            config = replace(config, unit="line")
        self.config, self.task = config, task
        self.ledger = Ledger()
        self._main = open_source(config.path, config, task, self.ledger)
        self._given = {
            split: open_source(path, config, task, self.ledger)
            for split, path in (("validation", config.validation), ("test", config.test))
            if isinstance(path, str)
        }
        units, characters = self._count(self._main, config.path, progress)
        given = {
            split: self._count(source, getattr(config, split), progress)[0] for split, source in self._given.items()
        }
        # A single document cannot be split in whole units, so that its characters are.
        self._by_characters = task == "lm" and config.unit == "document" and units == 1
        self._plan = self._planned(units, characters)
        self.counts = {split: given.get(split, self._size(split)) for split in SPLITS}
        self.ledger.units = dict(self.counts)
        if task == "lm" and config.unit == "document" and units > 1:
            self._tell_uneven(characters)

    def examples(self, split: str) -> Iterator[Example]:
        """Stream a split; `all` is what data.path names, whole."""
        if split in self._given:
            return self._given[split].read(Ledger(), None)
        if split == "all":
            return self._main.read(Ledger(), None)
        if self._by_characters:
            return self._characters(split)
        return self._units(split) if self.task == "lm" else self._rows(split)

    def best(self, split: str) -> dict[str, float] | None:
        """The best possible score on a split, where it is known: for the built-in grammar."""
        source = self._given.get(split, self._main)
        if not isinstance(source, Grammar) or not any(True for _ in self.examples(split)):
            return None
        return grammar.best(self.task, self.examples(split))

    def overlap(self) -> dict[str, float]:
        """For each held-out split: the share of its rows (or longer lines of running text) that are in training too."""
        held = {
            split: np.fromiter(map(hash, self._keys(split)), dtype=np.int64)
            for split in ("validation", "test")
            if self.counts[split]
        }
        wanted = set(np.concatenate(list(held.values())).tolist()) if held else set()
        seen = {key for key in map(hash, self._keys("train")) if key in wanted} if wanted else set()
        known = np.fromiter(seen, dtype=np.int64, count=len(seen))
        shares = {split: float(np.isin(keys, known).mean()) if keys.size else 0.0 for split, keys in held.items()}
        self.ledger.overlap = shares
        return shares

    def _count(self, source: Source, name: str, progress: Progress | None) -> tuple[int, int]:
        self.ledger.files.extend(source.describe())
        units = characters = 0
        empty = True
        for example in source.read(self.ledger, progress):
            units += example.ends
            characters += len(example.text) + len(example.target)
            empty = empty and not example.text.strip()
        if empty:
            skipped = f"; {self.ledger.bad_rows} bad rows were skipped" if self.ledger.bad_rows else ""
            raise InputError(f"{name} holds no text{skipped}. Expected text; check the file and data.columns.")
        self.ledger.characters += characters
        return units, characters

    def _planned(self, units: int, characters: int) -> Plan:
        if self._by_characters:
            return plan(self.config, characters, "characters")
        what = f"units (data.unit={self.config.unit})" if self.task == "lm" else "rows"
        return plan(self.config, units, what)

    def _tell_uneven(self, characters: int) -> None:
        """Documents differ in length: say so where much more is held out, in whole documents, than was asked for."""
        for split in ("validation", "test"):
            asked = getattr(self.config, split)
            if isinstance(asked, float) and asked:
                share = sum(len(example.text) for example in self.examples(split)) / max(1, characters)
                if share > 2 * asked:
                    remark = (
                        f"{share:.0%} of the text is held out for {split}, since whole documents are (data.unit=line)"
                    )
                    self.ledger.note(remark, self.config.path)

    def _size(self, split: str) -> int:
        return int(self._plan.size(split) > 0) if self._by_characters else self._plan.size(split)

    def _units(self, split: str) -> Iterator[Example]:
        intervals = iter(self._plan.intervals[split])
        low, high = next(intervals, (0, 0))
        index = 0
        # Checked before reading on, so that nothing behind the split's last unit is read.
        for example in self._main.read(Ledger(), None) if high else ():
            if low <= index:
                yield example
            index += example.ends
            if index == high:
                low, high = next(intervals, (0, 0))
                if not high:
                    return

    def _characters(self, split: str) -> Iterator[Example]:
        start = 0
        for example in self._main.read(Ledger(), None):
            end = start + len(example.text)
            for low, high in self._plan.intervals[split]:
                begin, stop = max(low, start), min(high, end)
                if begin < stop:
                    text = example.text[begin - start : stop - start]
                    line = example.line + example.text.count("\n", 0, begin - start)
                    yield example._replace(text=text, line=line, ends=stop == self._plan.total)
            start = end

    def _rows(self, split: str) -> Iterator[Example]:
        total = self._plan.total
        chosen: list[bool] = []
        for index, example in enumerate(self._main.read(Ledger(), None)):
            if index % ROWS_AT_ONCE == 0:
                rows = np.arange(index, min(index + ROWS_AT_ONCE, total))
                chosen = self._plan.member(permute(rows, total, (self.config.seed,)), split).tolist()
            if chosen[index % ROWS_AT_ONCE]:
                yield example

    def _keys(self, split: str) -> Iterator[str]:
        """What is compared between splits: a row's text with its translation, or the longer lines of running text."""
        if self.task != "lm":
            for example in self.examples(split):
                yield f"{example.text}\n{example.target}"
            return
        rest = ""
        for example in self.examples(split):
            *whole, rest = (rest + example.text).split("\n")
            whole, rest = ([*whole, rest], "") if example.ends else (whole, rest)
            yield from (line for line in whole if len(line) >= LEAST_OVERLAP)
        if len(rest) >= LEAST_OVERLAP:
            yield rest

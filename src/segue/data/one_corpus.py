"""One source of a corpus, in three splits: reads it once to check and count it, then streams the splits.

Running text is held out in whole units from the end, a single document by characters, rows at random by the seed, with
all others of their file, or with all others about the same text (answered questions). If data.path names several
corpora, each is a `Part`, and each holds out its own share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import compress, groupby

import numpy as np

from segue.data.config import Config
from segue.data.example import Example
from segue.data.ledger import Ledger
from segue.data.permute import permute
from segue.data.shapes import PARALLEL, Shape
from segue.data.sources import Progress, open_source, with_source
from segue.data.splits import Plan, plan
from segue.errors import InputError

ROWS_AT_ONCE = 1 << 16


class Part:
    """The data that one name in data.path stands for."""

    def __init__(self, name: str, config: Config, shape: Shape, ledger: Ledger, weight: Fraction | None = None) -> None:
        """Find the files, but read nothing yet."""
        self.name, self.weight = name, weight
        """The weight that data.path gives, if it gives one."""
        config = replace(config, path=name)
        if shape is PARALLEL:
            config = with_source(config)
        self.config, self.shape, self.ledger = config, shape, ledger
        self.source = open_source(name, config, shape, ledger)

    def count(self, progress: Progress | None) -> None:
        """Read everything: check it, count it, and plan the splits."""
        self.ledger.files.extend(self.source.describe())
        units = characters = 0
        empty = True
        together, groups = self.shape.together, dict[int, int]()
        for example in self.source.read(self.ledger, progress):
            units += example.ends
            characters += len(example.target) + (0 if example.content else len(example.text))
            empty = empty and not example.text.strip()
            if together:
                key = hash(together(example))
                groups[key] = groups.get(key, 0) + 1
        checked = self.source.checked
        if checked:
            self.ledger.files.append(checked.describe(self.name))
        while self.ledger.unsaid:
            sentence = self.ledger.unsaid.pop(0)
            if progress:
                progress(sentence, 1.0)
        if empty:
            skipped = f"; {self.ledger.bad_rows} bad rows were skipped" if self.ledger.bad_rows else ""
            what, wanted = ("text", "text")
            if checked:
                what = f"{self.config.source} that can be read"
                wanted = f"the name of a {self.config.source} and its text in each row"
            raise InputError(
                f"{self.name} holds no {what}{skipped}. Expected {wanted}; check the file and data.columns."
            )
        self.ledger.characters += characters
        self.units, self.characters = units, characters
        # A single document has no whole units to hold out: its characters are split.
        documents = self.shape.running and self.config.unit == "document"
        self._by_characters = documents and units == 1
        self._groups = groups
        """How many rows there are in each group of rows that are held out together, in the order of the data."""
        self._plan = self._planned()
        if documents and units > 1:
            self._note_uneven_splits()

    def changed_source(self) -> str:
        """Return the name of a sound or picture that is another one than when it was checked; '' if there is none."""
        checked = self.source.checked
        return checked.changed(self.source.read(Ledger(), None)) if checked else ""

    def size(self, split: str) -> int:
        """Units or rows of a split."""
        if self.source.by_path:
            return sum(1 for _ in self.examples(split))
        if self.shape.together:
            return sum(compress(self._groups.values(), self._chosen(split)))
        return int(self._plan.size(split) > 0) if self._by_characters else self._plan.size(split)

    def examples(self, split: str) -> Iterator[Example]:
        """Stream a split; `all` is everything."""
        if split == "all":
            return self.source.read(Ledger(), None)
        if self._by_characters:
            return self._characters(split)
        if self.source.by_path:
            return self._files(split)
        if self.shape.together:
            return self._grouped(split, self.shape.together)
        return self._units(split) if self.shape.running else self._rows(split)

    def _planned(self) -> Plan:
        if self._by_characters:
            return plan(self.config, self.characters, "characters")
        if self.source.by_path:
            return plan(self.config, len({example.path for example in self.examples("all")}), "modules")
        if self.shape.together:
            return plan(self.config, len(self._groups), "texts")
        what = f"units (data.unit={self.config.unit})" if self.shape.running else "rows"
        return plan(self.config, self.units, what)

    def _note_uneven_splits(self) -> None:
        """Note in the ledger if whole, long documents make a split more than twice as large as it should be."""
        for split in ("validation", "test"):
            asked = vars(self.config)[split]
            if isinstance(asked, float) and asked:
                share = sum(len(example.text) for example in self.examples(split)) / max(1, self.characters)
                if share > 2 * asked:
                    remark = f"{100 * share:.0f} % of the text is held out for {split}"
                    self.ledger.note(f"{remark}, since whole documents are (data.unit=line)", self.name)

    def _units(self, split: str) -> Iterator[Example]:
        intervals = iter(self._plan.intervals[split])
        low, high = next(intervals, (0, 0))
        index = 0
        # The check comes before the next read, so that nothing after the split's last unit is read.
        for example in self.source.read(Ledger(), None) if high else ():
            if low <= index:
                yield example
            index += example.ends
            if index == high:
                low, high = next(intervals, (0, 0))
                if not high:
                    return

    def _characters(self, split: str) -> Iterator[Example]:
        start = 0
        for example in self.source.read(Ledger(), None):
            end = start + len(example.text)
            for low, high in self._plan.intervals[split]:
                begin, stop = max(low, start), min(high, end)
                if begin < stop:
                    text = example.text[begin - start : stop - start]
                    line = example.line + example.text.count("\n", 0, begin - start)
                    yield example._replace(text=text, line=line, ends=stop == self._plan.total)
            start = end

    def _chosen(self, split: str) -> list[bool]:
        """Whether each file, or each group of rows, belongs to a split."""
        total = self._plan.total
        chosen: list[bool] = self._plan.member(permute(np.arange(total), total, (self.config.seed,)), split).tolist()
        return chosen

    def _grouped(self, split: str, together: Callable[[Example], str]) -> Iterator[Example]:
        chosen = dict(zip(self._groups, self._chosen(split), strict=True))
        for example in self.source.read(Ledger(), None):
            if chosen[hash(together(example))]:
                yield example

    def _files(self, split: str) -> Iterator[Example]:
        chosen = self._chosen(split)
        for number, (_, rows) in enumerate(groupby(self.examples("all"), key=lambda example: example.path)):
            if chosen[number]:
                yield from rows

    def _rows(self, split: str) -> Iterator[Example]:
        total = self._plan.total
        chosen: list[bool] = []
        for index, example in enumerate(self.source.read(Ledger(), None)):
            if index % ROWS_AT_ONCE == 0:
                rows = np.arange(index, min(index + ROWS_AT_ONCE, total))
                chosen = self._plan.member(permute(rows, total, (self.config.seed,)), split).tolist()
            if chosen[index % ROWS_AT_ONCE]:
                yield example

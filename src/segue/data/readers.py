"""Read files as examples: tables (tsv, csv), jsonl, CoNLL columns, two parallel files, and running text.

A table has a header if data.columns gives names, or if the first row has the names of the shape's fields (label and
text, source and target). Without a header and data.columns, a table has exactly these columns in this order. A tsv has
no quoting; a csv is what Python's csv module reads, with quoted line ends. data.columns=label,text,text2 reads labelled
rows with a pair of texts.

A jsonl row is an object with the shape's keys, such as {"words": ["the", "cow"], "tags": ["D", "N"]}.

A CoNLL file has a word in each row and a blank line between sentences; tabs separate its columns, or blanks if a row
has no tab. The word is the first column and the tag the last; in CoNLL-U (ten columns) they are columns 2 and 4, and
ranges (1-2) and empty nodes (1.1) are left out. Lines that begin a sentence with "#" and have no tab are comments.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from pathlib import Path

from segue.data.config import Config, Format
from segue.data.example import Example
from segue.data.files import LONGEST_LINE, Tick, blocks, lines
from segue.data.iob import SCHEMES, SchemeReader
from segue.data.ledger import Ledger
from segue.data.shapes import Shape, Values, json_object
from segue.data.units import units
from segue.errors import InputError

FAULTS_SHOWN = 5
LEAST_ROWS = 10
"""With fewer rows, a label that occurs once says nothing about a header."""
LONGEST_NAME = 40
DOCUMENT_MARK = "-DOCSTART-"
_NODE = re.compile(r"\d+([-.]\d+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")

Row = tuple[int, list[str]]
"""A line's number and its cells."""


@dataclass(frozen=True)
class Reader:
    """Reads files of one shape, and writes into a ledger what it leaves out."""

    config: Config
    shape: Shape
    ledger: Ledger

    def read(self, path: Path, form: Format, tick: Tick | None) -> Iterator[Example]:
        """Stream the examples of one file."""
        text = blocks(path, self.config.encoding, self.ledger, tick)
        match form:
            case "text":
                return units(text, str(path), self.config, self.ledger)
            case "conll":
                return self._sentences(str(path), lines(text))
            case "jsonl":
                return self._objects(str(path), lines(text))
            case "csv":
                rows = _quoted(path, lines(text))
            case _:
                rows = ((n, line.split("\t")) for n, line in enumerate(lines(text), 1))
        table = self._table(str(path), rows)
        return self._with_header_check(table) if self.config.label == "class" else table

    def finish(self) -> None:
        """Raise an error if rows were bad, unless data.on_error=skip."""
        if self.ledger.bad_rows and self.config.on_error == "stop":
            raise InputError(
                f"{self.ledger.first_bad(FAULTS_SHOWN)}. Expected {' and '.join(self.shape.fields)} in every row. Mend "
                "these rows, say which columns to read (data.columns), or leave such rows out with data.on_error=skip."
            )

    def parallel(self, source: Path, target: Path, tick: Tick | None) -> Iterator[Example]:
        """Stream the examples of two files: line n of one is the translation of line n of the other."""
        sources = lines(blocks(source, self.config.encoding, self.ledger, tick))
        targets = lines(blocks(target, self.config.encoding, self.ledger))
        pairs, counts = zip_longest(sources, targets), [0, 0]
        for number, (left, right) in enumerate(pairs, 1):
            counts[0] += left is not None
            counts[1] += right is not None
            if left is not None and right is not None:
                yield from self._example([left, right], str(source), number)
        if counts[0] != counts[1]:
            raise InputError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}. Expected line n of one to be the "
                "translation of line n of the other; give files of the same length."
            )

    def _bad(self, path: str, line: int, reason: str) -> None:
        self.ledger.bad_row(path, line, reason)
        if self.ledger.bad_rows > FAULTS_SHOWN:
            self.finish()

    def _example(
        self, values: Values, path: str, line: int, spans: SchemeReader | None = None, lines: Iterable[int] = ()
    ) -> Iterator[Example]:
        """Yield a row's example, or the units of its running text; nothing for a blank or bad row."""
        if not any(values):
            self.ledger.blank_lines += 1
            return
        made, fault = self.shape.example(values, self.config), ""
        if isinstance(made, Example) and spans is not None:
            tags, fault = spans.read(made.tags, lines)
            made = made._replace(tags=tags)
        if isinstance(made, str) or fault:
            self._bad(path, line, fault or str(made))
        elif self.shape.running:
            yield from units(iter([made.text]), path, self.config, self.ledger, line)
        else:
            yield made.at(path, line)

    def _with_header_check(self, examples: Iterator[Example]) -> Iterator[Example]:
        """Note it in the ledger if only the label of line 1 occurs just once: the line may be a header."""
        first, labels = None, Counter[str]()
        for example in examples:
            first = first or example
            labels[example.label] += 1
            yield example
        if first is None or first.line > 1 or labels.total() < LEAST_ROWS:
            return
        names = [cell.strip() for cell in (first.label, first.text, first.target)[: 2 + self.config.pairs]]
        if [label for label, count in labels.items() if count == 1] == names[:1] and all(map(_is_name, names)):
            columns = shlex.quote(f"data.columns={','.join(names)}")
            why = f"as its label, '{first.label[:60]}', comes nowhere else"
            self.ledger.note(f"say {columns} if the first row is a header, {why}", first.path)

    def _table(self, path: str, rows: Iterator[Row]) -> Iterator[Example]:
        first = next((row for row in rows if any(row[1])), None)
        if first is None:
            return
        picks, is_header = self._columns(path, *first)
        exact = not is_header and not self.config.columns
        needed = max(picks) + 1
        for line, cells in rows if is_header else chain([first], rows):
            if (len(cells) < needed and any(cells)) or (exact and len(cells) > needed):
                self._bad(path, line, f"has {_many(len(cells))}, expected {needed}")
            else:
                yield from self._example([cells[pick] for pick in picks] if any(cells) else [], path, line)

    def _columns(self, path: str, line: int, first: list[str]) -> tuple[list[int], bool]:
        """The places of the shape's fields in a row, and whether the first row is a header."""
        wanted = self._wanted()
        header = [cell.strip() for cell in first]
        if all(name.isdecimal() for name in wanted):
            return [int(name) - 1 for name in wanted], set(self.shape.fields) <= set(header)
        if set(wanted) <= set(header):
            return [header.index(name) for name in wanted], True
        if self.config.columns or self.shape.running:
            raise InputError(
                f"{path}, line {line}: the columns are {', '.join(header[:10])[:200]}, but not {' and '.join(wanted)}. "
                "Expected a header with these names; say which columns to read by name or number, for example "
                f"data.columns={','.join(str(n + 1) for n in range(len(wanted)))}."
            )
        return list(range(len(wanted))), False

    def _wanted(self) -> list[str]:
        """The columns' names or numbers, in the order of the shape's fields."""
        fields = self.shape.fields
        wanted = [name.strip() for name in self.config.columns.split(",")] if self.config.columns else list(fields)
        numbers = [name.isdecimal() for name in wanted]
        if len(wanted) == len(fields) + len(self.shape.optional):
            fields += self.shape.optional
        if len(wanted) != len(fields) or "" in wanted or "0" in wanted or any(numbers) != all(numbers):
            raise InputError(
                f"data.columns is '{self.config.columns}'. Expected {','.join(fields)}: "
                f"{len(fields)} names, or {len(fields)} numbers from 1."
            )
        return wanted

    def _objects(self, path: str, rows: Iterator[str]) -> Iterator[Example]:
        keys = self._wanted() if self.config.columns else list(self.shape.keys)
        spans = self._span_reader()
        for number, row in enumerate(rows, 1):
            if not row or row.isspace():
                self.ledger.blank_lines += 1
            elif isinstance(values := self._values(row, keys), str):
                self._bad(path, number, values)
            else:
                yield from self._example(values, path, number, spans, repeat(number))
        self._note_repairs(spans, path)

    def _values(self, row: str, keys: list[str]) -> Values | str:
        """The values of an object's keys, or what is wrong with the row."""
        found = json_object(row)
        values = found if isinstance(found, str) else self.shape.from_json(found, keys, self.config)
        if isinstance(values, list) and "\\u" in row:
            for key, value in zip(keys, values, strict=True):
                if any(map(_SURROGATE.search, [value] if isinstance(value, str) else value)):
                    return f"has half a surrogate pair in '{key}'"
        return values

    def _span_reader(self) -> SchemeReader | None:
        """Reads the tags of one file as spans, if data.label names a scheme for spans."""
        return SchemeReader(self.config.label) if self.config.label in SCHEMES else None

    def _note_repairs(self, spans: SchemeReader | None, path: str) -> None:
        for remark in spans.repairs() if spans else ():
            self.ledger.note(remark, path)

    def _sentences(self, path: str, rows: Iterator[str]) -> Iterator[Example]:
        columns: _Columns | None = None
        spans = self._span_reader()
        at, spoilt, pairs = list[int](), False, list[tuple[str, str]]()
        for number, row in enumerate(chain(rows, [""]), 1):
            cells = [cell.strip() for cell in row.split("\t")] if "\t" in row else row.split()
            if not any(cells):
                if pairs and not spoilt:
                    yield from self._example(list(zip(*pairs, strict=True)), path, at[0], spans, at)
                at, spoilt, pairs = [], False, []
                continue
            if not pairs and (row.startswith("#") and "\t" not in row):
                continue
            if cells[0] == DOCUMENT_MARK:
                self.ledger.note(f"{DOCUMENT_MARK} rows were left out", path)
                continue
            columns = columns or self._conll_columns(path, number, cells)
            if columns.universal and not cells[0].isdecimal() and _NODE.fullmatch(cells[0]):
                continue
            at.append(number)
            pair = columns.pick(cells)
            if isinstance(pair, str):
                self._bad(path, number, pair)
                spoilt, pair = True, ("", "")
            pairs.append(pair)
        self._note_repairs(spans, path)

    def _conll_columns(self, path: str, line: int, first: list[str]) -> _Columns:
        """Which columns hold word and tag, from data.columns or from the file's first row."""
        universal = len(first) == 10 and _NODE.fullmatch(first[0]) is not None
        if not self.config.columns:
            word, tag = (1, 3) if universal else (0, len(first) - 1)
        else:
            wanted = self._wanted()
            if not all(name.isdecimal() for name in wanted):
                raise InputError(f"data.columns is '{self.config.columns}'. Expected numbers for CoNLL, such as 1,2.")
            word, tag = (int(name) - 1 for name in wanted)
        if max(word, tag) >= len(first) or word == tag:
            raise InputError(
                f"{path}, line {line}: the row has {_many(len(first))}. Expected a word and its tag in every row, "
                "with a blank line between sentences; data.columns=1,2 says which columns to read."
            )
        return _Columns(len(first), word, tag, universal)


@dataclass(frozen=True)
class _Columns:
    """How the rows of a CoNLL file are laid out."""

    count: int
    word: int
    tag: int
    universal: bool

    def pick(self, cells: list[str]) -> tuple[str, str] | str:
        """A row's word and tag, or what is wrong with it."""
        if len(cells) != self.count:
            return f"has {_many(len(cells))} where the file's first row has {self.count}"
        word, tag = cells[self.word], cells[self.tag]
        if not word or not tag:
            return "has no word" if not word else "has no tag"
        return word, tag


def _is_name(cell: str) -> bool:
    """Whether data.columns could name a column like this."""
    return 0 < len(cell) <= LONGEST_NAME and "," not in cell and not cell.isdecimal()


def _quoted(path: Path, rows: Iterator[str]) -> Iterator[Row]:
    """csv rows, each with the number of its first line."""
    csv.field_size_limit(LONGEST_LINE)  # the module's own limit, 131,072, is less than a long review
    reader = csv.reader((row + "\n" for row in rows), strict=True)
    begin = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{path}, row that begins in line {begin}: {error}. Expected a csv row; look for a quotation mark "
                "that is missing or not doubled."
            ) from None
        yield begin, cells
        begin = reader.line_num + 1


def _many(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"

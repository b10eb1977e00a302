"""Files as examples: tables (tsv, csv), jsonl, CoNLL columns, two parallel files, and running text.

A table may begin with a header: where data.columns gives names, or where the first row's cells include the names that
the task asks for (label and text, source and target). Without either, a table must have exactly the task's columns, in
that order. A tsv has no quoting; a csv has what Python's csv module reads, quoted line ends included.
Where data.columns gives three, the row to classify is a pair of texts.

A jsonl row is an object with the task's fields; to tag, {"words": ["the", "cow"], "tags": ["D", "N"]}.

CoNLL: a word a row, a blank line between sentences; columns are separated by tabs where there is one, else by blanks.
The word is the first column and the tag the last; in CoNLL-U (ten columns) word and tag are columns 2 and 4, and
ranges (1-2) and empty nodes (1.1) are left out. Lines that begin a sentence with "#" and have no tab are comments.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from segue.data.config import Config, Format, Task
from segue.data.example import Example, joined, names_of
from segue.data.files import LONGEST_LINE, Tick, blocks, lines
from segue.data.iob import SCHEMES, Checked
from segue.data.ledger import Ledger
from segue.data.units import tidy, units
from segue.errors import InputError

FIELDS: dict[Task, tuple[str, ...]] = {
    "lm": ("text",),
    "classify": ("label", "text"),
    "tag": ("word", "tag"),
    "seq2seq": ("source", "target"),
}
JSON_FIELDS: dict[Task, tuple[str, ...]] = {"tag": ("words", "tags")}
"""Where the keys of a JSON object are others than the columns of a table."""
FAULTS_SHOWN = 5
LEAST_ROWS = 10
"""With fewer, a label that comes once says nothing."""
LONGEST_NAME = 40
DOCUMENT_MARK = "-DOCSTART-"
_NODE = re.compile(r"\d+([-.]\d+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")

Row = tuple[int, list[str]]
"""A line's number and its cells."""


@dataclass(frozen=True)
class Reader:
    """Reads files for one task, and writes what it leaves out into a ledger."""

    config: Config
    task: Task
    ledger: Ledger

    def read(self, path: Path, form: Format, tick: Tick | None) -> Iterator[Example]:
        """The examples of one file."""
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
        return self._watched(table) if self.task == "classify" and self.config.label == "class" else table

    def finish(self) -> None:
        """Refuse the rows that were found bad, unless they are to be left out."""
        if self.ledger.bad_rows and self.config.on_error == "stop":
            raise InputError(
                f"{self.ledger.first_bad(FAULTS_SHOWN)}. Expected {' and '.join(FIELDS[self.task])} in every row. Mend "
                "these rows, say which columns to read (data.columns), or leave such rows out with data.on_error=skip."
            )

    def parallel(self, source: Path, target: Path, tick: Tick | None) -> Iterator[Example]:
        """Line by line, a sentence and its translation."""
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

    def _example(self, values: list[str], path: str, line: int) -> Iterator[Example]:
        """The example that a row's values make; none for a row that is blank or bad."""
        if not any(values):
            self.ledger.blank_lines += 1
        elif self.task == "lm":
            yield from units(iter(values), path, self.config, self.ledger, line)
        elif self.task == "seq2seq":
            yield Example(self._text(values[0]), target=self._text(values[1]), path=path, line=line)
        else:
            yield from self._labelled(values[0].strip(), *values[1:], path=path, line=line)

    def _labelled(self, label: str, *texts: str, path: str, line: int) -> Iterator[Example]:
        """A text, or a pair of them, with its class, its classes or its number."""
        text, second = (*map(self._text, texts), "")[:2]
        if self.config.label == "classes":
            names = tuple(sorted({name for part in label.split(",") if (name := part.strip())}))
            yield Example(text, ",".join(names), tags=names, target=second, path=path, line=line)
        elif not label:
            self._bad(path, line, "has no label")
        elif self.config.label == "number" and not _is_number(label):
            self._bad(path, line, f"has the label '{label[:60]}', which is no number below 1e18 (data.label=number)")
        else:
            yield Example(text, label, target=second, path=path, line=line)

    def _text(self, value: str) -> str:
        return tidy(value) if self.config.canonical else value

    def _watched(self, examples: Iterator[Example]) -> Iterator[Example]:
        """Notes a label in line 1 that comes nowhere else, while all others come again: it may be that of a header."""
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
        """Where the task's fields stand in a row, and whether the first row is a header."""
        wanted = self._wanted()
        header = [cell.strip() for cell in first]
        if all(name.isdecimal() for name in wanted):
            return [int(name) - 1 for name in wanted], set(FIELDS[self.task]) <= set(header)
        if set(wanted) <= set(header):
            return [header.index(name) for name in wanted], True
        if self.config.columns or self.task == "lm":
            raise InputError(
                f"{path}, line {line}: the columns are {', '.join(header[:10])[:200]}, but not {' and '.join(wanted)}. "
                "Expected a header with these names; say which columns to read by name or number, for example "
                f"data.columns={','.join(str(n + 1) for n in range(len(wanted)))}."
            )
        return list(range(len(wanted))), False

    def _wanted(self) -> list[str]:
        """The columns' names or numbers, in the order of the task's fields."""
        fields = FIELDS[self.task]
        wanted = [name.strip() for name in self.config.columns.split(",")] if self.config.columns else list(fields)
        numbers = [name.isdecimal() for name in wanted]
        fields = (*fields, "text2") if self.task == "classify" and len(wanted) == 3 else fields
        if len(wanted) != len(fields) or "" in wanted or "0" in wanted or any(numbers) != all(numbers):
            raise InputError(
                f"data.columns is '{self.config.columns}'. Expected {','.join(fields)}: "
                f"{len(fields)} names, or {len(fields)} numbers from 1."
            )
        return wanted

    def _objects(self, path: str, rows: Iterator[str]) -> Iterator[Example]:
        own = JSON_FIELDS.get(self.task) if not self.config.columns else None
        keys = list(own) if own else self._wanted()
        checked = self._checked()
        for number, row in enumerate(rows, 1):
            if not row or row.isspace():
                self.ledger.blank_lines += 1
            elif self.task == "tag":
                yield from self._tagged(row, keys, path, number, checked)
            elif isinstance(values := _values(row, keys, self.config.label if self.task == "classify" else ""), str):
                self._bad(path, number, values)
            else:
                yield from self._example(values, path, number)

    def _tagged(self, row: str, keys: list[str], path: str, line: int, checked: Checked | None) -> Iterator[Example]:
        lists = _word_lists(row, keys)
        if isinstance(lists, str):
            self._bad(path, line, lists)
        else:
            words, tags = map(tuple, lists)
            yield from self._sentence(words, tags, path, line, checked)

    def _checked(self) -> Checked | None:
        """Where tags mark spans: what reads those of one file."""
        return Checked(self.config.label) if self.config.label in SCHEMES else None

    def _sentence(
        self, words: tuple[str, ...], tags: tuple[str, ...], path: str, line: int, checked: Checked | None
    ) -> Iterator[Example]:
        """Words with their tags, as data.label wants them."""
        fault = ""
        if checked is not None:
            tags, fault = checked.read(tags)
        elif self.config.label == "classes":
            tags = tuple(joined(names_of(tag)) for tag in tags)
        if fault:
            self._bad(path, line, fault)
        else:
            yield Example(" ".join(words), words=words, tags=tags, path=path, line=line)

    def _sentences(self, path: str, rows: Iterator[str]) -> Iterator[Example]:
        columns: _Columns | None = None
        checked = self._checked()
        begin, spoilt, pairs = 0, False, list[tuple[str, str]]()
        for number, row in enumerate(chain(rows, [""]), 1):
            cells = [cell.strip() for cell in row.split("\t")] if "\t" in row else row.split()
            if not any(cells):
                if pairs and not spoilt:
                    words, tags = zip(*pairs, strict=True)
                    yield from self._sentence(words, tags, path, begin, checked)
                spoilt, pairs = False, []
                continue
            if not pairs and (row.startswith("#") and "\t" not in row):
                continue
            if cells[0] == DOCUMENT_MARK:
                self.ledger.note(f"{DOCUMENT_MARK} rows were left out", path)
                continue
            columns = columns or self._conll_columns(path, number, cells)
            if columns.universal and not cells[0].isdecimal() and _NODE.fullmatch(cells[0]):
                continue
            begin = begin if pairs else number
            pair = columns.pick(cells)
            if isinstance(pair, str):
                self._bad(path, number, pair)
                spoilt, pair = True, ("", "")
            pairs.append(pair)

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


def _object(row: str) -> dict[str, Any] | str:
    """A row's JSON object, or what is wrong with the row."""
    try:
        found = json.loads(row)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"
    return found if isinstance(found, dict) else "is not a JSON object"


def json_keys(row: str) -> list[str]:
    """The keys of a row's object; none where it is no object."""
    found = _object(row)
    return [] if isinstance(found, str) else list(found)


def _word_lists(row: str, keys: list[str]) -> list[list[str]] | str:
    """A sentence's words and tags, or what is wrong with the row."""
    found = _object(row)
    if isinstance(found, str):
        return found
    lists = []
    for key in keys:
        items = found.get(key)
        if not isinstance(items, list) or not items or not all(isinstance(item, str) and item for item in items):
            return f"has no '{key}'" if items is None else f"has '{key}' that are not a list of words"
        if "\\u" in row and any(map(_SURROGATE.search, items)):
            return f"has half a surrogate pair in '{key}'"
        lists.append(items)
    if len(lists[0]) != len(lists[1]):
        return f"has {len(lists[0])} {keys[0]} but {len(lists[1])} {keys[1]}"
    return lists


def _values(row: str, keys: list[str], label: str) -> list[str] | str:
    """The values of an object's keys, or what is wrong with the row; the first is a label if `label` is its kind."""
    found = _object(row)
    if isinstance(found, str):
        return found
    values = []
    for position, key in enumerate(keys):
        value = found.get(key)
        if label and position == 0:
            value = _label(value, label)
        if not isinstance(value, str):
            return f"has no '{key}'" if value is None else f"has a '{key}' that is not a string"
        if "\\u" in row and _SURROGATE.search(value):
            return f"has half a surrogate pair in '{key}'"
        values.append(value)
    return values


def _is_name(cell: str) -> bool:
    """Whether a column can be called by this in data.columns."""
    return 0 < len(cell) <= LONGEST_NAME and "," not in cell and not cell.isdecimal()


def _label(value: Any, label: str) -> Any:
    """A label as a table has it: numbers and truth values written out, several of them with commas between."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if label != "classes" or not isinstance(value, list):
        return value
    return ",".join(value) if all(isinstance(name, str) and "," not in name for name in value) else value


_LARGEST = 1e18
"""Numbers whose squares a float32 still holds."""


def _is_number(label: str) -> bool:
    try:
        return abs(float(label)) < _LARGEST
    except ValueError:
        return False


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

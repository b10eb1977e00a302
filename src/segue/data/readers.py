"""Read files as examples: tables (tsv, csv), json, jsonl, fastText, CoNLL columns, two parallel files, running text.

columns.py says which columns of a table, or keys of JSON objects, are read. A tsv has no quoting; a csv is what
Python's csv module reads, with quoted line ends and any delimiter. data.columns=label,text,text2 reads labelled rows
with a pair of texts.

A jsonl row is an object with the shape's keys, such as {"words": ["the", "cow"], "tags": ["D", "N"]}; a json file is an
array of such objects.

A CoNLL file has a word in each row and a blank line between sentences; tabs separate its columns, or blanks if a row
has no tab. The word is the first column and the tag the last; in CoNLL-U (ten columns) they are columns 2 and 4, and
ranges (1-2) and empty nodes (1.1) are left out. Lines that begin a sentence with "#" and have no tab are comments.

`Reader.read` gives examples to learn from or to judge by; `Reader.ask` reads the same files for predictions, where the
label may be missing, and keeps every row as it is, so that it can be written out again.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from segue.data.checked_sources import CheckedSources
from segue.data.columns import Place, is_name, place_in_objects, place_in_table, wanted_columns
from segue.data.config import Config, Format
from segue.data.example import Example
from segue.data.files import LONGEST_LINE, Tick, blocks, lines
from segue.data.iob import SCHEMES, SchemeReader
from segue.data.ledger import Ledger
from segue.data.media import MEDIA, resolved
from segue.data.shapes import Shape, Values, json_object, question_values
from segue.data.tables import DOCUMENT_MARK, LEAST_ROWS, csv_rows, fasttext_row, json_rows, peek, see_delimiter
from segue.data.units import units
from segue.errors import BadSourceError, InputError

FAULTS_SHOWN = 5
SEEN_LINES = 50
"""The delimiter of a csv is seen from so many lines."""
_NODE = re.compile(r"\d+([-.]\d+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Rows(NamedTuple):
    """The rows of a table or of JSON objects, and where they have the fields."""

    place: Place
    rows: Iterator[tuple[int, Any]]
    """The line of each row, and its cells, its object, or what is wrong with it."""
    header: list[str] | None = None
    delimiter: str = "\t"


class Question(NamedTuple):
    """A row to predict something for."""

    line: int
    row: Any
    """The row as it is in the file: a line, cells, an object, or the rows of a sentence."""
    values: Values
    """The texts that the model reads; for a tagger also a list of words."""


class Questions(NamedTuple):
    """A file of rows to predict something for."""

    form: Format
    header: list[str] | None
    delimiter: str
    each: Iterator[Question]


class Reader:
    """Reads files of one shape, and writes into a ledger what it leaves out."""

    def __init__(self, config: Config, shape: Shape, ledger: Ledger, sources: CheckedSources | None = None) -> None:
        """`sources`: checks the sounds or pictures that rows name; None: they are not looked at."""
        self.config, self.shape, self.ledger = config, shape, ledger
        self.sources = sources.begin() if sources else None
        self.some_good = False
        """Whether any row could be used."""

    def read(self, path: Path, form: Format, tick: Tick | None) -> Iterator[Example]:
        """Stream the examples of one file."""
        text = self._text(path, form, tick)
        match form:
            case "text":
                return units(text, str(path), self.config, self.ledger)
            case "conll":
                return self._sentences(str(path), lines(text))
            case "fasttext":
                return self._fasttext(str(path), lines(text))
            case "json" | "jsonl":
                return self._from_objects(str(path), self._objects(str(path), form, text))
        table = self._from_table(str(path), self._table(str(path), form, text))
        return self._with_header_check(table) if self.config.label == "class" else table

    def ask(self, path: Path, form: Format, opened: IO[bytes] | None = None, whole: bool = False) -> Questions:
        """Stream the rows of one file, or of an open one, to predict something for; `whole`: with all their fields."""
        text, name = self._text(path, form, None, opened), str(path)
        match form:
            case "text":
                each = (Question(n, line, [line]) for n, line in enumerate(lines(text), 1))
                return Questions(form, None, "", each)
            case "fasttext":
                split = ((n, line, fasttext_row(line)[1]) for n, line in enumerate(lines(text), 1))
                return Questions(form, None, "", (Question(n, line, [rest]) for n, line, rest in split if line.strip()))
            case "conll":
                rows = lines(text)
                head = peek(rows)
                delimiter = "\t" if any("\t" in row for row in head) else " "
                return Questions(form, None, delimiter, self._unknown_tags(name, chain(head, rows)))
            case "json" | "jsonl":
                found = self._objects(name, form, text, asked=not whole)
                return Questions(form, None, "", self._asked_objects(name, found))
        found = self._table(name, form, text, asked=not whole)
        return Questions(form, found.header, found.delimiter, self._asked_cells(name, found))

    def found(self, path: Path, form: Format) -> Rows:
        """Find where the rows of one file have the fields."""
        text, name = self._text(path, form, None, None), str(path)
        return self._objects(name, form, text) if form in ("json", "jsonl") else self._table(name, form, text)

    def finish(self) -> None:
        """End the reading: raise an error if rows were bad, unless data.on_error=skip."""
        self._refuse_bad()
        if self.sources:
            self.sources.finish()

    def _refuse_bad(self) -> None:
        if not self.ledger.bad_rows or self.config.on_error == "skip":
            return
        what = "Mend these rows, say which columns to read (data.columns), or leave such rows out with "
        what += "data.on_error=skip."
        if self.config.source in MEDIA:
            raise InputError(
                f"{self.ledger.first_bad(FAULTS_SHOWN)}. Expected a {self.config.source} that can be read and its text "
                f"in every row. {what}"
            )
        if not self.some_good:
            what = "No row so far has them: say which columns to read (data.columns), what stands between them "
            what += "(data.delimiter) or how the file is written (data.format)."
        raise InputError(
            f"{self.ledger.first_bad(FAULTS_SHOWN)}. Expected {' and '.join(self.shape.fields)} in every row. {what}"
        )

    def _text(self, path: Path, form: Format, tick: Tick | None, opened: IO[bytes] | None = None) -> Iterator[str]:
        longest = 0 if form == "json" else LONGEST_LINE
        notes = form not in ("csv", "json")  # there "\r\n" is an ordinary line end
        encoding, ledger = self.config.encoding, self.ledger
        return blocks(path, encoding, ledger, tick, opened=opened, longest=longest, note_line_ends=notes)

    def parallel(self, source: Path, target: Path, tick: Tick | None) -> Iterator[Example]:
        """Stream the examples of two files: line n of one is the translation of line n of the other."""
        sources = lines(blocks(source, self.config.encoding, self.ledger, tick))
        targets = lines(blocks(target, self.config.encoding, self.ledger))
        pairs, counts, half = zip_longest(sources, targets), [0, 0], 0
        for number, (left, right) in enumerate(pairs, 1):
            counts[0] += left is not None
            counts[1] += right is not None
            if left is not None and right is not None:
                half += bool(left.strip()) != bool(right.strip())
                yield from self._example([left, right], str(source), number)
        if counts[0] != counts[1]:
            raise InputError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}. Expected line n of one to be the "
                "translation of line n of the other; give files of the same length."
            )
        if half:
            self.ledger.note(f"one side is blank in {half:,} of the pairs, which are read as they are", str(source))
        self.finish()

    def bad(self, path: str, line: int, reason: str, source: str = "") -> None:
        """Count a row that cannot be used; raise an error if there are too many. `source`: the sound or picture that
        the reason is about."""
        self.ledger.bad_row(path, line, reason, source)
        if self.ledger.bad_rows > FAULTS_SHOWN:
            self._refuse_bad()

    def _example(
        self, values: Values, path: str, line: int, spans: SchemeReader | None = None, lines: Iterable[int] = ()
    ) -> Iterator[Example]:
        """Yield a row's example, or the units of its running text; nothing for a blank or bad row."""
        if not any(values):
            self.ledger.blank_lines += 1
            return
        made, fault = self.shape.example(values, self.config), ""
        if isinstance(made, Example) and self.config.source in MEDIA:
            yield from self._of_source(made._replace(text=resolved(made.text, path), path=path, line=line))
            return
        if isinstance(made, Example) and spans is not None:
            tags, fault = spans.read(made.tags, lines)
            made = made._replace(tags=tags)
        if isinstance(made, str) or fault:
            self.bad(path, line, fault or str(made))
        elif self.shape.running:
            self.some_good = True
            yield from units(iter([made.text]), path, self.config, self.ledger, line)
        else:
            self.some_good = True
            yield made.at(path, line)

    def _of_source(self, made: Example) -> Iterator[Example]:
        """Yield the example of a row that names a sound or a picture, if that can be used."""
        try:
            found = self.sources.next(made) if self.sources else made
        except BadSourceError as error:
            self.bad(made.path, made.line, str(error), made.text)
            return
        self.some_good = True
        yield found

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
        if [label for label, count in labels.items() if count == 1] == names[:1] and all(map(is_name, names)):
            columns = shlex.quote(f"data.columns={','.join(names)}")
            why = f"as its label, '{first.label[:60]}', comes nowhere else"
            self.ledger.note(f"say {columns} if the first row is a header, {why}", first.path)

    def _place(self, place: Place, path: str) -> Place:
        """Note a choice of columns that its owner may not expect."""
        if place.said:
            self.ledger.choose(place.said, path)
        return place

    # Tables

    def _table(self, path: str, form: Format, text: Iterator[str], asked: bool = False) -> Rows:
        """Find the columns of a table, from its first rows."""
        every = lines(text)
        if form == "csv":
            head = peek(every, SEEN_LINES)
            delimiter = self.config.separator or see_delimiter(head)
            rows = csv_rows(path, chain(head, every), delimiter)
        else:
            delimiter = self.config.separator or "\t"
            rows = ((n, line.split(delimiter)) for n, line in enumerate(every, 1))
        first = next((row for row in rows if any(row[1])), None)
        if first is None:
            return Rows(Place(()), iter(()), None, delimiter)
        line, cells = first
        head_rows = peek(rows)
        where, sample = f"{path}, line {line}", [cells for _, cells in head_rows if any(cells)]
        place = self._place(place_in_table(where, cells, sample, self.shape, self.config, asked), path)
        rest = chain(head_rows, rows)
        return (
            Rows(place, rest, cells, delimiter) if place.header else Rows(place, chain([first], rest), None, delimiter)
        )

    def _cells(self, path: str, table: Rows) -> Iterator[tuple[int, list[str], Values]]:
        """Yield the rows that have enough columns, each with the cells of its fields; blank rows without any."""
        picks, width = table.place.picks, table.place.width
        needed = max(picks, default=0) + 1
        for line, cells in table.rows:
            if not any(cells):
                yield line, cells, []
            elif len(cells) < needed or (width and len(cells) != width):
                self.bad(path, line, f"has {_many(len(cells))}, expected {width or needed}")
            else:
                yield line, cells, [cells[pick] for pick in picks]

    def _from_table(self, path: str, table: Rows) -> Iterator[Example]:
        for line, _, values in self._cells(path, table):
            yield from self._example(values, path, line)

    def _asked_cells(self, path: str, table: Rows) -> Iterator[Question]:
        for line, cells, values in self._cells(path, table):
            if values:
                self.some_good = True
                yield Question(line, cells, values)
            else:
                self.ledger.blank_lines += 1

    # fastText

    def _fasttext(self, path: str, rows: Iterator[str]) -> Iterator[Example]:
        for number, row in enumerate(rows, 1):
            labels, text = fasttext_row(row)
            if len(labels) > 1 and self.shape.labelled and self.config.label != "classes":
                self.bad(path, number, f"has {len(labels)} labels, expected 1 (data.label=classes reads several)")
            else:
                values = [text] if self.shape.running else [",".join(labels), text]
                yield from self._example(values if row.strip() else [], path, number)

    # Objects

    def _objects(self, path: str, form: Format, text: Iterator[str], asked: bool = False) -> Rows:
        """Find the keys of JSON objects, from the first of them."""
        rows = self._from_lines(text) if form == "jsonl" else self._from_items(json_rows(path, text), asked)
        if within := self.shape.rows_within:
            rows = ((line, row) for line, value in rows for row in within(value))
        head = peek(rows)
        objects = [row for _, row in head if isinstance(row, dict)]
        where = f"{path}, line {head[0][0]}" if head else path
        place = self._place(place_in_objects(where, objects, self.shape, self.config, asked), path)
        return Rows(place, chain(head, rows))

    def _from_items(self, items: Iterator[tuple[int, Any]], asked: bool) -> Iterator[tuple[int, Any]]:
        """The objects of an array, or what is wrong with them; where one text is enough, a string is a row too."""
        key = self.shape.keys[self.shape.question[0]]
        for line, item in items:
            if isinstance(item, str) and (asked or len(self.shape.keys) == 1):
                yield line, {key: item}
            else:
                yield line, item if isinstance(item, dict) else "is not a JSON object"

    def _from_lines(self, text: Iterator[str]) -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(lines(text), 1):
            if not line or line.isspace():
                self.ledger.blank_lines += 1
            else:
                yield number, json_object(line)

    def _from_objects(self, path: str, found: Rows) -> Iterator[Example]:
        spans = self._span_reader()
        for line, row in found.rows:
            values = self.shape.from_json(row, found.place.picks, self.config) if isinstance(row, dict) else row
            if isinstance(values, list) and (fault := _half_pair(values, found.place.picks)):
                values = fault
            if isinstance(values, str):
                self.bad(path, line, values)
            else:
                yield from self._example(values, path, line, spans, repeat(line))
        self._note_repairs(spans, path)

    def _asked_objects(self, path: str, found: Rows) -> Iterator[Question]:
        for line, row in found.rows:
            values = question_values(self.shape, row, found.place.picks) if isinstance(row, dict) else row
            if isinstance(values, list) and (fault := _half_pair(values, found.place.picks)):
                values = fault
            if isinstance(values, str):
                self.bad(path, line, values)
            else:
                self.some_good = True
                yield Question(line, row, values)

    # Words and tags

    def _span_reader(self) -> SchemeReader | None:
        """Reads the tags of one file as spans, if data.label names a scheme for spans."""
        return SchemeReader(self.config.label) if self.config.label in SCHEMES else None

    def _note_repairs(self, spans: SchemeReader | None, path: str) -> None:
        for remark in spans.repairs() if spans else ():
            self.ledger.note(remark, path)

    def _sentence_rows(self, path: str, rows: Iterator[str]) -> Iterator[list[tuple[int, list[str]]]]:
        """Yield the rows of each sentence of a CoNLL file, with their lines; comments are left out."""
        sentence: list[tuple[int, list[str]]] = []
        for number, row in enumerate(chain(rows, [""]), 1):
            cells = [cell.strip() for cell in row.split("\t")] if "\t" in row else row.split()
            if not any(cells):
                if sentence:
                    yield sentence
                sentence = []
            elif cells[0] == DOCUMENT_MARK:
                self.ledger.note(f"{DOCUMENT_MARK} rows were left out", path)
            elif sentence or not (row.startswith("#") and "\t" not in row):
                sentence.append((number, cells))

    def _sentences(self, path: str, rows: Iterator[str]) -> Iterator[Example]:
        columns: _Columns | None = None
        spans = self._span_reader()
        for sentence in self._sentence_rows(path, rows):
            columns = columns or self._conll_columns(path, *sentence[0])
            found = [(number, columns.pick(cells)) for number, cells in sentence if not columns.skips(cells)]
            bad = [(number, pair) for number, pair in found if isinstance(pair, str)]
            for number, fault in bad:
                self.bad(path, number, fault)
            if found and not bad:
                at, pairs = zip(*found, strict=True)
                yield from self._example(list(zip(*pairs, strict=True)), path, at[0], spans, at)
        self._note_repairs(spans, path)

    def _unknown_tags(self, path: str, rows: Iterator[str]) -> Iterator[Question]:
        """Sentences of a CoNLL file whose words are to be tagged; the column of tags may be missing."""
        for sentence in self._sentence_rows(path, rows):
            universal = _is_universal(sentence[0][1])
            given = self.config.columns.partition(",")[0].strip()
            word = int(given) - 1 if given.isdecimal() and int(given) else int(universal)
            kept = [(line, cells) for line, cells in sentence if not (universal and _is_no_word(cells))]
            short = [line for line, cells in kept if len(cells) <= word or not cells[word]]
            for line in short:
                self.bad(path, line, "has no word")
            if kept and not short:
                self.some_good = True
                words = [cells[word] for _, cells in kept]
                yield Question(sentence[0][0], [cells for _, cells in kept], [words])

    def _conll_columns(self, path: str, line: int, first: list[str]) -> _Columns:
        """Which columns hold word and tag, from data.columns or from the file's first row."""
        universal = _is_universal(first)
        if not self.config.columns:
            word, tag = (1, 3) if universal else (0, len(first) - 1)
        else:
            wanted = wanted_columns(self.shape, self.config)
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

    def skips(self, cells: list[str]) -> bool:
        return self.universal and _is_no_word(cells)

    def pick(self, cells: list[str]) -> tuple[str, str] | str:
        """A row's word and tag, or what is wrong with it."""
        if len(cells) != self.count:
            return f"has {_many(len(cells))} where the file's first row has {self.count}"
        word, tag = cells[self.word], cells[self.tag]
        if not word or not tag:
            return "has no word" if not word else "has no tag"
        return word, tag


def _half_pair(values: Values, keys: tuple[Any, ...]) -> str:
    """Say which value has half a surrogate pair, which is no text."""
    for key, value in zip(keys, values, strict=False):  # values may have more: the places of answers
        if any(map(_SURROGATE.search, [value] if isinstance(value, str) else value)):
            return f"has half a surrogate pair in '{key}'"
    return ""


def _is_universal(cells: list[str]) -> bool:
    """Whether a row is of CoNLL-U."""
    return len(cells) == 10 and _NODE.fullmatch(cells[0]) is not None


def _is_no_word(cells: list[str]) -> bool:
    """Whether a row of CoNLL-U is a range of words or an empty node."""
    return not cells[0].isdecimal() and _NODE.fullmatch(cells[0]) is not None


def _many(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"

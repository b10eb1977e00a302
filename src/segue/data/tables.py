"""Read the rows of tables (csv with any delimiter, tsv), of JSON arrays, and of fastText's files, one after the other;
know by the first of them fastText's and CoNLL's files, and what a column holds.

Each row comes with the number of its first line. The delimiter of a csv is seen from its first lines, where
data.delimiter does not name it. A .json file is an array of rows, or an object with such an array under a key like
"data"; it is read item by item, so that memory does not grow with the file.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from segue.data.config import DELIMITERS
from segue.data.files import LONGEST_LINE
from segue.errors import InputError

T = TypeVar("T")
Kind = Literal["text", "label", ""]
"""What a column holds: long, varied texts; few short labels; or something else."""
Row = tuple[int, list[str]]
"""A line's number and its cells."""

LABEL = "__label__"
"""What stands before each label in a fastText file."""
DOCUMENT_MARK = "-DOCSTART-"
"""What stands in a row of its own where CoNLL-2003 begins a document."""
_TAG = re.compile(r"O|_|[BILSEUM]-\S+|[A-Z$#.,:;()`'\"|_-]+\d*")
"""A tag of a span, or a part of speech."""
_FEWEST_TAGGED = 5
"""Fewer rows of words and tags could be anything."""
ROWS_KEYS = ("data", "rows", "records", "examples", "items", "results")
"""The keys of a JSON object that may hold the array of rows."""
LEAST_ROWS = 10
"""With fewer rows, what a column holds says too little."""
MOST_LABEL_CHARACTERS, MOST_LABEL_WORDS = 30, 3
LEAST_TEXT_WORDS, LEAST_TEXT_CHARACTERS = 3, 15
"""A column of texts has so many words on average, or so many characters where a script has no blanks."""
_ASCII_WORD = re.compile(r"[ -~]*")
PEEKED_ROWS, PEEKED_CHARACTERS = 200, 1 << 20
_SEPARATOR_LINE = re.compile("sep=(.)", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r]*")
_ROWS_FIRST = re.compile(r'\{(?:\s*"\w+"\s*:\s*(?:"[^"\\]*"|[\w.+-]+)\s*,)*\s*"(\w+)"\s*:\s*\[')
"""An object whose first key that holds no plain value holds an array: it is read item by item."""
_CUT_OFF = 16
"""A JSON error so near to the end of what is read, in characters, may come from what is not yet read."""


def peek(rows: Iterator[T], count: int = PEEKED_ROWS) -> list[T]:
    """Take the first rows: so many, and not many more characters than a million."""
    taken: list[T] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(str(row))
        if len(taken) == count or size > PEEKED_CHARACTERS:
            break
    return taken


def see_delimiter(head: Sequence[str]) -> str:
    """The delimiter of a csv: the one that cuts the most of its first lines into the same number of cells, two or more;
    of equals the one that stands most often beside a quotation mark, then the one that is least often followed by a
    blank, as punctuation is; or else the first: comma, semicolon, tab, pipe."""
    if match := _SEPARATOR_LINE.fullmatch(head[0]) if head else None:
        return match[1]  # Excel writes this line

    def fit(delimiter: str) -> tuple[float, int, int]:
        try:
            widths = Counter(len(cells) for cells in csv.reader(_ended(head), delimiter=delimiter) if cells)
        except csv.Error:
            return 0.0, 0, 0
        [(width, count)] = widths.most_common(1) or [(1, 0)]
        beside = sum(line.count(f'{delimiter}"') + line.count(f'"{delimiter}') for line in head)
        blanks = sum(line.count(f"{delimiter} ") for line in head)
        return (count / widths.total(), beside, -blanks) if width > 1 else (0.0, 0, 0)

    return max(DELIMITERS.values(), key=fit)


def csv_rows(name: str, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Yield csv rows, each with the number of its first line."""
    csv.field_size_limit(LONGEST_LINE)  # the module's own limit, 131,072, is less than a long review
    reader = csv.reader(_ended(lines), delimiter=delimiter, strict=True)
    begin = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{name}, row that begins in line {begin}: {error}. Expected a csv row; look for a quotation mark "
                "that is missing or not doubled."
            ) from None
        if begin > 1 or not _SEPARATOR_LINE.fullmatch(delimiter.join(cells)):
            yield begin, cells
        begin = reader.line_num + 1


def _ended(lines: Iterable[str]) -> Iterator[str]:
    return (line + "\n" for line in lines)


def fasttext_row(line: str) -> tuple[list[str], str]:
    """The labels and the text of a line of fastText: __label__good a fine film."""
    labels, rest = [], line.lstrip()
    while rest.startswith(LABEL):
        label, _, rest = rest.partition(" ") if " " in rest else (rest, "", "")
        labels.append(label.removeprefix(LABEL))
        rest = rest.lstrip()
    return labels, rest


def is_fasttext(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are fastText's: each begins with a label."""
    shown = [line for line in lines if line.strip()]
    return bool(shown) and all(line.lstrip().startswith(LABEL) for line in shown)


def is_conll(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are CoNLL's: sentences with a blank line between them, each row with the same
    number of columns, the last of them a tag; or CoNLL-2003's, which begin with a mark."""
    rows = [line.split() for line in lines if line.strip()]
    if rows and rows[0][0] == DOCUMENT_MARK:
        return True
    between = any(not line.strip() for line in lines)
    alike = len({len(row) for row in rows}) == 1 and len(rows) >= _FEWEST_TAGGED and len(rows[0]) > 1
    return between and alike and all(_TAG.fullmatch(row[-1]) for row in rows) and any(row[-1].isalpha() for row in rows)


def kinds_of(columns: Sequence[Sequence[str]]) -> list[Kind]:
    """What each column seems to hold, by its cells in the first rows: texts, labels, or "" if that is not plain."""
    return [_kind(cells) for cells in columns]


def _kind(cells: Sequence[str]) -> Kind:
    count = len(cells)
    if count < LEAST_ROWS:
        return ""
    different = len(set(cells))
    words = sum(len(cell.split()) for cell in cells) / count
    characters = sum(map(len, cells)) / count
    if different > count / 2:
        dense = characters >= LEAST_TEXT_CHARACTERS and not all(map(_ASCII_WORD.fullmatch, cells))
        return "text" if words >= LEAST_TEXT_WORDS or dense else ""
    return "label" if characters <= MOST_LABEL_CHARACTERS and words <= MOST_LABEL_WORDS and any(cells) else ""


def json_rows(name: str, blocks: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a .json file with their lines: items of an array, or objects that follow each other."""
    return _Json(name, blocks).rows()


class _Json:
    """Decodes the values of a JSON text one by one, from blocks of it."""

    def __init__(self, name: str, blocks: Iterator[str]) -> None:
        self.name, self.blocks = name, blocks
        self.text, self.at, self.line = "", 0, 1
        self.decoder = json.JSONDecoder()

    def rows(self) -> Iterator[tuple[int, Any]]:
        first = self._next()
        match = _ROWS_FIRST.match(self.text, self.at) if first == "{" else None
        if match and match[1] in ROWS_KEYS:
            self._pass(match.end() - 1)
            yield from self._array()
        elif first == "[":
            yield from self._array()
            if self._next():
                raise self._refusal("more text follows the array")
        else:
            while self._next():
                line = self.line
                found = self._value()
                yield from ((line, row) for row in _rows_within(found))

    def _array(self) -> Iterator[tuple[int, Any]]:
        self._pass(self.at + 1)
        if self._next() == "]":
            self._pass(self.at + 1)
            return
        while True:
            self._next()
            line = self.line
            yield line, self._value()
            if (mark := self._next()) not in (",", "]"):
                raise self._refusal("a comma or the end of the array is missing")
            self._pass(self.at + 1)
            if mark == "]":
                return

    def _next(self) -> str:
        """Pass over white space, and return the next character; "" at the end."""
        while True:
            match = _SPACE.match(self.text, self.at)
            assert match is not None
            self._pass(match.end())
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        """Decode the next value; read on as long as it is not whole."""
        while True:
            try:
                found, end = self.decoder.raw_decode(self.text, self.at)
            except RecursionError:
                raise self._refusal("it is nested too deep") from None
            except json.JSONDecodeError as error:
                cut_off = error.pos + _CUT_OFF > len(self.text) or error.msg.startswith("Unterminated string")
                if not cut_off or not self._more():
                    raise self._refusal(f"{error.msg} at its character {error.pos - self.at + 1}") from None
                continue
            self._pass(end)
            return found

    def _pass(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def _more(self) -> bool:
        """Read another block; forget what has been passed."""
        if len(self.text) - self.at > LONGEST_LINE:
            raise self._refusal(f"it is longer than {LONGEST_LINE:,} characters")
        block = next(self.blocks, None)
        if block is not None:
            self.text, self.at = self.text[self.at :] + block, 0
        return block is not None

    def _refusal(self, fault: str) -> InputError:
        return InputError(
            f"{self.name}, value that begins in line {self.line}: {fault}. Expected JSON: an array of rows such as "
            '[{"label": "good", "text": "a fine film"}], or {"data": [...]} with such an array; data.format=text reads '
            "any file as running text."
        )


def _rows_within(found: Any) -> list[Any]:
    """The rows in an object such as {"version": 1, "data": [...]}; any other value is a row itself."""
    arrays = [found[key] for key in ROWS_KEYS if isinstance(found.get(key), list)] if isinstance(found, dict) else []
    return arrays[0] if len(arrays) == 1 else [found]

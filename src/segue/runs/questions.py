"""Rows to predict or to score: a file, or standard input, read as the run's own data were.

A table gives its column of texts (columns.py), whether or not it has labels; JSON objects give their key, any other
file its lines. A file is read twice, so that a row that cannot be read is found before the first answer is written.

Where a run reads sound or pictures, rows name them, from the folder of the file that they stand in. A sound or a
picture may also be given itself, an item of a built-in corpus (tones:17), or a folder or a glob of them.
"""

from __future__ import annotations

import glob
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from segue.data.config import Config as Data
from segue.data.config import Format
from segue.data.example import Example
from segue.data.files import extension
from segue.data.ledger import Ledger
from segue.data.media import MEDIA, check_name, decoded, is_path, media_of, resolved
from segue.data.readers import Question, Questions, Reader
from segue.data.shapes import TEXT, TWO_FILES, Shape
from segue.data.sources import by_first_lines
from segue.errors import BadSourceError, InputError

STANDARD_INPUT = "-"
_ROWS: tuple[Format, ...] = ("tsv", "csv", "json", "jsonl", "fasttext")
Make = Callable[[Question], Example]
"""Makes the example that a model reads, or refuses the row."""


class Asked(NamedTuple):
    """A question with its example."""

    question: Question
    example: Example


class QuestionFile:
    """A file of questions, or standard input."""

    def __init__(self, file: str | Path, data: Data, shape: Shape, form: str = "", whole: bool = False) -> None:
        """Open it. `data`: how it is read; `form`: the data.format that was given for this very file; `whole`: every
        field is read, not only those of a question."""
        self.data, self.shape, self.whole = data, shape, whole
        self.ledger = Ledger()
        self.opened: IO[bytes] | None = None
        self.pair: tuple[Path, ...] = ()
        """Two parallel files, SOURCE,TARGET; empty: it is one file."""
        self.streams = False
        """Whether it can be read only once, line by line as it comes."""
        self.count = 0
        """Rows that were found when it was checked; 0 if it streams."""
        self.given: list[str] = []
        """Sounds or pictures that were given themselves, and not by a file with their names."""
        self._bad: set[int] = set()
        """Lines that name a sound or a picture that cannot be read, found when it was checked."""
        if data.source in MEDIA and not whole and (given := _given_sources(str(file), data)):
            self.path, self.given = Path(file), given
            self.form: Format = "tsv" if _is_folder(str(file)) else "text"
            return
        if file == STANDARD_INPUT:
            self.path, self.form = Path("standard input"), self._given(form) or "text"
            self.streams = self.form == "text"
            self.opened = sys.stdin.buffer if self.streams else _spooled(sys.stdin.buffer)
            return
        self.path = Path(file)
        self.pair = self._parallel(str(file))
        if self.pair:
            self.form = "parallel"
            return
        if not self.path.is_file():
            raise self._missing(str(file))
        self.form = self._given(form) or self._by_extension()

    def _parallel(self, file: str) -> tuple[Path, ...]:
        """The two files that SOURCE,TARGET names, where both sides are read."""
        paths = tuple(map(Path, file.split(",")))
        both = self.whole and TWO_FILES in self.shape.formats and len(paths) == 2 and not self.path.is_file()
        return paths if both and all(path.is_file() for path in paths) else ()

    def _missing(self, file: str) -> InputError:
        """What is wrong with a path that is no file; of SOURCE,TARGET, which of the two, or that one is enough."""
        paths = [Path(part) for part in file.split(",")]
        pair = TWO_FILES in self.shape.formats and len(paths) == 2
        absent = [path for path in paths if not path.is_file()] if pair else [Path(file)]
        if not absent:
            return InputError(f"{file} are two files. Expected the file of sources alone: {paths[0]}.")
        expected = "a table, JSON, or a text a line; - stands for standard input"
        if pair and self.whole:
            expected = "SOURCE,TARGET, a table, JSON, or a source, a tab and its target in a line"
        return InputError(f"There is no file {' and no file '.join(map(str, absent))}. Expected {expected}.")

    def _given(self, form: str) -> Format | None:
        """The format that the user has named."""
        can: tuple[Format, ...] = ("text", *_ROWS, *(self.shape.formats.values()))
        found = next((one for one in can if one == form and one != "parallel"), None)
        if form not in ("", "auto") and found is None:
            named = ", ".join(dict.fromkeys(one for one in can if one != "parallel"))
            raise InputError(f"data.format={form} cannot be read here. Expected one of: {named}.")
        return found

    def _by_extension(self) -> Format:
        """By the extension; for .txt and others by the run's own data.format, or by its first lines."""
        kind = extension(self.path)
        form = {**TEXT.formats, **self.shape.formats}.get(kind) if kind != ".txt" else None
        if form is None and self.data.format in _ROWS:
            form = self.data.format
        return form or by_first_lines(self.path, self.data, self.shape) or "text"

    def asked(self, make: Make) -> tuple[Questions, Iterator[Asked]]:
        """Check the whole file, then stream it; lines of standard input are streamed at once."""
        if not self.streams:
            self.count = sum(1 for _ in self._each(self._open(self.ledger), self.ledger, make))
        ledger = self.ledger if self.streams else Ledger()
        found = self._open(ledger)
        return found, self._each(found, ledger, make)

    def _open(self, ledger: Ledger) -> Questions:
        if self.opened and not self.streams:
            self.opened.seek(0)
        self._reader = Reader(self.data, self.shape, ledger)
        if self.given:
            rows = enumerate(self.given, 1)
            table = self.form == "tsv"
            return Questions(
                self.form, None, "\t", (Question(n, [name] if table else name, [name]) for n, name in rows)
            )
        if self.pair:
            examples = self._reader.parallel(self.pair[0], self.pair[1], None)
            each = (Question(one.line, one, [one.text, one.target]) for one in examples)
            return Questions("parallel", None, "", each)
        return self._reader.ask(self.path, self.form, self.opened, self.whole)

    def _each(self, found: Questions, ledger: Ledger, make: Make) -> Iterator[Asked]:
        reader, none = self._reader, True
        for question in found.each if self.data.source not in MEDIA else self._sources(found.each):
            none = False
            try:
                yield Asked(question, make(question))
            except InputError as error:
                raise InputError(f"{self.path}:{question.line}: {error}") from None
        reader.finish()
        if none:
            skipped = f"; {ledger.bad_rows} bad rows were skipped" if ledger.bad_rows else ""
            what = "is empty" if self.form == "text" and not skipped else "holds no rows"
            raise InputError(f"{self.path} {what}{skipped}. Expected a text in each row or line.")

    def _sources(self, questions: Iterator[Question]) -> Iterator[Question]:
        """Name sources from the folder of this file; leave out those that cannot be read (data.on_error=skip)."""
        checked = self.count > 0
        for question in questions:
            first, *rest = question.values
            name, tab, target = first.partition("\t") if self.whole and not rest else (first, "", "")
            if not self.given and not self.pair:
                name = resolved(name, str(self.path))
            if question.line in self._bad or (not checked and name and self._is_bad(name, question.line)):
                continue
            yield question._replace(values=[name + tab + target, *rest])

    def _is_bad(self, name: str, line: int) -> bool:
        """Whether a sound or a picture cannot be read; of standard input, and of a single one, that is told at once."""
        if not (fault := self._fault(name)):
            return False
        if self.given and self.form == "text":
            raise InputError(f"{name[:200]} {fault}.")
        self._bad.add(line)
        self._reader.bad(str(self.path), line, fault, name)
        if self.streams:
            self._reader.finish()
        return True

    def _fault(self, name: str) -> str:
        """Say what is wrong with a sound or a picture; '' if nothing is."""
        try:
            check_name(name, self.data)
            decoded(name, self.data)
        except BadSourceError as error:
            return str(error)
        return ""


def _given_sources(file: str, data: Data) -> list[str]:
    """The sounds or pictures that a name stands for: itself, or those in a folder or of a glob; none: it is a file with
    their names."""
    if media_of(file) and (not is_path(file) or not glob.has_magic(file) or Path(file).exists()):
        return [file]
    if not _is_folder(file):
        return []
    names = Path(file).rglob("*") if Path(file).is_dir() else map(Path, glob.glob(file, recursive=True))  # noqa: PTH207
    found = sorted(str(name) for name in names if media_of(str(name)) == data.source and name.is_file())
    if not found:
        raise InputError(f"{file} holds no {data.source}. Expected files of it, or a table or text with their names.")
    return found


def _is_folder(file: str) -> bool:
    """Whether a name is that of a folder, or a glob."""
    return Path(file).is_dir() or (glob.has_magic(file) and is_path(file) and not Path(file).exists())


def _spooled(stream: IO[bytes]) -> IO[bytes]:
    """Copy a stream to the disk, so that it can be checked before the first answer."""
    file = tempfile.TemporaryFile(prefix="segue-")  # noqa: SIM115 (it is deleted when it is closed)
    shutil.copyfileobj(stream, file)
    return file

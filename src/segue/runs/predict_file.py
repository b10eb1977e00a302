"""Predict a file: out comes what went in, with the predictions.

A csv or tsv comes back as one, with its columns and its delimiter, and with the prediction and its probability in new
columns; JSON objects come back with all their keys and with the labels' probabilities by name; CoNLL with another
column; of lines of text, the predictions alone come, one a line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee, zip_longest
from typing import Any, NamedTuple

from segue.batches.frames import cut_frames
from segue.data.readers import Question, Questions
from segue.data.tables import fasttext_row
from segue.errors import InputError
from segue.inference.alignment import Alignment, aligned, check_attends
from segue.look.explain.leave_one_out import Mattered, most_moving
from segue.look.terminal import explained_line
from segue.runs.folder import to_json
from segue.runs.questions import Asked, QuestionFile
from segue.runs.resume import Settings
from segue.runs.run import Run
from segue.training.log import Progress, silent

REASONS = "words for it"
"""The column of the words that mattered."""


class Answered(NamedTuple):
    """A row with its prediction."""

    question: Question
    answer: Any
    words: Sequence[Mattered] | None
    """The words that mattered, if they were asked for."""
    alignment: Alignment | None = None
    """The alignment with the source, if it was asked for."""

    def line(self) -> str:
        """The prediction as a line."""
        if self.words is not None:
            return explained_line(self.answer, self.words)
        line: str = self.answer.line()
        links = self.alignment.line() if self.alignment else ""
        return f"{line} ||| {links}" if links else line


class PredictedFile:
    """The predictions for one file."""

    def __init__(
        self, run: Run, file: str, settings: Settings = (), explain: bool = False, alignment: bool = False
    ) -> None:
        self.run, self.explain, self.alignment = run, explain, alignment
        run.must_predict(explain)
        if alignment:
            check_attends(run.model)
        self.decode, data, form = run.split_settings(settings, "a prediction")
        self.decoding = run.decoding(self.decode)
        if alignment and self.decoding.get("n_best", 1) > 1:
            raise InputError(
                f"--alignment is of one translation, and decode.n_best is {self.decoding['n_best']}. Leave out either."
            )
        self.file = QuestionFile(file, data, run.recipe.shape, form)
        self.cut = 0
        """Tokens or frames that the model did not read, since a text is too long."""

    def unread(self) -> str:
        """Say how much the model did not read, since texts are too long; '' if it read all."""
        limit = self.run.recipe.batches.length
        if not self.cut:
            return ""
        if self.run.sizes.frame:
            return f"{cut_frames(self.cut, limit, self.run.sizes.source)}."
        return f"{self.cut:,} tokens beyond {limit:,} a line were not read."

    def lines(self, json: bool = False, progress: Progress = silent) -> Iterator[str]:
        """Yield the lines of the file with its predictions; with `json` a JSON object a row, whatever the file is."""
        found, asked = self.file.asked(self.run.example_of)
        rows = self._reported(self._answered(asked), progress)
        if json or found.form == "jsonl":
            return (to_json(self._object(found, row)) for row in rows)
        match found.form:
            case "json":
                return _array(to_json(self._object(found, row)) for row in rows)
            case "csv" | "tsv":
                return self._table(found, rows)
            case "conll":
                return (line for row in rows for line in _columns(found, row))
        return (row.line() for row in rows)

    def _reported(self, rows: Iterator[Answered], progress: Progress) -> Iterator[Answered]:
        """Report progress; of standard input nobody knows how much there is."""
        for number, row in enumerate(rows, 1):
            yield row
            if self.file.count:
                progress("predicting", number / self.file.count)

    def _answered(self, asked: Iterator[Asked]) -> Iterator[Answered]:
        asked, again = tee(self._counted(asked))  # the predictor reads a batch ahead
        examples = (each.example for each in asked)
        answers: Iterable[tuple[Any, Any]]
        if self.explain:
            answers = self.run.explain_examples(examples)
        else:
            answers = ((answer, None) for answer in self.run.predict_examples(examples, self.decode))
        rows = zip(again, answers, strict=True)
        if self.alignment:
            return self._aligned(rows)
        return (Answered(each.question, *answer) for each, answer in rows)

    def _aligned(self, rows: Iterator[tuple[Asked, tuple[Any, Any]]]) -> Iterator[Answered]:
        rows, again = tee(rows)
        found = aligned(self.run.opened, ((each.example.text, answer.text) for each, (answer, _) in again))
        for (each, (answer, words)), alignment in zip(rows, found, strict=True):
            yield Answered(each.question, answer, words, alignment)

    def _counted(self, asked: Iterator[Asked]) -> Iterator[Asked]:
        for each in asked:
            self.cut += self.run.task.cut(self.run.opened, each.example)
            yield each

    def _object(self, found: Questions, row: Answered) -> dict[str, Any]:
        """A row as a JSON object: what it had, and the prediction; a key that it has itself stays as it is, and the
        predicted one is then called predicted_label."""
        own = _named(found, row.question)
        new = row.answer.json()
        if row.words is not None:
            new["words"] = [word._asdict() for word in row.words]
        if row.alignment is not None:
            new["alignment"] = row.alignment.links()
        if self.decoding:
            new["decode"] = self.decoding
        shape = self.run.recipe.shape
        read = {shape.keys[field] for field in shape.question}
        echoed = {key for key in read & set(own) if own[key] == new.get(key)}  # a tagger repeats the words
        return {**own, **{f"predicted_{key}" if key in own else key: new[key] for key in new if key not in echoed}}

    def _table(self, found: Questions, rows: Iterator[Answered]) -> Iterator[str]:
        """The lines of a table: its header, if it has one, and its rows, each with new columns."""
        begun = False
        for row in rows:
            new = self.run.task.cells(row.answer)
            if row.words is not None:
                new[REASONS] = most_moving(row.words)
            if row.alignment is not None:
                new["alignment"] = row.alignment.line()
            if found.header is not None and not begun:
                yield _line(found, [*found.header, *_free_names(found.header, new)])
            begun = True
            missing = len(found.header or ()) - len(row.question.row)
            yield _line(found, [*row.question.row, *[""] * missing, *new.values()])


def _line(found: Questions, cells: Sequence[str]) -> str:
    """Write a row of a table; a tsv has no quoting, so that a tab or line end becomes a blank."""
    if found.form == "tsv":
        return found.delimiter.join(" ".join(cell.split("\n")).replace(found.delimiter, " ") for cell in cells)
    written = io.StringIO()
    csv.writer(written, delimiter=found.delimiter, lineterminator="").writerow(cells)
    return written.getvalue()


def _free_names(header: Sequence[str], new: Iterable[str]) -> Iterator[str]:
    """Names for new columns that the table does not have yet."""
    for name in new:
        number, free = 1, name
        while free in header:
            number, free = number + 1, f"{name} {number + 1}"
        yield free


def _array(objects: Iterator[str]) -> Iterator[str]:
    """The lines of a JSON array."""
    before = "["
    for text in objects:
        yield before
        before = text + ","
    yield before.removesuffix(",")
    yield "]"


def _columns(found: Questions, row: Answered) -> Iterator[str]:
    """The lines of a sentence in CoNLL's form, with the predicted tag as the last column; _ where none was read."""
    for cells, tag in zip_longest(row.question.row, row.answer.json()["tags"], fillvalue="_"):
        yield found.delimiter.join([*cells, tag])
    yield ""


def _named(found: Questions, question: Question) -> dict[str, Any]:
    """A row's values by their names."""
    if isinstance(question.row, dict):
        return dict(question.row)
    if found.form in ("csv", "tsv"):
        names = found.header or [f"column {number}" for number in range(1, len(question.row) + 1)]
        return dict(zip(names, question.row, strict=False))
    if found.form == "fasttext":
        return {"text": fasttext_row(question.row)[1]}
    return {"words": question.values[0]} if found.form == "conll" else {"text": question.row}

"""Tables as people have them: other delimiters, columns and formats; read alike, or refused with what to type."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.data import tables
from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.from_list import guess_rows, write_rows
from segue.data.shapes import LABELLED, PARALLEL, TAGGED, TEXT, Shape
from segue.data.sources import guess_shape
from segue.data.tables import json_rows, see_delimiter
from segue.errors import InputError

ROWS = [("good" if i % 2 else "bad", f'the film, number {i}; it is "{"fine" if i % 2 else "dull"}"') for i in range(20)]


def corpus(path: Path, shape: Shape = LABELLED, **keys: Any) -> Corpus:
    return Corpus(Config(path=str(path), validation=0, **keys), shape)


def pairs(path: Path, **keys: Any) -> list[tuple[str, str]]:
    return [(row.label, row.text) for row in corpus(path, **keys).examples("all")]


def refusal(path: Path, shape: Shape = LABELLED, **keys: Any) -> str:
    with pytest.raises(InputError) as caught:
        corpus(path, shape, **keys)
    return str(caught.value)


def written(header: list[str], rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([header, *rows] if header else rows)
    return text.getvalue()


# The same rows, however they are written


def formats() -> Iterator[tuple[str, str]]:
    two = [[label, text] for label, text in ROWS]
    swapped = [[text, label] for label, text in ROWS]
    more = [[str(i), text, label, f"2024-01-{i + 1:02d}"] for i, (label, text) in enumerate(ROWS)]
    for delimiter in ",;\t|":
        yield f"{ord(delimiter)}.csv", written(["label", "text"], two, delimiter)
        yield f"{ord(delimiter)}b.csv", written([], two, delimiter)
    yield "excel.csv", "\ufeff" + written(["sentiment", "review"], two, ";")
    yield "sep.csv", "sep=;\r\n" + written([], two, ";")
    yield "more.csv", written(["id", "review", "sentiment", "date"], more)
    yield "other.csv", written(["nr", "said", "verdict", "date"], more)
    yield "bare.csv", written([], more)
    yield "swapped.csv", written([], swapped)
    yield "swapped.tsv", "".join(f"{text}\t{label}\n" for label, text in ROWS)
    yield "keys.jsonl", "".join(json.dumps({"stars": a, "reviewText": b, "n": 1}) + "\n" for a, b in ROWS)
    yield "array.json", json.dumps([{"label": label, "text": text} for label, text in ROWS])
    yield "within.json", json.dumps({"version": 1, "data": [{"class": a, "body": b} for a, b in ROWS]}, indent=1)
    yield "lines.json", "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in ROWS)
    yield "fast.txt", "".join(f"__label__{label} {text}\n" for label, text in ROWS)


@pytest.mark.parametrize(("name", "content"), list(formats()), ids=[name for name, _ in formats()])
def test_the_same_rows_are_read_from_every_table(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    assert pairs(path) == ROWS
    assert guess_shape(str(path)) is LABELLED
    if not name.endswith((".tsv", "bare.csv", "9.csv", "9b.csv")) and "swapped" not in name:
        texts = [row.text for row in corpus(path, TEXT).examples("all")]
        assert texts == [text for _, text in ROWS]  # a language model reads no labels and no punctuation of the format


def test_a_choice_of_columns_is_said_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(written(["id", "review", "sentiment"], [["1", text, label] for label, text in ROWS]))
    said: list[str] = []
    config = Config(path=str(path), validation=0)
    ledger = Corpus(config, LABELLED, lambda what, share: said.append(what)).ledger
    choice = "read label from 'sentiment' and text from 'review' (data.columns=sentiment,review)"
    assert [what for what in said if what.endswith(".")] == [f"{path}: {choice}."]
    assert f"{choice}: {path}" in ledger.to_dict()["notes"]
    assert corpus(path, columns="sentiment,review").ledger.notes() == []


def test_a_csv_from_windows_needs_no_note(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"label,text\r\ngood,fine\r\nbad,dull\r\n")
    assert corpus(path).ledger.summary() == []


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)] * 3),
        min_size=3,
        max_size=12,
    ),
    st.sampled_from(",;\t|"),
)
def test_the_delimiter_of_quoted_rows_is_seen(rows: list[tuple[str, ...]], delimiter: str) -> None:
    """Whatever cells hold, if each is quoted: no other delimiter then stands outside of quotes."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    lines = text.getvalue().removesuffix("\n").split("\n")
    assert see_delimiter(lines) == delimiter
    assert [tuple(cells) for _, cells in tables.csv_rows("a", lines, delimiter)] == rows


def test_a_delimiter_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("good~a fine, warm film\nbad~a dull, cold film\n")
    for delimiter in ("~",):
        assert pairs(path, delimiter=delimiter) == [("good", "a fine, warm film"), ("bad", "a dull, cold film")]
    path.write_text("good;a fine, warm film\nbad;a dull, cold film\n")
    assert pairs(path, delimiter="semicolon") == [("good", "a fine, warm film"), ("bad", "a dull, cold film")]
    with pytest.raises(ValueError, match=r"data\.delimiter is '::'; expected auto, comma"):
        Config(delimiter="::")


# What is refused


@pytest.mark.parametrize(
    ("name", "content", "keys", "told"),
    [
        ("a.csv", "id,a,b,c\n1,x,y,z\n2,x,y,z\n", {}, ["the columns are id, a, b, c", "data.columns=id,a"]),
        ("a.csv", "day,stars,class,review\n1,2,x,y\n2,2,x,y\n", {}, ["data.columns=stars,review"]),
        (
            "a.csv",
            "id,sentiment,review\n1,x,y\n",
            {"columns": "sentimet,review"},
            ["but not sentimet (", "=sentiment,r"],
        ),
        (
            "a.jsonl",
            '{"class": "x", "body": "y"}\n',
            {"columns": "class,x"},
            ["but not x (", "data.columns=class,body"],
        ),
        ("a.jsonl", '{"a": "x", "b": "y"}\n', {}, ["the keys are a, b", "data.columns=a,b"]),
        ("a.json", '{"name": "x", "files": ["y"]}', {}, ["the keys are name, files", "Expected label and text"]),
        ("a.json", '["a", "b"]', {}, ["a.json:1 is not a JSON object"]),
        ("a.json", '[{"label": "a", "text": "b"},', {}, ["a.json", "Expected JSON: an array of rows"]),
        ("a.json", '[{"label": "a", "text": "b"}] x', {}, ["more text follows"]),
        ("a.json", '[{"label": "a", "text": "b"}\n{"label": "a"}]', {}, ["a comma"]),
        ("a.csv", "label,text,text\na,b,c\n", {}, ["columns 2 and 3", "'text'", "data.columns=1,2"]),
        ("a.csv", "y,x,x\na,b,c\n", {"columns": "y,x"}, ["columns 2 and 3", "'x'"]),
        ("a.csv", "a,b\nc,d\n", {"columns": "1,1"}, ["names 1 twice"]),
        ("a.csv", "label,text\n1_000,x\n", {"label": "number"}, ["a.csv:2", "'1_000'", "no number"]),
        ("a.txt", "__label__a __label__b both\n", {}, ["a.txt:1 has 2 labels", "data.label=classes"]),
    ],
)
def test_what_is_not_plain_is_refused_with_the_line_to_type(
    tmp_path: Path, name: str, content: str, keys: dict[str, Any], told: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    message = refusal(path, **keys)
    for part in told:
        assert part in message


def test_nobody_is_told_to_skip_every_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("no comma here\n" * 20)
    assert "has 1 column, expected 2" in refusal(path) and "on_error=skip" not in refusal(path)
    path.write_text("good,fine\n" + "no comma here\n" * 20)
    assert "on_error=skip" in refusal(path)


@pytest.mark.parametrize("rows", [ROWS[:5], [("good", "x"), ("bad", "y")] * 20])
def test_what_is_not_plainly_swapped_is_read_in_order(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{text}\t{label}\n" for label, text in rows))
    assert pairs(path) == [(text, label) for label, text in rows]


def test_several_labels_of_fasttext(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("__label__b __label__a both\n__label__a one\n")
    assert [row.tags for row in corpus(path, label="classes").examples("all")] == [("a", "b"), ("a",)]


# JSON, item by item


@settings(max_examples=40)
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=3), st.one_of(st.text(max_size=6), st.integers(), st.lists(st.booleans(), max_size=2))
        ),
        max_size=6,
    ),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
)
def test_an_array_is_read_whatever_the_blocks(rows: list[Any], size: int, indent: int | None) -> None:
    text = json.dumps(rows, indent=indent)
    blocks = (text[i : i + size] for i in range(0, len(text), size))
    found = list(json_rows("a.json", blocks))
    assert [row for _, row in found] == rows
    if indent:
        lines = text.split("\n")
        assert all(lines[line - 1].lstrip().startswith("{") for line, _ in found)


def test_a_json_file_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of an array may be longer than a line of text may be; a single item may not."""
    monkeypatch.setattr(tables, "LONGEST_LINE", 1000)
    items = (json.dumps({"label": "a", "text": "x" * 90}) + "," for _ in range(500))
    rows = json_rows("a.json", iter(["[", *items, '{"label": "b", "text": "y"}', "]"]))
    assert sum(1 for _ in rows) == 501
    with pytest.raises(InputError, match="longer than 1,000 characters"):
        list(json_rows("a.json", iter(['["', *["x" * 400] * 5, '"]'])))


# Folders


def test_a_folder_in_a_folder_that_may_not_be_read_is_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for the system's answer: for the superuser every folder may be read."""
    (tmp_path / "sub").mkdir()
    for place in (tmp_path / "a.txt", tmp_path / "sub" / "b.txt"):
        place.write_text("some text here\n")
    scan = os.scandir

    def forbidden(place: Any) -> Any:
        if str(place).rstrip("/").endswith("sub"):
            raise PermissionError(13, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", forbidden)
    for path in (tmp_path, tmp_path / "**" / "*.txt"):
        ledger = corpus(path, TEXT).ledger
        assert ledger.notes() == [f"cannot be read (Permission denied), left out: {tmp_path / 'sub'}"]


# Python's own


class Frame:
    """What pandas has of a data frame, and no more than is read."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns, self._rows = list(columns), list(zip(*columns.values(), strict=True))

    def itertuples(self, index: bool = True, name: str | None = "Pandas") -> Iterator[tuple[Any, ...]]:
        assert not index and name is None
        return iter(self._rows)


@pytest.mark.parametrize(
    "given_rows",
    [
        ROWS,
        [{"label": label, "text": text} for label, text in ROWS],
        [{"stars": label, "review": text, "n": 3} for label, text in ROWS],
        {"sentiment": [label for label, _ in ROWS], "comment": [text for _, text in ROWS]},
        Frame(id=list(range(20)), review=[text for _, text in ROWS], stars=[label for label, _ in ROWS]),
    ],
    ids=["pairs", "dicts", "other keys", "columns", "frame"],
)
def test_lists_dicts_and_frames_are_the_same_rows(tmp_path: Path, given_rows: Any) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(given_rows, path, LABELLED)
    assert pairs(path) == ROWS
    assert guess_rows(given_rows) is LABELLED


def test_other_lists_are_known_by_their_first_row() -> None:
    assert guess_rows(["a", "b"]) is TEXT and guess_rows([(["a"], ["D"])]) is TAGGED
    assert guess_rows([{"source": "a", "target": "b"}]) is PARALLEL


def test_swapped_pairs_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"look like \(text, label\).*\[\(label, text\) for text, label in rows\]"):
        write_rows([(text, label) for label, text in ROWS], tmp_path / "rows.jsonl", LABELLED)
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"label": ["a"], "text": ["b", "c"]}, "different lengths"),
        ({"label": "a"}, "a list of values"),
        (3, "type int cannot be read"),
    ],
)
def test_other_data_is_refused(tmp_path: Path, data: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        write_rows(data, tmp_path / "rows.jsonl", LABELLED)

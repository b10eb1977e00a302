"""Shapes of data: each reads its rows from every format, guesses itself, and is all that data/ knows of a task."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import segue.data
from segue import tasks
from segue.data import builtin, grammar
from segue.data.config import Config, Format
from segue.data.corpus import Corpus
from segue.data.example import Answer, Example
from segue.data.from_list import guess_rows, write_rows
from segue.data.shapes import ANSWERS, LABELLED, PARALLEL, SHAPES, TAGGED, TEXT, Shape, guess
from segue.data.sources import guess_shape
from segue.errors import InputError
from segue.models.base import TaskName

FOLDER = Path(segue.data.__file__).parent
by_name = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


def read(path: Path, shape: Shape, **settings: Any) -> list[Example]:
    return list(Corpus(Config(path=str(path), validation=0, **settings), shape).examples("all"))


# What every shape must keep


@by_name
def test_a_shape_is_whole(shape: Shape) -> None:
    assert len(shape.fields) == len(shape.keys)
    assert {len(part) for part in (shape.also, shape.kinds) if part} <= {len(shape.keys)}
    assert set(shape.formats.values()) <= set(get_args(Format)) - {"auto"}
    assert all(name.startswith(".") for name in shape.formats if name not in ("*", "SOURCE,TARGET"))
    assert shape.expected and not shape.expected.endswith(".")


def test_names_are_different_and_the_last_shape_takes_what_is_left() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert guess(".anything", []) is SHAPES[-1]


ROWS: dict[str, list[Any]] = {
    "text": ["one text", "another\nwith two lines"],
    "labelled": [("pos", "good film"), ("neg", "dull film")],
    "tagged": [(["the", "cow"], ["D", "N"]), (["runs"], ["V"])],
    "parallel": [("the cow", "die Kuh"), ("it runs", "sie läuft")],
    "answers": [("who runs?", "the cow runs", "the cow"), ("who eats?", "it runs", "")],
}
EXAMPLES: dict[str, list[Example]] = {
    "text": [Example("one text"), Example("another\nwith two lines")],
    "labelled": [Example("good film", "pos"), Example("dull film", "neg")],
    "tagged": [
        Example("the cow", words=("the", "cow"), tags=("D", "N")),
        Example("runs", words=("runs",), tags=("V",)),
    ],
    "parallel": [Example("the cow", target="die Kuh"), Example("it runs", target="sie läuft")],
    "answers": [
        Example("who runs?", target="the cow runs", answers=(Answer(0, "the cow"),)),
        Example("who eats?", target="it runs"),
    ],
}


@by_name
def test_a_python_list_comes_back_as_examples(tmp_path: Path, shape: Shape) -> None:
    path = tmp_path / "rows.jsonl"
    assert write_rows(ROWS[shape.name], path, shape)
    assert not write_rows(ROWS[shape.name], path, shape)  # the same rows are there already
    expected = [example.at(str(path), line) for line, example in enumerate(EXAMPLES[shape.name], 1)]
    assert read(path, shape) == expected
    assert guess_shape(str(path)) is shape


@by_name
def test_a_row_of_a_list_that_does_not_fit_is_refused(tmp_path: Path, shape: Shape) -> None:
    for row in (3, ("a",), ("a", "b", "c", "d"), ("a", {1}), ("a", "b", {1})):
        with pytest.raises(InputError, match=r"Row 0 of the data is .*; this model needs a (text|pair \(|tuple \()"):
            write_rows([row], tmp_path / "rows.jsonl", shape)


@by_name
def test_the_grammar_makes_rows_that_the_shape_reads_back(tmp_path: Path, shape: Shape) -> None:
    made = list(grammar.sentences(shape.name, 20))
    values = {"text": "text", "label": "label", "words": "words", "tags": "tags", "source": "text", "target": "target"}
    values |= {"question": "text", "context": "target", "answers": "answers"}
    rows = [{key: getattr(example, values[key]) for key in shape.keys} for example in made]
    for row in rows if shape is ANSWERS else ():
        row["answers"] = [{"text": one.text, "answer_start": one.begin} for one in row["answers"]]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(path, shape) == [example._replace(path=str(path)) for example in made]


def test_one_line_for_each_example() -> None:
    def split(text: str) -> str:
        return "|".join(text)

    shown = {shape.name: shape.shown(EXAMPLES[shape.name][0], split) for shape in (LABELLED, TAGGED, PARALLEL, ANSWERS)}
    assert shown["labelled"] == "pos: g|o|o|d| |f|i|l|m"
    assert shown["tagged"] == "the/D cow/N"
    assert shown["parallel"] == "t|h|e| |c|o|w -> d|i|e| |K|u|h"
    assert shown["answers"].startswith("w|h|o| |r|u|n|s|? -> the cow in: t|h|e| |c")
    assert "no answer" in ANSWERS.shown(EXAMPLES["answers"][1], split)
    assert TEXT.shown(Example("ab"), split) == "a|b"


# What is wrong with a row


@given(st.text(max_size=12))
def test_a_label_is_refused_or_kept_stripped(label: str) -> None:
    made = LABELLED.example([label, "x"], Config())
    assert made == ("has no label" if not label.strip() else Example("x", label.strip()))


@pytest.mark.parametrize(
    ("label", "good"), [("3", True), ("-1e3", True), (" 0.5 ", True), ("x", False), ("1e18", False), ("nan", False)]
)
def test_numbers_are_checked(label: str, good: bool) -> None:
    assert isinstance(LABELLED.example([label, "x"], Config(label="number")), Example) == good


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ({"words": ["a"]}, "has no 'tags'"),
        ({"words": "a", "tags": ["D"]}, "has 'words' that are not a list of words"),
        ({"words": [], "tags": []}, "has 'words' that are not a list of words"),
        ({"words": ["a", "b"], "tags": ["D"]}, "has 2 words but 1 tags"),
    ],
)
def test_objects_with_words_and_tags_are_checked(found: dict[str, Any], fault: str) -> None:
    assert TAGGED.from_json(found, TAGGED.keys, Config()) == fault


# Guessing


@pytest.mark.parametrize(
    ("extension", "lines", "shape"),
    [
        (".txt", ["source,target"], TEXT),
        (".tsv", [], LABELLED),
        (".tsv", ["source\ttarget", "", "Haus\thouse"], PARALLEL),
        (".tsv", ["a\tD", "", "b\tN"], TAGGED),
        (".tsv", ["a\tD", "b\tN"], LABELLED),
        (".csv", ["target,source"], PARALLEL),
        (".iob", [], TAGGED),
        (".ndjson", ['{"text": "a", "label": 1, "source": "b", "target": "c"}'], LABELLED),
        (".ndjson", ['{"words": [], "tags": [], "source": "b", "target": "c"}'], TAGGED),
        (".jsonl", ['{"label": 1, "source": "b", "target": "c"}'], PARALLEL),
        (".jsonl", ["[1]"], TEXT),
        (".jsonl", [""], TEXT),
    ],
)
def test_the_shape_is_told_from_the_first_lines(extension: str, lines: list[str], shape: Shape) -> None:
    assert guess(extension, lines) is shape


def test_a_path_that_cannot_exist_is_running_text() -> None:
    assert guess_shape("x" * 5000) is guess_shape("a\0b") is TEXT
    assert guess_shape("x" * 5000 + ".tsv") is LABELLED


# Adding a shape takes one instance

QUESTIONS = Shape(
    name="questions",
    fields=("question", "answer", "level"),
    keys=("question", "answer", "level"),
    formats={".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl"},
    expected="a question, its answer and its level in each row",
    example=lambda values, config: Example(values[0], values[2], target=values[1]) if values[1] else "has no answer",
    from_json=PARALLEL.from_json,
    fits=lambda extension, lines: False,
    shown=lambda example, split: f"{example.text} {example.target}",
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.tsv", "who?\tnobody\t1\nwhy?\tso\t2\n"),
        ("q.csv", "level,answer,question\n1,nobody,who?\n2,so,why?\n"),
        ("q.jsonl", '{"question": "who?", "answer": "nobody", "level": "1"}\n\n["not one"]\n'),
    ],
)
def test_another_shape_is_read_from_every_format(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    first = read(path, QUESTIONS, on_error="skip")[0]
    assert (first.text, first.target, first.label) == ("who?", "nobody", "1")


def test_another_shape_names_its_own_faults(tmp_path: Path) -> None:
    path = tmp_path / "q.tsv"
    path.write_text("who?\t\t1\n")
    with pytest.raises(InputError, match=r"q\.tsv:1 has no answer\. Expected question and answer and level in every"):
        read(path, QUESTIONS)
    with pytest.raises(InputError, match=r"no such rows\. Expected a question, its answer"):
        Corpus(Config(path="grammar"), QUESTIONS)
    with pytest.raises(InputError, match=r"is running text\. Expected a question, its answer"):
        Corpus(Config(path="copy"), QUESTIONS)
    with pytest.raises(InputError, match=r"needs a tuple \(question, answer, level\)"):
        write_rows([("a", "b")], tmp_path / "rows.jsonl", QUESTIONS)


# Pairs


@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        *(("src", "tgt"), ("en", "de"), ("de", "en"), ("dialogue", "summary"), ("article", "highlights")),
        *(("question", "answer"), ("source_text", "target_text"), ("English", "French"), ("input", "output")),
    ],
)
def test_pairs_are_found_by_usual_names(source: str, target: str, form: str, tmp_path: Path) -> None:
    pairs = [(f"Ann: hello {i}\\nBob: good day, {i}", f"Ann greets Bob, for the {i}th time") for i in range(5)]
    path = tmp_path / f"rows.{form}"
    rows = [{"id": f"k{i}", source: pair[0], target: pair[1]} for i, pair in enumerate(pairs)]
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", source, target], dialect="excel-tab" if form == "tsv" else "excel")
            writer.writeheader()
            writer.writerows(rows)
    assert guess_shape(str(path)) is PARALLEL
    found = Corpus(Config(str(path), validation=0.0), PARALLEL)
    assert [(row.text, row.target) for row in found.examples("train")] == pairs  # a written \\n stays as it is
    turned = Corpus(Config(str(path), validation=0.0, columns=f"{target},{source}"), PARALLEL)
    assert [(row.target, row.text) for row in turned.examples("train")] == pairs


# Where tasks are named


_OF_TEXT = ("embed", "masked_lm")
"""Tasks of running text that are meant only where a model or --task says so: else it is for language models."""


def test_shapes_stand_for_tasks_outside_of_data() -> None:
    shapes = {shape.name for shape in SHAPES}
    assert {tasks.task(name).shape.name for name in tasks.names()} == set(grammar.BY_SHAPE) - {"clauses"} == shapes
    assert {shape.name for row in builtin.describe() for shape in row.shapes} == shapes
    meant = {shape: tasks.of_shape(shape) for shape in shapes}  # where nothing else says so
    assert {shape: tasks.task(name).shape.name for shape, name in meant.items()} == {shape: shape for shape in shapes}
    assert set(meant.values()) == set(get_args(TaskName)) - set(_OF_TEXT)


def test_no_file_of_data_but_shapes_names_a_task() -> None:
    """The grammar's one table has the names, since they seed its sentences."""
    named: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                *([node.value] if isinstance(node, ast.Constant) and node.value in get_args(TaskName) else ()),
                *([node.id] if isinstance(node, ast.Name) and node.id.lower() in ("task", "tasks") else ()),
                *([node.attr] if isinstance(node, ast.Attribute) and node.attr.lower() in ("task", "tasks") else ()),
                *([node.arg] if isinstance(node, ast.arg) and node.arg.lower() in ("task", "tasks") else ()),
            )
            if names:
                named.setdefault(path.name, []).extend(names)
    for name in ("shapes.py", "answers.py"):  # "tag" and "answer" are also columns there
        named.pop(name, None)
    assert {name: sorted(found) for name, found in named.items()} == {
        "grammar.py": sorted(set(get_args(TaskName)) - set(_OF_TEXT))
    }


# Files that are known by what they hold

CONLL_2003 = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP I-PER\n. . O O\n"
SPOKEN = "the D\ndog N\nbarks V\n\na D\ncat N\n"


@pytest.mark.parametrize("content", [CONLL_2003, SPOKEN])
@pytest.mark.parametrize("name", ["eng.train", "tagged.txt"])
def test_conll_is_known_by_its_rows_whatever_its_name(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "same.conll").write_text(content)
    assert guess_shape(str(tmp_path / name)) is TAGGED
    both = [read(tmp_path / each, TAGGED) for each in (name, "same.conll")]
    assert [(one.words, one.tags) for one in both[0]] == [(one.words, one.tags) for one in both[1]]


@pytest.mark.parametrize(
    "content",
    [
        "red rose\nblue sea\n\nold man\nnew moon\nlast day\n",
        "I SAW\nI CAME\n",
        "One line.\n\nAnother LINE\nthird of I\n\nA B\nC D\n",
    ],
)
def test_verses_are_no_conll(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    assert guess_shape(str(tmp_path / "a.txt")) is TEXT


def _objects(text: str, label: str, rows: int = 20) -> list[dict[str, Any]]:
    return [{"uid": i, text: f"number {i} is a film", label: ("fine", "dull")[i % 2]} for i in range(rows)]


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        (_objects("plot", "verdict"), LABELLED),
        (_objects("text", "source"), TEXT),
        (_objects("plot", "verdict", 2), TEXT),
    ],
    ids=["one label and one text", "documents and where they come from", "too few to tell"],
)
def test_objects_are_labelled_where_their_values_plainly_are(
    tmp_path: Path, rows: list[dict[str, Any]], shape: Shape
) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for name, content in (("a.jsonl", lines), ("a.json", json.dumps(rows, indent=1))):
        (tmp_path / name).write_text(content)
        assert guess_shape(str(tmp_path / name)) is shape
    assert guess_rows(rows) is shape

"""`segue predict FILE`: read as evaluate reads it, and written out as it came in, with the predictions."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main

TEXTS = [f"film number {i}, it is {'fine' if i % 2 else 'dull'}" for i in range(24)]
LABELS = ["good" if i % 2 else "bad" for i in range(24)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> segue.Run:
    rows = list(zip(LABELS, TEXTS, strict=True))
    return segue.train("naive_bayes", rows, tmp_path_factory.mktemp("predict") / "run", {"data.validation": 0})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(words: list[Any], capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    said = capsys.readouterr()
    return said.out, said.err


def table(header: list[str], rows: list[list[str]], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([header, *rows] if header else rows)
    return text.getvalue()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("header", "columns"),
    [(["id", "review", "sentiment"], "ntl"), (["id", "review"], "nt"), ([], "lt"), ([], "tl")],
    ids=["labelled", "unlabelled", "bare", "swapped"],
)
def test_a_table_comes_back_with_two_columns_more(
    run: segue.Run, header: list[str], columns: str, delimiter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {"n": [str(i) for i in range(24)], "t": TEXTS, "l": LABELS}
    rows = [list(row) for row in zip(*(cells[column] for column in columns), strict=True)]
    Path("a.csv").write_text(table(header, rows, delimiter), newline="")
    out, err = typed(["predict", run.path, "a.csv"], capsys)
    found = list(csv.reader(out.splitlines(), delimiter=delimiter))
    if header:
        assert found.pop(0) == [*header, "prediction", "probability", "p(bad)", "p(good)"]
    answers = list(run.predict(TEXTS))
    assert [row[: len(columns)] for row in found] == rows
    assert [row[len(columns)] for row in found] == [answer.label for answer in answers]
    sure = [[float(cell) for cell in row[len(columns) + 1 :]] for row in found]
    for numbers, answer in zip(sure, answers, strict=True):
        assert numbers == pytest.approx([max(answer.probabilities), *answer.probabilities], rel=1e-5)
    assert ("review" in header) == ("read text from 'review'" in err)


def test_a_tsv_comes_back_as_one(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.tsv").write_text('label\ttext\ngood\t"it", is fine\nbad\tdull\n')
    out, _ = typed(["predict", run.path, "a.tsv"], capsys)
    assert [line.split("\t")[:3] for line in out.splitlines()] == [
        ["label", "text", "prediction"],
        ["good", '"it", is fine', "good"],
        ["bad", "dull", "bad"],
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_objects_keep_all_their_keys(run: segue.Run, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": 7, "review": "it is fine", "stars": 5}, {"id": 8, "review": "it is dull", "stars": 1}]
    lines = [json.dumps(row) for row in rows]
    Path(name).write_text("\n".join(lines) if name == "a.jsonl" else f"[{','.join(lines)}]")
    out, _ = typed(["predict", run.path, name], capsys)
    found = [json.loads(line) for line in out.splitlines()] if name == "a.jsonl" else json.loads(out)
    for row, answer, each in zip(rows, run.predict(["it is fine", "it is dull"]), found, strict=True):
        assert each == {**row, **answer.json()}
        assert set(each["probabilities"]) == {"good", "bad"}


def test_a_label_of_the_file_is_not_overwritten(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.jsonl").write_text('{"label": "bad", "text": "it is fine"}\n{"label": "good", "text": "it is fine"}\n')
    out, _ = typed(["predict", run.path, "a.jsonl"], capsys)
    found = [json.loads(line) for line in out.splitlines()]
    assert [(row["label"], row["predicted_label"]) for row in found] == [("bad", "good"), ("good", "good")]


def test_strings_of_an_array_are_texts(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.json").write_text('["it is fine", "it is dull"]')
    out, _ = typed(["predict", run.path, "a.json"], capsys)
    assert [(row["text"], row["label"]) for row in json.loads(out)] == [("it is fine", "good"), ("it is dull", "bad")]


def test_json_is_an_object_a_line_whatever_the_file(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("id,text\n7,it is fine\n")
    Path("a.txt").write_text("it is fine\n")
    Path("b.txt").write_text("__label__bad it is fine\n")
    for name, own in (("a.csv", {"id": "7"}), ("a.txt", {}), ("b.txt", {})):
        out, _ = typed(["predict", run.path, name, "--json"], capsys)
        (answer,) = run.predict(["it is fine"])
        assert json.loads(out) == {**own, "text": "it is fine", **answer.json()}


def test_explanations_go_with_tables_and_objects(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("id,text\n7,it is fine\n")
    Path("a.jsonl").write_text('{"text": "it is fine"}\n')
    out, _ = typed(["predict", run.path, "a.csv", "--explain"], capsys)
    header, row = csv.reader(out.splitlines())
    assert header[-1] == "words for it" and row[-1].startswith("fine +")
    out, _ = typed(["predict", run.path, "a.jsonl", "--explain"], capsys)
    assert [word["word"] for word in json.loads(out)["words"]] == ["it", "is", "fine"]


def test_standard_input_is_lines_unless_a_format_is_given(
    run: segue.Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Typed:
        buffer: Any

    for words, expected in (([], ["bad", "good"]), (["data.format=csv"], ["text", "it is fine"])):
        Typed.buffer = io.BytesIO(b"text\nit is fine\n")
        monkeypatch.setattr(sys, "stdin", Typed)
        out, _ = typed(["predict", run.path, "-", *words], capsys)
        assert [line.partition(",")[0] for line in out.splitlines()] == expected


@pytest.mark.parametrize(
    ("name", "content", "words", "told"),
    [
        ("a.csv", "id,text\n" + "1,it is fine\n" * 600 + "2\n", [], "a.csv:602 has 1 column, expected 2"),
        ("a.jsonl", '{"text": "it is fine"}\n' * 600 + "{}\n", [], "a.jsonl:601 has no 'text'"),
        ("a.csv", "id,text\n", [], "a.csv holds no rows"),
        ("a.csv", "id,a,b\n1,x,y\n", [], "the columns are id, a, b. Expected text"),
        ("a.csv", "id,text\n1,x\n", ["data.columns=review"], "the columns are id, text, but not review"),
        ("a.csv", "id,text\n1,x\n", ["data.unit=line"], "data.unit=line cannot be set for a prediction"),
        ("a.csv", "id,text\n1,x\n", ["data.format=parallel"], "data.format=parallel cannot be read here"),
    ],
)
def test_a_row_that_cannot_be_read_stops_before_the_first_answer(
    run: segue.Run, name: str, content: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(content)
    out, err = typed(["predict", run.path, name, *words], capsys, 2)
    assert out == "" and told in err


def test_rows_can_be_left_out_and_are_counted(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("id,text\n1,it is fine\n2\n3,it is dull\n")
    out, err = typed(["predict", run.path, "a.csv", "data.on_error=skip"], capsys)
    assert [line[:1] for line in out.splitlines()] == ["i", "1", "3"] and "1 rows were left out" in err


@pytest.mark.parametrize("verb", ["predict", "score"])
def test_a_line_without_end_on_standard_input_is_refused(
    run: segue.Run, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in files: it must not fill the memory."""

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    class Typed:
        buffer = io.BufferedReader(Endless())

    place = run.path
    if verb == "score":
        place = segue.train("ngram", ["a b c"] * 9, tmp_path / "lm", {"data.validation": 0}).path
    monkeypatch.setattr(sys, "stdin", Typed)
    _, err = typed([verb, place, "-"], capsys, 2)
    assert "standard input, line 1: the line is longer than 10,000,000 characters" in err


def test_answers_are_written_while_the_file_is_read(run: segue.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the check no more than a batch of rows is held, whatever the length of the file."""
    from segue.runs.predict_file import PredictedFile

    Path("a.csv").write_text("id,text\n" + "".join(f"{i},film {i} is fine\n" for i in range(1500)))
    made = 0
    whole = run.example_of

    def counted(question: Any) -> Any:
        nonlocal made
        made += 1
        return whole(question)

    monkeypatch.setattr(run, "example_of", counted)
    lines = PredictedFile(run, "a.csv").lines()
    assert made == 1500  # all were checked
    assert next(lines).startswith("id,text,prediction") and made < 1500 + 600
    assert sum(1 for _ in lines) == 1500 and made == 3000


# Other tasks and Python


def test_conll_gets_a_column_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = [(["the", "cow", "runs"], ["D", "N", "V"]), (["a", "dog"], ["D", "N"])] * 10
    tagger = segue.train("window_tagger", sentences, tmp_path / "t", {"train.steps": 25, "data.validation": 0})
    Path("a.conll").write_text("# a comment\nthe X\ncow X\n\na X\ndog X\n")
    out, _ = typed(["predict", tagger.path, "a.conll"], capsys)
    assert out == "the X D\ncow X N\n\na X D\ndog X N\n\n"
    Path("a.conll").write_text("the\tX\ncow\tX\n")
    assert typed(["predict", tagger.path, "a.conll"], capsys)[0] == "the\tX\tD\ncow\tX\tN\n\n"
    Path("eng.testb").write_text("-DOCSTART- O\n\nthe O\ncow O\n")
    assert typed(["predict", tagger.path, "eng.testb"], capsys)[0] == "the O D\ncow O N\n\n"
    Path("a.jsonl").write_text('{"words": ["the", "cow"], "id": 1}\n')
    out, _ = typed(["predict", tagger.path, "a.jsonl"], capsys)
    found = json.loads(out)
    assert (found["words"], found["tags"], found["id"]) == (["the", "cow"], ["D", "N"], 1)


def test_a_table_is_scored_by_its_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = segue.train("ngram", ["a b c", "b a c"] * 9, tmp_path / "lm", {"data.validation": 0, "data.unit": "line"})
    Path("a.csv").write_text("label,text\ngood,a b\nbad,c\n")
    out, _ = typed(["score", model.path, "a.csv", "--json"], capsys)
    assert [json.loads(line)["logprob"] for line in out.splitlines()] == [
        line.logprob for line in model.score(["a b", "c"])
    ]


def test_the_name_of_a_file_is_no_text(run: segue.Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("review\na fine film\n")
    with pytest.raises(segue.InputError, match=r"a\.csv is a file, and a text is expected here\. Give Path\("):
        run.predict("a.csv")
    assert main(["look", str(run.path), "a.csv"]) == 2
    assert "a.csv is a file" in capsys.readouterr().err
    for text in ("b.csv", "A fine film. Yes.", "long " * 1000 + ".", "x\0.y"):
        assert len(list(run.predict(text))) == 1


def test_python_predicts_files_dicts_and_columns(run: segue.Run) -> None:
    Path("a.csv").write_text("id,review\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    rows = [{"id": i, "review": text} for i, text in enumerate(TEXTS)]
    expected = [answer.label for answer in run.predict(TEXTS)]
    for given in (Path("a.csv"), rows, {"id": list(range(24)), "review": TEXTS}):
        assert [answer.label for answer in run.predict(given)] == expected
        assert [answer.label for answer, _ in run.predict(given, explain=True)] == expected
    assert run.evaluate([{"sentiment": a, "review": b} for a, b in zip(LABELS, TEXTS, strict=True)])["rows"] == 24

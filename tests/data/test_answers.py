"""Questions with their answers in a text: SQuAD's JSON and rows, what is refused, and what is held out together."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from segue.data.answers import placed
from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.example import Answer, Example
from segue.data.from_list import guess_rows, write_rows
from segue.data.shapes import ANSWERS, PARALLEL, guess
from segue.data.sources import guess_shape
from segue.errors import InputError

TEXT = "The dog naps. The old cat sees the dog."
QAS: list[dict[str, Any]] = [
    {"id": "q1", "question": "Who naps?", "answers": [{"text": "The dog", "answer_start": 0}] * 2},
    {"id": "q2", "question": "Who sees?", "answers": [{"text": "cat", "answer_start": 22}], "is_impossible": False},
    {"id": "q3", "question": "Who eats?", "answers": [], "is_impossible": True},
]
WANTED = [(Answer(0, "The dog"),), (Answer(22, "cat"),), ()]


def squad(*paragraphs: dict[str, Any], version: str = "v2.0") -> str:
    return json.dumps({"version": version, "data": [{"title": "Pets", "paragraphs": list(paragraphs)}]})


def read(path: Path, **values: Any) -> list[Example]:
    return list(Corpus(Config(path=str(path), validation=0.0, **values), ANSWERS).examples("all"))


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    return str(error.value)


def rows_as_datasets_have_them() -> str:
    """As Hugging Face's `datasets` writes them."""

    def answers(one: dict[str, Any]) -> dict[str, Any]:
        return {key: [answer[key] for answer in one["answers"]] for key in ("text", "answer_start")}

    return "".join(json.dumps({**one, "context": TEXT, "answers": answers(one)}) + "\n" for one in QAS)


FILES = {
    "squad.json": squad({"context": TEXT, "qas": QAS}),
    "paragraphs.json": json.dumps([{"qas": QAS, "context": TEXT}]),
    "rows.jsonl": rows_as_datasets_have_them(),
    "rows.tsv": f"question\ttext\tanswer\tanswer_start\nWho naps?\t{TEXT}\tThe dog\t0\nWho sees?\t{TEXT}\tcat\t\n"
    f"Who eats?\t{TEXT}\t\t\n",
    "bare.tsv": f"Who naps?\t{TEXT}\tThe dog\nWho sees?\t{TEXT}\tcat\nWho eats?\t{TEXT}\t\n",
    "rows.csv": f'answer,context,question\nThe dog,"{TEXT}",Who naps?\ncat,"{TEXT}",Who sees?\n,"{TEXT}",Who eats?\n',
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
def test_the_same_rows_in_every_form(name: str, packed: str, tmp_path: Path) -> None:
    path, data = tmp_path / (name + packed), FILES[name].encode()
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed](data))
    rows = read(path)
    assert [row.answers for row in rows] == WANTED
    assert [row.text for row in rows] == [one["question"] for one in QAS] and {row.target for row in rows} == {TEXT}
    if name != "bare.tsv":  # without a header it may be anything
        assert guess_shape(str(path)) is ANSWERS


def test_questions_without_a_text_are_pairs() -> None:
    assert guess(".jsonl", ['{"question": "a", "answer": "b"}']) is PARALLEL
    assert guess(".jsonl", ['{"question": "a", "context": "b", "answers": []}']) is ANSWERS


def test_an_article_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    """SQuAD's file is one line, and its first article may be a megabyte."""
    path = written(tmp_path / "s.json", squad(*[{"context": TEXT + " x" * 5000, "qas": QAS}] * 250))
    assert guess_shape(str(path)) is ANSWERS and len(read(path)) == 750


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"answers": [{"text": "the dog", "answer_start": 0}]}, "at 0, but there stands 'The dog'; it stands at 31"),
        ({"answers": [{"text": "dog", "answer_start": 5}]}, "at 5, but there stands 'og '; it stands 2 times"),
        ({"answers": [{"text": "bird", "answer_start": 900}]}, "the text has 39 characters; it stands nowhere"),
        ({"answers": [{"text": "cat", "answer_start": -1}]}, "answer_start '-1', which is no place"),
        ({"answers": [{"text": "cat", "answer_start": 2.5}]}, "answer_start '2.5', which is no place"),
        ({"answers": [{"text": " ", "answer_start": 3}]}, "has an empty answer"),
        ({"answers": [{"answer_start": 3}]}, "has 'answers' without a text"),
        ({"answers": [3]}, "neither texts nor objects"),
        ({"answers": {"text": ["cat"], "answer_start": []}}, "as many places (answer_start) as texts"),
        ({"answers": 7}, "that is not a text, a list or an object"),
        ({"answers": "dog"}, "which stands 2 times in the text: add answer_start"),
        ({"answers": "bird"}, "which does not stand in the text"),
        ({"answers": None}, "has no 'answers'"),
        ({"question": " "}, "has no question"),
        ({"question": None}, "has no 'question'"),
        ({"context": ""}, "has an empty text"),
        ({"context": 3}, "has a 'context' that is not a string"),
        ({"is_impossible": True}, "has an answer, and is_impossible says that there is none"),
    ],
)
def test_bad_rows_are_told_with_their_id(row: dict[str, Any], fault: str, tmp_path: Path) -> None:
    good = {"context": TEXT, **QAS[0]}
    lines = [json.dumps(good), json.dumps(good | {"id": "bad"} | row)]
    path = written(tmp_path / "rows.jsonl", "\n".join(lines) + "\n")
    said = refusal(path)
    assert f"rows.jsonl:2 (question bad) {fault}" in said or (fault in said and ":2 (question bad)" in said)
    assert len(read(path, on_error="skip")) == 1


def test_bad_nesting_is_told(tmp_path: Path) -> None:
    assert "has no 'context' in its paragraph" in refusal(written(tmp_path / "a.json", squad({"qas": QAS})))
    assert "'qas' of the paragraph 'The dog" in refusal(
        written(tmp_path / "b.json", squad({"context": TEXT, "qas": 3}))
    )
    assert "'paragraphs' of the article 'Pets' that are not objects" in refusal(
        written(
            tmp_path / "c.json",
            json.dumps({"data": [{"title": "Pets", "paragraphs": [3, {"context": TEXT, "qas": QAS}]}]}),
        )
    )
    cut = squad({"context": TEXT, "qas": QAS})[:-60]
    assert "d.json, value that begins in line 1" in refusal(written(tmp_path / "d.json", cut))


def test_questions_about_one_text_are_held_out_together(tmp_path: Path) -> None:
    texts = [f"Text {number}. {TEXT}" for number in range(40)]
    rows = [{"question": f"Who {n}?", "context": text, "answers": "cat"} for n in range(3) for text in texts]
    path = written(tmp_path / "r.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    corpus = Corpus(Config(path=str(path), validation=0.2, test=0.1), ANSWERS)
    parts = {split: [row.target for row in corpus.examples(split)] for split in ("train", "validation", "test")}
    assert (
        {split: len(rows) for split, rows in parts.items()}
        == corpus.counts
        == {"train": 84, "validation": 24, "test": 12}
    )
    assert not set(parts["train"]) & set(parts["validation"]) and not set(parts["test"]) & set(parts["train"])
    folds = [Corpus(Config(path=str(path), validation=0, test=f"{n}/4"), ANSWERS) for n in range(1, 5)]
    assert sum(fold.counts["test"] for fold in folds) == len(rows)


def test_places_follow_a_text_that_is_tidied(tmp_path: Path) -> None:
    row = {
        "question": " who ?",
        "context": "  the  old\n dog  naps",
        "answers": [{"text": "old\n dog", "answer_start": 7}],
    }
    [found] = read(written(tmp_path / "r.jsonl", json.dumps(row)), canonical=True)
    assert found.target == "the old dog naps" and found.answers == (Answer(4, "old dog"),)


def test_rows_that_are_given_in_python(tmp_path: Path) -> None:
    dicts = [{"question": "Who?", "context": TEXT, "answers": {"text": ["cat"], "answer_start": [22]}}]
    tuples = [("Who?", TEXT, "cat"), ("Who?", TEXT, "")]
    for number, rows in enumerate((dicts, tuples)):
        assert guess_rows(rows) is ANSWERS
        write_rows(rows, tmp_path / f"{number}.jsonl", ANSWERS)
        assert read(tmp_path / f"{number}.jsonl")[0].answers == (Answer(22, "cat"),)


def test_an_answer_that_stands_once_needs_no_place() -> None:
    assert placed(TEXT, "cat", "") == Answer(22, "cat") == placed(TEXT, "cat", "22") == placed(TEXT, "cat", "22.0")


def test_the_checksum_of_a_split_knows_the_answers(tmp_path: Path) -> None:
    sums = set()
    for number, answer in enumerate(["cat", "old cat"]):
        path = written(tmp_path / f"{number}.jsonl", json.dumps({"question": "a", "context": TEXT, "answers": answer}))
        sums.add(Corpus(Config(path=str(path), validation=0.0), ANSWERS).sha256("train"))
    assert len(sums) == 2

"""What rows to classify are labelled with: one class, several, or a number; and pairs of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from segue.data.corpus import Config, Corpus, Example
from segue.data.shapes import LABELLED
from segue.errors import InputError
from segue.recipe import load_recipe


def read(path: Path, text: str, **settings: Any) -> list[Example]:
    path.write_text(text, encoding="utf-8")
    return list(Corpus(Config(path=str(path), validation=0, **settings), LABELLED).examples("all"))


def refusal(path: Path, text: str, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, text, **settings)
    return str(caught.value)


def test_several_classes_stand_with_commas_between_and_may_be_none(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.tsv", "sport, money\ta b\n\tnone of them\nsport,,sport\tc\n", label="classes")
    assert [(row.tags, row.text) for row in rows] == [
        (("money", "sport"), "a b"),
        ((), "none of them"),
        (("sport",), "c"),
    ]


def notes(path: Path, text: str, **settings: Any) -> list[str]:
    path.write_text(text, encoding="utf-8")
    return Corpus(Config(path=str(path), validation=0, **settings), LABELLED).ledger.summary()


ROWS = "".join(f"{'good' if i % 2 else 'bad'},film {i}\n" for i in range(10))


def test_what_may_be_a_header_is_told_and_the_advice_works(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert notes(path, f"mood,words\n{ROWS}") == [
        f"say data.columns=mood,words if the first row is a header, as its label, 'mood', comes nowhere else: {path}."
    ]
    assert notes(path, f"mood,words\n{ROWS}", columns="mood,words") == []
    [note] = notes(tmp_path / "a.tsv", f"mood\tits words\n{ROWS}".replace(",", "\t"))
    assert "say 'data.columns=mood,its words' if" in note
    [note] = notes(path, "n,mood,one,two\n" + ROWS.replace(",", ",a,").replace("\n", ",b\n"), columns="1,2,4")
    assert "say data.columns=n,mood,two if" in note


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        f"odd,film\nrare,one\n{ROWS}",  # another label comes once, too
        f"{ROWS}odd,film\n",
        f"label,text\nodd,film\n{ROWS}",  # the header is known
        f'odd,"a film, and what a film"\n{ROWS}',  # no name of a column
        f"mood,words\n{ROWS[:80]}",
    ],
)
def test_what_is_no_header_is_not_told(rows: str, tmp_path: Path) -> None:
    assert notes(tmp_path / "a.csv", rows) == []


def test_in_jsonl_they_are_a_list(tmp_path: Path) -> None:
    objects = [{"label": ["b", "a"], "text": "x"}, {"label": [], "text": "y"}, {"label": "a,b", "text": "z"}]
    rows = read(tmp_path / "a.jsonl", "".join(json.dumps(one) + "\n" for one in objects), label="classes")
    assert [row.tags for row in rows] == [("a", "b"), (), ("a", "b")]


@pytest.mark.parametrize("label", [["a", 1], ["a,b"], {"a": 1}])
def test_a_list_that_is_none_of_names_is_refused(label: Any, tmp_path: Path) -> None:
    told = refusal(tmp_path / "a.jsonl", json.dumps({"label": label, "text": "x"}) + "\n", label="classes")
    assert "a.jsonl:1" in told and "'label'" in told


def test_a_list_is_not_one_class(tmp_path: Path) -> None:
    assert "'label'" in refusal(tmp_path / "a.jsonl", '{"label": ["a", "b"], "text": "x"}\n')


def test_numbers_stay_as_they_are_written(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.tsv", "3.50\ta\n-1e3\tb\n", label="number")
    assert [row.label for row in rows] == ["3.50", "-1e3"]


@pytest.mark.parametrize("label", ["good", "nan", "inf", "1,5"])
def test_what_is_no_number_is_refused_with_its_line(label: str, tmp_path: Path) -> None:
    told = refusal(tmp_path / "a.tsv", f"1\ta\n{label}\tb\n", label="number")
    assert "a.tsv:2" in told and f"'{label}'" in told and "data.label=number" in told
    assert [row.label for row in read(tmp_path / "b.tsv", f"1\ta\n{label}\tb\n", label="number", on_error="skip")] == [
        "1"
    ]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("label,text,text2", "text2\tother\tlabel\ttext\nzwei\t-\tyes\teins\n"),
        ("3,4,1", "zwei\t-\tyes\teins\n"),
    ],
)
def test_three_columns_are_a_pair(columns: str, text: str, tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.tsv", text, columns=columns)
    assert (row.label, row.text, row.target) == ("yes", "eins", "zwei")
    assert Config(columns=columns).pairs and not Config(columns="label,text").pairs


def test_a_file_that_names_two_texts_is_read_as_pairs(tmp_path: Path) -> None:
    """Without data.columns the second text would be left out in silence; who names the columns has what he names."""
    rows = {"a.tsv": "text\ttext2\tlabel\nb\tc\ty\n", "b.jsonl": '{"label": "y", "text": "b", "text2": "c"}\n'}
    for name, text in rows.items():
        path = tmp_path / name
        path.write_text(text)
        assert load_recipe("naive_bayes", [f"data.path={path}"]).data.columns == "label,text,text2"
        assert not load_recipe("naive_bayes", [f"data.path={path}", "data.columns=label,text"]).data.pairs
    (tmp_path / "c.tsv").write_text("label\ttext\tother\nyes\teins\tzwei\n")
    assert not load_recipe("naive_bayes", [f"data.path={tmp_path / 'c.tsv'}"]).data.pairs


def test_two_columns_of_texts_are_refused_with_the_setting_for_a_pair(tmp_path: Path) -> None:
    rows = [f"{i % 2}\tthe first text {i} of a row\tand {i} is the second\n" for i in range(30)]
    told = refusal(tmp_path / "a.tsv", "gold\tpremise\thypothesis\n" + "".join(rows))
    assert "data.columns=gold,premise;" in told and "data.columns=gold,premise,hypothesis" in told


def test_pairs_in_jsonl_and_their_overlap(tmp_path: Path) -> None:
    """A row that shares only its first text with another is not the same row."""
    rows = [{"label": "y", "text": "a", "text2": second} for second in "bcbd"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held = tmp_path / "b.jsonl"
    held.write_text(json.dumps(rows[0]) + "\n" + json.dumps({"label": "y", "text": "a", "text2": "e"}) + "\n")
    config = Config(path=str(path), columns="label,text,text2", validation=str(held))
    assert Corpus(config, LABELLED).overlap() == {"validation": 0.5}


@pytest.mark.parametrize("columns", ["label,text,text2,more", "1,2,0", "label"])
def test_other_columns_are_refused(columns: str, tmp_path: Path) -> None:
    assert "data.columns" in refusal(tmp_path / "a.tsv", "y\ta\tb\tc\n", columns=columns)

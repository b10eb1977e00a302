"""Rows that have the same text as another, and texts that are labelled in several ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from segue.data.config import Config
from segue.data.corpus import Corpus
from segue.data.shapes import LABELLED, TAGGED, TEXT, Shape


def ledger_of(path: Path, content: str, shape: Shape = LABELLED, **config: Any) -> Any:
    path.write_text(content, encoding="utf-8")
    corpus = Corpus(Config(path=str(path), **config), shape)
    corpus.repeats()
    return corpus.ledger


ROWS = "pos\ta\nneg\tb\npos\ta\nneg\ta\npos\tc\nneg\tb\n"


def test_counts_by_hand(tmp_path: Path) -> None:
    """`a` stands three times and `b` twice: three rows too many; only `a` has two labels."""
    ledger = ledger_of(tmp_path / "r.tsv", ROWS, validation=0.0, test=0.0)
    found = ledger.to_dict()["repeated_texts"]
    assert (found["rows"], found["contradictory_texts"]) == (3, 1)
    [first] = found["first"]
    path = tmp_path / "r.tsv"
    assert first == {"text": "a", "labels": [f"pos: {path}:1, {path}:3", f"neg: {path}:4"]}
    assert ledger.summary() == [
        "3 rows have the same text as an earlier one.",
        f"1 text has several labels: {path}:1 (pos), {path}:4 (neg).",
    ]


def test_the_splits_count_together(tmp_path: Path) -> None:
    held = tmp_path / "held.tsv"
    held.write_text("neg\tc\n")
    ledger = ledger_of(tmp_path / "r.tsv", ROWS, validation=0.0, test=str(held))
    assert (ledger.repeats.rows, ledger.repeats.contradictory) == (4, 2)


def test_where_none_contradict_the_repeated_ones_are_shown(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "r.tsv", "pos\ta\nneg\tb\npos\ta\n", validation=0.0, test=0.0)
    assert [one["text"] for one in ledger.repeats.shown()] == ["a"]
    assert ledger.summary() == ["1 row has the same text as an earlier one."]


def test_a_clean_file_says_nothing(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "r.tsv", "pos\ta\nneg\tb\n", validation=0.0, test=0.0)
    assert ledger.summary() == [] and ledger.repeats.shown() == []


def test_sentences_with_other_tags_contradict(tmp_path: Path) -> None:
    text = "dogs\tNOUN\nbark\tVERB\n\ndogs\tNOUN\nbark\tNOUN\n\n"
    ledger = ledger_of(tmp_path / "r.conll", text, TAGGED, validation=0.0, test=0.0)
    assert (ledger.repeats.rows, ledger.repeats.contradictory) == (1, 1)


def test_running_text_is_not_looked_through(tmp_path: Path) -> None:
    assert ledger_of(tmp_path / "r.txt", "a\na\n", TEXT).repeats is None

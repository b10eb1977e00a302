from __future__ import annotations

import json
from pathlib import Path

from segue.data.config import Config
from segue.data.ledger import LISTED_ROWS, Ledger
from segue.data.readers import Reader
from segue.data.shapes import PARALLEL


def test_bad_rows_are_counted_and_the_first_are_listed() -> None:
    ledger = Ledger()
    for line in range(1, 31):
        ledger.bad_row("reviews.tsv", line, "has 1 column, expected 2" if line % 3 else "has no label")
    found = ledger.to_dict()["bad_rows_skipped"]
    assert found["count"] == 30
    assert found["reasons"] == {"has 1 column, expected 2": 20, "has no label": 10}
    assert [row["line"] for row in found["first"]] == list(range(1, LISTED_ROWS + 1))
    assert "30 rows were skipped: reviews.tsv:1 has 1 column, expected 2, " in ledger.summary()[0]


def test_a_quiet_ledger_says_nothing() -> None:
    ledger = Ledger(units={"train": 3}, characters=10, overlap={"validation": 0.0}, unknown_rate=0.0)
    assert ledger.summary() == []


def test_the_summary_is_in_sentences() -> None:
    ledger = Ledger(blank_lines=1, tokens_cut=1200, unknown_rate=0.0123, overlap={"test": 0.25})
    for number in range(7):
        ledger.note("a byte order mark was dropped", f"{number}.txt")
        ledger.note("a byte order mark was dropped", f"{number}.txt")
    assert ledger.summary() == [
        "1 blank line was skipped.",
        "1,200 tokens were cut off from texts that were too long.",
        "1.23 % of the held-out tokens are unknown.",
        "25.0 % of the test text also occurs in the training text.",
        "a byte order mark was dropped: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more.",
    ]
    assert json.loads(json.dumps(ledger.to_dict())) == ledger.to_dict()


def test_pairs_with_one_blank_side_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a\n\nb\n\n")
    (tmp_path / "a.de").write_text("x\ny\n \n\n")
    ledger = Ledger()
    reader = Reader(Config(path="a"), PARALLEL, ledger)
    assert len(list(reader.parallel(tmp_path / "a.en", tmp_path / "a.de", None))) == 3
    (note,) = ledger.notes()
    assert note.startswith("one side is blank in 2 of the pairs")

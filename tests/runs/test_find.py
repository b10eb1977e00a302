"""`segue runs`: figures of the same text stand together, best first, and a text that had a say is marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.data import grammar
from segue.runs.find import find_runs
from segue.runs.folder import read_json, write_json

LINES = [example.text for example in grammar.sentences("text", 120)]
SMALL = {"model.order": 2, "data.unit": "line", "data.validation": 0.2}
RUNS: dict[str, dict[str, Any]] = {
    "bigram": SMALL,
    "unigram": SMALL | {"model.order": 1},
    "chosen": SMALL | {"model.smoothing": "add_alpha"},
    "tested": SMALL | {"data.test": 0.2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("found")
    (place / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    for name, settings in RUNS.items():
        segue.train("ngram", place / "text.txt", place / "runs" / name, settings)
    old = place / "runs" / "old"
    segue.train("ngram", place / "text.txt", old, SMALL)
    result = read_json(old / "result.json")
    write_json(old / "result.json", {k: v for k, v in result.items() if k not in ("amount", "sha256", "had_a_say")})
    return place / "runs"


def test_runs_of_one_text_are_one_group_and_the_best_is_first(folder: Path) -> None:
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in find_runs(folder):
        groups.setdefault(row["group"], []).append(row)
    names = {group: {Path(row["run"]).name for row in rows} for group, rows in groups.items()}
    assert sorted(map(sorted, names.values())) == [["bigram", "chosen", "unigram"], ["old"], ["tested"]]
    values = [row["value"] for row in groups[0]]
    assert values == sorted(values) and len(values) == 3
    assert len({(row["split"], row["bytes"], row["sha256"]) for row in groups[0]}) == 1


def test_only_validation_text_that_chose_something_had_a_say(folder: Path) -> None:
    say = {Path(row["run"]).name: row["had_a_say"] for row in find_runs(folder)}
    assert say == {"bigram": False, "unigram": False, "chosen": True, "tested": False, "old": None}


def test_the_table_shows_split_bytes_and_the_mark(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["runs", "runs"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0].removeprefix("runs/"): line for line in out.split("\n") if line.startswith("runs/")}
    size = read_json(folder / "tested" / "result.json")["bytes"]
    assert f"test, {size:,} bytes" in lines["tested"] and " * " not in lines["tested"]
    assert " *  validation, " in lines["chosen"] and " * " not in lines["bigram"]
    assert "* The text had a say in the run" in out
    assert main(["runs", "runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == find_runs(Path("runs"))


def test_other_lines_or_labels_are_another_text(tmp_path: Path) -> None:
    from segue.data.config import Config
    from segue.data.corpus import Corpus
    from segue.data.shapes import LABELLED, TEXT

    def sums(text: str, shape: Any, **settings: Any) -> str:
        path = tmp_path / ("a.txt" if shape is TEXT else "a.tsv")
        path.write_text(text, encoding="utf-8")
        return Corpus(Config(path=str(path), validation=0.0, **settings), shape).sha256("all")

    assert sums("a b\nc\n", TEXT, unit="line") != sums("a\nb c\n", TEXT, unit="line")
    assert sums("a b\nc\n", TEXT, unit="line") == sums("a b\nc", TEXT, unit="line")
    assert sums("x\ta\ny\tb\n", LABELLED) != sums("y\ta\nx\tb\n", LABELLED)
    (tmp_path / "long.txt").write_text("ab " * 700_000, encoding="utf-8")  # read in pieces
    whole, half = (Corpus(Config(path=str(tmp_path / "long.txt"), validation=share), TEXT) for share in (0.0, 0.5))
    assert whole.sha256("all") == whole.sha256("train") != half.sha256("train")

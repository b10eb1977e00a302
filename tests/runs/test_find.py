"""`segue runs`: figures of the same text stand together, best first, and a text that had a say is marked."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import segue
from segue.cli import main
from segue.data import grammar
from segue.errors import InputError
from segue.look import terminal
from segue.runs.experiments.compare import compare_runs
from segue.runs.find import find_runs, remove_runs
from segue.runs.folder import locked, read_json, write_json

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


@pytest.mark.parametrize("sort", ["best", "date"])
def test_a_narrow_terminal_cuts_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(terminal, "_console", lambda: Console(width=80, force_terminal=True, color_system=None))
    assert main(["runs", "runs", "--sort", sort]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.split("\n")) and "…" not in out
    for row in find_runs(Path("runs")):
        (line,) = [line for line in out.split("\n") if line.startswith(row["run"])]
        assert f"{row['value']:.3f}" in line and row["date"].partition(" ")[0] in line
    assert "text.txt" in out and "bits/byte" in out


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


# Broken results, order, rm and mv


@pytest.fixture
def some(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with two of the runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("bigram", "unigram"):
        shutil.copytree(folder / name, tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    "damage",
    ["[]", "null", '"x"', '{"task": []}', '{"model": ["a"], "figure": "perplexity"}', "[" * 100_000, "{", "\0"],
)
def test_one_damaged_result_does_not_break_the_list(
    damage: str, some: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (some / "unigram" / "result.json").write_text(damage)
    assert main(["runs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.split("\n") if line.startswith("runs/")}
    assert "damaged" in lines["runs/unigram"] and "bits/byte" in lines["runs/bigram"]
    assert main(["runs", "--json"]) == 0


def test_a_row_has_task_data_and_date_also_if_it_is_not_finished(some: Path) -> None:
    (some / "unigram" / "result.json").unlink()
    os.utime(some / "unigram" / "recipe.toml", (0, 0))
    rows = {Path(row["run"]).name: row for row in find_runs(some)}
    for row in rows.values():
        assert row["task"] == "lm" and row["data"].endswith("text.txt")
    assert rows["unigram"]["date"].startswith(("1970", "1969")) and rows["bigram"]["date"] > "2020"
    assert not rows["unigram"]["finished"]


def test_runs_are_sorted_as_asked(some: Path) -> None:
    os.utime(some / "bigram" / "result.json", (10**9, 10**9))
    shutil.copytree(some / "bigram", some / "zeta")
    (some / "zeta" / "result.json").unlink()
    os.utime(some / "zeta" / "recipe.toml", (2 * 10**9, 2 * 10**9))

    def order(sort: str) -> list[str]:
        return [Path(row["run"]).name for row in find_runs(some, sort)]

    assert order("name") == ["bigram", "unigram", "zeta"]
    assert order("date") == ["zeta", "unigram", "bigram"]
    assert order("size") == order("best") == ["bigram", "unigram", "zeta"]
    assert set(order("time")) == set(order("name"))
    with pytest.raises(InputError, match=r"--sort sise is not known\. Did you mean 'size'"):
        find_runs(some, "sise")


def test_rm_removes_runs_and_nothing_else(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("project").mkdir()
    Path("project/recipe.toml").touch()
    Path("project/thesis.txt").touch()
    Path("link").symlink_to(some / "bigram")
    Path("results").mkdir()
    Path("results/result.json").write_text("{}")
    before = sorted(Path.cwd().rglob("*"))
    for wrong in ("project", "link", "results", "runs", ".", "none", "runs/bigram/recipe.toml"):
        assert main(["runs", "rm", "runs/bigram", wrong]) == 2
        assert capsys.readouterr().err.startswith("segue: ")
        assert sorted(Path.cwd().rglob("*")) == before
    assert main(["runs", "rm", "runs/bigram"]) == 0
    assert capsys.readouterr().out == "runs/bigram is removed.\n"
    assert [path.name for path in some.iterdir()] == ["unigram"]


def test_a_run_that_is_being_written_is_not_removed(some: Path) -> None:
    with locked(some / "bigram"), pytest.raises(InputError, match="Another process"):
        remove_runs([some / "bigram"])
    assert (some / "bigram" / "model.safetensors").exists()


def test_mv_renames_a_run_which_is_the_same_afterwards(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = segue.load("runs/bigram").evaluate()["bits_per_byte"]
    for new in ("runs/unigram", "runs/bigram/inside"):
        assert main(["runs", "mv", "runs/bigram", new]) == 2
    assert main(["runs", "mv", "runs/bigram"]) == 2
    assert main(["runs", "mv", "runs/bigram", "kept/here"]) == 0
    assert "runs/bigram is now kept/here." in capsys.readouterr().out
    assert segue.load("kept/here").evaluate()["bits_per_byte"] == figure and not (some / "bigram").exists()


def test_comparisons_are_removed_with_their_runs(some: Path) -> None:
    text = find_runs(some)[0]["data"]
    segue.compare(text, ["ngram/unigram"], out="runs/c")
    (some / "c" / "ngram-unigram" / "notes.txt").touch()
    with pytest.raises(InputError, match=r"holds notes\.txt, which no run writes"):
        remove_runs([Path("runs/c")])
    (some / "c" / "ngram-unigram" / "notes.txt").unlink()
    remove_runs([Path("runs/c")])
    assert not (some / "c").exists()


# Comparing finished runs


def test_finished_runs_are_compared_without_training(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "compare", "runs/unigram", "runs/bigram", "--out", "c"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "perplex-" in said and "validation text, which had a say" in said
    rows = read_json(Path("c/result.json"))["rows"]
    assert [row["model"] for row in rows] == ["bigram", "unigram"]
    for row in rows:
        assert row["bits_per_byte"] == read_json(some / row["model"] / "result.json")["bits_per_byte"]
        assert row["run"] == f"runs/{row['model']}"
    page = Path("c/report.html").read_text(encoding="utf-8")
    assert "2 runs that were trained before" in page
    other = "\n".join(example.text for example in grammar.sentences("text", 80, seed=5))
    Path("other.txt").write_text(other, encoding="utf-8")
    found = compare_runs(["runs/unigram", "runs/bigram"], "other.txt", "d")
    assert found["rows"][0]["bits_per_byte"] == segue.load("runs/bigram").evaluate("other.txt")["bits_per_byte"]


def test_runs_of_other_texts_and_leaks_are_not_compared(folder: Path, some: Path) -> None:
    tested = folder / "tested"
    with pytest.raises(InputError, match=r"held out another text .*data\.test: 0\.0, 0\.2.*--data FILE"):
        compare_runs([some / "bigram", tested])
    with pytest.raises(InputError, match=r"stood in the training data of .*--data FILE"):
        compare_runs([some / "bigram", tested], folder.parent / "text.txt")
    for same in ([some / "bigram"], [some / "bigram", some / "bigram"], []):
        with pytest.raises(InputError, match="Expected two different runs"):
            compare_runs(same)
    assert not list(Path("runs").glob("compare-*"))

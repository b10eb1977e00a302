"""`segue evaluate` warns if the scored text stood in the training data of a run, and names the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.data import grammar
from segue.errors import InputError
from segue.interop.archive import export_zip, import_zip
from segue.models.ngram import Ngram
from segue.runs.folder import read_json
from segue.runs.leaks import FILE, MUCH

TEXT = [example.text for example in grammar.sentences("text", 600)]
SMALL = {"model.order": 3, "data.unit": "line", "tokens.kind": "byte"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("leaks")
    (folder / "book.txt").write_text("\n".join(TEXT[:400]), encoding="utf-8")
    (folder / "unseen.txt").write_text("\n".join(TEXT[400:]), encoding="utf-8")
    segue.train("ngram", folder / "book.txt", folder / "honest", SMALL | {"data.test": 0.2})
    segue.train("ngram", folder / "book.txt", folder / "leaky", SMALL | {"data.validation": 0})
    return folder


def test_what_a_run_held_out_and_what_it_never_saw_are_no_leak(place: Path) -> None:
    run = segue.load(place / "honest")
    assert "leak" not in run.evaluate()
    assert "leak" not in run.evaluate(place / "unseen.txt")
    assert "leak" not in segue.evaluate(run, adapt=True)


@pytest.mark.parametrize("how", [{}, {"adapt": True}, {"cache": True}])
def test_its_own_training_file_is_one(place: Path, how: dict[str, Any]) -> None:
    found = segue.evaluate(str(place / "honest"), place / "book.txt", **how)["leak"]
    assert found["run"] == str(place / "honest")
    assert found["share"] == pytest.approx(0.7, abs=0.05)  # a tenth validates and a fifth tests


def test_a_mixture_names_the_run_that_saw_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = f"{place / 'honest'}+{place / 'leaky'}"
    found = segue.evaluate(runs, mix=True)
    assert found["split"] == "test"
    assert found["leak"]["runs"] == {str(place / "leaky"): 1.0}
    assert main(["evaluate", runs, "--mix"]) == 0
    out = capsys.readouterr().out
    assert f"100 % of the text (windows of 50 bytes) stood in the training data of {place / 'leaky'}" in out
    assert all(f"weight {weight:.3f} of {run}\n" in out for run, weight in found["weights"].items())


def test_a_part_of_the_text_is_enough(place: Path, tmp_path: Path) -> None:
    (tmp_path / "part.txt").write_text("\n".join(TEXT[100:140] + TEXT[400:560]), encoding="utf-8")
    found = segue.load(place / "leaky").evaluate(tmp_path / "part.txt")["leak"]
    assert MUCH < found["share"] == pytest.approx(0.2, abs=0.03)


def test_rows_are_looked_up_too(tmp_path: Path) -> None:
    rows = [(word, f"film number {i} was {word}") for i in range(60) for word in ("good", "bad")]
    run = segue.train("naive_bayes", rows[:80], tmp_path / "run", {"data.validation": 0})
    assert "leak" not in run.evaluate(rows[80:])
    assert run.evaluate(rows[60:100])["leak"]["share"] == 0.5


def test_the_run_that_training_began_from_counts(place: Path, tmp_path: Path) -> None:
    small = {"model.width": 8, "train.steps": 1, "batches.size": 2, "data.validation": 0}
    first = segue.train("rnn_lm", place / "book.txt", tmp_path / "first", small)
    second = segue.train("rnn_lm", place / "unseen.txt", tmp_path / "second", {**small, "train.init": str(first.path)})
    for text in ("book.txt", "unseen.txt"):
        assert second.evaluate(place / text)["leak"]["share"] == 1
    assert "leak" not in first.evaluate(place / "unseen.txt")
    tested = {**small, "train.init": str(first.path), "data.test": 0.5}
    third = segue.train("rnn_lm", place / "book.txt", tmp_path / "third", tested)
    result = read_json(third.path / "result.json")
    assert result["leak"] == third.evaluate()["leak"]
    assert result["leak"]["runs"] == {str(first.path): 1.0}


def test_a_run_without_hashes_is_not_asked_and_an_archive_keeps_them(place: Path, tmp_path: Path) -> None:
    export_zip(place / "leaky", tmp_path / "run.zip")
    import_zip(tmp_path / "run.zip", tmp_path / "run")
    assert segue.load(tmp_path / "run").evaluate(place / "book.txt")["leak"]["share"] == 1
    (tmp_path / "run" / FILE).unlink()
    assert "leak" not in segue.load(tmp_path / "run").evaluate(place / "book.txt")


def test_a_file_that_changes_while_it_trains_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "book.txt"
    text.write_text("\n".join(TEXT[:100]), encoding="utf-8")
    fit = Ngram.fit

    def changing(*given: Any) -> Any:
        yield from fit(*given)
        text.write_text("\n".join(TEXT[100:]), encoding="utf-8")

    monkeypatch.setattr(Ngram, "fit", changing)
    with pytest.raises(InputError, match=r"book\.txt has changed while the run was made"):
        segue.train("ngram", text, tmp_path / "run", SMALL)
    assert not (tmp_path / "run").exists()

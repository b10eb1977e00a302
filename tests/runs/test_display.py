"""Runs and results show themselves: printed as the command line prints them, in a notebook as HTML."""

from __future__ import annotations

import html
import html.parser
import inspect
import io
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.cli import app, main
from segue.runs.display import Figures, History
from segue.training.log import Lines, Progress, progress_for, reports, silent

TEXTS = [f"the {animal} eats the {food} ." for animal in ("cow", "dog", "old cow") for food in ("hay", "grass")] * 12
TINY = {"model.width": 8, "model.embedding": 8, "train.steps": 6, "train.every": 2, "data.unit": "line"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    place = tmp_path_factory.mktemp("runs")
    words = {"train.threads": 1, "model.width": 5, "train.epochs": 1, "tokens.min_count": 1, "data.unit": "line"}
    return {
        "lstm": segue.train("rnn_lm", TEXTS, place / "lstm", TINY),
        "ngram": segue.train("ngram", TEXTS, place / "ngram", {"data.unit": "line"}),
        "vectors": segue.train("word2vec", TEXTS, place / "vectors", words),
    }


class Tags(html.parser.HTMLParser):
    """Which tags a page opens, and whether it closes them in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def seen_in(page: str) -> set[str]:
    tags = Tags(page)
    assert not tags.open
    return tags.seen


def test_a_run_says_what_it_is(runs: dict[str, segue.Run]) -> None:
    run = runs["lstm"]
    value = run.result["bits_per_byte"]
    assert repr(run).startswith(f"Run('{run.path}'): rnn_lm, ")
    assert repr(run).endswith(f"bits per byte {value:.3f} on the validation text")
    assert {"table", "iframe", "pre", "a"} <= seen_in(run._repr_html_())
    assert run.report == run.path / "report.html"
    counted = runs["ngram"]._repr_html_()
    assert "Learning curve" not in counted and {"table", "pre"} <= seen_in(counted)


def test_results_print_as_the_command_line_does(runs: dict[str, segue.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs["ngram"]
    capsys.readouterr()
    assert main(["evaluate", str(run.path)]) == 0
    assert str(run.evaluate()) == capsys.readouterr().out.rstrip("\n")
    assert f"{run.path} on {run.recipe.data.path} (validation split)" in str(run.evaluate())
    assert run.evaluate()["bits_per_byte"] == run.result["bits_per_byte"]


def test_a_figure_names_the_file_that_was_held_out(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("a cow eats grass\n" * 9)
    run = segue.train("ngram", ["a cow eats hay"] * 9, tmp_path / "run", {"data.test": str(tmp_path / "test.txt")})
    assert f"{run.path} on {tmp_path / 'test.txt'} (test split)" in str(run.evaluate())


def test_a_view_prints_as_its_picture(runs: dict[str, segue.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs["ngram"]
    capsys.readouterr()
    assert main(["look", str(run.path), "the cow"]) == 0
    lines = [line.strip() for line in str(run.look("the cow")).split("\n")]
    assert lines[0] == "What comes after “the cow”" and lines[0] in capsys.readouterr().out


def test_the_history_is_the_curve_of_the_page(runs: dict[str, segue.Run]) -> None:
    """In bits per byte, with a ring at the kept step; in a frame, since its style is not that of the notebook."""
    run = runs["lstm"]
    validated = [record["bits_per_byte"] for record in run.history if record["kind"] == "validation"]
    shown = html.unescape(run.history._repr_html_())
    assert seen_in(run.history._repr_html_()) == {"iframe"} and "<script" not in shown
    assert all(f"validation: {value:.3f} at" in shown for value in validated[1:])
    assert f"kept {min(validated):.3f}" in shown
    assert seen_in(runs["ngram"].history._repr_html_()) == seen_in(History()._repr_html_()) == {"p"}


def test_a_notebook_says_all_that_the_command_line_says(runs: dict[str, segue.Run]) -> None:
    """Which text it was, why there is no interval, and how labels were confused."""
    shown = html.unescape(runs["ngram"].evaluate()._repr_html_())
    for said in ("(validation split)", "an interval takes 40,960 bytes", "each line by itself"):
        assert said in shown
    figures = Figures({"accuracy": 0.5, "labels": ["bad", "good"], "confusion": [[3, 1], [2, 0]]})
    assert "<td>good</td><td>2</td><td>0</td>" in figures._repr_html_()
    assert {"table", "p"} <= seen_in(figures._repr_html_())
    assert "cloze accuracy 0." not in repr(runs["vectors"]) and " %" in repr(runs["vectors"])


def test_a_comparison_shows_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = segue.compare(TEXTS, models=["ngram/unigram", "ngram/bigram"], settings={"data.unit": "line"})
    assert "ngram/bigram" in str(found) and found["verdict"] in " ".join(str(found).split())
    assert {"table", "a"} <= seen_in(found._repr_html_())
    assert found["rows"][0]["model"] in found._repr_html_()


def test_scoring_says_at_once_that_a_model_cannot_and_prints_what_it_is(runs: dict[str, segue.Run]) -> None:
    scored = runs["ngram"].score(["the cow"])
    assert "list(…)" in repr(scored) and next(scored).text == "the cow"
    with pytest.raises(segue.InputError, match="cannot score"):
        runs["vectors"].score(["the cow"])


def test_a_run_of_vectors_answers(runs: dict[str, segue.Run]) -> None:
    run = runs["vectors"]
    assert np.linalg.norm(run["cow"]) == pytest.approx(1, abs=1e-5)
    (word, cosine), *_ = run.nearest("cow", top=3)
    assert cosine == pytest.approx(float(run["cow"] @ run[word]), abs=1e-5)
    assert run.nearest("cow", "dog", top=2)["dog"] == run.nearest("dog", top=2)
    assert run.analogy("cow - dog + hay", top=2) == run.words.analogy(["cow", "hay"], ["dog"], 2)
    with pytest.raises(segue.InputError, match="by=cosin is not known"):
        run.nearest("cow", by="cosin")


def test_a_run_is_exported_and_imported(runs: dict[str, segue.Run], tmp_path: Path) -> None:
    runs["ngram"].export(tmp_path / "a.zip")
    segue.import_run(tmp_path / "a.zip", tmp_path / "again")
    assert segue.load(tmp_path / "again").result == runs["ngram"].result


def test_what_segue_shows_is_what_is_meant() -> None:
    assert set(dir(segue)) == set(segue.__all__)
    for name in segue.__all__:
        assert getattr(segue, name)


def test_every_verb_has_its_word_in_python() -> None:
    """Verbs that only list, and the page that is served, are of the command line alone."""
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
    listing = {"models", "recipes", "runs", "data", "serve"}
    named = {"import": "import_run"}
    for verb in verbs - listing:
        assert named.get(verb, verb) in {*segue.__all__, *dir(segue.Run)}, verb


@pytest.mark.parametrize(("verb", "own"), [("nearest", "nearest_words"), ("analogy", "analogy"), ("score", "score")])
def test_defaults_are_those_of_the_command_line(verb: str, own: str) -> None:
    commands = {command.callback.__name__: command.callback for command in app.registered_commands}  # type: ignore[union-attr]
    line = inspect.signature(commands[own]).parameters  # type: ignore[arg-type]
    for name, parameter in inspect.signature(vars(segue.Run)[verb]).parameters.items():
        if name in line and parameter.default is not inspect.Parameter.empty:
            assert parameter.default == line[name].default


# Progress


def test_python_reports_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    @reports
    def work(progress: Progress = silent) -> str:
        progress("This takes long.", 0.0)
        return "done"

    assert work() == "done" and capsys.readouterr().err == "This takes long.\n"
    assert work(silent) == "done" and capsys.readouterr().err == ""
    assert work(progress=silent) == "done" and capsys.readouterr().err == ""


def test_a_notebook_overwrites_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    file = io.StringIO()
    progress = progress_for(file)
    assert isinstance(progress, Lines)
    ticks = itertools.count(0.0, 10.0)
    monkeypatch.setattr("segue.training.log.time.monotonic", lambda: next(ticks))
    progress("training", 0.1)
    progress("training", 0.5, "a long note")
    progress("training", 0.75)
    progress("Done.", 1.0)
    first, second, rest = file.getvalue().removeprefix("\r").partition("\r")
    assert first.startswith("training: 50 %") and "\n" not in first and second
    line, last = rest.removesuffix("\n").split("\n")
    assert line.startswith("training: 75 %") and len(line) == len(first) and last == "Done."


def test_words_are_asked_for_in_any_of_the_usual_ways(runs: dict[str, segue.Run]) -> None:
    run = runs["vectors"]
    assert "cow" in run and "zebra" not in run
    assert run.nearest(["cow", "dog"], top=2) == run.nearest("cow", "dog", top=2)
    with pytest.raises(segue.InputError, match="Name a word"):
        run.nearest()


ROWS = [("good", "a fine film"), ("bad", "a dull film")] * 12


def test_predictions_print_as_a_person_reads_them(tmp_path: Path) -> None:
    run = segue.train("naive_bayes", ROWS, tmp_path / "run")
    answers = run.predict(["a fine film", "a dull one"])
    assert "list(…)" in repr(answers)
    first, second = answers
    shares = dict(zip(first.labels, first.probabilities, strict=True))
    assert repr(first) == f"Label('good', good {shares['good']:.3f}, bad {shares['bad']:.3f})"
    assert second.label == "bad"


def test_an_error_in_a_list_names_the_row_and_no_file(tmp_path: Path) -> None:
    run = segue.train("naive_bayes", ROWS, tmp_path / "run")
    with pytest.raises(segue.InputError, match="row 2: the label 'odd' was never seen"):
        run.evaluate([*ROWS[:1], ("odd", "a film")])
    for call in (segue.train, lambda model, rows, out: segue.compare(rows, model, out=out)):
        with pytest.raises(segue.InputError) as caught:
            call("naive_bayes", [{"label": "good", "text": "a"}, {"label": "bad", "text": None}] * 9, tmp_path / "no")
        assert "row 2 has no 'text', row 4" in str(caught.value) and "jsonl" not in str(caught.value)


def test_models_settings_and_budgets_may_be_one_string_or_number(tmp_path: Path) -> None:
    found = segue.compare(ROWS, "naive_bayes, bow", 5, out=tmp_path / "c", settings="data.test=0.25")
    assert sorted(row["model"] for row in found["rows"]) == ["bow", "naive_bayes"]
    assert {row["model"]: row["steps"] for row in found["rows"]}["bow"] == 5


def test_figures_are_in_the_unit_of_the_figure_that_they_belong_to() -> None:
    """The best possible accuracy is a share as well, and what is the same without adapting is not infinite."""
    shown = str(Figures({"figure": "accuracy", "accuracy": 0.891, "best_possible": 0.89}))
    assert "89.1 %" in shown and "89.0 %" in shown
    adapted = Figures({"bits_per_byte": 1.7, "tokens": 7466, "static": {"bits_per_byte": 1.8}})
    assert "∞" not in str(adapted) and "∞" not in adapted._repr_html_()


def test_a_run_goes_on_by_its_folder_alone(tmp_path: Path) -> None:
    with pytest.raises(segue.InputError, match="Name a model to train"):
        segue.train()
    assert segue.train("rnn_lm", TEXTS, tmp_path / "run", TINY).result["steps"] == 6
    assert segue.train(out=tmp_path / "run", resume=True, settings="train.steps=8").result["steps"] == 8

"""Suites: GLUE's own files, its metrics and means, what is missing, rerunning, predictions, and suites of one's own."""

from __future__ import annotations

import lzma
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

import segue
from segue.cli import main
from segue.data.corpus import Corpus
from segue.errors import InputError
from segue.look.page.markup import one_decimal
from segue.recipe import read_recipe
from segue.runs.experiments.suite import mean
from segue.runs.experiments.suite_file import Files, find, read_suite

WORDS = ("good", "bad", "film", "cat", "sat", "the")
FIRST_MEANS = ["74.0", "71.0", "75.2", "79.6", "81.9"]
SECOND_MEANS = ["73.2", "70.3", "74.4", "79.0", "81.4"]


def text(draw: Random, label: int) -> str:
    return " ".join([WORDS[label], *draw.choices(WORDS, k=3)])


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "\n".join(lines) + "\n"
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(content.encode()))
    else:
        path.write_text(content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of GLUE's tasks with GLUE's columns, and MNLI under another header; a quotation mark is a letter."""
    place, draw = tmp_path_factory.mktemp("glue"), Random(0)
    for part, rows in (("train", 60), ("dev", 30)):
        labels = [draw.random() < 0.4 for _ in range(rows)]
        cola = [f"gj\t{label:d}\t\t{text(draw, label)}" for label in labels]
        write(place / f"CoLA/{part}.tsv.xz", cola)
        pairs = [f'{label:d}\t1\t2\t"{text(draw, label)}\t{text(draw, label)}' for label in labels]
        write(place / f"MRPC/{part}.tsv", ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *pairs])
        scores = [f"{i}\t{text(draw, label)}\t{text(draw, label)}\t{label + i / 90}" for i, label in enumerate(labels)]
        write(place / f"STS-B/{part}.tsv", ["index\tsentence1\tsentence2\tscore", *scores])
    for name, rows in (("train-part", 60), ("dev_matched", 30), ("dev_mismatched", 25)):
        kinds = [draw.choice(("entailment", "neutral", "contradiction")) for _ in range(rows)]
        nli = [f"{kind}\t{text(draw, 0)}\t{kind[:4]} {text(draw, 1)}" for kind in kinds]
        write(place / f"mnli.{name}.tsv", ["label\tpremise\thypothesis", *nli])
    write(place / "CoLA/test.tsv", ["index\tsentence", *(f"{i}\t{text(draw, i % 2)}" for i in range(4))])
    write(place / "MNLI/test_matched.tsv", ["index\tpremise\thypothesis", "0\tthe cat\tneut the cat"])
    return place


@pytest.fixture(scope="module")
def ran(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    out = tmp_path_factory.mktemp("out") / "suite"
    return segue.suite("glue", folder, model="naive_bayes", out=out, progress=segue.silent), out


# Means


def test_files_and_columns_are_those_of_glue(tmp_path: Path) -> None:
    parses = "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label"
    for name in ("train", "dev_matched", "test_mismatched"):
        write(tmp_path / f"MNLI/{name}.tsv", [parses])
    mnli = next(task for task in read_suite("glue").tasks if task.name == "MNLI")
    found = find(mnli, [tmp_path / "nowhere", tmp_path])
    assert isinstance(found, Files)
    assert found.columns == "gold_label,sentence1,sentence2" and list(found.tests) == ["MNLI-m"]
    assert list(found.predict) == ["MNLI-mm.tsv"]
    assert find(mnli, [tmp_path / "nowhere"]) == "MNLI/train.tsv"


def test_the_means_of_the_lectures_table_come_out() -> None:
    suite = read_suite("glue")
    assert suite.published is not None
    rows = [dict(zip(suite.published.columns, row, strict=True)) for row in suite.published.rows.values()]
    found = [[one_decimal(mean(of, row).value or 0) for row in rows] for of in suite.means.values()]
    assert found == [FIRST_MEANS, SECOND_MEANS]


def test_a_mean_leaves_out_what_is_missing_and_names_it() -> None:
    of = (("a", "b"), "c", "d")
    assert mean(of, {"a": 1.0, "b": 3.0, "c": 4.0, "d": 6.0}) == (4.0, ("a", "b", "c", "d"), ())
    assert mean(of, {"a": 1.0, "c": 4.0}) == (2.5, ("a", "c"), ("b", "d"))
    assert mean(of, {}) == (None, (), ("a", "b", "c", "d"))


# Running


def test_the_tasks_that_are_there_run_and_the_others_are_named(ran: tuple[Any, Path]) -> None:
    result, out = ran
    assert [row["column"] for row in result["rows"]] == ["CoLA", "MRPC", "MNLI-m", "MNLI-mm"]
    assert result["left_out"]["STS-B"] == "naive_bayes does not learn a number"
    assert result["left_out"]["QQP"] == "QQP/train.tsv is not there"
    assert result["means"][0]["missing"] == ("QQP", "QNLI", "SST-2", "STS-B", "RTE")
    assert result["means"][1]["value"] == pytest.approx(_mean_by_hand(result["rows"]))
    page = (out / "report.html").read_text()
    assert "no mean of the whole suite" in page and "BERT large" in page and "81.9" in page
    assert "mean of the 4 that ran here" in page


def _mean_by_hand(rows: list[dict[str, Any]]) -> float:
    cola, mrpc, first, second = [[one["median"] for one in row["figures"].values()] for row in rows]
    return 100 * (cola[0] + (mrpc[0] + mrpc[1]) / 2 + (first[0] + second[0]) / 2) / 3


def test_figures_are_those_of_the_predictions(ran: tuple[Any, Path], folder: Path) -> None:
    result, out = ran
    cola, mrpc, _, mismatched = result["rows"]
    cells = [
        line.split("\t") for line in lzma.decompress((folder / "CoLA/dev.tsv.xz").read_bytes()).decode().splitlines()
    ]
    guesses = [one.label for one in segue.load(out / "CoLA/seed0").predict([row[3] for row in cells])]
    expected = matthews_corrcoef([row[1] for row in cells], guesses)
    assert cola["figures"]["matthews"]["median"] == pytest.approx(expected, abs=1e-12)
    rows = [line.split("\t") for line in (folder / "MRPC/dev.tsv").read_text().splitlines()[1:]]
    pairs = [(row[3], row[4]) for row in rows]
    guesses = [one.label for one in segue.load(out / "MRPC/seed0").predict(pairs)]
    expected = f1_score([row[0] for row in rows], guesses, pos_label="1")
    assert mrpc["figures"]["positive_f1"]["median"] == pytest.approx(expected, abs=1e-12)
    other = segue.load(out / "MNLI/seed0").evaluate(folder / "mnli.dev_mismatched.tsv", progress=segue.silent)
    assert mismatched["figures"]["accuracy"]["median"] == other["accuracy"] and mismatched["rows"] == 25
    low, high = cola["figures"]["matthews"]["ci"]
    assert low < cola["figures"]["matthews"]["median"] < high


def test_no_row_of_a_dev_set_chooses_anything(ran: tuple[Any, Path]) -> None:
    recipe = read_recipe(ran[1] / "CoLA/seed0/recipe.toml")
    corpus = Corpus(recipe.data, recipe.shape)
    assert {Path(one.path).name for one in corpus.examples("validation")} == {"train.tsv.xz"}
    assert {Path(one.path).name for one in corpus.examples("test")} == {"dev.tsv.xz"}


def test_predictions_are_written_as_glue_takes_them(ran: tuple[Any, Path]) -> None:
    files = {path.name: path.read_text().splitlines() for path in (ran[1] / "submission").iterdir()}
    assert sorted(files) == ["CoLA.tsv", "MNLI-m.tsv"]
    assert [line.split("\t")[0] for line in files["CoLA.tsv"]] == ["index", "0", "1", "2", "3"]
    assert {line.split("\t")[1] for line in files["CoLA.tsv"][1:]} <= {"0", "1"}
    assert files["MNLI-m.tsv"] == ["index\tprediction", "0\tneutral"]


def test_the_same_command_again_trains_nothing(ran: tuple[Any, Path], folder: Path) -> None:
    before, out = ran
    models = {path: path.stat().st_mtime_ns for path in out.glob("*/seed0/model.safetensors")}
    again = segue.suite("glue", folder, model="naive_bayes", out=out, progress=segue.silent)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/seed0/model.safetensors")} == models
    assert again["rows"] == before["rows"] and len(models) == 3
    with pytest.raises(InputError, match="begun with another recipe"):
        segue.suite("glue", folder, ["batches.length=3"], "naive_bayes", out=out, progress=segue.silent)


def test_seeds_give_a_median_and_every_figure(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'says = "one task"\nkind = "bow"\n[tasks.alike]\ntraining = "STS-B/train.tsv"\ntest = "STS-B/dev.tsv"\n'
        'columns = "score,sentence1,sentence2"\nmetrics = ["pearson", "spearman"]\ndata.label = "number"\n'
    )
    given = (own, folder, {"train.steps": 3, "train.plan": "none"})
    result = segue.suite(*map(str, given[:2]), given[2], seeds=3, out=tmp_path / "out", progress=segue.silent)
    (row,) = result["rows"]
    found = row["figures"]["spearman"]
    assert len(set(found["seeds"])) == 3 and found["median"] == sorted(found["seeds"])[1]
    rows = [line.split("\t") for line in (folder / "STS-B/dev.tsv").read_text().splitlines()[1:]]
    for seed, expected in enumerate(found["seeds"]):
        answers = segue.load(tmp_path / f"out/alike/seed{seed}").predict([(cells[1], cells[2]) for cells in rows])
        theirs = stats.spearmanr([float(cells[3]) for cells in rows], [one.number for one in answers])[0]
        assert expected == pytest.approx(theirs, abs=1e-9)
    assert "3 seeds" in (tmp_path / "out/report.html").read_text()


# What goes wrong


def test_a_broken_row_is_told_with_file_and_line_before_anything_is_trained(
    folder: Path, tmp_path: Path, capsys: Any
) -> None:
    write(tmp_path / "RTE/train.tsv", ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment", "1\tonly this"])
    write(tmp_path / "RTE/dev.tsv", ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment"])
    words = ["suite", "glue", str(folder), str(tmp_path), "--model", "naive_bayes", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "RTE/train.tsv:3" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_without_any_task_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"CoLA: CoLA/train\.tsv is not there"):
        segue.suite("glue", tmp_path, model="naive_bayes", progress=segue.silent)
    with pytest.raises(InputError, match="made for lm, and a suite is for models that learn labels"):
        segue.suite("glue", tmp_path, model="ngram", progress=segue.silent)
    with pytest.raises(InputError, match="There is no folder"):
        segue.suite("glue", tmp_path / "nowhere", model="naive_bayes", progress=segue.silent)


TASK = '[tasks.a]\ntraining = "a.tsv"\ntest = "b.tsv"\ncolumns = "label,text"\nmetrics = ["accuracy"]\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('says = "x"\nmodels = "bow"\n' + TASK, "no key 'models' in a suite"),
        ('kind = "bow"\n' + TASK, "a suite has no 'says'"),
        ('says = "x"\n' + TASK.replace("test =", "tests ="), "no key 'tests' in the task a"),
        ('says = "x"\n' + TASK.replace('"accuracy"', '"pearson"'), "metric 'pearson'. Expected one of accuracy"),
        ('says = "x"\n' + TASK.replace('"a.tsv"', "3"), "training of the task a is 3. Expected text or a list"),
        ('says = "x"\n' + TASK + '[means]\nall = ["b"]\n', "means.all has 'b', which is no task's column"),
        ("says = ", "is not TOML"),
    ],
)
def test_a_wrong_suite_is_refused_by_its_key(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(InputError) as error:
        read_suite(str(tmp_path / "mine.toml"))
    assert said in str(error.value) and "mine.toml" in str(error.value)


def test_an_unknown_suite_is_refused(capsys: Any) -> None:
    assert main(["suite", "gleu", "."]) == 2
    assert "Did you mean 'glue'?" in capsys.readouterr().err
    assert main(["suite", "glue", "train.steps=2"]) == 2
    assert "Name the folder" in capsys.readouterr().err
    assert main(["suite"]) == 0
    assert "glue" in capsys.readouterr().out

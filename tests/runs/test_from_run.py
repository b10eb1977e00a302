"""A run folder where a model is named: what it means is decided by the shape of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import segue
from segue.cli import main
from segue.data.shapes import ANSWERS, LABELLED, PARALLEL, TAGGED, TEXT, Shape
from segue.errors import InputError
from segue.recipe import read_recipe
from segue.runs.from_run import from_run, is_run, named_settings, with_settings
from segue.runs.pretrained import pretraining


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_of(kind: str) -> str:
    """A folder that looks like a finished run of a kind."""
    path = Path("runs") / kind
    path.mkdir(parents=True)
    (path / "recipe.toml").write_text(f'kind = "{kind}"\n', encoding="utf-8")
    config = {"format": 1, "kind": kind, "sizes": {}, "labels": []}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("kind", "shape", "meant"),
    [
        ("bert", LABELLED, ("finetuned_classifier", "model.body=runs/bert")),
        ("gpt", LABELLED, ("finetuned_classifier", "model.body=runs/gpt")),
        ("rnn_lm", TAGGED, ("finetuned_tagger", "model.body=runs/rnn_lm")),
        ("bert", ANSWERS, ("finetuned_answerer", "model.body=runs/bert")),
        ("bert", TEXT, ("bert", "train.init=runs/bert")),
        ("gpt", TEXT, ("gpt", "train.init=runs/gpt")),
        ("transformer", PARALLEL, ("transformer", "train.init=runs/transformer")),
        ("cnn_classifier", LABELLED, ("cnn_classifier", "train.init=runs/cnn_classifier")),
    ],
)
def test_the_data_says_what_a_run_means(place: Path, kind: str, shape: Shape, meant: tuple[str, str]) -> None:
    found = from_run(f"{run_of(kind)}/", shape, [])  # with the slash that a shell adds
    assert (found.kind, found.setting) == meant
    assert found.name == (f"{kind}/{kind}" if kind == meant[0] else f"{kind}/head") and meant[1] in found.said


@pytest.mark.parametrize(
    ("kind", "shape", "said"),
    [
        ("ngram", TEXT, "segue train ngram DATA"),
        ("nbsvm", LABELLED, "reads its data once"),
        ("word2vec", LABELLED, "model.embeddings=runs/word2vec"),
        ("ngram", LABELLED, "hidden states, as of bert, elmo, t5, gpt or rnn_lm"),
        ("cnn_classifier", TEXT, "text data cannot train it further"),
        ("cnn_classifier", TAGGED, "segue train"),
        ("bert", PARALLEL, "parallel data cannot train it further"),
    ],
)
def test_what_cannot_begin_from_a_run_is_told(place: Path, kind: str, shape: Shape, said: str) -> None:
    with pytest.raises(InputError, match="runs/") as error:
        from_run(run_of(kind), shape, [])
    assert said in str(error.value)


def test_a_folder_of_another_toolkit_is_imported_first(place: Path) -> None:
    Path("bert-base").mkdir()
    Path("bert-base/config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="segue import bert-base --out RUN"):
        segue.train("bert-base", [("good", "a fine film"), ("bad", "a dull film")])


def test_two_runs_to_begin_from_are_one_too_many(place: Path) -> None:
    with pytest.raises(InputError, match=r"Leave model\.body=runs/other out"):
        from_run(run_of("bert"), LABELLED, ["train.steps=3", "model.body=runs/other"])


def test_names_of_models_come_before_folders(place: Path) -> None:
    for name in ("gpt", "rnn_lm/gru"):
        Path(name).mkdir(parents=True)
        (Path(name) / "recipe.toml").write_text("", encoding="utf-8")
        assert not is_run(name)
    run_of("gpt")
    assert is_run("runs/gpt") and is_run("runs/gpt/") and is_run("./gpt")
    Path("old").mkdir()
    assert is_run("runs/missing") and is_run("old/missing")  # so that the message is about runs
    assert not is_run("gpt/missing") and not is_run("nowhere/missing")
    assert not is_run("lstm") and not is_run("runs.toml") and not is_run("my/own.py")
    with pytest.raises(InputError, match="There is no run folder runs/missing"):
        from_run("runs/missing", TEXT, [])


def test_how_long_a_run_was_trained_is_not_known_of_an_imported_one(place: Path) -> None:
    path = Path(run_of("bert"))
    (path / "result.json").write_text('{"train_seconds": 2.5}', encoding="utf-8")
    assert pretraining(str(path))["seconds"] == 2.5
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    (path / "config.json").write_text(json.dumps(config | {"imported": "bert-base"}), encoding="utf-8")
    assert pretraining(str(path))["seconds"] is None


@pytest.mark.parametrize(
    ("entry", "name", "settings"),
    [
        ("nbsvm", "nbsvm", []),
        ("runs/bert model.frozen=true", "runs/bert", ["model.frozen=true"]),
        ("gpt layers=6  train.optimizer.rate=0.1", "gpt", ["layers=6", "train.optimizer.rate=0.1"]),
        ("runs/my bert", "runs/my bert", []),
    ],
)
def test_a_model_may_have_settings_of_its_own(entry: str, name: str, settings: list[str]) -> None:
    assert named_settings(entry) == (name, settings)


def test_names_with_settings_can_be_folders() -> None:
    assert with_settings("gpt", []) == "gpt"
    assert with_settings("gpt", ["model.layers=6", "data.test=a/b.tsv"]) == "gpt layers=6 test=a-b.tsv"


def test_text_goes_on_from_the_weights(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("book.txt").write_text("the cows eat grass and hay\n" * 40, encoding="utf-8")
    Path("more.txt").write_text("the dogs eat meat and cake\n" * 40, encoding="utf-8")
    small = {"train.steps": 1, "model.width": 12, "model.cell": "gru"}
    first = segue.train("rnn_lm", "book.txt", settings=small, out="runs/first")
    said: list[str] = []
    run = segue.train(first.path, "more.txt", settings={"train.steps": 1}, progress=lambda text, *_: said.append(text))
    assert run.path == Path("runs/first-more") and "train.init=runs/first" in said[0]
    recipe = read_recipe(run.path / "recipe.toml")
    assert (recipe.kind, recipe.name, recipe.train.init) == ("rnn_lm", "rnn_lm/first", "runs/first")
    assert recipe.model == first.recipe.model and run.tokenizer.content == first.tokenizer.content
    assert run.result["pretrained"] == {"run": "runs/first", "seconds": first.result["train_seconds"]}
    assert main(["train", "runs/first", "more.txt", "train.steps=1", "--resume", "--out", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "finished before" in out and "began from: runs/first, trained" in out and "weights moved by" in out


def test_data_must_be_named(place: Path) -> None:
    with pytest.raises(InputError, match="Which data should runs/bert learn from"):
        segue.train(run_of("bert"))
    with pytest.raises(InputError, match="leave runs/bert out"):
        segue.train("runs/bert", out="runs/x", resume=True)

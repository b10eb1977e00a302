"""The Python API: lists as data, the same answers as the command line, fine-tuning, folds and comparisons."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import segue
from segue.cli import main
from segue.data.example import Example
from segue.errors import InputError

TINY = {"model.width": 8, "model.embedding": 8, "train.steps": 3}
TEXTS = ["the cow eats the green grass.", "a big dog sees the small cow."] * 20
REVIEWS = [("good", "a fine film"), ("bad", "a dull film")] * 20
TAGGED = [(["the", "cow", "eats"], ["D", "N", "V"]), (["a", "dog", "runs"], ["D", "N", "V"])] * 20
PAIRS = [("the cow", "die kuh"), ("a dog", "ein hund")] * 20
CASES: list[tuple[str, Sequence[Any], dict[str, Any]]] = [
    ("ngram", TEXTS, {"data.unit": "line"}),
    ("rnn_lm", TEXTS, {**TINY, "data.unit": "line"}),
    ("bow", REVIEWS, {"train.steps": 60, "train.optimizer.rate": 0.1}),
    ("window_tagger", TAGGED, {"train.steps": 60}),
    ("rnn_seq2seq", PAIRS, {"train.steps": 3, "decode.max_tokens": 5}),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    place = tmp_path_factory.mktemp("runs")
    return {kind: segue.train(kind, data, place / kind, settings) for kind, data, settings in CASES}


def command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[Any]:
    """What the command line says to the same question."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_budget_grows_and_never_shrinks() -> None:
    run = segue.train("rnn_lm", TEXTS, "r", {**TINY, "train.steps": 4})
    assert segue.train(None, out="r", settings={"train.steps": 6}, resume=True).path == run.path
    with pytest.raises(segue.InputError, match=r"train\.steps was 6 .* can only grow"):
        segue.train(None, out="r", settings={"train.steps": 5}, resume=True)


# Lists as data


@pytest.mark.parametrize(("kind", "data"), [case[:2] for case in CASES])
def test_a_list_is_written_beside_the_run(runs: dict[str, segue.Run], kind: str, data: Sequence[Any]) -> None:
    run = runs[kind]
    assert isinstance(run, segue.Run)
    file = run.path.with_name(f"{kind}.data.jsonl")
    assert run.recipe.data.path == str(file)
    assert len(file.read_text().splitlines()) == len(data)
    units = json.loads((run.path / "ledger.json").read_text())["units"]
    assert sum(units.values()) == len(data)


def test_what_a_list_says_is_what_is_learnt(runs: dict[str, segue.Run]) -> None:
    assert runs["bow"].labels == ("bad", "good")
    assert runs["window_tagger"].labels == ("D", "N", "V")
    assert [p.label for p in runs["bow"].predict(["a dull film", "a fine film"])] == ["bad", "good"]
    assert [p.tags for p in runs["window_tagger"].predict(["the dog eats"])] == [("D", "N", "V")]


def test_a_list_and_a_file_of_it_are_one(runs: dict[str, segue.Run]) -> None:
    Path("book.txt").write_text("".join(text + "\n" for text in TEXTS))
    run = segue.train("ngram", "book.txt", "n", ["data.unit=line"])
    assert (run.path / "model.safetensors").read_bytes() == (runs["ngram"].path / "model.safetensors").read_bytes()
    Path("tags.conll").write_text(
        "".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*row, strict=True)) + "\n" for row in TAGGED)
    )
    tagger = segue.train("window_tagger", "tags.conll", "t", {"train.steps": 60})
    weights = (tagger.path / "model.safetensors").read_bytes()
    assert weights == (runs["window_tagger"].path / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        ("ngram", [], "empty"),
        ("ngram", [("a", "b")], "Row 0.*needs a text"),
        ("ngram", ["fine", None], "Row 1.*None.*needs a text"),
        ("bow", [("good", "fine"), "text alone"], r"Row 1.*pair \(label, text\)"),
        ("bow", [("a", "b", "c")], "Row 0.*pair"),
        ("bow", [("a", object())], "Row 0.*pair"),
        ("bow", [(None, "fine"), ("bad", "dull")], "row 1 has no 'label'"),
        ("bow", [("good", "fine")] * 9, "nothing to learn"),
        ("window_tagger", [(["a", "b"], ["X"])], "2 words but 1 tags"),
        ("rnn_seq2seq", ["one"], r"pair \(source, target\)"),
    ],
)
def test_a_list_that_does_not_fit_leaves_nothing(kind: str, data: list[Any], told: str) -> None:
    with pytest.raises(segue.InputError, match=told):
        segue.train(kind, data, "runs/x")
    assert list(Path().iterdir()) == []


def test_another_list_does_not_overwrite_the_first() -> None:
    segue.train("bow", REVIEWS, "c", {"train.steps": 3})
    written = Path("c.data.jsonl").read_bytes()
    for resume in (False, True):
        with pytest.raises(segue.InputError, match=r"c\.data\.jsonl holds other rows"):
            segue.train("bow", REVIEWS[:10], "c", {"train.steps": 3}, resume=resume)
    with pytest.raises(segue.InputError, match="already holds a run"):
        segue.train("bow", REVIEWS, "c", {"train.steps": 3})
    assert Path("c.data.jsonl").read_bytes() == written
    again = segue.train("bow", REVIEWS, "c", {"train.steps": 5}, resume=True)
    assert json.loads((again.path / "result.json").read_text())["steps"] == 5


def test_a_place_is_found_where_none_is_given() -> None:
    assert segue.train("ngram", TEXTS).path == Path("runs/ngram-list")
    assert segue.train("ngram/bigram", TEXTS).path == Path("runs/ngram-bigram-list")
    assert segue.train("ngram", TEXTS[:20]).path == Path("runs/ngram-list-2")


@pytest.mark.parametrize("value", [True, False])
def test_settings_are_said_as_python_values(value: bool) -> None:
    run = segue.train("ngram", TEXTS, "n", {"data.canonical": value, "model.order": 2, "data.validation": 0.2})
    assert run.recipe.data.canonical is value
    assert run.recipe.model.order == 2 and run.recipe.data.validation == 0.2


# The same answers as the command line


@pytest.mark.parametrize(("kind", "data"), [case[:2] for case in CASES])
def test_evaluate_agrees(
    runs: dict[str, segue.Run], kind: str, data: Sequence[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs[kind]
    (said,) = command(capsys, "evaluate", run.path, f"{run.path}.data.jsonl", "--json")
    for given in (data, Path(f"{run.path}.data.jsonl"), f"{run.path}.data.jsonl"):
        result = json.loads(json.dumps(run.evaluate(given)).replace("-Infinity", "null").replace("Infinity", "null"))
        named = "a list" if given is data else str(given)
        assert result == {**said, "data": named}
    (said,) = command(capsys, "evaluate", run.path, "--json")
    assert said["split"] == run.evaluate()["split"] == "validation"


@pytest.mark.parametrize("kind", ["ngram", "rnn_lm"])
def test_score_and_generate_agree(runs: dict[str, segue.Run], kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs[kind]
    Path("lines.txt").write_text("the cow\na dog sees\n")
    said = command(capsys, "score", run.path, "--end", "lines.txt", "--json")
    lines = list(run.score(["the cow", "a dog sees"], end=True))
    assert [line.logprobs for line in lines] == [line["logprobs"] for line in said]
    assert [line.bits for line in lines] == [line["bits"] for line in said]
    settings = ["--max-tokens", "9", "--seed", "4", "--temperature", "0.7"]
    (said_texts,) = command(capsys, "generate", run.path, "--prompt", "the ", "-n", "3", *settings, "--json")
    assert run.generate("the ", n=3, max_tokens=9, seed=4, temperature=0.7) == said_texts["texts"]
    first = run.generate("the ", max_tokens=9, seed=4, temperature=0.7)
    assert first == said_texts["texts"][0]  # a text does not depend on how many are written with it


@pytest.mark.parametrize(
    ("kind", "key", "field"),
    [("bow", "label", "label"), ("window_tagger", "tags", "tags"), ("rnn_seq2seq", "translation", "text")],
)
def test_predict_agrees(
    runs: dict[str, segue.Run],
    kind: str,
    key: str,
    field: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["the cow", "a dull film"] * 50
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    said = command(capsys, "predict", runs[kind].path, "-", "--json")
    answers = [getattr(answer, field) for answer in runs[kind].predict(iter(texts))]
    assert [list(a) if isinstance(a, tuple) else a for a in answers] == [row[key] for row in said]


@pytest.mark.parametrize(
    "settings", [{"decode.beam": 4, "decode.max_tokens": 3}, ["decode.beam=4", "decode.max_tokens=3"]]
)
def test_decoding_is_set_after_training(
    runs: dict[str, segue.Run], settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as a run whose recipe says so, by the API and by the command line; the result says what was used."""
    run = runs["rnn_seq2seq"]
    decode = dataclasses.replace(run.recipe.decode, beam=4, max_tokens=3)
    texts = ["the cow", "a dog"]
    expected = list(run.task.predict(run.opened._replace(decode=decode), [Example(text=text) for text in texts]))
    assert list(run.predict(texts, settings)) == expected != list(run.predict(texts))
    Path("in.txt").write_text("the cow\na dog\n")
    typed = ["decode.beam=4", "decode.max_tokens=3"]
    used = {"beam": 4, "length_penalty": 0.6, "max_tokens": 3, "length_ratio": 3.0, "empty": False}
    said = command(capsys, "predict", run.path, "in.txt", *typed, "--json")
    assert [(row["translation"], row["logprob"], row["decode"]) for row in said] == [
        (answer.text, answer.logprob, used) for answer in expected
    ]
    (figures,) = command(capsys, "evaluate", run.path, f"{run.path}.data.jsonl", *typed, "--json")
    assert {**figures, "data": "a list"} == segue.evaluate(run, PAIRS, settings=settings)
    assert figures["decode"] == used and run.evaluate(PAIRS)["decode"] == {**used, "beam": 5, "max_tokens": 5}


@pytest.mark.parametrize(
    ("kind", "setting", "told"),
    [
        ("rnn_seq2seq", "decode.colour=red", r"decode\.colour=red .* can be set: .*decode\.beam"),
        ("rnn_seq2seq", "decode.stop=x", r"decode\.stop=x .* can be set: .*decode\.beam"),
        ("rnn_seq2seq", "decode.temperature=2", "a beam draws nothing: set beam=0"),
        ("rnn_seq2seq", "train.steps=9", r"train\.steps=9 .* stays as it was trained"),
        ("rnn_seq2seq", "decode.beam=wide", r"decode\.beam=wide is not a whole number"),
        ("rnn_seq2seq", "decode.max_tokens=0", "max_tokens is 0"),
        ("bow", "decode.beam=2", r"decode\.beam=2 cannot be set"),
    ],
)
def test_other_settings_are_refused_after_training(
    runs: dict[str, segue.Run], kind: str, setting: str, told: str
) -> None:
    data = {"rnn_seq2seq": PAIRS, "bow": REVIEWS}[kind]
    with pytest.raises(segue.InputError, match=told):
        runs[kind].predict(["the cow"], [setting])
    with pytest.raises(segue.InputError, match=told):
        runs[kind].evaluate(data, settings=[setting])


def test_a_verb_that_the_model_cannot_do(runs: dict[str, segue.Run]) -> None:
    with pytest.raises(segue.InputError, match="cannot generate"):
        runs["bow"].generate("x")
    with pytest.raises(segue.InputError, match="cannot predict"):
        list(runs["ngram"].predict(["x"]))
    with pytest.raises(segue.InputError, match=r"decode\.colour"):
        runs["ngram"].generate("x", colour="red")
    with pytest.raises(segue.InputError, match="Row 0"):
        runs["bow"].evaluate(["a text without its label"])


def test_a_loaded_run_is_the_trained_one(runs: dict[str, segue.Run]) -> None:
    for kind, run in runs.items():
        again = segue.load(run.path)
        assert again.recipe == run.recipe and again.labels == run.labels
        if kind in ("ngram", "rnn_lm"):
            assert again.generate("the ", max_tokens=5, seed=1) == run.generate("the ", max_tokens=5, seed=1)


# Beginning with another run's weights


OTHER = ["my red hen lays two eggs.", "our old fox sees the hen."] * 20


def test_fine_tuning_takes_tokenizer_and_weights(runs: dict[str, segue.Run]) -> None:
    first = runs["rnn_lm"]
    settings = {**TINY, "data.unit": "line", "train.init": first.path, "train.optimizer.rate": 1e-12}
    tuned = segue.train("rnn_lm", OTHER, "tuned", settings)
    assert (tuned.path / "tokenizer.json").read_bytes() == (first.path / "tokenizer.json").read_bytes()
    assert tuned.unknown("fox") == ["f", "x"]  # its characters are those of the first text
    before, after = (load_file(run.path / "model.safetensors") for run in (first, tuned))
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-6)


def test_a_run_that_does_not_fit_is_refused_by_name(runs: dict[str, segue.Run]) -> None:
    settings = {**TINY, "data.unit": "line", "train.init": runs["rnn_lm"].path, "model.width": 9}
    with pytest.raises(segue.InputError, match=r"does not fit: \S+ is \[.*\] there and \[.*\] here") as refused:
        segue.train("rnn_lm", OTHER, "tuned", settings)
    names = load_file(runs["rnn_lm"].path / "model.safetensors")
    assert any(f" {name} is" in str(refused.value) for name in names)
    with pytest.raises(segue.InputError, match="There is no run folder nosuch"):
        segue.train("rnn_lm", OTHER, "tuned", {**TINY, "train.init": "nosuch"})
    with pytest.raises(segue.InputError, match="space tokens"):
        segue.train("window_tagger", TAGGED, "tuned", {"train.init": runs["rnn_lm"].path})
    assert list(Path().iterdir()) == []


def test_what_is_frozen_stays_bit_for_bit(runs: dict[str, segue.Run]) -> None:
    before = load_file(runs["rnn_lm"].path / "model.safetensors")
    frozen = ("vectors", "head.bias")
    assert all(any(name.startswith(prefix) for name in before) for prefix in frozen)
    settings = {**TINY, "data.unit": "line", "train.init": runs["rnn_lm"].path, "train.freeze": ",".join(frozen)}
    after = load_file(segue.train("rnn_lm", OTHER, "tuned", settings).path / "model.safetensors")
    for name in before:
        assert torch.equal(before[name], after[name]) == name.startswith(frozen), name
    with pytest.raises(segue.InputError, match=r"train\.freeze=nosuch names no parameter"):
        segue.train("rnn_lm", OTHER, "other", {**TINY, "train.freeze": "nosuch"})


# Folds and comparisons


def test_folds_test_every_row_once() -> None:
    rows = [("good" if i % 2 else "bad", f"film number{i}") for i in range(20)]
    tested = 0
    for fold in range(1, 5):
        settings = {"data.test": f"{fold}/4", "train.steps": 2, "tokens.min_count": 1}
        run = segue.train("bow", rows, f"fold{fold}", settings)
        result = json.loads((run.path / "result.json").read_text())
        assert result["split"] == "test"
        tested += result["rows"]
    assert tested == len(rows)


def test_compare_with_seeds() -> None:
    settings = {"data.unit": "line", "model.width": 8, "model.embedding": 8}
    compared = segue.compare(TEXTS, ["rnn_lm", "rnn_lm/gru"], "3", seeds=2, out="c", settings=settings)
    assert Path(compared["report"]).read_text().startswith("<!")
    assert {row["model"] for row in compared["rows"]} == {"rnn_lm", "rnn_lm/gru"}
    for row in compared["rows"]:
        assert row["steps"] == 3 and len(row["seeds"]) == 2
        assert row["bits_per_byte"] == pytest.approx(sum(row["seeds"]) / 2)
    assert sorted(path.name for path in Path("c").iterdir() if path.is_dir()) == [
        "rnn_lm-gru-seed0",
        "rnn_lm-gru-seed1",
        "rnn_lm-seed0",
        "rnn_lm-seed1",
    ]


@pytest.mark.parametrize(
    ("task", "data", "models", "main"),
    [
        ("classify", REVIEWS, ["bow", "bow/char"], "accuracy"),
        ("tag", TAGGED, ["window_tagger/one", "window_tagger"], "accuracy"),
        ("seq2seq", PAIRS, ["rnn_seq2seq"], "bleu"),
    ],
)
def test_compare_with_folds(task: str, data: Sequence[Any], models: list[str], main: str) -> None:
    settings = {"decode.max_tokens": 5}
    compared = segue.compare(data, models, "3", folds=2, out="c", settings=settings)
    assert compared["task"] == task and Path(compared["report"]).is_file()
    assert {row["model"] for row in compared["rows"]} == set(models)
    figures = [row[main] for row in compared["rows"]]
    assert figures == sorted(figures, reverse=True)
    assert len([path for path in Path("c").iterdir() if path.is_dir()]) == 2 * len(models)


def test_compare_takes_a_model_once_and_says_no_in_time() -> None:
    compared = segue.compare(TEXTS, ["ngram", "ngram/*", "ngram/bigram"], "3", out="c", settings={"data.unit": "line"})
    names = [row["model"] for row in compared["rows"]]
    assert len(names) == len(set(names)) and "ngram/bigram" in names
    with pytest.raises(segue.InputError, match="c holds a comparison"):
        segue.compare(TEXTS, ["ngram"], "3", out="c")
    for wrong in ({"seeds": 0}, {"folds": 1}, {"folds": 99}, {"budget": "soon"}, {"models": ["ngram", "bow"]}):
        with pytest.raises(segue.InputError):
            segue.compare(**{"data": TEXTS, "models": ["ngram"], "out": "d", "settings": ["data.unit=line"], **wrong})
    assert sorted(path.name for path in Path().iterdir()) == ["c", "c.data.jsonl"]


def test_train_init_takes_the_shape_of_the_model_it_begins_with(tmp_path):
    """Fine-tuning needs no more words than the run's name; a key that is given still counts."""
    text = "the cows eat grass and the cows eat corn " * 40
    first = segue.train(
        "gpt",
        [text],
        tmp_path / "first",
        [
            *("model.layers=1", "model.width=16", "model.heads=2", "model.context=32"),
            *("batches.length=32", "train.steps=2", "data.validation=0"),
        ],
    )
    second = segue.train(
        "gpt", [text], tmp_path / "second", [f"train.init={first.path}", "train.steps=2", "data.validation=0"]
    )
    assert second.recipe.model == first.recipe.model and second.recipe.batches.length == 32
    with pytest.raises(InputError, match="does not fit"):
        segue.train(
            "gpt", [text], tmp_path / "third", [f"train.init={first.path}", "model.layers=2", "data.validation=0"]
        )


def test_one_text_alone_is_not_its_letters(tmp_path: Path) -> None:
    run = segue.train("ngram", ["the cows eat grass"] * 20, tmp_path / "n")
    assert [line.text for line in run.score("the cows", end=True)] == ["the cows"]
    with pytest.raises(segue.InputError, match=r"5.* is not text"):
        run.generate(5)
    bow = segue.train("bow", REVIEWS, tmp_path / "b", {"train.steps": 3})
    with pytest.raises(segue.InputError, match="1 is not a text"):
        list(bow.predict([1]))  # type: ignore[list-item]
    assert len(list(bow.predict("a fine one"))) == len(list(bow.predict("a fine one", explain=True))) == 1


def test_what_there_is_can_be_completed() -> None:
    assert {"train", "load", "compare", "Run"} <= set(dir(segue))

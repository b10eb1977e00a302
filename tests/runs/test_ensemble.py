"""Translators as one ensemble (RUN+RUN), and the files that they translate and score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.cli import main
from segue.errors import InputError

PAIRS = [(f"the {animal} {verb}", f"{verb} {animal}") for animal in ("cow", "dog", "cat") for verb in ("eats", "naps")]
TINY = {"train.steps": 2, "model.width": 8, "tokens.kind": "char", "data.validation": 0, "decode.max_tokens": 9}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ensemble")
    for seed in (0, 1):
        segue.train("rnn_seq2seq", PAIRS, folder / f"run{seed}", TINY | {"train.seed": seed})
    segue.train("rnn_seq2seq", PAIRS, folder / "words", TINY | {"tokens.kind": "word"})
    marked = {"model.output_bias": True, "model.layers": 1, "model.heads": 1}
    segue.train("transformer", PAIRS, folder / "marked", TINY | marked)
    segue.train("naive_bayes", PAIRS, folder / "classes", {"data.validation": 0})
    return folder


@pytest.fixture(autouse=True)
def _here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def typed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out


def test_the_probability_of_a_translation_is_the_mean_at_every_token() -> None:
    one, other, both, twice = (segue.load(name) for name in ("run0", "run1", "run0+run1", "run0+run0"))
    pairs = PAIRS[:3]
    p = [[np.exp(line.logprobs) for line in run.score(pairs)] for run in (one, other, both, twice)]
    for first, second, mean, same in zip(*p, strict=True):
        assert mean == pytest.approx((first + second) / 2, rel=1e-4)
        assert same == pytest.approx(first, rel=1e-4)
    sources = [source for source, _ in PAIRS]
    assert [a.text for a in twice.predict(sources)] == [a.text for a in one.predict(sources)]


def test_a_run_that_begins_targets_by_a_mark_goes_with_one_that_begins_them_by_stop() -> None:
    sources = [source for source, _ in PAIRS]
    one, other = ([a.text for a in segue.load(name).predict(sources)] for name in ("marked+run0", "run0+marked"))
    assert one == other


def test_verbs_take_an_ensemble(capsys: pytest.CaptureFixture[str]) -> None:
    Path("source.txt").write_text("the cow naps\n\nthe dog\n")
    Path("pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    lines = typed(["predict", "run0+run1", "source.txt"], capsys).split("\n")
    both = segue.load("run0+run1")
    expected = [answer.text for answer in both.predict(["the cow naps", "the dog"])]
    assert lines == [expected[0], "", expected[1], ""]
    figures = json.loads(typed(["evaluate", "run0+run1", "pairs.tsv", "--json", "decode.beam=2"], capsys))
    assert figures["run"] == "run0 + run1" and figures["decode"]["beam"] == 2
    assert figures["leak"]["share"] == 1.0
    nats = [p for line in both.score(PAIRS) for p in line.logprobs]
    assert figures["perplexity"] == pytest.approx(np.exp(-np.mean(nats)), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run0+words", "have other tokens"),
        ("run0+classes", "classes is made for classify"),
        ("run0+none", "There is no run folder"),
    ],
)
def test_what_is_no_ensemble(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        segue.load(name)


def test_translators_are_not_mixed() -> None:
    with pytest.raises(InputError, match="an ensemble without --mix"):
        segue.evaluate("run0+run1", PAIRS, mix=True)


@pytest.mark.parametrize("form", ["pairs.tsv", "a.en,a.de", "pairs.jsonl", "pairs.csv", "pairs.json"])
def test_pairs_of_any_form_are_scored(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"source": source, "target": target} for source, target in PAIRS]
    forms: dict[str, Any] = {
        "pairs.tsv": "".join(f"{a}\t{b}\n" for a, b in PAIRS),
        "a.en": "".join(f"{a}\n" for a, _ in PAIRS),
        "a.de": "".join(f"{b}\n" for _, b in PAIRS),
        "pairs.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "pairs.csv": "source,target\n" + "".join(f"{a},{b}\n" for a, b in PAIRS),
        "pairs.json": json.dumps(rows),
    }
    for name in form.split(","):
        Path(name).write_text(forms[name])
    found = [json.loads(line) for line in typed(["score", "run0", form, "--json"], capsys).splitlines()]
    expected = list(segue.load("run0").score(PAIRS))
    assert [line["logprob"] for line in found] == pytest.approx([line.logprob for line in expected])
    assert [line["text"] for line in found] == ["\t".join(pair) for pair in PAIRS]


@pytest.mark.parametrize("text", ["no tab", "one\ttwo\tthree", ("one", "two", "three"), 3])
def test_what_is_no_pair_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="Expected"):
        list(segue.load("run0").score([text]))


def test_n_best_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    Path("source.txt").write_text("the cow\n")
    lines = typed(["predict", "run0", "source.txt", "decode.n_best=3"], capsys).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["1", "2", "3"]
    row = json.loads(typed(["predict", "run0", "source.txt", "decode.n_best=3", "--json"], capsys))
    assert [f"{i}\t{one['score']:.4f}\t{one['translation']}" for i, one in enumerate(row["best"], 1)] == lines
    Path("source.csv").write_text("source,number\nthe cow,1\n")
    table = typed(["predict", "run0", "source.csv", "decode.n_best=3"], capsys).splitlines()
    assert table == ["source,number,prediction", f"the cow,1,{row['translation']}"]

"""data.carry through the command: what each family of models sees of the line before, in training, evaluate and score.

Every line is one of eight letters and comes twice. A model that sees no line but its own pays log2(8) = 3 bits for each
letter, and nothing for the end of the line: 1.5 bits a byte. One that sees the lines before knows the second of each
two, and pays little more than half.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.recipe import load_recipe
from segue.runs.experiments.compare import Asked, _recipes

FAST = ["batches.size=16", "batches.length=16", "train.optimizer.rate=0.03"]
FAMILIES = {
    "ngram": ["model.order=5"],
    "class_ngram": ["model.classes=9", "tokens.kind=char"],
    "weighted_ngram": ["model.order=6"],
    "neural_lm": ["model.width=32", "train.steps=120"],
    "rnn_lm": ["model.width=24", "model.embedding=8", "train.steps=120"],
    "gpt/rotary": [
        "model.width=24",
        "model.heads=2",
        "model.context=16",
        "batches.length=16",
        "train.steps=150",
        *FAST,
    ],
}


def name_of(recipe: str) -> str:
    return recipe.partition("/")[0]


def twice(lines: int, seed: int) -> str:
    draw = random.Random(seed)
    return "".join(f"{letter}\n{letter}\n" for letter in draw.choices("abcdefgh", k=lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every family, with and without carry."""
    folder = tmp_path_factory.mktemp("carry")
    for name, lines, seed in (("train", 1500, 0), ("valid", 60, 1), ("test", 100, 2)):
        (folder / f"{name}.txt").write_text(twice(lines, seed))
    given = ["data.unit=line", f"data.validation={folder / 'valid.txt'}", "--device", "cpu"]
    for kind, settings in FAMILIES.items():
        for carry in ("true", "false"):
            words = [kind, str(folder / "train.txt"), "--out", str(folder / f"{name_of(kind)}-{carry}")]
            assert main(["train", *words, *given, *settings, f"data.carry={carry}"]) == 0
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("carry", [False, True], ids=["alone", "carried"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_sees_the_same(kind: str, carry: bool, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, test = str(place / f"{name_of(kind)}-{str(carry).lower()}"), str(place / "test.txt")
    evaluated = segue.evaluate(run, test)
    lines = said(capsys, "score", run, test, "--end")
    assert len(lines) == 200 and sum(line["bytes"] for line in lines) == evaluated["bytes"] == 400
    assert sum(line["bits"] for line in lines) == pytest.approx(evaluated["bits_per_byte"] * 400, rel=1e-4)
    trained = json.loads((place / run / "result.json").read_text())  # validated in training by the same rule
    for result in (evaluated, trained):
        assert result["way"].startswith("one stream" if carry else "each line by itself")
        low, high = (0.7, 1.15) if carry else (1.4, 1.6)
        assert low < result["bits_per_byte"] < high


@pytest.mark.parametrize("carry", ["true", "false"])
def test_a_mixture_and_what_adapts_keep_to_it(carry: str, place: Path) -> None:
    runs = [str(place / f"{kind}-{carry}") for kind in ("ngram", "rnn_lm", "weighted_ngram")]
    mixed = segue.evaluate("+".join(runs), str(place / "test.txt"), mix=True, adapt=True, cache=True)
    for result in (mixed, mixed["static"]):
        assert (result["bits_per_byte"] < 1.1) == (carry == "true")
    assert ("each line by itself" in mixed["way"] and "keeping what it has learnt" in mixed["way"]) == (
        carry == "false"
    )


def test_runs_that_differ_are_not_mixed(place: Path) -> None:
    with pytest.raises(segue.InputError, match=r"data.carry=True, .* with False"):
        segue.evaluate(f"{place / 'ngram-true'}+{place / 'gpt-false'}", str(place / "test.txt"), mix=True)


def test_an_arpa_file_has_no_such_ngrams(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arpa = [str(place / "model.arpa"), "--to", "arpa"]
    assert main(["export", str(place / "ngram-true"), *arpa]) == 2
    assert "data.carry=false" in capsys.readouterr().err
    assert main(["export", str(place / "ngram-false"), *arpa]) == 0


def test_a_comparison_gives_all_the_same(place: Path) -> None:
    """The recipe of the LSTM carries context, that of the n-gram does not: neither does, or what the command says."""
    names, text = ["rnn_lm/words", "ngram/bigram"], str(place / "train.txt")
    assert [load_recipe(name).data.carry for name in names] == [True, False]
    for more, carries in (([], False), (["data.carry=true"], True)):
        recipes = _recipes(Asked(text, names, "2", 1, 0, "lm", more, []), False)
        assert [recipe.data.carry for recipe in recipes] == [carries, carries]


def test_blank_lines_and_paragraphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Units of no token but STOP, of one, and of several lines: evaluate is the sum of score."""
    (tmp_path / "lines.txt").write_text("a\n\nbc\n\n\nabca\nb\n" * 20)
    (tmp_path / "paragraphs.txt").write_text("ab\nc\n\nd\n\n" * 40)
    for unit, more in (("line", ["data.blank_lines=keep"]), ("paragraph", [])):
        text = tmp_path / f"{unit}s.txt"
        settings = [f"data.unit={unit}", *more, "train.steps=3", "model.width=8", "data.validation=0.2"]
        run = segue.train("rnn_lm", str(text), tmp_path / unit, settings)
        units = text.read_text().split("\n" if unit == "line" else "\n\n")[:-1]
        bits = sum(line.bits for line in run.score(units, end=True))
        result = run.evaluate(str(text))
        assert bits == pytest.approx(result["bits_per_byte"] * result["bytes"], rel=1e-4)
        assert result["bytes"] == len(text.read_text()) and result["way"].startswith(f"each {unit} by itself")


def test_certain_tokens_cost_zero_bits(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = str(place / "train.txt")
    run = segue.train("ngram", text, place / "sure", ["data.unit=line", "model.smoothing=maximum_likelihood"])
    (line,) = run.score(["a"], end=True)
    assert line.token_bits[-1] == 0.0 and str(line.token_bits[-1]) == "0.0"
    (place / "one.txt").write_text("a\n")
    capsys.readouterr()
    assert main(["score", str(place / "sure"), str(place / "one.txt"), "--end"]) == 0
    assert "-0.000" not in capsys.readouterr().out

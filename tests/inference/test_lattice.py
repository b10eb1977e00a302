"""A line with alternatives stands for its paths, and each is scored as the text that it is."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import segue
from segue.cli import main
from segue.errors import InputError
from segue.inference.lattice import MOST, paths

TEXTS = ["the cow eats the green grass", "a cow eats grass", "the dog eats hay"] * 10
LATTICE = "the (cow|caw|) eats (grass|green glass)"
CASES: dict[str, dict[str, Any]] = {
    "ngram": {"data.unit": "line"},
    "rnn_lm": {"data.unit": "line", "model.width": 8, "model.embedding": 8, "train.steps": 3},
    "gpt": {"data.unit": "line", "model.width": 8, "model.layers": 1, "model.heads": 1, "train.steps": 3},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    place = tmp_path_factory.mktemp("runs")
    return {kind: segue.train(kind, TEXTS, place / kind, settings) for kind, settings in CASES.items()}


def test_the_paths_of_a_line() -> None:
    assert paths("the (cow|caw) eats (grass|glass)") == [
        "the cow eats grass",
        "the cow eats glass",
        "the caw eats grass",
        "the caw eats glass",
    ]
    assert paths("the cow eats") == ["the cow eats"]
    assert paths("gr(a|e)y (big |)cow") == ["gray big cow", "gray cow", "grey big cow", "grey cow"]
    assert paths("(a|a)") == ["a"] and paths("(|)") == [""]
    assert paths(r"\(a\|b\) | c \\ \d") == [r"(a|b) | c \ \d"]


@given(st.lists(st.lists(st.text("ab()|\\", max_size=3), min_size=1, max_size=3), max_size=4))
def test_every_choice_is_a_path(slots: list[list[str]]) -> None:
    def escaped(text: str) -> str:
        return "".join("\\" + letter if letter in "()|\\" else letter for letter in text)

    written = "".join("(" + "|".join(map(escaped, slot)) + ")" for slot in slots)
    assert paths(written) == list(dict.fromkeys("".join(choice) for choice in product(*slots)))


@pytest.mark.parametrize("wrong", ["the (cow", "the cow)", "the (cow|(caw|cat))"])
def test_a_parenthesis_too_many(wrong: str) -> None:
    with pytest.raises(InputError, match="Expected alternatives such as"):
        paths(wrong)


def test_too_many_paths_are_refused_before_any_is_scored() -> None:
    assert len(paths("(a|b|c|d|e|f|g|h|i|j)" * 4)) == MOST
    with pytest.raises(InputError, match="has 1,024,000,000,000,000 paths"):
        paths("(a|b|c|d|e|f|g|h|i|j)" * 12 + "(a|b)" * 10)


def token_by_token(run: segue.Run, text: str) -> float:
    """log p of a text and its end, by stepping."""
    state, total, before = run.model.start(1, 100), 0.0, run.sizes.start
    for token in [*run.tokenizer.encode(text).tolist(), run.sizes.stop]:
        given = torch.tensor([[before]])
        logits, state = run.model.step(given, torch.ones_like(given, dtype=torch.bool), state)
        total += float(logits[0].double().log_softmax(-1)[token])
        before = token
    return total


@pytest.mark.parametrize("kind", CASES)
def test_every_path_is_scored_as_the_text_that_it_is(runs: dict[str, segue.Run], kind: str) -> None:
    run = runs[kind]
    found = run.score_paths(LATTICE, end=True)
    words = product(("cow ", "caw ", ""), ("grass", "green glass"))
    expected = {f"the {first}eats {second}": 0.0 for first, second in words}
    expected = {text: token_by_token(run, text) for text in expected}
    assert {line.text: line.logprob for line in found} == pytest.approx(expected, abs=1e-4)
    assert [line.text for line in found] == sorted(expected, key=lambda text: -expected[text])


def test_unknown_words_pay_for_their_spelling(tmp_path: Path) -> None:
    """Else every unknown word would have the probability of UNK."""
    settings = {"data.unit": "line", "tokens.kind": "word"}
    run = segue.train("ngram", [*TEXTS, *(f"a {word}" for word in "xyzuvw")], tmp_path / "words", settings)
    best, worst = run.score_paths("the (cow|zebroid)", end=True)
    assert (best.text, worst.text) == ("the cow", "the zebroid")
    assert worst.bits > -worst.logprob / math.log(2) + 10


def test_the_command_prints_the_best_paths_first(
    runs: dict[str, segue.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["ngram"]
    file = run.path.parent / "lattice.txt"
    file.write_text(f"{LATTICE}\nhay\n")
    assert main(["score", str(run.path), str(file), "--lattice", "--end", "--top", "2", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    own = run.score_paths(LATTICE, end=True)
    assert first["lattice"] == LATTICE and first["count"] == 6 and len(first["paths"]) == 2
    assert [(path["text"], path["logprob"]) for path in first["paths"]] == [(one.text, one.logprob) for one in own[:2]]
    assert first["paths"][0]["perplexity"] == pytest.approx(np.exp(-own[0].logprob / len(own[0].tokens)))
    assert second["count"] == 1
    assert main(["score", str(run.path), str(file), "--lattice"]) == 0
    assert "6 paths scored" in capsys.readouterr().out
    file.write_text("the (cow\n")
    assert main(["score", str(run.path), str(file), "--lattice"]) == 2
    assert "Expected alternatives" in capsys.readouterr().err

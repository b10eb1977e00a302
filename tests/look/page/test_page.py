"""From runs to the page: which passage is shown, what each word costs, and a page for every task from real runs."""

from __future__ import annotations

import dataclasses
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.shapes import TEXT
from segue.errors import InputError
from segue.inference.score import Line
from segue.look.page.report import render
from segue.runs.folder import read_json
from segue.runs.gather import NAMES, Passage, _words_of, entry_of, page_of, passage_of, word_bits
from segue.runs.train import train

SENTENCES = [
    "the old cow eats green grass near the lake",
    "my dog sees  a red ball and runs",
    "a wise king naps well; the girls buy 3 hats",
]
TEXTS = SENTENCES * 12
KINDS = ["char", "byte", "word", "bpe", "unigram", "wordpiece", "space"]


@pytest.fixture(scope="module")
def ngrams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    """A small language model over each kind of tokens, a unit a line."""
    folder = tmp_path_factory.mktemp("ngrams")
    (folder / "book.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return {
        kind: segue.train(
            "ngram",
            folder / "book.txt",
            folder / kind,
            {"tokens.kind": kind, "tokens.min_count": 1, "data.unit": "line", "data.validation": 0, "model.order": 3},
        )
        for kind in KINDS
    }


# What each word costs


UNITS = ["the old cow", "", "  a  king naps ", "a\tcow\n😀naïve", "zebras!"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_of_the_words_are_those_of_the_line(kind: str, ngrams: dict[str, segue.Run]) -> None:
    run = ngrams[kind]
    for unit, line in zip(UNITS, run.score(UNITS, end=True), strict=True):
        words = word_bits(run, [unit])
        assert math.fsum(bits for _, bits in words) == pytest.approx(line.bits)
        assert "".join(word for word, _ in words) == line.text + "\n"
    together = word_bits(run, UNITS)
    assert together == [word for unit in UNITS for word in word_bits(run, [unit])]


@pytest.mark.parametrize("kind", KINDS)
def test_each_word_pays_for_its_own_tokens(kind: str, ngrams: dict[str, segue.Run]) -> None:
    """In one line of known words, one is out of place: it and what follows surprise, what stands before does not."""
    run = ngrams[kind]
    usual, odd = SENTENCES[0], SENTENCES[0].replace("grass", "king")
    before = word_bits(run, [usual])
    after = word_bits(run, [odd])
    assert [word for word, _ in after] == [*re.findall(r"\s*\S+", odd), "\n"]
    place = usual.split().index("grass")
    assert after[:place] == before[:place]
    assert after[place][1] > before[place][1] + 0.5


def test_the_end_stands_by_itself(ngrams: dict[str, segue.Run]) -> None:
    """A text that breaks off is surprising at its end, not in its last word."""
    run = ngrams["word"]
    whole, broken = word_bits(run, ["the old cow eats"]), word_bits(run, ["the old cow"])
    assert broken[:3] == whole[:3]
    assert broken[-1][0] == "\n" and broken[-1][1] > whole[2][1]
    assert word_bits(run, [""]) == [("\n", pytest.approx(next(run.score([""], end=True)).bits))]


def test_tokens_that_share_a_character_belong_to_its_word() -> None:
    """The bytes of one letter: only the last one shows it, and all are paid in its word."""
    line = Line("é é", ["", "é", " ", "", "é", ""], [0.0] * 6, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 0.0, 63.0, 6)
    assert _words_of(line, "") == [("é", 3.0), (" é", 28.0), ("", 32.0)]


# Which passage


def corpus_of(text: str, unit: str, folder: Path) -> Corpus:
    path = folder / "held.txt"
    path.write_text(text, encoding="utf-8")
    return Corpus(Data(path=str(path), unit=unit, validation=0.0), TEXT)


PARAGRAPH = " ".join(SENTENCES * 4)


def test_of_a_document_a_paragraph_of_a_good_length(tmp_path: Path) -> None:
    text = f"A title\n\nshort\n\n{PARAGRAPH}\n\n{PARAGRAPH * 9}\n\nend\n"
    passage = passage_of(corpus_of(text, "document", tmp_path), "all")
    assert passage.units == [PARAGRAPH] and 200 <= len(PARAGRAPH) <= 700
    assert passage.prompt == "the old cow"


def test_of_a_document_without_paragraphs_its_beginning(tmp_path: Path) -> None:
    passage = passage_of(corpus_of(PARAGRAPH * 9, "document", tmp_path), "all")
    assert passage.units == [(PARAGRAPH * 9)[:700]]


def test_of_a_document_that_is_short_all_of_it(tmp_path: Path) -> None:
    assert passage_of(corpus_of("two words\n", "document", tmp_path), "all").units[0].startswith("two words")


@pytest.mark.parametrize(("unit", "between"), [("line", "\n"), ("paragraph", "\n\n")])
def test_of_lines_and_paragraphs_the_first_ones(unit: str, between: str, tmp_path: Path) -> None:
    passage = passage_of(corpus_of(between.join(TEXTS), unit, tmp_path), "all")
    assert passage.units == TEXTS[: len(passage.units)]
    assert 300 <= sum(map(len, passage.units)) <= 300 + max(map(len, TEXTS))
    assert passage.prompt == "the old cow"


def test_a_very_long_line_is_cut(tmp_path: Path) -> None:
    assert passage_of(corpus_of("ab " * 5000, "line", tmp_path), "all").units == [("ab " * 5000)[:700]]


def test_the_passage_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"line number {i}" for i in range(100)), encoding="utf-8")
    corpus = Corpus(Data(path=str(path), unit="line", validation=0.1), TEXT)
    assert passage_of(corpus, "validation").units == [f"line number {i}" for i in range(90, 100)]


# The pages of real runs


class Checked(HTMLParser):
    """Every element that is opened is closed in its turn."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr", "col", "path", "line", "circle", "rect", "use"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


TASKS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "lm": ("rnn_lm", TEXTS, {"model.width": 8, "data.unit": "line"}),
    "classify": ("bow", [(text.split()[1], text) for text in TEXTS], {}),
    "tag": ("window_tagger", [(t.split(), [str(len(w) % 3) for w in t.split()]) for t in TEXTS], {"model.width": 8}),
    "seq2seq": ("rnn_seq2seq", [(t, t.upper()) for t in TEXTS], {"model.width": 8, "tokens.kind": "char"}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, segue.Run]:
    folder = tmp_path_factory.mktemp("tasks")
    usual = {"train.steps": 5, "train.every": 2, "batches.size": 4, "data.test": 0.3, "decode.max_tokens": 30}
    return {
        task: segue.train(kind, rows, folder / task, usual | settings, device="cpu")
        for task, (kind, rows, settings) in TASKS.items()
    }


def page_text(run: segue.Run) -> str:
    return (run.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("task", TASKS)
def test_a_run_of_every_task_has_a_page(task: str, runs: dict[str, segue.Run]) -> None:
    run = runs[task]
    html = page_text(run)
    checked = Checked()
    checked.feed(html)
    assert checked.open == []
    result = read_json(run.path / "result.json")
    sections = set(re.findall(r'<section id="(\w+)"', html))
    expected = {
        "lm": {"result", "curves", "samples", "surprisal"},
        "classify": {"result", "curves", "confusion"},
        "tag": {"result", "curves"},
        "seq2seq": {"result", "curves", "examples"},
    }
    assert expected[task] | {"ledger"} <= sections
    assert result["split"] == "test" and "on the test split" in html
    assert run.recipe.name in html and "NaN" not in html and "None" not in html


@pytest.mark.parametrize("task", TASKS)
def test_the_entry_says_what_the_result_says(task: str, runs: dict[str, segue.Run]) -> None:
    run = runs[task]
    corpus = Corpus(run.recipe.data, run.recipe.shape)
    evaluation = run.evaluate_split(corpus, "test")
    result = read_json(run.path / "result.json")
    passage = passage_of(corpus, "test") if task == "lm" else None
    entry = entry_of(run, evaluation, result, passage)
    for name, value in entry.metrics.items():
        key = {shown: key for key, shown in NAMES.items()}.get(name, name)
        assert value == evaluation.result[key] == pytest.approx(result[key])
    assert entry.steps == 5 and entry.curve.steps == [2, 4, 5] and len(entry.curve.values) == 3
    assert entry.parameters == sum(p.numel() for p in run.model.parameters())
    assert bool(entry.sample) == bool(entry.surprisal) == (task == "lm")
    assert (entry.confusion is not None) == bool(entry.calibration) == (task in ("classify", "tag"))
    page = page_of("A title <b>", ["A sentence."], [entry], passage, evaluation)
    assert page.ledger == read_json(run.path / "ledger.json") and page.judged == ("words" if task == "tag" else "rows")
    assert "A title &lt;b&gt;" in render(page)


def test_the_sample_goes_on_from_the_prompt(runs: dict[str, segue.Run]) -> None:
    """The same for every model, and the same each time: seed 0, whatever the recipe's own settings are."""
    run = runs["lm"]
    corpus = Corpus(run.recipe.data, run.recipe.shape)
    evaluation, result = run.evaluate_split(corpus, "test"), read_json(run.path / "result.json")
    passage = Passage(["the old cow"], "the old")
    first, again = (entry_of(run, evaluation, result, passage).sample for _ in range(2))
    assert first == again == run.generate("the old", max_tokens=400, seed=0, temperature=1.0, beam=0)


def test_tokens_that_lose_text_are_given_no_bits(tmp_path: Path) -> None:
    """Not infinite ones, either."""
    settings = {"tokens.kind": "wordpiece", "data.unit": "line", "model.order": 2}
    run = segue.train("ngram", TEXTS, tmp_path / "run", settings)
    html = page_text(run)
    assert "∞" not in html and "inf bits" not in html
    assert re.search(r"[\d.]+ perplexity on the validation split", re.sub("<[^>]*>", "", html))
    assert "bits per token" in html


def test_impossible_text_is_infinite(tmp_path: Path) -> None:
    """Maximum likelihood on new words: infinite bits, said and shown."""
    held = tmp_path / "held.txt"
    held.write_text("grass eats old cows\n", encoding="utf-8")
    settings = {"model.smoothing": "maximum_likelihood", "data.unit": "line", "data.validation": str(held)}
    run = segue.train("ngram", TEXTS, tmp_path / "run", settings)
    assert "∞" in page_text(run)
    assert read_json(run.path / "result.json")["bits_per_byte"] is None


def test_nothing_held_out_no_page(tmp_path: Path) -> None:
    run = segue.train("ngram", TEXTS, tmp_path / "run", {"data.validation": 0, "data.unit": "line"})
    assert not (run.path / "report.html").exists()
    with pytest.raises(InputError, match="kept nothing back"):
        run.evaluate()


def test_a_beam_in_the_recipe_does_not_hinder_the_page(tmp_path: Path) -> None:
    """The sample is drawn; a recipe that asks for a search, or for few tokens, is for others."""
    recipe = segue.load(
        segue.train("ngram", TEXTS, tmp_path / "one", {"data.unit": "line", "data.validation": 0}).path
    ).recipe
    other = recipe.with_values("decode", beam=3).with_values("data", validation=0.3)
    train(dataclasses.replace(other, name="searched"), out=tmp_path / "two", device="cpu")
    assert "searched" in page_text(segue.load(tmp_path / "two"))

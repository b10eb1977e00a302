"""The quiz of the page: one passage is real, the answers are folded away, and nothing else tells."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.shapes import TEXT
from segue.look.page.report import Curve, Entry, Page, Quiz, render
from segue.runs.gather import Passage, _cut, _guesses, _quiz, _split, passage_of

SENTENCES = ["the old cow eats the green grass", "a small dog sees the big barn", "she runs to the river and back"]
PARAGRAPHS = [f"{number}. " + ", and ".join(SENTENCES * 3) + "." for number in range(12)]


def entry(name: str, guesses: list[str]) -> Entry:
    return Entry(
        model=name,
        tokens="char",
        metrics={"bits per byte": 2.0},
        interval=None,
        differs="",
        parameters=1,
        train_seconds=1.0,
        tokens_per_second=1.0,
        steps=1,
        curve=Curve([], [], []),
        sample="",
        surprisal=[],
        confusion=None,
        examples=[],
        run="runs/x",
        guesses=guesses,
    )


def page(quiz: Quiz | None, names: list[str]) -> Page:
    return Page(
        title="A page",
        judged="rows",
        summary=["Done."],
        entries=[entry(name, []) for name in names],
        prompt="",
        best=None,
        ledger={},
        command="",
        version="0",
        date="today",
        quiz=quiz,
    )


class Outside(HTMLParser):
    """What of a page stands outside its folded answers, tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.shown, self.hidden = 0, "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += (tag == "p" and bool(self.depth)) or ("class", "answer") in attrs
        self._keep(str(attrs))

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag in ("p", "details") and bool(self.depth)

    def handle_data(self, data: str) -> None:
        self._keep(data)

    def _keep(self, what: str) -> None:
        if self.depth > 1:
            self.hidden += what
        else:
            self.shown += what


def quiz_of(html: str) -> str:
    found = re.search(r'<section id="quiz">.*?</section>', html, re.DOTALL)
    assert found
    return found[0]


def test_the_answers_are_folded_away_and_nothing_else_tells() -> None:
    quiz = Quiz("It <was>", [(" so & so", 1), (" the best", None), (" a dog", 0)])
    reader = Outside()
    reader.feed(quiz_of(render(page(quiz, ["gpt/small", "ngram/kn5"]))))
    assert reader.shown.count("It <was>") == 3
    for letter, passage in zip("ABC", (" so & so", " the best", " a dog"), strict=True):
        assert passage in reader.shown and f"Is {letter} the real one?" in reader.shown
    assert not re.search(r"gpt|ngram|swatch|hue|Yes|No\.|open", reader.shown)
    assert (
        re.sub(r"\[.*?\]", "", reader.hidden)
        == "No. ngram/kn5 wrote it.Yes. So the text goes on.No. gpt/small wrote it."
    )


def test_no_quiz_no_section() -> None:
    assert '<section id="quiz">' not in render(page(None, ["a"]))


def test_answers_stay_folded_on_paper() -> None:
    assert 'querySelectorAll("details:not(.answer)")' in render(page(None, ["a"]))


def test_one_of_each_of_the_best_or_several_of_the_only_one() -> None:
    asked = ("It was", " so.")
    passage = Passage([], "", asked)
    models = [entry(f"m{i}", [f"{i}a", f"{i}b", f"{i}c"]) for i in range(5)]
    several = _quiz(passage, models)
    assert several is not None and several.begin == "It was"
    assert {*several.passages} == {(" so.", None), ("0a", 0), ("1b", 1), ("2c", 2)}
    alone = _quiz(passage, models[3:4])
    assert alone is not None and {*alone.passages} == {(" so.", None), ("3a", 0), ("3b", 0), ("3c", 0)}
    skipped = _quiz(passage, [replace(models[0], guesses=[]), *models[1:3]])
    assert skipped is not None and {*skipped.passages} == {(" so.", None), ("1a", 1), ("2b", 2)}
    assert _quiz(passage, [replace(models[0], guesses=[])]) is None
    assert _quiz(Passage([], ""), models) is None
    assert _quiz(passage, models) == several, "shuffled, but always in the same way"


def test_the_real_one_stands_anywhere() -> None:
    models = [entry(f"m{i}", ["a", "b", "c"]) for i in range(3)]
    quizzes = [_quiz(Passage([], "", (f"begin {i}", "real")), models) for i in range(40)]
    places = {[who for _, who in quiz.passages].index(None) for quiz in quizzes if quiz}
    assert places == {0, 1, 2, 3}


@pytest.mark.parametrize("text", ["one two three four five six", "one " * 200, "x" * 900, "", "one", " a b "])
def test_a_text_is_split_between_words(text: str) -> None:
    begin, rest = _split(text)
    whole = rest.removesuffix(" …")
    assert text.startswith(begin + whole)
    assert len(begin) < 80 and len(whole) <= 241
    assert not begin or text[len(begin)].isspace()
    assert rest.endswith(" …") == (len(text[len(begin) :]) > 240 and bool(begin))


def test_a_cut_is_between_words() -> None:
    assert _cut("a b  ") == "a b"
    assert _cut(" word" * 100) == " word" * 48 + " …"
    assert len(_cut("x" * 900)) < 245


def corpus_of(text: str, unit: str, folder: Path) -> Corpus:
    (folder / "held.txt").write_text(text, encoding="utf-8")
    return Corpus(Data(path=str(folder / "held.txt"), unit=unit, validation=0.0), TEXT)


def test_of_a_document_another_paragraph_than_the_one_that_is_shown(tmp_path: Path) -> None:
    text = "nd of a word\n\n" + "\n\n".join(PARAGRAPHS)
    passage = passage_of(corpus_of(text, "document", tmp_path), "all")
    assert passage.asked is not None
    begin, rest = passage.asked
    assert begin + rest.removesuffix(" …") in text
    assert not begin.startswith("nd of") and passage.units[0][:40] not in begin + rest
    assert any(paragraph.startswith(begin) for paragraph in PARAGRAPHS)


def test_of_lines_one_that_is_not_shown(tmp_path: Path) -> None:
    passage = passage_of(corpus_of("\n".join(PARAGRAPHS), "line", tmp_path), "all")
    assert passage.asked is not None
    begin, rest = passage.asked
    assert any(line.startswith(begin + rest.removesuffix(" …")) for line in PARAGRAPHS)
    assert not any(unit.startswith(begin) for unit in passage.units)


@pytest.mark.parametrize("text", ["", "word", "one two\n", "a\nb\nc\n" * 30])
def test_of_too_little_text_no_quiz(text: str, tmp_path: Path) -> None:
    try:
        corpus = corpus_of(text, "line", tmp_path)
    except segue.InputError:
        return
    assert passage_of(corpus, "all").asked is None


@pytest.mark.parametrize("settings", [{}, {"decode.stop": "e", "decode.top_k": 2}, {"tokens.kind": "wordpiece"}])
def test_the_page_of_a_run_has_a_quiz(settings: dict[str, Any], tmp_path: Path) -> None:
    run = segue.train(
        "ngram", PARAGRAPHS * 3, tmp_path / "run", {"data.unit": "line", "data.validation": 0.3, **settings}
    )
    html = quiz_of((run.path / "report.html").read_text(encoding="utf-8"))
    assert html.count('<details class="answer">') == html.count('<article class="panel">') == 4
    assert html.count("<b>Yes.</b>") == 1 and html.count("ngram wrote it") == 3
    assert "written by the model." in html


def test_a_model_that_knows_no_way_on_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is written all the same."""

    def stuck(*arguments: Any, **settings: Any) -> Any:
        return [(" way", False), ("", True), ("", True)]

    run = segue.train("ngram", PARAGRAPHS, tmp_path / "run", {"data.unit": "line"})
    assert len(_guesses(run, "the old")) == 3
    monkeypatch.setattr(segue.Run, "written", stuck)
    assert _guesses(run, "the old") == []

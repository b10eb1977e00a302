"""Answers as a task: what is asked, told and judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from segue.batches.codec import Codec, Sizes
from segue.data.config import Config as Data
from segue.data.example import Answer, Example
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.opened import Opened
from segue.tasks.answer import TASK, Candidate, Span
from segue.tokens.tokenizer import Config, Tokenizer

TEXT = "Denver Broncos won the Super Bowl in Santa Clara, California."
BYTES = Tokenizer.train(Config(kind="byte"), ["a"])


def opened(**data: Any) -> Opened:
    sizes = Sizes(BYTES.vocab_size, 3, marks=("start", "mask"), window=64)
    return Opened(None, Codec(BYTES, ("begin", "end", "none"), Data(**data), sizes), Decode(), 64, TASK)


def span(answer: str, text: str = TEXT) -> Span:
    begin = text.index(answer)
    return Span(answer, begin, begin + len(answer), 0.5) if answer else Span("", None, None, 0.5)


ROWS = [
    Example("Who?", target=TEXT, answers=(Answer(0, "Denver Broncos"), Answer(7, "Broncos"))),
    Example("Where?", target=TEXT, answers=(Answer(37, "Santa Clara"),)),
    Example("Why?", target=TEXT),
    Example("Who?", target="Nobody.", answers=(Answer(0, "Nobody"),)),
]


def test_figures_are_squads_with_texts_as_pieces() -> None:
    said = [span("Broncos"), span("Santa Clara, California"), span(""), span("", "Nobody.")]
    evaluation = TASK.figures(opened(), ROWS, said)
    result = evaluation.result
    assert result["figure"] == "f1" and result["f1"] == pytest.approx((1 + 0.8 + 1 + 0) / 4)
    assert result["exact"] == pytest.approx(2 / 4) and (result["questions"], result["texts"]) == (4, 2)
    assert evaluation.pieces_NK.tolist() == [[pytest.approx(2.8), 3], [0, 1]]
    assert result["has_answer_f1"] == pytest.approx(1.8 / 3) and result["has_answer_exact"] == pytest.approx(1 / 3)
    assert (result["no_answer_exact"], result["no_answer_questions"], result["said_none"]) == (1.0, 1, 0.5)
    assert result["reachable"] == 1.0 and TASK.amount(evaluation) == "4 questions about 2 texts"
    assert [error["question"] for error in evaluation.examples] == ["Where?", "Who?"]
    assert TASK.figures(opened(metric="exact"), ROWS, said).figure == "exact"


def test_where_all_have_an_answer_nothing_is_said_of_none() -> None:
    result = TASK.figures(opened(), ROWS[:2], [span("Broncos"), span("won")]).result
    assert not {"has_answer_f1", "no_answer_exact", "said_none"} & result.keys()


def test_an_answer_inside_a_token_cannot_be_reached() -> None:
    words = Tokenizer.train(Config(kind="space"), [TEXT])
    one = opened()
    one = one._replace(codec=one.codec._replace(tokenizer=words))
    rows = [Example("Where?", target=TEXT, answers=(Answer(37, "Santa Clara"), Answer(0, "Denver Broncos")))]
    assert TASK.figures(one, rows, [span("won")]).result["reachable"] == 0.5  # "Clara," is a token


@pytest.mark.parametrize(
    "line",
    [
        "Who won?\tDenver won.",
        '{"question": "Who won?", "context": "Denver won."}',
        '{"query": "Who won?", "passage": "Denver won.", "id": 3}',
    ],
)
def test_a_typed_line(line: str) -> None:
    example = TASK.asked(line, Data())
    assert (example.text, example.target) == ("Who won?", "Denver won.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Who won?", "has no tab. Expected a question, a tab and the text"),
        ("\tDenver won.", "no question"),
        ("Who won?\t ", "no text"),
        ('{"question": "Who won?"', "is not JSON"),
        ('{"question": "Who won?"}', "has no 'context'"),
        ('{"context": "Denver won.", "question": 3}', "has no 'question'"),
    ],
)
def test_a_bad_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        TASK.asked(line, Data())


def test_a_prediction_in_a_line_and_as_json() -> None:
    found = Span("Denver\nBroncos", 0, 14, 0.5, 2, 3)
    assert found.line() == "Denver Broncos"
    assert found.json() == {"answer": "Denver\nBroncos", "begin": 0, "end": 14, "score": 0.5, "window": 2, "windows": 3}
    none = Span(
        "", None, None, 0.9, no_answer=0.9, best=(Candidate("won", 15, 18, 0.05), Candidate("Bowl", 29, 33, 0.01))
    )
    assert none.line() == "1\t0.0500\twon\n2\t0.0100\tBowl"
    assert json.loads(json.dumps(none.json()))["best"][1]["begin"] == 29 and none.json()["no_answer"] == 0.9
    assert TASK.cells(none) == {"answer": "", "begin": "", "end": "", "score": "0.9000"}


def test_tokens_of_a_long_question_are_counted_as_cut() -> None:
    room = (64 - 3) // 2
    assert TASK.cut(opened(), Example("q" * (room - 1), target=TEXT)) == 0
    assert TASK.cut(opened(), Example("q" * (room + 5), target=TEXT)) == 6  # with the blank in front

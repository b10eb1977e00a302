"""Questions about a text with their answers, which stand in the text: SQuAD's JSON, and rows of tables and objects.

SQuAD (Rajpurkar et al. 2016, 2018) nests them: data, articles, paragraphs with a `context`, `qas` with a `question`, an
`id` and `answers`, each a `text` and the place of its first character in the context, `answer_start`. Several answers
are as right as each other; none (2.0: is_impossible) says that the text does not answer the question. Here each
question is a row: {"id": …, "question": …, "context": …, "answers": …}, as Hugging Face's `datasets` has them too,
where `answers` is {"text": […], "answer_start": […]}. A single answer may be a string, with its `answer_start` beside
it or, if it stands just once in the text, without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from segue.data.config import Config
from segue.data.example import Answer, Example
from segue.data.units import tidy

QUESTION, CONTEXT, ANSWERS = FIELDS = ("question", "context", "answers")
ALSO = (("query",), ("text", "passage", "paragraph", "document"), ("answer",))
"""For each field, other names that columns and keys usually have for it."""
START = "answer_start"
"""The column or key with the place of a single answer."""
_NESTED = re.compile(r'"paragraphs"\s*:\s*\[\s*\{\s*"(?:context|qas)"|"qas"\s*:\s*\[\s*\{')
_SHOWN = 40
Values = list[Any]


def is_nested(lines: Sequence[str]) -> bool:
    """Whether the first lines of a .json file are SQuAD's; an article may be longer than what is looked at."""
    return _NESTED.search("\n".join(lines)) is not None


def rows_within(value: Any) -> Iterator[Any]:
    """Yield the questions of an article or of a paragraph of SQuAD's; any other value is a row itself. What is not as
    SQuAD has it comes as what is wrong with it."""
    if isinstance(value, dict) and "paragraphs" in value:
        yield from _each(value["paragraphs"], "paragraphs", f"of the article '{str(value.get('title', ''))[:_SHOWN]}'")
    elif isinstance(value, dict) and "qas" in value:
        where = f"of the paragraph '{str(value.get(CONTEXT, ''))[:_SHOWN]}'"
        for one in _each(value["qas"], "qas", where):
            if not isinstance(one, dict):
                yield one
            elif CONTEXT not in value:
                yield f"{_called(one)}has no '{CONTEXT}' in its paragraph"
            else:
                yield {**one, CONTEXT: value[CONTEXT]}
    else:
        yield value


def _each(values: Any, key: str, where: str) -> Iterator[Any]:
    if not isinstance(values, list):
        yield f"has '{key}' {where} that are not a list"
        return
    for value in values:
        yield from rows_within(value) if isinstance(value, dict) else [f"has '{key}' {where} that are not objects"]


def values_of(found: dict[str, Any], keys: Sequence[str], config: Config) -> Values | str:
    """Return question, context, the texts of the answers and their places (as strings), or what is wrong."""
    question, context, given = (found.get(key) for key in keys)
    for key, value in zip(keys, (question, context), strict=False):
        if not isinstance(value, str):
            return f"{_called(found)}{_no(key, value, 'a string')}"
    answers = _listed(given, found.get(START))
    if isinstance(answers, str):
        return f"{_called(found)}{answers.replace(ANSWERS, keys[2], 1)}"
    texts, starts = answers
    if found.get("is_impossible") is True and texts:
        return f"{_called(found)}has an answer, and is_impossible says that there is none"
    return [question, context, texts, starts, _called(found)]


def _no(key: str, value: Any, wanted: str) -> str:
    return f"has no '{key}'" if value is None else f"has a '{key}' that is not {wanted}"


def _listed(given: Any, start: Any) -> tuple[list[str], list[str]] | str:
    """Return the texts of answers and their places, from any of the forms that they have."""
    if isinstance(given, str):
        return ([given], ["" if start is None else str(start)]) if given else ([], [])
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get(START)
        if isinstance(texts, str):
            texts, starts = [texts], [starts]
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            return f"has '{ANSWERS}' without as many places ({START}) as texts (text)"
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(given, list):
        whole = all(isinstance(one, dict) for one in given)
        if not whole and not all(isinstance(one, str) for one in given):
            return f"has '{ANSWERS}' that are neither texts nor objects with text and {START}"
        pairs = [(one.get("text"), one.get(START)) for one in given] if whole else [(one, None) for one in given]
    else:
        return _no(ANSWERS, given, "a text, a list or an object")
    if not all(isinstance(text, str) for text, _ in pairs):
        return f"has '{ANSWERS}' without a text"
    return [text for text, _ in pairs], ["" if start is None else str(start) for _, start in pairs]


def _called(found: dict[str, Any]) -> str:
    """What a message calls a row of a file that may be one line: by its id."""
    name = found.get("id")
    return f"(question {str(name)[:_SHOWN]}) " if isinstance(name, str | int) and str(name) else ""


def example_of(values: Values, config: Config) -> Example | str:
    """Make an example of a row's values, from JSON or from the cells of a table, or say what is wrong with the row."""
    question, context, given, *more = values
    texts = given if isinstance(given, list) else [given] if given else []
    starts = more[0] if more and isinstance(more[0], list) else [more[0] if more else ""] * len(texts)
    called = more[1] if len(more) > 1 else ""
    if not question.strip():
        return f"{called}has no question"
    if not context.strip():
        return f"{called}has an empty text"
    answers = []
    for text, start in dict.fromkeys(zip(texts, starts, strict=True)):  # people often give the same answer
        found = placed(context, text, start)
        if isinstance(found, str):
            return called + found
        answers.append(found)
    if config.canonical:
        answers = [_tidied(context, answer) for answer in answers]
        question, context = tidy(question), tidy(context)
    return Example(question, target=context, answers=tuple(answers))


def placed(context: str, text: str, start: str) -> Answer | str:
    """Return where an answer stands in a text, or say why it does not stand there."""
    if not text.strip():
        return "has an empty answer (leave the answers empty where there is none)"
    times = context.count(text)
    if not start.strip():
        if times == 1:
            return Answer(context.index(text), text)
        said = f"has the answer '{text[:_SHOWN]}', which "
        return said + (f"stands {times} times in the text: add {START}" if times else "does not stand in the text")
    whole = start.strip().removesuffix(".0")  # as tables write a column of numbers where some are missing
    place = int(whole) if whole.isdecimal() and len(whole) < 16 else -1
    if place < 0:
        return f"has {START} '{start[:_SHOWN]}', which is no place in a text (a whole number from 0)"
    if context.startswith(text, place):
        return Answer(place, text)
    there = context[place : place + len(text)]
    elsewhere = f"it stands at {context.index(text)}" if times == 1 else f"it stands {times} times in the text"
    said = f"there stands '{there[:_SHOWN]}'" if there else f"the text has {len(context)} characters"
    return f"has the answer '{text[:_SHOWN]}' at {place}, but {said}; " + (elsewhere if times else "it stands nowhere")


def _tidied(context: str, answer: Answer) -> Answer:
    """Return the place and the text of an answer in the tidied text."""
    place = len(tidy(context[: answer.begin] + "x")) - 1  # x keeps the blank before it
    lead = len(answer.text) - len(answer.text.lstrip())
    if lead:
        place = len(tidy(context[: answer.begin + lead] + "x")) - 1
    return Answer(place, tidy(answer.text))

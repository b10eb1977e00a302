"""Answer: find where in a text the answer to a question stands, or that it has none (SQuAD)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.answer_windows import Asked, Tokens, Window, collate_asked, lay_out, spans_of, tokens_of
from segue.batches.batch import Batch
from segue.batches.codec import Codec
from segue.batches.encode import Encoded, encode
from segue.batches.store import Columns
from segue.data.answers import ALSO, CONTEXT, QUESTION
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.shapes import ANSWERS, Shape
from segue.errors import InputError
from segue.inference.by_length import by_tokens, windows
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.inference.text_metrics import judge_answer
from segue.models.base import Model
from segue.tasks.base import Task, Values, causal_body

LONGEST = 30
"""The default of decode.max_tokens: most tokens of an answer, as BERT's authors have it."""
BEGIN, END, NONE = "begin", "end", "none"
"""What the head says; none: some questions have no answer (SQuAD 2.0)."""
SHOWN = 20
_ROWS = 64
_CPU, _GPU = (1 << 12, 64), (1 << 16, 1024)
"""Tokens, and rows, that are read at once."""
_MORE = 16
"""Answers that are looked for beyond decode.n_best: some are the same, in two windows or but for a blank."""
_EXCERPT = 120


@dataclass(frozen=True)
class Candidate:
    """One of the n best answers."""

    answer: str
    begin: int
    """The place of its first character in the text."""
    end: int
    """The place after its last character."""
    score: float
    """p(begin) p(end) in the window where it was found."""
    window: int = 1
    """The number of that window."""


@dataclass(frozen=True)
class Span:
    """The answer to a question, where it stands in the text."""

    answer: str
    """Empty: the text does not answer the question."""
    begin: int | None
    end: int | None
    score: float
    """p(begin) p(end), or that of no answer, the least over all windows."""
    window: int = 1
    """The number of the window where it was found."""
    windows: int = 1
    """How many windows the text was read in."""
    no_answer: float | None = None
    """The score of no answer; None if the model was trained where every question has one."""
    best: tuple[Candidate, ...] = ()
    """The n best answers, if several were asked for."""

    def line(self) -> str:
        """Return the answer in one line, empty where there is none; of n best, n lines: rank, score and answer."""
        if not self.best:
            return _one_line(self.answer)
        return "\n".join(f"{n}\t{one.score:.4f}\t{_one_line(one.answer)}" for n, one in enumerate(self.best, 1))

    def json(self) -> dict[str, Any]:
        values = {key: value for key, value in asdict(self).items() if key != "best"}
        if self.no_answer is None:
            del values["no_answer"]
        return values | ({"best": [asdict(one) for one in self.best]} if self.best else {})


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


class AnswerTask(Task):
    """Answers that stand in a text."""

    name = "answer"
    verbs = ("predict",)
    tokens = "wordpiece"
    figure = "f1"
    beside = ("f1", "exact")
    metrics = ("f1", "exact")
    curve = ("accuracy", "begin and end right")
    decides = True
    pieces = "texts"
    head = "finetuned_answerer"
    ladder = ("finetuned_answerer",)
    length = 384
    decodes = ("n_best", "max_tokens", "threshold")

    @property
    def shape(self) -> Shape:
        return ANSWERS

    def defaults(self, values: Values, model: type[Model]) -> None:
        values["decode"].setdefault("max_tokens", LONGEST)

    def labels(self, corpus: Corpus, data: Data) -> tuple[str, ...]:
        """Name what the head says; a question without an answer, of the training rows, makes `none` one of it."""
        answered = [bool(row.answers) for row in corpus.examples("train")]
        if not any(answered):
            raise InputError(
                f"No question of {data.path} has an answer: there is nothing to learn. Expected answers with their "
                "places in the text; check the file and data.columns."
            )
        return (BEGIN, END) if all(answered) else (BEGIN, END, NONE)

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        return self._columns(group, lay_out(group, codec, none_last(codec)), codec, labelled)

    def _columns(self, group: Sequence[Example], asked: Asked, codec: Codec, labelled: bool) -> Columns:
        spans = {"span": spans_of(group, asked, none_last(codec))} if labelled else {}
        return asked.columns | spans

    def collate(self, columns: Columns, limit: int) -> Batch:
        """Make a batch. Targets: the places of begin and end, (B, 2). Rows are windows: no run cuts them."""
        return collate_asked(columns, limit)

    def store(
        self,
        corpus: Corpus,
        split: str,
        codec: Codec,
        folder: Path,
        limit: int = 0,
        done: Callable[[int], None] = lambda rows: None,
    ) -> Encoded:
        """Write the windows to disk; tokens of questions that take more than half of one are counted as cut."""
        cut = 0

        def columns(group: Sequence[Example]) -> Columns:
            nonlocal cut
            asked = lay_out(group, codec, none_last(codec))
            cut += asked.cut
            return self._columns(group, asked, codec, labelled=True)

        encoded = encode(corpus.examples(split), columns, codec.tokenizer, folder, 0, done)
        return encoded._replace(cut=cut)

    def cut(self, opened: Opened, example: Example) -> int:
        room = opened.codec.sizes.window - opened.codec.sizes.frame_places(2)
        if len(example.text.encode()) + 1 <= room // 2:  # a token has at least one byte, but for the blank in front
            return 0
        tokenizer = opened.codec.tokenizer
        return max(0, len(tokenizer.encode(tokenizer.row(example.text))) - max(1, room // 2))

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Span]:
        opened.model.eval()
        for _, group in windows(examples, _ROWS):
            asked = lay_out(group, opened.codec, none_last(opened.codec))
            found: list[list[Any]] = [[] for _ in group]
            for window, best in zip(asked.windows, self._searched(opened, asked), strict=True):
                found[window.row].append((window, best))
            for example, tokens, parts in zip(group, asked.tokens, found, strict=True):
                yield _span(example, tokens, parts, opened)

    def _searched(self, opened: Opened, asked: Asked) -> list[Any]:
        """Search every window, those of about the same length together."""
        from segue.inference.answers import search

        found: list[Any] = [None] * len(asked.windows)
        decode, last = opened.decode, none_last(opened.codec)
        for part in by_tokens(asked.columns["text"].lengths().tolist(), *(_CPU if opened.device == "cpu" else _GPU)):
            some = {name: column.take(np.array(part)) for name, column in asked.columns.items()}
            batch = collate_asked(some)
            batch = replace(batch, unpadded=bool(batch.mask_BT.all())).to(opened.device)
            best = search(opened.model, batch, decode.max_tokens, 2 * decode.n_best + _MORE, last)
            for place, one in zip(part, best, strict=True):
                found[place] = one
        return found

    def asked(self, text: str, data: Data, name: str = "This run") -> Example:
        """Parse a question, a tab and a text, or a JSON object with both."""
        question, tab, context = text.partition("\t")
        if text.lstrip().startswith("{"):
            question, context = _from_object(text, name)
        elif not tab:
            raise InputError(
                f"{name} finds answers in a text, and '{text[:60]}' has no tab. Expected a question, a tab and the "
                'text in one line, or a JSON object, {"question": …, "context": …}.'
            )
        if not question.strip() or not context.strip():
            raise InputError(f"There is no {'question' if context.strip() else 'text'} in '{text[:60]}'.")
        return Example(text=question, target=context)

    def cells(self, prediction: Span) -> dict[str, str]:
        places = ["" if place is None else str(place) for place in (prediction.begin, prediction.end)]
        named = {"answer": prediction.answer, "begin": places[0], "end": places[1]}
        return named | {"score": f"{prediction.score:.4f}"}

    def amount(self, evaluation: Evaluation) -> str:
        return f"{evaluation.result['questions']:,} questions about {len(evaluation.pieces_NK):,} texts"

    def figures(self, opened: Opened, rows: Sequence[Example], predictions: Sequence[Span]) -> Evaluation:
        """Compute F1 and exact match, by SQuAD's definitions. Questions about one text are one piece of the data."""
        truth = [[one.text for one in row.answers] for row in rows]
        judged = np.array([judge_answer(p.answer, right) for p, right in zip(predictions, truth, strict=True)])
        main = self.ranked_by(opened.codec.data)
        texts = {text: number for number, text in enumerate(dict.fromkeys(row.target for row in rows))}
        groups = np.array([texts[row.target] for row in rows])
        tables = {
            name: np.stack([np.bincount(groups, column), np.bincount(groups)], 1).astype(np.float64)
            for name, column in zip(("f1", "exact"), judged.T, strict=True)
        }
        both = {name: _evaluation(name, table) for name, table in tables.items()}
        evaluation, other = both[main], both["exact" if main == "f1" else "f1"]
        evaluation.result.update({key: value for key, value in other.result.items() if key not in ("task", "figure")})
        evaluation.result.update(questions=len(rows), texts=len(texts), **_by_kind(judged, truth, predictions))
        evaluation.result.update(_reachable(rows, opened.codec))
        evaluation.examples.extend(_errors(rows, judged, predictions)[:SHOWN])
        return evaluation


def none_last(codec: Codec) -> bool:
    """Whether the place that says that there is no answer is the last one (batches/answer_windows.py)."""
    return causal_body(codec) or codec.sizes.stopped


def _evaluation(figure: str, table: NDArray[np.float64]) -> Evaluation:
    """A share of the questions, with its interval. Texts stand in the order of the data: those of an article are
    neighbours."""
    return Evaluation({"task": "answer", "figure": figure, figure: 0.0}, table, share=True, ordered=True).refigured()


def _from_object(text: str, name: str) -> tuple[str, str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{text[:60]}' is not JSON ({error}). Expected keys question and context.") from None
    values = [
        next((found[key] for key in (own, *also) if isinstance(found.get(key), str)), "")
        for own, also in zip((QUESTION, CONTEXT), ALSO, strict=False)
    ]
    if not all(values):
        missing = QUESTION if not values[0] else CONTEXT
        raise InputError(f"'{text[:60]}' has no '{missing}' that is a text; {name} needs a question and a text.")
    return values[0], values[1]


def _span(example: Example, tokens: Tokens, parts: Sequence[tuple[Window, Any]], opened: Opened) -> Span:
    """Choose the answer over all windows of a text, each with what was found in it."""
    decode, none = opened.decode, min(best.none for _, best in parts)
    ranked = _ranked(example.target, tokens, parts, decode.n_best)
    can_be_none = NONE in opened.codec.labels
    no_answer = math.exp(none) if can_be_none else None
    best = tuple(one for _, one in ranked) if decode.n_best > 1 else ()
    if not ranked or (can_be_none and ranked[0][0] - none <= decode.threshold):
        return Span("", None, None, math.exp(none), 1, len(parts), no_answer, best)
    _, first = ranked[0]
    return Span(first.answer, first.begin, first.end, first.score, first.window, len(parts), no_answer, best)


def _ranked(text: str, tokens: Tokens, parts: Sequence[tuple[Window, Any]], most: int) -> list[tuple[float, Candidate]]:
    """Return the best different answers with their log scores; one that stands in two windows counts once."""
    spans = ((score, i, j, number) for number, (_, best) in enumerate(parts) for score, i, j in best.spans)
    found: dict[tuple[int, int], tuple[float, Candidate]] = {}
    for score, i, j, number in sorted(spans, key=lambda span: (-span[0], span[3], span[1], span[2])):
        window, _ = parts[number]
        begin, end = tokens.characters(text, window.token(i), window.token(j))
        if begin < end and (begin, end) not in found:
            found[begin, end] = score, Candidate(text[begin:end], begin, end, math.exp(score), number + 1)
            if len(found) == most:
                break
    return list(found.values())


def _by_kind(judged: Any, truth: Sequence[Sequence[str]], predictions: Sequence[Span]) -> dict[str, float]:
    """Compute the figures of questions with an answer and of those without, where there are both (SQuAD 2.0)."""
    has = np.array([bool(right) for right in truth])
    if has.all():
        return {}
    without = {"no_answer_exact": float(judged[~has, 1].mean()), "no_answer_questions": int((~has).sum())}
    said = float(np.mean([not one.answer for one in predictions]))
    if not has.any():
        return without | {"said_none": said}
    f1, exact = judged[has].mean(0).tolist()
    return {"has_answer_f1": f1, "has_answer_exact": exact, **without, "said_none": said}


def _reachable(rows: Sequence[Example], codec: Codec) -> dict[str, float]:
    """Compute the share of right answers that stand between the borders of tokens, so that the model can give them."""
    reached = count = 0
    for row, tokens in zip(rows, tokens_of(rows, codec.tokenizer), strict=True):
        for answer in row.answers:
            places = tokens.places(answer)
            begin, end = tokens.characters(row.target, *places) if places else (0, 0)
            reached += row.target[begin:end] == answer.text.strip()
            count += 1
    return {"reachable": reached / count} if count else {}


def _errors(rows: Sequence[Example], judged: Any, predictions: Sequence[Span]) -> list[dict[str, str]]:
    """List the questions that were answered wrongly, the surest first."""
    errors = []
    for row, (f1, exact), span in zip(rows, judged.tolist(), predictions, strict=True):
        if not exact:
            place = span.begin if span.begin is not None else row.answers[0].begin if row.answers else 0
            begin = max(0, place - _EXCERPT)
            errors.append(
                {
                    "question": row.text,
                    "answer": " | ".join(dict.fromkeys(one.text for one in row.answers)) or "(none)",
                    "predicted": span.answer or "(none)",
                    "F1": f"{f1:.2f}",
                    "score": f"{span.score:.2f}",
                    "text": row.target[begin : place + _EXCERPT],
                }
            )
    return sorted(errors, key=lambda error: error["score"], reverse=True)


TASK = AnswerTask()

"""From runs and their evaluations to the page: what look/report.py shows, gathered."""

from __future__ import annotations

import datetime
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from segue import __version__
from segue.data.corpus import Corpus
from segue.folder import read_json
from segue.inference.evaluate import MAIN, NAMES, Evaluation
from segue.inference.evidence import context_text, evenest, has_counts, token_name
from segue.loaded import Line, Run
from segue.look.report import Curve, Entry, Expected, Page, write
from segue.training.log import read_metrics

_METRICS = {
    "lm": ("bits_per_byte", "spelling_bits_per_byte", "perplexity"),
    "classify": ("accuracy", "macro_f1"),
    "tag": ("accuracy", "span_f1"),
    "seq2seq": ("bleu", "chrf"),
}
_SAMPLE = 400
_ENDS = {"line": "\n", "paragraph": "\n\n", "document": ""}
"""How the end of a unit looks in the text."""


@dataclass(frozen=True)
class Passage:
    """One held-out paragraph that every model reads, and the prompt that every model goes on from."""

    units: list[str]
    prompt: str


def passage_of(corpus: Corpus, split: str) -> Passage:
    """The first held-out paragraph worth showing: of 200 to 700 characters if there is one."""
    lines: list[str] = []
    for example in corpus.examples(split):
        if corpus.config.unit == "document":
            paragraphs = [p for p in re.split(r"\n\s*\n", example.text) if len(p) >= 200]
            if paragraphs:
                paragraph = min(paragraphs, key=lambda p: abs(len(p) - 450))[:700]
                return Passage([paragraph], _prompt(paragraph))
        lines.append(example.text[:700])
        if sum(map(len, lines)) >= 300:
            break
    return Passage(lines, _prompt(" ".join(lines)))


def _prompt(text: str) -> str:
    """Its first words, without a blank at the end: the next word brings its own."""
    return " ".join(text.split()[:3])


def entry_of(
    run: Run, evaluation: Evaluation, result: dict[str, Any], passage: Passage | None, differs: str = ""
) -> Entry:
    """What the page says of one run; `result` is that of its training."""
    figures = evaluation.result
    names = [name for name in _METRICS[run.task] if figures.get(name) is not None or name == MAIN[run.task]]
    interval = figures.get(f"{MAIN[run.task]}_ci")
    return Entry(
        model=run.recipe.name,
        tokens=run.tokenizer.kind,
        metrics={NAMES.get(name, name): figures.get(name) for name in names},
        interval=tuple(interval) if interval else None,
        differs=differs,
        parameters=result["parameters"],
        train_seconds=result["train_seconds"],
        tokens_per_second=result["tokens_per_second"],
        steps=result["steps"],
        curve=_curve(run),
        sample=_sample(run, passage.prompt) if passage else "",
        surprisal=word_bits(run, passage.units) if passage else [],
        confusion=(figures["labels"], figures["confusion"]) if "confusion" in figures else None,
        examples=evaluation.examples,
        run=str(run.path),
        rung=_rung(run),
    )


def write_run_page(run: Run, evaluation: Evaluation, corpus: Corpus, split: str, result: dict[str, Any]) -> None:
    """report.html of a single run."""
    passage = passage_of(corpus, split) if run.task == "lm" else None
    figures = evaluation.result
    # Tokens that lose text have no bits per byte: the sentence then gives their perplexity. Scores have neither.
    shown = next((name for name in (MAIN[run.task], "perplexity") if name in figures), None)
    figure = f"{figures[shown]:.3f} {NAMES.get(shown, shown)}" if shown else "Scores, not probabilities,"
    summary = [
        f"{run.recipe.name} trained on {run.recipe.data.path} for {result['train_seconds']:.1f} s.",
        f"{figure} on the {split} split.",
    ]
    entry = entry_of(run, evaluation, result, passage)
    page = page_of(f"{run.recipe.name} on {run.recipe.data.path}", summary, [entry], passage, evaluation)
    expected = expected_of(run, passage.units) if passage and has_counts(run.model) else None
    write(replace(page, expected=expected), run.path / "report.html")


def page_of(title: str, summary: list[str], entries: list[Entry], passage: Passage | None, best: Evaluation) -> Page:
    """The page of these entries, best first; the ledger is that of the first one's run."""
    return Page(
        title=title,
        task=best.task,
        summary=summary,
        entries=entries,
        prompt=passage.prompt if passage else "",
        best=best.result.get("best_possible"),
        ledger=read_json(Path(entries[0].run) / "ledger.json"),
        command=" ".join(["segue", *map(shlex.quote, sys.argv[1:])]),
        version=__version__,
        date=datetime.date.today().isoformat(),
    )


def _curve(run: Run) -> Curve:
    """The validation figure over training; a translator's is of single tokens, the right words before them given."""
    name = "bits_per_byte" if run.task == "lm" else "accuracy"
    metric = "token accuracy" if run.task == "seq2seq" else ""
    points = [line for line in read_metrics(run.path) if line["kind"] == "validation" and line.get(name) is not None]
    return Curve([p["seconds"] for p in points], [p["step"] for p in points], [p[name] for p in points], metric)


def _rung(run: Run) -> tuple[str, int] | None:
    """The place of a model that counts on the ladder of smoothings and orders."""
    if not has_counts(run.model):
        return None
    return run.model.config.smoothing.replace("_", " "), run.model.config.order


def expected_of(run: Run, units: Iterable[str]) -> Expected | None:
    """The place in a text where most can be seen of what the orders of a model that counts expect."""
    unit = next((unit for unit in units if unit), "")
    ids = run.tokenizer.encode(unit).tolist()
    if not ids:
        return None
    stop = run.sizes.stop
    place, found = evenest(run.model, run.tokenizer, [stop, *ids])
    before = context_text(run.tokenizer, stop, ids[: place - 1])
    came = token_name(run.tokenizer, stop, ids[place - 1] if place <= len(ids) else stop)
    return Expected(before, came, found)


def _sample(run: Run, prompt: str) -> str:
    size = _SAMPLE if run.tokenizer.kind in ("char", "byte") else _SAMPLE // 5
    return str(run.generate(prompt, max_tokens=size, seed=0, temperature=1.0, beam=0))


def word_bits(run: Run, units: Iterable[str]) -> list[tuple[str, float]]:
    """The words of a text as they stand in it, each with the bits of the tokens that begin in it, and the ends."""
    end = _ENDS[run.recipe.data.unit]
    return [word for line in run.score(units) for word in _words_of(line, end)]


def _words_of(line: Line, end: str) -> list[tuple[str, float]]:
    """The words of one unit; its end stands last, by itself: no word is to blame for what the end costs."""
    spans = [match.span() for match in re.finditer(r"\s*\S+|\s+$", line.text)]
    bits = [0.0] * len(spans)
    place = word = 0
    for surface, cost in zip(line.tokens[:-1], line.token_bits[:-1], strict=True):
        # Where tokens leave out the blanks (wordpiece), a token stands further on than the last one ended.
        place = max(place, line.text.find(surface, place))
        while word + 1 < len(spans) and place >= spans[word + 1][0]:
            word += 1
        bits[word] += cost
        place += len(surface)
    texts = [line.text[a:b] for a, b in spans]
    return [*zip(texts, bits, strict=True), (end, line.token_bits[-1])]

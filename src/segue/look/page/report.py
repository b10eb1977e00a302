"""The page of a comparison, or of a single run: `report.html`, one file that works offline.

Top to bottom: the verdict, the table (best first, with intervals on one common scale), the ladder of n-grams, the
learning curves of networks and the orders of an n-gram model, what each model writes, predicts or translates, a quiz
(which of some passages did a person write?), what an n-gram model expects after one context, the surprisal of one
paragraph word by word, of labels the confusions, the figures one by one, the calibration and the errors, rows worth a
look, the corpora where several were mixed, and the ledger. Of many models the best few are shown, the others folded
away; up to eight have a colour each, more have that of their family.
The page asks for nothing from outside, and a content policy forbids the browser to try; its few lines of script only
add comfort (another axis, a read-out, sorting), so it is whole without them.

Everything here is plain data in, text out: nothing knows of runs or tensors.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from segue.data.atomic import atomic_file, of_process
from segue.inference.evaluation import HIDDEN_ZEROS, NAMES
from segue.inference.metrics import class_scores
from segue.look.explain.evidence import Followers
from segue.look.explain.orders import Orders
from segue.look.inside.draw_svg import draw
from segue.look.inside.view import View
from segue.look.page import charts, markup
from segue.look.page.by_length import Lengths, Part, by_length
from segue.look.page.by_order import by_order_charts
from segue.look.page.calibration import Sure, calibration
from segue.look.page.charts import Axes, Line
from segue.look.page.curves import Curve, Learnt, learning_curves
from segue.look.page.followers import followers
from segue.look.page.frozen import Both, frozen_and_tuned
from segue.look.page.heard_and_seen import heard_and_seen, word_errors
from segue.look.page.markup import figure, folded, interval_takes, lower_is_better, percent, swatch, text
from segue.look.page.meanings import MEANINGS, explained, term
from segue.look.page.mistakes import Missed, errors
from segue.look.page.projection import WordMap
from segue.look.page.surprisal import Reading, surprisal
from segue.look.page.trend import Trend, trend_chart
from segue.look.page.word_map import word_map_charts

_HIDDEN_ZEROS = {NAMES[key] for key in HIDDEN_ZEROS}
_LONG_LIST = 12
_CARDS = 3
"""Samples and texts with surprisal that are shown; those of more models are folded away."""


@dataclass(frozen=True)
class Entry:
    """One model of the comparison: one row of the table and its part in every section."""

    model: str
    tokens: str
    metrics: dict[str, float | None]
    """In the order of the columns; the first is the one that is ranked."""
    interval: tuple[float, float] | None
    """The 95 % interval of the first metric."""
    differs: str
    """Whether it differs from the next entry: "yes (p < 0.001)"; "–" where that was not tested; empty for the last."""
    parameters: int
    train_seconds: float
    tokens_per_second: float
    steps: int
    curve: Curve
    sample: str
    """What the model wrote after the prompt, without the prompt."""
    surprisal: list[tuple[str, float]]
    """Each word as it stands in the text, with its blanks, and its bits."""
    confusion: tuple[list[str], list[list[int]]] | None
    """Labels, and counts: a row for each true label."""
    examples: list[dict[str, str]]
    """Errors (classify, tag), or source, reference and output (seq2seq), of sounds and pictures with a `picture`."""
    run: str
    note: str = ""
    rung: tuple[str, int] | None = None
    """Of a model that counts: its smoothing and its order, its place on the ladder."""
    guesses: list[str] = field(default_factory=list)
    """How the model goes on from the beginning that the quiz gives, several times."""
    calibration: list[list[float]] = field(default_factory=list)
    """Of predictions of like confidence: how many, the sum of their confidence, how many are right."""
    loss: Curve | None = None
    """The validation and the training loss, where `curve` is another metric."""
    family: str = ""
    """What models of its kind are called together: n-gram, RNN, Transformer."""
    colour: int = 0
    """Its colour on the page; `render` sets it."""
    types: list[dict[str, Any]] = field(default_factory=list)
    """Of spans: precision, recall and F1 of each type."""
    lengths: list[Part] = field(default_factory=list)
    """Of texts written for a source: the first metric of sources of like length, the shortest first."""
    edits: dict[str, int] = field(default_factory=dict)
    """Of error rates: words that were substituted, deleted and inserted."""
    confusions: list[tuple[str, str, int]] = field(default_factory=list)
    """Of error rates: the reference's word, the output's, and how often it was taken for the other."""


@dataclass(frozen=True)
class Page:
    """All that the page shows."""

    title: str
    judged: str
    """What is judged one by one: rows or words."""
    summary: list[str]
    """Sentences: what, which data, budget, machine, held-out bytes; the last is the verdict."""
    entries: list[Entry]
    """Best first."""
    prompt: str
    best: float | None
    """The best possible value of the first metric, where it is known."""
    ledger: dict[str, Any]
    command: str
    version: str
    date: str
    expected: Expected | None = None
    """Of the page of a run that counts."""
    quiz: Quiz | None = None
    corpora: list[dict[str, Any]] = field(default_factory=list)
    """Where the first entry was trained on several: corpus, tokens, weight, epochs, and its figure on each."""
    column: str = "this run"
    """What the tests of neighbours answer: "this run" (one seed: the runs differ) or "better than next"."""
    trend: Trend | None = None
    """Of the page of a claim: the figure against a number."""
    views: list[View] = field(default_factory=list)
    """Of networks: pictures of what they do with a held-out text (look/inside)."""
    words: WordMap | None = None
    """Of the page of a run with vectors of words."""
    orders: Orders | None = None
    """Of the page of a run that counts n-grams."""
    temperatures: list[tuple[float, str]] = field(default_factory=list)
    """Of the page of a run that writes: temperatures, and what it wrote with each after the prompt."""
    features: list[tuple[str, list[tuple[str, float]]]] = field(default_factory=list)
    """Of the page of a classifier that counts: labels, and the n-grams that speak most for each, with their weights."""
    split: str = "test"
    """The part of the data that the figures are of."""
    best_others: dict[str, float] = field(default_factory=dict)
    """The best possible values of other metrics, where they are known."""
    changes: list[View] = field(default_factory=list)
    """Of networks that began from another run: where their weights changed since."""
    frozen: list[Both] = field(default_factory=list)
    """Bodies that were compared both frozen and fine-tuned."""
    lecture_task: str = ""
    """The task of the lecture's table of frozen and fine-tuned bodies that the data are of; empty: none."""


@dataclass(frozen=True)
class Quiz:
    """Some passages that begin alike: one stands in the held-out text, models wrote the others."""

    begin: str
    passages: list[tuple[str, int | None]]
    """What follows, in the order in which it is shown, with the place of the entry that wrote it; None: it is real."""


@dataclass(frozen=True)
class Expected:
    """One place in held-out text: what stands before it, what came there, and what was likeliest."""

    before: str
    came: str
    followers: Followers


def write(page: Page, path: Path) -> None:
    """Write the page as one file; a reader sees the old file or the new one, never half of it."""
    with atomic_file(path, of_process(path)) as beside:
        beside.write_text(render(page), encoding="utf-8", newline="\n")


def render(page: Page) -> str:
    """The page as a string of HTML."""
    page = replace(page, entries=_coloured(page.entries))
    sections = [
        ("result", "Result", _table(page)),
        ("ladder", "Bits against order", _ladder(page)),
        ("trend", f"Against {text(page.trend.x_title)}" if page.trend else "", _trend(page)),
        ("lengths", "By length of the source", _lengths(page)),
        ("frozen", "Frozen and fine-tuned", _frozen(page)),
        ("curves", "Learning curves", _curves(page)),
        ("changes", "Where the weights changed", _pictures(page.changes)),
        ("orders", "Order by order", by_order_charts(page.orders, page.split) if page.orders else ""),
        ("features", "What speaks for each label", _features(page)),
        ("words", "Map of the words", word_map_charts(page.words) if page.words else ""),
        ("samples", "Samples", _samples(page)),
        ("temperature", "Temperature", _temperatures(page)),
        ("quiz", "Which is the real one?", _quiz(page)),
        ("expected", "Expected, order by order", _expected(page)),
        ("surprisal", "Surprisal, word by word", _surprisal(page)),
        ("inside", "Inside the network", _pictures(page.views)),
        ("confusion", "Confusions", _confusion(page)),
        ("classes", "Label by label", _classes(page)),
        ("types", "Type by type", _types(page)),
        ("calibration", "Calibration", _calibration(page)),
        ("words-taken", "Word errors", _word_errors(page)),
        ("examples", _examples_heading(page), _examples(page)),
        ("rows", "Rows to look at", _rows(page)),
        ("corpora", "Corpora", _corpora(page)),
        ("ledger", "Ledger", _ledger(page)),
    ]
    return whole(page, sections)


def whole(page: Page, sections: Sequence[tuple[str, str, str]]) -> str:
    """A page of sections, each an id, a heading and its content; those without content are left out."""
    shown = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{ident}">{heading.split(",")[0]}</a>' for ident, heading, _ in shown)
    body = "".join(f'<section id="{ident}"><h2>{heading}</h2>{content}</section>' for ident, heading, content in shown)
    return (
        f"{_head(page.title)}<body>{_header(page, links)}<main>{body}</main>{_footer(page)}{_script()}</body></html>\n"
    )


def framed(content: str, height: int) -> str:
    """A part of a page with the page's style, as a frame that a notebook shows; nothing in it may run or be fetched."""
    inside = f'{_head("")}<body style="padding:0 2px"><main>{content}</main></body></html>'
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="" srcdoc="{html.escape(inside)}" style="{style}"></iframe>'


def _asset(name: str) -> str:
    return resources.files("segue.look.page").joinpath(name).read_text(encoding="utf-8")


def _head(title: str) -> str:
    # Only our own script may run, known by its hash, and nothing at all may be fetched: should a model's
    # words ever slip through the escaping, they still could not act.
    digest = base64.b64encode(hashlib.sha256(_asset("page.js").encode()).digest()).decode()
    policy = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    policy += f"script-src 'sha256-{digest}'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{_asset("page.css")}</style></head>'
    )


def _script() -> str:
    return f"<script>{_asset('page.js')}</script>"


def _header(page: Page, links: str) -> str:
    *facts, verdict = page.summary or [""]
    said = "".join(f"<li>{explained(fact)}</li>" for fact in facts)
    return (
        f'<header><p class="mark"><b>segue</b><span>{text(page.date)}</span></p><h1>{text(page.title)}</h1>'
        f'<p class="verdict">{explained(verdict)}</p><ul class="facts">{said}</ul><nav>{links}</nav></header>'
    )


def _footer(page: Page) -> str:
    command = f"<p>Made by</p><pre>{text(page.command)}</pre>" if page.command else ""
    return f"<footer>{command}<p>Segue {text(page.version)}, {text(page.date)}</p></footer>"


def _ranked(page: Page) -> str:
    """The name of the metric that the table is ordered by."""
    return next((name for entry in page.entries for name in entry.metrics), "")


def _coloured(entries: Sequence[Entry]) -> list[Entry]:
    """Give each entry its colour: one of its own, or that of its group where there are more than the colours."""
    if len(entries) <= markup.HUES:
        return [replace(entry, colour=i) for i, entry in enumerate(entries)]
    groups = _groups(entries)
    return [replace(entry, colour=groups.index(_group(entry, entries))) for entry in entries]


def _groups(entries: Sequence[Entry]) -> list[str]:
    """The groups that share a colour, that of the best model first."""
    return list(dict.fromkeys(_group(entry, entries) for entry in entries))


def _group(entry: Entry, entries: Sequence[Entry]) -> str:
    """The family; where all are of one family the smoothing, or the kind."""
    if len({other.family for other in entries}) > 1:
        return entry.family
    return entry.rung[0] if entry.rung else entry.model.partition("/")[0]


def _named(entry: Entry) -> str:
    return f"{swatch(entry.colour)}<b>{text(entry.model)}</b>"


def _families(page: Page) -> str:
    """What the colours mean, where models share them."""
    groups = _groups(page.entries)
    if len(page.entries) <= markup.HUES or not all(groups):
        return ""
    items = "".join(f"<li>{swatch(i)}{text(group)}</li>" for i, group in enumerate(groups))
    return f'<ul class="legend shown">{items}</ul>'


# The table


def _table(page: Page) -> str:
    ranked = _ranked(page)
    others = [name for name in dict.fromkeys(m for e in page.entries for m in e.metrics) if _told(page, name, ranked)]
    scale = _scale(page, ranked)
    paired = any(entry.differs for entry in page.entries)
    head = [f"<th>model</th><th>{term('tokens')}</th>"]
    if ranked:
        head.append(f'<th class="number">{page.split} {term(ranked)} <small>{_direction(ranked)}</small></th>')
    if scale:
        named = f"<span>with {term('95 % interval')}</span>" if _has_intervals(page) else ""
        head.append(f'<th class="forest">{named}{charts.interval_axis(scale)}</th>')
    if paired:
        head.append(f"<th>{_compared(page)}</th>")
    head += [f'<th class="number">{term(name)}</th>' for name in [*others, "parameters", "seconds", "tokens/s"]]
    rows = "".join(_row(page, i, ranked, others, scale, paired) for i in range(len(page.entries)))
    note = _below_table(page, ranked, scale) + _meanings([ranked, *others])
    return (
        f'{_families(page)}<div class="scroll"><table class="result"><thead><tr>{"".join(head)}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _told(page: Page, name: str, ranked: str) -> bool:
    """Whether a figure beside the ranked one has a column: some are left out if there is nothing to tell.

    Perplexities are of tokens: those of models with other tokens cannot stand side by side.
    """
    if name == "perplexity" and len({entry.tokens for entry in page.entries}) > 1:
        return False
    return name != ranked and (name not in _HIDDEN_ZEROS or any(entry.metrics.get(name) for entry in page.entries))


def _meanings(names: Sequence[str]) -> str:
    """The meanings of the columns as a list: a phone has no pointer to hover with."""
    known = [name for name in ("tokens", *names, "parameters", "tokens/s") if name in MEANINGS]
    items = "".join(f"<dt>{text(name)}</dt><dd>{text(MEANINGS[name])}</dd>" for name in known)
    return f'<details><summary>What the columns mean</summary><dl class="ledger">{items}</dl></details>'


def _has_intervals(page: Page) -> bool:
    return any(entry.interval for entry in page.entries)


def _scale(page: Page, ranked: str) -> charts.Scale | None:
    """The scale of dots and bars; None where there is but one dot, without a bar."""
    if len(page.entries) == 1 and not _has_intervals(page):
        return None
    return charts.common_scale([(e.metrics.get(ranked), e.interval) for e in page.entries], ranked, page.best)


def _row(page: Page, i: int, ranked: str, others: Sequence[str], scale: charts.Scale | None, paired: bool) -> str:
    entry = page.entries[i]
    note = f"<small>{text(entry.note)}</small>" if entry.note else ""
    cells = [
        f'<td class="name" data-sort="{i}" title="{text(entry.run)}">{_named(entry)}{note}</td>',
        f'<td data-label="tokens">{text(entry.tokens)}</td>',
    ]
    if ranked:
        cells.append(_number(ranked, entry.metrics.get(ranked), "lead", _interval(entry, ranked), f"{page.split} "))
    if scale:
        bar = charts.interval_bar(entry.metrics.get(ranked), entry.interval, scale, entry.colour)
        cells.append(f'<td class="forest">{bar}</td>')
    if paired:
        cells.append(_differs(page, i))
    cells += [_number(name, entry.metrics.get(name)) for name in others]
    steps = f"<small>{entry.steps:,} steps</small>" if entry.steps > 1 else ""
    cells += [
        _cell("parameters", entry.parameters, markup.short_count(entry.parameters), f"{entry.parameters:,}"),
        _cell("seconds", entry.train_seconds, markup.duration(entry.train_seconds) + steps),
        _cell("tokens/s", entry.tokens_per_second, *_speed(entry.tokens_per_second)),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _number(metric: str, value: float | None, kind: str = "", below: str = "", split: str = "") -> str:
    # What is missing sorts last, whichever way is better.
    worst = float("inf") if lower_is_better(metric) else float("-inf")
    return _cell(split + metric, worst if value is None else value, figure(value, metric) + below, kind=kind)


def _cell(label: str, sort: float, shown: str, hover: str = "", kind: str = "") -> str:
    title = f' title="{hover}"' if hover else ""
    return f'<td class="number {kind}" data-label="{_words(label)}" data-sort="{sort}"{title}><span>{shown}</span></td>'


def _interval(entry: Entry, metric: str) -> str:
    if entry.interval is None:
        return ""
    low, high = (figure(bound, metric).removesuffix(" %") for bound in entry.interval)
    return f"<small>{low} – {high}</small>"


def _differs(page: Page, i: int) -> str:
    entry = page.entries[i]
    if not entry.differs or i + 1 >= len(page.entries):
        return f'<td class="differs empty" data-label="{_compared(page)}"></td>'
    if entry.differs == "–":
        return f'<td class="differs" data-label="{_compared(page)}">–</td>'
    answer, _, detail = entry.differs.partition(" (")
    kind = "sure" if answer == "yes" else "unsure"
    detail = f" {detail.removesuffix(')')}" if detail else ""
    against = text(page.entries[i + 1].model)
    preposition = "from" if page.column == "this run" else "than"
    return (
        f'<td class="differs" data-label="{_compared(page)}"><span><b class="{kind}">{text(answer)}</b>'
        f"{text(detail)}<small>{preposition} {against}</small></span></td>"
    )


def _compared(page: Page) -> str:
    """The heading of the tests of neighbours."""
    return "this run differs from next" if page.column == "this run" else text(page.column)


def _below_table(page: Page, ranked: str, scale: charts.Scale | None) -> str:
    said = []
    values = [entry.metrics.get(ranked) for entry in page.entries]
    if not _has_intervals(page) and any(map(markup.is_number, values)):
        said.append(f"There is too little held-out data for a 95 % interval, which takes {interval_takes(ranked)}.")
    if _has_intervals(page):
        said.append("Bars are 95 % intervals: how far the figure would move on other data of the same kind and size.")
    if any(entry.differs not in ("", "–") for entry in page.entries):
        said.append(
            "Neighbours are compared pair by pair on the same pieces of it: that tells apart more than bars do."
        )
        if page.column == "this run":
            said.append("The answer is about these trained runs; another seed may turn it round.")
    if scale and not all(value is None or scale.holds(value) for value in values):
        said.append("An arrow points to a figure beyond the scale.")
    if page.best is not None:
        said.append(f"The dotted line is the best possible, {figure(page.best, ranked)}.")
    if page.best_others:
        others = ", ".join(f"{figure(value, name)} {text(name)}" for name, value in page.best_others.items())
        said.append(f"The best possible is {others}.")
    return f'<p class="aside">{" ".join(said)}</p>' if said else ""


def _direction(metric: str) -> str:
    return "lower is better" if lower_is_better(metric) else "higher is better"


def _words(name: str) -> str:
    return text(name.replace("_", " "))


def _speed(number: float) -> tuple[str, str]:
    """What is shown, and the whole number for the hover."""
    if not markup.is_number(number):
        return figure(number), ""
    return markup.short_count(round(number)), f"{number:,.0f}"


# The learning curves


def _curves(page: Page) -> str:
    models = [Learnt(entry.model, entry.colour, entry.curve, entry.loss) for entry in page.entries]
    return learning_curves(models, _ranked(page), page.best, page.split)


def _ladder(page: Page) -> str:
    """The figure against the order, a line a smoothing, where n-gram models of several orders are compared."""
    ranked = _ranked(page)
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for entry in page.entries:
        value = entry.metrics.get(ranked)
        if entry.rung and value is not None and markup.is_number(value):
            points.setdefault((entry.rung[0], entry.tokens), []).append((entry.rung[1], value))
    if not any(len({order for order, _ in line}) > 1 for line in points.values()):
        return ""
    title = f"{page.split} {ranked}"
    axes = Axes("order", ranked, lower_is_better(ranked), page.best, whole=True, y_title=title)
    lines = _rungs(points, _groups(page.entries))
    wide, narrow = charts.line_chart(lines, axes, "wide"), charts.line_chart(lines, axes, "narrow")
    said = f"N-gram models: {_words(ranked)} against the order, a line a smoothing ({_direction(ranked)})."
    legend = charts.legend(lines, lambda value: figure(value, ranked))
    return f'<p class="aside">{said}</p><figure>{wide}{narrow}</figure>{legend}'


def _rungs(points: dict[tuple[str, str], list[tuple[int, float]]], groups: Sequence[str]) -> list[Line]:
    """A line for each smoothing and kind of tokens, the longest first; a smoothing has the colour that it has in the
    table, where it has one there, and the lines of its other tokens are dashed."""
    many = len({tokens for _, tokens in points}) > 1
    smoothings = list(dict.fromkeys(smoothing for smoothing, _ in sorted(points)))
    seen: set[str] = set()
    lines = []
    for (smoothing, tokens), line in sorted(points.items(), key=lambda item: (-len(item[1]), item[0])):
        colour = (groups if smoothing in groups else smoothings).index(smoothing)
        orders, values = [order for order, _ in sorted(line)], [value for _, value in sorted(line)]
        name = f"{smoothing}, {tokens}" if many else smoothing
        lines.append(Line(name, colour, orders, values, dashed=smoothing in seen))
        seen.add(smoothing)
    return lines


def _lengths(page: Page) -> str:
    found = [Lengths(entry.model, entry.colour, entry.lengths) for entry in page.entries if entry.lengths]
    return by_length(found, _ranked(page)) if found else ""


def _trend(page: Page) -> str:
    if page.trend is None:
        return ""
    said = f"{page.trend.metric} against {page.trend.x_title} ({_direction(page.trend.metric)})."
    said += " The dotted line is the power law that fits best." if page.trend.law else ""
    wide, narrow = (trend_chart(page.trend, narrow) for narrow in (False, True))
    return f'<p class="aside">{_words(said[:1].upper() + said[1:])}</p><figure>{wide}{narrow}</figure>'


def _features(page: Page) -> str:
    if not page.features:
        return ""
    rows = [
        [text(label), ", ".join(f"<bdi>{text(name)}</bdi>&nbsp;<small>{weight:.2f}</small>" for name, weight in found)]
        for label, found in page.features
    ]
    said = "The n-grams with the greatest weights: what one of them adds to the score of the label (of naive Bayes, to "
    said += "its log-probability), less the mean over the labels."
    return f'<p class="aside">{said}</p>{markup.table(["label", "n-grams"], rows, "plain features")}'


# What the models say


def _samples(page: Page) -> str:
    if not any(entry.sample for entry in page.entries):
        return ""
    prompt = f'<b class="prompt">{text(page.prompt)}</b>'
    # HTML drops a line end that follows <pre>, so one is given for it to drop.
    panels = [
        f'<article class="panel"><h3>{swatch(entry.colour)}{text(entry.model)}</h3>'
        f'<pre dir="auto">\n{prompt}{text(entry.sample)}</pre></article>'
        for entry in page.entries
        if entry.sample
    ]
    begun = "The same prompt and the same seed for all" if page.prompt else "No prompt, and the same seed for all"
    return f'<p class="aside">{begun}; what is bold was given.</p>{folded(panels, "panels", _CARDS)}'


def _temperatures(page: Page) -> str:
    """What one model writes as its probabilities are sharpened or flattened."""
    if not page.temperatures:
        return ""
    prompt = f'<b class="prompt">{text(page.prompt)}</b>'
    panels = "".join(
        f'<article class="panel"><h3>temperature {value:g}</h3><pre dir="auto">\n{prompt}{text(sample)}</pre></article>'
        for value, sample in page.temperatures
    )
    said = "The same prompt and the same seed. Probabilities are raised to the power of 1 / temperature: at 0 the "
    said += (
        "likeliest token is always taken, at 1 tokens are drawn as the model says, above 1 rare ones come more often."
    )
    return f'<p class="aside">{said}</p><div class="panels">{panels}</div>'


def _quiz(page: Page) -> str:
    """Each passage with its answer folded away: no script is needed, and keys and screen readers can open it."""
    if page.quiz is None:
        return ""
    panels = ""
    for letter, (passage, who) in zip("ABCDEFGH", page.quiz.passages, strict=False):
        answer = "<b>Yes.</b> So the text goes on."
        if who is not None:
            answer = f"<b>No.</b> {swatch(page.entries[who].colour)}{text(page.entries[who].model)} wrote it."
        panels += (
            f'<article class="panel"><h3>{letter}</h3><pre dir="auto">\n<b class="prompt">{text(page.quiz.begin)}</b>'
            f'{text(passage)}</pre><details class="answer"><summary>Is {letter} the real one?</summary>'
            f"<p>{answer}</p></details></article>"
        )
    said = "All begin with the same held-out words. One goes on as the text does; the others were written by "
    said += "the model." if len({who for _, who in page.quiz.passages}) == 2 else "the best models, one each."
    return f'<p class="aside">{said}</p><div class="panels quiz">{panels}</div>'


def _expected(page: Page) -> str:
    found = page.expected
    return followers(found.followers, found.before, found.came) if found else ""


def _surprisal(page: Page) -> str:
    readings = [Reading(entry.model, entry.colour, entry.surprisal) for entry in page.entries]
    if not any(reading.words for reading in readings):
        return ""
    said = "A paragraph that no model has seen. The redder a word, the higher its surprisal: the less the model "
    said += "expected it there."
    return f'<p class="aside">{explained(said)}</p>{surprisal(readings, _CARDS)}'


def _confusion(page: Page) -> str:
    """Of the best model that has one."""
    for entry in page.entries:
        if entry.confusion:
            said = f"{_named(entry)}: what each label was taken for."
            return f"<p>{said}</p>{charts.confusion_matrix(*entry.confusion)}"
    return ""


def _classes(page: Page) -> str:
    """Precision, recall and F1 of the best model that has confusions."""
    for entry in page.entries:
        if entry.confusion:
            labels, counts = entry.confusion
            scores = zip(labels, class_scores(counts), strict=True)
            rows = [
                [text(label), *(figure(share, "f1") for share in score[:3]), f"{score.support:,}"]
                for label, score in sorted(scores, key=lambda pair: -pair[1].support)
            ]
            return _precision_and_recall(entry, ["label", page.judged], rows)
    return ""


def _types(page: Page) -> str:
    """Precision, recall and F1 of each type of span, by the best model of spans."""
    for entry in page.entries:
        if entry.types:
            shares = ("precision", "recall", "f1")
            rows = [
                [text(one["type"]), *(figure(one[share], "f1") for share in shares), f"{one['true']:,}"]
                for one in sorted(entry.types, key=lambda one: -one["true"])
            ]
            return _precision_and_recall(entry, ["type", "spans"], rows)
    return ""


def _precision_and_recall(entry: Entry, names: Sequence[str], rows: list[list[str]]) -> str:
    said = f"{_named(entry)}: of what it called so, how much is so (precision); of what "
    said += "is so, how much it found (recall); and F1, the harmonic mean of the two."
    return f"<p>{said}</p>{markup.table([names[0], 'precision', 'recall', 'F1', names[1]], rows)}"


def _calibration(page: Page) -> str:
    return calibration([Sure(e.model, e.colour, e.calibration) for e in page.entries if e.calibration])


def _rows(page: Page) -> str:
    """What the ledger knows of rows with the same text: in training and test, twice, or labelled in several ways."""
    found = page.ledger.get("repeated_texts") or {"rows": 0}
    if not found["rows"]:
        return ""
    shares = [(split, share) for split, share in (page.ledger.get("overlap") or {}).items() if share]
    said = [
        f"{percent(share)} of the {split} rows have a text that is in the training rows too." for split, share in shares
    ]
    said.append(f"{found['rows']:,} rows have the same text as an earlier one.")
    if found["contradictory_texts"]:
        said.append(
            f"{found['contradictory_texts']:,} texts have several labels: no model can be right on all of them."
        )
    rows = [[f'<span dir="auto">{text(one["text"])}</span>', _list(one["labels"])] for one in found["first"]]
    return f'<p class="aside">{text(" ".join(said))}</p>{markup.table(["text", "labels, and where"], rows)}'


def _pictures(views: Sequence[View]) -> str:
    """Pictures of look/inside, drawn as SVG; `segue look` shows them of any text."""
    # Not view.svg(), which brings a style sheet of its own: that would hold for every picture of the page.
    return "".join(f'<figure class="inside">{draw(view)}</figure>' for view in views)


def _frozen(page: Page) -> str:
    return frozen_and_tuned(page.frozen, _ranked(page), page.lecture_task) if page.frozen else ""


def _translates(page: Page) -> bool:
    """Whether the examples are what models wrote, and not errors."""
    return any("output" in example for entry in page.entries for example in entry.examples)


def _not_text(page: Page) -> bool:
    """Whether the sources are sounds or pictures."""
    return any("picture" in example for entry in page.entries for example in entry.examples)


def _examples_heading(page: Page) -> str:
    if _not_text(page):
        sound = any("seconds" in example for entry in page.entries for example in entry.examples)
        return "What was heard" if sound else "What was seen"
    return "Translations" if _translates(page) else "Errors"


def _word_errors(page: Page) -> str:
    """Of the best model that was ranked by an error rate."""
    for entry in page.entries:
        if entry.edits or entry.confusions:
            found = word_errors(entry.edits, entry.confusions)
            return f"<p>{_named(entry)}: which words it took for others.</p>{found}"
    return ""


def _examples(page: Page) -> str:
    having = [entry for entry in page.entries if entry.examples]
    if _not_text(page):
        return heard_and_seen([Missed(entry.model, entry.colour, entry.examples) for entry in having])
    if _translates(page):
        return _translations(having)
    return errors([Missed(entry.model, entry.colour, entry.examples) for entry in having])


def _translations(having: Sequence[Entry]) -> str:
    """Each source and its reference once, with what every model made of it."""
    outputs: dict[tuple[str, str], list[str]] = {}
    for entry in having:
        for example in entry.examples:
            same = outputs.setdefault((example.get("source", ""), example.get("reference", "")), [])
            output = text(example.get("output", "–"))
            same.append(f'<dt>{swatch(entry.colour)}{text(entry.model)}</dt><dd dir="auto">{output}</dd>')
    panels = "".join(
        f'<article class="panel translation"><dl><dt>source</dt><dd dir="auto">{text(source)}</dd>'
        f'<dt>reference</dt><dd dir="auto">{text(reference)}</dd>{"".join(lines)}</dl></article>'
        for (source, reference), lines in outputs.items()
    )
    return f'<div class="panels translations">{panels}</div>' if panels else ""


# The data


def _corpora(page: Page) -> str:
    """As GPT-3's table of its training data: corpus, tokens, weight in the mix, epochs elapsed."""
    if not page.corpora:
        return ""
    scored = any(row.get("bits_per_byte") is not None for row in page.corpora)
    headings = ["corpus", "tokens", "weight in the mix", "epochs elapsed", *(["bits per byte"] if scored else [])]
    rows = [
        [
            text(row["corpus"]),
            f"{row['tokens']:,}",
            percent(row["weight"]),
            f"{row['epochs']:.2f}",
            *([figure(row.get("bits_per_byte"), "bits per byte")] if scored else []),
        ]
        for row in page.corpora
    ]
    said = f"{text(page.entries[0].model)} was trained on several corpora at once. A weight is the share of the tokens "
    said += "drawn; an epoch has elapsed when as many tokens were drawn from a corpus as it has for training."
    return f'<p class="aside">{said}</p>{markup.table(headings, rows, "plain")}'


def _ledger(page: Page) -> str:
    """What was read and left out; rows with the same text have a place of their own on the page."""
    rest = {key: value for key, value in page.ledger.items() if key != "repeated_texts"}
    return _value(rest) if rest else ""


def _value(value: Any) -> str:
    """Plain data of any shape, for a person to read."""
    if isinstance(value, dict) and value:
        items = "".join(f"<dt>{_words(str(key))}</dt><dd>{_value(item)}</dd>" for key, item in value.items())
        return f'<dl class="ledger">{items}</dl>'
    if isinstance(value, list | tuple) and value:
        content = _records(value) if all(isinstance(item, dict) for item in value) else _list(value)
        if len(value) > _LONG_LIST:
            return f"<details><summary>{len(value):,} entries</summary>{content}</details>"
        return content
    if value is None or isinstance(value, dict | list | tuple):
        return '<span class="none">none</span>'
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if markup.is_number(value) else figure(value)
    said = text(str(value))
    return f'<code class="hash">{said}</code>' if re.fullmatch("[0-9a-f]{40,64}", said) else said


def _list(values: Sequence[Any]) -> str:
    return "<ul>" + "".join(f"<li>{_value(value)}</li>" for value in values) + "</ul>"


def _records(records: Sequence[dict[str, Any]]) -> str:
    keys = list(dict.fromkeys(str(key) for record in records for key in record))
    rows = [[_value(record.get(key)) for key in keys] for record in records]
    return markup.table([key.replace("_", " ") for key in keys], rows)

"""Gather what the page shows (look/page/report.py) from runs and their evaluations."""

from __future__ import annotations

import datetime
import math
import random
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue import __version__, tasks
from segue.batches.encode import encode_split
from segue.data.corpus import Corpus
from segue.errors import SegueError
from segue.inference.evaluation import NAMES, PER_TOKEN, Evaluation, main_figure
from segue.inference.score import Line
from segue.inference.words import FIRST
from segue.look.explain.evidence import context_text, evenest, has_counts, token_name
from segue.look.explain.orders import Orders, limit, orders_of
from segue.look.inside import look, views_of
from segue.look.inside.view import View
from segue.look.page.by_length import Part
from segue.look.page.curves import Curve, Points
from segue.look.page.markup import duration, figure
from segue.look.page.projection import word_map
from segue.look.page.report import Entry, Expected, Page, Quiz, write
from segue.look.page.trend import Point, Trend
from segue.look.page.weight_change import weight_change_view
from segue.models.base import Body, Counted, NgramWeights
from segue.recipe import Recipe
from segue.runs.folder import read_json
from segue.runs.run import Run
from segue.training.log import read_metrics

_SAMPLE = 400
_INSIDE = 24
"""Characters of held-out text whose attention or gates are drawn."""
_ALIGNED, _ALIGNED_WORDS = 2, (5, 14)
"""Held-out sentences whose alignment is drawn, and how many words such a source has; what was written of a sound or a
picture has at most as many."""
_MASKED_WORDS = 60
"""Words of the text that is shown masked."""
_GIVEN, _CONTINUED = 70, 240
"""About how many characters the quiz shows first, and how many follow."""
_OTHERS = 3
"""Number of generated passages in the quiz."""
_SEARCHED = 500
"""Search this many units of held-out text for one for the quiz."""
TEMPERATURES = (0.0, 0.5, 0.8, 1.0, 1.3)
_LABELS, _FEATURES = 12, 15
"""Labels, and n-grams of each, that are shown of a classifier that counts."""
_MOST_WEIGHTS = 5_000_000
"""Look for the greatest weights among at most so many: spelling out more n-grams takes seconds."""
_TEMPERED = 100
"""Characters that are written with each temperature."""
_ENDS = {"line": "\n", "paragraph": "\n\n", "document": ""}
"""How the end of a unit looks in the text."""


@dataclass(frozen=True)
class Passage:
    """One held-out paragraph that every model reads, and the prompt that every model goes on from."""

    units: list[str]
    prompt: str
    asked: tuple[str, str] | None = None
    """For the quiz, another place in the text: its beginning, and how it goes on."""


def passage_of(corpus: Corpus, split: str) -> Passage:
    """Choose a held-out paragraph worth showing, and another place for the quiz."""
    passage = _passage(corpus, split)
    return replace(passage, asked=_asked(corpus, split, passage.units))


def _passage(corpus: Corpus, split: str) -> Passage:
    """Find the first held-out paragraph worth showing: of 200 to 700 characters if there is one."""
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
    """Return its first words, without a space at the end: the next word brings its own."""
    return " ".join(text.split()[:3])


def _asked(corpus: Corpus, split: str, shown: list[str]) -> tuple[str, str] | None:
    """Find the first held-out place that is long enough and not shown elsewhere on the page; else the longest."""
    heads = [unit[:_GIVEN] for unit in shown if unit]
    best = ("", "")
    for example in islice(corpus.examples(split), _SEARCHED):
        # A document may be a piece that begins anywhere; its paragraphs begin at a good place.
        gaps = re.finditer(r"\n\s*\n", example.text) if corpus.config.unit == "document" else ()
        for place in chain((gap.end() for gap in gaps), [0]):
            text = example.text[place : place + 2 * (_GIVEN + _CONTINUED)]
            if any(head in text for head in heads):
                continue
            best = max(best, _split(text), key=lambda parts: len(parts[1]))
            if len(best[1]) > _CONTINUED // 2:
                return best
    return best if len(best[1].split()) >= _OTHERS else None


def _split(text: str) -> tuple[str, str]:
    """Split a text into the words that the quiz shows, less than half, and the rest; no space at the end of either."""
    blank = re.compile(r"\s").search(text, min(_GIVEN, len(text) // 3))
    return (text[: blank.start()], _cut(text[blank.start() :])) if blank else ("", "")


def _cut(text: str) -> str:
    """Cut a text at a word to about the quiz's length, with an ellipsis."""
    if len(text) <= _CONTINUED:
        return text.rstrip()
    return re.sub(r"\s*\S*$", "", text[: _CONTINUED + 1]) + " …"


def _guesses(run: Run, begin: str) -> list[str]:
    """Generate a run's continuations of the beginning that the quiz shows; empty if it cannot."""
    try:
        written = run.written([begin] * _OTHERS, **_plain(run, 1.5 * _CONTINUED), seed=1)
    except SegueError:
        return []
    if any(dead_end for _, dead_end in written):  # a model without smoothing may not go on from unseen text
        return []
    return [_cut(text) for text, _ in written]


def _quiz(passage: Passage, entries: list[Entry]) -> Quiz | None:
    """Make the quiz: the real passage among those of the best models, or of the only one."""
    if passage.asked is None:
        return None
    begin, real = passage.asked
    able = [(i, entry.guesses) for i, entry in enumerate(entries) if entry.guesses][:_OTHERS]
    if len(able) == 1:
        others = [(guess, able[0][0]) for guess in able[0][1]]
    else:
        others = [(guesses[turn], i) for turn, (i, guesses) in enumerate(able)]
    passages: list[tuple[str, int | None]] = [(real, None), *others]
    random.Random(begin).shuffle(passages)
    return Quiz(begin, passages) if others else None


def entry_of(
    run: Run, evaluation: Evaluation, result: dict[str, Any], passage: Passage | None, differs: str = ""
) -> Entry:
    """Gather what the page shows for one run; `result` is that of its training."""
    figures = evaluation.result
    main = main_figure(figures)
    asked = dict.fromkeys((*run.task.shown(main), *figures.get("best", {})))
    names = [name for name in asked if figures.get(name) is not None or name == main]
    interval = figures.get(f"{main}_ci")
    curve, loss = curves_of(run, result, figures)
    return Entry(
        model=run.recipe.name,
        tokens=run.tokenizer.kind,
        metrics={NAMES.get(name, name): figures.get(name) for name in names},
        # A single piece has no interval, and an infinite figure none either.
        interval=tuple(interval) if interval and all(map(math.isfinite, interval)) else None,
        differs=differs,
        parameters=result["parameters"],
        train_seconds=result["train_seconds"],
        tokens_per_second=result["tokens_per_second"],
        steps=0 if run.task.whole_epochs else result["steps"],
        curve=curve,
        loss=loss,
        sample=_sample(run, passage.prompt) if passage else "",
        surprisal=word_bits(run, passage.units) if passage else [],
        confusion=(figures["labels"], figures["confusion"]) if "confusion" in figures else None,
        types=figures.get("by_type", []),
        lengths=[_part(row, main) for row in figures.get("by_length", [])],
        edits=figures.get("edits", {}),
        confusions=figures.get("confusions", []),
        examples=evaluation.examples,
        calibration=figures.get("calibration", []),
        run=str(run.path.relative_to(Path.cwd()) if run.path.is_relative_to(Path.cwd()) else run.path),
        family=run.model.family,
        note=_note(run, result),
        rung=_rung(run),
        guesses=_guesses(run, passage.asked[0]) if passage and passage.asked else [],
    )


def _note(run: Run, result: dict[str, Any]) -> str:
    """Say in the table what seconds and steps leave out: epochs, where nothing else is counted, and pre-training."""
    if run.task.whole_epochs:
        return f"{result['epochs']:.3g} epoch{'s' if result['epochs'] != 1 else ''}"
    if not (found := result.get("pretrained")):
        return ""
    seconds = found["seconds"]
    return f"began from {found['run']}" + (f", trained {duration(seconds)} s" if seconds is not None else "")


def _part(row: dict[str, Any], main: str) -> Part:
    low, high = row[f"{main}_ci"]
    return Part(row["from"], row["to"], row["mean"], row["rows"], row[main], (low, high), row.get("unit", "words"))


def write_run_page(run: Run, evaluation: Evaluation, corpus: Corpus, split: str, result: dict[str, Any]) -> None:
    """Write report.html of a single run."""
    passage = passage_of(corpus, split) if "generate" in run.task.verbs else None
    figures = evaluation.result
    # A tokenizer that loses text has no bits per byte: the sentence then gives the perplexity. Scores have neither.
    shown = next((name for name in (main_figure(figures), *PER_TOKEN) if name in figures), None)
    metric = NAMES.get(shown, shown) if shown else ""
    said = f"{figure(figures[shown], metric)} {metric}" if shown else "Scores, not probabilities,"
    data = data_names(run.recipe.data.path)
    summary = [f"{run.recipe.name} trained on {data} for {result['train_seconds']:.1f} s."]
    summary.append(f"{said} on the {split} split.")
    entry = entry_of(run, evaluation, result, passage)
    page = page_of(f"{run.recipe.name} on {data}", summary, [entry], passage, evaluation, split)
    expected = expected_of(run, passage.units) if passage and has_counts(run.model) else None
    words = word_map(run.words, run.model.counts[FIRST:]) if "nearest" in run.task.verbs else None
    views = inside(run, passage.units) if passage else alignments(run, evaluation.examples)
    views += masks(run, corpus, split)
    orders = orders_in(run, corpus, split) if has_counts(run.model) else None
    written = tempered(run, passage.prompt) if passage else []
    page = replace(page, expected=expected, words=words, views=views, orders=orders, temperatures=written)
    changes = [weight_change_view(run.recipe.name, result["weight_change"])] if "weight_change" in result else []
    write(replace(page, features=top_features(run), changes=changes), run.path / "report.html")


def command_line() -> str:
    """Return the command that is running; empty where another program is, such as a notebook: its arguments are not
    Segue's."""
    program = Path(sys.argv[0])
    own = program.stem == "segue" or program.parent.name == "segue"  # the second: python -m segue
    return shlex.join(["segue", *sys.argv[1:]]) if own else ""


def data_names(path: str) -> str:
    """Return the names of the files or corpora that data.path names, without their folders."""
    names = [Path(part).name or part for part in path.split(",")]
    return ", ".join(names)


def orders_in(run: Run, corpus: Corpus, split: str) -> Orders:
    """Look up held-out and training text in every order of an n-gram model."""
    tokenizer, speller = run.codec.tokenizer, run.codec.speller
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        held_out, training = (
            encode_split(corpus, part, tokenizer, speller, Path(folder) / part, limit(run.model))
            for part in (split, "train")
        )
        return orders_of(run.model, held_out, training, tokenizer.lossless)


def top_features(run: Run) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return, for each label, the n-grams that speak most for it, where the model has weights of n-grams."""
    if run.model.parameters_count > _MOST_WEIGHTS or not isinstance(run.model, NgramWeights):
        return []
    ids, weights = run.model.feature_weights()
    return [
        (label, [(run.tokenizer.decode(list(ids[i])).strip(), float(weights[i, c])) for i in _highest(weights[:, c])])
        for c, label in enumerate(run.codec.labels[:_LABELS])
    ]


def _highest(weights: NDArray[Any]) -> NDArray[Any]:
    """Return the places of the greatest weights above 0, the greatest first."""
    places = np.argsort(-weights, kind="stable")[:_FEATURES]
    return places[weights[places] > 0]


def tempered(run: Run, prompt: str) -> list[tuple[float, str]]:
    """Return what a run writes at several temperatures, with the same prompt and seed."""
    return [(temperature, _sample(run, prompt, _TEMPERED, temperature)) for temperature in TEMPERATURES]


def inside(run: Run, units: Iterable[str]) -> list[View]:
    """What a network does with the first words of a held-out text: its attention, its gates."""
    words = next((unit for unit in units if unit.strip()), "")[:_INSIDE]
    found = views_of(run.model)
    last: dict[str, Any] = {"layer": run.model.depth - 1} if isinstance(run.model, Body) else {}
    return [look(run.opened, name, words, **last) for name in ("attention", "gates") if name in found]


def masks(run: Run, corpus: Corpus, split: str) -> list[View]:
    """What a masked language model reads of a held-out paragraph in training, and what it predicts there."""
    if "masks" not in views_of(run.model):
        return []
    words = " ".join(_passage(corpus, split).units).split()[:_MASKED_WORDS]
    return list(look(run.opened, "masks", " ".join(words)).all) if words else []


def alignments(run: Run, examples: Sequence[dict[str, str]]) -> list[View]:
    """How what a model wrote looks at its source: the alignment of some held-out sentences, sounds or pictures, where
    the model attends."""
    if "alignment" not in views_of(run.model):
        return []
    side, least, title = "source", _ALIGNED_WORDS[0], "the source in columns, what it wrote in rows"
    if run.sizes.frame:  # the name of a sound or a picture says nothing of how long it is
        side, least, title = "output", 1, "where it looks for each word that it wrote"
    fit = [one for one in examples if least <= len(one[side].split()) <= _ALIGNED_WORDS[1]]
    pairs = [(one["source"], one["output"] if one["output"].strip() else one["reference"]) for one in fit[:_ALIGNED]]
    views = [look(run.opened, "alignment", source, target) for source, target in pairs]
    title = f"{run.recipe.name}: {title}"
    return [view._replace(title=title, note=view.note.partition("\n")[0]) for view in views]


def page_of(
    title: str,
    summary: list[str],
    entries: list[Entry],
    passage: Passage | None,
    best: Evaluation,
    split: str = "test",
) -> Page:
    """Make the page of these entries, best first, with the ledger of the first one's run."""
    ledger = read_json(Path(entries[0].run) / "ledger.json")
    mixed = ledger.pop("corpora", [])  # shown elsewhere on the page
    bits = {row["corpus"]: row.get("bits_per_byte") for row in best.result.get("by_corpus", [])}
    return Page(
        title=title,
        judged=tasks.task(best.result["task"]).judged_one_by_one,
        summary=summary,
        entries=entries,
        prompt=passage.prompt if passage else "",
        best=best.result.get("best_possible"),
        best_others={NAMES.get(name, name): value for name, value in best.result.get("best", {}).items()},
        ledger=ledger,
        corpora=[{**row, "bits_per_byte": bits.get(row["corpus"])} for row in mixed],
        command=command_line(),
        version=__version__,
        date=datetime.date.today().isoformat(),
        quiz=_quiz(passage, entries) if passage else None,
        split=split,
    )


def curves_of(run: Run, result: dict[str, Any], figures: dict[str, Any]) -> tuple[Curve, Curve | None]:
    """Read the learning curve of a network, with the training loss where it has the same unit; else also the curve of
    both losses. A model that counts has none."""
    if isinstance(run.model, Counted):
        return Curve(), None
    curve = replace(curve_of(run.path, run.task.curve), kept=result.get("best_step"))
    training = training_of(run.path)
    if curve.metric == "loss":
        return replace(curve, training=training), None
    if run.task.curve[0] == "bits_per_byte" and (convert := _bits_of_nats(figures)) is not None:
        a, b = convert
        return replace(curve, training=replace(training, values=[a * nats + b for nats in training.values])), None
    loss = replace(curve_of(run.path, ("loss", "loss")), kept=curve.kept, training=training)
    return curve, loss if training.values else None


def training_of(run: Path) -> Points:
    """Read the training loss, in nats a prediction, where that is what the model trains on."""
    lines = [line for line in read_metrics(run) if line["kind"] == "train" and line.get("cross_entropy") is not None]
    return Points(
        [line["seconds"] for line in lines], [line["step"] for line in lines], [line["cross_entropy"] for line in lines]
    )


def _bits_of_nats(figures: dict[str, Any]) -> tuple[float, float] | None:
    """Return a and b of bits per byte = a · nats a token + b, from a text of which both are known: a token stands for
    so many bytes, and unknown words cost their spelling."""
    bits, perplexity = figures.get("bits_per_byte"), figures.get("perplexity")
    if bits is None or perplexity is None or not 1 < perplexity < math.inf:
        return None
    spelling = figures.get("spelling_bits_per_byte") or 0.0
    return (bits - spelling) / math.log(perplexity), spelling


def trend_of(recipes: Sequence[Recipe], entries: Sequence[Entry]) -> Trend | None:
    """Draw the figure against the one number in which the recipes differ, if there is one: alpha, width, dropout."""
    flat = [_flat(asdict(recipe)) for recipe in recipes]
    keys = [key for key in flat[0] if key != "name" and len({repr(one.get(key)) for one in flat}) > 1]
    if len(recipes) < 3 or len(keys) != 1:
        return None
    metric, points = next(iter(entries[0].metrics)), []
    for one, entry in zip(flat, entries, strict=True):
        x, value = one.get(keys[0]), entry.metrics[metric]
        if isinstance(x, int | float) and x > 0 and value is not None and math.isfinite(value):
            points.append(Point(entry.model, float(x), value, *(entry.interval or (value, value))))
    return Trend(keys[0], metric, sorted(points, key=lambda point: point.x)) if len(points) > 2 else None


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested keys as one level: {"model.order": 3}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat


def curve_of(run: Path, drawn: tuple[str, str]) -> Curve:
    """Read the learning curve: the validation figure over training. For seq2seq it is the token accuracy under teacher
    forcing; for numbers, and for tokens that lose text, the loss."""
    name, metric = drawn
    validated = [line for line in read_metrics(run) if line["kind"] == "validation"]
    if validated and name == "span_f1" and not any(name in line for line in validated):
        name = "accuracy"  # the tags are no spans
    if validated and not any(line.get(name) is not None for line in validated):
        name = metric = "loss"
    points = [line for line in validated if line.get(name) is not None]
    return Curve([p["seconds"] for p in points], [p["step"] for p in points], [p[name] for p in points], metric)


def _rung(run: Run) -> tuple[str, int] | None:
    """Return the smoothing and order of an n-gram model, for the chart of both."""
    if not has_counts(run.model):
        return None
    return run.model.config.smoothing.replace("_", " "), run.model.config.order


def expected_of(run: Run, units: Iterable[str]) -> Expected | None:
    """Find the place in a text that best shows what each order of an n-gram model expects."""
    unit = next((unit for unit in units if unit), "")
    ids = run.tokenizer.encode(unit).tolist()
    if not ids:
        return None
    stop = run.sizes.stop
    place, found = evenest(run.model, run.tokenizer, [stop, *ids])
    before = context_text(run.tokenizer, stop, ids[: place - 1])
    came = token_name(run.tokenizer, stop, ids[place - 1] if place <= len(ids) else stop)
    return Expected(before, came, found)


def _sample(run: Run, prompt: str, characters: int = _SAMPLE, temperature: float = 1.0) -> str:
    settings = _plain(run, characters) | {"temperature": temperature}
    ((text, dead_end),) = run.written([prompt], **settings, seed=0)
    return f"{text} … (the text ends here: without smoothing nothing can follow)" if dead_end else text


def _plain(run: Run, characters: float) -> dict[str, Any]:
    """Return the same sampling settings for every run: about this many characters, whatever its recipe says."""
    size = characters if run.tokenizer.kind in ("char", "byte") else characters / 5
    return {"max_tokens": round(size), "temperature": 1.0, "beam": 0, "stop": []}


def word_bits(run: Run, units: Iterable[str]) -> list[tuple[str, float]]:
    """Return the words of a text, each with the bits of the tokens that begin in it (surprisal), and the unit ends."""
    end = _ENDS[run.recipe.data.unit]
    return [word for line in run.score(units, end=True) for word in _words_of(line, end)]


def _words_of(line: Line, end: str) -> list[tuple[str, float]]:
    """Return the words of one unit, with its end as a word of its own, so that no word carries the end's bits."""
    spans = [match.span() for match in re.finditer(r"\s*\S+|\s+$", line.text)]
    bits = [0.0] * len(spans)
    place = word = 0
    for surface, cost in zip(line.tokens[:-1], line.token_bits[:-1], strict=True):
        # Tokens without spaces (wordpiece) may begin after the end of the last one.
        place = max(place, line.text.find(surface, place))
        while word + 1 < len(spans) and place >= spans[word + 1][0]:
            word += 1
        bits[word] += cost
        place += len(surface)
    texts = [line.text[a:b] for a, b in spans]
    return [*zip(texts, bits, strict=True), (end, line.token_bits[-1])]

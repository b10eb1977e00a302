"""The errors of classifiers and taggers, a table a model: the best one's open, the others' folded away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from segue.look.page.markup import swatch, table, text


@dataclass(frozen=True)
class Missed:
    """Some errors of one model, those that it was surest of first."""

    name: str
    colour: int
    examples: list[dict[str, str]]


def errors(models: Sequence[Missed]) -> str:
    """The tables; all errors have the same columns within one."""
    said = ""
    if any("words for it" in example for model in models for example in model.examples):
        said = "The errors that each model was surest of. Beside a word: how much the log-odds of what was predicted "
        said = f'<p class="aside">{said}fall when it is left out; below 0, the word spoke against it.</p>'
    return said + "".join(_table(rank, model) for rank, model in enumerate(models))


_SPAN = re.compile(r"\[(\S+) ([^\[\]]*)\]")
"""A span as [TYPE its words], the notation of CoNLL-2003."""


def _marked(match: re.Match[str]) -> str:
    return f"<mark>{match[2]}<small> {match[1]}</small></mark>"


def _table(rank: int, model: Missed) -> str:
    headings = list(dict.fromkeys(key for example in model.examples for key in example))
    rows = [[_cell(key, example.get(key, "–")) for key in headings] for example in model.examples]
    return (
        f"<details{' open' if rank == 0 else ''}><summary>{swatch(model.colour)}<b>{text(model.name)}</b> "
        f"<small>{len(rows)} of its errors</small></summary>{table(headings, rows, 'plain examples')}</details>"
    )


def _cell(key: str, content: str) -> str:
    if key in ("true spans", "predicted spans"):
        return f'<span dir="auto">{_SPAN.sub(_marked, text(content))}</span>'
    if key != "words for it":
        return f'<span dir="auto">{text(content)}</span>'
    # Numbers apart from their words, which may run from right to left.
    pairs = re.findall(r"(\S+) ([+-][\d.]+)(?:, |$)", content)
    return ", ".join(f"<bdi>{text(word)}</bdi>&nbsp;{drop.replace('-', '−')}" for word, drop in pairs) or "–"

"""Pictures of an n-gram model, order by order: bits, unseen n-grams, weights, counts of counts, Zipf's law."""

from __future__ import annotations

import math
from collections.abc import Sequence

from segue.look.explain.orders import Orders, Sweep
from segue.look.page.charts import Axes, Line, Mark, legend, line_chart
from segue.look.page.markup import figure, percent, table, text

_LINES = 4
"""Orders drawn in one picture of counts: the lowest ones, and the highest."""
_NAMES = ("unigrams", "bigrams", "trigrams")


def by_order_charts(found: Orders, split: str) -> str:
    """All pictures that this model has, side by side, and the numbers behind them."""
    pictures = [
        _bits(found, split),
        _unseen(found, split),
        _weights(found, split),
        _sweep(found.sweep, found.metric, split) if found.sweep else "",
        _counts(found),
        _zipf(found),
    ]
    held_out, training = found.read
    said = f"Looked up: {held_out:,} tokens of the {split} text and {training:,} of the training text."
    return f'<p class="aside">{said}</p><div class="multiples">{"".join(pictures)}</div>{_numbers(found, split)}'


def _figure(title: str, lines: Sequence[Line], axes: Axes, said: str) -> str:
    chart = line_chart(lines, axes, "small")
    if not chart:
        return ""
    names = legend(lines, lambda value: "", always=True) if len(lines) > 1 else ""
    return f'<figure><h3>{text(title)}</h3>{chart}{names}<p class="aside">{text(said)}</p></figure>'


def _bits(found: Orders, split: str) -> str:
    if not found.held_out:
        return ""
    orders = list(range(1, len(found.held_out) + 1))
    lines = [
        Line(f"{split} text", 0, orders, found.held_out),
        Line("training text", 1, orders, found.training, dashed=True),
    ]
    said = "This model cut at each order. Where training text falls and the other does not, the model overfits."
    if impossible := [str(k) for k, bits in enumerate(found.held_out, 1) if math.isinf(bits)]:
        said += f" At order {', '.join(impossible)} the {split} text has probability 0: ∞ bits."
    if found.continuation:
        said += " Lower orders of Kneser-Ney are made to help the highest one: alone they are worse than other models."
    return _figure("Bits against order", lines, Axes("order", found.metric, True, whole=True), said)


def _unseen(found: Orders, split: str) -> str:
    line = Line("unseen", 0, list(range(1, len(found.unseen) + 1)), found.unseen)
    axes = Axes(
        "order", "share unseen", True, whole=True, y_title=f"share of the {split} text's n-grams", from_zero=True
    )
    said = "n-grams of this text that training never saw (or did not keep): smoothing has to guess their probability."
    return _figure("Unseen n-grams", [line], axes, said)


def _weights(found: Orders, split: str) -> str:
    line = Line("weight", 0, list(range(len(found.weights))), found.weights)
    axes = Axes("order (0: 1/V)", "share", True, whole=True, y_title="mean weight in p", from_zero=True)
    said = f"How much of each probability comes from which order, on average over the {split} text."
    return _figure("Weights of the orders", [line], axes, said)


def _sweep(sweep: Sweep, metric: str, split: str) -> str:
    mark = Mark(sweep.chosen, sweep.at_chosen, f"{sweep.name} = {sweep.chosen:.3g}")
    lines = [
        Line(f"{split} text", 0, sweep.values, sweep.held_out, mark=mark),
        Line("training text", 1, sweep.values, sweep.training, dashed=True),
    ]
    log = sweep.name == "alpha"
    axes = Axes(sweep.name, metric, True, log=log, all=True)
    said = "The same counts with other values. The ring is what the model uses."
    if not log:
        said = "The weight of the highest order; the lower ones stay as they are. The ring is what the model uses."
    return _figure(f"Bits against {sweep.name}", lines, axes, said)


def _counts(found: Orders) -> str:
    lines = [Line(_name(k), i, *found.counts[k - 1]) for i, k in enumerate(_drawn(len(found.counts)))]
    axes = Axes("count", "n-grams", False, log=True, log_y=True, all=True, y_title="different n-grams with it")
    said = "Most n-grams were seen once. Discounts are estimated from the left end."
    return _figure("Counts of counts", lines, axes, said)


def _zipf(found: Orders) -> str:
    lines = [Line(_name(k), i, *found.ranks[k - 1]) for i, k in enumerate(_drawn(len(found.ranks)))]
    axes = Axes("rank", "count", False, log=True, log_y=True, all=True)
    said = "n-grams by frequency. A straight line is a power law; Zipf's law for words has slope −1."
    return _figure("Count against rank", lines, axes, said)


def _drawn(orders: int) -> list[int]:
    return [k for k in range(1, orders + 1) if k < _LINES or k == orders]


def _name(order: int) -> str:
    return _NAMES[order - 1] if order <= len(_NAMES) else f"{order}-grams"


def _numbers(found: Orders, split: str) -> str:
    """The table of all orders, folded away."""
    rows = []
    for k in range(1, max(len(found.unseen), len(found.held_out)) + 1):
        bits = [figure(values[k - 1], found.metric) for values in (found.held_out, found.training) if values]
        bits += [figure(values[k - 1], "perplexity") for values in found.perplexity if values]
        unseen = percent(found.unseen[k - 1]) if k <= len(found.unseen) else "–"
        weight = [percent(found.weights[k])] if found.weights else []
        rows.append([str(k), *bits, unseen, *weight])
    names = [f"{part} {what}" for what in (found.metric, "perplexity") for part in (split, "training")]
    titles = names if found.held_out else []
    headings = ["order", *titles, "unseen n-grams", *(["mean weight"] if found.weights else [])]
    return f"<details><summary>The numbers</summary>{table(headings, rows)}</details>"

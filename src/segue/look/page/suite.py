"""The page of a suite: its tasks with every metric, the means, what was left out, and published figures beside ours.

Plain data in (the suite's result.json), text out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from segue.inference.evaluation import NAMES
from segue.look.page import charts
from segue.look.page.markup import duration, one_decimal, table, text
from segue.look.page.report import Page, whole


class Made(NamedTuple):
    """What the page was made with."""

    command: str
    version: str
    date: str
    machine: str


def render(result: Mapping[str, Any], made: Made) -> str:
    """The page as a string of HTML."""
    *facts, verdict = _summary(result, made)
    page = Page(
        *(f"{result['suite']} with {result['model']}", "rows", [*facts, verdict], [], "", None, {}),
        *(made.command, made.version, made.date),
    )
    sections = [
        ("tasks", "Tasks", _tasks(result["rows"])),
        ("means", "Means", _means(result["means"])),
        ("published", "Published figures", _published(result["published"]) if result["published"] else ""),
        ("left-out", "Left out", _left_out(result["left_out"], result["skipped"])),
        ("predictions", "Predictions", _predictions(result["submission"])),
    ]
    return whole(page, sections)


def _summary(result: Mapping[str, Any], made: Made) -> list[str]:
    """Sentences; the last is the verdict."""
    seeds = max(len(one["seeds"]) for row in result["rows"] for one in row["figures"].values())
    how = f"{seeds} seeds each: figures are medians" if seeds > 1 else "one seed each"
    facts = [
        result["says"],
        f"{len({row['task'] for row in result['rows']})} tasks ran, {how}; {duration(result['train_seconds'])} seconds "
        "of training in all.",
        f"Settings: {', '.join(result['settings'])}." if result["settings"] else "",
        f"{made.machine}.",
    ]
    means = [one for one in result["means"] if one["value"] is not None]
    verdict = "; ".join(f"{one_decimal(one['value'])} with {one['mean']}" for one in means)
    missing = sorted({name for one in means for name in one["missing"]})
    of = (
        f" Of the columns that ran: no {', '.join(missing)}, so that it is no mean of the whole suite."
        if missing
        else ""
    )
    return [*filter(None, facts), f"Mean: {verdict}.{of}" if verdict else result["says"]]


# Tasks


def _tasks(rows: Sequence[dict[str, Any]]) -> str:
    """A row a metric: the figure, a bar with its interval on one scale, and every seed."""
    figures = [(one["median"], _bounds(one["ci"])) for row in rows for one in row["figures"].values()]
    scale = charts.common_scale([(100 * value, _hundredths(ends)) for value, ends in figures], "", None)
    cells = [
        _task_row(row | {"says": "" if place else row["says"]}, metric, one, scale)
        for row in rows
        for place, (metric, one) in enumerate(row["figures"].items())
    ]
    axis = charts.interval_axis(scale) if scale else ""
    head = "<th>task</th><th>metric</th>" + _number_heads("figure")
    head += f'<th class="forest"><span>95 % interval</span>{axis}</th>' + _number_heads("seeds", "test rows", "seconds")
    return (
        f'<div class="scroll"><table class="result in-order"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(cells)}</tbody></table></div>"
        '<p class="aside">Figures in hundredths. The interval holds the chance of the test rows and, of several seeds, '
        "that of training. Seconds are those of training one seed.</p>"
    )


def _number_heads(*names: str) -> str:
    return "".join(f'<th class="number">{name}</th>' for name in names)


def _task_row(row: dict[str, Any], metric: str, one: Mapping[str, Any], scale: charts.Scale | None) -> str:
    name, ends = NAMES.get(metric, metric), _hundredths(_bounds(one["ci"]))
    bar = charts.interval_bar(100 * one["median"], ends, scale, 0) if scale else ""
    shown = "not known" if ends is None else f"{ends[0]:.1f} to {ends[1]:.1f}"
    cells = [
        f'<td class="name">{text(row["column"])}<small>{text(row["says"])}</small></td>',
        f'<td data-label="metric">{text(name)}</td>',
        f'<td class="number lead" data-label="{text(name)}">{100 * one["median"]:.1f}</td>',
        f'<td class="forest" title="95 % interval {shown}">{bar}</td>',
        f'<td class="number" data-label="seeds">{_seeds(one["seeds"])}</td>',
        f'<td class="number" data-label="test rows">{row["rows"]:,}</td>',
        f'<td class="number" data-label="seconds">{duration(row["train_seconds"])}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _bounds(pair: Sequence[float | None]) -> tuple[float, float] | None:
    low, high = pair
    return None if low is None or high is None or math.isinf(low) or math.isinf(high) else (low, high)


def _hundredths(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if ends is None else (100 * ends[0], 100 * ends[1])


def _seeds(values: Sequence[float]) -> str:
    if len(values) == 1:
        return "one"
    low, high = 100 * min(values), 100 * max(values)
    each = ", ".join(f"{100 * value:.1f}" for value in values)
    return f'<span title="{each}">{low:.1f} to {high:.1f}</span><small>{len(values)} seeds</small>'


# Means, published figures, and the rest


def _means(means: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for one in means:
        if one["value"] is None:
            continue
        ends = _bounds(one["ci"])
        seeds = f"{min(one['seeds']):.1f} to {max(one['seeds']):.1f}" if len(one["seeds"]) > 1 else "one"
        sure = f"{ends[0]:.1f} to {ends[1]:.1f}" if ends else "–"
        cells = (one["mean"], one_decimal(one["value"]), sure, seeds, ", ".join(one["over"]), ", ".join(one["missing"]))
        rows.append([text(cell) or "none" for cell in cells])
    said = (
        "A task with two metrics counts as their mean. The interval takes the tasks' test rows as independent of each "
        "other. Where columns are missing, this is the mean of those that ran, and no mean of the suite."
    )
    head = ("mean", "value", "95 % interval", "by seed", "of", "missing")
    return f'{table(head, rows)}<p class="aside">{said}</p>' if rows else ""


def _published(found: Mapping[str, Any]) -> str:
    """Our figures and those of others, a column each; a mean of ours stands only beside means of the same columns."""
    columns, ran, rows = found["columns"], found["ran"], found["rows"]
    lines = [
        (f"{column}, {_short(found['metrics'][column])}", [row["figures"].get(column) for row in rows])
        for column in columns
    ]
    wholes = [(f"mean of {len(columns)}, {title}", [row["means"][title] for row in rows]) for title in rows[0]["means"]]
    some = [
        (f"mean of the {len(ran)} that ran here, {title}", [row["means_of_those_that_ran"][title] for row in rows])
        for title in rows[0]["means"]
    ]
    lines += [*wholes, *(some if len(ran) < len(columns) else [])]
    cells = [[text(name), *("–" if one is None else one_decimal(one) for one in figures)] for name, figures in lines]
    said = f"{text(found['says'])} One metric a task, as in that table."
    return f'<p class="aside">{said}</p>{table(["task", *(row["name"] for row in rows)], cells, "plain published")}'


def _short(metric: str) -> str:
    return {"positive_f1": "F1", "matthews": "Matthews", "spearman": "Spearman", "pearson": "Pearson"}.get(
        metric, NAMES.get(metric, metric)
    )


def _left_out(left_out: Mapping[str, str], skipped: Mapping[str, Mapping[str, Any]]) -> str:
    """The tasks that did not run, and the rows that could not be read."""
    rows = [[text(name), text(why)] for name, why in left_out.items()]
    rows += [[text(name), text(f"{one['rows']:,} rows were skipped. {one['first']}.")] for name, one in skipped.items()]
    return table(["task", "why"], rows) if rows else ""


def _predictions(written: Sequence[str]) -> str:
    if not written:
        return ""
    said = "Predictions of the first seed's run for files whose labels are not known, as GLUE's server takes them."
    return f'<p class="aside">{said}</p>{table(["file"], [[text(path)] for path in written])}'

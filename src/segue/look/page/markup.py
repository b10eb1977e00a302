"""Text and numbers as safe HTML: whatever a model or a user wrote is shown, and never obeyed.

`text` escapes the characters that mean something to HTML, and makes the invisible ones visible: a control
character becomes its Unicode picture (NUL is shown as ␀), half a surrogate pair becomes the replacement mark.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from segue.inference.score import BLOCK
from segue.inference.statistics import FEWEST

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
HUES = 8
"""Colours of the style sheet."""
_LOWER_IS_BETTER = ("bits", "perplexity", "loss", "ter", "error", "repeated")
_SHARES = ("accuracy", "f1", "precision", "recall", "share", "exact match", "error rate", "repeated", "distinct")


def text(raw: str) -> str:
    """`raw` for use between tags or inside a quoted attribute; tabs and line ends stay."""
    return html.escape(_INVISIBLE.sub(_picture, raw.replace("\r\n", "\n")))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x7F:
        return "␡"
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def visible(token: str) -> str:
    """Blanks and line ends as signs where they would not be seen: at the ends, and where there is nothing else."""
    shown = token.replace("\n", "↵").replace("\t", "⇥")
    bare = shown.strip(" ")
    before = len(shown) - len(shown.lstrip(" "))
    return f"{'␣' * before}{bare}{'␣' * (len(shown) - before - len(bare))}"


def is_number(value: float | None) -> bool:
    """Whether a figure can be drawn: neither missing nor infinite."""
    return value is not None and math.isfinite(value)


def figure(value: float | None, metric: str = "") -> str:
    """A figure as the metric is usually written: shares in per cent, BLEU with one decimal, bits with three."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if is_share(metric):
        return percent(value)
    written = f"{value:,.3f}" if abs(value) < 10 and not _in_hundreds(metric) else f"{value:,.1f}"
    return written.replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent, as everywhere on the page: 90.2 %."""
    return f"{100 * share:.1f} %"


def one_decimal(value: float) -> str:
    """A figure of a table of means, rounded half up as in papers: 81.35 is 81.4, whatever its binary digits are."""
    return f"{math.floor(10 * value + 0.5 + 1e-9) / 10:.1f}"


def is_share(metric: str) -> bool:
    """Whether the metric runs from 0 to 1 and is shown in per cent."""
    return any(word in metric.lower() for word in _SHARES)


def _in_hundreds(metric: str) -> bool:
    return any(word in metric.lower() for word in ("bleu", "chrf", "rouge", "ter", "perplexity"))


def interval_takes(metric: str) -> str:
    """How much held-out data a 95 % interval takes at least."""
    return f"{FEWEST * BLOCK:,} bytes" if metric.endswith("bits per byte") else f"{FEWEST} rows or sentences"


def lower_is_better(metric: str) -> bool:
    """Whether less of a metric is better."""
    return any(word in re.split(r"[ _]", metric.lower()) for word in _LOWER_IS_BETTER)


def short_count(number: int) -> str:
    """1234567 as 1.2 M: three figures at the most, for a column of sizes."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.1f} {letter}" if scaled < 99.95 else f"{scaled:.0f} {letter}"
    return str(number)


def duration(seconds: float) -> str:
    """Seconds with as many decimals as matter."""
    if not math.isfinite(seconds):
        return figure(seconds)
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}"


def swatch(colour: int, dashed: bool = False) -> str:
    """The small square that stands for a model all over the page; striped for a dashed line."""
    return f'<i class="swatch {hue(colour)}{" dashed" if dashed else ""}"></i>'


def hue(colour: int) -> str:
    """The class that carries a colour of the style sheet."""
    return f"hue{colour % HUES}"


def folded(panels: Sequence[str], kind: str, shown: int) -> str:
    """Panels in a grid; those after the first few are folded away, so that a page of many models stays short."""
    first, rest = panels[:shown], panels[shown:]
    if len(rest) == 1:
        first, rest = panels, []
    grid = f'<div class="{kind}">{"".join(first)}</div>'
    if rest:
        grid += f'<details><summary>{len(rest)} more</summary><div class="{kind}">{"".join(rest)}</div></details>'
    return grid


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "plain") -> str:
    """A table of ready cells, in its own box; on a phone each row becomes a card, labelled by the headings."""
    labels = [text(heading) for heading in headings]
    head = "".join(f"<th>{label}</th>" for label in labels)
    body = ""
    for row in rows:
        cells = (f'<td data-label="{label}">{cell}</td>' for label, cell in zip(labels, row, strict=True))
        body += f"<tr>{''.join(cells)}</tr>"
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )

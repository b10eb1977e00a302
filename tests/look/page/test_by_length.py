"""The figure by length of the source: a curve a model, and the numbers."""

from __future__ import annotations

import math
import re

from segue.look.page.by_length import Lengths, Part, by_length


def parts(values: list[float]) -> list[Part]:
    return [
        Part(5 * i + 1, 5 * i + 5, 5 * i + 3.0, 40, value, (value - 2, value + 2)) for i, value in enumerate(values)
    ]


def test_a_curve_a_model_and_a_row_a_range() -> None:
    drawn = by_length([Lengths("dot", 0, parts([30, 31, 29])), Lengths("<start>", 1, parts([30, 20, 10]))], "BLEU")
    wide = drawn[: drawn.index("</figure>")].split("<svg class")[1]
    lines = dict(re.findall(r'data-name="([^"]+)">.*?<polyline points="([^"]+)"', wide))
    heights = [[float(point.split(",")[1]) for point in lines[name].split()] for name in ("dot", "&lt;start&gt;")]
    assert len(heights[0]) == 3 and heights[1] == sorted(heights[1])  # further down: worse
    assert heights[0][0] == heights[1][0] and heights[0][2] < heights[1][2]
    rows = re.findall(r"<tr>(.*?)</tr>", drawn)
    assert [re.sub("<[^>]+>", " ", row).split() for row in rows[1:]][2] == (
        ["11–15", "40", "29.0", "27.0", "–", "31.0", "10.0", "8.0", "–", "12.0"]
    )
    assert "<start>" not in drawn and "&lt;start&gt;" in drawn


def test_too_few_rows_have_no_interval() -> None:
    few = [Part(1, 4, 2.0, 3, 0.5, (-math.inf, math.inf)), Part(5, 9, 7.0, 30, 0.25, (0.125, 0.5))]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", by_length([Lengths("m", 0, few)], "token F1"))
    assert cells[2] == "50.0 %" and cells[5] == "25.0 % <small>12.5 – 50.0</small>"

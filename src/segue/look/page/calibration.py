"""How far probabilities can be believed, as a picture: the reliability diagram.

Predictions are gathered by confidence, the probability of what was predicted. Each group is a dot: across, its mean
confidence; up, the share of it that is right; the larger, the more predictions. On the dotted line a model that says
70 % is right 7 times in 10; below it, the model is surer than it should be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from segue.inference.metrics import calibration_error
from segue.look.page.markup import hue, percent, swatch, text

SIZE, LEFT, TOP = 270.0, 46.0, 12.0
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
LARGEST = 11.0
"""The radius of the dot that holds most predictions."""
MOST_MODELS = 3
"""Models that are drawn, the best ones."""


@dataclass(frozen=True)
class Sure:
    """One model: of each group how many predictions, the sum of their confidence, and how many are right."""

    name: str
    colour: int
    sums: list[list[float]]


def calibration(models: Sequence[Sure]) -> str:
    """A picture of each of the best few models, and the expected calibration error of all."""
    if not models:
        return ""
    errors = "".join(
        f"<li>{swatch(model.colour)}{text(model.name)} <b>{calibration_error(model.sums):.3f}</b></li>"
        for model in models
    )
    said = "Dots are predictions of like confidence: across, how sure the model was; up, how often it was right. Below "
    said += "the line it is surer than it should be. The figure is the expected calibration error, lower is better."
    said += f" The best {MOST_MODELS} are drawn." if len(models) > MOST_MODELS else ""
    pictures = "".join(_picture(model) for model in models[:MOST_MODELS])
    return f'<p class="aside">{said}</p><div class="multiples">{pictures}</div><ul class="legend shown">{errors}</ul>'


def _picture(model: Sure) -> str:
    width, height = LEFT + SIZE + 26, TOP + SIZE + 44
    return (
        f"<figure><h3>{swatch(model.colour)}{text(model.name)}</h3>"
        f'<svg class="chart" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="share right against '
        f'confidence">{_axes()}<line class="best" x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}"/>'
        f"{_dots(model)}</svg></figure>"
    )


def _x(share: float) -> float:
    return round(LEFT + SIZE * share, 1)


def _y(share: float) -> float:
    return round(TOP + SIZE * (1 - share), 1)


def _axes() -> str:
    parts = []
    for share in SHARES:
        parts.append(f'<line class="grid" x1="{_x(0)}" x2="{_x(1)}" y1="{_y(share)}" y2="{_y(share)}"/>')
        label = f"{100 * share:.0f} %"
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{_y(share) + 4}" text-anchor="end">{label}</text>')
        parts.append(f'<text class="tick" x="{_x(share)}" y="{_y(0) + 18}" text-anchor="middle">{label}</text>')
    title = f'<text class="tick" x="{_x(1)}" y="{_y(0) + 38}" text-anchor="end">confidence, against share right</text>'
    return "".join(parts) + title


def _dots(model: Sure) -> str:
    groups = [(n, confidence / n, right / n) for n, confidence, right in model.sums if n]
    most = max(n for n, _, _ in groups)
    path = " ".join(f"{_x(sure)},{_y(right)}" for _, sure, right in groups)
    circles = "".join(
        f'<circle cx="{_x(sure)}" cy="{_y(right)}" r="{max(2.5, LARGEST * math.sqrt(n / most)):.1f}" '
        f'fill-opacity="0.75"><title>{text(model.name)}: {n:,.0f} predictions, {percent(sure)} sure, '
        f"{percent(right)} right</title></circle>"
        for n, sure, right in groups
    )
    return f'<g class="series {hue(model.colour)}"><polyline points="{path}"/>{circles}</g>'

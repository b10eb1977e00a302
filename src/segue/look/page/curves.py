"""Learning curves: the validation figure and the training loss while a network learns, and the step that was kept.

A model that counts has no curve. With one network there is one large chart; with several a small one each, with the
validation curves of the others in grey behind it. Where the training loss falls and validation rises, it overfits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from segue.look.page.charts import Axes, Line, Mark, is_log, legend, line_chart
from segue.look.page.markup import figure, folded, lower_is_better, swatch, text

_TOGETHER = 6
"""More curves than these in one chart hide each other."""
_SMOOTH = 25
"""The training loss is drawn as a mean over a 25th of its points, since single batches differ."""


@dataclass(frozen=True)
class Points:
    """A figure over training."""

    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Curve(Points):
    """A metric on the validation data, over training."""

    metric: str = ""
    """Its name, where it is not the ranked one: validating by BLEU at every turn would be slow."""
    kept: int | None = None
    """The step whose weights the model has; None: not known."""
    training: Points = field(default_factory=Points)
    """The training loss in the same unit; empty where the metric is no loss."""

    @property
    def drawn(self) -> bool:
        """Whether there is a curve, and not a single dot."""
        return len(self.values) > 1 or len(self.training.values) > 1


@dataclass(frozen=True)
class Learnt:
    """One model and its curves."""

    name: str
    colour: int
    curve: Curve
    loss: Curve | None = None
    """The validation loss with the training loss, where `curve` is another metric."""

    @property
    def with_training(self) -> Curve:
        return self.loss or self.curve


def learning_curves(models: Sequence[Learnt], ranked: str, best: float | None, split: str) -> str:
    """The section: a large chart and small ones, as many as the models need; empty if none has a curve."""
    shown = [model for model in models if model.curve.drawn]
    if not shown:
        return ""
    metric = next((model.curve.metric for model in shown if model.curve.metric), ranked)
    best = best if metric == ranked else None
    if len(shown) == 1:
        return _alone(shown[0], metric, best, split, among=len(models) > 1)
    said = f"{metric} on the validation data while training ({_direction(metric)}); networks read its first part "
    said = f'<p class="aside">{text(said[:1].upper() + said[1:])}(train.validate_tokens). {_ring(split)}</p>'
    return said + (_overview(shown, metric, best) if _distinct(shown) else "") + _multiples(shown, metric)


def _distinct(models: Sequence[Learnt]) -> bool:
    """Whether the curves of all models can be told apart in one chart."""
    return len(models) <= _TOGETHER and len({model.colour for model in models}) == len(models)


def _direction(metric: str) -> str:
    return "lower is better" if lower_is_better(metric) else "higher is better"


def _ring(split: str) -> str:
    other = "" if split == "validation" else ", which is another text"
    return f"A ring marks the step whose weights were kept; the result above is theirs on the {split} split{other}."


def _alone(model: Learnt, metric: str, best: float | None, split: str, among: bool) -> str:
    """The curves of one network; `among` other models, which have none, it is named and has its own colour."""
    curve = model.curve
    colours = (model.colour, model.colour) if among else (0, 1)
    trained = bool(curve.training.values)
    title = metric if trained else f"validation {metric}"
    where = "while training" if trained else "on the validation data while training"
    said = f"{metric} {where} ({_direction(metric)}). {_ring(split)}{f' {_TRAINING}' if trained else ''}"
    page = f'<p class="aside">{text(said[:1].upper() + said[1:])}</p>'
    if among:
        page += f"<h3>{swatch(model.colour)}{text(model.name)}</h3>"
    axes = Axes("steps", metric, lower_is_better(metric), best, y_title=title)
    page += _large(_lines(curve, metric, colours), axes, "steps")
    if model.loss and model.loss.drawn:
        page += f'<p class="aside">{_TRAINING}</p>'
        page += _large(_lines(model.loss, "loss", colours), Axes("steps", "loss", True, y_title="loss (nats)"), "loss")
    return page


_TRAINING = (
    "The training loss is that of the batches as they came, smoothed, with dropout where the model has it; where it "
    "falls and validation does not, the model overfits."
)


def _lines(curve: Curve, metric: str, colours: tuple[int, int] = (0, 1), by: str = "steps") -> list[Line]:
    """Validation with its ring, and training."""
    xs: Sequence[float] = curve.steps if by == "steps" else curve.seconds
    mark = None
    if curve.kept in curve.steps:
        place = curve.steps.index(curve.kept)
        mark = Mark(xs[place], curve.values[place], f"kept {figure(curve.values[place], metric)}")
    found = [Line("validation", colours[0], xs, curve.values, mark=mark)]
    training = curve.training
    if training.values:
        xs = training.steps if by == "steps" else training.seconds
        found.append(Line("training", colours[1], xs, smoothed(training.values), dashed=True))
    return found


def smoothed(values: Sequence[float]) -> list[float]:
    """Each value as the mean of those up to it, a 25th of all at most."""
    width = max(1, len(values) // _SMOOTH)
    return [sum(values[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(values))]


def _large(lines: Sequence[Line], axes: Axes, name: str) -> str:
    names = legend(lines, lambda value: figure(value, axes.metric))
    both = line_chart(lines, axes, "wide") + line_chart(lines, axes, "narrow")
    return f'<figure data-chart="{name}">{both}</figure>{names}'


def _overview(models: Sequence[Learnt], metric: str, best: float | None) -> str:
    """The validation curves of all models in one chart, against seconds or steps."""
    lower, title = lower_is_better(metric), f"validation {metric}"
    by_seconds = [Line(m.name, m.colour, m.curve.seconds, m.curve.values) for m in models]
    by_steps = [Line(m.name, m.colour, m.curve.steps, m.curve.values) for m in models]
    seconds = Axes("seconds of training", metric, lower, best, is_log(by_seconds), y_title=title)
    steps = Axes("steps", metric, lower, best, y_title=title)
    panels = "".join(
        f'<figure data-axis="{name}">{line_chart(lines, axes, "wide")}{line_chart(lines, axes, "narrow")}</figure>'
        for name, lines, axes in (("seconds", by_seconds, seconds), ("steps", by_steps, steps))
    )
    return f'<div class="charts">{panels}</div>{legend(by_seconds, lambda value: figure(value, metric))}'


def _multiples(models: Sequence[Learnt], ranked: str) -> str:
    """A small chart a model, best first, all on the same scales."""
    curves = [model.with_training for model in models]
    metric = curves[0].metric or ranked
    behind = [Line("", 0, curve.seconds, curve.values, faint=True) for curve in curves]
    axes = Axes("seconds of training", metric, lower_is_better(metric), log=is_log(behind))
    own = [_lines(c, metric, (model.colour, model.colour), "seconds") for model, c in zip(models, curves, strict=True)]
    scale = [line for lines in own for line in lines]
    panels = []
    for i, model in enumerate(models):
        chart = line_chart([*behind[:i], *behind[i + 1 :], *own[i]], axes, "small", scale)
        panels.append(f"<figure><h3>{swatch(model.colour)}{text(model.name)}</h3>{chart}</figure>")
    said = "Solid: validation; dashed: training; grey: validation of the other models. "
    return f'<p class="aside">{said}{_TRAINING}</p>{folded(panels, "multiples", _TOGETHER)}'

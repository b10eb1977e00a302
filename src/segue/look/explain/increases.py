"""What ELMo's vectors added to the best models of six tasks: the lecture's table (Peters et al. 2018).

    increase            = with ELMo - baseline
    relative increase   = increase / (100 - baseline)      the share of what was still wrong that is now right

The lecture has a NER increase of 2.06, by the paper's unrounded figures; its own rows give 2.07.
"""

from __future__ import annotations

from typing import NamedTuple

from segue.look.explain.costs import Section


class Task(NamedTuple):
    """Figures of one task, in percent: F1, or accuracy (SNLI, SST-5)."""

    name: str
    best_before: float
    """The best that others had published."""
    baseline: float
    with_elmo: float

    @property
    def increase(self) -> float:
        """With ELMo less without."""
        return self.with_elmo - self.baseline

    @property
    def relative(self) -> float:
        """The increase as a share of what the baseline had left to gain."""
        return relative_increase(self.baseline, self.with_elmo)


LECTURE = (
    Task("SQuAD", 84.4, 81.1, 85.8),
    Task("SNLI", 88.6, 88.0, 88.7),
    Task("SRL", 81.7, 81.4, 84.6),
    Task("Coref", 67.2, 67.2, 70.4),
    Task("NER", 91.93, 90.15, 92.22),
    Task("SST-5", 53.7, 51.4, 54.7),
)


def relative_increase(baseline: float, figure: float, most: float = 100.0) -> float:
    """Return the increase over a baseline as a share of what was left up to the best possible figure, `most`."""
    if not baseline < most:
        raise ValueError(f"the baseline is {baseline}: nothing is left to gain up to {most}")
    return (figure - baseline) / (most - baseline)


def sections() -> list[Section]:
    """The lecture's table."""
    rows = [(one.name, f"{one.baseline:g} → {one.with_elmo:g}", _said(one)) for one in LECTURE]
    return [Section("What a frozen ELMo added to six tasks (Peters et al. 2018), in percent", rows)]


def _said(one: Task) -> str:
    beyond = one.with_elmo - one.best_before
    better = f"{beyond:+.2f}".rstrip("0").rstrip(".")
    return f"+{one.increase:.2f}".rstrip("0").rstrip(".") + (
        f", {100 * one.relative:.1f} % of what was wrong; {better} against the best before"
    )

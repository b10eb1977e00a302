"""Frozen beside fine-tuned: the same body with its weights as they were and with weights that learnt, and what the
lecture's table has of the same task (Peters et al. 2019, "To tune or not to tune?").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from segue.look.page.markup import figure, lower_is_better, table, text

LECTURE_TASKS = ("NER", "SST-2", "MNLI", "SICK-E", "SICK-R", "MRPC", "STS-B")
LECTURE: dict[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]] = {
    "Skip-thoughts": ((None, 81.8, 62.9, None, 86.6, 75.8, 71.8), (None,) * 7),
    "ELMo": ((91.7, 91.8, 79.6, 86.3, 86.1, 76.0, 75.9), (91.9, 91.2, 76.4, 83.3, 83.3, 74.7, 75.5)),
    "BERT base": ((92.2, 93.0, 84.6, 84.8, 86.4, 78.1, 82.9), (92.4, 93.5, 84.6, 85.8, 88.7, 84.8, 87.1)),
}
"""Model: frozen, then fine-tuned, each in the order of LECTURE_TASKS; F1, accuracy or 100 times a correlation."""


class Both(NamedTuple):
    """One body, frozen and fine-tuned."""

    body: str
    frozen: float
    tuned: float
    differs: str
    """Whether the two differ by more than chance: "yes (p = 0.012)"."""


def lecture_task(path: str) -> str:
    """The task of the lecture's table that some data are called after, by a file or its folder (SST-2/train.tsv,
    sst2.tsv); empty: none."""
    words = {re.sub("[^a-z0-9]", "", part.partition(".")[0].lower()) for part in Path(path).parts}
    return next((name for name in LECTURE_TASKS if re.sub("[^a-z0-9]", "", name.lower()) in words), "")


def frozen_and_tuned(bodies: Sequence[Both], metric: str, task: str = "") -> str:
    """Write a row for each body, and one for each model of the lecture's table, if it has the task."""
    rows = [
        [text(one.body), figure(one.frozen, metric), figure(one.tuned, metric), text(one.differs)] for one in bodies
    ]
    better = sum((one.tuned < one.frozen) is lower_is_better(metric) for one in bodies if one.tuned != one.frozen)
    said = f"{metric[:1].upper()}{metric[1:]} of the same head on the same body, as it was and fine-tuned. "
    said += f"Fine-tuning is better with {better} of {len(bodies)}." if len(bodies) > 1 else ""
    if task:
        place = LECTURE_TASKS.index(task)
        for name, (frozen, tuned) in LECTURE.items():
            rows.append([f"the lecture’s {text(name)} on {task}", _figure(frozen[place]), _figure(tuned[place]), ""])
        said += f" The lecture’s figures are of {task} too, on its own test."
    head = ["body", "frozen", "fine-tuned", "do they differ?"]
    return f'<p class="aside">{text(said.strip())}</p>{table(head, rows)}'


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"

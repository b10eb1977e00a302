"""Pre-training in a comparison: which runs models began from, and bodies both frozen and fine-tuned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from segue.inference.evaluation import compare, main_figure
from segue.look.inside.view import View
from segue.look.page.frozen import Both
from segue.look.page.weight_change import weight_change_view
from segue.runs.experiments.verdict import Trial


def notes(trials: Sequence[Trial], results: Sequence[dict[str, Any]], budget: str) -> Iterator[str]:
    """Say which models began from other runs: their budget leaves the time of those out. Then what of the test had
    stood in what those runs were trained on."""
    began: dict[tuple[str, float | None], list[str]] = {}
    for trial, result in zip(trials, results, strict=True):
        if found := result.get("pretrained"):
            began.setdefault((found["run"], found["seconds"]), []).append(trial.recipe.name)
    for (run, seconds), names in began.items():
        took = "trained for a time that is not known" if seconds is None else f"trained for {seconds:,.1f} s"
        yield f"{' and '.join(names)} began from {run}, {took}{' before the budget began' if budget else ''}."
    for trial, result in zip(trials, results, strict=True):
        for run, share in result.get("leak", {}).get("runs", {}).items():
            what = result["leak"]["of"]
            yield (
                f"Warning: {100 * share:.0f} % {what} stood in what {run} was trained on, so that {trial.recipe.name} "
                "has an advantage."
            )


def changes_of(trials: Sequence[Trial], results: Sequence[dict[str, Any]]) -> list[View]:
    """Draw where the weights of fine-tuned models changed."""
    found = ((trial.recipe.name, result.get("weight_change")) for trial, result in zip(trials, results, strict=True))
    return [weight_change_view(name, change) for name, change in found if change]


def frozen_pairs(trials: Sequence[Trial]) -> list[Both]:
    """Find the bodies that were compared both frozen and fine-tuned, under the same head."""
    found = []
    for one, other in product(trials, trials):
        if not _same_but_frozen(one, other):
            continue
        main = main_figure(one.evaluation.result)
        frozen, tuned = (trial.evaluation.result.get(main) for trial in (one, other))
        if frozen is not None and tuned is not None:
            paired = replace(other, paired=compare(other.evaluations, one.evaluations))
            found.append(Both(one.recipe.model.body, frozen, tuned, paired.differs))
    return found


def _same_but_frozen(frozen: Trial, tuned: Trial) -> bool:
    """Whether two recipes have the same model, but that one leaves its body as it is."""
    one, other = asdict(frozen.recipe.model), asdict(tuned.recipe.model)
    if frozen.recipe.kind != tuned.recipe.kind or "frozen" not in one:
        return False
    return not other["frozen"] and one == other | {"frozen": True}

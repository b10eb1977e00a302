"""Open several translators as one run: RUN+RUN is an ensemble, the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from segue.errors import InputError
from segue.inference.opened import Opened
from segue.models.base import EncoderDecoder
from segue.runs.leaks import trained_runs
from segue.runs.run import Run


def named_runs(names: str) -> list[str]:
    """Split RUN+RUN at each +, unless it is the name of one folder."""
    return [names] if Path(names).is_dir() else [name for name in names.split("+") if name]


class EnsembleRun(Run):
    """Runs that translate together; all else is as in the first of them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        from segue.inference.ensemble import Ensemble

        first = runs[0]
        _check(runs)
        # A target begins with STOP, in whose place a model that has a mark for it reads that.
        codec = first.codec._replace(sizes=replace(first.codec.sizes, marks=()))
        super().__init__(first.path, first.recipe, Ensemble([run.model for run in runs]), codec, first.device)
        self.runs = list(runs)

    @property
    def opened(self) -> Opened:
        return super().opened._replace(limit=min(run.recipe.batches.length for run in self.runs))

    @property
    def name(self) -> str:
        return " + ".join(str(run.path) for run in self.runs)

    def trained_on(self, own: bool) -> list[Path]:
        first, *others = self.runs
        return [*trained_runs(first.path, first.recipe, own), *(run.path for run in others)]


def _tokens(run: Run) -> list[dict[str, Any]]:
    """The tokens of both sides, in the form of their files."""
    return [tokenizer.content for tokenizer in (run.codec.tokenizer, run.codec.source_tokenizer)]


def _check(runs: Sequence[Run]) -> None:
    """Refuse runs that are no translators, or have other tokens."""
    first = runs[0]
    named = "+".join(str(run.path) for run in runs)
    for run in runs:
        if not isinstance(run.model, EncoderDecoder):
            raise InputError(
                f"{named} is an ensemble of translators, and {run.path} is made for {run.task.name}. To score language "
                "models as one mixture, say --mix (`segue evaluate`); several classifiers become one by `segue train "
                "ensemble model.runs=RUN,RUN`."
            )
    for run in runs[1:]:
        if _tokens(run) != _tokens(first):
            raise InputError(
                f"{first.path} and {run.path} have other tokens, so that their probabilities are of other things. "
                "Expected runs that were trained on the same pairs with the same [tokens]."
            )
        for key in ("canonical", "source", "rate", "pixels"):
            if vars(run.recipe.data)[key] != vars(first.recipe.data)[key]:
                raise InputError(f"{first.path} and {run.path} differ in data.{key}. Expected one value.")

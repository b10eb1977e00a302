"""Evaluate a run, or several as one mixture, with caches or with dynamic evaluation.

A model that changes while it reads the test text is adapted; its figures are marked, and the static figures of the same
models are given beside them. The weights of a mixture are found by EM on validation text; if a run held out nothing
else, that is the text that is scored, and `way` says so.

A counted model counts on (its `adapted()`), a network goes on learning (inference/dynamic_evaluation.py). There are
an n-gram cache (ngrams/cache.py), and a neural cache for every network with hidden states (inference/neural_cache.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from segue.data.corpus import Corpus
from segue.errors import InputError
from segue.inference.lm_mixture import Mixture, probabilities
from segue.models.base import Body, Counted, EncoderDecoder
from segue.ngrams.em import em_weights
from segue.runs.display import Figures
from segue.runs.ensemble import named_runs
from segue.runs.leaks import leak, trained_runs
from segue.runs.resume import Settings, setting_lines
from segue.runs.run import Run, evaluate_opened, open_runs
from segue.tasks.lm import AS_PUBLISHED
from segue.training import device as devices
from segue.training.log import Progress, silent

HELD_OUT = 200_000
"""Find weights on at most this many tokens of validation text."""


class Mixing:
    """Runs that are evaluated together."""

    def __init__(self, runs: Sequence[Run], adapt: bool = False, cache: bool = False) -> None:
        self.runs, self.adapt, self.cache = list(runs), adapt, cache
        _check(self.runs)
        if adapt and not any(map(_way, self.runs)):
            kinds = ", ".join(sorted({run.recipe.kind for run in runs}))
            raise InputError(f"{kinds} cannot go on learning while it reads. An ngram can, and an rnn_lm: train one.")

    @property
    def name(self) -> str:
        return " + ".join([*(run.recipe.name for run in self.runs), *(["cache"] if self.cache else [])])

    def evaluate(
        self,
        data: Any = None,
        validation: str | None = None,
        progress: Progress = silent,
        settings: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Compute the figures as those of one model, with the weights; if it adapts, also the static figures."""
        first = self.runs[0]
        held_out = None
        if self.cache or len(self.runs) > 1:
            with first.held_out(validation, HELD_OUT, progress) as text:
                held_out = text  # its mapped file outlives its folder
        with first.corpus_for(data, progress, settings) as (corpus, split):
            result = static = self._score(corpus, split, held_out, False, progress)
            if self.adapt or self.cache:
                kept = ("bits_per_byte", "bits_per_byte_ci", "perplexity", "weights")
                result = self._score(corpus, split, held_out, True, progress)
                result["static"] = {key: static[key] for key in kept if key in static}
            others = [run.path for run in self.runs[1:]]
            result |= leak([*trained_runs(first.path, first.recipe, data is None), *others], corpus, split)
            result |= corpus.ledger.skipped() if split == "all" else {}
        named = first.scored_on(data, split) | {"run": " + ".join(str(run.path) for run in self.runs)}
        result = {**named, **result}
        if held_out is not None and validation is None and split == "validation":
            result["way"] += "; the weights are found on this text too, for nothing else was held out"
        return result

    def _score(self, corpus: Corpus, split: str, held_out: Any, adapted: bool, progress: Progress) -> dict[str, Any]:
        first, size = self.runs[0], self.runs[0].sizes.vocab_size
        weights = [1.0]
        if held_out is not None:
            found = []
            for i, part in enumerate(parts := self._parts(adapted)):
                progress(f"weighing {self.name}", i / len(parts))
                found.append(probabilities(part.model, held_out, size, part.device))
            weights = em_weights(np.stack(found)).tolist()
        parts = self._parts(adapted)
        model = parts[0].model
        if len(parts) > 1:
            model = Mixture([part.model for part in parts], weights, [part.device for part in parts])
        opened = first.opened._replace(model=model)
        evaluated = evaluate_opened(first.recipe, opened, corpus, split, progress, normalised=True)
        result = {"model": self.name, **evaluated.result}
        if len(parts) > 1:
            result["weights"] = {part.name: weight for part, weight in zip(parts, weights, strict=True)}
        if adapted:
            *others, last = dict.fromkeys(part.way for part in parts if part.way)
            result["adapted"] = f"{', '.join(others)} and {last}" if others else last
        return {**({"split": split} if split != "all" else {}), **result}

    def _parts(self, adapted: bool) -> list[_Part]:
        """Return the parts of the mixture; adapted models start afresh."""
        parts = [
            _adapted(run) if adapted and self.adapt and _way(run) else _Part(str(run.path), run.model, run.device)
            for run in self.runs
        ]
        if adapted and self.cache:
            from segue.ngrams.cache import CacheLm

            # The states of a body that is not causal have seen what comes next: they may not look it up.
            parts += [_neural_cache(run) for run in self.runs if isinstance(run.model, Body) and run.model.causal]
            parts.append(_Part("cache", CacheLm(self.runs[0].sizes.vocab_size), way="a cache"))
        return parts


class _Part(NamedTuple):
    """A part of a mixture, and how it adapts while it reads; empty if it is static."""

    name: str
    model: Any
    device: str = "cpu"
    way: str = ""


def _way(run: Run) -> str:
    """Say how the model of a run goes on learning; empty if it cannot."""
    if run.model.adapts:
        return "counting on while reading"
    return "dynamic evaluation" if run.model.takes_tensors else ""


def _adapted(run: Run) -> _Part:
    if run.model.adapts:
        return _Part(str(run.path), run.model.adapted(), way=_way(run))
    from segue.inference.dynamic_evaluation import Dynamic

    return _Part(str(run.path), Dynamic(run.model), way=_way(run))


def _neural_cache(run: Run) -> _Part:
    from segue.inference.neural_cache import NeuralCache

    return _Part(f"neural cache of {run.path}", NeuralCache(run.model), way="a neural cache")


def evaluate(
    runs: str | Path | Run,
    data: Any = None,
    mix: bool = False,
    adapt: bool = False,
    cache: bool = False,
    validation: str | None = None,
    device: str = "auto",
    trust: bool = False,
    progress: Progress = silent,
    settings: Settings = (),
    threads: int = 0,
) -> Figures:
    """Compute the figures of a run, of translators as one ensemble (a+b+c), or with `mix` of language models (a+b+c)
    as one mixture.

    With `adapt` a model goes on learning while it reads (dynamic evaluation); with `cache` caches of recent text are
    mixed in. The weights of a mixture are found on `validation`, by default the run's own. `settings` say how the data
    is written, {"data.columns": "2,1"}, and how translations are, {"decode.beam": 5}.
    """
    with devices.using_threads(threads):
        opened = [runs] if isinstance(runs, Run) else _opened(str(runs), mix, device, trust)
        if not all(isinstance(run.model, Counted) for run in opened):
            devices.leave_room()
        if len(opened) == 1 and not (adapt or cache):
            return opened[0].evaluate(data, progress, settings)
        return Figures(Mixing(opened, adapt, cache).evaluate(data, validation, progress, setting_lines(settings)))


def _opened(names: str, mix: bool, device: str, trust: bool) -> list[Run]:
    """Open runs: those of a mixture, or one, which may be an ensemble of translators."""
    paths = named_runs(names)
    if not mix:
        return [open_runs(names, device, trust)]
    if len(paths) == 1:
        raise InputError(f"{names} is one run, and --mix is of several. Expected them with a + between: {names}+RUN")
    return [Run.open(path, device, trust) for path in paths or [names]]


def _check(runs: Sequence[Run]) -> None:
    """Refuse anything but language models, each once, with the same tokenizer."""
    first = runs[0]
    places = [run.path.resolve() for run in runs]
    for run, place in zip(runs, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"--mix names {run.path} twice. Expected each run once; validation text weighs them.")
    if len(runs) > 1 and all("challenge" in run.task.verbs for run in runs):
        named = ",".join(str(run.path) for run in runs)
        raise InputError(
            "--mix is for language models; several classifiers become one as an ensemble, weighed on validation rows: "
            f"segue train ensemble model.runs={named}"
        )
    for run in runs:
        if "generate" not in run.task.verbs:
            ensemble = " Translators are an ensemble without --mix." if isinstance(run.model, EncoderDecoder) else ""
            raise InputError(
                f"{run.path} is made for {run.task.name}; only language models are mixed or adapted.{ensemble}"
            )
        if not run.model.normalised:
            raise InputError(f"{run.path} gives scores, not probabilities, so that it cannot be part of a mixture.")
    for run in runs[1:]:
        if run.tokenizer.content != first.tokenizer.content:
            raise InputError(
                f"{first.path} and {run.path} have other tokens ({first.tokenizer.kind}, {first.sizes.vocab_size:,}; "
                f"{run.tokenizer.kind}, {run.sizes.vocab_size:,}), so that their probabilities are of other things. "
                "Expected runs with the same tokenizer, trained on the same text with the same [tokens]; of text that "
                f"is tokenised already (PTB, WikiText), all with {AS_PUBLISHED}."
            )
        for key in ("unit", "canonical", "carry"):
            one, other = asdict(first.recipe.data)[key], asdict(run.recipe.data)[key]
            if one != other:
                raise InputError(f"{first.path} was made with data.{key}={one}, {run.path} with {other}. Expected one.")

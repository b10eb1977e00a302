"""The trainer of counted models, which train themselves (`Counted.fit`): same interface as Trainer, without torch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from segue.batches.store import Store
from segue.models.base import Counted, Model, Record

if TYPE_CHECKING:
    from segue.training.log import Progress

Validate = Callable[[], dict[str, Any]]


class Fitting:
    """One run of `Counted.fit`. It writes no checkpoints; a resumed run begins again."""

    step = 0

    def __init__(
        self,
        model: Counted,
        store: Store,
        train: Any,
        held_out: Any,
        validate: Validate | None,
        what: str,
        progress: Progress,
    ) -> None:
        self.model, self.store, self.train, self.held_out = model, store, train, held_out
        self.validate, self.what, self.progress = validate, what, progress
        self.seconds = 0.0

    def fit(self) -> Iterator[Record]:
        """Learn, then validate. The seconds are those of learning: compiling its loops, once a machine, is not."""
        from segue.compiling import announced  # numba takes long to import, and a network needs none

        begun = time.perf_counter()
        with announced(self.progress) as compiled:
            for record in self.model.fit(self.store, self.train, self.held_out, self._done):
                self.seconds = time.perf_counter() - begun - compiled.seconds
                yield Record(record.step, record.kind, record.values | {"seconds": self.seconds})
        # Compiling, once on a machine, is no training: it would make the first model of a comparison look slow.
        self.seconds = time.perf_counter() - begun - compiled.seconds
        if self.validate is not None:
            yield Record(1, "validation", self.validate() | {"seconds": self.seconds})
        self.progress(self.what, 1.0)

    def _done(self, share: float) -> None:
        self.progress(self.what, 0.99 * share)

    def take_best(self) -> None:
        """Do nothing: there is only one model."""

    def summary(self) -> dict[str, Any]:
        """Return what result.json says about the training."""
        epochs = self.model.epochs
        return fitted(self.seconds, math.ceil(epochs), epochs * len(self.store.tokens), float(epochs), self.model)


def fitted(seconds: float, steps: int, tokens: float, epochs: float, model: Model) -> dict[str, Any]:
    """Return the entries of result.json that every training has."""
    return {
        "parameters": model.parameters_count,
        "train_seconds": seconds,
        "steps": steps,
        "epochs": epochs,
        "tokens_per_second": tokens / max(seconds, 1e-9),
    }

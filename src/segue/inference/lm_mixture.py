"""Mixture (interpolation) of language models with the same tokens: p(w|h) = sum over parts of weight · p_part(w|h)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.batches.encode import HeldOutText
from segue.batches.scorer import Scorer
from segue.inference.score import Reading

Floats = NDArray[np.float64]


class Mixture(Scorer):
    """A language model made of others; it can be scored."""

    def __init__(self, parts: Sequence[Any], weights: Sequence[float], devices: Sequence[str]) -> None:
        self.parts, self.weights, self.devices = parts, np.asarray(weights, np.float64), devices

    @property
    def way(self) -> str:
        """How a long text is read."""
        ways = list(dict.fromkeys(part.way for part in self.parts))
        return ways[0] if len(ways) == 1 else f"each part in its own way: {'; '.join(ways)}"

    @property
    def in_order(self) -> bool:  # type: ignore[override]
        return any(part.in_order for part in self.parts)

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Floats, Any]:
        total: Any = 0.0
        states = []
        for part, weight, device, old in zip(
            self.parts, self.weights, self.devices, state or [None] * len(self.parts), strict=True
        ):
            network = part.takes_tensors
            logp, new = part.logprobs(batch.to(device) if network else batch, old)
            states.append(new)
            if weight > 0:
                total = total + weight * np.exp(np.asarray(logp.cpu() if network else logp, np.float64))
        with np.errstate(divide="ignore"):
            # At IGNORE every part gives log 1 = 0, and the weights sum to one.
            return np.log(np.minimum(total, 1.0)), states


def probabilities(part: Any, text: HeldOutText, vocab_size: int, device: str) -> Floats:
    """Compute p of every token of a text."""
    found = np.empty(len(text.store.tokens))
    for first, logp in Reading(part, text, vocab_size, device):
        found[first : first + len(logp)] = np.exp(logp)
    return found

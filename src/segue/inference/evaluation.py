"""Evaluation of a model on held-out data: its figures, and the pieces that they are computed from.

An evaluation keeps a row of sums for each independent piece of the data (a block of text, a sentence). The figure that
ranks models is a function of their total, so cross-validation, confidence intervals and paired tests need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.inference.statistics import (
    Paired,
    bootstrap,
    corpus_bootstrap,
    corpus_paired,
    paired,
    ratio,
    share_interval,
)

Floats = NDArray[np.float64]

NAMES = {
    "bits_per_byte": "bits per byte",
    "spelling_bits_per_byte": "spelling",
    "unknown_tokens": "unknown tokens",
    "zero_probability_tokens": "tokens of probability 0",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "mean_squared_error": "mean squared error",
    "mean_absolute_error": "mean absolute error",
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "span_f1": "span F1",
    "bleu": "BLEU",
    "chrf": "chrF",
    "best_possible": "best possible",
    "tokens_cut": "tokens cut",
    "cloze": "cloze accuracy",
    "unknown_pairs": "pairs without a vector",
    "accuracy_3cosmul": "accuracy by 3CosMul",
    "unknown_analogies": "analogies without a vector",
    "mean_negative_log_score": "mean negative log score",
    "calibration_error": "calibration error",
}
"""Names of figures in tables; a figure that is not here keeps its own name."""
LOWER_IS_BETTER = {"bits_per_byte", "perplexity", "mean_squared_error"}


@dataclass(frozen=True)
class Evaluation:
    """The figures, the sums that they are computed from, and some examples to look at."""

    result: dict[str, Any]
    """The figures by name, with `task` and `figure`, the name of the one that ranks models (may be missing)."""
    pieces_NK: Floats
    """A row of sums for each independent piece of the data."""
    examples: list[dict[str, str]] = field(default_factory=list)
    of_sums: Callable[[Floats], Floats] = ratio
    """Computes the figure from sums over pieces, (R, K) -> (R,): by default the first column over the second."""
    share: bool = False
    """Whether the figure is a share of right answers, with an interval within 0 and 1."""

    @property
    def figure(self) -> str:
        """The figure that ranks models."""
        return main_figure(self.result)

    @property
    def size(self) -> float:
        """The weight of a fold in the mean of a cross-validation: its bytes, words or rows."""
        return float(self.pieces_NK[:, 1].sum()) if self.of_sums is ratio else float(len(self.pieces_NK))

    def refigured(self) -> Evaluation:
        """Return a copy with figure and interval computed from the pieces, if it has a figure."""
        if self.figure not in self.result:
            return self
        value = float(self.of_sums(self.pieces_NK.sum(0)[None])[0])
        return replace(self, result=self.result | {self.figure: value, f"{self.figure}_ci": list(self.interval())})

    def interval(self) -> tuple[float, float]:
        """Compute the 95 % confidence interval of the figure, by bootstrap over the pieces."""
        if self.of_sums is not ratio:
            return corpus_bootstrap(self.pieces_NK, self.of_sums)
        return (share_interval if self.share else bootstrap)(self.pieces_NK[:, 0], self.pieces_NK[:, 1])


def main_figure(result: dict[str, Any]) -> str:
    """Return the name of the figure that ranks a model with this result."""
    return str(result["figure"])


def compare(a: Evaluation, b: Evaluation) -> Paired:
    """Test the difference of a minus b on the same pieces, with a p-value."""
    if a.of_sums is not ratio:
        return corpus_paired(a.pieces_NK, b.pieces_NK, a.of_sums)
    if len(a.pieces_NK) != len(b.pieces_NK):
        raise ValueError("two models can only be compared on the same text")
    return paired(a.pieces_NK[:, 0], b.pieces_NK[:, 0], a.pieces_NK[:, 1])

"""Evaluation of a model on held-out data: its figures, and the pieces that they are computed from.

An evaluation keeps a row of sums for each piece of the data (a block of text, a sentence, a row). The figure that ranks
models is a function of their total, so cross-validation, confidence intervals and paired tests need nothing else. A
model that was trained with several seeds has several evaluations; their chance is that of the text and of training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.inference.statistics import (
    FEWEST,
    Paired,
    Seeds,
    chance_of_both,
    chance_of_text,
    influences,
    paired,
    ratio,
    share_interval,
)
from segue.inference.text_metrics import METRICS, edits

Floats = NDArray[np.float64]

NAMES = {
    "bits_per_byte": "bits per byte",
    "spelling_bits_per_byte": "spelling of unknown words",
    "masked_bits_per_byte": "masked bits per byte",
    "masked_perplexity": "masked perplexity",
    "masked_accuracy": "masked accuracy",
    "next_sentence_accuracy": "next-sentence accuracy",
    "span_perplexity": "perplexity of hidden spans",
    "span_accuracy": "accuracy in hidden spans",
    "unknown_tokens": "unknown tokens",
    "zero_probability_tokens": "tokens of probability 0",
    "why_infinite": "why ∞",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "matthews": "Matthews correlation",
    "positive_f1": "F1 of the positive class",
    "mean_squared_error": "mean squared error",
    "mean_absolute_error": "mean absolute error",
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "span_f1": "span F1",
    "bleu": "BLEU",
    "bleu_lower": "lower-cased BLEU",
    "chrf": "chrF",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "exact": "exact match",
    "f1": "token F1",
    "has_answer_f1": "token F1 where there is an answer",
    "has_answer_exact": "exact match where there is an answer",
    "no_answer_exact": "exact match where there is none",
    "no_answer_questions": "questions without an answer",
    "said_none": "said to have no answer, share",
    "reachable": "reachable answers, share",
    "wer": "word error rate",
    "cer": "character error rate",
    "repeats": "repeated bigrams",
    "distinct1": "distinct words",
    "distinct2": "distinct bigrams",
    "best_possible": "best possible",
    "tokens_cut": "tokens cut",
    "cloze": "cloze accuracy",
    "unknown_pairs": "pairs without a vector",
    "accuracy_3cosmul": "accuracy by 3CosMul",
    "unknown_analogies": "analogies without a vector",
    "mean_negative_log_score": "mean negative log score",
    "calibration_error": "calibration error",
    "way": "read",
    "split": "text",
    "train_seconds": "seconds of training",
    "wall_seconds": "seconds in all",
    "seconds_left": "seconds left",
    "tokens_per_second": "tokens per second",
    "best_step": "best step",
    "stopped_early": "stopped early",
    "validation_loss": "validation loss",
}
"""Names of figures in tables; a figure that is not here keeps its own name."""
MEANINGS = {
    "bits_per_byte": "bits that the model needs for a byte of the text: fewer are better, whatever its tokens",
    "perplexity": "2 to the bits per token: compare it only where the tokens are the same",
    "masked_bits_per_byte": "bits for a byte, each token given the words on both sides: no probability of a text",
    "masked_perplexity": "2 to the bits per masked token: compare it only where the tokens are the same",
    "masked_accuracy": "masked tokens that were the likeliest",
    "next_sentence_accuracy": "pairs of chunks of which the model knows whether the second follows; half of them do",
    "span_perplexity": "2 to the bits per token of the hidden spans, given the text around: no probability of a text",
    "span_accuracy": "tokens of the hidden spans, their sentinels and the end that were the likeliest",
    "unknown_tokens": "tokens outside the vocabulary",
    "spelling_bits_per_byte": "the part of the bits per byte that spells out unknown words, letter by letter",
    "zero_probability_tokens": "tokens that the model rules out: one is enough for infinite bits",
    "tokens_cut": "tokens beyond batches.length, which were not read",
    "macro_f1": "the mean of the classes' F1, each class alike",
    "micro_f1": "F1 of all labels together, so that common classes count more",
    "matthews": "correlation of the true and the predicted classes, from -1 to 1; 0 is what a guess without a look has",
    "positive_f1": "F1 of the second of two classes in their order (1 of 0 and 1, yes of no and yes)",
    "calibration_error": "how far the stated probabilities are from the share that is right",
    "cloze": "how often the word that stood there gets the highest probability of some",
    "bleu": "how many runs of one to four words of the output stand in the reference, from 0 to 100",
    "bleu_lower": "BLEU without case; of tokenised references, cut at blanks alone, as papers on such text give it",
    "chrf": "F-score of runs of one to six characters that output and reference share, from 0 to 100",
    "rouge1": "F1 of the words that output and reference share, from 0 to 100",
    "rouge2": "F1 of the pairs of neighbouring words that output and reference share, from 0 to 100",
    "rougeL": "F1 of the longest sequence of words that stands in output and reference in this order, from 0 to 100",
    "exact": "outputs that equal the reference, but for case, punctuation and English articles",
    "f1": "F1 of the words that output and reference share, without case, punctuation and English articles",
    "has_answer_f1": "F1 of the questions that the text answers",
    "has_answer_exact": "exact match of the questions that the text answers",
    "no_answer_exact": "of the questions without an answer, those that were said to have none",
    "said_none": "of all questions, those that were said to have no answer",
    "reachable": "right answers that begin and end where tokens do, so that the model can give them",
    "wer": "words to change, leave out or add to make the output the reference, over the reference's words",
    "cer": "characters to change, leave out or add to make the output the reference, over the reference's characters",
    "repeats": "pairs of words that an output repeats, more often than its reference has them: fewer are better",
    "distinct1": "different words of all outputs, over all their words: low where a model always says the same",
    "distinct2": "different pairs of neighbouring words of all outputs, over all their pairs",
    "best_possible": "what the true distribution of this text would reach",
}
"""What a figure is, in one line, where its name does not say it."""
HIDDEN_ZEROS = {"unknown_tokens", "spelling_bits_per_byte", "zero_probability_tokens", "tokens_cut"}
"""Figures that are only shown to people if there is something to tell."""
ERROR_RATES = {"wer", "cer"}
RANGES = {"matthews": (-1.0, 1.0), "positive_f1": (0.0, 1.0), "pearson": (-1.0, 1.0), "spearman": (-1.0, 1.0)}
"""The least and the most that a figure can be, where it is no share of right answers."""
LOWER_IS_BETTER = {
    *(*ERROR_RATES, "bits_per_byte", "perplexity", "mean_squared_error", "repeats"),
    *("masked_bits_per_byte", "masked_perplexity", "span_perplexity"),
}
PER_TOKEN = ("perplexity", "masked_perplexity")
"""What is shown in the place of bits per byte where tokens lose text."""


@dataclass(frozen=True)
class Evaluation:
    """The figures, the sums that they are computed from, and some examples to look at."""

    result: dict[str, Any]
    """The figures by name, with `task` and `figure`, the name of the one that ranks models (may be missing)."""
    pieces_NK: Floats
    """A row of sums for each piece of the data."""
    examples: list[dict[str, str]] = field(default_factory=list)
    of_sums: Callable[[Floats], Floats] = ratio
    """Computes the figure from sums over pieces, (R, K) -> (R,): by default the first column over the second."""
    share: bool = False
    """Whether the figure is a share of right answers, with an interval within 0 and 1."""
    ordered: bool = False
    """Whether the pieces are running text in its order, so that neighbours are alike; else they are independent."""
    lengths_N: NDArray[np.int64] | None = None
    """The length of the source of each piece, where the figure is also computed by length: its words, or of sound
    hundredths of a second."""
    length_unit: Literal["words", "seconds"] = "words"

    @property
    def figure(self) -> str:
        """The figure that ranks models."""
        return main_figure(self.result)

    @property
    def size(self) -> float:
        """The weight of a fold in the mean of a cross-validation: its bytes, words or rows."""
        return float(self.pieces_NK[:, 1].sum()) if self.of_sums is ratio else float(len(self.pieces_NK))

    @property
    def value(self) -> float:
        """The figure, computed from the pieces."""
        return float(self.of_sums(self.pieces_NK.sum(0)[None])[0])

    def refigured(self) -> Evaluation:
        """Return a copy with figure and interval computed from the pieces, if it has a figure."""
        if self.figure not in self.result:
            return self
        new: dict[str, Any] = {self.figure: self.value, f"{self.figure}_ci": list(self.interval())}
        if self.figure == "wer":
            new["edits"] = edits(self.pieces_NK)
        return replace(self, result=self.result | new | self.by_length())

    def by_length(self) -> dict[str, Any]:
        """Compute the figure of sources of like length, each with its interval, as `by_length` of a result; nothing
        where lengths are not known or all alike."""
        if self.lengths_N is None:
            return {}
        rows = []
        for low, high in length_bins(self.lengths_N):
            inside = (self.lengths_N >= low) & (self.lengths_N <= high)
            part = replace(self, pieces_NK=self.pieces_NK[inside])
            found = {self.figure: part.value, f"{self.figure}_ci": list(part.interval())}
            mean = float(self.lengths_N[inside].mean())
            ends: dict[str, Any] = {"from": low, "to": high, "mean": mean}
            if self.length_unit == "seconds":
                ends = {name: end / 100 for name, end in ends.items()} | {"unit": "seconds"}
            rows.append({**ends, "rows": int(inside.sum()), **found})
        return {"by_length": rows} if len(rows) > 1 else {}

    def interval(self) -> tuple[float, float]:
        """Compute the 95 % confidence interval of the figure: the chance of the text."""
        return interval([self])


_BINS = 15
"""Ranges of length at the most."""


def length_bins(lengths_N: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Divide lengths into up to 15 ranges of one round width; a range with too few pieces for an interval is joined
    with the next, and at the end with the one before."""
    longest = float(np.quantile(lengths_N, 0.99))
    width = next(m * 10**k for k in range(20) for m in (1, 2, 5) if m * 10**k * _BINS >= longest)
    counts = np.bincount(np.maximum(lengths_N - 1, 0) // width)
    ends: list[int] = []
    waiting = 0
    for place, count in enumerate(counts.tolist()):
        waiting += count
        if waiting >= FEWEST:
            ends.append((place + 1) * width)
            waiting = 0
    ends[-1:] = [int(lengths_N.max())]
    return list(zip([int(lengths_N.min()), *(end + 1 for end in ends[:-1])], ends, strict=True))


def main_figure(result: dict[str, Any]) -> str:
    """Return the name of the figure that ranks a model with this result."""
    return str(result["figure"])


def interval(seeds: Sequence[Evaluation]) -> tuple[float, float]:
    """Compute the 95 % interval of a figure, the mean over seeds: the chance of the text and, of seeds, of training.

    A piece of probability 0 has infinite bits. Such pieces make the upper end infinite; the others give the lower end.
    """
    first, pieces = seeds[0], _mean_pieces(seeds)
    finite = np.isfinite(pieces).all(1)
    if not finite.all():
        rest = replace(first, pieces_NK=pieces[finite])
        return (rest.interval()[0] if finite.any() else math.inf), math.inf
    value, chance = float(np.mean([one.value for one in seeds])), chance_of_both([_seeds(seeds)], first.ordered)
    rate = first.figure in ERROR_RATES
    if first.share and (value < 1 or not rate):
        low, high = share_interval(value, int((pieces[:, 1] > 0).sum()), chance)
        return low, max(high, value + chance.half) if rate else high  # added words make an error rate more than 1
    of_texts = (0.0, math.inf if rate else 100.0) if first.figure in METRICS else (-math.inf, math.inf)
    least, most = RANGES.get(first.figure, of_texts)
    return max(least, value - chance.half), min(most, value + chance.half)


def compare(a: Sequence[Evaluation], b: Sequence[Evaluation]) -> Paired:
    """Test the difference of model a minus model b on the same pieces, each with the evaluations of its seeds.

    With one seed each, p is the chance of the text alone: do these two runs differ? A piece to which a model gives
    probability 0 has infinite bits, more than all finite ones, so p then only compares on how many pieces each model is
    infinite alone. If both are infinite, the difference is nan.
    """
    means = _mean_pieces(a), _mean_pieces(b)
    if means[0].shape != means[1].shape:
        raise ValueError("two models can only be compared on the same text")
    if any(np.isinf(mean[:, 0]).any() for mean in means):
        return _compare_infinite(np.isinf(means[0][:, 0]), np.isinf(means[1][:, 0]), a[0].ordered)
    difference = float(np.mean([one.value for one in a]) - np.mean([one.value for one in b]))
    if abs(difference) < 1e-12 * abs(a[0].value):
        difference = 0.0  # the same sums in another order
    chance = chance_of_both([_seeds(a), _seeds(b)], a[0].ordered)
    return paired(difference, chance, int((means[0] != means[1]).any(1).sum()))


def _compare_infinite(a: NDArray[np.bool_], b: NDArray[np.bool_], ordered: bool) -> Paired:
    """Compare on how many pieces each model alone has infinite bits."""
    alone = (a & ~b).astype(np.float64) - (b & ~a)
    p = paired(float(alone.mean()), chance_of_text(alone, ordered), int((alone != 0).sum())).p
    if a.any() and b.any():
        return Paired(math.nan, -math.inf, math.inf, p)
    lo, hi = (0.0, math.inf) if p < 0.05 else (-math.inf, math.inf)
    return Paired(math.inf, lo, hi, p) if a.any() else Paired(-math.inf, -hi, -lo, p)


def _mean_pieces(seeds: Sequence[Evaluation]) -> Floats:
    return np.asarray(np.mean([one.pieces_NK for one in seeds], 0), np.float64)


def _seeds(seeds: Sequence[Evaluation]) -> Seeds:
    series = np.stack([influences(one.pieces_NK, one.of_sums) for one in seeds])
    return Seeds(np.array([one.value for one in seeds]), series)

"""How good a model is on held-out data: the figures of its task, each with an interval.

Every evaluation keeps its `statistics`, a row for each independent piece of the data (a block of text,
a sentence), so that two models can be compared piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.data.corpus import Example
from segue.errors import InputError, nearest
from segue.inference import metrics
from segue.inference.predict import Prediction, Predictor
from segue.inference.score import Scored
from segue.inference.statistics import Paired, bootstrap, corpus_bootstrap, corpus_paired, paired

MAIN = {"lm": "bits_per_byte", "classify": "accuracy", "tag": "accuracy", "seq2seq": "bleu"}
"""The figure that ranks models of a task."""
NAMES = {
    "bits_per_byte": "bits per byte",
    "spelling_bits_per_byte": "spelling",
    "unknown_tokens": "unknown tokens",
    "zero_probability_tokens": "tokens of probability 0",
    "macro_f1": "macro F1",
    "span_f1": "span F1",
    "bleu": "BLEU",
    "chrf": "chrF",
    "best_possible": "best possible",
    "tokens_cut": "tokens cut",
    "mean_negative_log_score": "mean negative log score",
}
"""What people call the figures; one that is not here has its own name."""
LOWER_IS_BETTER = {"bits_per_byte", "perplexity"}
SHOWN = 20


@dataclass(frozen=True)
class Evaluation:
    """The figures, what they were made of, and some examples to look at."""

    result: dict[str, Any]
    statistics: NDArray[np.float64]
    examples: list[dict[str, str]] = field(default_factory=list)

    @property
    def task(self) -> str:
        return str(self.result["task"])


def of_text(scored: Scored, lossless: bool = True, normalised: bool = True) -> Evaluation:
    """The figures of a language model. Tokens that lose text get a perplexity and no bits per byte; scores that do not
    sum to one get neither."""
    result: dict[str, Any] = {"task": "lm"}
    if not normalised:
        return Evaluation(
            result
            | {
                "mean_negative_log_score": scored.nats / scored.tokens,
                "tokens": scored.tokens,
                "bytes": int(scored.block_bytes.sum()),
                "unknown_tokens": scored.unknown,
                "zero_probability_tokens": scored.zeros,
                "way": f"{scored.way}; scores, not probabilities: they have neither perplexity nor bits",
            },
            np.stack([scored.bits, scored.block_bytes], 1),
        )
    if lossless:
        result["bits_per_byte"] = scored.bits_per_byte
        result["bits_per_byte_ci"] = list(bootstrap(scored.bits, scored.block_bytes))
    result |= {
        "perplexity": scored.perplexity,
        "tokens": scored.tokens,
        "bytes": int(scored.block_bytes.sum()),
        "unknown_tokens": scored.unknown,
        "spelling_bits_per_byte": scored.spelling_bits / float(scored.block_bytes.sum()),
        "zero_probability_tokens": scored.zeros,
        "way": scored.way,
    }
    return Evaluation(result, np.stack([scored.bits, scored.block_bytes], 1))


def of_rows(
    predictor: Predictor, examples: Iterable[Example], done: Callable[[float], None] = lambda share: None
) -> Evaluation:
    """The figures of a classifier, tagger or translator."""
    rows = list(examples)
    if not rows:
        raise InputError("There are no rows to evaluate on.")
    predictions = []
    for prediction in predictor.predict(rows):
        predictions.append(prediction)
        done(len(predictions) / len(rows))
    evaluate = {"classify": _classify, "tag": _tag, "seq2seq": _translate}[predictor.task]
    return evaluate(predictor, rows, predictions)


def compare(a: Evaluation, b: Evaluation) -> Paired:
    """a less b on the same pieces."""
    if a.task == "seq2seq":
        return corpus_paired(a.statistics, b.statistics, metrics.bleu_of_sums)
    if len(a.statistics) != len(b.statistics):
        raise ValueError("two models can only be compared on the same text")
    return paired(a.statistics[:, 0], b.statistics[:, 0], a.statistics[:, 1])


def _check_labels(rows: Sequence[Example], truth: Sequence[Sequence[str]], known: Collection[str]) -> None:
    for row, labels in zip(rows, truth, strict=True):
        for label in labels:
            if label not in known:
                raise InputError(
                    f"{row.path}:{row.line}: the label '{label}' was never seen in training.{nearest(label, known)}"
                )


def _classify(predictor: Predictor, rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    index = {label: i for i, label in enumerate(predictor.labels)}
    _check_labels(rows, [(row.label,) for row in rows], index)
    truth = np.array([index[row.label] for row in rows])
    guess = np.array([index[p.label] for p in predictions])
    right = (truth == guess).astype(np.float64)
    result = {
        "task": "classify",
        "accuracy": metrics.accuracy(truth, guess),
        "accuracy_ci": list(bootstrap(right, np.ones(len(rows)))),
        "macro_f1": metrics.macro_f1(truth, guess),
        "rows": len(rows),
        "labels": list(predictor.labels),
        "confusion": metrics.confusion(truth, guess, len(index)).tolist(),
    }
    errors = [
        {"text": row.text, "label": row.label, "predicted": p.label, "probability": f"{max(p.probabilities):.2f}"}
        for row, p in zip(rows, predictions, strict=True)
        if p.label != row.label
    ]
    errors.sort(key=lambda error: error["probability"], reverse=True)
    return Evaluation(result, np.stack([right, np.ones(len(rows))], 1), errors[:SHOWN])


def _tag(predictor: Predictor, rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    _check_labels(rows, [row.tags for row in rows], predictor.labels)
    # Words beyond what the model reads count as wrong: nothing is left out of the figure.
    guesses = [p.tags + ("",) * (len(row.tags) - len(p.tags)) for row, p in zip(rows, predictions, strict=True)]
    right = np.array([sum(map(str.__eq__, row.tags, guess)) for row, guess in zip(rows, guesses, strict=True)], float)
    words = np.array([len(row.tags) for row in rows], float)
    spans = metrics.span_f1([row.tags for row in rows], [[tag or "O" for tag in guess] for guess in guesses])
    result = {
        "task": "tag",
        "accuracy": float(right.sum() / words.sum()),
        "accuracy_ci": list(bootstrap(right, words)),
        "span_f1": spans.f1 if spans else None,
        "sentences": len(rows),
        "words": int(words.sum()),
    }
    errors = [
        {"text": " ".join(row.words), "tags": " ".join(row.tags), "predicted": " ".join(guess)}
        for row, guess in zip(rows, guesses, strict=True)
        if tuple(row.tags) != tuple(guess)
    ]
    return Evaluation(result, np.stack([right, words], 1), errors[:SHOWN])


def _translate(predictor: Predictor, rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    written = [p.text for p in predictions]
    references = [row.target for row in rows]
    scores = metrics.bleu_chrf(written, references)
    table = metrics.bleu_statistics(written, references)
    result = {
        "task": "seq2seq",
        "bleu": scores["bleu"],
        "bleu_ci": list(corpus_bootstrap(table, metrics.bleu_of_sums)),
        "chrf": scores["chrf"],
        "exact": float(np.mean([w == r for w, r in zip(written, references, strict=True)])),
        "sentences": len(rows),
        "signature": scores["signature"],
    }
    examples = [
        {"source": row.text, "reference": row.target, "output": text} for row, text in zip(rows, written, strict=True)
    ]
    return Evaluation(result, table, examples[:SHOWN])

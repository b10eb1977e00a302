"""How good a model is on held-out data: the figures of its task, each with an interval.

Every evaluation keeps its `statistics`, a row for each independent piece of the data (a block of text,
a sentence), so that two models can be compared piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.encode import tags_of
from segue.data.corpus import Example
from segue.data.example import names_of
from segue.errors import InputError, nearest
from segue.inference import metrics
from segue.inference.leave_one_out import mattered, told, words_read
from segue.inference.predict import Prediction, Predictor
from segue.inference.score import Scored
from segue.inference.statistics import Paired, bootstrap, corpus_bootstrap, corpus_paired, paired, share_interval

MAIN = {"lm": "bits_per_byte", "classify": "accuracy", "tag": "accuracy", "seq2seq": "bleu", "embed": "cloze"}
"""The figure that ranks models of a task."""
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
"""What people call the figures; one that is not here has its own name."""
SHARES = {"accuracy", "cloze"}
"""Figures that are shares of right answers, among those that rank models."""
LOWER_IS_BETTER = {"bits_per_byte", "perplexity", "mean_squared_error"}
SHOWN = 20
MOST_READ = 100_000
"""Words that are read to look into the errors, or an evaluation on long documents would spend its time on this."""


@dataclass(frozen=True)
class Evaluation:
    """The figures, what they were made of, and some examples to look at."""

    result: dict[str, Any]
    statistics: NDArray[np.float64]
    examples: list[dict[str, str]] = field(default_factory=list)

    @property
    def task(self) -> str:
        return str(self.result["task"])


def main_figure(result: dict[str, Any]) -> str:
    """The figure that ranks a model with this result: of numbers their error, else that of the task."""
    return "mean_squared_error" if "mean_squared_error" in result else MAIN[result["task"]]


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


def by_corpus(scored: Scored, names: Sequence[str], lossless: bool = True) -> list[dict[str, Any]]:
    """The figures of each corpus of several; one that has no token in what was scored has none."""
    rows = []
    for name, part in zip(names, scored.parts, strict=True):
        if part.tokens:
            row: dict[str, Any] = {"corpus": name, "tokens": part.tokens, "loss": part.nats / part.tokens}
            rows.append(row | ({"bits_per_byte": part.bits / max(1, part.bytes)} if lossless else {}))
    return rows


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
                    f"{row.path}:{row.line}: the label '{label[:60]}' was never seen in training."
                    f"{nearest(label, known)} Mend the row, or say which columns to read (data.columns)."
                )


def _several(predictor: Predictor, rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    """Of a classifier that may give a row any number of labels."""
    _check_labels(rows, [row.tags for row in rows], predictor.labels)
    names = predictor.labels
    truth, guess = (np.array([[name in one.tags for name in names] for one in of]) for of in (rows, predictions))
    right, ones = (truth == guess).all(1).astype(np.float64), np.ones(len(rows))
    figures = metrics.several(truth, guess)
    result = {"task": "classify", "accuracy": figures.pop("accuracy"), "accuracy_ci": list(share_interval(right, ones))}
    errors = [
        {"text": _shown(row), "labels": ", ".join(row.tags), "predicted": ", ".join(p.tags)}
        for row, p in zip(rows, predictions, strict=True)
        if set(row.tags) != set(p.tags)
    ]
    return Evaluation(result | figures | {"rows": len(rows)}, np.stack([right, ones], 1), errors[:SHOWN])


def _numbers(rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    """Of a model that gives each row a number; the examples are those that it missed by most."""
    truth, guess = np.array([float(row.label) for row in rows]), np.array([p.number for p in predictions])
    squares, ones = (truth - guess) ** 2, np.ones(len(rows))
    result = {
        "task": "classify",
        "mean_squared_error": float(squares.mean()),
        "mean_squared_error_ci": list(bootstrap(squares, ones)),
        "mean_absolute_error": float(np.abs(truth - guess).mean()),
        "pearson": metrics.pearson(truth, guess),
        "spearman": metrics.spearman(truth, guess),
        "rows": len(rows),
    }
    worst = np.argsort(-squares, kind="stable")[:SHOWN].tolist()
    missed = [(rows[i], predictions[i]) for i in worst if squares[i]]
    errors = [{"text": _shown(row), "number": row.label, "predicted": p.label} for row, p in missed]
    return Evaluation(result, np.stack([squares, ones], 1), errors)


def _shown(row: Example) -> str:
    """The text of a row; of a pair, both."""
    return f"{row.text} | {row.target}" if row.target else row.text


def _classify(predictor: Predictor, rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    if predictor.sizes.label == "number":
        return _numbers(rows, predictions)
    if predictor.sizes.label == "classes":
        return _several(predictor, rows, predictions)
    index = {label: i for i, label in enumerate(predictor.labels)}
    _check_labels(rows, [(row.label,) for row in rows], index)
    truth = np.array([index[row.label] for row in rows])
    guess = np.array([index[p.label] for p in predictions])
    right = (truth == guess).astype(np.float64)
    result = {
        "task": "classify",
        "accuracy": metrics.accuracy(truth, guess),
        "accuracy_ci": list(share_interval(right, np.ones(len(rows)))),
        "macro_f1": metrics.macro_f1(truth, guess),
        "rows": len(rows),
        "labels": list(predictor.labels),
        "confusion": metrics.confusion(truth, guess, len(index)).tolist(),
        **_calibrated(metrics.reliability([max(p.probabilities) for p in predictions], right)),
    }
    missed = [(row, p) for row, p in zip(rows, predictions, strict=True) if p.label != row.label]
    missed.sort(key=lambda pair: max(pair[1].probabilities), reverse=True)
    return Evaluation(result, np.stack([right, np.ones(len(rows))], 1), _surest(predictor, missed[:SHOWN]))


def _surest(predictor: Predictor, missed: Sequence[tuple[Example, Prediction]]) -> list[dict[str, str]]:
    """The errors that the model was surest of, and the words that it went by, as far as looking for them is quick."""
    read = accumulate(words_read(row) for row, _ in missed)
    few = [row for (row, _), words in zip(missed, read, strict=False) if words <= MOST_READ]
    moved = [told(words) for words in mattered(predictor, few)]
    return [
        {
            "text": _shown(row),
            "label": row.label,
            "predicted": p.label,
            "probability": f"{max(p.probabilities):.2f}",
            "words for it": words,
        }
        for (row, p), words in zip(missed, chain(moved, repeat("")), strict=False)
    ]


def _calibrated(sums: NDArray[np.float64]) -> dict[str, Any]:
    """How far the probabilities can be believed: the figure, and the sums that it is made of."""
    return {"calibration_error": metrics.calibration_error(sums), "calibration": sums.tolist()}


def _tag(predictor: Predictor, rows: Sequence[Example], predictions: Sequence[Prediction]) -> Evaluation:
    label = predictor.sizes.label
    _check_labels(rows, [tuple(tags_of(row, label)) for row in rows], predictor.labels)
    # Words beyond what the model reads count as wrong: nothing is left out of the figure.
    guesses = [p.tags + ("",) * (len(row.tags) - len(p.tags)) for row, p in zip(rows, predictions, strict=True)]
    right = np.array([sum(map(str.__eq__, row.tags, guess)) for row, guess in zip(rows, guesses, strict=True)], float)
    words = np.array([len(row.tags) for row in rows], float)
    spans = metrics.span_f1([row.tags for row in rows], [[tag or "O" for tag in guess] for guess in guesses])
    result = {
        "task": "tag",
        "accuracy": float(right.sum() / words.sum()),
        "accuracy_ci": list(share_interval(right, words)),
        "span_f1": spans.f1 if spans else None,
        "sentences": len(rows),
        "words": int(words.sum()),
    }
    if label == "classes":
        result |= _several_tags(predictor.labels, [row.tags for row in rows], guesses)
    else:
        result |= _by_tag(predictor.labels, rows, guesses, predictions)
    errors = [
        {"text": " ".join(row.words), "tags": " ".join(row.tags), "predicted": " ".join(guess)}
        | _surest_word(row, guess, p)
        for row, guess, p in zip(rows, guesses, predictions, strict=True)
        if tuple(row.tags) != tuple(guess)
    ]
    errors.sort(key=lambda error: error.get("probability", ""), reverse=True)
    return Evaluation(result, np.stack([right, words], 1), errors[:SHOWN])


def _by_tag(
    labels: Sequence[str],
    rows: Sequence[Example],
    guesses: Sequence[Sequence[str]],
    predictions: Sequence[Prediction],
) -> dict[str, Any]:
    """Tag for tag: confusions and calibration of the words that were read, one tag each."""
    index = {label: i for i, label in enumerate(labels)}
    pairs = [
        (index[true], index[guess], p)
        for row, tags, prediction in zip(rows, guesses, predictions, strict=True)
        for true, guess, p in zip(row.tags, tags, prediction.probabilities, strict=False)
        if true in index and guess in index
    ]
    if not pairs:
        return {}
    truth, guess, sure = (np.array(column) for column in zip(*pairs, strict=True))
    return {
        "labels": list(labels),
        "confusion": metrics.confusion(truth, guess, len(index)).tolist(),
        **_calibrated(metrics.reliability(sure, truth == guess)),
    }


def _surest_word(row: Example, guess: Sequence[str], p: Prediction) -> dict[str, str]:
    """Of the wrong words of a sentence the one that the tagger was surest of."""
    wrong = [
        (sure, word, true, tag)
        for sure, word, true, tag in zip(p.probabilities, row.words, row.tags, guess, strict=False)
        if true != tag
    ]
    if not wrong:
        return {}
    sure, word, true, tag = max(wrong)
    return {"surest error": f"{word}: {tag} for {true}", "probability": f"{sure:.2f}"}


def _several_tags(
    labels: Sequence[str], truth: Iterable[Sequence[str]], guesses: Iterable[Sequence[str]]
) -> dict[str, float]:
    """F1 of every yes, over words that may have any number of tags."""
    true, guess = (
        np.array([[name in names_of(tag) for name in labels] for tags in of for tag in tags]) for of in (truth, guesses)
    )
    figures = metrics.several(true, guess)
    return {name: figures[name] for name in ("micro_f1", "macro_f1")}


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

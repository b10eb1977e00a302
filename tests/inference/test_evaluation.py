"""The figures of each task, against scikit-learn, sacrebleu and sums by hand, on answers that are made up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
import sacrebleu
from segue.inference.predict import Prediction
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from segue.data.example import Example
from segue.errors import InputError
from segue.inference.evaluation import LOWER_IS_BETTER, MAIN, SHOWN, Evaluation, compare, of_rows, of_text
from segue.inference.score import Scored
from segue.models.base import Sizes

LABELS = ("bad", "fair", "good")
SIZES = Sizes(vocab_size=9, classes=3)


@dataclass(frozen=True)
class Oracle:
    """A predictor that has its answers beforehand; asked for more, it gives the first again."""

    task: str
    answers: list[Prediction]
    labels: tuple[str, ...] = LABELS
    sizes: Sizes = SIZES

    def predict(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        return (answer for _, answer in zip(examples, chain(self.answers, repeat(self.answers[0])), strict=False))


def classified(truth: list[str], guess: list[str]) -> Evaluation:
    answers = [Prediction(label, (0.25, 0.5, 0.25)) for label in guess]
    rows = [Example(text=f"text {i}", label=label, path="a.tsv", line=i + 1) for i, label in enumerate(truth)]
    return of_rows(Oracle("classify", answers), rows)


def tagged(truth: list[str], guess: list[str], labels: tuple[str, ...] = ("O", "B-X", "I-X", "B-Y")) -> Evaluation:
    """One sentence a string, its tags between blanks."""
    rows = [
        Example(words=tuple("w" * len(tags.split())), tags=tuple(tags.split()), path="a.conll", line=i + 1)
        for i, tags in enumerate(truth)
    ]
    return of_rows(Oracle("tag", [Prediction(tags=tuple(tags.split())) for tags in guess], labels), rows)


def translated(written: list[str], references: list[str]) -> Evaluation:
    rows = [Example(text=f"source {i}", target=target) for i, target in enumerate(references)]
    return of_rows(Oracle("seq2seq", [Prediction(text=text) for text in written]), rows)


def some_labels(rows: int = 80) -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(0)
    truth = draw.choice(LABELS, rows, p=[0.5, 0.3, 0.2])
    guess = np.where(draw.random(rows) < 0.6, truth, draw.choice(LABELS, rows))
    return truth.tolist(), guess.tolist()


# Classes


def test_classes_against_scikit_learn() -> None:
    truth, guess = some_labels()
    result = classified(truth, guess).result
    assert result["task"] == "classify" and result["rows"] == 80 and result["labels"] == list(LABELS)
    assert result["accuracy"] == pytest.approx(accuracy_score(truth, guess))
    assert result["macro_f1"] == pytest.approx(f1_score(truth, guess, average="macro"))
    assert result["confusion"] == confusion_matrix(truth, guess, labels=LABELS).tolist()
    low, high = result["accuracy_ci"]
    assert low < result["accuracy"] < high
    normal = 1.96 * math.sqrt(result["accuracy"] * (1 - result["accuracy"]) / 80)  # the interval of a share
    assert high - low == pytest.approx(2 * normal, rel=0.2)


@pytest.mark.parametrize(("guess", "low", "high"), [("bad", 0.88, 1), ("good", 0, 0.12)], ids=["all", "none"])
def test_all_or_none_right_is_no_certainty(guess: str, low: float, high: float) -> None:
    """The exact interval of 30 of 30 is 0.884 to 1."""
    several = Oracle("classify", [Prediction(tags=(guess,))], sizes=Sizes(vocab_size=9, classes=3, label="classes"))
    for evaluation in (
        classified(["bad"] * 30, [guess] * 30),
        tagged(["bad bad"] * 30, [f"{guess} {guess}"] * 30, LABELS),
        of_rows(several, [Example(text="text", tags=("bad",))] * 30),
    ):
        assert evaluation.result["accuracy_ci"] == pytest.approx([low, high], abs=0.01)


def test_a_label_that_training_never_saw_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"a\.tsv:2: the label 'goood' was never seen in training\. .*'good'"):
        classified(["bad", "goood"], ["bad", "bad"])


def test_errors_are_shown_with_the_surest_first() -> None:
    rows = [Example(text=str(i), label="bad") for i in range(40)]
    answers = [Prediction("good", (0.1, 0.2, 0.5 + i / 100)) for i in range(39)] + [Prediction("bad", (1.0, 0.0, 0.0))]
    shown = of_rows(Oracle("classify", answers), rows).examples
    assert len(shown) == SHOWN
    first = {key: shown[0][key] for key in ("text", "label", "predicted", "probability")}
    assert first == {"text": "38", "label": "bad", "predicted": "good", "probability": "0.88"}
    sure = [float(error["probability"]) for error in shown]
    assert sure == sorted(sure, reverse=True)


def test_statistics_are_a_row_a_text() -> None:
    evaluation = classified(["bad", "good", "fair"], ["bad", "bad", "fair"])
    np.testing.assert_array_equal(evaluation.statistics, [[1, 1], [0, 1], [1, 1]])


def test_what_is_said_to_be_likely_is_held_against_what_is_right() -> None:
    """Of three that are said to be right at 80 % one is; of one at 60 %, one: (3 · 0.8 - 1 + 1 - 0.6) / 4."""
    answers = [Prediction("good", (0.1, 0.1, 0.8))] * 3 + [Prediction("good", (0.2, 0.2, 0.6))]
    rows = [Example(text=str(i), label=label) for i, label in enumerate(["good", "bad", "bad", "good"])]
    result = of_rows(Oracle("classify", answers), rows).result
    assert result["calibration_error"] == pytest.approx((1.4 + 0.4) / 4)
    assert [bin for bin in result["calibration"] if bin[0]] == [[1, 0.6, 1], [3, pytest.approx(2.4), 1]]


# Tags


def test_the_tags_of_words_are_counted_one_by_one() -> None:
    rows = [Example(words=("a", "b", "c"), tags=("DET", "NOUN", "NOUN"))]
    answers = [Prediction(tags=("DET", "DET", "NOUN"), probabilities=(0.9, 0.7, 0.5))]
    evaluation = of_rows(Oracle("tag", answers, ("DET", "NOUN")), rows)
    assert evaluation.result["confusion"] == [[1, 0], [1, 1]]
    assert evaluation.result["calibration_error"] == pytest.approx((0.1 + 0.7 + 0.5) / 3)
    assert evaluation.examples[0]["surest error"] == "b: DET for NOUN"


def test_tags_by_hand() -> None:
    """6 of 8 words right; of three true spans (X 0-2, Y 3, X 0) two are found, and one is made up."""
    evaluation = tagged(["B-X I-X O B-Y", "B-X O O O"], ["B-X I-X O O", "B-X O O B-Y"])
    result = evaluation.result
    assert (result["task"], result["sentences"], result["words"]) == ("tag", 2, 8)
    assert result["accuracy"] == pytest.approx(6 / 8)
    assert result["span_f1"] == pytest.approx(2 * 2 / (3 + 3))
    np.testing.assert_array_equal(evaluation.statistics, [[3, 4], [3, 4]])
    assert evaluation.examples[0] == {"text": "w w w w", "tags": "B-X I-X O B-Y", "predicted": "B-X I-X O O"}


def test_words_that_were_not_read_are_wrong() -> None:
    """A sentence cut at the limit: what has no tag counts as an error, and as outside any span."""
    result = tagged(["B-X I-X O O"], ["B-X I-X"]).result
    assert result["accuracy"] == pytest.approx(2 / 4) and result["span_f1"] == 1.0
    assert tagged(["O O B-X"], ["O O"]).result["span_f1"] == 0.0


def test_parts_of_speech_have_no_spans() -> None:
    result = tagged(["DET NOUN", "NOUN"], ["DET DET", "NOUN"], ("DET", "NOUN")).result
    assert result["span_f1"] is None and result["accuracy"] == pytest.approx(2 / 3)


def test_a_tag_that_training_never_saw_is_named_too() -> None:
    with pytest.raises(InputError, match=r"a\.conll:2: the label 'B-Z' was never seen in training"):
        tagged(["O O", "O B-Z"], ["O O", "O O"])


# Translations


WRITTEN = ["the old cow eats the green grass", "my dog sees a red ball", "a king", "the cat naps well"]
REFERENCES = ["the old cow eats green grass", "my dog sees the red ball", "a wise king runs", "the cat naps well"]


def test_translations_are_sacrebleus() -> None:
    result = translated(WRITTEN, REFERENCES).result
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(WRITTEN, [REFERENCES]).score)
    assert (result["task"], result["sentences"], result["exact"]) == ("seq2seq", 4, 0.25)
    for part in ("BLEU|", "chrF2|", "version:", "tok:13a"):
        assert part in result["signature"]
    low, high = result["bleu_ci"]
    assert low <= result["bleu"] <= high


def test_translations_are_shown_right_or_wrong() -> None:
    shown = translated(WRITTEN, REFERENCES).examples
    assert shown[3] == {"source": "source 3", "reference": REFERENCES[3], "output": WRITTEN[3]}
    assert len(shown) == 4


# Text


def scored(bits: list[float], zeros: int = 0) -> Scored:
    return Scored(np.array(bits), np.array([2048.0] * (len(bits) - 1) + [1000.0]), 50.0, 25, 12.0, 3, zeros, "a way")


def test_text() -> None:
    bits = [4096.0 + i for i in range(30)]
    evaluation = of_text(scored(bits))
    result, size = evaluation.result, 29 * 2048 + 1000
    assert result["bits_per_byte"] == pytest.approx(sum(bits) / size)
    low, high = result["bits_per_byte_ci"]
    assert low < result["bits_per_byte"] < high
    assert result["perplexity"] == pytest.approx(math.exp(2.0))
    assert (result["tokens"], result["bytes"], result["unknown_tokens"], result["way"]) == (25, size, 3, "a way")
    assert result["spelling_bits_per_byte"] == pytest.approx(12 / size)
    assert evaluation.task == "lm" and evaluation.statistics.shape == (30, 2)


def test_tokens_that_lose_text_get_no_bits_per_byte() -> None:
    result = of_text(scored([1.0, 2.0]), lossless=False).result
    assert "bits_per_byte" not in result and "bits_per_byte_ci" not in result and "perplexity" in result


def test_infinite_bits_stay_infinite() -> None:
    result = of_text(scored([math.inf, 4096.0, 4096.0], zeros=2)).result
    assert result["bits_per_byte"] == math.inf and result["zero_probability_tokens"] == 2
    assert result["bits_per_byte_ci"][1] == math.inf


# Two models


def test_compare_is_a_less_b() -> None:
    worse, better = of_text(scored([5000.0] * 30)), of_text(scored([4000.0 + i for i in range(30)]))
    gap = compare(worse, better)
    assert gap.difference == pytest.approx(worse.result["bits_per_byte"] - better.result["bits_per_byte"])
    assert gap.lo > 0 and gap.p < 0.01
    back = compare(better, worse)
    assert back.difference == pytest.approx(-gap.difference) and back.hi < 0


def test_compare_rows() -> None:
    truth, guess = some_labels()
    right, some = classified(truth, truth), classified(truth, guess)
    gap = compare(right, some)
    assert gap.difference == pytest.approx(1 - some.result["accuracy"]) and gap.p < 0.01
    assert compare(some, some).p == 1.0


def test_compare_translations() -> None:
    gap = compare(translated(REFERENCES, REFERENCES), translated(WRITTEN, REFERENCES))
    expected = sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score
    assert gap.difference == pytest.approx(100 - expected)
    assert compare(translated(WRITTEN, REFERENCES), translated(REFERENCES, REFERENCES)).difference < 0


def test_other_text_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="same text"):
        compare(of_text(scored([1.0, 2.0])), of_text(scored([1.0, 2.0, 3.0])))


def test_nothing_to_evaluate_on() -> None:
    with pytest.raises(InputError, match="no rows"):
        of_rows(Oracle("classify", []), [])


def test_the_ranking_figures_are_among_the_results() -> None:
    results: dict[str, Any] = {
        "lm": of_text(scored([1.0, 2.0])),
        "classify": classified(["bad"], ["bad"]),
        "tag": tagged(["O"], ["O"]),
        "seq2seq": translated(["a"], ["a"]),
    }
    assert results.keys() == MAIN.keys() - {"embed"}  # vectors of words have figures of their own: test_words.py
    for task, evaluation in results.items():
        assert evaluation.task == task and MAIN[task] in evaluation.result and f"{MAIN[task]}_ci" in evaluation.result
    assert {MAIN[task] for task in MAIN if MAIN[task] in LOWER_IS_BETTER} == {"bits_per_byte"}

"""Metrics of written texts against sacrebleu, rouge-score, jiwer, and cases worked by hand."""

from __future__ import annotations

import pydoc_data.topics
import typing

import jiwer
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from segue.data.config import TextMetric
from segue.inference.evaluation import LOWER_IS_BETTER, MEANINGS, NAMES, Evaluation, compare
from segue.inference.text_metrics import (
    METRICS,
    answer_words,
    confusions,
    distinct,
    edits,
    judge_answer,
    lcs_length,
    signature,
)

WORDS = ["a", "The", "cow", "cows", "eats", "grass", "grass.", ",", "Kühe", "don't", "2.5", "."]
TEXT = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6)


def real(rows: int) -> tuple[list[str], list[str]]:
    """Lines of Python's documentation, and the same lines with words left out, doubled or moved."""
    draw = np.random.default_rng(0)
    lines = [line for topic in pydoc_data.topics.topics.values() for line in topic.splitlines() if len(line) > 20]
    references = [" ".join(line.split()) for line in lines[:rows]]
    outputs = []
    for line in references:
        words = [word for word in line.split() if draw.random() > 0.1]
        place = int(draw.integers(0, len(words) + 1))
        outputs.append(" ".join([*words[place:], *words[:place]] if draw.random() < 0.3 else words + words[-2:]))
    return outputs, references


OUTPUTS, REFERENCES = real(400)
OUTPUTS[:2] = "", "word"


def test_every_metric_can_rank_and_is_explained() -> None:
    assert tuple(METRICS) == typing.get_args(TextMetric)
    assert set(METRICS) | {"distinct1", "distinct2"} <= set(NAMES) & set(MEANINGS)
    assert set(METRICS) & LOWER_IS_BETTER == {"wer", "cer", "repeats"}


# BLEU and chrF


def test_bleu_and_chrf_are_sacrebleus() -> None:
    assert METRICS["bleu"].score(OUTPUTS, REFERENCES) == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    lower = sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], lowercase=True).score
    assert METRICS["bleu_lower"].score(OUTPUTS, REFERENCES) == lower
    chrf = sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score
    assert METRICS["chrf"].score(OUTPUTS, REFERENCES) == pytest.approx(chrf, rel=1e-12)


@given(PAIRS)
@settings(max_examples=100, deadline=None)
def test_bleu_and_chrf_of_any_text(pairs: list[tuple[str, str]]) -> None:
    """Of empty ones too, of such as share nothing, and of such as are shorter than an n-gram."""
    outputs, references = ([pair[i] for pair in pairs] for i in range(2))
    bleu = sacrebleu.corpus_bleu(outputs, [references]).score
    assert METRICS["bleu"].score(outputs, references) == pytest.approx(bleu, rel=1e-12)
    chrf = sacrebleu.corpus_chrf(outputs, [references]).score
    assert METRICS["chrf"].score(outputs, references) == pytest.approx(chrf, rel=1e-12)


def test_lower_cased_bleu_of_tokenised_text_cuts_at_blanks() -> None:
    references = ["i don &apos;t see the flag , do you ?"] * 20
    outputs = ["I don &apos;t see the Flag , we do ."] * 20
    expected = sacrebleu.corpus_bleu(outputs, [references], lowercase=True, tokenize="none", force=True).score
    assert METRICS["bleu_lower"].score(outputs, references) == expected
    assert expected != sacrebleu.corpus_bleu(outputs, [references], lowercase=True, force=True).score


def test_signatures_say_how_it_was_counted() -> None:
    cased, rest = signature(REFERENCES).split(" lower-cased ")
    lower, chrf = rest.split(" chrF2|")
    version = f"version:{sacrebleu.__version__}"
    assert cased == f"BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert lower == cased.replace("mixed", "lc") and chrf.startswith("nrefs:1|case:mixed|eff:yes|nc:6|")
    assert "case:lc|eff:no|tok:none" in signature(["so it is , he says ."] * 20)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_intervals_are_as_wide_as_sacrebleus_bootstrap(name: str) -> None:
    metric = METRICS[name]
    evaluation = Evaluation({"figure": name}, metric.table(OUTPUTS, REFERENCES), of_sums=metric.of_sums)
    low, high = evaluation.interval()
    oracle = sacrebleu.BLEU() if name == "bleu" else sacrebleu.CHRF()
    found = oracle.corpus_score(OUTPUTS, [REFERENCES], n_bootstrap=400)
    assert low < found.score < high
    assert (high - low) / 2 == pytest.approx(found._ci, rel=0.15)


@pytest.mark.parametrize(("right", "end"), [(1, 0.0), (39, 100.0)])
@pytest.mark.parametrize("name", ["bleu", "chrf", "rougeL"])
def test_intervals_are_within_0_and_100(name: str, right: int, end: float) -> None:
    """Of 40 outputs one is right, or all but one."""
    references = ["the old dog sees a cat today"] * 40
    written = references[:right] + ["x"] * (40 - right)
    metric = METRICS[name]
    table = metric.table(written, references)
    low, high = Evaluation({"task": "seq2seq", "figure": name, name: 0.0}, table, of_sums=metric.of_sums).interval()
    assert 0 <= low < high <= 100
    assert end in (low, high)


def test_two_models_are_compared_by_any_metric() -> None:
    for metric in METRICS.values():
        better, worse = (
            Evaluation({}, metric.table(written, REFERENCES), of_sums=metric.of_sums, share=metric.share)
            for written in (REFERENCES, OUTPUTS)
        )
        found = compare([better], [worse])
        assert found.difference == pytest.approx(better.value - worse.value)
        assert found.p < 0.001 and (found.lo > 0 or found.hi < 0)


def test_as_many_outputs_as_references() -> None:
    for metric in METRICS.values():
        with pytest.raises(ValueError, match="1 outputs and 2 references"):
            metric.table(["a"], ["a", "b"])
        with pytest.raises(ValueError, match="more than none"):
            metric.table([], [])


# ROUGE


NAMES_OF_ROUGE = ["rouge1", "rouge2", "rougeL"]


def test_rouge_is_that_of_rouge_score() -> None:
    scorer = RougeScorer(NAMES_OF_ROUGE)
    oracle = [scorer.score(reference, output) for output, reference in zip(OUTPUTS, REFERENCES, strict=True)]
    for name in NAMES_OF_ROUGE:
        expected = [100 * row[name].fmeasure for row in oracle]
        table = METRICS[name].table(OUTPUTS, REFERENCES)
        assert table[:, 0] == pytest.approx(expected, rel=1e-12)
        assert METRICS[name].score(OUTPUTS, REFERENCES) == pytest.approx(np.mean(expected), rel=1e-12)


@given(TEXT, TEXT)
@settings(max_examples=200, deadline=None)
def test_rouge_of_any_text(output: str, reference: str) -> None:
    expected = RougeScorer(NAMES_OF_ROUGE).score(reference, output)
    for name in NAMES_OF_ROUGE:
        assert METRICS[name].score([output], [reference]) == pytest.approx(100 * expected[name].fmeasure, rel=1e-12)


def test_the_longest_common_subsequence() -> None:
    assert lcs_length(["police", "killed", "the", "gunman"], ["police", "kill", "the", "gunman"]) == 3  # Lin 2004
    assert lcs_length(["police", "killed", "the", "gunman"], ["the", "gunman", "kill", "police"]) == 2
    assert lcs_length([], ["a"]) == lcs_length(["a"], []) == 0
    assert lcs_length("abcbdab", "bdcaba") == 4  # Cormen et al., 15.4


# Answers


@pytest.mark.parametrize(
    ("output", "reference", "exact", "f1"),
    [
        ("The Eiffel Tower.", "eiffel tower", 1.0, 1.0),
        ("an owl", "the owl!", 1.0, 1.0),
        ("tower of Eiffel", "the Eiffel tower", 0.0, 2 * 2 / (3 + 2)),
        ("cow cow", "cow", 0.0, 2 / 3),
        ("theme", "me", 0.0, 0.0),  # an article is a word of its own
        ("", "a", 1.0, 1.0),  # nothing is left of either
        ("", "cow", 0.0, 0.0),
    ],
)
def test_answers_as_squad_judges_them(output: str, reference: str, exact: float, f1: float) -> None:
    assert METRICS["exact"].score([output], [reference]) == exact
    assert METRICS["f1"].score([output], [reference]) == pytest.approx(f1)


def test_words_of_an_answer() -> None:
    assert answer_words("The cow, a Cow and  the-cow's") == ["cow", "cow", "and", "thecows"]


# Error rates


def test_error_rates_are_those_of_jiwer() -> None:
    outputs, references = OUTPUTS[:100], [f" {line}  x\ty" for line in REFERENCES[:100]]
    found = jiwer.process_words(references, outputs)
    assert METRICS["wer"].score(outputs, references) == pytest.approx(found.wer, rel=1e-12)
    assert METRICS["cer"].score(outputs, references) == pytest.approx(jiwer.cer(references, outputs), rel=1e-12)
    assert edits(METRICS["wer"].table(outputs, references)) == {
        kind: getattr(found, kind) for kind in ("substitutions", "deletions", "insertions")
    }


@given(PAIRS)
@settings(max_examples=40, deadline=None)
def test_error_rates_of_any_text(pairs: list[tuple[str, str]]) -> None:
    """Of empty outputs and references too. Where no reference has a word there is no rate; jiwer counts insertions."""
    outputs, references = ([pair[i] for pair in pairs] for i in range(2))
    for name, oracle in (("wer", jiwer.wer), ("cer", jiwer.cer)):
        expected = oracle(references, outputs) if any(references) else np.nan
        assert METRICS[name].score(outputs, references) == pytest.approx(expected, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(("output", "rate"), [("four two", 0.0), ("four", 0.5), ("four two two two two", 1.5)])
@pytest.mark.parametrize("name", ["wer", "cer"])
def test_the_interval_of_an_error_rate(name: str, output: str, rate: float) -> None:
    """No errors in forty texts do not show that there never are any, and an error rate may be above 1."""
    references = ["four two"] * 40
    evaluation = Evaluation({"figure": name}, METRICS[name].table([output] * 40, references), share=True)
    low, high = evaluation.interval()
    assert low <= evaluation.value <= high
    assert evaluation.value == pytest.approx(rate) if name == "wer" else (evaluation.value > 0) == (rate > 0)
    assert (low, high > 0.05) == (0.0, True) if rate == 0 else low > 0


def test_references_without_words_have_no_error_rate() -> None:
    found = Evaluation({"figure": "wer", "wer": 0.0}, METRICS["wer"].table(["x", ""] * 20, [""] * 40), share=True)
    assert np.isnan(found.refigured().result["wer"]) and found.refigured().result["edits"]["insertions"] == 20


def test_words_that_are_taken_for_others() -> None:
    references = ["one two", "nine one", "one", "five nine"]
    outputs = ["one two two", "five one", "nine", "nine nine"]
    assert confusions(outputs, references) == [("nine", "five", 1), ("one", "nine", 1), ("five", "nine", 1)]
    assert confusions(outputs * 2, references + ["nine one"] * 4, most=1) == [("nine", "five", 2)]


# Repetition and variety


@pytest.mark.parametrize(
    ("output", "reference", "repeated", "bigrams"),
    [
        ("the cow eats", "the cow eats", 0, 2),
        ("the cow the cow the cow", "the cow eats", 3, 5),  # "the cow" twice too often, "cow the" once
        ("cow cow cow", "cow", 1, 2),
        ("the cow and the cow", "the cow and the cow", 0, 4),  # the reference says it twice too
        ("the cow and the cow", "the cow and a cow", 1, 4),
        ("cow", "cow", 0, 1),
        ("", "cow", 0, 1),
    ],
)
def test_repeated_bigrams_beyond_the_reference(output: str, reference: str, repeated: int, bigrams: int) -> None:
    assert METRICS["repeats"].table([output], [reference]).tolist() == [[repeated, bigrams]]


def test_distinct_ngrams() -> None:
    outputs = ["I know.", "I know.", "I see"]
    assert distinct(outputs, 1) == 4 / 8  # i, know, ., see
    assert distinct(outputs, 2) == 3 / 5
    assert distinct([""], 2) == 0.0


@pytest.mark.parametrize(
    ("output", "right", "f1", "exact"),
    [
        ("Denver Broncos", ["Denver Broncos", "the Broncos"], 1.0, 1.0),
        ("the denver BRONCOS!", ["Denver Broncos"], 1.0, 1.0),  # case, punctuation, articles
        ("Broncos", ["Denver Broncos", "Panthers"], 2 / 3, 0.0),  # precision 1, recall 1/2
        ("Denver Broncos of Denver", ["Denver Broncos"], 2 / 3, 0.0),  # a word counts as often as both have it
        ("gold gold", ["gold, silver"], 0.5, 0.0),
        ("Santa Clara, California", ["Levi's Stadium", "Santa Clara"], 0.8, 0.0),  # the best of the right ones
        ("Panthers", ["Denver Broncos"], 0.0, 0.0),
        ("", [], 1.0, 1.0),  # no answer, and none was given
        ("Denver", [], 0.0, 0.0),
        ("", ["Denver"], 0.0, 0.0),
        ("", ["the"], 1.0, 1.0),  # an answer of articles alone is none (SQuAD 2.0)
        ("an", [], 1.0, 1.0),
    ],
)
def test_answers_are_judged_as_squad_does(output: str, right: list[str], f1: float, exact: float) -> None:
    assert judge_answer(output, right) == (pytest.approx(f1), exact)

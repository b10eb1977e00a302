"""Metrics of written texts against references: BLEU, chrF, ROUGE, exact match, token F1, error rates, repeats.

    bleu, bleu_lower         Papineni et al. 2002, as sacrebleu counts: cased, and as papers on tokenised text give it
    chrf                     Popović 2015: chrF2 of 1 to 6 characters, as sacrebleu counts
    rouge1, rouge2, rougeL   Lin 2004: F1 of words, of bigrams, of the longest common subsequence; the mean over texts,
                             as the package rouge-score computes it without stems
    exact, f1                Rajpurkar et al. 2016 (SQuAD): equal texts; F1 of words; without case and articles
    wer, cer                 word error rate, character error rate: edit distance over the reference's length, both
                             summed over all texts, as the package jiwer counts: cased, with punctuation
    repeats                  the share of an output's bigrams that repeat one, more often than its reference has it
    distinct                 Li et al. 2016: distinct n-grams of all outputs, over all their n-grams

A metric counts a row of numbers for each text; its figure is a function of their column sums. So every metric has
intervals and paired tests (inference/statistics.py). BLEU, chrF and ROUGE run from 0 to 100, the others from 0 to 1, an
error rate beyond it where words are added.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.inference.edit_distance import aligned, edit_distance
from segue.inference.statistics import ratio
from segue.tokens.split import looks_tokenised

Floats = NDArray[np.float64]
Texts = Sequence[str]

BLEU_ORDER, CHRF_ORDER = 4, 6
_LOOKED_AT = 1000
"""References that show whether text is tokenised already."""


class Metric(NamedTuple):
    """A metric: how texts are counted, and what is computed from the sums."""

    counted: Callable[[Texts, Texts], Floats]
    """Outputs and references to a table, a row of numbers for each text."""
    of_sums: Callable[[Floats], Floats] = ratio
    """Sums of the columns, (R, K), to R figures: by default the first over the second."""
    share: bool = False
    """Whether it is a share, from 0 to 1; an error rate is one too, though words that are added can make it more."""

    def table(self, outputs: Texts, references: Texts) -> Floats:
        """Count each text."""
        if len(outputs) != len(references) or not len(outputs):
            raise ValueError(
                f"{len(outputs)} outputs and {len(references)} references must be as many, and more than none."
            )
        return self.counted(outputs, references)

    def score(self, outputs: Texts, references: Texts) -> float:
        """Compute the figure of all texts together."""
        return float(self.of_sums(self.table(outputs, references).sum(0)[None])[0])


# N-grams


def _ngrams(sequence: Sequence[str], n: int) -> Counter[Any]:
    """Count the n-grams of a list of words, or of a string."""
    if isinstance(sequence, str):
        return Counter(sequence[i : i + n] for i in range(len(sequence) - n + 1))
    return Counter(zip(*(sequence[i:] for i in range(n)), strict=False))


def _shared(a: Counter[Any], b: Counter[Any]) -> int:
    """Count the n-grams that two texts share; each as often as it stands in both."""
    return sum(min(count, b[ngram]) for ngram, count in a.items() if ngram in b)


def _f1(shared: float, a: int, b: int) -> float:
    """Compute F1 of what two texts share of their n-grams; 0 if they share nothing."""
    return 2 * shared / (a + b) if shared else 0.0


def _mean(values: Iterable[float]) -> Floats:
    """Make the table of a metric that is the mean over texts."""
    column = np.fromiter(values, np.float64)
    return np.stack([column, np.ones(len(column))], 1)


# BLEU and chrF


def tokenised(references: Texts) -> bool:
    """Whether the references come tokenised, with blanks around their punctuation."""
    return looks_tokenised("\n".join(references[:_LOOKED_AT]))


def _bleu(lower: bool, references: Texts) -> Any:
    """sacrebleu's BLEU: cased and cut by 13a; or lower-cased, and cut at blanks alone if the references are tokenised.
    The latter is what papers on lower-cased, tokenised text give."""
    from sacrebleu.metrics.bleu import BLEU

    cut = "none" if lower and tokenised(references) else "13a"
    return BLEU(lowercase=lower, tokenize=cut, force=True)  # force: no warning about text that looks tokenised


def _bleu_counts(outputs: Texts, references: Texts, lower: bool) -> Floats:
    """Count lengths of output and reference, right n-grams and all n-grams of orders 1 to 4."""
    bleu = _bleu(lower, references)

    def words(text: str) -> list[str]:
        cut: str = bleu.tokenizer((text.lower() if lower else text).rstrip())
        return cut.split()

    def row(output: list[str], reference: list[str]) -> list[int]:
        orders = range(1, BLEU_ORDER + 1)
        right = [_shared(_ngrams(output, n), _ngrams(reference, n)) for n in orders]
        return [len(output), len(reference), *right, *(max(0, len(output) - n + 1) for n in orders)]

    return np.array([row(words(a), words(b)) for a, b in zip(outputs, references, strict=True)], np.float64)


def _bleu_of_sums(sums: Floats) -> Floats:
    from sacrebleu.metrics.bleu import BLEU

    rows = sums.round().astype(int).tolist()
    return np.array([BLEU.compute_bleu(row[2:6], row[6:10], row[0], row[1], smooth_method="exp").score for row in rows])


def _chrf_counts(outputs: Texts, references: Texts) -> Floats:
    """Count, for each order, the n-grams of output and reference and those that they share; blanks are left out. Where
    the reference has no n-gram of an order, those of the output do not count."""

    def row(output: str, reference: str) -> list[int]:
        counts = []
        for n in range(1, CHRF_ORDER + 1):
            of_reference = max(0, len(reference) - n + 1)
            of_output = max(0, len(output) - n + 1) if of_reference else 0
            counts += [of_output, of_reference, _shared(_ngrams(output, n), _ngrams(reference, n))]
        return counts

    pairs = zip(map(_without_blanks, outputs), map(_without_blanks, references), strict=True)
    return np.array([row(*pair) for pair in pairs], np.float64)


def _without_blanks(text: str) -> str:
    return "".join(text.split())


def _chrf_of_sums(sums: Floats) -> Floats:
    """Compute F2 of precision and recall, each the mean over the orders that both sides have."""
    output, reference, shared = (sums[:, i::3] for i in range(3))
    there = (output > 0) & (reference > 0)
    orders = np.maximum(1, there.sum(1))
    precision, recall = (
        np.divide(shared, side, out=np.zeros_like(side), where=there).sum(1) / orders for side in (output, reference)
    )
    return np.asarray(100 * 5 * precision * recall / np.maximum(4 * precision + recall, 1e-300), np.float64)


def signature(references: Texts) -> str:
    """Return sacrebleu's signatures of bleu, bleu_lower and chrf: how they are counted."""
    from sacrebleu.metrics.chrf import CHRF

    metrics = {"BLEU": _bleu(False, references), "lower-cased BLEU": _bleu(True, references), "chrF2": CHRF()}
    for metric in metrics.values():
        metric.corpus_score(references[:1], [references[:1]])  # the number of references is in it once one was scored
    return " ".join(f"{name}|{metric.get_signature()}" for name, metric in metrics.items())


# ROUGE


_OTHER = re.compile("[^a-z0-9]+")


def _rouge_words(text: str) -> list[str]:
    """Cut a text as ROUGE does: letters from a to z and digits, lower-cased; all else parts words."""
    return _OTHER.sub(" ", text.lower()).split()


def _rouge_n(outputs: Texts, references: Texts, n: int) -> Floats:
    def f1(output: str, reference: str) -> float:
        a, b = _ngrams(_rouge_words(output), n), _ngrams(_rouge_words(reference), n)
        return 100 * _f1(_shared(a, b), a.total(), b.total())

    return _mean(map(f1, outputs, references))


def _rouge_l(outputs: Texts, references: Texts) -> Floats:
    def f1(output: str, reference: str) -> float:
        a, b = _rouge_words(output), _rouge_words(reference)
        return 100 * _f1(lcs_length(a, b), len(a), len(b))

    return _mean(map(f1, outputs, references))


def lcs_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Compute the length of the longest common subsequence, a row of its table at a time: bit i of `row` is 0 where the
    length grows between the first i and the first i + 1 words of a (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    every = (1 << len(a)) - 1
    row = every
    for word in b:
        if word in places:
            common = row & places[word]
            row = ((row + common) | (row - common)) & every
    return len(a) - row.bit_count()


# Answers


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_words(text: str) -> list[str]:
    """Cut an answer as SQuAD's script does: lower-cased, without punctuation and English articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _exact(outputs: Texts, references: Texts) -> Floats:
    return _mean(float(answer_words(a) == answer_words(b)) for a, b in zip(outputs, references, strict=True))


def _token_f1(outputs: Texts, references: Texts) -> Floats:
    return _mean(map(answer_f1, outputs, references))


def answer_f1(output: str, reference: str) -> float:
    """Compute F1 of the words that an answer shares with a right one, as SQuAD's script does."""
    a, b = answer_words(output), answer_words(reference)
    return _f1(_shared(Counter(a), Counter(b)), len(a), len(b)) if a and b else float(a == b)


def judge_answer(output: str, references: Texts) -> tuple[float, float]:
    """Return F1 and exact match (0 or 1) of an answer, each the best over the right ones; where there is none, the
    empty answer is right. A reference of articles and punctuation alone does not count (SQuAD 2.0)."""
    right = [one for one in references if answer_words(one)] or [""]
    exact = max(float(answer_words(output) == answer_words(one)) for one in right)
    return max(answer_f1(output, one) for one in right), exact


# Error rates


_SPACES = re.compile(r"\s\s+")


def spoken_words(text: str) -> list[str]:
    """Cut a text into words as jiwer does: at blanks, and at any run of white space."""
    return [word for word in _SPACES.sub(" ", text).strip().split(" ") if word]


def _wer(outputs: Texts, references: Texts) -> Floats:
    """Count, for each text, the edits and the words of the reference; then words that are changed, left out, added. A
    reference without words has none to divide by: what is added there counts in the sum over all texts."""

    def row(output: list[str], reference: list[str]) -> list[int]:
        pairs = aligned(reference, output)
        deleted, inserted = sum(said is None for _, said in pairs), sum(word is None for word, _ in pairs)
        changed = sum(word != said for word, said in pairs) - deleted - inserted
        return [changed + deleted + inserted, len(reference), changed, deleted, inserted]

    pairs = zip(map(spoken_words, outputs), map(spoken_words, references), strict=True)
    return np.array([row(*pair) for pair in pairs], np.float64)


def _cer(outputs: Texts, references: Texts) -> Floats:
    def row(output: str, reference: str) -> tuple[int, int]:
        return edit_distance(reference, output), len(reference)

    pairs = zip(outputs, references, strict=True)
    return np.array([row(output.strip(), reference.strip()) for output, reference in pairs], np.float64)


def edits(table: Floats) -> dict[str, int]:
    """Sum the words that are changed, left out and added, of the table of wer."""
    sums = map(round, table[:, 2:].sum(0).tolist())  # a mean over seeds has fractions
    return dict(zip(("substitutions", "deletions", "insertions"), sums, strict=True))


def confusions(outputs: Texts, references: Texts, most: int = 10) -> list[tuple[str, str, int]]:
    """List the words that were most often written for another: the reference's, the output's, how often."""
    found: Counter[tuple[str, str]] = Counter()
    for output, reference in zip(outputs, references, strict=True):
        pairs = aligned(spoken_words(reference), spoken_words(output))
        found.update((word, said) for word, said in pairs if word is not None and said is not None and word != said)
    return [(word, said, count) for (word, said), count in found.most_common(most)]


# What an output is like in itself


@cache
def _13a() -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="13a").tokenizer


def _words(text: str) -> list[str]:
    """The words and marks of a text, lower-cased, as BLEU cuts them."""
    cut: str = _13a()(text.lower())
    return cut.split()


def _repeats(outputs: Texts, references: Texts) -> Floats:
    """Count, of each output, the bigrams that repeat one of it and come more often than in the reference, and all."""

    def row(output: list[str], reference: list[str]) -> tuple[int, int]:
        there, allowed = _ngrams(output, 2), _ngrams(reference, 2)
        again = sum(count - max(1, allowed[ngram]) for ngram, count in there.items() if count > max(1, allowed[ngram]))
        return again, max(1, len(output) - 1)

    return np.array([row(_words(a), _words(b)) for a, b in zip(outputs, references, strict=True)], np.float64)


def distinct(outputs: Texts, n: int) -> float:
    """Compute the share of the n-grams of all outputs together that are different: low where a model always says the
    same."""
    counts: Counter[Any] = Counter()
    for output in outputs:
        counts.update(_ngrams(_words(output), n))
    return len(counts) / max(1, counts.total())


METRICS = {
    "bleu": Metric(partial(_bleu_counts, lower=False), _bleu_of_sums),
    "bleu_lower": Metric(partial(_bleu_counts, lower=True), _bleu_of_sums),
    "chrf": Metric(_chrf_counts, _chrf_of_sums),
    "rouge1": Metric(partial(_rouge_n, n=1)),
    "rouge2": Metric(partial(_rouge_n, n=2)),
    "rougeL": Metric(_rouge_l),
    "exact": Metric(_exact, share=True),
    "f1": Metric(_token_f1, share=True),
    "wer": Metric(_wer, share=True),
    "cer": Metric(_cer, share=True),
    "repeats": Metric(_repeats, share=True),
}
"""The metrics by name, as data.metric names them."""

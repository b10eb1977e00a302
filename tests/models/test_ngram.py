"""The n-gram model against the lectures' numbers, a slow reference written from the equations, and its own contract."""

from __future__ import annotations

import json
import math
import mmap
import subprocess
import sys
import typing
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from segue.batches.batch import IGNORE, Batch
from segue.cli import main
from segue.errors import InputError
from segue.models import markov_lm, ngram
from segue.models.base import Sizes
from segue.models.ngram import Ngram
from segue.ngrams import count, trie

STOP = 0
CHOICES = typing.get_args(typing.get_type_hints(Ngram.Config)["smoothing"])
SMOOTHINGS = list(CHOICES)
DISTRIBUTIONS = [smoothing for smoothing in SMOOTHINGS if smoothing != "stupid_backoff"]

# Eleven snippets that agree with every stated fact: 64 tokens, 33 types, and the counts of N1, N3 and N4 to N6.
SNIPPETS = """
…the cows eat grass…
…our cows eat hay daily…
…factory-farm cows eat corn…
…on an organic farm, cows eat hay and…
…do your cows eat grass or corn?…
…what do cows eat if they have…
…cows eat corn when there is no…
…which cows eat which foods depends…
…if cows eat grass…
…when cows eat corn their stomachs…
…should we let cows eat corn?…
""".strip().splitlines()
SENTENCES = ["".join(letter for letter in line if letter not in "…,?").split() for line in SNIPPETS]
# V = 34 as in the lectures: STOP and the 33 types, no id for unknown words.
IDS = {word: i for i, word in enumerate(sorted({word for sentence in SENTENCES for word in sentence}), 1)}
COWS = [i for sentence in SENTENCES for i in [*(IDS[word] for word in sentence), STOP]]


def fitted(tokens, vocab_size: int, carry: bool = False, **config) -> Ngram:
    model = Ngram(Ngram.Config(**config), Sizes(vocab_size, carry=carry))
    list(model.fit(SimpleNamespace(tokens=np.asarray(tokens)), Ngram.Train()))
    return model


def cows(**config) -> Ngram:
    return fitted(COWS, 34, **config)


def after_cows_eat(model: Ngram) -> dict[str, float]:
    p = model.distribution([IDS["cows"], IDS["eat"]])
    return {word: p[i] for word, i in IDS.items()}


def stream(tokens, targets, fresh=None) -> Batch:
    tokens = np.atleast_2d(tokens)
    return Batch(tokens, np.atleast_2d(targets), np.ones(tokens.shape, dtype=bool), fresh)


def text_batch(text) -> Batch:
    """One row: each token is predicted from those before it, the first from STOP."""
    return stream([STOP, *text[:-1]], text, np.array([True]))


def probability(model: Ngram, sentence: str) -> float:
    logp, _ = model.logprobs(text_batch([*(IDS[word] for word in sentence.split()), STOP]))
    return math.exp(logp.sum())


# The lectures' numbers


def test_snippets_are_as_the_lectures_count_them():
    assert sum(map(len, SENTENCES)) == 64 and len(IDS) == 33
    raw = [line.split() for line in SNIPPETS]
    followers = Counter(line[i + 2] for line in raw for i in range(len(line) - 2) if line[i + 1] == "eat")
    expected = {"grass…": 2, "hay": 2, "corn": 2, "corn…": 1, "corn?…": 1, "grass": 1, "if": 1, "which": 1}
    assert followers == expected  # N3: what splitting at blanks would count


def test_n1_n2_cows_eat():
    p = after_cows_eat(cows(order=3, smoothing="maximum_likelihood"))
    expected = {"corn": 4 / 11, "grass": 3 / 11, "hay": 2 / 11, "if": 1 / 11, "which": 1 / 11}
    assert {word: value for word, value in p.items() if value} == pytest.approx(expected, abs=1e-12)
    entropy = -sum(value * math.log2(value) for value in p.values() if value)
    assert entropy == pytest.approx(2.118078, abs=5e-7)
    assert 2**entropy == pytest.approx(4.341153, abs=5e-7)


def test_n4_a_sentence():
    for order in (2, 3):
        p = probability(cows(order=order, smoothing="maximum_likelihood"), "the cows eat grass")
        assert p == pytest.approx(2 / 121, abs=1e-12)
    assert -math.log2(p) == pytest.approx(5.918863, abs=5e-7)
    assert 2 ** (-math.log2(p) / 5) == pytest.approx(2.271701, abs=5e-7)


def test_n5_stop_is_an_event():
    bigram = cows(order=2, smoothing="maximum_likelihood")
    assert bigram.distribution([IDS["corn"]])[STOP] == pytest.approx(3 / 5, abs=1e-12)
    assert bigram.distribution([IDS["grass"]])[STOP] == pytest.approx(2 / 3, abs=1e-12)
    unigram = cows(order=1, smoothing="maximum_likelihood").distribution([])
    assert unigram[IDS["corn"]] == pytest.approx(5 / 75, abs=1e-12)
    assert unigram[STOP] == pytest.approx(11 / 75, abs=1e-12)


def test_n6_bigram_against_trigram():
    bigram, trigram = (cows(order=order, smoothing="maximum_likelihood") for order in (2, 3))
    assert probability(bigram, "the cows eat corn their stomachs") == pytest.approx(4 / 605, abs=1e-12)
    assert probability(trigram, "the cows eat corn their stomachs") == pytest.approx(1 / 121, abs=1e-12)
    assert probability(bigram, "when cows eat if they have") == pytest.approx(1 / 484, abs=1e-12)
    assert probability(trigram, "when cows eat if they have") == pytest.approx(1 / 121, abs=1e-12)


def test_n7_add_one():
    model = cows(order=3, smoothing="add_alpha", alpha=1.0)
    p = after_cows_eat(model)
    expected = {"corn": 5 / 45, "grass": 4 / 45, "hay": 3 / 45, "if": 2 / 45, "which": 2 / 45}
    assert p == pytest.approx({word: expected.get(word, 1 / 45) for word in IDS}, abs=1e-12)
    assert model.distribution([IDS["cows"], IDS["eat"]]).sum() == pytest.approx(1, abs=1e-12)


def test_n7_by_the_command(tmp_path, capsys):
    """Nothing is held out and every word is in the vocabulary: UNK is none of the V tokens that can follow."""
    text, run = tmp_path / "cows.txt", str(tmp_path / "run")
    text.write_text("\n".join(map(" ".join, SENTENCES)) + "\n", encoding="utf-8")
    settings = ("data.unit=line", "tokens.kind=space", "model.order=3", "model.smoothing=add_alpha", "model.alpha=1")
    assert main(["train", "ngram", str(text), "--out", run, *settings, "data.validation=0"]) == 0
    capsys.readouterr()
    assert main(["look", run, "cows eat", "--top", "99", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    p = dict(zip(found["rows"], np.sum(found["values"][0], axis=1), strict=True))
    expected = {"corn": 5 / 45, "grass": 4 / 45, "hay": 3 / 45, "if": 2 / 45, "which": 2 / 45}
    assert p == pytest.approx({word: expected.get(word, 1 / 45) for word in (*IDS, "</s>")}, abs=1e-12)
    assert main(["explain", run]) == 0
    assert "V counts 33 tokens and STOP, not UNK" in capsys.readouterr().out
    assert main(["train", "ngram", str(text), "--out", f"{run}-held", *settings, "data.validation=0.1"]) == 0
    assert main(["explain", f"{run}-held"]) == 0
    assert "tokens and STOP, and UNK" in capsys.readouterr().out


def test_n8_interpolation():
    p = after_cows_eat(cows(order=3, smoothing="interpolation", lambdas=(0.6, 0.3, 0.1)))
    assert p["corn"] == pytest.approx(0.9 * 4 / 11 + 0.1 * 5 / 75, abs=1e-12)
    assert [p[word] for word in ("corn", "grass", "cows")] == pytest.approx([0.333939, 0.249455, 0.014667], abs=5e-7)


BERKELEY_WORDS = ["i", "want", "to", "eat", "chinese", "food", "lunch", "spend"]
BERKELEY = {
    "i": [5, 827, 0, 9, 0, 0, 0, 2],
    "want": [2, 0, 608, 1, 6, 6, 5, 1],
    "to": [2, 0, 4, 686, 2, 0, 6, 211],
    "eat": [0, 0, 2, 0, 16, 2, 42, 0],
    "chinese": [1, 0, 0, 0, 0, 82, 1, 0],
    "food": [15, 0, 15, 0, 1, 4, 0, 0],
    "lunch": [2, 0, 0, 0, 0, 1, 0, 0],
    "spend": [1, 0, 1, 0, 0, 0, 0, 0],
}


def berkeley(first: str, second: str, alpha: float, vocab_size: int = 8, total: int = 0) -> float:
    """P(second given first). START plays `first` and STOP plays "i", so that the world has just the table's words."""
    row = BERKELEY[first]
    tokens = [
        token for word, count in enumerate(row) for _ in range(count) for token in ([word, STOP] if word else [0])
    ]
    tokens += [8, STOP] * (total - sum(row) if total else 0)  # all the other words of the corpus
    smoothing = "add_alpha" if alpha else "maximum_likelihood"
    model = fitted(tokens, vocab_size, order=2, smoothing=smoothing, alpha=alpha)
    return float(model.distribution([STOP])[BERKELEY_WORDS.index(second)])


def test_n9_n10_berkeley_as_a_closed_world():
    assert [sum(row) for row in BERKELEY.values()] == [843, 629, 911, 62, 84, 35, 3, 2]
    assert sum(row.count(0) for row in BERKELEY.values()) == 32
    assert berkeley("i", "want", 0) == pytest.approx(827 / 843, abs=1e-12)
    assert berkeley("chinese", "food", 0) == pytest.approx(82 / 84, abs=1e-12)
    assert berkeley("spend", "food", 0) == 0
    ones = [berkeley(*pair, 1.0) for pair in (("i", "want"), ("chinese", "food"), ("spend", "food"))]
    assert ones == pytest.approx([828 / 851, 83 / 92, 1 / 10], abs=1e-12)
    tenths = [berkeley(*pair, 0.1) for pair in (("i", "want"), ("chinese", "food"), ("spend", "food"))]
    assert tenths == pytest.approx([0.980209, 0.968160, 0.035714], abs=5e-7)


def test_n11_n12_berkeley_with_all_its_words():
    pairs = [("i", "want", 2533), ("want", "to", 927), ("to", "eat", 2417), ("chinese", "food", 158)]

    def table(alpha: float) -> list[float]:
        return [berkeley(first, second, alpha, 1446, total) for first, second, total in pairs]

    assert table(0) == pytest.approx([0.326490, 0.655879, 0.283823, 0.518987], abs=5e-7)
    assert table(1.0) == pytest.approx([0.208092, 0.256637, 0.177841, 0.051746], abs=5e-7)
    assert table(0.1) == pytest.approx([0.308896, 0.567469, 0.267840, 0.271315], abs=5e-7)
    assert berkeley("want", "want", 1.0, 1446, 927) == pytest.approx(0.000421, abs=5e-7)
    effective = [p * total for p, (*_, total) in zip(table(1.0), pairs, strict=True)]
    assert [effective[1], effective[3]] == pytest.approx([237.9027, 8.1758], abs=5e-5)


def test_n13_sampling_follows_the_counts():
    model = cows(order=3, smoothing="maximum_likelihood")
    prompt = torch.tensor([[IDS["cows"], IDS["eat"]]])
    logits, _ = model.step(prompt, torch.ones_like(prompt, dtype=torch.bool), model.start(1, 2))
    draws = torch.multinomial(logits.softmax(-1), 11_000, replacement=True, generator=torch.manual_seed(1))
    seen = torch.bincount(draws[0], minlength=34)
    words = ["corn", "grass", "hay", "if", "which"]
    assert int(seen.sum()) == sum(int(seen[IDS[word]]) for word in words)
    assert chisquare([int(seen[IDS[word]]) for word in words], [4000, 3000, 2000, 1000, 1000]).pvalue > 0.001


@given(st.lists(st.floats(0.01, 1), min_size=5, max_size=5))
def test_n14_counts_are_the_maximum(weights):
    p = after_cows_eat(cows(order=3, smoothing="maximum_likelihood"))
    counts = {"corn": 4, "grass": 3, "hay": 2, "if": 1, "which": 1}
    best = sum(count * math.log(p[word]) for word, count in counts.items())
    other = sum(n * math.log(w / sum(weights)) for n, w in zip(counts.values(), weights, strict=True))
    assert other <= best + 1e-12


# Against the equations


@dataclass
class Slow:
    """Every smoothing from its equations, with dictionaries of tuples."""

    tokens: list[int]
    order: int
    vocab_size: int
    smoothing: str
    alpha: float = 0.5
    lambdas: tuple[float, ...] = ()
    least: int = 1
    carry: bool = False

    def __post_init__(self):
        raw: Counter[tuple] = Counter()
        start = STOP if self.carry else "START"
        unit: list[object] = [start]
        for place, token in enumerate(self.tokens):
            unit.append(token)
            if (token == STOP and not self.carry) or place == len(self.tokens) - 1:
                for k in range(1, self.order + 1):
                    raw.update(tuple(unit[i : i + k]) for i in range(len(unit) - k + 1))
                raw[(start,)] -= 1
                unit = [start]
        raw = +raw
        before = defaultdict(set)
        for gram in raw:
            before[gram[1:]].add(gram[0])
        plain = "kneser_ney" not in self.smoothing
        self.counts = {
            gram: n if plain or len(gram) == self.order or not before[gram] else len(before[gram])
            for gram, n in raw.items()
        }
        self.followers, self.lost = defaultdict(dict), Counter()
        for gram, n in self.counts.items():
            if len(gram) == 1 or raw[gram] >= self.least:
                self.followers[gram[:-1]][gram[-1]] = n
            else:
                self.lost[gram[:-1]] += n

    def discounts(self, k: int) -> list[float]:
        values = Counter(n for gram, n in self.counts.items() if len(gram) == k)
        n1, n2, n3, n4 = (values[c] for c in (1, 2, 3, 4))
        if self.smoothing == "modified_kneser_ney":
            if not (n1 and n2 and n3):
                return [0.5, 1.0, 1.5]
            y = n1 / (n1 + 2 * n2)
            three = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
            return three if all(0 < d <= c for c, d in enumerate(three, 1)) else [0.5, 1.0, 1.5]
        if self.smoothing in ("kneser_ney", "absolute_discounting"):
            return [n1 / (n1 + 2 * n2) if n1 and n2 else 0.75] * 3
        return [0.0, 0.0, 0.0]

    def p(self, word: int, context: tuple) -> float:
        row, lost, smoothing = self.followers.get(context), self.lost[context], self.smoothing
        if smoothing == "stupid_backoff":
            if row and word in row:
                return row[word] / sum(row.values())
            return 0.4 * self.p(word, context[1:]) if context else 0.0
        if smoothing == "add_alpha":
            row = row or {}
            return (row.get(word, 0) + self.alpha) / (sum(row.values()) + self.alpha * self.vocab_size)
        lower = self.p(word, context[1:]) if context else 1 / self.vocab_size
        if not row:
            return lower
        total, kept = sum(row.values()) + lost, sum(row.values())
        if smoothing == "maximum_likelihood":
            return row.get(word, 0) / kept
        if smoothing == "interpolation":
            weights = self.lambdas[::-1][: len(context) + 1]
            own = weights[-1] / sum(weights)
            return own * row.get(word, 0) / total + (1 - own + own * lost / total) * lower
        if smoothing == "witten_bell":
            return (row.get(word, 0) + (len(row) + lost) * lower) / (total + len(row))
        discounts = [0.0, *self.discounts(len(context) + 1)]
        own = row.get(word, 0)
        taken = sum(discounts[min(n, 3)] for n in row.values()) + lost
        return (own - discounts[min(own, 3)]) / total + taken / total * lower

    def next(self, text: list[int]) -> list[float]:
        """The distribution after a text that begins with STOP."""
        if self.carry:
            context = tuple(text[-(self.order - 1) :]) if self.order > 1 else ()
            return [self.p(word, context) for word in range(self.vocab_size)]
        last = len(text) - 1 - text[::-1].index(STOP)
        context = ("START", *text[last + 1 :])[-(self.order - 1) :] if self.order > 1 else ()
        return [self.p(word, context) for word in range(self.vocab_size)]


texts = st.lists(st.integers(0, 5), min_size=1, max_size=60)
LAMBDAS = {1: (1.0,), 2: (0.7, 0.3), 3: (0.6, 0.3, 0.1), 4: (0.4, 0.3, 0.2, 0.1)}


def given_settings(smoothing: str, order: int) -> dict:
    """What held-out text would choose otherwise."""
    return {"add_alpha": {"alpha": 0.5}, "interpolation": {"lambdas": LAMBDAS[order]}}.get(smoothing, {})


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 4), texts, st.integers(1, 3), st.booleans())
def test_equals_the_slow_reference(smoothing, tokens, order, other, least, carry):
    """Also pruned, with empty units, a last unit without its STOP, contexts never seen and a token never seen (6), and
    with context carried over STOP."""
    chosen = given_settings(smoothing, order)
    slow = Slow(tokens, order, 7, smoothing, least=least, carry=carry, **chosen)
    fast = fitted(tokens, 7, carry, order=order, smoothing=smoothing, min_count=(least,), **chosen)
    assert fast.discounts == pytest.approx(np.array([slow.discounts(k) for k in range(1, order + 1)]), abs=1e-14)
    for text in ([STOP], [STOP, *tokens], [STOP, *other], [STOP, 6], [STOP, *tokens, 6, 1]):
        assert fast.distribution(text) == pytest.approx(slow.next(text), abs=1e-12)


def test_modified_kneser_ney_estimates_its_discounts():
    """Both ways happen: discounts from the counts of counts, and those for texts too small to tell."""
    big, small = fitted(random_text(4000), 9, order=4), fitted([2, 3, STOP], 9, order=4)
    slow = Slow(random_text(4000).tolist(), 4, 9, "modified_kneser_ney")
    assert big.discounts == pytest.approx(np.array([slow.discounts(k) for k in (1, 2, 3, 4)]), abs=1e-14)
    assert big.discounts[3].tolist() != [0.5, 1.0, 1.5] and small.discounts[0].tolist() == [0.5, 1.0, 1.5]


def test_kneser_ney_by_hand():
    """a b STOP, a c STOP, order 2: "a" was seen after START only, so of 5 continuations it has 1."""
    model = fitted([2, 3, STOP, 2, 4, STOP], 5, order=2, smoothing="kneser_ney", discount=0.5)
    # Continuations: a after START; b and c after a; STOP after b and c: total 5, 4 followers.
    lower = np.array([1.5, 0, 0.5, 0.5, 0.5]) / 5 + 0.5 * 4 / 5 * (1 / 5)
    assert model.distribution([2]) == pytest.approx(np.array([0, 0, 0, 0.5, 0.5]) / 2 + 0.5 * 2 / 2 * lower, abs=1e-12)
    assert model.distribution([]) == pytest.approx(lower, abs=1e-12)


@pytest.mark.parametrize("smoothing", DISTRIBUTIONS)
def test_what_is_pruned_goes_to_the_lower_order(smoothing):
    """After every context of a text of which pruning takes some followers and leaves others, the sum is one."""
    tokens = random_text(300).tolist()
    model = fitted(tokens, 9, order=3, smoothing=smoothing, min_count=(2,), **given_settings(smoothing, 3))
    for order in model.orders[1:]:
        total, lost = order.level.profiles[:, 0], order.level.profiles[:, 4]
        assert ((lost > 0) & (total > lost)).sum() > 5  # or the test would show nothing
    for first in range(9):
        for second in range(9):
            assert model.distribution([first, second]).sum() == pytest.approx(1, abs=1e-12)


def test_pruned_witten_bell_by_hand():
    """After "a" (2) come b (3) twice, and c (4) once, which is pruned: 1 of the 3 goes to the lower order."""
    model = fitted([2, 3, STOP, 2, 3, STOP, 2, 4, STOP], 5, order=2, smoothing="witten_bell", min_count=(2,))
    lower = (np.array([3, 0, 3, 2, 1]) + 4 / 5) / (9 + 4)
    assert model.distribution([]) == pytest.approx(lower, abs=1e-12)
    expected = (np.array([0, 0, 0, 2, 0]) + (1 + 1) * lower) / (3 + 1)
    assert model.distribution([2]) == pytest.approx(expected, abs=1e-12) and expected.sum() == pytest.approx(1)


@pytest.mark.parametrize("smoothing", DISTRIBUTIONS)
@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 4), st.lists(st.integers(0, 6), max_size=6), st.booleans())
def test_sums_to_one_after_any_context(smoothing, tokens, order, context, buckets):
    own = {"buckets": buckets} if smoothing == "interpolation" else {}
    p = fitted(tokens, 7, order=order, smoothing=smoothing, min_count=(1, 2), **own).distribution(context)
    assert p.min() >= 0 and p.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("smoothing", DISTRIBUTIONS)
@given(
    tokens=st.lists(st.sampled_from([0, 2, 3, 4]), min_size=1, max_size=30),
    order=st.integers(1, 4),
    context=st.lists(st.integers(0, 4), max_size=4),
    unknown=st.sampled_from(["here", "elsewhere", "never"]),
)
@settings(max_examples=20, deadline=None)
def test_unknown_tokens_have_a_share_only_where_they_can_follow(smoothing, tokens, order, context, unknown):
    """The text holds no UNK (1). With byte tokens none can follow, with add_alpha none in a closed vocabulary."""
    model = Ngram(Ngram.Config(order=order, smoothing=smoothing), Sizes(5, unknown=unknown))
    list(model.fit(SimpleNamespace(tokens=np.array([*tokens, STOP])), Ngram.Train()))
    p = model.distribution([STOP, *context])
    assert p.sum() == pytest.approx(1, abs=1e-9)
    closed = unknown == "never" or (unknown == "elsewhere" and smoothing == "add_alpha")
    assert model.can_follow == 5 - closed
    assert not (closed and p[1])
    logp, _ = model.logprobs(stream([[STOP, *context]], [[*context, 1]], np.array([True])))
    assert np.exp(logp[0, -1]) == pytest.approx(p[1], abs=1e-12)
    adapted = model.adapted()
    before, _ = adapted.step(np.array([[STOP]]), np.ones((1, 1), bool), adapted.start(1, 0))
    assert before.double().exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert not (unknown == "never" and before[0, 1].exp().item())


def test_unseen_contexts():
    cows_eat, unseen = [IDS["cows"], IDS["eat"]], [IDS["hay"], IDS["eat"]]
    ml = cows(order=3, smoothing="maximum_likelihood")
    assert ml.distribution(unseen) == pytest.approx(ml.distribution(cows_eat), abs=1e-12)
    mixed = cows(order=3, smoothing="interpolation", lambdas=(0.6, 0.3, 0.1)).distribution(unseen)
    assert mixed[IDS["corn"]] == pytest.approx(0.75 * 4 / 11 + 0.25 * 5 / 75, abs=1e-12)
    assert cows(order=3, smoothing="add_alpha", alpha=1.0).distribution(unseen) == pytest.approx(
        np.full(34, 1 / 34), abs=1e-12
    )


def test_an_order_without_weight_is_passed_over():
    p = after_cows_eat(cows(order=3, smoothing="interpolation", lambdas=(1.0, 0.0, 0.0)))
    assert p["corn"] == pytest.approx(4 / 11, abs=1e-12)
    model = cows(order=3, smoothing="interpolation", lambdas=(1.0, 0.0, 0.0))
    text = [IDS["when"], IDS["cows"], IDS["eat"], IDS["corn"]]
    assert model.logprobs(text_batch(text))[0][0, 3] == pytest.approx(math.log(4 / 11), abs=1e-12)


def test_contexts_are_shortened_at_the_start_and_where_nothing_is_known():
    model = cows(order=4, smoothing="add_alpha", alpha=1.0)
    assert model.distribution([STOP, IDS["the"]])[IDS["cows"]] == pytest.approx(2 / (1 + 34), abs=1e-12)
    assert model.distribution([IDS["or"], STOP])[IDS["the"]] == pytest.approx(2 / (11 + 34), abs=1e-12)
    assert model.distribution([IDS["eat"]])[IDS["corn"]] == pytest.approx(5 / (11 + 34), abs=1e-12)
    assert model.distribution([])[IDS["corn"]] == pytest.approx(6 / (75 + 34), abs=1e-12)


# What held-out text chooses


def on_held_out(held, vocab_size: int = 9, **config) -> tuple[Ngram, float]:
    """A model whose free numbers are chosen on `held`, and the log-likelihood of it."""
    model = Ngram(Ngram.Config(**config), Sizes(vocab_size))
    list(model.fit(SimpleNamespace(tokens=random_text(600 * vocab_size // 9, vocab_size)), Ngram.Train(), held))
    return model, float(model.logprobs(text_batch(held))[0].sum())


def test_alpha_is_the_best_on_held_out_text():
    held = random_text(200, seed=1)
    model, best = on_held_out(held, order=3, smoothing="add_alpha")
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert on_held_out(held, order=3, smoothing="add_alpha", alpha=model.alpha * factor)[1] < best


def test_lambdas_are_the_best_on_held_out_text():
    held = random_text(2000, seed=1)
    model, best = on_held_out(held, order=3, smoothing="interpolation")
    own = model.lambdas[:, 0]
    for k in (1, 2):
        for change in (-0.05, 0.05):
            other = own.copy()
            other[k] += change
            reached = np.cumprod([1.0, *(1 - other[::-1])])
            lambdas = [*(other[::-1] * reached[:-1])]
            lambdas[-1] += 1 - sum(lambdas)  # what went to 1/V; next to nothing
            assert on_held_out(held, order=3, smoothing="interpolation", lambdas=tuple(lambdas))[1] < best


def test_buckets_trust_contexts_seen_often_more():
    held = random_text(3000, vocab_size=60, seed=1)
    plain, bucketed = (on_held_out(held, 60, order=3, smoothing="interpolation", buckets=b) for b in (False, True))
    assert bucketed[1] > plain[1] + 1
    once, often = bucketed[0].lambdas[2][[0, 3]]
    assert once < plain[0].lambdas[2][0] < often


def test_without_held_out_text_a_tenth_of_the_training_text_chooses():
    tokens = random_text(1000)
    expected = Ngram(Ngram.Config(order=2, smoothing="add_alpha"), Sizes(9))
    list(expected.fit(SimpleNamespace(tokens=tokens[:900]), Ngram.Train(), tokens[900:]))
    model = fitted(tokens, 9, order=2, smoothing="add_alpha")
    assert model.alpha == expected.alpha and int(model.orders[0].level.profiles[0, 0]) == 1000


# Memory and disk


@pytest.mark.parametrize("smoothing", ["modified_kneser_ney", "witten_bell"])
def test_a_text_larger_than_memory_gives_the_same_file(smoothing, tmp_path, monkeypatch):
    """Ranges of a thousand positions, ids spread over files of a thousand, tables packed three contexts at a time."""
    text = random_text(9000, vocab_size=40)
    whole = fitted(text, 40, order=4, smoothing=smoothing, min_count=(1, 1, 2))
    monkeypatch.setattr(count, "_CHUNK", 700)
    monkeypatch.setattr(trie, "_CONTEXTS", 3)
    monkeypatch.setattr(ngram, "_LEAST_MEMORY", 0)
    monkeypatch.setattr(ngram, "_taken", lambda: 10**13)
    ranges, pieces = [], []
    monkeypatch.setattr(count, "_group", spy(count._group, ranges))
    monkeypatch.setattr(count, "_unpair", spy(count._unpair, pieces))
    parts = fitted(text, 40, order=4, smoothing=smoothing, min_count=(1, 1, 2))
    assert len(ranges) > 20 and len(pieces) > 20
    for name, model in (("whole", whole), ("parts", parts)):
        (tmp_path / name).mkdir()
        model.save(tmp_path / name)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]


def spy(function, calls: list):
    def spied(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return spied


def test_the_file_is_mapped_and_other_programs_read_it(tmp_path):
    from safetensors.numpy import load_file

    model = fitted(random_text(400), 9, order=3)
    model.save(tmp_path)
    loaded = Ngram(model.config, model.sizes)
    loaded.load(tmp_path)
    level = loaded.orders[2].level
    assert isinstance(level.words.base.base, np.memmap | mmap.mmap) or isinstance(level.words, np.memmap)
    assert not level.words.flags.writeable and level.words.flags.aligned
    others = load_file(tmp_path / "model.safetensors")
    assert np.array_equal(others["words.3"], level.words) and np.array_equal(
        others["first.2"], loaded.orders[1].level.first
    )


def test_a_damaged_file_is_noticed(tmp_path):
    model = fitted(random_text(400), 9, order=3)
    model.save(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not whole"):
        Ngram(model.config, model.sizes).load(tmp_path)


def test_counts_above_a_byte():
    tokens = [2, 3] * 400 + [STOP] + [2, 4] * 254 + [STOP] + [2, 5] * 255 + [STOP]
    slow, fast = Slow(tokens, 2, 7, "witten_bell"), fitted(tokens, 7, order=2, smoothing="witten_bell")
    assert fast.distribution([STOP, 2]) == pytest.approx(slow.next([STOP, 2]), abs=1e-12)
    logp, _ = fast.logprobs(text_batch([2, 3, 2, 4, 2, 5, STOP]))
    assert np.exp(logp[0, 1::2]) == pytest.approx([slow.next([STOP, 2])[w] for w in (3, 4, 5)], abs=1e-12)
    assert fast.orders[1].level.plain_counts(0, len(fast.orders[1].level)).max() == 400


@pytest.mark.parametrize("memory", ["", "1", "GB", "-1GB", "1PB", "1.2.3GB"])
def test_a_size_that_is_none(memory):
    with pytest.raises(ValueError, match="such as 1GB"):
        Ngram.Train(memory=memory)


# The contract


def random_text(length: int, vocab_size: int = 9, seed: int = 0) -> np.ndarray:
    """Tokens with some structure: each depends on the one before it."""
    rng = np.random.default_rng(seed)
    tokens = [STOP]
    for _ in range(length - 1):
        follows = (tokens[-1] * 2 + 1) % vocab_size
        tokens.append(follows if rng.random() < 0.5 else int(rng.integers(vocab_size)))
    return np.array(tokens)


@pytest.mark.parametrize(("order", "carry"), [(1, False), (2, False), (4, False), (4, True)])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_logprobs_equal_distribution_equal_step(smoothing, order, carry):
    model = fitted(random_text(300), 9, carry, order=order, smoothing=smoothing)
    text = random_text(60, seed=1)
    logp, _ = model.logprobs(text_batch(text))
    state = model.start(1, len(text))
    for place, target in enumerate(text):
        history = [STOP, *text[:place]]
        logits, state = model.step(torch.tensor([history[-1:]]), torch.tensor([[True]]), state)
        p = model.distribution(history)
        assert math.exp(logp[0, place]) == pytest.approx(p[target], abs=1e-12)
        assert logits.dtype == torch.float32
        assert logits.exp().numpy()[0] == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_state_carries_across_batches(smoothing, monkeypatch):
    model = fitted(random_text(400), 9, order=4, smoothing=smoothing)
    tokens, targets = random_text(121, seed=2)[:-1].reshape(3, 40), random_text(121, seed=2)[1:].reshape(3, 40)
    whole, end = model.logprobs(stream(tokens, targets, np.ones(3, dtype=bool)))
    parts, state = [], None
    for begin, stop in ((0, 1), (1, 3), (3, 20), (20, 40)):
        fresh = np.full(3, begin == 0)
        logp, state = model.logprobs(stream(tokens[:, begin:stop], targets[:, begin:stop], fresh), state)
        parts.append(logp)
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    assert np.array_equal(state.history_BT, end.history_BT)
    monkeypatch.setattr(markov_lm, "POSITIONS_AT_ONCE", 7)
    assert np.array_equal(model.logprobs(stream(tokens, targets))[0], whole)


def test_fresh_rows_forget():
    model = fitted(random_text(400), 9, order=4)
    tokens, targets = random_text(80, seed=3).reshape(2, 40), random_text(80, seed=4).reshape(2, 40)
    _, state = model.logprobs(stream(tokens, targets))
    cold, _ = model.logprobs(stream(tokens, targets))
    mixed, _ = model.logprobs(stream(tokens, targets, np.array([True, False])), state)
    warm, _ = model.logprobs(stream(tokens, targets, np.array([False, False])), state)
    assert np.array_equal(mixed[0], cold[0]) and np.array_equal(mixed[1], warm[1])
    assert not np.array_equal(warm[1], cold[1])


def test_a_cold_row_is_not_a_start():
    model = cows(order=3, smoothing="maximum_likelihood")
    logp, _ = model.logprobs(stream([IDS["do"]], [IDS["cows"]]))
    assert logp[0, 0] == pytest.approx(math.log(1 / 2), abs=1e-12)  # "do your", "do cows"
    assert model.logprobs(stream([STOP, IDS["do"]], [IGNORE, IDS["cows"]]))[0].tolist() == [[0.0, -math.inf]]


def test_padding_and_ignore():
    model = fitted(random_text(400), 9, order=4)
    tokens, targets = random_text(10, seed=5)[None], random_text(10, seed=6)[None]
    plain, state = model.logprobs(stream(tokens, targets))
    padded = Batch(
        np.pad(tokens, ((0, 0), (0, 3))),
        np.pad(targets, ((0, 0), (0, 3)), constant_values=IGNORE),
        np.pad(np.ones_like(tokens, dtype=bool), ((0, 0), (0, 3))),
    )
    logp, padded_state = model.logprobs(padded)
    assert np.array_equal(logp, np.pad(plain, ((0, 0), (0, 3))))
    assert np.array_equal(padded_state.history_BT, state.history_BT)


def test_step_takes_prompts_of_unequal_length_and_select_reorders():
    model = fitted(random_text(400), 9, order=4)
    tokens = np.array([[0, 3, 7, 6], [0, 5, 0, 0], [0, 0, 0, 5]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)
    logits, state = model.step(tokens, mask, model.start(3, 4))
    assert torch.equal(logits[1], logits[2])
    assert logits[1].exp().numpy() == pytest.approx(model.distribution([0, 5]), abs=1e-6)
    one = np.array([[1], [2], [2]])
    after, _ = model.step(one, np.ones((3, 1), dtype=bool), state)
    chosen, _ = model.step(one[[2, 0]], np.ones((2, 1), dtype=bool), state.select(torch.tensor([2, 0])))
    assert torch.equal(chosen, after[[2, 0]])
    still, _ = model.step(one, np.zeros((3, 1), dtype=bool), state)
    assert torch.equal(still, logits)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_save_and_load(smoothing, tmp_path):
    model = fitted(random_text(400), 9, order=4, smoothing=smoothing)
    model.save(tmp_path)
    loaded = Ngram(model.config, model.sizes)
    loaded.load(tmp_path)
    batch = text_batch(random_text(100, seed=7))
    assert np.array_equal(loaded.logprobs(batch)[0], model.logprobs(batch)[0])
    assert loaded.parameters_count == model.parameters_count


def test_small_integers_do_not_overflow():
    text = random_text(500) * 7000  # ids up to 56,000
    wide, narrow = fitted(text, 60_000, order=5), fitted(text.astype(np.uint16), 60_000, order=5)
    expected, _ = wide.logprobs(text_batch(text))
    for kind in (np.uint16, np.int32):
        tokens = np.concatenate(([STOP], text[:-1])).astype(kind)
        assert np.array_equal(narrow.logprobs(stream(tokens, text.astype(kind)))[0], expected)


def test_records_and_parameters_count():
    model = Ngram(Ngram.Config(order=3), Sizes(34))
    records = list(model.fit(SimpleNamespace(tokens=np.array(COWS)), Ngram.Train()))
    expected = []
    for k in (1, 2, 3):
        padded = [["START", *sentence, "STOP"] for sentence in SENTENCES]
        expected.append(len({tuple(s[i : i + k]) for s in padded for i in range(len(s) - k + 1)} - {("START",)}))
    assert [(record.step, record.kind, record.values["ngrams"]) for record in records] == [
        (k, "train", n) for k, n in enumerate(expected, 1)
    ]
    assert model.parameters_count == sum(expected)


def test_a_text_shorter_than_the_order():
    model = fitted([2], 5, order=6)
    assert model.distribution([STOP, 2, 2, 2]).sum() == pytest.approx(1, abs=1e-12)
    assert np.isfinite(model.logprobs(text_batch([2, 3, STOP]))[0]).all()


def test_an_empty_text_is_refused():
    with pytest.raises(InputError, match="no tokens"):
        fitted(np.array([], dtype=np.uint16), 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 0}, "order is 0"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"min_count": (2, 1)}, "min_count is"),
        ({"min_count": (0,)}, "min_count is"),
        ({"order": 2, "lambdas": (0.5, 0.5), "buckets": True}, "weights of its own"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"order": 3, "lambdas": (0.5, 0.5)}, "2 lambdas for order 3"),
        ({"order": 2, "lambdas": (0.5, 0.6)}, "must sum to 1"),
        ({"order": 2, "lambdas": (1.5, -0.5)}, "none may be negative"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Ngram.Config(**settings)


def test_counting_needs_no_torch():
    program = "import sys, segue.models.ngram; sys.exit('torch' in sys.modules)"
    source = str(Path(ngram.__file__).parents[2])
    assert subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": source}, check=False).returncode == 0

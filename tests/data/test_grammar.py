from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest

from segue.data import grammar
from segue.data.grammar import DICTIONARY, LABEL_LEXICONS, LABELS, LEXICON, RULES, TAG_LEXICON, TAGS, Lexicon


def structures(symbol: str = "sentence") -> list[tuple[float, tuple[str, ...]]]:
    """Every sequence of word classes that `symbol` derives, once for each derivation."""
    if symbol not in RULES:
        return [(1.0, (symbol,))]
    found = []
    for p, parts in RULES[symbol]:
        for choice in product(*map(structures, parts)):
            found.append((p * math.prod(q for q, _ in choice), tuple(name for _, names in choice for name in names)))
    return found


def derivations(words: list[str], lexicon: Lexicon) -> int:
    """How many derivations a sentence has, counted structure by structure."""
    return sum(
        len(names) == len(words) and all(word in lexicon[name] for word, name in zip(words, names, strict=True))
        for _, names in structures()
    )


def test_the_structures_are_distinct_and_their_probabilities_sum_to_one() -> None:
    found = structures()
    assert len({names for _, names in found}) == len(found)
    assert math.isclose(sum(p for p, _ in found), 1.0)
    for lexicon in (LEXICON, TAG_LEXICON, *LABEL_LEXICONS.values()):
        assert all(math.isclose(sum(words.values()), 1.0) for words in lexicon.values())
    assert {len(names) - 1 for _, names in found} == set(range(3, 10))


@pytest.mark.parametrize("lexicon", [LEXICON, TAG_LEXICON], ids=["plain", "tagged"])
def test_no_sentence_has_two_derivations(lexicon: Lexicon) -> None:
    """Two structures share a sentence only if they share a word at every place: no two of one length do."""
    found = [names for _, names in structures()]
    for i, one in enumerate(found):
        for other in found[:i]:
            if len(one) == len(other):
                assert any(not lexicon[a].keys() & lexicon[b].keys() for a, b in zip(one, other, strict=True))


def test_the_probability_of_a_sentence_is_the_product_of_its_choices() -> None:
    by_hand = 0.5 * 0.4 * 0.2 * LEXICON["determiner"]["the"] * LEXICON["manner"]["old"]
    by_hand *= LEXICON["being_many"]["dogs"] * LEXICON["walks_many"]["run"]
    assert math.isclose(grammar.logprob("the old dogs run ."), math.log(by_hand))


@pytest.mark.parametrize(
    "text", ["the dogs runs .", "the dog", "", "the dog runs . .", "dog the runs .", "the xyz runs ."]
)
def test_what_the_grammar_cannot_say_has_no_probability(text: str) -> None:
    assert grammar.logprob(text) == -math.inf


def test_samples_follow_the_probabilities() -> None:
    """The mean of -log p over samples is the entropy, which is computed here from the rules and the lexicon."""
    entropies = {name: -sum(p * math.log(p) for p in words.values()) for name, words in LEXICON.items()}
    entropy = sum(p * (-math.log(p) + sum(entropies[name] for name in names)) for p, names in structures())
    scores = [-grammar.logprob(example.text) for example in grammar.sentences("text", 5000, seed=3)]
    mean = sum(scores) / len(scores)
    error = math.sqrt(sum((score - mean) ** 2 for score in scores)) / len(scores)
    assert abs(mean - entropy) < 4 * error


def test_every_sample_has_one_derivation() -> None:
    for shape, lexicon in (("text", LEXICON), ("tagged", TAG_LEXICON)):
        for example in grammar.sentences(shape, 300):
            assert derivations(example.text.split(" "), lexicon) == 1


def test_a_seed_gives_the_same_sentences_and_another_gives_others() -> None:
    one, again, other = (list(grammar.sentences("text", 50, seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert list(grammar.sentences("text", 80, 1))[:50] == one


def test_bits_per_byte_count_every_sentence_with_its_line_end() -> None:
    examples = list(grammar.sentences("text", 20))
    bits = -sum(grammar.logprob(example.text) for example in examples) / math.log(2)
    size = len("".join(example.text + "\n" for example in examples))
    assert math.isclose(grammar.best("text", examples)["bits_per_byte"], bits / size)


def test_labels_change_only_the_words_weights() -> None:
    """log p(text | label) differs between labels by a sum over words, so a bag of words is enough."""
    for example in grammar.sentences("labelled", 100):
        for a, b in product(LABELS, repeat=2):
            weights = (
                math.log(words[word] / LABEL_LEXICONS[b][name][word])
                for word in example.text.split(" ")
                for name, words in LABEL_LEXICONS[a].items()
                if word in words and TAGS[name] != "DET"
            )
            difference = grammar.logprob(example.text, LABEL_LEXICONS[a]) - grammar.logprob(
                example.text, LABEL_LEXICONS[b]
            )
            assert math.isclose(sum(weights), difference, abs_tol=1e-9)


def test_the_best_classifier_is_right_nine_times_in_ten() -> None:
    examples = list(grammar.sentences("labelled", 4000))
    assert 0.87 < grammar.best("labelled", examples)["accuracy"] < 0.93
    assert min(Counter(example.label for example in examples).values()) > 1200


def test_tags_follow_from_two_words_before() -> None:
    windows: dict[tuple[str, ...], str] = {}
    tags_of: dict[str, set[str]] = {}
    for example in grammar.sentences("tagged", 5000):
        assert len(example.words) == len(example.tags)
        padded = ("", "", *example.words)
        for i, tag in enumerate(example.tags):
            assert windows.setdefault(padded[i : i + 3], tag) == tag
            tags_of.setdefault(example.words[i], set()).add(tag)
    assert {word for word, tags in tags_of.items() if len(tags) > 1} == {
        form for stem in grammar.BOTH for form in (stem, stem + "s")
    }


def test_translations_are_word_for_word_with_the_adjective_behind() -> None:
    assert len(set(DICTIONARY.values())) == len(DICTIONARY) == len({w for words in LEXICON.values() for w in words})
    targets: dict[str, str] = {}
    for example in grammar.sentences("parallel", 2000):
        words = example.text.split(" ")
        assert 4 <= len(words) <= grammar.LONGEST_PAIR + 1
        assert Counter(DICTIONARY[word] for word in words) == Counter(example.target.split(" "))
        assert targets.setdefault(example.text, example.target) == example.target
    back = {target: source for source, target in DICTIONARY.items()}
    one = next(example for example in grammar.sentences("parallel") if " old " in example.text)
    words, turned = one.text.split(" "), [back[word] for word in one.target.split(" ")]
    assert turned.index("old") == words.index("old") + 1


def test_clauses_are_sentences_with_and_between_them() -> None:
    counts = Counter[int]()
    back = {target: source for source, target in DICTIONARY.items()} | {grammar.AND: "and"}
    assert len(back) == len(DICTIONARY) + 1
    for example in grammar.sentences("clauses", 500):
        clauses = example.text.removesuffix(" .").split(" and ")
        counts[len(clauses)] += 1
        assert all(grammar.logprob(f"{clause} .") > -math.inf for clause in clauses)
        assert Counter(back[word] for word in example.target.split(" ")) == Counter(example.text.split(" "))
    assert sorted(counts) == [1, 2, 3, 4] and min(counts.values()) > 90


def test_questions_are_answered_by_one_sentence_or_by_none() -> None:
    rows = list(grammar.sentences("answers", 500))
    assert 0.1 < sum(not row.answers for row in rows) / 500 < 0.2
    assert grammar.best("answers", rows) == {"f1": 1.0, "exact": 1.0}
    for row in rows:
        said = [sentence.strip().split() for sentence in row.target.split(".") if sentence.strip()]
        word, *about, mark = row.text.split()
        assert len(said) == 2 and word in ("who", "what") and mark == "?"
        if word == "who":  # who sees the ball ?
            found = [words[: -len(about)] for words in said if words[-len(about) :] == about]
        else:  # what does the dog see ?
            does, *subject, verb = about
            verb = verb + "s" if does == "does" else verb
            found = [words[len(subject) + 1 :] for words in said if words[: len(subject) + 1] == [*subject, verb]]
        assert [" ".join(words) for words in found] == [answer.text for answer in row.answers]
        assert all(row.target.startswith(answer.text, answer.begin) for answer in row.answers)

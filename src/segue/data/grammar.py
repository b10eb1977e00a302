"""Text from a small probabilistic grammar of English, so that the best possible score is known exactly.

    sentence -> subject verb-phrase "."          subject and verb agree in number
    subject  -> DET NOUN | DET ADJ NOUN
    verb-phrase -> VERB | VERB ADV | VERB at-place | VERB ADV at-place | VERB object
    at-place -> PREP object                      object -> DET NOUN | DET ADJ NOUN

A sentence has 3 to 9 words and exactly one derivation: each position's class follows from the words before it. Subjects
and objects have their own adjectives and nouns, and the words are so short and so different that at every letter the
last five decide what may follow: a small model of letters can reach the true entropy.

Five data sets come from it, each with a known best score:
    text      the sentences; the best figure is their true probability
    labelled  a label is drawn first and changes only how likely each word is, so that log p(text | label) is a sum over
              words and a bag of words can reach the best, which is argmax p(label) p(text | label)
    tagged    with nouns that are verbs too ("cooks"); the two words before decide, so that the best is 1
    parallel  into an invented language, word for word but with the adjective after its noun; the best is BLEU 100
    answers   two sentences and a question about one of them, who or what, whose answer stands there; one question in
              seven asks for what neither of them says; the best is 1

The corpus `clauses` is parallel too: one to four sentences in one, "and" between them, so that it has long sources.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, count, islice
from typing import NamedTuple

from segue.data.example import Answer, Example

SENTENCES = 20_000
LABELS = ("farm", "town", "palace")
FAVOUR = 7.0
"""A word is this many times likelier under its own label."""
LONGEST_PAIR = 7
"""Most words in a sentence to translate: a model without attention can remember so many."""
MOST_CLAUSES = 4
UNANSWERED = 1 / 6
"""How often a question is drawn that its text does not answer; one that could be answered after all is dropped."""

Rules = dict[str, list[tuple[float, tuple[str, ...]]]]
Lexicon = dict[str, dict[str, float]]


def _predicate(number: str) -> list[tuple[float, tuple[str, ...]]]:
    walks, sees = f"walks_{number}", f"sees_{number}"
    return [
        (0.20, (walks,)),
        (0.15, (walks, "adverb")),
        (0.15, (walks, "place")),
        (0.10, (walks, "adverb", "place")),
        (0.40, (sees, "object")),
    ]


RULES: Rules = {
    "sentence": [(0.5, ("subject_one", "predicate_one", "stop")), (0.5, ("subject_many", "predicate_many", "stop"))],
    "subject_one": [(0.6, ("determiner", "being_one")), (0.4, ("determiner", "manner", "being_one"))],
    "subject_many": [(0.6, ("determiner", "being_many")), (0.4, ("determiner", "manner", "being_many"))],
    "predicate_one": _predicate("one"),
    "predicate_many": _predicate("many"),
    "place": [(1.0, ("preposition", "object"))],
    "object": [(0.6, ("determiner", "thing")), (0.4, ("determiner", "look", "thing"))],
}
TAGS = {
    "determiner": "DET",
    "manner": "ADJ",
    "look": "ADJ",
    "being_one": "NOUN",
    "being_many": "NOUN",
    "thing": "NOUN",
    "walks_one": "VERB",
    "walks_many": "VERB",
    "sees_one": "VERB",
    "sees_many": "VERB",
    "adverb": "ADV",
    "preposition": "PREP",
    "stop": "PUNCT",
}
"""The classes of words, and their tags."""

BEINGS = ("dog", "king", "cat", "girl", "owl", "nurse", "frog")
WALKS = ("run", "sit", "nap", "wag", "dig")
SEES = ("see", "eat", "get", "buy", "cut")
BOTH = ("cook", "guard", "guide")
"""Tagged sentences have these as nouns and as verbs: "cooks" is a noun in the plural or a verb in the singular."""


def _plural(stems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(stem + "s" for stem in stems)


def _weighted(words: tuple[str, ...]) -> dict[str, float]:
    """Earlier words are likelier, as in a language: weights 1/2, 1/3, 1/4, …, made to sum to 1."""
    weights = [1 / (rank + 2) for rank in range(len(words))]
    return {word: weight / sum(weights) for word, weight in zip(words, weights, strict=True)}


def _lexicon(beings: tuple[str, ...], walks: tuple[str, ...], sees: tuple[str, ...]) -> Lexicon:
    things = ("ball", "tree", "hat", "lake", "egg", "boat")
    classes = {
        "determiner": ("the", "my", "her"),
        "manner": ("old", "shy", "wise", "young"),
        "look": ("red", "tiny", "big", "long"),
        "being_one": beings,
        "being_many": _plural(beings),
        "thing": things + _plural(things),
        "walks_one": _plural(walks),
        "walks_many": walks,
        "sees_one": _plural(sees),
        "sees_many": sees,
        "adverb": ("well", "soon", "fast", "now"),
        "preposition": ("in", "near", "by", "on"),
        "stop": (".",),
    }
    return {name: _weighted(words) for name, words in classes.items()}


LEXICON = _lexicon(BEINGS, WALKS, SEES)
TAG_LEXICON = _lexicon(BEINGS + BOTH, WALKS + BOTH[:1], SEES + BOTH[1:])


def _label_lexicon(label: str) -> Lexicon:
    """The lexicon under a label. Every third word of a class belongs to each label; DET, PREP and PUNCT to none."""
    mine = LABELS.index(label)
    tilted: Lexicon = {}
    for name, words in LEXICON.items():
        neutral = TAGS[name] in ("DET", "PREP", "PUNCT")
        weights = {
            word: weight * (FAVOUR if not neutral and rank % len(LABELS) == mine else 1.0)
            for rank, (word, weight) in enumerate(words.items())
        }
        tilted[name] = {word: weight / sum(weights.values()) for word, weight in weights.items()}
    return tilted


LABEL_LEXICONS = {label: _label_lexicon(label) for label in LABELS}


def sentences(shape: str, n: int = SENTENCES, seed: int = 0) -> Iterator[Example]:
    """The first `n` examples of the data set with this name and seed."""
    seeded_by, make, _ = BY_SHAPE[shape]
    rng = random.Random(f"{seeded_by} {seed}")
    made = (example for _ in count() if (example := make(rng)) is not None)
    for number, example in enumerate(islice(made, n), 1):
        yield example.at("clauses" if shape == "clauses" else "grammar", number)


def logprob(text: str, lexicon: Lexicon = LEXICON) -> float:
    """log p(sentence) with its end; minus infinity for a sentence that the grammar does not derive."""
    p = _inside("sentence", text.split(" "), 0, lexicon).get(text.count(" ") + 1, 0.0)
    return math.log(p) if p else -math.inf


def classify(text: str) -> str:
    """The label of highest probability. No classifier can do better."""
    return max(LABELS, key=lambda label: logprob(text, LABEL_LEXICONS[label]))


def best(shape: str, examples: Iterable[Example]) -> dict[str, float]:
    """The best possible score on these very examples."""
    return BY_SHAPE[shape].best(examples)


def _text(rng: random.Random) -> Example:
    return Example(_joined(_grow(rng, LEXICON)))


def _labelled(rng: random.Random) -> Example:
    label = LABELS[int(rng.random() * len(LABELS))]
    return Example(_joined(_grow(rng, LABEL_LEXICONS[label])), label)


def _tagged(rng: random.Random) -> Example:
    leaves = _grow(rng, TAG_LEXICON)
    words = tuple(word for _, word in leaves)
    return Example(" ".join(words), words=words, tags=tuple(TAGS[name] for name, _ in leaves))


def _parallel(rng: random.Random) -> Example | None:
    """None for a sentence that is too long."""
    leaves = _grow(rng, LEXICON)
    if len(leaves) > LONGEST_PAIR + 1:
        return None
    return Example(_joined(leaves), target=" ".join(_translated(leaves)))


def _clauses(rng: random.Random) -> Example:
    """One to four sentences in one: "and" stands where all but the last have their full stop."""
    words: list[str] = []
    target: list[str] = []
    for _ in range(1 + int(rng.random() * MOST_CLAUSES)):
        leaves = _grow(rng, LEXICON)
        words += [*(word for _, word in leaves[:-1]), "and"]
        target += [*_translated(leaves)[:-1], AND]
    return Example(" ".join([*words[:-1], "."]), target=" ".join([*target[:-1], "."]))


def _answers(rng: random.Random) -> Example | None:
    """Two sentences with different verbs, and a question about one; None where neither can be asked about."""
    pair = [_grow(rng, LEXICON), _grow(rng, LEXICON)]
    asked = pair[int(rng.random() * 2)]
    if rng.random() < UNANSWERED:
        asked = _grow(rng, LEXICON)
        unanswered = True
    else:
        unanswered = False
    verbs = [_verb(leaves) for leaves in pair]
    who, verb = rng.random() < 0.5, _verb(asked)
    if verb not in SEES or verbs[0] == verbs[1] or unanswered == (verb in verbs):
        return None
    place = next(i for i, (name, _) in enumerate(asked) if name.startswith("sees"))
    subject, seen = _joined(asked[:place]), _joined(asked[place + 1 : -1])
    does = "does" if asked[place][0] == "sees_one" else "do"
    question = f"who {asked[place][1]} {seen} ?" if who else f"what {does} {subject} {verb} ?"
    text = " ".join(map(_joined, pair))
    if unanswered:
        return Example(question, target=text)
    begin = 0 if asked is pair[0] else len(_joined(pair[0])) + 1
    begin += 0 if who else len(_joined(asked[: place + 1])) + 1
    return Example(question, target=text, answers=(Answer(begin, subject if who else seen),))


def _verb(leaves: list[tuple[str, str]]) -> str:
    """The verb of a sentence as a question has it."""
    return next(
        word.removesuffix("s") if name.endswith("one") else word for name, word in leaves if TAGS[name] == "VERB"
    )


def _joined(leaves: list[tuple[str, str]]) -> str:
    return " ".join(word for _, word in leaves)


def _true_bits(examples: Iterable[Example]) -> dict[str, float]:
    texts = [example.text for example in examples]
    size = sum(len(text.encode()) + 1 for text in texts)
    return {"bits_per_byte": -sum(map(logprob, texts)) / math.log(2) / size}


def _right_labels(examples: Iterable[Example]) -> dict[str, float]:
    right = [classify(example.text) == example.label for example in examples]
    return {"accuracy": sum(right) / len(right)}


class DataSet(NamedTuple):
    """One of the data sets."""

    seeded_by: str
    """Seeds the random numbers, together with data.seed: another word would make other sentences."""
    make: Callable[[random.Random], Example | None]
    best: Callable[[Iterable[Example]], dict[str, float]]


BY_SHAPE = {
    "text": DataSet("lm", _text, _true_bits),
    "labelled": DataSet("classify", _labelled, _right_labels),
    "tagged": DataSet("tag", _tagged, lambda examples: {"accuracy": 1.0}),
    "parallel": DataSet("seq2seq", _parallel, lambda examples: {"bleu": 100.0}),
    "answers": DataSet("answer", _answers, lambda examples: {"f1": 1.0, "exact": 1.0}),
    "clauses": DataSet("clauses", _clauses, lambda examples: {"bleu": 100.0}),
}
"""The data sets by the names of their shapes (data/shapes.py); the corpus `clauses` by its own."""


def _grow(rng: random.Random, lexicon: Lexicon) -> list[tuple[str, str]]:
    """A random sentence, as (class, word) pairs."""
    leaves, waiting = [], ["sentence"]
    while waiting:
        symbol = waiting.pop()
        if symbol in RULES:
            _, parts = RULES[symbol][_draw(rng, tuple(p for p, _ in RULES[symbol]))]
            waiting.extend(reversed(parts))
        else:
            words = lexicon[symbol]
            leaves.append((symbol, list(words)[_draw(rng, tuple(words.values()))]))
    return leaves


def _draw(rng: random.Random, probabilities: tuple[float, ...]) -> int:
    return min(bisect(_cumulative(probabilities), rng.random()), len(probabilities) - 1)


@lru_cache(maxsize=256)
def _cumulative(probabilities: tuple[float, ...]) -> list[float]:
    return list(accumulate(probabilities))


def _inside(symbol: str, words: list[str], begin: int, lexicon: Lexicon) -> dict[int, float]:
    """For every place where `symbol` can end if it begins at `begin`: the summed probability of its derivations."""
    if symbol not in RULES:
        p = lexicon[symbol].get(words[begin], 0.0) if begin < len(words) else 0.0
        return {begin + 1: p} if p else {}
    total: dict[int, float] = {}
    for probability, parts in RULES[symbol]:
        reached = {begin: probability}
        for part in parts:
            onward: dict[int, float] = {}
            for middle, before in reached.items():
                for end, after in _inside(part, words, middle, lexicon).items():
                    onward[end] = onward.get(end, 0.0) + before * after
            reached = onward
            if not reached:
                break
        for end, p in reached.items():
            total[end] = total.get(end, 0.0) + p
    return total


def _dictionary() -> dict[str, str]:
    """The invented language: two syllables for each word (no two words alike), and the same full stop."""
    words = sorted({word for words in LEXICON.values() for word in words} - {"."})
    first = [consonant + vowel for consonant in "bdgkmnt" for vowel in "aiu"]
    second = [consonant + vowel for consonant in "lrsv" for vowel in "eo"]
    pairs = [left + right for right in second for left in first]
    return dict(zip(words, pairs, strict=False)) | {".": "."}


DICTIONARY = _dictionary()
AND = "vo"
"""The invented word for "and", which no sentence by itself has."""


def _translated(leaves: list[tuple[str, str]]) -> list[str]:
    words = [DICTIONARY[word] for _, word in leaves]
    for i, (name, _) in enumerate(leaves):
        if TAGS[name] == "ADJ":
            words[i], words[i + 1] = words[i + 1], words[i]
    return words

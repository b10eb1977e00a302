"""A challenge set for sentiment classifiers ("build it, break it"): sentences that show what a model cannot do.

Each kind of sentence has templates, filled with opinion words of the run's vocabulary, half of them
positive and half negative, so that one label for all is right half of the time:

    plain             I love this movie                                     the control
    intensifiers      I absolutely love this movie
    negation          I don't love this movie
    contrast          This movie is not bad at all
    double negation   There's nothing I don't love about this movie
    word order        This movie is great, not terrible / … terrible, not great: the same words, the other label

A bag of words gives the last two sentences the same probabilities, so it gets one half of word order right. If there
are many labels, only the two are compared, and the likelier one counts. A model fails a kind if it is not
significantly above one half (by the lower end of Wilson's 95 % interval). Sentences of one template are correlated, so
the true intervals are wider.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from segue.errors import InputError, nearest
from segue.inference.statistics import wilson
from segue.runs.run import Run

PAIRS = (("positive", "negative"), ("pos", "neg"), ("good", "bad"), ("+", "-"), ("1", "0"), ("+1", "-1"), ("1", "-1"))
"""Known names of the two labels; numbers count only if there are no other labels."""
WORDS = {
    "verb": (
        ("love", "like", "enjoy", "recommend", "admire", "adore"),
        ("hate", "dislike", "regret", "despise", "loathe", "avoid"),
    ),
    "adjective": (
        ("great", "good", "excellent", "wonderful", "brilliant", "fantastic"),
        ("terrible", "bad", "awful", "boring", "horrible", "poor"),
    ),
}
"""Positive words, then negative ones; the first that are in a run's vocabulary are used."""
THINGS = ("movie", "film", "product", "book", "story", "place", "phone", "thing", "one")
MOST_WORDS, MOST_THINGS = 4, 2

TEMPLATES: dict[str, tuple[str, ...]] = {
    "plain": ("I {verb} this {thing}.", "This {thing} is {adjective}.", "A {adjective} {thing}."),
    "intensifiers": (
        "I absolutely {verb} this {thing}.",
        "I really, really {verb} this {thing}.",
        "This {thing} is so very {adjective}.",
        "This is an extremely {adjective} {thing}.",
    ),
    "negation": (
        "I don't {not verb} this {thing}.",
        "I did not {not verb} this {thing}.",
        "Nobody would {not verb} this {thing}.",
        "This {thing} isn't {not adjective}.",
    ),
    "contrast": (
        "This {thing} is not {not adjective} at all.",
        "This {thing} is anything but {not adjective}.",
        "This {thing} is far from {not adjective}.",
    ),
    "double negation": (
        "There's nothing I don't {verb} about this {thing}.",
        "It is not true that this {thing} isn't {adjective}.",
        "Nobody could say that this {thing} is not {adjective}.",
    ),
    "word order": (
        "This {thing} is {adjective}, not {not adjective}.",
        "I thought this {thing} would be {not adjective}, but it is {adjective}.",
        "I used to {not verb} this {thing}, and now I {verb} it.",
    ),
}
"""{verb} and {adjective} have the sentence's own sentiment, {not …} the opposite."""


@dataclass(frozen=True)
class Kind:
    """A model's score on one kind of sentence."""

    kind: str
    sentences: int
    right: int
    accuracy: float
    accuracy_ci: tuple[float, float]
    errors: list[dict[str, str]]
    """The first few: sentence, label, predicted."""

    @property
    def failed(self) -> bool:
        return self.accuracy_ci[0] <= 0.5


def challenge(run: Run, positive: str = "", negative: str = "") -> dict[str, Any]:
    """Score all kinds, and sum them up in a sentence."""
    _check(run)
    labels = _labels(run.labels, positive, negative)
    known = _known(run)
    made = {kind: list(_made(templates, known)) for kind, templates in TEMPLATES.items()}
    way = _way(run, known)
    kinds = [_scored(run, kind, sentences, labels, way) for kind, sentences in made.items()]
    texts = [text for sentences in made.values() for text, _ in sentences]
    unknown = sorted({word.strip() for text in texts for word in _unknown(run, way(text))})
    return {
        "run": str(run.path),
        "model": run.recipe.name,
        "positive": labels[0],
        "negative": labels[1],
        "kinds": [asdict(kind) for kind in kinds],
        "unknown": unknown,
        "verdict": _verdict(run.recipe.name, kinds),
    }


def _check(run: Run) -> None:
    if "challenge" not in run.task.verbs or run.sizes.label != "class" or run.recipe.data.pairs:
        raise InputError(
            f"{run.recipe.name} in {run.path} does not give single texts one label each. Expected a classifier of "
            "opinions, such as: segue train bow reviews.tsv"
        )


def _labels(labels: Sequence[str], positive: str, negative: str) -> tuple[str, str]:
    """Return the two labels, as given or guessed from their names."""
    for said in (positive, negative):
        if said and said not in labels:
            raise InputError(f"The run has no label '{said}'.{nearest(said, labels)}")
    if positive and positive == negative:
        raise InputError(f"--positive and --negative are both '{positive}'. Expected two labels.")
    if bool(positive) != bool(negative) and len(labels) == 2:
        [other] = [label for label in labels if label not in (positive, negative)]
        return positive or other, negative or other
    if positive and negative:
        return positive, negative
    names = {label.casefold(): label for label in labels}
    for good, bad in PAIRS:
        if good in names and bad in names and (good.isalpha() or len(labels) == 2):
            return names[good], names[bad]
    raise InputError(
        f"Which label is the positive one? The names do not tell: {', '.join(labels[:20])}. "
        "Say --positive LABEL --negative LABEL."
    )


def _unknown(run: Run, text: str) -> list[str]:
    """List the unknown words of a text; the blank in front makes its first word a word like any other."""
    return run.unknown(run.tokenizer.row(text))


@dataclass(frozen=True)
class _Words:
    """The words for the templates; verbs and adjectives are (positive, negative) pairs."""

    verb: list[tuple[str, str]]
    adjective: list[tuple[str, str]]
    things: list[str]


def _known(run: Run) -> _Words:
    def known(words: Sequence[str]) -> list[str]:
        return [word for word in words if not _unknown(run, word)]

    pairs = {}
    for sort, (good, bad) in WORDS.items():
        pairs[sort] = list(zip(known(good), known(bad), strict=False))[:MOST_WORDS]
    if not all(pairs.values()):
        short = [f"{sort}s ({'; '.join(map(', '.join, WORDS[sort]))})" for sort in WORDS if not pairs[sort]]
        raise InputError(
            f"The vocabulary of {run.path} has no positive or no negative ones of these {' nor '.join(short)}. "
            "Expected a model of opinions in English."
        )
    return _Words(pairs["verb"], pairs["adjective"], known(THINGS)[:MOST_THINGS] or ["one"])


def _made(templates: Sequence[str], known: _Words) -> Iterator[tuple[str, bool]]:
    """Yield each sentence, and whether it is positive."""
    for template in templates:
        pairs = known.verb if "verb}" in template else known.adjective
        for good, bad in pairs:
            for thing in known.things:
                for own, other, is_good in ((good, bad, True), (bad, good, False)):
                    text = re.sub(r"\{not \w+\}", other, template.replace("{thing}", thing))
                    yield _article(re.sub(r"\{\w+\}", own, text)), is_good


def _article(text: str) -> str:
    """Correct the article: "An excellent movie", "A great movie"."""
    return re.sub(r"^A (?=[aeiou])", "An ", text)


Way = Callable[[str], str]
WAYS: tuple[Way, ...] = (
    str,
    lambda text: re.sub(r"([.,])", r" \1", text),
    lambda text: re.sub(r"([.,]|n't\b|'s\b)", r" \1", text),
)
"""Ways to write a sentence: plain; with punctuation split off; also with do n't and there 's. Each also in lower
case."""


def _way(run: Run, known: _Words) -> Way:
    """Choose the way of writing with the fewest unknown words; the first of several."""
    sentences = [next(_made([template], known))[0] for templates in TEMPLATES.values() for template in templates]
    ways: list[Way] = [made for way in WAYS for made in (way, lambda text, way=way: way(text).lower())]  # type: ignore[misc]
    return min(ways, key=lambda way: sum(len(_unknown(run, way(sentence))) for sentence in sentences))


def _scored(run: Run, kind: str, made: Sequence[tuple[str, bool]], labels: tuple[str, str], way: Way) -> Kind:
    places = [run.labels.index(label) for label in labels]
    texts = [way(text) for text, _ in made]
    right, errors = 0, []
    for (text, is_good), prediction in zip(made, run.predict(texts), strict=True):
        good, bad = (prediction.probabilities[place] for place in places)
        # A tie counts as negative, as half of the sentences are: it is worth a coin toss.
        says_good = good > bad
        right += says_good == is_good
        if says_good != is_good:
            errors.append({"text": text, "label": labels[not is_good], "predicted": labels[not says_good]})
    share = right / len(made)
    return Kind(kind, len(made), right, share, wilson(right, len(made)), errors[:5])


def _verdict(name: str, kinds: Sequence[Kind]) -> str:
    control, *others = kinds
    plain = f"{100 * control.accuracy:.0f} % of the plain sentences"
    if control.failed:
        return f"{name} fails even plain sentences ({plain} right): the other kinds then say nothing."
    failed = [kind.kind for kind in others if kind.failed]
    if not failed:
        return f"{name} fails none of these kinds; it gets {plain} right."
    if len(failed) == len(others):
        return f"{name} gets {plain} right and fails all other kinds: it is not surely better than a coin there."
    *most, last = failed
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"{name} gets {plain} right and fails {listed}: it is not surely better than a coin there."

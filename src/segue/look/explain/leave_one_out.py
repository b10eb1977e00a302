"""The words that mattered to a classifier: each left out in turn.

    o(x)        = log p(label | x) - log p(any other | x)       the log-odds of the label that x was given
    drop(word)  = o(x) - o(x without the word)                  nats; below 0: the word spoke against the label

It asks for nothing but probabilities, so it is the same for every classifier, counted or learnt; a sentence of n words
takes n predictions more. Where the label is a number, the drop is that of the number; where there may be several, that
of the likeliest. Words are what stands between blanks. Of a long text the first words are looked at, and all are read.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from segue.data.example import Example

MOST_WORDS = 100
LEAST = 1e-300
"""What stands for a probability of 0, which has no logarithm."""
SHOWN = 5


class Judged(Protocol):
    """What a classifier says of a text."""

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Of every class; empty where the label is a number."""

    @property
    def number(self) -> float:
        """Where the label is a number."""

    @property
    def several(self) -> bool:
        """Whether there may be any number of classes."""


Predict = Callable[[Iterable[Example]], Iterator[Judged]]


class Mattered(NamedTuple):
    """A word of a text, and what the decision loses without it."""

    word: str
    drop: float


def explained(predict: Predict, examples: Iterable[Example]) -> Iterator[tuple[Judged, list[Mattered]]]:
    """Each example's prediction with its words, in their order; streaming, with full batches."""
    waiting: deque[list[str]] = deque()

    def asked() -> Iterator[Example]:
        for example in examples:
            words, less = _less(example)
            waiting.append(words)
            yield example
            yield from less

    predictions = predict(asked())
    for whole in predictions:
        words = waiting.popleft()
        best = max(range(len(whole.probabilities)), key=whole.probabilities.__getitem__, default=0)
        odds = _odds(whole, best)
        drops = [odds - _odds(less, best) for less in islice(predictions, len(words))]
        yield whole, list(map(Mattered, words, drops))


def mattered(predict: Predict, examples: Iterable[Example]) -> Iterator[list[Mattered]]:
    """The words alone."""
    return (words for _, words in explained(predict, examples))


def most_moving(words: Sequence[Mattered], most: int = SHOWN) -> str:
    """`great +2.10, not -0.31`: those that moved the decision most, for it or against it."""
    moved = sorted((word for word in words if abs(word.drop) >= 0.005), key=lambda word: -abs(word.drop))
    return ", ".join(f"{word.word} {word.drop:+.2f}" for word in moved[:most])


def words_read(example: Example) -> int:
    """How many words are read to look into a text: all but one, for each of them."""
    sizes = [len(side.split()) for side in (example.text, example.target)]
    return sum(sizes) * sum(min(size, MOST_WORDS) for size in sizes)


def _less(example: Example) -> tuple[list[str], Iterator[Example]]:
    """The words of a text (of a pair, of both), and the example without each."""
    places = [("text", match) for match in islice(re.finditer(r"\S+\s*", example.text), MOST_WORDS)]
    places += [("target", match) for match in islice(re.finditer(r"\S+\s*", example.target), MOST_WORDS)]
    return [match[0].strip() for _, match in places], (_without(example, *place) for place in places)


def _without(example: Example, side: str, match: re.Match[str]) -> Example:
    rest = (match.string[: match.start()] + match.string[match.end() :]).rstrip()
    return example._replace(text=rest) if side == "text" else example._replace(target=rest)


def _odds(prediction: Judged, label: int) -> float:
    """Log-odds of a label, against the sum of the others and not against 1 - p, which near 1 has few digits left."""
    if not prediction.probabilities:
        return prediction.number
    p = prediction.probabilities[label]
    if prediction.several or len(prediction.probabilities) == 1:
        against = 1 - p
    else:
        against = sum(other for i, other in enumerate(prediction.probabilities) if i != label)
    return math.log(max(p, LEAST)) - math.log(max(against, LEAST))

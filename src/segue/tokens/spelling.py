"""The cost of an unknown word: a character trigram model that can spell any string.

A model with a closed vocabulary predicts only "unknown word here". To compare it fairly with models that can write
everything, the bits of spelling the word (with its space, if one belongs to it) are added. The spelling model learns
from the training words seen once, since unknown words look like these, and it does not depend on the tokens.

Interpolated Witten-Bell smoothing (Witten and Bell, 1991), for a character c after the two before it, a b:

    P(c | a b) = (n(a b c) + t(a b) P(c | b)) / (n(a b) + t(a b))
    P(c | b)   = (n(b c)   + t(b)   P(c))     / (n(b) + t(b))
    P(c)       = (n(c)     + t      P0)       / (n + t)
    P0         = 1 / 1,112,065                   every Unicode scalar value, and the end mark

n(h c) counts c after h, n(h) is their sum, t(h) is the number of different characters seen after h; where h was never
seen, the shorter context answers alone. The word begins after a given mark (so its first character has only that
before it), and the mark at its end is predicted: the probabilities of all strings add up to 1.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from segue.errors import InputError
from segue.tokens.split import head

MARK = "\ud800"
"""Begins and ends a word: half of a surrogate pair, which no text holds."""
OUTCOMES = 0x110000 - 0x800 + 1
"""All Unicode scalar values, and the end mark."""

_SURFACE = re.compile(r" ?\S+")


class Speller:
    """The character model."""

    def __init__(self, trigrams: dict[str, dict[str, int]]) -> None:
        """`trigrams[a + b][c]`: how often c follows a b; counts after shorter contexts are sums of these."""
        self._trigrams = trigrams
        self._after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for context, counts in trigrams.items():
            for history in _histories(context):
                self._after[history].update(counts)
        self._totals = {context: counts.total() for context, counts in self._after.items()}

    @classmethod
    def learn(cls, texts: Iterable[str], sample: int = 5_000_000) -> Speller:
        """Learn from the words (between white space) seen once in the first `sample` bytes; from all, if there are
        none."""
        counts: Counter[str] = Counter()
        for text in head(texts, sample):
            counts.update(_SURFACE.findall(text))
        once = [surface for surface, count in counts.items() if count == 1 and not counts[_other(surface)]]
        return cls.train(once or counts)

    @classmethod
    def train(cls, words_seen_once: Iterable[str]) -> Speller:
        """Learn from the given words, each counted once."""
        trigrams: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word in words_seen_once:
            for char, context in _steps(word):
                trigrams[context][char] += 1
        return cls({context: dict(sorted(counts.items())) for context, counts in sorted(trigrams.items())})

    def probability(self, char: str, context: str) -> float:
        """Compute P(char | context); the context is the two characters before it (or the mark alone)."""
        chance = 1 / OUTCOMES
        for history in _histories(context):
            if history in self._totals:
                after = self._after[history]
                chance = (after.get(char, 0) + len(after) * chance) / (self._totals[history] + len(after))
        return chance

    def bits(self, word: str) -> float:
        """Compute the bits of spelling the word and its end."""
        return -sum(math.log2(self.probability(char, context)) for char, context in _steps(word))

    def save(self, path: str | Path) -> None:
        """Write the counts as JSON."""
        Path(path).write_text(json.dumps({"trigrams": self._trigrams}, separators=(",", ":")) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Speller:
        """Read what `save` wrote."""
        try:
            trigrams = json.loads(Path(path).read_text(encoding="utf-8"))["trigrams"]
            _check(trigrams)
        except OSError as error:
            raise InputError(f"{path}: the spelling model cannot be read ({error.strerror}).") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path}: this is not a whole spelling model. Train the run again to make it.") from None
        return cls(trigrams)


def _steps(word: str) -> Iterator[tuple[str, str]]:
    """Yield each character of the word and the end mark, with the one or two before it."""
    marked = MARK + word + MARK
    return ((marked[i], marked[max(0, i - 2) : i]) for i in range(1, len(marked)))


def _histories(context: str) -> list[str]:
    """List the ends of the context, from the empty string to the whole."""
    return [context[i:] for i in range(len(context), -1, -1)]


def _other(surface: str) -> str:
    """Return the word without its leading space, or with one if it has none."""
    return surface[1:] if surface.startswith(" ") else " " + surface


def _check(trigrams: dict[str, dict[str, int]]) -> None:
    for context, counts in trigrams.items():
        if not counts:
            raise ValueError(f"nothing follows {context!r}")
        for char, count in counts.items():
            if len(context) not in (1, 2) or len(char) != 1 or type(count) is not int or count < 1:
                raise ValueError(f"{context!r} {char!r} {count!r}")

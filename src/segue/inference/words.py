"""Word vectors: nearest neighbours, analogies, and their evaluation.

Nearness is the cosine of two vectors. "Paris is to France as what is to Japan?" is Paris - France + Japan, answered by
the word b that is best by

    3CosAdd     cos(b, Paris) - cos(b, France) + cos(b, Japan)                              Mikolov et al. 2013
    3CosMul     s(b, Paris) · s(b, Japan) / (s(b, France) + 0.001),  s = (1 + cos) / 2      Levy & Goldberg 2014
    prediction  p(b | x) = softmax(U x)_b,  x = v(Paris) - v(France) + v(Japan)             the mode of the prediction

By cosine the words of the question are left out, since they are nearest to themselves; a prediction leaves out none.
Words can also be asked what they predict together: p of the word that stands among them, which in skip-gram is the
product of what each predicts (`expect` in models/word2vec.py).

Three figures: on a file of pairs that people have scored, Spearman's correlation of the scores with the cosines; on a
file of analogies, the share that is answered right; on text, `cloze`: which of ten words stood between these
neighbours? One did, and nine are drawn from the training text by how often they are, so that a guess is right once in
ten times, and frequency alone is of no help.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.data.files import blocks, lines
from segue.data.ledger import Ledger
from segue.errors import InputError, nearest
from segue.inference.evaluation import Evaluation
from segue.inference.metrics import spearman
from segue.inference.opened import Opened
from segue.models.base import WordVectors
from segue.word_vectors.files import word_names

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

By = Literal["3cosadd", "3cosmul", "prediction"]
"""How analogies are answered."""
FIRST = 2
"""The first id that is a word."""
CANDIDATES = 10
_AT_ONCE = 4096
_QUESTIONS = 256
_NOTHING = 1e-6
"""A sum of unit vectors shorter than this is zero up to rounding."""
_JUDGED = 100
"""Lines read to recognise a file of pairs with scores: a text may be too long to read whole."""
_CUT = 6
"""Only suggest words that share this many first letters with the word that was not found."""


class Words:
    """Words and their vectors, for nearest neighbours and analogies."""

    def __init__(self, names: Sequence[str], vectors: NDArray[np.float32], model: WordVectors | None = None) -> None:
        self.names, self.model = list(names), model
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.unit = vectors / np.maximum(lengths, 1e-12)
        self.index = {name: i for i, name in enumerate(self.names)}

    def find(self, word: str) -> int | None:
        """Find the place of a word: as it is, else with the space that word tokens begin with, else in another case."""
        tries = (word, " " + word, word.lower(), " " + word.lower(), word.capitalize(), word.upper())
        return next((self.index[name] for name in tries if name in self.index), None)

    def place(self, word: str) -> int:
        """Return the place of a word, or raise an InputError that suggests another."""
        found = self.find(word)
        if found is None:
            like = [name for name in self.names if name.lower().strip()[:_CUT] == word.lower()[:_CUT]] or self.names
            raise InputError(
                f"The word '{word}' has no vector here.{nearest(word, like[:20_000])} Only words that were seen at "
                "least tokens.min_count times in training have one."
            )
        return found

    def nearest(self, word: str, top: int = 10) -> list[tuple[str, float]]:
        """Return the words with the largest cosine to this one, without itself."""
        place = self.place(word)
        return self._best(self.unit @ self.unit[place], {place}, top)

    def predicted(self, words: Sequence[str], top: int = 10) -> list[tuple[str, float]]:
        """Return the likeliest words among these neighbours, with their probabilities; none is left out."""
        return self._likeliest(self._predicting().between([FIRST + self.place(word) for word in words]), top)

    def analogy(
        self, plus: Sequence[str], minus: Sequence[str], top: int = 10, by: By = "3cosadd"
    ) -> list[tuple[str, float]]:
        """Return the best words for these, added and subtracted. By prediction none is left out."""
        added, taken = [self.place(word) for word in plus], [self.place(word) for word in minus]
        if np.linalg.norm(self.unit[added].sum(0) - self.unit[taken].sum(0)) < _NOTHING:
            raise InputError(
                f"'{' - '.join([' + '.join(plus), *minus])}' comes to a vector of zeros, which no word is near. "
                "Expected words that do not cancel out, for example 'king - man + woman'."
            )
        if by == "prediction":
            model = self._predicting()
            v = np.asarray(model.vectors[FIRST:], np.float64)
            return self._likeliest(model.predicted(v[added].sum(0) - v[taken].sum(0)), top)
        cosines = self.unit @ self.unit[[*added, *taken]].T
        scores = combined(cosines[:, : len(added)], cosines[:, len(added) :], by == "3cosmul")
        return self._best(scores, {*added, *taken}, top)

    def _predicting(self) -> WordVectors:
        if self.model is None:
            raise InputError("These vectors have no model that predicts.")
        return self.model

    def _likeliest(self, p_V: NDArray[Any], top: int) -> list[tuple[str, float]]:
        return self._best(p_V[FIRST:], set(), top)

    def _best(self, scores: NDArray[Any], without: set[int], top: int) -> list[tuple[str, float]]:
        order = np.argsort(-scores, kind="stable")[: top + len(without)]
        return [(self.names[i], float(scores[i])) for i in order.tolist() if i not in without][:top]


def combined(plus: NDArray[Any], minus: NDArray[Any], multiply: bool) -> NDArray[Any]:
    """Combine the cosines in the last axis by 3CosAdd or 3CosMul."""
    if multiply:
        return np.asarray(((1 + plus) / 2).prod(-1) / (((1 + minus) / 2).prod(-1) + 0.001))
    return np.asarray(plus.sum(-1) - minus.sum(-1))


def words_of(opened: Opened) -> Words:
    """Return the words of a word2vec model, without STOP and UNK."""
    codec = opened.codec
    names = word_names([codec.tokenizer.name(i) for i in range(FIRST, codec.sizes.vocab_size)])
    return Words(names, opened.model.vectors[FIRST:], opened.model)


def signed(expression: str) -> tuple[list[str], list[str]]:
    """Parse an expression such as "king - man + woman" into the words added and those subtracted."""
    plus: list[str] = []
    minus: list[str] = []
    wanted = plus
    expects_word = True
    for part in expression.split():
        if part in ("+", "-", "−") and not (expects_word and (plus or minus)):
            wanted = plus if part == "+" else minus
            expects_word = True
        elif expects_word:
            wanted.append(part)
            expects_word = False
        else:
            raise InputError(
                f"'{expression}': no sign stands before '{part}'. Expected for example 'king - man + woman'."
            )
    if expects_word or not plus:
        found = "it ends with a sign" if plus or minus else "there is no word in it"
        raise InputError(
            f"'{expression}': {'nothing is added' if minus and not expects_word else found}. "
            "Expected words with blanks and signs between, for example 'king - man + woman'."
        )
    return plus, minus


# Files of pairs and of analogies


class Pair(NamedTuple):
    """Two words, and how alike people find them."""

    first: str
    second: str
    score: float


class Question(NamedTuple):
    """a is to b as c is to d."""

    section: str
    words: tuple[str, str, str, str]


def questions_in(path: Path) -> list[Pair] | list[Question] | None:
    """Read a file of pairs with scores or of analogies; return None if it is neither, but text.

    A file of analogies begins with a line ": section"; one of pairs has two words and a number in most of its first
    lines, with tabs, commas or blanks between. Comments (#) may stand before either.
    """
    if not path.is_file():
        return None
    filled = ((n, line.strip()) for n, line in enumerate(lines(blocks(path, "utf-8", Ledger())), 1) if line.strip())
    found = dropwhile(lambda one: one[1].startswith("#") and not _pair(one[1]), filled)
    first = list(islice(found, _JUDGED))
    if first and first[0][1].startswith(":"):
        return list(_analogies(str(path), first[0], chain(first[1:], found)))
    if 2 * sum(_pair(line) is not None for _, line in first) <= len(first):
        return None
    if _names_columns(first[0][1]):
        first = first[1:]
    return list(_pairs(str(path), chain(first, found)))


def _analogies(path: str, first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[Question]:
    section = first[1][1:].strip()
    for number, line in rest:
        words = line.split()
        if line.startswith(":"):
            section = line[1:].strip()
        elif len(words) == 4:
            yield Question(section, (words[0], words[1], words[2], words[3]))
        else:
            raise InputError(
                f"{path}:{number}: {len(words)} words. Expected four, a analogy a line (Athens Greece Oslo Norway), "
                "or ': ' and the name of a section."
            )


def _pairs(path: str, found: Iterator[tuple[int, str]]) -> Iterator[Pair]:
    for number, line in found:
        pair = _pair(line)
        if pair and math.isfinite(pair.score):
            yield pair
        else:
            cells = _cells(line)
            wrong = f"'{cells[2][:60]}' is no number" if len(cells) == 3 else f"'{line[:60]}'"
            raise InputError(f"{path}:{number}: {wrong}. Expected two words and a number, as in tiger cat 7.35.")


def _pair(line: str) -> Pair | None:
    cells = _cells(line)
    try:
        return Pair(cells[0], cells[1], float(cells[2])) if len(cells) == 3 else None
    except ValueError:
        return None


def _names_columns(line: str) -> bool:
    """Whether a first line is a header: one that ends in a word where others have a number."""
    cells = _cells(line)
    return len(cells) > 2 and not _pair(line) and bool(re.search(r"[^\W\d_]{2}", cells[-1]))


def _cells(line: str) -> list[str]:
    return line.replace("\t", " ").replace(",", " ").split()


def of_questions(words: Words, asked: list[Pair] | list[Question]) -> Evaluation:
    """Compute the figures on pairs or analogies; questions with a word that has no vector are counted apart."""
    pairs = [one for one in asked if isinstance(one, Pair)]
    return _similarity(words, pairs) if pairs else _answers(words, [one for one in asked if isinstance(one, Question)])


def _similarity(words: Words, pairs: list[Pair]) -> Evaluation:
    places = [(words.find(pair.first), words.find(pair.second), pair.score) for pair in pairs]
    known = [(a, b, score) for a, b, score in places if a is not None and b is not None]
    if len(known) < 4:
        raise InputError(f"{len(known)} of {len(pairs)} pairs have a vector for both words. Expected four or more.")
    first, second, scores = (
        np.array([a for a, _, _ in known]),
        np.array([b for _, b, _ in known]),
        [s for *_, s in known],
    )
    cosines = np.einsum("pd,pd->p", words.unit[first], words.unit[second])
    for what, values in (("score", scores), ("cosine", cosines)):
        if len(set(values)) == 1:
            raise InputError(
                f"All {len(known)} pairs with vectors have the same {what}, {values[0]:g}, so that the correlation is "
                "undefined. Expected pairs that differ."
            )
    value = spearman(np.array(scores), cosines)
    result = {
        "task": "embed",
        "figure": "spearman",
        "spearman": value,
        "spearman_ci": list(spearman_interval(value, len(known))),
        "pairs": len(known),
        "unknown_pairs": len(pairs) - len(known),
    }
    return Evaluation(result, np.stack([np.array(scores), cosines], 1))


def spearman_interval(value: float, count: int) -> tuple[float, float]:
    """Compute the 95 % interval by Fisher's transformation, with the variance of Bonett & Wright (2000)."""
    middle = math.atanh(max(-0.999999, min(0.999999, value)))
    room = 1.96 * math.sqrt((1 + value * value / 2) / (count - 3))
    return math.tanh(middle - room), math.tanh(middle + room)


def _answers(words: Words, questions: list[Question]) -> Evaluation:
    places = [[words.find(word) for word in question.words] for question in questions]
    known = [i for i, row in enumerate(places) if None not in row]
    if not known:
        raise InputError(f"None of the {len(questions):,} analogies has a vector for all of its four words.")
    rows = np.array([places[i] for i in known], dtype=np.int64)
    right = {multiply: _right(words.unit, rows, multiply) for multiply in (False, True)}
    sections: dict[str, list[int]] = {}
    for place, i in enumerate(known):
        sections.setdefault(questions[i].section, []).append(place)
    result = {
        "task": "embed",
        "figure": "accuracy",
        "accuracy": float(right[False].mean()),
        "accuracy_ci": [],
        "accuracy_3cosmul": float(right[True].mean()),
        "analogies": len(rows),
        "unknown_analogies": len(questions) - len(rows),
        "sections": [
            {
                "section": name,
                "analogies": len(of),
                "accuracy": float(right[False][of].mean()),
                "accuracy_3cosmul": float(right[True][of].mean()),
            }
            for name, of in sections.items()
        ],
    }
    return Evaluation(result, np.stack([right[False], np.ones(len(rows))], 1), share=True).refigured()


def _right(unit: NDArray[Any], rows: Ids, multiply: bool) -> Floats:
    """Return 1 where d is the answer to b - a + c, else 0."""
    answers = []
    for begin in range(0, len(rows), _QUESTIONS):
        some = rows[begin : begin + _QUESTIONS]
        cosines = np.stack([unit[some[:, i]] @ unit.T for i in (1, 2, 0)], -1)
        scores = combined(cosines[..., :2], cosines[..., 2:], multiply)
        np.put_along_axis(scores, some[:, :3], -np.inf, 1)
        answers.append(scores.argmax(1) == some[:, 3])
    return np.concatenate(answers).astype(np.float64)


# Text


@dataclass(frozen=True)
class Cloze:
    """Numbers of questions and of right answers, for each text."""

    right: Floats
    asked: Floats

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / max(1.0, self.asked.sum()))


def cloze(model: Any, tokens: NDArray[Any], done: Callable[[float], None] = lambda share: None) -> Cloze:
    """Ask which of ten words stood there, at every place of a text w1 … wn STOP w1 … that has a known neighbour.

    Unknown words are removed first, as in training. The draws are the same for all models with the same words.
    """
    tokens = np.asarray(tokens).astype(np.int64)
    texts = np.cumsum(np.concatenate(([0], (tokens == 0)[:-1])))
    known = tokens >= FIRST
    words, text = tokens[known], texts[known]
    window = 1 if model.config.method == "next" else model.config.window
    shifts = [-1] if model.config.method == "next" else [*range(-window, 0), *range(1, window + 1)]
    chances = np.cumsum(model.counts) / model.counts.sum()
    draw = np.random.default_rng(0)
    right, asked = np.zeros(len(words)), np.zeros(len(words))
    for begin in range(0, len(words), _AT_ONCE):
        places = np.arange(begin, min(begin + _AT_ONCE, len(words)))
        others = places[:, None] + np.array(shifts)
        inside = (others >= 0) & (others < len(words))
        others = np.where(inside, others, 0)
        mask = inside & (text[others] == text[places][:, None])
        candidates = np.concatenate([words[places][:, None], _noise(chances, words[places], draw)], 1)
        scores = model.middle(words[others], mask, candidates)
        asked[places] = mask.any(1)
        right[places] = (scores[:, :1] > scores[:, 1:]).all(1) & mask.any(1)
        done(min(1.0, (begin + _AT_ONCE) / len(words)))
    size = int(texts[-1]) + 1 if len(texts) else 1
    return Cloze(*(np.bincount(text, one, size).astype(np.float64) for one in (right, asked)))


def _noise(chances: Floats, words: Ids, draw: np.random.Generator) -> Ids:
    """Draw nine words for each, by their frequency in the training text, never the word itself."""
    drawn = np.searchsorted(chances, draw.random((len(words), CANDIDATES - 1)), side="right")
    while (same := drawn == words[:, None]).any():
        drawn[same] = np.searchsorted(chances, draw.random(int(same.sum())), side="right")
    return np.minimum(drawn, len(chances) - 1)


def of_text(model: Any, tokens: NDArray[Any], done: Callable[[float], None] = lambda share: None) -> Evaluation:
    """Compute the cloze accuracy on held-out text; one text is a piece."""
    answered = cloze(model, tokens, done)
    if not answered.asked.sum():
        raise InputError(
            "No place of this text has a neighbour with a vector, so that nothing can be asked. Give more text."
        )
    result = {
        "task": "embed",
        "figure": "cloze",
        "cloze": answered.accuracy,
        "cloze_ci": [],
        "places": int(answered.asked.sum()),
        "unknown_tokens": int((np.asarray(tokens) == 1).sum()),
        "way": f"which of {CANDIDATES} words stood there; a guess is right {100 / CANDIDATES:.0f} % of the time",
    }
    return Evaluation(result, np.stack([answered.right, answered.asked], 1), share=True, ordered=True).refigured()

"""A bag of n-grams, linear: Joachims 1998, "Text categorization with support vector machines".

    score(class) = w_class · x + b_class                     p(class) = softmax(t · scores)
    minimise  |w|²/2 + C · sum over rows of loss(y · score)  for each class against the others

x holds the text's n-grams of words (1 to `words`), its pairs of words that are not neighbours ("nothing … dislike", at
most `pairs` apart: a conjunction of two words, where one word between them breaks a bigram) and its n-grams of
characters (2 to `characters`, over the blanks between words too). Each is weighed by `weighing` (linear/solve.py),
and words and characters are each brought to length 1. The class is predicted from which of these the text holds,
wherever they stand.

The text comes as bytes, and words are cut here, so that words and characters of one text are seen together: runs of
letters and digits, an apostrophe with the letters after it, and other signs one by one; or, with `split` off, whatever
stands between blanks. Departs from the paper: characters and pairs, and C and t chosen by the likelihood of held-out
rows; where none are held out, five times a fifth of the rows is, and then all rows are learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.linear.features import CHARACTERS, Bags, Grams, Rows, Words, one_below_the_other, side_by_side
from segue.linear.solve import Linear, Solver
from segue.models.base import ModelConfig, Record, Sizes, TrainConfig
from segue.models.counted_classifier import CountedClassifier, Floats, labelled, shares
from segue.ngrams.model_file import Arrays, write_arrays


class NgramBag(CountedClassifier):
    """A linear classifier over n-grams of words and characters."""

    tokens = ("byte",)

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        words: int = 2
        """Use word n-grams up to this length as features (0: none)."""
        pairs: int = 0
        """Use pairs of words up to this distance as features (0: only bigrams, by words=2)."""
        characters: int = 5
        """Use character n-grams from 2 up to this length as features (0: none)."""
        lowercase: bool = True
        """Lower-case the text."""
        split: bool = True
        """Split words from punctuation, not only at spaces."""
        weighing: Literal["count", "binary", "tfidf", "ratio"] = "tfidf"
        """Value of a feature: its count, 0 or 1, tf-idf, or the log-count ratio of nbsvm."""
        loss: Literal["squared_hinge", "hinge", "logistic"] = "squared_hinge"
        """The loss function: hinge and squared hinge are support vector machines, logistic is logistic regression."""
        cost: float = 0.0
        """C, the cost of errors against regularisation (0: chosen on held-out rows)."""
        balanced: bool = False
        """Class weights: give all classes the same total weight, however many rows they have."""
        min_rows: int = 1
        """Leave out features of fewer training rows than this."""

        def __post_init__(self) -> None:
            for name in ("words", "pairs", "characters"):
                if getattr(self, name) < 0:
                    raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
            if self.min_rows < 1:
                raise ValueError(f"min_rows is {self.min_rows}; expected 1 or more")
            if not 0 <= self.cost < float("inf"):
                raise ValueError(f"cost is {self.cost}; expected more than 0 (0: chosen on held-out rows)")
            if not self.words and self.characters < 2:
                raise ValueError("words=0 and characters below 2 leave no features; give one of them")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        """The recipe's [train]."""

        seed: int = 0
        """Random seed of the order of rows, and of the folds that choose the cost."""

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.cut = Words(config.lowercase, config.split)
        self.words = Grams(1, config.words, config.pairs)
        self.characters = Grams(2, config.characters)
        self.linear = self._made(0)
        self.shares: Floats = np.full(sizes.classes, -np.log(max(1, sizes.classes)))
        """(C,): log p of each class for a text without known features."""

    def _made(self, seed: int) -> Linear:
        solver = Solver(self.config.loss, self.config.cost, self.config.balanced, seed)
        return Linear(self.config.weighing, True, solver)

    @property
    def parameters_count(self) -> int:
        return int(self.linear.weights.size)

    @property
    def held_out_chooses(self) -> bool:
        return not self.config.cost

    def fit(
        self, store: Any, train: Train, held_out: Any = None, done: Callable[[float], None] = lambda share: None
    ) -> Iterator[Record]:
        """Learn from the rows of `store`; those of `held_out` (a store, or None: parts of the rows) choose the cost."""
        rows = labelled(self.sizes, store, held_out)
        bags = self._learn(rows.training)
        own = rows.labels[: rows.first_held_out]
        self.shares = shares(own, _found(bags), self.sizes.classes, self.config.balanced)
        if rows.held_out is not None:
            bags = one_below_the_other(bags, self._bags(rows.held_out))
        self.linear = self._made(train.seed)
        borders = (0, self.words.width, bags.width)
        tried = self.linear.fit(bags, rows.labels, self.sizes.classes, rows.first_held_out, borders)
        for step, choice in enumerate(tried, 1):
            yield Record(step, "train", choice._asdict())

    def _learn(self, rows: Rows) -> Bags:
        letters, words = self.cut.read(rows, True)
        parts = [self.words.learn(words), self.characters.learn(letters)]
        if self.config.min_rows == 1:
            return side_by_side(parts)
        for grams, part in zip((self.words, self.characters), parts, strict=True):
            grams.keep(part.in_rows() >= self.config.min_rows)
        return self._bags(rows)

    def _bags(self, rows: Rows) -> Bags:
        letters, words = self.cut.read(rows, False)
        return side_by_side([self.words.bags(words), self.characters.bags(letters)])

    def rows_logprobs(self, rows: Rows) -> Floats:
        bags = self._bags(rows)
        return np.where(_found(bags)[:, None], self.linear.class_logprobs(bags), self.shares)

    def features(self) -> list[str]:
        """Write the feature of each column as text; a pair with … between its words."""
        words = [" ".join("…" if i < 0 else self.cut.spell(i) for i in ids) for ids in self.words.spell()]
        return words + ["".join(map(chr, ids)) for ids in self.characters.spell()]

    def save(self, folder: Path) -> None:
        arrays = {f"words.{name}": array for name, array in self.words.arrays().items()}
        arrays |= {f"characters.{name}": array for name, array in self.characters.arrays().items()}
        arrays |= {"letters.keys": self.cut.keys, **self.linear.arrays(), "shares": self.shares}
        write_arrays(Path(folder) / "model.safetensors", arrays)

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        self.cut.take(arrays.part("letters."))
        self.words.take(arrays.part("words."), len(self.cut.keys) + 1)
        self.characters.take(arrays.part("characters."), CHARACTERS)
        borders = (0, self.words.width, self.words.width + self.characters.width)
        self.linear.take(arrays, borders, self.sizes.classes)
        self.shares = np.array(arrays.numbers("shares", (self.sizes.classes,), -1e30, 0.0))


def _found(bags: Bags) -> NDArray[np.bool_]:
    """Return which rows have any feature."""
    return np.diff(bags.starts) > 0

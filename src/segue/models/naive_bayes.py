"""Naive Bayes over n-grams: Maron 1961; multinomial, McCallum and Nigam 1998; binarised, Pang et al. 2002.

    p(class | text)  =  p(class) · product over features f of p(f | class)^x_f   /   the same summed over classes

    p(class)      =  share of the rows that have it
    p(f | class)  =  (alpha + sum of x_f over the class's rows) / (alpha · F + sum of all features over them)

The features are n-grams of tokens, 1 to `words` long; x_f is how often f is in the text, or, binarised, 1 if it is
there (what a word says when it comes again is not new). F is the number of different features of all training rows;
what none of them had is left out of a text, and where no word is known only p(class) is left. The class is predicted as
if features did not depend on each other, which they do, so that its probabilities lie nearer to 0 and 1 than they
should. Departs from Pang et al. in that n-grams of several lengths are features together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segue.linear.features import Bags, Grams, Rows
from segue.linear.solve import feature_scores, feature_sums, log_softmax
from segue.models.base import ModelConfig, NgramWeights, Record, Sizes, TrainConfig, check_memory
from segue.models.counted_classifier import CountedClassifier, Floats, labelled, shares
from segue.ngrams.model_file import Arrays, write_arrays


class NaiveBayes(CountedClassifier, NgramWeights):
    """A classifier that counts which features come with which class."""

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        words: int = 2
        """Longest n-grams of tokens that are features."""
        binary: bool = True
        """Binarised: count a feature at most once a row."""
        alpha: float = 1.0
        """Add-alpha smoothing: added to the count of every feature in every class."""
        balanced: bool = False
        """Uniform prior: p(class) is the same for all classes, however many rows they have."""

        def __post_init__(self) -> None:
            if self.words < 1:
                raise ValueError(f"words is {self.words}; expected 1 or more")
            if not 0 < self.alpha < float("inf"):
                raise ValueError(f"alpha is {self.alpha}; expected more than 0, or unseen words forbid their class")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        """The recipe's [train]: counting has no settings."""

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.grams = Grams(1, config.words)
        self.weights: Floats = np.zeros((1, sizes.classes))
        """(F + 1, C): log p(f | class), and log p(class) last."""
        self.shares: Floats = np.full(sizes.classes, -np.log(max(1, sizes.classes)))
        """(C,): log p(class) for a text without known words."""

    @property
    def parameters_count(self) -> int:
        return int(self.weights.size)

    @property
    def held_out_chooses(self) -> bool:
        return False

    def fit(
        self, store: Any, train: Train, held_out: Any = None, done: Callable[[float], None] = lambda share: None
    ) -> Iterator[Record]:
        """Count the rows of the store. Nothing is tuned, so held-out rows are not used."""
        rows, _, labels = labelled(self.sizes, store, None)
        bags = self._counted(self.grams.learn(rows))
        classes = self.sizes.classes
        taken = f"log p of {bags.width:,} features in {classes:,} classes takes"
        check_memory(16 * (bags.width + 1) * classes, taken, "model.words")
        weights = np.empty((bags.width + 1, classes))
        order, ends = np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=classes))
        for k, rows_of_class in enumerate(np.split(order, ends[:-1])):
            weights[:-1, k] = feature_sums(bags, rows_of_class)
        smoothed = weights[:-1]  # in place: with many classes this is most of the memory
        smoothed += self.config.alpha
        smoothed /= smoothed.sum(0)
        prior = np.bincount(labels, minlength=self.sizes.classes).astype(np.float64)
        if self.config.balanced:
            prior = np.minimum(prior, 1.0)
        with np.errstate(divide="ignore"):  # a class without a row is never predicted
            weights[-1] = prior / prior.sum()
            np.log(weights, out=weights)
        self.weights = np.maximum(weights, -1e30, out=weights)
        self.shares = shares(labels, rows.known(), self.sizes.classes, self.config.balanced)
        yield Record(1, "train", {"features": bags.width, "rows": len(labels)})

    def _counted(self, bags: Bags) -> Bags:
        return bags._replace(values=np.minimum(bags.values, 1)) if self.config.binary else bags

    def rows_logprobs(self, rows: Rows) -> Floats:
        logp = log_softmax(feature_scores(self._counted(self.grams.bags(rows)), self.weights))
        return np.where(rows.known()[:, None], logp, self.shares)

    def feature_weights(self) -> tuple[list[tuple[int, ...]], Floats]:
        return self.grams.spell(), self.weights[:-1] - self.weights[:-1].mean(1, keepdims=True)

    def save(self, folder: Path) -> None:
        arrays = {**self.grams.arrays(), "weights": self.weights, "shares": self.shares}
        write_arrays(Path(folder) / "model.safetensors", arrays)

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        classes = self.sizes.classes
        self.grams.take(arrays, self.sizes.vocab_size)
        self.weights = np.array(arrays.numbers("weights", (self.grams.width + 1, classes), -1e30, 0.0))
        self.shares = np.array(arrays.numbers("shares", (classes,), -1e30, 0.0))

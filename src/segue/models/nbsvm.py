"""NBSVM: Wang and Manning 2012, "Baselines and bigrams: simple, good sentiment and topic classification".

    r_f   =  log of (p_f / |p|) / (q_f / |q|)        p, q: 1 + in how many rows of the class, of the others, f is
    x_f   =  r_f if f is in the text, else 0
    w     =  of a support vector machine with squared hinge loss and cost C over the x
    w'    =  keep · w + (1 - keep) · mean of |w|
    class =  that of the largest w'·x + b            p(class) = softmax(t · (w'·x + b)) over the classes

The features are n-grams of tokens, 1 to `words` long. What naive Bayes says of a feature (r) is what the support vector
machine gets for it, and w' leans to naive Bayes itself (keep = 0). Departs from the paper: C is chosen, by
the likelihood of held-out rows, unless it is given; t, which does not change the best class of two, is chosen with it;
more than two classes are each separated from the rest; a text without a known word gets the classes' shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segue.linear.features import Grams, Rows, one_below_the_other
from segue.linear.solve import Linear, Solver
from segue.models.base import ModelConfig, NgramWeights, Record, Sizes, TrainConfig
from segue.models.counted_classifier import CountedClassifier, Floats, labelled, shares
from segue.ngrams.model_file import Arrays, write_arrays


class Nbsvm(CountedClassifier, NgramWeights):
    """A support vector machine over what naive Bayes says of each feature."""

    @dataclass(frozen=True)
    class Config(ModelConfig):
        """The recipe's [model]."""

        words: int = 2
        """Longest n-grams of tokens that are features."""
        keep: float = 0.25
        """Interpolation: share of the support vector machine in the weights; the rest is naive Bayes."""
        cost: float = 0.0
        """C, the cost of errors against regularisation (0: chosen on held-out rows)."""
        balanced: bool = False
        """Class weights: give all classes the same total weight, however many rows they have."""

        def __post_init__(self) -> None:
            if self.words < 1:
                raise ValueError(f"words is {self.words}; expected 1 or more")
            if not 0 <= self.keep <= 1:
                raise ValueError(f"keep is {self.keep}; expected a share from 0 to 1")
            if not 0 <= self.cost < float("inf"):
                raise ValueError(f"cost is {self.cost}; expected more than 0 (0: chosen on held-out rows)")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        """The recipe's [train]."""

        seed: int = 0
        """Random seed of the order of rows, and of the folds that choose the cost."""

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.grams = Grams(1, config.words)
        self.linear = self._made(0)
        self.shares: Floats = np.full(sizes.classes, -np.log(max(1, sizes.classes)))
        """(C,): log p of each class for a text without known words."""

    def _made(self, seed: int) -> Linear:
        solver = Solver("squared_hinge", self.config.cost, self.config.balanced, seed)
        return Linear("ratio", False, solver, self.config.keep)

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
        bags = self.grams.learn(rows.training)
        if rows.held_out is not None:
            bags = one_below_the_other(bags, self.grams.bags(rows.held_out))
        self.linear = self._made(train.seed)
        own = rows.labels[: rows.first_held_out]
        self.shares = shares(own, rows.training.known(), self.sizes.classes, self.config.balanced)
        tried = self.linear.fit(bags, rows.labels, self.sizes.classes, rows.first_held_out, (0, bags.width))
        for step, choice in enumerate(tried, 1):
            yield Record(step, "train", choice._asdict())

    def rows_logprobs(self, rows: Rows) -> Floats:
        return np.where(rows.known()[:, None], self.linear.class_logprobs(self.grams.bags(rows)), self.shares)

    def feature_weights(self) -> tuple[list[tuple[int, ...]], Floats]:
        return self.grams.spell(), self.linear.by_class()

    def save(self, folder: Path) -> None:
        arrays = {**self.grams.arrays(), **self.linear.arrays(), "shares": self.shares}
        write_arrays(Path(folder) / "model.safetensors", arrays)

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        self.grams.take(arrays, self.sizes.vocab_size)
        self.linear.take(arrays, (0, self.grams.width), self.sizes.classes)
        self.shares = np.array(arrays.numbers("shares", (self.sizes.classes,), -1e30, 0.0))

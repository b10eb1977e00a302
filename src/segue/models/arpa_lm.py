"""An n-gram model of another toolkit, imported from its ARPA file: probabilities and back-off weights as given.

    p(w|h) = p(h,w) as the file has it, where it has (h,w), else backoff(h) · p(w|h'), and p(w|h') where it has no h

h are the order - 1 tokens before w, and h' is h without its first token (back-off: Katz 1987). Whatever smoothing the
toolkit used (SRILM, KenLM), lower orders are mixed into the numbers already, so nothing is counted here. No training
makes such a model: `segue import FILE.arpa --out RUN` does (interop/arpa). START and STOP are as in models/ngram.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.models.base import Imported, ModelConfig, Sizes, TrainConfig
from segue.models.markov_lm import Floats, Ids, MarkovLm
from segue.ngrams.backoff_table import (
    BackoffTable,
    add_backoff,
    score_backoff,
    tables_of_arrays,
    tables_to_arrays,
)
from segue.ngrams.model_file import Arrays, write_arrays


class ArpaLm(Imported, MarkovLm):
    """A language model with the numbers of an ARPA file."""

    imports = "FILE.arpa"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        order: int = 1
        """The n of n-gram: a token is predicted from the order - 1 before it; as the file has it."""

        def __post_init__(self) -> None:
            if self.order < 1:
                raise ValueError(f"order is {self.order}; it must be 1 or more")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        """Nothing is trained."""

    config: Config

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        self.tables: list[BackoffTable] = []
        """Lowest order first; empty until the model is imported or loaded."""
        self._unigram: Floats = np.empty(0)

    @property
    def parameters_count(self) -> int:
        """Number of different n-grams stored, of all orders."""
        return sum(map(len, self.tables))

    def take(self, tables: list[BackoffTable]) -> None:
        """Take the numbers of a file, order by order."""
        self.tables = tables
        self._unigram = 10.0 ** tables[0].logp.astype(np.float64)

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`: the n-grams with their numbers."""
        write_arrays(Path(folder) / "model.safetensors", tables_to_arrays(self.tables))

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        self.take(tables_of_arrays(arrays, self.config.order, self.sizes.vocab_size))

    def _score_order(self, k: int, text: Ids, targets: Ids, contexts: Ids, p: Floats) -> None:
        score_backoff(*self.tables[k].arrays, text, targets, self.restart, contexts, p)

    def _add_order(self, k: int, context: int, p: Floats) -> None:
        add_backoff(*self.tables[k].arrays, context, p)

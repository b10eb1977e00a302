"""What the trainer asks of the training data: the batch of any step, at once.

A batch is a function of the seed and the step. Nothing is drawn beforehand and nothing is remembered, so a run that was
stopped goes on with the very batches that it would have had. Streams lays out running text, Rows lays out everything
else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from segue.batches.batch import Batch
from segue.batches.noise import Noise


@dataclass(frozen=True)
class Config:
    """The recipe's [batches]."""

    size: int = 0
    """Rows in one update (0: 32 for language models, 64 for rows); `tokens` replaces it."""
    length: int = 0
    """Tokens of a row in one step of running text; rows of other tasks are cut at it (0: 128, or 1,024 for rows)."""
    accumulate: int = 1
    """Parts that an update is computed in, one after the other, to save memory; the result is the same."""
    vary: bool = False
    """Draw the length of each step of running text near `length`, and scale the learning rate by it (AWD-LSTM)."""
    noise: Noise = "none"
    """Change what is read of running text: blank reads some tokens as unknown, so that it is not learnt by heart."""
    share: float = 0.15
    """Share of the tokens that noise changes."""
    tokens: int = 0
    """Tokens of rows in one update, padding included, source and target together, as 4096 (0: `size` rows)."""

    def __post_init__(self) -> None:
        if min(self.size, self.length, self.tokens) < 0 or self.accumulate < 1:
            raise ValueError("size, length and tokens must be 0 or more, accumulate 1 or more")
        if not 0 <= self.share < 1:
            raise ValueError(f"share={self.share} is not a share: expected 0 or more and less than 1")


class Batches(ABC):
    """Every batch of a run, by its step."""

    config: Config
    size: int
    """Rows in one update."""
    per_epoch: int
    """Steps in one epoch."""

    @property
    @abstractmethod
    def shapes(self) -> int | None:
        """How many shapes of batches there are, so that a GPU may record a step for each; None: many, or unknown."""

    @abstractmethod
    def at(self, step: int) -> list[Batch]:
        """Give the parts of the update at `step` (from 0): the same for the same seed, always."""

    def drawn(self, step: int) -> list[int]:
        """Count the tokens of each corpus that the first `step` steps read; nothing where there is only one corpus."""
        return []

    def rate_share(self, parts: list[Batch]) -> float:
        """Say what to multiply the learning rate of this update by."""
        return 1.0

"""The interface between training data and trainer: the batch of any step, computed directly.

A batch is a function of the seed and the step. Nothing is drawn in advance and nothing is remembered, so a resumed run
reads exactly the batches that it would have read. Streams and UnitRows make batches of running text, Rows of all else.
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
    """Batch size: rows in one update (0: 32 for running text, else 64); `tokens` replaces it unless you name it."""
    length: int = 0
    """Tokens a row reads in one step of running text; rows are cut at it (0: 128; rows 1,024; sound 3,000 frames)."""
    accumulate: int = 1
    """Gradient accumulation: compute an update in this many parts, to save memory; the result is the same."""
    vary: bool = False
    """Streams: draw the length of each step at random near `length` and scale the learning rate by it (AWD-LSTM)."""
    noise: Noise = "none"
    """Noise on what is read: blank, mask (bert), spans (t5 on running text), specaugment (sound), shift (pictures)."""
    share: float = 0.15
    """Share of the tokens that noise changes; of sound, of the frames or mels that a mask covers."""
    tokens: int = 0
    """Token batches: tokens, or squares of 8 x 8 pixels, of an update, padding included, as 4096 (0: `size` rows)."""

    masks: int = 0
    """Masked places: drawn anew in every epoch (0, RoBERTa), once (1, static), or so many times in turn (BERT: 10)."""
    whole_words: bool = False
    """Mask all pieces of a word together."""

    def __post_init__(self) -> None:
        if min(self.size, self.length, self.tokens, self.masks) < 0 or self.accumulate < 1:
            raise ValueError("size, length, tokens and masks must be 0 or more, accumulate 1 or more")
        if not 0 <= self.share < 1:
            raise ValueError(f"share={self.share} is not a share: expected 0 or more and less than 1")


class Batches(ABC):
    """Every batch of a run, by its step."""

    config: Config
    size: int
    """Rows in one update."""
    per_epoch: int
    """Steps in one epoch."""
    carries = False
    """Whether each row goes on where it ended in the step before, so that a model carries its state to it."""

    @property
    @abstractmethod
    def shapes(self) -> int | None:
        """Number of different batch shapes, so that a GPU can record a CUDA graph for each; None: many, or unknown."""

    @abstractmethod
    def at(self, step: int) -> list[Batch]:
        """Return the parts of the update at `step` (from 0); the same seed always gives the same."""

    def drawn(self, step: int) -> list[int]:
        """Count the tokens of each corpus that the first `step` steps read; empty if there is only one corpus."""
        return []

    def rate_share(self, parts: list[Batch]) -> float:
        """Return the factor for the learning rate of this update."""
        return 1.0

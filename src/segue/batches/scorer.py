"""The interface of everything that scores a text: models, mixtures, caches, and dynamic evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from segue.batches.batch import Batch

CARRIED = "each token after all those before it"


class Scorer(ABC):
    """Computes the probability of every token of a text; evaluation, mixtures and intervals need nothing else."""

    takes_tensors: ClassVar[bool] = False
    """Whether `logprobs` takes torch tensors on its device, or numpy arrays."""
    in_order: bool = False
    """Whether it learns from what it reads, so that it reads one row at a time, in the order of the text."""

    @property
    def window(self) -> int:
        """The context window: how many tokens the model sees at once; 0: unlimited."""
        return 0

    @property
    def way(self) -> str:
        """How a long text is read, in words for the tables of figures."""
        return CARRIED

    @abstractmethod
    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Any, Any]:
        """Return log p of each target (0 at IGNORE), and the state after the batch."""

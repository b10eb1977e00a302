"""What a text is scored by: a model, a mixture of models, a cache, a model that goes on learning while it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from segue.batches.batch import Batch

CARRIED = "state carried"


class Scorer(ABC):
    """Gives the probability of every token of a text. Evaluation, mixtures and intervals ask nothing else."""

    takes_tensors: ClassVar[bool] = False
    """Whether it reads torch tensors on its device; else numpy arrays."""

    @property
    def window(self) -> int:
        """The context window: how many tokens are seen at once; 0: all that came before counts."""
        return 0

    @property
    def way(self) -> str:
        """How a long text is read; it stands beside the figures."""
        return CARRIED

    @abstractmethod
    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Any, Any]:
        """(log p of each target, 0 at IGNORE; the state after the batch)."""

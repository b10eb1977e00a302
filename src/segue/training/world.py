"""The processes of a run, seen from one of them. With one process every method is a no-op; training/distributed.py has
the World of several, which torchrun starts. This file imports no torch: counting needs none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.batches.batch import Batch
from segue.models.base import Loss


def processes() -> int:
    """How many processes torchrun has started for this run; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process that reads, writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"


class World:
    """One process, alone."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def tell(self, value: Any = None) -> Any:
        """What the first process says, plain values, for all."""
        return value

    def wait(self) -> None:
        """Wait until every process is here."""
        self.tell(None)

    def add(self, value: Any) -> None:
        """The sum over all processes, in place."""

    def agree(self, flag: Any) -> None:
        """True where it is True in all processes, in place."""

    def gather(self, part: Any) -> list[Any]:
        """This tensor of every process, all of one shape."""
        return [part]

    def whole(self, part: Any) -> Any:
        """The rows of all processes, in dimension 1, in the order of the batch."""
        return part

    def rows(self, total: int) -> NDArray[np.int64]:
        """Which of so many rows are this process's."""
        return np.array_split(np.arange(total), self.size)[self.rank]

    def share(self, batch: Batch) -> Batch:
        """This process's rows."""
        return batch

    def check(self, rows: int, accumulate: int) -> None:
        """Refuse running text with fewer rows than processes."""

    def seed(self, seed: int) -> None:
        """From here on every process but the first draws numbers of its own: other rows, other dropout."""

    def wrapped(self, model: Any) -> Callable[[Batch, Any], Loss]:
        """What is called as the loss."""
        loss: Callable[[Batch, Any], Loss] = model.loss
        return loss

    def last_part(self, last: bool) -> None:
        """Whether the next backward pass is the last of an update: gradients are averaged over the processes then."""


def join(device: str) -> tuple[World, str]:
    """The processes that torchrun has started, and this one's device; alone, `device` is not looked at."""
    if processes() == 1:
        return World(), device
    from segue.training import distributed

    return distributed.join(device)

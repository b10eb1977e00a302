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
    """Return how many processes torchrun has started for this run; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process that reads, writes and prints for all."""
    return os.environ.get("RANK", "0") == "0"


class World:
    """One process, alone."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: Any = None) -> Any:
        """Return the first process's value, a plain JSON value, in all processes."""
        return value

    def wait(self) -> None:
        """Wait until every process is here."""
        self.broadcast(None)

    def add(self, value: Any) -> None:
        """Sum over all processes, in place (all-reduce)."""

    def agree(self, flag: Any) -> None:
        """Set to True where it is True in all processes, in place (all-reduce)."""

    def gather(self, part: Any) -> list[Any]:
        """Return this tensor of every process, all of one shape (all-gather)."""
        return [part]

    def whole(self, part: Any) -> Any:
        """Return the rows of all processes, in dimension 1, in the order of the batch."""
        return part

    def rows(self, total: int) -> NDArray[np.int64]:
        """Return which of `total` rows are this process's."""
        return np.array_split(np.arange(total), self.size)[self.rank]

    def share(self, batch: Batch) -> Batch:
        """Return this process's rows of a batch."""
        return batch

    def check(self, rows: int, accumulate: int) -> None:
        """Refuse running text with fewer rows than processes."""

    def seed(self, seed: int) -> None:
        """Give every process but the first random numbers of its own: different rows need different dropout."""

    def wrapped(self, model: Any) -> Callable[[Batch, Any], Loss]:
        """Return the function that computes the loss."""
        loss: Callable[[Batch, Any], Loss] = model.loss
        return loss

    def last_part(self, last: bool) -> None:
        """Announce whether the next backward pass is the last of an update: it averages gradients over processes."""


def join(device: str) -> tuple[World, str]:
    """Join the processes that torchrun has started; return the World and this process's device."""
    if processes() == 1:
        return World(), device
    from segue.training import distributed

    return distributed.join(device)

"""States of language models: the interface that beam search, servers and training use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

Array = Any
"""A numpy array in a counted model, a torch tensor in a network."""


class State(ABC):
    """What a language model remembers of the texts it has read, one row a text: hidden states, a KV cache."""

    most: int = 0
    """No row has more tokens in its window than this; 0 where a state has no window to fill."""
    source_places: int = 0
    """Places of the source that it keeps, padding included; 0: it keeps none."""
    attended_BS: Array = None
    """The attention that each place of the source has got, summed over the steps since `covering`; None: not summed."""

    def covering(self) -> Self:
        """Return the same state, which sums its attention over the source from here on; as it is where it has none."""
        return self

    def widened(self, source_places: int) -> Self:
        """Return the same state with its source padded to so many places, so that sources of many lengths share the
        memory of a recorded step; as it is where it keeps none, or more."""
        return self

    @property
    @abstractmethod
    def rows(self) -> Array:
        """0 … B - 1: all rows, as `select` takes them."""

    def spread(self, beams: int) -> Self:
        """Return each row `beams` times, side by side: the beams of one text, which may share what was read of its
        source."""
        rows = self.rows
        return self.select(rows[[row for row in range(len(rows)) for _ in range(beams)]])

    @abstractmethod
    def select(self, rows: Array, same_text: bool = False) -> Self:
        """Return these rows, in this order; a row may come twice. `same_text`: rows moved only within their source."""

    @abstractmethod
    def join(self, others: Sequence[Self]) -> Self:
        """Return the rows of this state and of others, one after the other: requests that came at different times."""


class Carried(State):
    """A state that training carries from one batch to the next: truncated backpropagation through time."""

    @abstractmethod
    def detach(self) -> Self:
        """Return the state without its gradient."""

    @abstractmethod
    def forget(self, fresh_B: Array) -> Self:
        """Reset the rows that begin a new text."""

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """Return the tensors for a checkpoint; dimension 1 is the row."""

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        """Rebuild the state from its `tensors`."""


class OneToken(ABC):
    """Rows that go on by one token each at a time: the same work in the same memory, so that it can be recorded."""

    most: int
    """Tokens of the longest row."""

    @property
    @abstractmethod
    def room(self) -> int:
        """Tokens that can be fed before the window is full."""

    @abstractmethod
    def take(self, state: Any) -> None:
        """Go on from another state of as many rows."""

    @abstractmethod
    def state(self) -> Any:
        """A state that `step` can go on from."""

    @abstractmethod
    def move(self, rows_B: Array, beams: int) -> None:
        """Go on with these rows, row i after what was row rows_B[i]; they stand in groups of `beams`, each the beams of
        one source that goes on."""

    @abstractmethod
    def reorder(self, rows_B: Array) -> None:
        """Do the same for as many rows as before, each within its source, in the same memory: what the device does for
        `move`, so that it can be recorded."""

    @abstractmethod
    def feed(self, ids_B: Array) -> Array:
        """Read one token of each row: logits_BV of the next."""

    @abstractmethod
    def read(self, ids_B: Array, seen: int, even: bool = False) -> Array:
        """What the device does for `feed`: it asks nothing of the device, and has the same shapes for the same `seen`.
        `even`: every row's new token stands at the last place seen."""

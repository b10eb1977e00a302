"""What a language model remembers of the texts it reads: the contract of states, for beams, servers and training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

Array = Any
"""A numpy array in a model that counts, a torch tensor in a network."""


class State(ABC):
    """What a language model remembers of the texts it reads, a row each."""

    most: int = 0
    """No row has more tokens in its window than this; 0 where a state has no window to fill."""

    @abstractmethod
    def select(self, rows: Array, same_text: bool = False) -> Self:
        """These rows, in this order; a row may come twice. `same_text`: beams changed places, their source did not."""

    @abstractmethod
    def join(self, others: Sequence[Self]) -> Self:
        """The rows of this state and of others, one after the other: requests that came at different times."""


class Carried(State):
    """A state that training carries from one batch to the next: truncated backpropagation through time."""

    @abstractmethod
    def detach(self) -> Self:
        """The same without its gradient."""

    @abstractmethod
    def forget(self, fresh_B: Array) -> Self:
        """Nothing read in the rows that begin anew."""

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """What a checkpoint keeps; rows stand in dimension 1."""

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        """The state that `tensors` was taken of."""


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
    def feed(self, ids_B: Array) -> Array:
        """Read one token of each row: logits_BV of the next."""

    @abstractmethod
    def read(self, ids_B: Array, seen: int, even: bool = False) -> Array:
        """What the device does for `feed`: it asks nothing of the device, and has the same shapes for the same `seen`.
        `even`: every row's new token stands at the last place seen."""

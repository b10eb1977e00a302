"""A model that can read and answer in text: what a run gives to tasks, pictures and servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from segue.batches.batch import Batch
from segue.batches.codec import Codec
from segue.batches.store import Columns
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.inference.decode_settings import Config as Decode


class Reader(Protocol):
    """How a typed line becomes a batch, and an example an answer. A task is one; tasks/ stands right of this folder."""

    def asked(self, text: str, data: Data) -> Example:
        """The example that one typed line stands for."""

    def encode(self, group: Sequence[Example], codec: Codec, labelled: bool = True) -> Columns:
        """The ids of some examples."""

    def collate(self, columns: Columns, limit: int) -> Batch:
        """Lay rows side by side, each cut at `limit`."""

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Any]:
        """One prediction an example."""


class Opened(NamedTuple):
    """A model with what it takes to read text and to answer in text. A run has one, and so has training."""

    model: Any
    codec: Codec
    decode: Decode
    limit: int
    """Tokens of a row that are read; what is longer is cut."""
    task: Reader
    device: str = "cpu"

    def fed(self, text: str) -> list[int]:
        """The ids that a language model reads of a text that goes on: as it is fed where it writes (decode.start)."""
        ids: list[int] = self.codec.tokenizer.encode(text).tolist()
        return [self.codec.sizes.start, *ids] if self.decode.starts(ids) else ids

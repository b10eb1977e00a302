"""A model that can read and answer in text: what a run gives to tasks, pictures and servers."""

from __future__ import annotations

from typing import Any, NamedTuple

from segue.batches.codec import Codec
from segue.inference.decode_settings import Config as Decode


class Opened(NamedTuple):
    """A model with what it takes to read text and to answer in text. A run has one, and so has training."""

    model: Any
    codec: Codec
    decode: Decode
    limit: int
    """Tokens of a row that are read; what is longer is cut."""
    device: str = "cpu"

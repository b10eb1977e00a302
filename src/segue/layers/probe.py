"""Inner values of layers, such as attention weights: `probe` does nothing, except inside a `with record()` block.

    with record() as seen:
        model(batch)
    seen["attention"]

Under each name stands a list with one value for each time that a layer called `probe("attention", value)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

Seen = dict[str, list[Any]]

# A context variable, not a global: a server may look into one request while it answers another.
_seen: ContextVar[Seen | None] = ContextVar("seen", default=None)


@contextmanager
def record() -> Iterator[Seen]:
    """Collect the inner values that layers give to `probe` while the block runs."""
    seen: Seen = {}
    token = _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.reset(token)


def recording() -> bool:
    """True inside `record()`: layers then compute by their equations, so that their inner values exist.

    Never in compiled code, which cannot ask and shows nothing.
    """
    return not torch.compiler.is_compiling() and _seen.get() is not None


def probe(name: str, value: Any) -> None:
    """Give `value` to the enclosing `record()`, if there is one."""
    seen = _seen.get()
    if seen is not None:
        seen.setdefault(name, []).append(value)

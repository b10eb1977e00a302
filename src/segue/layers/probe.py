"""Looking inside a layer: `probe` is silent, except inside a `with record()` block.

    with record() as seen:
        model(batch)
    seen["attention"]

What is seen under a name is a list: one value for each time that a layer said `probe("attention", value)`.
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
    """Collect what layers show while the block runs."""
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
    """Show `value` to whoever records."""
    seen = _seen.get()
    if seen is not None:
        seen.setdefault(name, []).append(value)

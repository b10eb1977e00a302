"""Saying that loops are being compiled: the first time takes seconds, and later ones find them on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


@contextmanager
def announced(progress: Callable[[str, float], None]) -> Iterator[None]:
    """Tells `progress` where something is compiled in here; not where it is loaded."""

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            progress("compiling, once", 0.0)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield

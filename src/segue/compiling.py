"""Announce that numba compiles a loop: that takes seconds the first time; later runs load it from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


@contextmanager
def announced(progress: Callable[[str, float], None]) -> Iterator[None]:
    """Call `progress` whenever numba compiles something in this block; loading compiled code is not announced."""

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            progress("compiling, once", 0.0)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield

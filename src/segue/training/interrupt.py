"""Ctrl-C and SIGTERM during training: the step is finished and saved, then the run ends. A second one ends it at once.

A signal in the middle of a step would leave weights that no checkpoint may hold; so it is only noted, and the trainer
asks after each step, and during a validation, which it drops and repeats when the run goes on.
"""

from __future__ import annotations

import signal
import threading
from typing import Any


class DroppedError(Exception):
    """A validation was dropped, since a signal came."""


class Interrupts:
    """Notes Ctrl-C (SIGINT) and SIGTERM from `begin` to `end`, in the main thread."""

    def __init__(self) -> None:
        self.signal = 0
        """The number of the signal that came; 0 as long as none did."""
        self._before: dict[int, Any] = {}

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):  # not where it is ignored
                    self._before[number] = signal.signal(number, self._came)

    def end(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _came(self, number: int, frame: Any) -> None:
        if self.signal:
            raise KeyboardInterrupt(number)
        self.signal = number

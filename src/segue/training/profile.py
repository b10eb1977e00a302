"""Where the time of training goes: data, forward, backward, optimiser, and what share of the machine is used.

A phase is timed to its end on the device, so that phases do not overlap and a profiled run is a little slower than
another. The peak is what this machine multiplies large matrices at, measured here, not what its maker says; the work of
a step is counted as 6 operations for each weight and token (Kaplan et al. 2020), attention's own left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

PHASES = ("data", "forward", "backward", "optimiser")


class Profile:
    """Seconds by phase."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.steps = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._wait()
        self.seconds[name] += time.perf_counter() - begun

    def _wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def forget(self) -> None:
        """Discard the times so far: they were warm-up."""
        self.seconds, self.steps = dict.fromkeys(PHASES, 0.0), 0

    def result(self, tokens: float, weights: int) -> dict[str, Any]:
        """Seconds a step and share of each phase; tokens a second; operations a second and the share of the peak.

        `tokens` of one step, and the `weights` that each token meets.
        """
        whole = sum(self.seconds.values())
        steps = max(1, self.steps)
        speed = tokens * steps / whole if whole else 0.0
        peak = self.peak()
        return {
            "phases": {
                name: {"seconds": seconds / steps, "share": seconds / whole if whole else 0.0}
                for name, seconds in self.seconds.items()
            },
            "tokens_per_second": speed,
            "operations_per_second": 6 * weights * speed,
            "peak": peak,
            "share_of_peak": 6 * weights * speed / peak,
        }

    def peak(self) -> float:
        """Operations a second of large matrix products, in the precision of training."""
        gpu = self.device.startswith("cuda")
        size, times = (8192, 20) if gpu else (1024, 5)
        a = torch.randn(size, size, device=self.device, dtype=torch.bfloat16 if gpu else torch.float32)
        best = float("inf")
        for _ in range(3):
            self._wait()
            begun = time.perf_counter()
            for _ in range(times):
                a @ a
            self._wait()
            best = min(best, (time.perf_counter() - begun) / times)
        return 2 * size**3 / best


def phase(profile: Profile | None, name: str) -> Any:
    return nullcontext() if profile is None else profile.phase(name)

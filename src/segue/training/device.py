"""Choose the device and the number of threads; keep freed memory."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from segue.errors import InputError


def has_driver() -> bool:
    """Whether an NVIDIA driver is there, without importing torch, which takes a second."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def check_device(device: str) -> None:
    """Refuse a name that is no device's, without importing torch."""
    kind, _, number = device.partition(":")
    if device != "auto" and (kind not in ("cpu", "cuda") or (number and not number.isdecimal())):
        raise InputError(f"--device {device} is not known. Expected auto, cpu, cuda or, for one of several, cuda:1.")


def pick_device(device: str) -> str:
    """Return the device to use; `auto` takes a GPU if there is one."""
    check_device(device)
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise InputError(f"There is no device {device} on this machine. Leave --device out, or say --device cpu.")
    return device


# Threads


PER_CORE = 4
"""The most threads for each core: with many more a step takes minutes, and with thousands torch crashes."""
_asked = 0
"""The threads that a verb was called with; 0: none were named."""


def possible(threads: int) -> bool:
    """Whether this machine can use so many threads."""
    return 0 <= threads <= PER_CORE * (os.cpu_count() or 1)


def check_threads(threads: int, named: str = "--threads ") -> None:
    """Refuse a number of threads that this machine cannot use."""
    cores = os.cpu_count() or 1
    if not possible(threads):
        raise InputError(
            f"{named}{threads} is not possible: this machine has {cores} core{'s' * (cores > 1)}. Expected 1 to "
            f"{PER_CORE * cores}; left out, Segue chooses."
        )


def set_threads(threads: int) -> None:
    """Compute with the number of CPU threads that the user named, from now on (0: none was)."""
    global _asked
    check_threads(threads)
    if threads:
        use(threads)
        _asked = threads


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Compute with this many CPU threads inside the block (0: as many as outside it), and after it with as many as
    before, whatever was set inside."""
    global _asked
    check_threads(threads)
    if not threads and "torch" not in sys.modules:
        yield  # counting needs no torch, which takes a second to import
        return
    asked, before = _asked, threads_in_use()
    try:
        set_threads(threads)
        yield
    finally:
        use(before)
        _asked = asked


def asked_threads() -> int:
    """Return how many threads the user named; 0 if none."""
    return _asked


def threads_in_use() -> int:
    """Return how many threads torch computes with."""
    import torch

    return torch.get_num_threads()


def use(threads: int) -> None:
    """Make torch compute with this many threads."""
    import torch

    if threads != torch.get_num_threads():  # a number that is set is 3 % slower than the same by default
        torch.set_num_threads(threads)


CLEARLY = 1.15
"""Fewer threads than all must be so many times as quick, so that chance does not decide from run to run."""
TRIAL = 0.3
"""Seconds that a trial of threads takes, or two steps with each number."""


def quickest(step: Callable[[], Any], most: int) -> tuple[int, float]:
    """Take steps with 1, 2, 4, … and `most` threads by turns. Return the number of threads that was clearly quickest,
    or `most`, and how many times as quick as with `most` it was."""
    counts = [*(1 << i for i in range((most - 1).bit_length())), most]
    took, begun, rounds = dict.fromkeys(counts, 0.0), time.perf_counter(), 0
    while rounds < 2 or time.perf_counter() - begun < TRIAL:
        for count in counts:
            use(count)
            started = time.perf_counter()
            step()
            if rounds:  # the first steps are slower: memory is found, kernels are chosen
                took[count] += time.perf_counter() - started
        rounds += 1
    best = min(counts, key=lambda count: took[count])
    share = took[most] / took[best]
    return (best, share) if share > CLEARLY else (most, 1.0)


class Others:
    """Measures how many cores all other programs together keep busy, from when it is made."""

    SHORTEST = 0.3
    """Seconds of measuring below which the answer is not known: the system counts hundredths of a second."""

    def __init__(self) -> None:
        self.begun, self.before = time.perf_counter(), _computed_by_others()

    def cores(self) -> float | None:
        """Return the number of cores, as 1.5; None if it is not known: too short a time, or not on Linux."""
        took, now = time.perf_counter() - self.begun, _computed_by_others()
        if self.before is None or now is None or took < self.SHORTEST or now < self.before - took / 10:
            return None  # a system that counts less than this process alone has computed does not count at all
        return max(0.0, now - self.before) / took


def _computed_by_others() -> float | None:
    """Return the seconds that all processors have computed for others than this process; None if it is not known."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
    except (OSError, ValueError):
        return None
    own = os.times()
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - sum(own[:4])


_since_start = Others()
BUSY = 0.3
"""Cores that other programs may use before fewer threads are thought of."""


def leave_room() -> None:
    """If other programs keep cores busy, and nobody named a number of threads, compute with the cores that are left."""
    busy, most = _since_start.cores(), threads_in_use()
    if _asked or os.environ.get("OMP_NUM_THREADS") or busy is None or busy <= BUSY:
        return
    use(max(1, most - round(busy)))


class FallingPace:
    """Notices that training has become much slower, as when another program begins, and halves the threads."""

    SECONDS = 2.0
    """Compare the pace of so many seconds."""

    def __init__(self) -> None:
        self.best, self.targets, self.seconds = 0.0, 0, 0.0

    def look(self, targets: int, seconds: float) -> int:
        """Halve the threads if the pace fell below half of the best one; return their new number, or 0."""
        took = seconds - self.seconds
        if took < self.SECONDS:
            return 0
        pace, self.targets, self.seconds = (targets - self.targets) / took, targets, seconds
        fewer = threads_in_use() // 2
        if pace >= self.best / 2 or not fewer:
            self.best = max(self.best, pace)
            return 0
        use(fewer)
        self.best = 0.0
        return fewer


# Memory


def keep_memory() -> None:
    """Make glibc keep freed memory blocks of up to 32 MB for the next step, instead of returning them to the system.

    The system would hand them out again page by page, filled with zeros, which can take longer than the computation
    that writes there.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most it takes
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Option numbers of mallopt in malloc.h."""

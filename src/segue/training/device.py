"""Choose the device and the number of threads; keep freed memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from segue.errors import InputError


def has_driver() -> bool:
    """Whether an NVIDIA driver is there, without importing torch, which takes a second."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def pick_device(device: str) -> str:
    """Return the device to use; `auto` takes a GPU if there is one."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise InputError(f"--device {device} is not known. Expected auto, cpu, cuda or, for one of several, cuda:1.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise InputError(f"There is no device {device} on this machine. Leave --device out, or say --device cpu.")
    return device


PER_CORE = 4
"""The most threads for each core: with many more a step takes minutes, and with thousands torch crashes."""
_asked = 0
"""The threads that a verb was called with; 0: none were named."""


def check_threads(threads: int, named: str = "--threads ") -> None:
    """Refuse a number of threads that this machine cannot use."""
    cores = os.cpu_count() or 1
    if not 0 <= threads <= PER_CORE * cores:
        raise InputError(
            f"{named}{threads} is not possible: this machine has {cores} core{'s' * (cores > 1)}. Expected 1 to "
            f"{PER_CORE * cores}; left out, Segue chooses."
        )


def set_threads(threads: int) -> None:
    """Compute with this many CPU threads from now on (0: leave it as it is)."""
    global _asked
    check_threads(threads)
    if threads:
        import torch

        torch.set_num_threads(threads)
        _asked = threads


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Compute with this many CPU threads inside the block (0: leave it as it is), and after it with as many as before,
    whatever was set inside."""
    global _asked
    check_threads(threads)
    if not threads and "torch" not in sys.modules:
        yield  # counting needs no torch, which takes a second to import
        return
    import torch

    asked, before = _asked, torch.get_num_threads()
    try:
        set_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)
        _asked = asked


def asked_threads() -> int:
    """Return how many threads the caller of the verb named; 0 if none."""
    return _asked


def threads_in_use() -> int:
    """Return how many threads torch computes with."""
    import torch

    return torch.get_num_threads()


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

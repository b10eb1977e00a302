"""Choose the device and the number of threads; keep freed memory."""

from __future__ import annotations

import ctypes
import sys

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


def set_threads(threads: int) -> int:
    """Use this many CPU threads (0: torch's own choice); return how many there are."""
    import torch

    if threads < 0:
        raise InputError(f"--threads {threads} is not possible: expected 1 or more, or 0 for as many as torch takes.")
    if threads:
        torch.set_num_threads(threads)
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

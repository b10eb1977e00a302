"""Compile loops with numba: it takes seconds the first time; later runs load them from a folder that can be written."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

if "colorama.initialise" in sys.modules:  # numba uses it if it is there
    vars(sys.modules["colorama.initialise"])["atexit_done"] = True  # or it would write to the terminal at the end


def njit(cache: bool = False, **options: Any) -> Any:
    """numba's njit. With `cache`, compiled code is kept on the disk if there is a place for it."""

    def compiled(function: Callable[..., Any]) -> Any:
        loop = numba.njit(**options)(function)
        if cache and _PLACE is not None:
            with suppress(RuntimeError):  # numba finds no folder for this file
                loop._cache = Cache(function)
        return loop

    return compiled


class Cache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function. A damaged file is removed and compiled anew; a full disk keeps nothing."""

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception:  # unpickling an empty, cut or overwritten file can raise nearly anything
            self._remove()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        with suppress(OSError):
            super().save_overload(signature, result)

    def _remove(self) -> None:
        with suppress(OSError):
            for path in Path(self.cache_path).glob(f"{self._impl.filename_base}.*"):
                path.unlink()


def _place() -> str | None:
    """Find where compiled code can be kept: "" is where numba itself keeps it, None is nowhere.

    numba takes the package's folder, or the user's cache. Where neither can be written to it raises an error; without
    a home folder it would make one that is called ~.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 (it raises no error)
    if _writable(Path(__file__).parent / "__pycache__") or (cache.is_absolute() and _writable(cache / "numba")):
        return ""
    with suppress(OSError, AttributeError):  # Windows has no getuid
        own = Path(tempfile.gettempdir()) / f"segue-compiled-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
        # What is loaded from there is run: nobody else may have made the folder or be able to write to it.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077 and _writable(own):
            return str(own)
    print(
        "Compiled loops cannot be kept, since no folder can be written to: they are compiled each time, which takes "
        "seconds. Set NUMBA_CACHE_DIR to a folder that can.",
        file=sys.stderr,
    )
    return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


_PLACE = numba.config.CACHE_DIR or _place()
if _PLACE:
    numba.config.CACHE_DIR = _PLACE


class Compiled(event.Listener):  # type: ignore[misc]
    """Announces that numba compiles something, and measures the seconds; loading compiled code does not count."""

    def __init__(self, progress: Callable[[str, float], None]) -> None:
        self.progress, self.seconds = progress, 0.0
        self._begun: list[float] = []
        """One function compiles another that it calls: when each began."""

    def on_start(self, event: Any) -> None:
        self._begun.append(time.perf_counter())
        self.progress("compiling, once", 0.0)

    def on_end(self, event: Any) -> None:
        begun = self._begun.pop()
        if not self._begun:
            self.seconds += time.perf_counter() - begun


@contextmanager
def announced(progress: Callable[[str, float], None]) -> Iterator[Compiled]:
    """Call `progress` whenever numba compiles something in this block, and measure how long that takes."""
    compiled = Compiled(progress)
    with event.install_listener("numba:compile", compiled):
        yield compiled

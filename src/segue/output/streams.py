"""Standard input, output and error as they may be found: in any encoding, closed, full, or a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from segue.output.visible import escapes, visible

if TYPE_CHECKING:
    from rich.console import Console


class ClosedPipeError(Exception):
    """The reader of standard output has closed it, as `| head` does: there is nothing left to do."""


class Output(io.TextIOBase):
    """Standard output or standard error. What it writes to a terminal is made visible, unless it is `styled`.

    What standard error cannot take is dropped: it must not stop the work. Standard output then raises, and whatever
    Python would still flush when it ends goes nowhere.
    """

    def __init__(self, stream: TextIO, error: bool = False, styled: bool = False) -> None:
        self.stream, self.error = stream, error
        self._shows = not styled and stream.isatty()
        self._failed: Exception | None = None
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="segue")

    def styled(self) -> Output:
        """The same stream for text with styles, whose writer makes visible what it got from data."""
        return Output(self.stream, self.error, styled=True)

    def write(self, text: str) -> int:
        with self._failing():
            self.stream.write(visible(text) if self._shows else text)
        return len(text)

    def flush(self) -> None:
        with self._failing():
            self.stream.flush()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        if self._failed:  # again: typer writes an empty text to try a stream, and ignores the error
            raise self._failed
        try:
            yield
        except OSError as error:
            with suppress(OSError):  # a stream in memory has no descriptor
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            if self.error:
                return
            self._failed = OSError(error.errno, error.strerror, "standard output")
            if isinstance(error, BrokenPipeError):
                self._failed = ClosedPipeError()
            raise self._failed from None

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


@contextmanager
def standard_streams(styled: bool = False) -> Iterator[None]:
    """Replace closed standard streams by the null device, and write through Output; `styled`: no text is of data."""
    closed = _open_closed()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Output(before[0], styled=styled), Output(before[1], error=True)
    if closed:
        print("Standard output is closed: what Segue prints is lost.", file=sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _open_closed() -> bool:
    """Open the null device for each standard stream that is closed; return whether standard output was.

    Otherwise the next file that is opened would get its number, and a library that prints would write into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    closed: bool = sys.stdout is None
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open(encoding="utf-8")
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")
    return closed


def open_console(stderr: bool = False, **options: Any) -> Console:
    """A console of rich on standard output or error, which shows the control characters of what it prints."""
    from rich.console import Console, RenderHook
    from rich.segment import Segment

    class Shown:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __rich_console__(self, console: Console, options: Any) -> Iterator[Segment]:
            for segment in console.render(self.inner, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Shown(one) for one in renderables]

    stream: Any = sys.stderr if stderr else sys.stdout
    file: Any = stream.styled() if isinstance(stream, Output) else None
    made = Console(stderr=stderr, file=file, color_system="auto" if escapes() else None, **options)
    made.push_render_hook(Hook())
    return made

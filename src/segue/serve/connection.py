"""A connection of the server: not more of them than the machine has descriptors for, and none that keeps it waiting."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 20.0
"""A request that is not here after so long is given up: clients that send nothing would keep others out."""
_OPEN = Path("/dev/fd")
"""The system lists here what this process has open."""
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's connection, with a limit of their number and of the time that a request may take to arrive."""

    most = 500
    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_BUSY)
            transport.close()
        else:
            self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.late:
            self.late.cancel()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self.late:
            self.late.cancel()
        self.late = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):  # not all of a request has come
            self.transport.abort()


def free_descriptors() -> int:
    """Return how many files and connections this process can still open."""
    if sys.platform == "win32":
        return 2 * Connection.most
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - (len(list(_OPEN.iterdir())) if _OPEN.is_dir() else 32)

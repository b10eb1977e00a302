"""`segue serve`: a page to play with runs, and the JSON API under it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from segue.errors import InputError

_FAREWELL = 2
"""Seconds that open connections get when the server shuts down."""


def serve(
    paths: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "auto",
    trust: bool = False,
    threads: int = 0,
) -> None:
    """Serve runs until interrupted; `port` 0 takes a free one."""
    if not (find_spec("fastapi") and find_spec("uvicorn")):
        raise InputError(
            "To serve, Segue needs fastapi and uvicorn. Install them in Segue's own folder: pip install '.[serve]'"
        )
    import uvicorn

    from segue.serve.app import create_app
    from segue.serve.engine import Engine
    from segue.training.device import set_threads

    set_threads(threads)
    with _listen(host, port) as listening:  # before the models are loaded, which may take long
        address, taken = listening.getsockname()[:2]
        local = ipaddress.ip_address(address).is_loopback
        app = create_app(Engine(paths, device, trust), local)
        settings = _settings(app)
        print(f"Segue is at http://{f'[{host}]' if ':' in host else host}:{taken}/ (Ctrl+C ends it)", flush=True)
        if not local:
            print("Whoever can reach this machine can use it: there is no password.", flush=True)
        with suppress(KeyboardInterrupt):  # Ctrl+C is the normal way to stop it
            uvicorn.Server(settings).run(sockets=[listening])


def _settings(app: Any) -> Any:
    """Settings of uvicorn. Half of the free descriptors are for connections. Python accepts a whole backlog before it
    looks at one of them, and if descriptors run out on the way it writes an error for each, again and again."""
    import uvicorn

    from segue.serve.connection import Connection, free_descriptors

    free = max(8, free_descriptors())
    Connection.most = min(Connection.most, free // 2)
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        backlog=min(128, free // 8),
        log_config=None,  # uvicorn's own would close the handlers of others, and absl's closes standard error with it
        log_level="warning",
        timeout_graceful_shutdown=_FAREWELL,
        server_header=False,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"Cannot listen on {host}, port {port}: {reason}. Choose another --host or --port.") from None

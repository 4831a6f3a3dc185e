"""Serve the pages until a signal stops the process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from tailrace.model.base.errors import TailraceError
from tailrace.serve.connections import BoundedConnection, Limits


class ListenError(TailraceError, OSError):
    """Raised if the server cannot listen at an address."""


@dataclass(frozen=True)
class Listener:
    """A socket that listens, and the address at which a browser reaches it."""

    socket: socket.socket
    host: str
    port: int

    @property
    def address(self) -> str:
        """The address for a browser on this machine."""
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{here}]' if ':' in here else here}:{self.port}/"


def listen(host: str, port: int) -> Listener:
    """Listen at an address; port 0 selects any free port. Raises `ListenError` if the server cannot listen there."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(place)
            opened.listen(128)
        except OSError:
            opened.close()
            raise
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ListenError(f"cannot listen at {host} port {port} ({why}): pass another --host, or --port 0") from None
    return Listener(opened, host, opened.getsockname()[1])


class _Server(uvicorn.Server):
    """A server that calls `started` when it has started and can answer requests."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell()


def serve(app: ASGIApp, at: Listener, started: Callable[[], None] = lambda: None, limits: Limits | None = None) -> None:
    """Serve an application until the process receives SIGINT or SIGTERM.

    Requested addresses are not logged because they may contain the token.
    """
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=cast(type[asyncio.Protocol], partial(BoundedConnection, limits=limits or Limits())),
        timeout_graceful_shutdown=1,
    )
    # After Ctrl-C, uvicorn closes the open pages and then raises `KeyboardInterrupt`. Ctrl-C is the normal way to stop
    # the server, so the exception is not an error.
    with closing(at.socket), suppress(KeyboardInterrupt):
        _Server(config, started).run(sockets=[at.socket])

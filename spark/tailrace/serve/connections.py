"""Limit the server's connections: their number, and the time that a client may take to send requests or read responses.

Clients can connect without a token, so the server must prevent silent connections from keeping other clients out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class Limits:
    """The limits on connections. Times are in seconds.

    `sockets` is the maximum number of open connections. `asking` is the maximum time that a client may take until its
    whole request (headers and body) has arrived. `reading` is the maximum time for which a client may stop reading a
    response.
    """

    sockets: int = 200
    asking: float = 10.0
    reading: float = 30.0


_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


class BoundedConnection(H11Protocol):
    """A connection that is closed when it exceeds the limits.

    If too many connections are open, the server closes a silent connection (one without a request in progress) to make
    room for a new connection. The server selects the client address that has the most silent connections. Among the
    connections of this client address, the server closes the connection that has been silent the longest. Silent
    connections therefore cannot keep a visitor out.
    """

    def __init__(self, *args: Any, limits: Limits, **named: Any) -> None:
        super().__init__(*args, **named)
        self.limits = limits
        self.since = self.loop.time()
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    @property
    def silent(self) -> bool:
        """True if the server is not answering any request from this connection."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.sockets:
            others = (one for one in self.connections if isinstance(one, BoundedConnection) and one is not self)
            if (makes_room := _longest_silent(others)) is None:
                transport.write(_BUSY)
                transport.close()
                return
            makes_room.drop()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self._reading or self.loop.call_later(self.limits.reading, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading = self._without(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._asking, self._reading = self._without(self._asking), self._without(self._reading)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once and discard the data that is still waiting to be sent."""
        # Stop counting the connection now, because the event loop reports the loss of the connection only later.
        self.connections.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        """Start the timer for the next request if no request is being answered; otherwise, stop the timer.

        If the timer is already running, it continues, so a client cannot extend the time by sending a few bytes.
        """
        if not self.silent:
            self._asking = self._without(self._asking)
        elif self._asking is None and not self.transport.is_closing():
            self._asking = self.loop.call_later(self.limits.asking, self.drop)

    def _without(self, timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
        if timer is not None:
            timer.cancel()
        return None


def _longest_silent(connections: Iterable[BoundedConnection]) -> BoundedConnection | None:
    silent = [one for one in connections if one.silent]
    counts = Counter(one.client and one.client[0] for one in silent)
    return max(silent, key=lambda one: (counts[one.client and one.client[0]], -one.since), default=None)

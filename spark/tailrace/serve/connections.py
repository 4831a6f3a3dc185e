"""Bound the connections: the time that one may take to ask and to read, and their number at once.

A visitor needs no token to connect, so whoever connects and says nothing must cost others nothing.
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
    """What connections may hold. Times are in seconds.

    `sockets` are open at most. `asking` is the time in which a whole request has to come, its headers and its body;
    `reading` the time that a visitor may take no byte of an answer which is there.
    """

    sockets: int = 200
    asking: float = 10.0
    reading: float = 30.0


_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


class BoundedConnection(H11Protocol):
    """A connection that is closed where it goes past the limits.

    Where there are too many, one that has asked nothing yet makes room: the longest there of the address that has most
    of these. So no number of silent connections keeps a visitor out.
    """

    def __init__(self, *args: Any, limits: Limits, **named: Any) -> None:
        super().__init__(*args, **named)
        self.limits = limits
        self.since = self.loop.time()
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    @property
    def silent(self) -> bool:
        """Whether no request of it is being answered."""
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
        """End the connection at once, and what waits to be sent with it."""
        # It counts no more from now on, though the loop tells that it is lost only later.
        self.connections.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        """Let the time to ask run while no request is being answered; bytes that trickle in do not set it back."""
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

"""Use server-sent events to notify open pages when tables change. All pages share one poll of the catalog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.definition import Definition
from tailrace.serve.reading.stage_overview import tables_digest

EVERY = 1.0
"""The minimum pause between two polls of the catalog, in seconds.

If a poll is slow, the pause is nine times as long as the poll, so that polls take at most a tenth of the time.
"""

SILENT = 15.0
"""If there is no event for this time, in seconds, the server sends a comment to the page to detect a lost
connection.
"""

MOST_LISTENERS = 64
"""The maximum number of pages that receive events at the same time; any further page does not refresh itself."""


class NewsFeed:
    """The feed that tells open pages when a lake's tables change. The catalog is polled only while a page is open."""

    def __init__(self, lake: Lake, stages: Sequence[Definition]) -> None:
        self.lake, self.stages = lake, tuple(stages)
        self.listeners = 0
        self._looked, self._pause, self._found = 0.0, EVERY, ""
        self._lock = asyncio.Lock()

    async def _look(self) -> str:
        """Return a digest of the tables' state; poll the catalog only if the last poll is too old."""
        async with self._lock:
            if time.monotonic() - self._looked >= self._pause:
                began = time.monotonic()
                self._found = await run_in_threadpool(tables_digest, self.lake, self.stages)
                self._looked = time.monotonic()
                self._pause = max(EVERY, 9 * (self._looked - began))
            return self._found

    async def events(self, request: Request) -> AsyncIterator[str]:
        """Yield an event for each change of the tables until the page is closed."""
        if self.listeners >= MOST_LISTENERS:
            return
        self.listeners += 1
        try:
            told, spoke = None, time.monotonic()
            yield "retry: 5000\n\n"
            while not await request.is_disconnected():
                found = await self._look()
                if found != told:
                    told, spoke = found, time.monotonic()
                    yield f"data: {found}\n\n"
                elif time.monotonic() - spoke >= SILENT:
                    spoke = time.monotonic()
                    yield ": nothing new\n\n"
                await asyncio.sleep(self._pause)
        finally:
            self.listeners -= 1

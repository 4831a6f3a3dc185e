"""Notify open pages when the tables have changed: server-sent events, with one shared poll of the catalog."""

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
"""The minimum time between two polls of the catalog, in seconds; polls take up at most a tenth of the time."""

SILENT = 15.0
"""Seconds without an event after which a page receives a comment, so that a lost connection is noticed."""

MOST_LISTENERS = 64
"""The maximum number of pages that listen at once; any further page still works but does not refresh itself."""


class NewsFeed:
    """The news about a lake's tables for all open pages. Nothing polls the catalog while no page is open."""

    def __init__(self, lake: Lake, stages: Sequence[Definition]) -> None:
        self.lake, self.stages = lake, tuple(stages)
        self.listeners = 0
        self._looked, self._pause, self._found = 0.0, EVERY, ""
        self._lock = asyncio.Lock()

    async def _look(self) -> str:
        """Return the state of the tables; poll the catalog unless another page has just polled it."""
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

"""The web application: pages, the files that they need, and the news; a failure is a page with a sentence."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.errors import TailraceError
from tailrace.observe.serving.guard import Access, Guard
from tailrace.observe.serving.lake_pages import LakePages, Served, environment, named_pages
from tailrace.observe.serving.news_feed import NewsFeed
from tailrace.observe.serving.reading.event_time import RangeError
from tailrace.observe.serving.reading.lake_reader import Reader, SlowError
from tailrace.observe.serving.reading.shown_text import shown
from tailrace.observe.serving.reading.stage_overview import LastStates

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_VEGA = "vega.js"

LONGEST = 1000
"""The most characters of an error that a page shows."""


class ServeMissingError(TailraceError, ImportError):
    """The libraries that draw are not installed."""


@cache
def _static(name: str) -> bytes:
    """Return a file that pages need, which never changes while the process runs: there are four."""
    if name != _VEGA:
        return files("tailrace.observe.serving").joinpath("static", name).read_bytes()
    try:
        import vl_convert
    except ImportError:
        raise ServeMissingError("vl-convert-python is not installed: install tailrace[plot]") from None
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode()


@cache
def static_address(name: str) -> str:
    """Return the address of a file that pages need; another content has another address, so that it may be kept."""
    return f"/static/{hashlib.sha256(_static(name)).hexdigest()[:12]}/{name}"


def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in (*_STATIC, _VEGA):
        raise HTTPException(404, "there is no such file")
    keep = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(_static(name), media_type=_STATIC.get(name, "text/javascript"), headers=keep)


@dataclass(frozen=True)
class Failures:
    """What is said where a page cannot be made. `tell` hears in a line what the page does not say."""

    pages: LakePages
    tell: Callable[[str], None]

    def page(self, status: int, says: str) -> Response:
        """Make a page with a sentence."""
        stages = [(name, "") for name in self.pages.served.stages]
        text = self.pages.templates.get_template("failure.html").render(
            title="Not shown", stages=stages, stage=None, status=status, says=says
        )
        return HTMLResponse(text, status)

    def http(self, request: Request, error: Exception) -> Response:
        """Answer where there is no such page."""
        known = isinstance(error, HTTPException)
        return self.page(error.status_code if known else 404, str(error.detail) if known else "there is no such page")  # type: ignore[attr-defined]

    def told(self, request: Request, error: TailraceError) -> Response:
        """Answer where the lake or the address is not as it should be: the error says what mends it."""
        status = {RangeError: 400, SlowError: 503}.get(type(error), 500)
        return self.page(status, shown(str(error), LONGEST))

    def unexpected(self, request: Request, error: Exception) -> Response:
        """Answer where the fault is the page's own, and tell the terminal in a line."""
        first = next(iter(str(error).splitlines()), "")[:300]
        self.tell(f"{request.url.path[:200]!r} could not be shown: {type(error).__name__}: {shown(first)}")
        return self.page(500, "this page could not be made; the terminal of tailrace serve says why")


def _warm() -> None:
    """Make what the first picture would wait for seconds for; where nothing can be drawn, its page says so."""
    with suppress(TailraceError):
        static_address(_VEGA)


def application(
    lake: Lake,
    served: Served,
    access: Access,
    *,
    cookie: str = "tailrace",
    airflow: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ASGIApp:
    """Make the application. It reads the lake as it stands at each request, and keeps nothing of it."""
    templates = environment()
    templates.globals |= {"static": static_address, "vega": _VEGA}
    reader = Reader.of(lake)
    pages = LakePages(reader, served, airflow, templates, LastStates(lake))
    news, failures = NewsFeed(lake, list(served.stages.values())), Failures(pages, tell)

    def guarded(make: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def page(request: Request) -> Response:
            try:
                return make(request)
            except HTTPException:
                raise
            except TailraceError as error:
                return failures.told(request, error)
            except Exception as error:
                return failures.unexpected(request, error)

        return page

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(news.events(request), media_type="text/event-stream")

    @asynccontextmanager
    async def life(_: Any) -> Any:
        warm = asyncio.create_task(run_in_threadpool(_warm))
        yield
        await warm
        reader.close()

    app = Starlette(
        routes=[
            *(Route(path, guarded(make)) for path, make in named_pages(pages)),
            Route("/events", events),
            Route("/static/{version}/{name}", guarded(_file)),
        ],
        exception_handlers={HTTPException: failures.http},
        lifespan=life,
    )
    return Guard(app, access, cookie)

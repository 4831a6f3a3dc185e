"""The web application: pages, their static files, and change events. Errors appear as pages with a short message."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.upkeep.diagnosis import explain_error
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import moment
from tailrace.serve.guard import Access, Guard
from tailrace.serve.lake_pages import PAGES, LakePages, ServedDefinitions, environment
from tailrace.serve.news_feed import NewsFeed
from tailrace.serve.reading.event_time import RangeError
from tailrace.serve.reading.lake_reader import Reader, SlowError
from tailrace.serve.reading.shown_text import value_text
from tailrace.serve.reading.stage_overview import LastStates

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_VEGA = "vega.js"

_BUNDLE = (
    "import sys, vl_convert\n"
    "sys.stdout.buffer.write(vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;').encode())"
)

_MAKING = Lock()

PATIENCE = 5.0
"""The maximum time for which the first read of the lake delays the server's start, in seconds."""

LONGEST = 1000
"""The maximum length of an error message on a page, in characters."""


class ServeMissingError(TailraceError, ImportError):
    """Raised if the drawing libraries are not installed."""


@cache
def _static(name: str) -> bytes:
    """Return one of the three static files of the pages. The files never change while the process runs."""
    return files("tailrace.serve").joinpath("static", name).read_bytes()


@cache
def _drawing_script() -> bytes:
    """Build the drawing script in another process.

    Building the script takes about a second, during which this process could not do anything else.
    """
    made = subprocess.run([sys.executable, "-c", _BUNDLE], capture_output=True, check=False)
    if made.returncode:
        raise ServeMissingError(
            "vl-convert-python makes no script that draws: pip install --force-reinstall 'tailrace[plot]'"
        )
    return made.stdout


def _drawing_version() -> bytes:
    """Return bytes that identify the content of the drawing script, without building the script."""
    try:
        return f"{version('vl-convert-python')} {_BUNDLE}".encode()
    except PackageNotFoundError:
        raise ServeMissingError("vl-convert-python is not installed: pip install 'tailrace[plot]'") from None


@cache
def static_address(name: str) -> str:
    """Return the address of a static file of the pages.

    The address changes with the file's content, so browsers may cache the file.
    """
    content = _drawing_version() if name == _VEGA else _static(name)
    return f"/static/{hashlib.sha256(content).hexdigest()[:12]}/{name}"


def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in (*_STATIC, _VEGA):
        raise HTTPException(404, "there is no such file")
    keep = {"Cache-Control": "public, max-age=31536000, immutable"}
    if name == _VEGA:
        with _MAKING:
            content = _drawing_script()
    else:
        content = _static(name)
    return Response(content, media_type=_STATIC.get(name, "text/javascript"), headers=keep)


@dataclass(frozen=True)
class Failures:
    """The responses for pages that cannot be shown. `tell` is called with one line for each unexpected error."""

    pages: LakePages
    tell: Callable[[str], None]

    def respond(self, request: Request, error: Exception) -> Response:
        """Return a page with a sentence about an error.

        An error in the lake or in the address has a message that names the remedy. An error in the page's code is also
        described in one line on the terminal.
        """
        if isinstance(error, HTTPException):
            status, says = error.status_code, str(error.detail)
        elif isinstance(error, TailraceError):
            status, says = {RangeError: 400, SlowError: 503}.get(type(error), 500), value_text(str(error), LONGEST)
        else:
            first = next(iter(str(error).splitlines()), "")[:300]
            self.tell(f"{request.url.path[:200]!r} could not be shown: {type(error).__name__}: {value_text(first)}")
            status, says = 500, "this page could not be made; the terminal of tailrace serve says why"
        return self.pages.render("failure.html", "Not shown", status=status, says=says)


def _warm_pictures() -> None:
    """Load the drawing libraries in advance, because loading them later would delay a plot by about a second.

    If drawing is not possible, for example because a library is missing, the error is ignored here. The page with the
    plot reports the error later.
    """
    with suppress(TailraceError):
        from tailrace.plots.chart import vega
        from tailrace.plots.plot import PanePlot, PlotRecord

        vega(PanePlot("", "", "", "", records=[PlotRecord(moment(0), moment(0), "")]))
        with _MAKING:
            _drawing_script()


def application(
    lake: Lake,
    served: ServedDefinitions,
    access: Access,
    *,
    cookie: str = "tailrace",
    airflow: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ASGIApp:
    """Create the application, which reads the current state of the lake at each request."""
    templates = environment()
    templates.globals |= {"static": static_address, "vega": _VEGA}
    reader = Reader.of(lake)
    pages = LakePages(reader, served, airflow, templates, LastStates())
    news, failures = NewsFeed(lake, list(served.stages.values())), Failures(pages, tell)

    def guarded(make: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def page(request: Request) -> Response:
            try:
                return make(request)
            except HTTPException as error:
                return failures.respond(request, error)
            except Exception as error:
                return failures.respond(request, explain_error(error, lake.settings))

        return page

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(news.events(request), media_type="text/event-stream")

    @asynccontextmanager
    async def life(_: Any) -> Any:
        # Read the lake once in advance, so that no visitor has to wait for the imports and the planning of files.
        first = asyncio.create_task(run_in_threadpool(pages.warm))
        await asyncio.wait([first], timeout=PATIENCE)
        pictures = asyncio.create_task(run_in_threadpool(_warm_pictures))
        yield
        await asyncio.gather(first, pictures)
        reader.close()

    app = Starlette(
        routes=[
            *(Route(path, guarded(partial(make, pages))) for path, make in PAGES.items()),
            Route("/events", events),
            Route("/static/{version}/{name}", guarded(_file)),
        ],
        exception_handlers={HTTPException: failures.respond},
        lifespan=life,
    )
    return Guard(app, access, cookie)

"""The pages of a small lake, asked for without a browser, and what a browser would make of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

from starlette.testclient import TestClient

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.model.base.time import instant
from tailrace.model.definition.definition import Definition
from tailrace.serve.guard import Access
from tailrace.serve.lake_pages import ServedDefinitions
from tailrace.serve.web_application import application
from tests.support.lakes.small_lake import HOURLY, append, at, pane

HERE = "http://127.0.0.1"
BASE = f"/stages/{HOURLY.name}"


@contextmanager
def visited(
    lake: Lake, *stages: Definition, access: Access | None = None, airflow: str | None = None
) -> Iterator[TestClient]:
    """A visitor of the pages of a lake, whose terminal must have nothing to tell."""
    told: list[str] = []
    served = ServedDefinitions({f"{stage.name}.py": stage for stage in stages or (HOURLY,)})
    app = application(lake, served, access or Access.of("127.0.0.1", None), airflow=airflow, tell=told.append)
    with TestClient(app, base_url=HERE, follow_redirects=False) as client:
        yield client
    assert told == []


def corrected(lake: Lake) -> str:
    """Enter a backfill of the small lake's day that corrected Oslo's window of nine o'clock; return the run."""
    runs = Runs(lake, HOURLY)
    run = runs.start("backfill", instant(at(0)), instant(at(12)), log_epoch=2, reason="a <b>late</b> ride")
    said = lake.head(f"{HOURLY.name}__ledger").properties
    rows = [
        pane("Oslo", 9, 2, 0, (3, 1234.5), "correction", back=True),
        pane("Oslo", 9, 2, 0, (4, 925.0), "correction"),
    ]
    own = {"generation": run.generation, "writer": "backfill"}
    append(lake, f"{HOURLY.name}__ledger", [row | own for row in rows], said)
    runs.note(run, status="committed", changed=1, untouched=2, retracted=0)
    return run.run


class Seen(HTMLParser):
    """What a browser makes of a page: its text, its elements with their attributes, and scripts within it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """The page's text, with each run of white space as one space."""
        return " ".join(" ".join(self.texts).split())

    @property
    def links(self) -> list[str]:
        """The addresses that the page leads to."""
        return [link for tag, attributes in self.elements if tag == "a" and (link := attributes.get("href"))]


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """The files below a folder with their sizes and when each was written."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

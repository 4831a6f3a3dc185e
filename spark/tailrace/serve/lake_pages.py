"""The pages: each page reads data from the lake, and shows the data with a template that escapes all values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from types import MappingProxyType
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tailrace.lake.catalog.events import unread_files
from tailrace.lake.corrections.stages_behind import backfills_of
from tailrace.lake.read.late_records import propose_backfills
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.definition.chain import chain, keeping_answers
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plots.plot_page import templates
from tailrace.serve.airflow_links import Remedy, remedy
from tailrace.serve.reading import shown_text
from tailrace.serve.reading.event_grid import answer_list, event_grid, extent, whole_units
from tailrace.serve.reading.event_time import TimeRange, address_text, wider
from tailrace.serve.reading.lake_reader import Reader
from tailrace.serve.reading.record_search import MOST_LETTERS, search
from tailrace.serve.reading.run_changes import run_changes
from tailrace.serve.reading.stage_overview import LastStates, late_state, runs_of
from tailrace.serve.reading.stage_rows import ALL, NoTablesError, StageRows, late_rows
from tailrace.serve.reading.window_story import MOST_RECORDS, WindowStory, window_story
from tailrace.trace.wanted_records import line_number, place_text

T = TypeVar("T")

MOST_PAGES = 100_000
"""The highest page number that a request may ask for. A higher number shows this page instead."""


@dataclass(frozen=True)
class ServedDefinitions:
    """The definitions that the pages show. The key of each definition is the text with which the user specified it."""

    definitions: Mapping[str, Definition]

    @property
    def stages(self) -> dict[str, Definition]:
        """The stages by name. A stage comes after the stages whose output it reads, and appears only once."""
        return {stage.name: stage for one in self.definitions.values() for stage in chain(one)}

    def text_of(self, stage: Definition) -> str:
        """Return the text with which the user specified the first definition that includes a stage."""
        return next(text for text, one in self.definitions.items() if stage.name in {s.name for s in chain(one)})


def environment() -> jinja2.Environment:
    """Create the Jinja environment for the templates, with the functions that the templates call."""
    made = templates("tailrace.serve")
    names = ("value_text", "instant_text", "second_text", "window_text", "span_text", "count_text", "compact")
    made.globals |= {name: getattr(shown_text, name) for name in names}
    made.globals |= {one.__name__: one for one in (heat, address, unread_files, line_number, place_text, wider)}
    made.globals["most_records"] = MOST_RECORDS
    made.filters["at"] = address_text
    return made


def heat(count: int, most: int) -> int:
    """Return the colour intensity of a cell as a number from 0 to 5.

    The intensity grows with the cell's count, relative to the largest count in the same line.

    >>> heat(0, 10), heat(1, 1000), heat(10, 10)
    (0, 1, 5)
    """
    return 0 if not count else max(1, min(5, round(5 * (count / most) ** 0.5)))


def address(path: str, values: Mapping[str, object] = MappingProxyType({}), **more: object) -> str:
    """Build a URL path with a query string. Values that are None are left out.

    >>> address("/stages/hourly", {"from": "2013"}, page=2, key=None)
    '/stages/hourly?from=2013&page=2'
    """
    query = urlencode({name: value for name, value in {**values, **more}.items() if value is not None})
    return f"{path}?{query}" if query else path


def page_links(request: Request, more: bool, query: Mapping[str, object] = MappingProxyType({})) -> dict[str, Any]:
    """Return the addresses of a table's previous page and next page; an address is None if there is no such page.

    `more` is True if rows follow the page that the request names.
    """
    path, page = request.url.path, _page_of(request)
    return {
        "before": address(path, query, page=page - 1) if page else None,
        "after": address(path, query, page=page + 1) if more else None,
    }


@dataclass(frozen=True)
class LakePages:
    """The pages of a lake. `airflow` is the address of an Airflow server, or None if it is not known."""

    reader: Reader
    served: ServedDefinitions
    airflow: str | None
    templates: jinja2.Environment
    states: LastStates

    def render(
        self, template: str, title: str = "", *, stage: Definition | None = None, status: int = 200, **values: Any
    ) -> Response:
        """Render a page from its template.

        If `stage` is given, the page also shows the stage's tabs, and its title is the stage's name.
        """
        if stage is not None:
            tabs = {"time": "Event time", "late": "Late records", "runs": "Runs", "definition": "Definition"}
            absent = {"late": not stage.repairs_late, "runs": tables_of(stage).runs is None}
            values |= {"kind": stage.kind_name, "windowed": stage.windowed, "path": f"/stages/{stage.name}"}
            values["tabs"] = {name: text for name, text in tabs.items() if not absent.get(name)}
        stages = [(name, one.kind_name) for name, one in self.served.stages.items()]
        name = None if stage is None else stage.name
        values |= {"title": name or title, "stages": stages, "stage": name, "status": status}
        return HTMLResponse(self.templates.get_template(template).render(values), status)

    def _stage(self, request: Request) -> Definition:
        found = self.served.stages.get(request.path_params["stage"])
        if found is None:
            raise HTTPException(404, "no definition of this name is shown here")
        return found

    def warm(self) -> None:
        """Read the state of every stage before the first request.

        Errors are ignored, because the pages report these errors later.
        """
        with suppress(Exception), self.reader.session() as session:
            for stage in self.served.stages.values():
                self.states.of(session, stage)

    def overview(self, request: Request) -> Response:
        """Show the state of every stage."""
        with self.reader.session() as session:
            states = [self.states.of(session, stage) for stage in self.served.stages.values()]
        settings, remedies = self.reader.lake.settings, dict[str, list[Any]]()
        for state in states:
            stage = self.served.stages[state.name]
            remedies[state.name] = [self._remedy(stage, *one) for one in backfills_of(state.lacks)]
        return self.render("overview.html", "Overview", states=states, remedies=remedies, namespace=settings.namespace)

    def time(self, request: Request) -> Response:
        """Show the answers in a range of event time, and which runs computed the answers in each part of the range."""
        stage, page, generation = self._stage(request), _page_of(request), _number(request, "generation")
        asked = _range_of(request)
        with self.reader.session() as session:
            try:
                rows = StageRows.of(session.lake, stage)
            except NoTablesError:
                return self.render("not_yet.html", stage=stage, definition=self.served.text_of(stage))
            runs, files = runs_of(session.lake, stage), ALL if asked is None else whole_units(asked, rows.own.step)
            with (
                rows.open_rows(session, files, (*rows.keys, *rows.values)) as named,
                late_rows(session, stage.name, windowed=rows.windowed) as late,
            ):
                range = asked or extent(session, named, late)
                grid = range and event_grid(
                    session, named, late, range, runs, step=rows.own.step, unbounded=asked is None
                )
                # If the request names no range, list the rows of the whole table, page by page.
                listed = answer_list(session, rows, named, asked or ALL, page, generation)
        where = (asked.query if asked is not None else {}) | ({} if generation is None else {"generation": generation})
        shown: dict[str, Any] = {"grid": grid, "asked": asked, "listed": listed, "generation": generation}
        return self.render("time.html", stage=stage, **shown, **page_links(request, listed.more, where))

    def window(self, request: Request) -> Response:
        """Show the history of one window of a key."""
        story = self._story(request)
        query = {**story.window.query, "key": request.query_params.get("key", "")}
        value = request.query_params.get("value")
        drawn = value if value in story.drawn_values else next(iter(story.drawn_values), None)
        return self.render("window.html", stage=story.pipeline, story=story, query=query, drawn=drawn)

    def plot(self, request: Request) -> Response:
        """Return the plot of one window of a key as JSON, for the script that draws the plot."""
        from tailrace.plots.chart import vega

        plot = self._story(request).plot(request.query_params.get("value"))
        return JSONResponse(vega(plot, dark=request.query_params.get("dark") == "1"))

    def _story(self, request: Request) -> WindowStory:
        stage, window = self._stage(request), _range_of(request)
        if not stage.windowed or window is None:
            raise HTTPException(404, "there is no such window")
        with self.reader.session() as session:
            found = window_story(session, cast("Pipeline", stage), window, request.query_params.get("key", "")[:64])
        if found is None:
            raise HTTPException(404, "the ledger has nothing of this key and window")
        return found

    def late(self, request: Request) -> Response:
        """Show the event-time ranges with late records that are in no answer, and the backfills that would add these
        records.
        """
        stage = self._stage(request)
        if not stage.repairs_late:
            raise HTTPException(404, f"a {stage.kind_name} has no late records for a backfill to take in")
        with self.reader.session() as session:
            report = late_state(session, stage)
        ranges, links = self._one_page(request, () if report is None else report.ranges)
        rows = [
            (one, TimeRange(one.first, one.last), report.wait(one), self._remedy(stage, one.first, one.last))
            for one in ranges
            if report is not None
        ]
        wanted = [] if report is None else [self._remedy(stage, *one) for one in propose_backfills(report.ready)]
        return self.render("late.html", stage=stage, report=report, ranges=rows, remedies=wanted, **links)

    def _one_page(self, request: Request, rows: Sequence[T]) -> tuple[Sequence[T], dict[str, Any]]:
        """Return the rows on the page that a request names, and the links to the page before and the page after."""
        first, most = _page_of(request) * self.reader.rows, self.reader.rows
        return rows[first : first + most], page_links(request, len(rows) > first + most)

    def _remedy(self, stage: Definition, first: int, last: int) -> Remedy:
        return remedy(self.served.text_of(stage), stage.name, TimeRange(first, last), self.airflow)

    def runs(self, request: Request) -> Response:
        """Show a stage's runs, latest first."""
        stage = self._stage(request)
        with self.reader.session() as session:
            runs = runs_of(session.lake, stage)[::-1]
        shown, links = self._one_page(request, runs)
        return self.render("runs.html", stage=stage, runs=shown, total=len(runs), **links)

    def run(self, request: Request) -> Response:
        """Show what one run changed, row by row."""
        stage, named = self._stage(request), request.path_params["run"]
        with self.reader.session() as session:
            run = next((one for one in runs_of(session.lake, stage) if one.run == named), None)
            if run is None:
                raise HTTPException(404, "there is no such run")
            changes = run_changes(session, stage, run, _page_of(request))
        return self.render("run.html", stage=stage, run=run, changes=changes, **page_links(request, changes.more))

    def search(self, request: Request) -> Response:
        """Show the records that match a search text, and what happened to each record."""
        find = request.query_params.get("find", "").strip()[:MOST_LETTERS]
        named = request.query_params.get("stage")
        stage = self.served.stages.get(named) if named else next(reversed(self.served.stages.values()))
        if stage is None:
            raise HTTPException(404, "no definition of this name is shown here")
        found = None
        if find:
            with self.reader.session() as session:
                found = search(session, stage, find)
        return self.render("search.html", "Where is my record?", find=find, asked_stage=stage.name, found=found)

    def definition(self, request: Request) -> Response:
        """Show the description of a stage's definition that `tailrace explain` prints."""
        stage = self._stage(request)
        text = explain_text(stage, self.reader, self.served.definitions.values())
        return self.render("definition.html", stage=stage, text=text)


def explain_text(stage: Definition, reader: Reader, definitions: Iterable[Definition]) -> str:
    """Return the text of `tailrace explain` for a stage.

    `definitions` are the definitions that are deployed together with the stage. They determine whether the stage has a
    table of answers.
    """
    from rich.console import Console

    from tailrace.lake.read.table_sizes import table_sizes
    from tailrace.plan.explainer import plan_page
    from tailrace.plan.plans import plan

    made = plan(stage, reader.lake.settings, answers=stage.name in keeping_answers(definitions))
    with reader.session() as session:
        sizes = table_sizes(session.lake, [table.table for table in made.tables])
    written = StringIO()
    Console(file=written, width=110, color_system=None, force_terminal=False, highlight=False).print(
        plan_page(made, sizes)
    )
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def _range_of(request: Request) -> TimeRange | None:
    first, last = (request.query_params.get(name) for name in ("from", "to"))
    return None if first is None or last is None else TimeRange.of(first, last)


def _page_of(request: Request) -> int:
    return min(MOST_PAGES, _number(request, "page") or 0)


def _number(request: Request, name: str) -> int | None:
    """Return a whole number from the query string.

    Returns None if the parameter is missing or is not a non-negative whole number of at most 18 digits.
    """
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


PAGES: Mapping[str, Callable[[LakePages, Request], Response]] = {
    "/": LakePages.overview,
    "/search": LakePages.search,
    "/stages/{stage}": LakePages.time,
    "/stages/{stage}/window": LakePages.window,
    "/stages/{stage}/window/plot": LakePages.plot,
    "/stages/{stage}/late": LakePages.late,
    "/stages/{stage}/runs": LakePages.runs,
    "/stages/{stage}/runs/{run}": LakePages.run,
    "/stages/{stage}/definition": LakePages.definition,
}
"""The path of each page, and the method that renders the page."""

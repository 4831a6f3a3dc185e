"""The tab of a DAG that shows a definition's event time by what computed it: the grid of `tailrace serve`.

Airflow's API server runs no definition's code, so this reads the tables by their names alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import quote

import jinja2

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import runs_named
from tailrace.lake.read.query_views import standing_rows
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.lake.schema.filters import Filter, before, equal, every, since
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.logs.log import PANE_TIME
from tailrace.observe.serving.lake_pages import address, heat
from tailrace.observe.serving.reading.event_grid import EventGrid, event_grid, extent, whole_units
from tailrace.observe.serving.reading.event_time import TimeRange, wider
from tailrace.observe.serving.reading.lake_reader import Reader, Session
from tailrace.observe.serving.reading.shown_text import compact, counted, window_text
from tailrace.observe.serving.reading.stage_rows import Named


def templates() -> jinja2.Environment:
    """Make the environment of the pages' templates, which escape all that they are given."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tailrace.airflow.web"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.globals |= {one.__name__: one for one in (address, heat, compact, counted, window_text)}
    return made


def event_time_tab(lake: Lake, name: str, dag: str, values: Mapping[str, str], prefix: str) -> str:
    """Write the page of a definition's grid over the range `from` to `to`, over all of it where there is none.

    `prefix` is the path of the pages below Airflow's address. Raises `RangeError` for a range that is none.
    """
    asked = TimeRange.of(values["from"], values["to"]) if {"from", "to"} <= values.keys() else None
    reader = Reader.of(lake)
    with closing(reader), reader.session() as session:
        grid = _grid(session, name, asked)
    path = f"{prefix}/event-time/{quote(dag)}"
    return templates().get_template("event_time.html").render(
        name=name, grid=grid, asked=asked, up=[] if asked is None else wider(asked), path=path,
        backfill=f"{prefix}/backfill/{quote(f'{name}.backfill')}",
    )  # fmt: skip


def _grid(session: Session, name: str, asked: TimeRange | None) -> EventGrid | None:
    runs = runs_named(session.lake, name) if session.lake.has(runs_name(name)) else []
    with _rows(session, name, None if asked is None else whole_units(asked, 0)) as (rows, late):
        if rows is None:
            return None
        range = asked or extent(session, rows, late)
        return None if range is None else event_grid(session, rows, late, range, runs, unbounded=asked is None)


@contextmanager
def _rows(session: Session, name: str, range: TimeRange | None) -> Iterator[tuple[Named | None, Named | None]]:
    """Name relations of a definition's rows that stand, and of its late records; None where there are none."""
    answers, ledger = session.lake.find(name), session.lake.find(ledger_name(name))
    if ledger is None:
        yield None, None
        return
    timed = PANE_TIME if answers is None else SPAN[1]
    # A window belongs to the range that holds its last instant (rule V5).
    at = f"epoch_us({timed})" if answers is None else f"(epoch_us({timed}) - 1)"
    with ExitStack() as opened:
        if answers is not None:
            rows = opened.enter_context(session.relation(answers, _within(timed, range), [timed, "generation"]))
        else:
            where = every(equal("kind", PRODUCTION), _within(timed, range))
            name_ = opened.enter_context(session.relation(ledger, where))
            rows = f"({standing_rows(name_, ledger.schema().column_names, ledger.properties, chr(34))})"
        columns = ["kind", "epoch", timed]
        late = opened.enter_context(session.relation(ledger, equal("kind", LATE), columns))
        yield Named(rows, at), Named(f"(SELECT * FROM {late} WHERE kind = '{LATE}')", at)


def _within(column: str, range: TimeRange | None) -> Filter:
    bounds = TimeRange(BEGINNING, END_OF_TIME) if range is None else range
    terms = [since(column, bounds.first)]
    return every(*terms, *([before(column, bounds.last + 1)] if bounds.last < END_OF_TIME else []))

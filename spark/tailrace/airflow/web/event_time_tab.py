"""Use the grid of `tailrace serve` to show a definition's answers over event time, and which run computed each answer.

Airflow's API server does not load definitions, so this module finds a definition's tables by name only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import quote

from tailrace.airflow.web.report import PACKAGE
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import runs_named
from tailrace.lake.read.query_views import standing_rows
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.logs.log import PANE_TIME
from tailrace.plots.plot_page import templates
from tailrace.serve.lake_pages import address, heat
from tailrace.serve.reading.event_grid import EventGrid, event_grid, extent, whole_units
from tailrace.serve.reading.event_time import TimeRange, wider
from tailrace.serve.reading.lake_reader import Reader, Session
from tailrace.serve.reading.shown_text import compact, count_text, window_text
from tailrace.serve.reading.stage_rows import ALL, RowRelation, filter_range, instant_sql, late_rows


def event_time_tab(lake: Lake, name: str, dag: str, values: Mapping[str, str], prefix: str) -> str:
    """Return the page with a definition's grid over event time.

    The grid covers the range between the instants `from` and `to` in `values`. If `values` does not have both instants,
    the grid covers all answers and late records. `prefix` is the path of these pages at Airflow's address. Raises
    `RangeError` for an invalid range.
    """
    asked = TimeRange.of(values["from"], values["to"]) if {"from", "to"} <= values.keys() else None
    reader = Reader.of(lake)
    with closing(reader), reader.session() as session:
        grid = _grid(session, name, asked)
    path = f"{prefix}/event-time/{quote(dag)}"
    environment = templates(PACKAGE, "tailrace.serve")
    environment.globals |= {one.__name__: one for one in (address, heat, compact, count_text, window_text, wider)}
    return environment.get_template("event_time.html").render(
        name=name, grid=grid, asked=asked, path=path, backfill=f"{prefix}/backfill/{quote(f'{name}.backfill')}",
    )  # fmt: skip


def _grid(session: Session, name: str, asked: TimeRange | None) -> EventGrid | None:
    runs = runs_named(session.lake, name) if session.lake.has(runs_name(name)) else []
    with _rows(session, name, ALL if asked is None else whole_units(asked, 0)) as (rows, late):
        if rows is None:
            return None
        range = asked or extent(session, rows, late)
        return None if range is None else event_grid(session, rows, late, range, runs, unbounded=asked is None)


@contextmanager
def _rows(session: Session, name: str, range: TimeRange) -> Iterator[tuple[RowRelation | None, RowRelation | None]]:
    """Yield the relations of a definition's current rows and of its late records, or None for a missing relation."""
    answers, ledger = session.lake.find(name), session.lake.find(ledger_name(name))
    if ledger is None:
        yield None, None
        return
    timed = PANE_TIME if answers is None else SPAN[1]
    with ExitStack() as opened:
        late = opened.enter_context(late_rows(session, name, windowed=answers is not None))
        if answers is not None:
            rows = opened.enter_context(session.relation(answers, filter_range(timed, range), [timed, "generation"]))
        else:
            where = filter_range(timed, range, equal("kind", PRODUCTION))
            given = opened.enter_context(session.relation(ledger, where))
            rows = f"({standing_rows(given, ledger.schema().column_names, ledger.properties, chr(34))})"
        yield RowRelation(rows, instant_sql(timed)), late

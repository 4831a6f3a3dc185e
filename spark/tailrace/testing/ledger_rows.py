"""The rows that a definition of any kind has in a lake, for comparisons with tables.

To support a custom kind of definition, register a function with `ledger_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import singledispatch
from typing import Any

from tailrace.engines.batch.held_answers import held_answers
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.duckdb.session import DuckSession
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import LATE, PANE, PRODUCTION
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.windows.windows import Window
from tailrace.sql.results.answers import current_answers
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Query
from tailrace.testing.cells import WINDOW
from tailrace.testing.outputs import SIGN, GivenRows, Row, pane_columns

VERSION = {"generation": "bigint", "writer": "string"}
"""The columns of a row in a lake that a fold without a lake does not have."""


@singledispatch
def ledger_rows(definition: Definition, lake: Lake) -> GivenRows:
    """Return the rows of a definition's ledger, in order, and the rows that stand now."""
    raise KindError("table of a test", definition)


@ledger_rows.register
def _panes(pipeline: Pipeline, lake: Lake) -> GivenRows:
    columns, more = pane_columns(pipeline)
    rows = [_windowed(row) for row in _of_kind(pipeline, lake, PANE)]
    rows.sort(
        key=lambda row: (row["epoch"], row["generation"], _text(row, pipeline.key), row["pane_index"], row[SIGN] == "+")
    )
    with closing(_session(lake)) as session:
        held = session.rows(current_answers(pipeline, held_answers(session, pipeline)))
    answers = [
        _windowed(row | {name: moment(row[name]) for name in ("window_start", "window_end")} | {"retraction": False})
        for row in held
    ]
    return GivenRows(columns | VERSION, more, rows, answers, (*pipeline.key, WINDOW, "window_start", "window_end"))


@ledger_rows.register
def _productions(computation: Computation, lake: Lake) -> GivenRows:
    rows = _of_kind(computation, lake, PRODUCTION)
    rows.sort(key=lambda row: (row["epoch"], row[PANE_TIME], _text(row, computation.key)))
    return GivenRows(dict(computation.produced.columns), {"epoch": "bigint"}, rows, rows, computation.key)


@ledger_rows.register(Map)
@ledger_rows.register(Join)
def _outputs(definition: Map | Join, lake: Lake) -> GivenRows:
    rows = [_signed(row) for row in _of_kind(definition, lake, PRODUCTION)]
    rows.sort(key=lambda row: (row["epoch"], row[PANE_TIME]))
    with closing(_session(lake)) as session:
        ledger = session.table(ledger_name(definition.name))
        current = output_rows(definition).current(ledger)
        items = ", ".join(f"`{name}`" for name in (*definition.results, PANE_TIME))
        held = session.rows(Query(f"SELECT {items} FROM ({current})"))
    columns = {PANE_TIME: "timestamp", **definition.results}
    return GivenRows(columns, {SIGN: "string", "epoch": "bigint"} | VERSION, rows, held, (PANE_TIME,))


def late_in(definition: Definition, lake: Lake) -> tuple[list[Row], list[str]]:
    """Return the late records of a definition's ledger, and the columns that the ledger has."""
    found, ledger = _of_kind(definition, lake, LATE), ledger_name(definition.name)
    names = [field.name for field in lake.table(ledger).schema().fields] if lake.has(ledger) else []
    return [_windowed(row | {"definition": definition.name, "retraction": False}) for row in found], names


def _of_kind(definition: Definition, lake: Lake, kind: str) -> list[dict[str, Any]]:
    ledger = ledger_name(definition.name)
    return [row for row in lake.rows(ledger)[1] if row["kind"] == kind] if lake.has(ledger) else []


def _session(lake: Lake) -> DuckSession:
    return DuckSession(lake, EngineChoice(Engine.DUCKDB, "a test"))


def _signed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, SIGN: "-" if row.get("retraction") else "+"}


def _windowed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its window in one column."""
    if row.get("window_start") is None:
        return _signed(row)
    return _signed(row) | {WINDOW: Window(instant(row["window_start"]), instant(row["window_end"]))}


def _text(row: Mapping[str, Any], key: Iterable[str]) -> str:
    return repr([row[name] for name in key])

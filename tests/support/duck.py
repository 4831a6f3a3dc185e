"""Runs a definition on DuckDB, bundle by bundle, and puts its ledger rows beside the panes of the reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.execution import DuckExecution, Windows, executed
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.step import Record
from tailrace.settings import Settings
from tests.support.native import Said, _exact, arrow_bundle

CONNECTION = connect(Settings(memory="1GB"))
"""One database for all tests of a process: each execution's tables have names of their own."""


def run_on_duckdb(pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]]) -> list[Said]:
    """What each stage says of these epochs; a stage reads the rows of the one before."""
    stages = [executed(CONNECTION.cursor(), stage) for stage in pipeline.stages]
    states: list[Windows] = [one.nothing() for one in stages]
    said = [Said() for _ in stages]
    for records, clock in epochs:
        bundle, time = arrow_bundle(pipeline.stages[0].log, records, clock.epoch), clock
        for place, one in enumerate(stages):
            moved = one.step(states[place], one.consume(bundle, states[place]), time)
            said[place] += said_by_rows(one, moved.rows)
            states[place] = moved.state
            if place + 1 < len(stages):
                bundle, before = one.changed(moved.rows), states[place + 1].clock
                time = replace(time, watermark=max(one.onward(moved.state), before.watermark if before else BEGINNING))
    for one in stages:
        one.close()
    return said


def said_by_rows(one: DuckExecution, rows: pa.Table) -> Said:
    """What rows of a ledger say."""
    own = one.connection.cursor()
    own.register("told", rows)
    shape = own.execute("DESCRIBE told").fetchall()
    items = ", ".join(
        f'epoch_us("{n}") AS "{n}"' if t == "TIMESTAMP WITH TIME ZONE" else f'"{n}"' for n, t, *_ in shape
    )
    found = own.execute(f"SELECT {items} FROM told WHERE kind <> 'partial'").to_arrow_table().to_pylist()
    return Said(_row(one.pipeline, row) for row in found)


def _row(pipeline: Pipeline, row: dict[str, Any]) -> tuple[Any, ...]:
    if row["kind"] == "rejected":
        return ("rejected", row["epoch"], row["event_time"], row["reason"])
    place = (_exact(row[name] for name in pipeline.key), row["window_start"], row["window_end"])
    if row["kind"] == "late":
        return ("late", *place, row["epoch"], row["event_time"], row["behind"], row["reason"])
    version = (row["generation"], row["epoch"], row["pane_index"], row["retraction"], row["timing"], row["is_last"])
    answer = tuple(row["answer"].values()) if row.get("answer") else ()
    times = (row["watermark"], row["processing_time"])
    return ("pane", *place, *version, *times, _exact(row[name] for name in pipeline.what), _exact(answer))

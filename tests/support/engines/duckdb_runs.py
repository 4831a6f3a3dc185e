"""Runs a definition on DuckDB, bundle by bundle, and puts its ledger rows beside the panes of the reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.database.shares import SHARE_COLUMN, checked, in_shares, with_share
from tailrace.engines.duckdb.executions.compiler import executed
from tailrace.engines.duckdb.executions.execution import DuckExecution, Windows
from tailrace.engines.duckdb.executions.parts_execution import PartsExecution
from tailrace.engines.duckdb.executions.preparation import Taken
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.step import Record
from tailrace.settings import Settings
from tailrace.sql.records.ways import Way, way
from tests.support.engines.spark_runs import Said, _exact, arrow_bundle

CONNECTION = connect(Settings(memory="1GB"))
"""One database for all tests of a process: each execution's tables have names of their own."""


def in_parts(pipeline: Pipeline) -> DuckExecution:
    """The execution of a definition that takes bundles in parts, or the usual one where it does not."""
    made = ByParts if way(pipeline) is Way.SQL else executed
    return made(CONNECTION.cursor(), pipeline)


class ByParts(PartsExecution):
    """Takes every second bundle as executors give it: the partials of parts of it, and late records on demand (L1)."""

    _fed = 0

    def consume(self, bundle: pa.Table, state: Windows) -> Taken:
        self._fed += 1
        if self._fed % 2 or not self.adds_up:
            return super().consume(bundle, state)
        cut = bundle.num_rows // 2
        parts, gives = [bundle.slice(0, cut), bundle.slice(cut)], self.adding_gives(bundle.schema)
        text = with_share(in_duckdb(self.adding(state)), self.windowed_by)
        rows = pa.concat_tables(self._answered(part, text, gives.append(SHARE_COLUMN)) for part in parts)
        shares = defaultdict[int, list[pa.RecordBatch]](list)
        for share, batch in in_shares(rows.to_batches(3)):
            shares[share].append(batch)
        tables = ((share, pa.Table.from_batches(batches)) for share, batches in shares.items())
        there = self.put_together([gives.empty_table(), *checked(self.connection, self.windowed_by, tables)])
        found = self.late(state)
        assert found is None or there or not found

        def late(clock: Clock) -> pa.Table:
            rows = pa.concat_tables(
                self._answered(part, in_duckdb(self.late_rows(state, clock)), self.schema) for part in parts
            )
            assert found in (None, rows.num_rows)
            return rows

        return self.taken(late)

    def _answered(self, part: pa.Table, text: str, schema: pa.Schema) -> pa.Table:
        """A text's answer over a part, on a connection of its own, as it comes from an executor."""
        own = self.connection.cursor()
        own.register(self.records, part)
        return own.execute(text).to_arrow_table().cast(schema)


def run_on_duckdb(
    pipeline: Pipeline,
    epochs: Iterable[tuple[Sequence[Record], Clock]],
    execution: Callable[[Pipeline], DuckExecution] = lambda stage: executed(CONNECTION.cursor(), stage),
) -> list[Said]:
    """What each stage says of these epochs; a stage reads the rows of the one before."""
    stages = [execution(stage) for stage in pipeline.stages]
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
    return ("pane", *place, *version, *times, _exact(row[name] for name in pipeline.answer_columns), _exact(answer))

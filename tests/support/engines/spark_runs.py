"""Runs a definition on real Spark, bundle by bundle, and puts its ledger rows beside the panes of the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.spark.executions.brought_partials import BroughtPartials
from tailrace.engines.spark.executions.compiler import compiled
from tailrace.engines.spark.executions.execution import Consumed, SparkExecution
from tailrace.engines.spark.executions.native import Native
from tailrace.engines.spark.executions.open_windows import OpenWindows
from tailrace.engines.spark.executions.preparation import changed
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, instant, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import Late, Pane, Rejected
from tailrace.settings import Settings
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases

Said = Counter[tuple[Any, ...]]
"""What a fold said, as comparable rows: panes, retractions and late records, each with how often."""

Law = Callable[[SparkSession, st.DataObject], None]
"""A claim of one example, which it draws for itself; broken, it raises."""


def in_parts(count: int, *, deeper: int, of: int) -> Callable[[Law], Callable[[SparkSession, int], None]]:
    """Make a test of a law over random examples (`depth.cases`), the same in every run, and so many in each part.

    Each example goes through real Spark, which leaves no time to shrink one. No part is so long that a busy machine
    takes it to hang.
    """
    examples = cases(count, deeper)
    some = each_time_the_same(min(of, examples))

    def of_law(law: Law) -> Callable[[SparkSession, int], None]:
        @pytest.mark.parametrize("part", range(-(-examples // of)))
        def test(plain: SparkSession, part: int) -> None:
            @seed(part)
            @some
            @given(data=st.data())
            def holds(data: st.DataObject) -> None:
                law(plain, data)

            holds()

        test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
        return test

    return of_law


def arrow_bundle(log: Log, records: Sequence[Record], epoch: int) -> pa.Table:
    """The records as rows of the log."""
    rows = [
        {**{n: _plain(record.get(n), t) for n, t in log.columns.items()}, "_epoch": epoch, "_offset": place}
        for place, record in enumerate(records)
    ]
    return pa.Table.from_pylist(rows, schema=iceberg_schema(log_contract(log)).as_arrow())


def bundle_frame(spark: SparkSession, pipeline: Pipeline, records: Sequence[Record], epoch: int) -> DataFrame:
    """The records as Spark has them. They go through Arrow, which needs no Python worker."""
    return spark.createDataFrame(arrow_bundle(pipeline.log, records, epoch))


def _plain(value: Any, type: str) -> Any:
    return moment(value) if type == "timestamp" and isinstance(value, int) else value


class Feeding:
    """Feed an execution the records of epochs: of every second one partials that were added up in this process (L1)."""

    def __init__(self, spark: SparkSession, one: SparkExecution) -> None:
        self.spark, self.one, self._fed = spark, one, 0
        self._here: BroughtPartials | None = None
        self._database = connect(Settings())

    def __call__(self, records: Sequence[Record], epoch: int, state: OpenWindows) -> Consumed:
        one, self._fed = self.one, self._fed + 1
        if self._fed % 2 == 0 and isinstance(one, Native) and one.takes_brought(state):
            if self._here is None:
                self._here = BroughtPartials(one.pipeline, self._database)
            return one.consume_brought(arrow_bundle(one.pipeline.log, records, epoch), state, self._here)
        return one.consume(bundle_frame(self.spark, one.pipeline, records, epoch), state)

    def close(self) -> None:
        self._database.close()
        self.one.close()


Execution = Callable[..., SparkExecution]


def resting_beyond(spark: SparkSession, pipeline: Pipeline, most: int | None) -> RestingWindows | None:
    """What has windows rest in files of the session's lake beyond so many; None to keep all in memory."""
    if most is None:
        return None
    place = spark.conf.get("spark.sql.catalog.lake.warehouse")
    assert place is not None
    return RestingWindows(spark, Lake(Settings(warehouse=Path(place.removeprefix("file://")))), pipeline, most)


def run_native(
    spark: SparkSession,
    pipeline: Pipeline,
    epochs: Iterable[tuple[Sequence[Record], Clock]],
    execution: Execution = Native,
    state: OpenWindows | None = None,
    most: int | None = None,
) -> Said:
    """What the native execution says of these epochs, or another one; from a state on, if one is given.

    Beyond `most` in memory windows rest in files; by default none do.
    """
    rest, said = resting_beyond(spark, pipeline, most), Said()
    one = execution(spark, pipeline) if rest is None else execution(spark, pipeline, rest)
    state, feed = one.nothing() if state is None else state, Feeding(spark, one)
    for records, clock in epochs:
        stepped = one.step(state, feed(records, clock.epoch, state), clock)
        said += said_of(pipeline, stepped.rows)
        state = stepped.state
    feed.close()
    return said


def said_of(pipeline: Pipeline, rows: DataFrame) -> Said:
    """What rows of a ledger say."""
    return Said(_row(pipeline, row) for row in in_micros(rows.where("kind <> 'partial'")).collect())


def run_stages(
    spark: SparkSession,
    pipeline: Pipeline,
    epochs: Iterable[tuple[Sequence[Record], Clock]],
    execution: type[SparkExecution] | None = None,
    most: int | None = None,
) -> list[Said]:
    """What each stage says, in the execution that it takes or in this one; a stage reads the rows of the one before.

    Beyond `most` in memory its windows rest in files; by default none do.
    """
    stages = [(execution or compiled)(spark, one, resting_beyond(spark, one, most)) for one in pipeline.stages]
    states, said = [one.nothing() for one in stages], [Said() for _ in stages]
    feed = Feeding(spark, stages[0])
    for records, clock in epochs:
        consumed, time = feed(records, clock.epoch, states[0]), clock
        for place, one in enumerate(stages):
            stepped = one.step(states[place], consumed, time)
            for row in in_micros(stepped.rows.where("kind <> 'partial'")).collect():
                said[place][_row(one.pipeline, row)] += 1
            states[place] = stepped.state
            if place + 1 < len(stages):
                bundle = changed(spark, one.pipeline, stepped.rows)
                consumed = stages[place + 1].consume(bundle, states[place + 1])
                before = states[place + 1].clock
                onward = max(one.onward(stepped.state), before.watermark if before else BEGINNING)
                time = replace(time, watermark=onward)
    feed.close()
    for one in stages[1:]:
        one.close()
    return said


def said_by_ledger(spark: SparkSession, pipeline: Pipeline) -> Said:
    """What a stream said of a pipeline, as its ledger has it."""
    rows = spark.sql(f"SELECT * FROM {pipeline.name}__ledger WHERE kind <> 'partial' AND writer <=> 'stream'")
    said = Said()
    for row in in_micros(rows).collect():
        said[_row(pipeline, row)] += 1
    return said


def in_micros(frame: DataFrame) -> DataFrame:
    """The frame with its instants as microseconds, for Python has none as early as the beginning of time."""
    instants = [name for name, type in frame.dtypes if type == "timestamp"]
    return frame.selectExpr(*(f"UNIX_MICROS(`{n}`) AS `{n}`" if n in instants else f"`{n}`" for n in frame.columns))


def said_by_reference(
    pipeline: Pipeline, panes: Iterable[Pane], late: Iterable[Late], rejected: Iterable[Rejected] = ()
) -> Said:
    """What the reference execution says, as the rows that a fold of an engine says."""
    said = Said()
    for pane in panes:
        names = pipeline.answer_columns
        answer = tuple(map(pane.answer.get, names)) if pipeline.how.value == "discarding" else ()
        said[
            (
                "pane",
                _exact(pane.key),
                *pane.window,
                *pane.version,
                pane.retraction,
                pane.timing.value,
                pane.is_last,
                pane.watermark,
                pane.processing_time,
                _exact(map(pane.values.get, names)),
                _exact(answer),
            )
        ] += 1
    for one in late:
        at = instant(one.record[pipeline.log.event_time])
        said[("late", _exact(one.key), *one.window, one.epoch, at, one.behind, one.reason)] += 1
    for bad in rejected:
        said[("rejected", bad.epoch, instant(bad.record[pipeline.log.event_time]), bad.reason)] += 1
    return said


def _row(pipeline: Pipeline, row: Row) -> tuple[Any, ...]:
    if row["kind"] == "rejected":
        return ("rejected", row["epoch"], row["event_time"], row["reason"])
    return _pane_row(pipeline, row) if row["kind"] == "pane" else _late_row(pipeline, row)


def _exact(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(_comparable(value) for value in values)


_DIGITS = Context(prec=80)


def _comparable(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.normalize(_DIGITS)
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    if isinstance(value, Row | dict):
        return tuple(_comparable(one) for one in (value if isinstance(value, Row) else value.values()))
    if isinstance(value, datetime):
        # pyspark gives naive instants in the process's own zone.
        return instant(value.astimezone(UTC))
    return value


def _pane_row(pipeline: Pipeline, row: Row) -> tuple[Any, ...]:
    key = _exact(row[name] for name in pipeline.key)
    values = tuple(row[name] for name in pipeline.answer_columns)
    answer = tuple(row["answer"]) if row.asDict().get("answer") else ()
    span = (row["window_start"], row["window_end"])
    version = (row["generation"], row["epoch"], row["pane_index"])
    times = (row["watermark"], row["processing_time"])
    said = (row["retraction"], row["timing"], row["is_last"])
    return ("pane", key, *span, *version, *said, *times, _exact(values), _exact(answer))


def _late_row(pipeline: Pipeline, row: Row) -> tuple[Any, ...]:
    key = _exact(row[name] for name in pipeline.key)
    span = (row["window_start"], row["window_end"])
    return ("late", key, *span, row["epoch"], row["event_time"], row["behind"], row["reason"])

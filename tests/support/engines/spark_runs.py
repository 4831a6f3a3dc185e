"""Runs a definition on real Spark, bundle by bundle, and puts its ledger rows beside the panes of the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import Late, Pane, Rejected
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


def said_by_ledger(spark: SparkSession, pipeline: Pipeline) -> Said:
    """What a stream said of a pipeline, as its ledger has it."""
    rows = spark.sql(f"SELECT * FROM {pipeline.name}__ledger WHERE writer <=> 'stream'")
    return said_by_rows(pipeline, rows.toArrow())


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


def said_by_rows(pipeline: Pipeline, rows: pa.Table) -> Said:
    """What rows of a ledger say, of any engine."""
    rows = rows.filter(pc.not_equal(rows["kind"], "partial"))
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            # Python has no instant as early as the beginning of time.
            rows = rows.set_column(place, field.name, rows[field.name].cast(pa.int64()))
    return Said(_row(pipeline, row) for row in rows.to_pylist())


def _row(pipeline: Pipeline, row: Mapping[str, Any]) -> tuple[Any, ...]:
    if row["kind"] == "rejected":
        return ("rejected", row["epoch"], row["event_time"], row["reason"])
    place = (_exact(row[name] for name in pipeline.key), row["window_start"], row["window_end"])
    if row["kind"] == "late":
        return ("late", *place, row["epoch"], row["event_time"], row["behind"], row["reason"])
    version = (row["generation"], row["epoch"], row["pane_index"], row["retraction"], row["timing"], row["is_last"])
    answer = tuple(row["answer"].values()) if row.get("answer") else ()
    times = (row["watermark"], row["processing_time"])
    return ("pane", *place, *version, *times, _exact(row[name] for name in pipeline.answer_columns), _exact(answer))


def _exact(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(comparable(value) for value in values)


_DIGITS = Context(prec=80)


def comparable(value: Any) -> Any:
    """Return a value in a form that equal values share, whatever engine gives them."""
    if isinstance(value, Decimal):
        return value.normalize(_DIGITS)
    if isinstance(value, list):
        return tuple(map(comparable, value))
    if isinstance(value, Row | dict):
        # A record that Hypothesis made has its fields in any order.
        named = value.asDict() if isinstance(value, Row) else value
        return tuple(comparable(named[name]) for name in sorted(named))
    if isinstance(value, datetime):
        # pyspark gives naive instants in the process's own zone.
        return instant(value.astimezone(UTC))
    return "NaN" if value != value else value

"""A function of batches gives the same for a record in any cut and execution; what fails is rejected alone (X7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import Col, Count, Derive, Each, EachBatch, Log, Map, Sum
from tailrace.engines.python.batch_calls import outcomes
from tailrace.engines.spark.executions.preparation import prepare
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.definition.record_steps import ElementWise, taken_through
from tailrace.testing import BatchError, ScratchLake, check_batches, fold
from tests.laws.test_traced_steps import RECORDS, TYPES, by_rows, in_process, numbered, row_of
from tests.support.cases.strategies import examples
from tests.support.engines.spark_runs import in_parts
from tests.testing.rides import HOURLY, ride

LOG = Log(name="batches", columns=TYPES, event_time="at")


def shares(table: pa.Table) -> dict[str, Any]:
    """Fails for a record whose lane is zero, and gives what fits no int for some others."""
    return {"share": pc.divide(pa.scalar(10**12), pc.cast(table["lane"], pa.int64()))}


def lengths(table: pa.Table) -> pa.Table:
    """Gives a table with all columns, as a user of Polars or pandas does."""
    small = pc.less(pc.utf8_length(table["s"]), 2)
    return table.append_column("letters", pc.utf8_length(table["s"])).append_column("short", small)


STEPS: dict[str, tuple[ElementWise, ...]] = {
    "shares": (EachBatch(shares, {"share": "int"}, "lane"),),
    "after others": (
        Derive({"large": Col("lane") * 2**40 * 2**20}),
        EachBatch(lengths, {"letters": "int", "short": "boolean"}),
        EachBatch(shares, {"share": "int"}, reads=("lane", "s")),
        Each(lambda r: {"more": r["letters"] + 1}, {"more": "bigint"}),
    ),
}


def expected(each: tuple[ElementWise, ...], records: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    found = {}
    for record in records:
        made, reasons = taken_through(each, record, TYPES)
        found[record["id"]] = (reasons[0],) if reasons else row_of(each, made[0])
    return found


@pytest.mark.parametrize("name", STEPS)
@examples(60)
@given(made=RECORDS)
def test_X7_a_batch_function_gives_the_same_on_duckdb_as_for_each_record_alone(
    name: str, made: list[dict[str, Any]]
) -> None:
    records = numbered(made)
    assert in_process(STEPS[name], records) == expected(STEPS[name], records)


@in_parts(2, deeper=10, of=10)
def test_X7_a_batch_function_gives_the_same_on_spark_as_for_each_record_alone(
    plain: SparkSession, data: st.DataObject
) -> None:
    each, records = STEPS["after others"], numbered(data.draw(RECORDS))
    frame = frame_of(plain, pa.Table.from_pylist(records, schema=arrow_schema(TYPES)))
    rows = prepare(frame, Map(name="batches", log=LOG, each=each, what=("id",)))
    assert by_rows(each, rows.toArrow().to_pylist()) == expected(each, records)


TWICE = Each(lambda r: {"twice": r["cents"] * 2 if r["cents"] > 3 else 0}, {"twice": "bigint"})
"""A function that is compiled to SQL."""

BY_BATCH = replace(
    HOURLY,
    name="by_batch",
    each=(
        TWICE,
        EachBatch(lambda table: {"third": pc.divide(pa.scalar(60), table["cents"])}, {"third": "bigint"}, "cents"),
    ),
    what={"rides": Count(), "thirds": Sum("third"), "twice": Sum("twice")},
)


def test_X7_a_batch_function_and_a_traced_one_are_the_same_in_a_stream_an_audit_a_replay_and_a_backfill(
    tmp_path: Path,
) -> None:
    epochs = [[ride("09:10"), ride("09:20", 0), ride("10:14", 4)], [ride("09:20", 8)], [ride("11:30", 16)]]
    lake = ScratchLake(tmp_path / "lake")
    for epoch in epochs:
        lake.stream(BY_BATCH, epoch, allow_rejected=True)
    lake.check(BY_BATCH)
    assert lake.answers(BY_BATCH) == fold(BY_BATCH, epochs, ends=False, allow_rejected=True).answers
    counts = lake.backfill(BY_BATCH)
    assert (counts.changed, counts.retracted) == (0, 0)
    assert counts.untouched > 0
    lake.check(BY_BATCH)
    lake.close()


def test_the_kit_names_a_batch_function_that_depends_on_the_batch() -> None:
    mean = EachBatch(lambda table: {"third": pc.subtract(table["cents"], pc.min(table["cents"]))}, {"third": "bigint"})
    records = [ride("09:10", 5), ride("09:20", 7)]
    check_batches(BY_BATCH, records)
    with pytest.raises(BatchError, match=r"'third': 2\} in a batch of 2 records, but \{'third': 0\} for"):
        check_batches(replace(BY_BATCH, each=(TWICE, mean)), records)


def test_a_table_of_pandas_may_have_its_index_and_the_columns_of_its_input() -> None:
    def doubled(table: pa.Table) -> pd.DataFrame:
        frame: pd.DataFrame = table.to_pandas().set_index("a", drop=False)
        frame["double"] = frame["a"] * 2
        return frame

    step = EachBatch(doubled, {"double": "bigint"})
    assert outcomes(step, [{"a": 4}], {"a": "int"}) == [({"double": 8}, None)]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("column", "type", "value"),
    [
        (np.array([3], dtype="int8"), "bigint", 3),
        (pa.array([3.0]), "int", 3),
        (pa.array([3]), "decimal(4,2)", Decimal("3.00")),
        (pa.array(["a"], pa.large_string()), "string", "a"),
        (pa.array(["a"]).dictionary_encode(), "string", "a"),
        (pa.array([NOW.replace(tzinfo=None)], pa.timestamp("ns")), "timestamp", NOW),
        (pa.array([None]), "date", None),
        ([[1, None]], "array<bigint>", [1, None]),
        (pd.Series([7]), "bigint", 7),
    ],
)
def test_arrays_are_converted_to_the_declared_type_where_they_fit(column: Any, type: str, value: Any) -> None:
    assert outcomes(EachBatch(lambda _: {"n": column}, {"n": type}), [{"a": 1}], {"a": "int"}) == [({"n": value}, None)]


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        (lambda t: {"n": ["1"], "m": [1.5]}, "it gave n as string: expected bigint; it gave m = 1.5: expected int"),
        (lambda t: {"n": [1, 2], "m": [2**40]}, r"it gave 2 rows in n: expected 1, one .*; it gave m = 1099511627776"),
        (lambda t: {"n": [1], "o": [1]}, "it gave no column m, a column o: expected the columns n, m"),
        (lambda t: {"n": 7, "m": [1]}, "it gave n = 7: expected bigint"),
        (lambda t: None, "it gave None: expected a mapping from names to arrays, or a table"),
        (lambda t: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda t: {"n": pa.array([1e300]), "m": [0]}, "it gave n = 1e[+]300: expected bigint"),
    ],
)
def test_X7_what_does_not_fit_rejects_the_record_with_all_faults(given_: Callable[[Any], Any], why: str) -> None:
    step = EachBatch(given_, {"n": "bigint", "m": "int"})
    ((_, reason),) = outcomes(step, [{"a": 1}], {"a": "int"})
    assert reason is not None
    assert re.search(why, reason), reason


def test_a_function_that_fails_for_some_records_is_called_a_few_times_for_each_of_them() -> None:
    sizes = []

    def counted(table: pa.Table) -> dict[str, Any]:
        sizes.append(len(table))
        return shares(table)

    records = [{"lane": 10**6 if place != 700 else 0} for place in range(1000)]
    found = outcomes(EachBatch(counted, {"share": "int"}, "lane"), records, TYPES)
    assert [place for place, (_, reason) in enumerate(found) if reason is not None] == [700]
    assert len(sizes) <= 2 * 10 + 1

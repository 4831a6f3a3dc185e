"""Rows lie in the partitions that Iceberg's own transforms say, in few files, whatever times they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from tailrace import Calendar, Count, Fixed, Global, Log, Map, Pipeline, Sessions, Sliding, days, hours, minutes
from tailrace.lake.catalog import data_files
from tailrace.lake.catalog.data_files import split_by_partition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.schema.contracts import Column, Contract, log_contract
from tailrace.lake.schema.filters import after, equal, every, since, up_to
from tailrace.lake.schema.map_tables import map_contract
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.lake.upkeep.rewriting import files_of, write_together
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.settings import Settings

DAY = 86_400_000_000
SCHEMA = Schema(NestedField(1, "kind", StringType()), NestedField(2, "at", TimestamptzType()))
INSTANTS = st.one_of(st.integers(BEGINNING, END_OF_TIME), st.integers(-3 * DAY, 3 * DAY), st.none())
BY_DAY = Contract(
    "days",
    "",
    {"kind": Column("string", ""), "at": Column("timestamp", ""), "n": Column("bigint", "")},
    ("kind", "day(at)"),
    sort_by=("n desc", "at"),
)
LOG = Log(name="rides", columns={"at": "timestamp", "who": "string"}, event_time="at")
RIDES = Pipeline(name="p", log=LOG, key="who", what={"n": Count()}, where=Fixed(minutes(1)))


def table(times: Sequence[int | None], kinds: list[str]) -> pa.Table:
    at = pa.array([None if one is None else moment(one) for one in times], pa.timestamp("us", "UTC"))
    return pa.table({"kind": kinds, "at": at, "n": pa.array(range(len(times)), pa.int64())})


@given(
    st.lists(st.tuples(st.sampled_from("ab"), INSTANTS), min_size=1, max_size=60),
    st.sampled_from(("hour", "day", "month", "year")),
    st.integers(0, 20),
)
def test_each_row_is_in_the_partition_that_iceberg_says(
    rows: list[tuple[str, int | None]], span: str, few: int
) -> None:
    transform = parse_transform(span)
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "kind"), PartitionField(2, 1001, transform, "span")
    )
    of = transform.transform(TimestamptzType())
    given_rows = table([at for _, at in rows], [kind for kind, _ in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "_FEW", few)
        found = split_by_partition(spec, SCHEMA, given_rows)
    assert len({values for values, _ in found}) == len(found)
    assert sorted(n for _, part in found for n in part["n"].to_pylist()) == list(range(len(rows)))
    for values, part in found:
        places = part["n"].to_pylist()
        assert places == sorted(places), "the order among the rows of a partition stays"
        assert {(rows[place][0], of(rows[place][1])) for place in places} == {values}


@pytest.mark.parametrize(
    ("where", "spans"),
    [
        (Fixed(minutes(1)), "day"), (Sessions(minutes(30)), "day"), (Sliding(hours(20), every=hours(1)), "day"),
        (Fixed(days(1)), "month"), (Sliding(days(7), every=minutes(1)), "month"), (Calendar("week"), "month"),
        (Calendar("month"), "year"), (Sessions(days(40)), "year"), (Calendar("year"), None), (Global(), None),
    ],
)  # fmt: skip
def test_the_span_of_a_partition_is_longer_than_a_window(where: Any, spans: str | None) -> None:
    made = replace(RIDES, where=where)
    by = () if spans is None else (f"{spans}(window_end)",)
    assert ledger_contract(made).partition_by == ("kind", *by)
    assert answer_contract(made).partition_by == by


@pytest.mark.parametrize(("disorder", "span"), [(minutes(1), "day"), (days(2), "month"), (days(90), "year")])
def test_the_span_of_a_log_is_longer_than_its_disorder(disorder: Any, span: str) -> None:
    log = replace(LOG, disorder=disorder)
    assert log_contract(log).partition_by == (f"{span}(at)",)
    assert map_contract(Map(name="m", log=log)).partition_by == ("kind", f"{span}(event_time)")


def test_far_off_times_are_found_by_their_partitions(settings: Settings) -> None:
    lake = Lake(settings)
    lake.ensure(BY_DAY)
    times = [BEGINNING, END_OF_TIME, None, -1, 0, -DAY, BEGINNING, DAY - 1]
    change = FileChange(tuple(lake.write_files("days", table(times, ["a"] * len(times)))))
    assert len(change.added) == 5
    lake.change("days", change, {}, lake.head("days").snapshot)
    for where, expected in (
        (up_to("at", -1), {0, 3, 5, 6}), (after("at", 0), {1, 7}), (equal("at", None), {2}),
        (since("at", END_OF_TIME), {1}), (up_to("at", BEGINNING), {0, 6}),
        (every(equal("kind", "a"), since("at", 0), up_to("at", DAY)), {4, 7}),
    ):  # fmt: skip
        assert set(lake.table("days").scan(row_filter=where).to_arrow()["n"].to_pylist()) == expected


def test_rows_of_very_many_days_are_in_few_files_until_maintenance_moves_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MOST_FILES", 30)
    lake, count = Lake(settings), 31
    lake.ensure(BY_DAY)
    rows = table([day * DAY for day in range(count)] * 2, ["a"] * count + ["b"] * count)
    scattered, few = lake.write_files("days", rows), lake.write_files("days", rows.slice(0, 3))
    assert (len(scattered), len(few)) == (2, 3)
    head = lake.change("days", FileChange((*scattered, *few)), {"epoch": "1"}, lake.head("days").snapshot)
    found = lake.table("days")
    assert found.scan().to_arrow().num_rows == 2 * count + 3
    of_a_day = every(equal("kind", "b"), since("at", 7 * DAY), up_to("at", 8 * DAY - 1))
    assert found.scan(row_filter=of_a_day).to_arrow()["n"].to_pylist() == [count + 7]
    # One of both layouts is taken out again, and others come in their place.
    exchange = FileChange(tuple(lake.write_files("days", rows.slice(count))), (scattered[1], few[0]))
    lake.change("days", exchange, {"epoch": "2"}, head)
    assert write_together(lake, "days", 5, 10**9) == (2, count + 2 * count - count)
    found = lake.table("days")
    assert {file.spec_id for file in files_of(found)} == {found.spec().spec_id}
    assert sorted(found.scan().to_arrow()["n"].to_pylist()) == sorted([*range(2 * count), 1, 2])
    assert [task.file.record_count for task in found.scan(row_filter=of_a_day).plan_files()] == [1]
    assert lake.head("days").number("epoch") == 2


def test_files_written_together_are_in_the_tables_order(settings: Settings) -> None:
    lake = Lake(settings)
    lake.ensure(BY_DAY)
    for place in range(5):
        rows = table([place, None, place], ["a", "a", "a"])
        lake.change(
            "days", FileChange(tuple(lake.write_files("days", rows))), {"epoch": "1"}, lake.head("days").snapshot
        )
    assert write_together(lake, "days", 5, 10**9) == (10, 2)
    assert write_together(lake, "days", 5, 10**9) == (0, 0)
    for task in lake.table("days").scan().plan_files():
        where = equal("at", None) if task.file.partition[1] is None else since("at", 0)
        numbers = lake.table("days").scan(row_filter=where).to_arrow()["n"].to_pylist()
        assert numbers == sorted(numbers, reverse=True)

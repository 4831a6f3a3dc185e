"""`fold` folds epochs of records as a stream does, and gives the rows of a definition of any kind."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterSignal,
    AfterWatermark,
    Arrivals,
    Changes,
    Computation,
    Count,
    Each,
    Field,
    Fixed,
    Global,
    Injected,
    Join,
    Log,
    Map,
    Match,
    Pipeline,
    RecordError,
    SparkColumns,
    Sum,
    hours,
    minutes,
)  # fmt: skip
from tailrace.model.base.time import moment
from tailrace.model.samples.sample_records import epochs as sample_epochs
from tailrace.model.samples.sample_records import from_json
from tailrace.model.step import reference
from tailrace.testing import Epoch, EpochsError, RejectedError, UnwritableError, fold, records_of
from tests.testing.rides import HOURLY, RIDES, ride


def test_a_record_is_judged_by_the_watermark_that_the_log_has_reached() -> None:
    """The log's disorder is a quarter of an hour, and windows close at once."""
    given = fold(HOURLY, [[ride("09:10")], [ride("10:14")], [ride("09:20", 7)], [ride("10:15")], [ride("09:30")]])
    given.in_order.check("""
        window                  rides  cents  timing   epoch
        2026-03-01T09:00/10:00  2      8      on_time  3
        2026-03-01T10:00/11:00  2      2      on_time  5
    """)
    assert given.late == "definition event_time window epoch \n hourly_rides 2026-03-01T09:30 2026-03-01T09:00/10:00 4"


def test_epochs_without_an_end_leave_windows_open() -> None:
    epochs = [[ride("09:10")], [ride("10:30")]]
    assert len(fold(HOURLY, epochs, ends=False)) == 1
    assert len(fold(HOURLY, epochs)) == 2
    assert len(fold(HOURLY, [])) == 0


def test_an_epoch_says_its_time_its_signals_and_what_is_complete() -> None:
    signalled = replace(HOURLY, when=AfterWatermark(early=AfterSignal("go")))
    epochs = [
        Epoch([ride("09:10")], now="2026-03-01T12:00"),
        Epoch(signals=("go",), now=datetime(2026, 3, 1, 13, tzinfo=UTC)),
        Epoch(complete="2026-03-01T11:00+01:00"),
    ]
    fold(signalled, epochs, ends=False).in_order.check("""
        timing   processing_time   watermark         epoch
        early    2026-03-01T13:00  2026-03-01T08:55  1
        on_time  13:00             2026-03-01T10:00  2
    """)
    with pytest.raises(EpochsError, match="no time before the last epoch's"):
        fold(HOURLY, [Epoch(now="2026-03-01T12:00"), Epoch(now="2026-03-01T11:00")])
    with pytest.raises(EpochsError, match="now = 'noon': expected an instant"):
        fold(HOURLY, [Epoch(now="noon")])


def test_a_repeated_record_id_is_dropped_as_long_as_it_is_remembered() -> None:
    log = replace(RIDES, record_id="at", remembered=minutes(10))
    epochs = [Epoch([ride("09:10")], now=f"2026-03-01T{now}") for now in ("09:10", "09:20", "09:31")]
    given = fold(replace(HOURLY, log=log), epochs)
    assert (given.answers == "rides \n 2", given.duplicates) == (True, 1)


def test_a_log_that_files_and_commands_complete_is_not_moved_by_its_records() -> None:
    log = replace(RIDES, disorder=minutes(0), watermark=Injected())
    epochs: list[Any] = [[ride("09:10")], [ride("23:10")], Epoch(complete="2026-03-01T10:00")]
    assert fold(replace(HOURLY, log=log), epochs, ends=False) == "epoch \n 2"


ALL = Log(
    name="everything",
    columns={
        "at": "timestamp", "seen": "timestamp", "day": "date", "clock": "time", "price": "decimal(6,2)", "x": "double",
        "raw": "binary", "more": "array<struct<n:int,at:timestamp>>", "tags": "map<string,double>", "who": "string",
    },
    event_time="at",
    fields={"at": "meta.createdAt", "who": "meta.user.`the name`", "more.n": "howMany"},
    instants={"at": "milliseconds", "seen": "%d.%m.%Y %H:%M", "more.at": "seconds"},
)  # fmt: skip


def test_a_record_is_written_as_its_source_writes_it_or_with_values_of_python() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    everything = Map(name="copy", log=ALL, what=tuple(ALL.columns))
    plain = {
        "meta": {"createdAt": 1772366400000, "user": {"the name": "ann"}},
        "seen": "01.03.2026 12:00", "day": "2026-03-01", "clock": "08:30", "price": 1.25, "x": 0.5, "raw": "AQI=",
        "more": [{"howMany": 1, "at": 1772366400}], "tags": {"a": 1.5},
    }  # fmt: skip
    own = {
        "meta": {"createdAt": noon, "user": {"the name": "ann"}},
        "seen": noon, "day": date(2026, 3, 1), "clock": time(8, 30), "price": Decimal("1.250"), "x": 0.5,
        "raw": b"\1\2", "more": ({"howMany": 1, "at": noon},), "tags": {"a": 1.5},
    }  # fmt: skip
    given = fold(everything, [plain])
    assert given.in_order == fold(everything, [own])
    (row,) = given
    assert (row["at"], row["price"], row["raw"], row["who"]) == (noon, Decimal("1.25"), b"\1\2", "ann")
    assert row["more"] == [{"n": 1, "at": noon}]
    with pytest.raises(UnwritableError, match="no source writes a set"):
        fold(everything, [plain | {"tags": {1, 2}}])


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_double_that_is_no_number_is_given_as_such_in_any_place_of_a_record(value: float) -> None:
    columns = {"x": "double", "f": "float", "all": "array<double>", "by": "map<string,float>", "n": "bigint"}
    columns |= {"deep": "struct<x:double,of:array<struct<f:float>>>"}
    log = Log(name="odd", columns={"at": "timestamp", **columns}, event_time="at", fields={"f": "in.f"})
    copy = Map(name="copy", log=log, what=tuple(columns))
    given = {"x": value, "all": [1.5, value], "by": {"a": value}, "n": 1, "deep": {"x": value, "of": [{"f": value}]}}
    (row,) = fold(copy, [{"at": "2026-03-01", **given, "in": {"f": value}}])
    expected = given | {"f": value, "by": [{"key": "a", "value": value}]}
    assert repr({name: row[name] for name in sorted(columns)}) == repr(dict(sorted(expected.items())))
    with pytest.raises(RejectedError, match="not one JSON object"):
        fold(copy, [{"at": "2026-03-01", "n": value}])


def test_a_rejected_record_is_an_error_unless_the_test_says_so() -> None:
    def refused(record: Any) -> Any:
        if record["cents"] == 13:
            raise RecordError("13 brings bad luck")
        return {"euros": record["cents"] // 100}

    careful = replace(HOURLY, each=Each(refused, gives={"euros": "bigint"}))
    bad = {"at": 7, "city": "Rome"}
    for epochs, told in (([bad], "at = 7 is not a timestamp"), ([ride("09:10", 13)], "13 brings bad luck")):
        with pytest.raises(RejectedError, match=told):
            fold(careful, epochs)
    given = fold(careful, [[ride("09:10"), bad], ride("09:10", 13)], allow_rejected=True)
    assert given.answers == "rides \n 1"
    given.rejected.check("""
        by           | epoch | reason
        rides        | 0     | "at = 7 is not a timestamp"
        hourly_rides | 1     | "13 brings bad luck"
    """)


def test_records_that_are_none_and_logs_that_are_not_read_are_errors() -> None:
    taxis = replace(RIDES, name="taxis")
    both = Join(name="both", left=RIDES, right=taxis, on="city", within=minutes(5), right_columns={"taxi": "cents"})
    with pytest.raises(EpochsError, match=r"reads rides, taxis: write \{log name: \[records\]\}"):
        fold(both, [[ride("09:10")]])
    for epoch in ("text", 7, [7], [[ride("09:10")]]):
        with pytest.raises(EpochsError, match="epoch 0: expected a list of records"):
            fold(HOURLY, [epoch])  # type: ignore[list-item]


def test_a_step_that_only_spark_can_run_is_refused() -> None:
    step = SparkColumns({"more": ("bigint", "cents + 1")})
    with pytest.raises(NotImplementedError):
        fold(replace(HOURLY, each=step), [ride("09:10")])


def test_a_later_stage_reads_panes_and_takes_retractions() -> None:
    early = replace(HOURLY, when=AfterWatermark(early=AfterCount(1)), how=RETRACTING)
    total = Pipeline(name="total", log=early.panes, key=(), what={"cents": Sum("cents")}, where=Global())
    fold(total, [ride("09:10", 3), ride("09:20", 4), ride("11:20", 5)]).answers.check("""
        window         cents
        beginning/end  12
    """)


def test_a_join_gives_pairs_of_the_logs_that_a_test_names() -> None:
    taxis = replace(RIDES, name="taxis")
    both = Join(
        name="both", left=RIDES, right=taxis, on="city", within=minutes(5), kind="left",
        left_columns="cents", right_columns={"taxi": "cents"},
    )  # fmt: skip
    given = fold(both, [{"rides": [ride("09:10", 1), ride("09:30", 2)]}, {"taxis": [ride("09:12", 3)]}])
    given.check("""
        event_time        city   cents  taxi
        2026-03-01T09:12  Paris  1      3
        2026-03-01T09:30  Paris  2      null
    """)


def test_the_rows_of_a_join_that_stand_are_those_that_nothing_takes_back() -> None:
    early = replace(HOURLY, when=AfterWatermark(early=AfterCount(1)), how=RETRACTING)
    both = Join(
        name="both", left=replace(RIDES, name="taxis"), right=early.panes, on="city", within=hours(1),
        left_columns="cents", right_columns={"total": "cents"},
    )  # fmt: skip
    given = fold(both, [{"taxis": [ride("09:50", 9)]}, {"rides": [ride("09:10", 1)]}, {"rides": [ride("09:20", 2)]}])
    assert len(given.where(sign="-")) == len(given.where(sign="+")) - 1
    given.answers.check("cents total \n 9 3")


class Runs(Computation):
    """The rides of a city so far."""

    state = {"rides": Field("bigint", 0)}
    produces = {"so_far": "bigint"}

    def process_record(self, context: Any, record: Any) -> None:
        context.state.rides += 1
        context.produce({"so_far": context.state.rides})


def test_a_map_a_computation_and_a_pipeline_over_them_are_folded_as_one_chain() -> None:
    dear = Map(name="dear", log=RIDES, keep=Match("cents", ">", 1), what=("city", "cents"))
    assert fold(dear, [[ride("09:10", 1), ride("09:20", 5)]]) == "cents event_time \n 5 2026-03-01T09:20"
    runs = Runs(name="runs", log=dear.produced, key="city")
    fold(runs, [ride("09:10", 2), ride("09:20", 3), ride("09:40", 1)]).in_order.check("""
        city   so_far  epoch
        Paris  1       0
        Paris  2       1
    """)
    most = Pipeline(name="most", log=runs.produced, key="city", what={"n": Count()}, where=Fixed(hours(1)))
    assert fold(most, [ride("09:10", 2), ride("09:20", 3)]).answers == "n \n 2"


def test_windows_of_arrival_times_end_with_the_test() -> None:
    arrivals = Arrivals(of=RIDES)
    given = fold(replace(HOURLY, log=arrivals), [Epoch([ride("01:10")], now="2026-03-01T09:10")])
    assert given.answers == "window rides \n 2026-03-01T09:00/10:00 1"


def test_a_row_of_a_table_may_be_taken_back() -> None:
    changes = Changes(name="cities", columns={"city": "string", "n": "int", "at": "timestamp"}, event_time="at")
    total = Pipeline(name="total", log=changes, key="city", what={"n": Sum("n"), "rows": Count()}, where=Global())
    row = {"city": "Paris", "n": 3, "at": "2026-03-01T09:00"}
    fold(total, [[row, row | {"n": 4}], [row | {"_sign": -1, "at": "2026-03-01T10:00"}]]).answers.check("""
        city   n  rows
        Paris  4  1
    """)


@settings(max_examples=20)
@given(records_of(RIDES), st.integers(1, 3))
def test_the_rows_are_those_of_the_reference_over_the_epochs_of_a_simulation(
    records: list[dict[str, Any]], size: int
) -> None:
    sample = from_json(RIDES, map(json.dumps, records))
    panes = reference.fold(HOURLY, sample_epochs(RIDES, sample.records, per_epoch=size)).panes
    found = fold(HOURLY, [records[place : place + size] for place in range(0, len(records), size)])
    assert [
        (row["city"], row["window"], row["rides"], row["cents"], row["epoch"], row["watermark"]) for row in found
    ] == [
        (*pane.key, pane.window, pane.values["rides"], pane.values["cents"], pane.version.epoch, moment(pane.watermark))
        for pane in panes
    ]

"""What holds a log's watermark back, and what does not (rule T3)."""

from __future__ import annotations

import pytest

from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, minutes, seconds
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import (
    REMEMBERED,
    BoundedDisorder,
    Injected,
    ObservedLag,
    WatermarkStrategy,
)
from tailrace.model.step.progress import Progress, Seen

SECOND = 1_000_000
STRATEGY = BoundedDisorder(seconds(10), idle=seconds(60))


def at(second: int) -> int:
    return second * SECOND


def seen(**latest: int) -> dict[str, Seen]:
    return {name: Seen(at(second)) for name, second in latest.items()}


def test_T3_a_bound_on_disorder_holds_the_watermark_behind_the_latest_record() -> None:
    progress = Progress().after(STRATEGY, seen(a=30), now=0)
    assert progress.watermark == at(20)
    assert progress.after(STRATEGY, seen(a=25), now=0).watermark == at(20)
    assert progress.after(STRATEGY, {}, now=0).watermark == at(20)
    assert Progress(END_OF_TIME).after(STRATEGY, seen(a=30), now=0).watermark == END_OF_TIME


def test_T3_the_partition_furthest_behind_holds_the_watermark_back() -> None:
    progress = Progress().after(STRATEGY, seen(a=100, b=40), now=0)
    assert (progress.watermark, progress.behind) == (at(30), ("b",))
    progress = progress.after(STRATEGY, seen(b=200), now=0)
    assert (progress.watermark, progress.behind) == (at(90), ("a",))


def test_T3_a_partition_that_never_had_a_record_is_waited_for_until_it_is_idle() -> None:
    progress = Progress().after(STRATEGY, seen(a=100), now=at(1000), there=("a", "b"))
    assert (progress.watermark, progress.behind) == (BEGINNING, ("b",))
    progress = progress.after(STRATEGY, seen(a=150), now=at(1059), there=("a", "b"))
    assert progress.watermark == BEGINNING
    progress = progress.after(STRATEGY, {}, now=at(1060), there=("a", "b"))
    assert (progress.watermark, progress.holding) == (at(140), ("a",))
    assert progress.is_idle("b")


def test_T3_a_partition_that_comes_back_holds_the_watermark_where_it_is() -> None:
    progress = Progress().after(STRATEGY, seen(a=100, b=50), now=0)
    progress = progress.after(STRATEGY, seen(a=300), now=at(60))
    assert progress.watermark == at(290)
    progress = progress.after(STRATEGY, seen(a=400, b=60), now=at(61))
    assert (progress.watermark, progress.behind) == (at(290), ("b",))
    assert progress.after(STRATEGY, seen(b=390), now=at(62)).watermark == at(380)


def test_T3_where_every_partition_is_idle_the_watermark_stands_still() -> None:
    progress = Progress().after(STRATEGY, seen(a=100, b=50), now=0)
    progress = progress.after(STRATEGY, {}, now=at(500))
    assert (progress.watermark, progress.holding) == (at(40), ())


def test_T3_without_a_time_out_a_partition_is_waited_for_for_ever() -> None:
    strategy = BoundedDisorder(seconds(10), idle=None)
    progress = Progress().after(strategy, seen(a=100, b=50), now=0)
    assert progress.after(strategy, seen(a=900), now=at(10**6)).watermark == at(40)


def test_T3_files_say_until_when_their_partition_is_complete() -> None:
    strategy = Injected(files=r"(?P<partition>eu|us)/until-(?P<until>[^.]+)\.csv$", partitions=("eu", "us"))
    assert strategy.completes("file:///drop/eu/until-2026-01-01T06:00.csv") == ("eu", instant_of(6))
    assert strategy.completes("s3://drop/us/until-2026-01-01T07:00+01:00.csv") == ("us", instant_of(6))
    assert strategy.completes("file:///drop/eu/part.csv") is None
    assert strategy.completes("file:///drop/eu/until-noon.csv") is None
    progress = Progress().after(strategy, {"eu": Seen(complete=instant_of(6))}, now=0)
    assert (progress.watermark, progress.behind) == (BEGINNING, ("us",))
    progress = progress.after(strategy, {"us": Seen(complete=instant_of(5))}, now=0)
    assert progress.watermark == instant_of(5)


def instant_of(hour: int) -> int:
    from datetime import UTC, datetime

    return instant(datetime(2026, 1, 1, hour, tzinfo=UTC))


def test_T3_what_is_said_of_the_whole_log_moves_it_whatever_its_partitions_do() -> None:
    progress = Progress().after(STRATEGY, seen(a=100), now=0, there=("b",), complete=at(500))
    assert progress.watermark == at(500)
    assert Progress().after(Injected(), {}, now=0, complete=at(5)).watermark == at(5)


def test_T3_beyond_what_is_remembered_the_counts_of_lags_are_halved() -> None:
    strategy = ObservedLag(99, at_most=minutes(10))
    assert strategy.learned({0: REMEMBERED}, [{0: 1}, {7: 1}, {9: 5}]) == {0: REMEMBERED // 2, 9: 2}
    assert strategy.learned({0: 2 * REMEMBERED}, [{3: 9}]) == {0: REMEMBERED // 2, 3: 2}


def test_T3_until_enough_records_were_seen_the_lag_is_taken_to_be_the_most() -> None:
    strategy = ObservedLag(99, at_most=minutes(10))
    few, many = ({0: count} for count in (999, 1000))
    assert strategy.reached(0, at(1000), few) == at(400)
    assert strategy.reached(0, at(1000), many) == at(1000)


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        (BoundedDisorder(seconds(-1)), "log.watermark.behind"),
        (BoundedDisorder(seconds(1), idle=seconds(0)), "log.watermark.idle"),
        (ObservedLag(0, seconds(1)), "log.watermark.share"),
        (ObservedLag(101, seconds(1)), "log.watermark.share"),
        (ObservedLag(True, seconds(1)), "log.watermark.share"),
        (ObservedLag(99, seconds(-1)), "log.watermark.at_most"),
        (Injected(files="(("), "log.watermark.files"),
        (Injected(files="until"), "log.watermark.files"),
        (Injected(partitions=("",)), "log.watermark.partitions"),
        (Injected(partitions=["eu"]), "log.watermark.partitions"),  # type: ignore[arg-type]
        ("late", "log.watermark"),
    ],
)
def test_a_strategy_with_a_fault_is_refused(strategy: WatermarkStrategy, fault: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Log(name="clicks", columns={"at": "timestamp"}, event_time="at", watermark=strategy)
    assert [one.path for one in refused.value.faults] == [fault]


def test_a_strategy_stands_alone() -> None:
    with pytest.raises(DefinitionError) as refused:
        Log(
            name="clicks", columns={"at": "timestamp"}, event_time="at", disorder=seconds(1),
            percentiles={90: seconds(0)}, watermark=BoundedDisorder(seconds(1)),
        )  # fmt: skip
    assert [one.path for one in refused.value.faults] == ["log.disorder", "log.percentiles"]
    log = Log(name="clicks", columns={"at": "timestamp"}, event_time="at", disorder=seconds(1))
    assert log.strategy == BoundedDisorder(seconds(1))

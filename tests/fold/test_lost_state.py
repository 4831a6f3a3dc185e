"""State that went with the executor that held it is had from the ledgers, and the stream goes on (rule X2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import RETRACTING, AfterCount, AfterWatermark, Computation, Context, Count, Field, Fixed, Pipeline, days
from tailrace.engines.spark.side import SparkSide
from tailrace.fold.streamed_definitions import StreamError
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.depth import deep
from tests.support.lakes.rides import HOURLY, RIDES, Case, within

BY_CENTS = Pipeline(
    name="by_cents", log=HOURLY.panes, key="cents", what={"windows": Count()}, where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), how=RETRACTING,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Numbered(Computation):
    state = {"rides": Field("bigint", 0)}
    produces = {"number": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.rides += 1
        context.produce({"number": context.state.rides})


NUMBERED = Numbered(name="numbered", log=RIDES, key="who")


@deep
def test_X2_a_stream_whose_state_is_lost_has_it_from_the_ledgers_and_goes_on(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    on_spark = settings.model_copy(update={"engine": "spark", "windows_in_driver": 0})
    case, told = Case(plain, on_spark, tmp_path / "landing"), list[EpochReport]()
    stream = Stream(plain, case.lake, [BY_CENTS, NUMBERED], case.source, watch=told.append)
    stream.start()
    rides = [("ann", 1, "08:05"), ("ann", 2, "08:15"), ("zoe", 3, "08:20"), ("ann", 4, "08:40"), ("zoe", 5, "12:00")]
    for epoch, ride in enumerate(rides):
        if epoch in (1, 3):
            for fold in stream.folds:
                # Freed, its blocks are as gone as those of an executor that is.
                fold.state.forget()
        case.land(ride)
        within(stream, lambda epoch=epoch: len(told) > epoch)
    stream.stop()
    stream.close()
    assert [one.epoch for one in told] == [0, 1, 2, 3, 4]
    assert [one.recovered for one in told] == [False, True, False, True, False]
    assert [one.landed.records for one in told] == [1] * 5
    for pipeline in BY_CENTS.stages:
        found = audit(case.lake, pipeline)
        assert found.ok, found.checks
    assert audit(case.lake, NUMBERED).ok
    numbers = plain.sql("SELECT who, number FROM numbered__ledger WHERE kind = 'production' ORDER BY who, number")
    assert [tuple(row) for row in numbers.collect()] == [("ann", 1), ("ann", 2), ("ann", 3), ("zoe", 1), ("zoe", 2)]


def test_X2_what_spark_fails_at_while_it_folds_is_said_in_a_line_and_nothing_is_lost(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(plain, settings.model_copy(update={"engine": "spark", "windows_in_driver": 0}), tmp_path / "landing")
    case.land(("ann", 1, "08:05"), ("ann", 2, "08:15"))
    with monkeypatch.context() as patch:
        patch.setattr(SparkSide, "write", lambda *_: plain.sql("SELECT RAISE_ERROR('no room')").collect())
        stream = case.stream(HOURLY)
        stream.start(once=True)
        with pytest.raises(StreamError, match=r"the stream of log rides .* failed: .*no room.*nothing .* is lost"):
            stream.wait()
    case.drain(HOURLY)
    found = audit(case.lake, HOURLY)
    assert found.ok, found.checks
    assert case.answers(HOURLY) == {("ann", "08:00"): (2, 3)}

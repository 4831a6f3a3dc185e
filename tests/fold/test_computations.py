"""Computations on real tables: streamed, stopped, deployed one by one, failing and mended; what reads them follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import PROCESSING, Computation, Context, RecordError, Timer
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.spark.executions.preparation import schema_of
from tailrace.engines.spark.keys import SparkKeys
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import ComputationError
from tailrace.model.step import computation_state, computation_step
from tailrace.settings import Settings
from tests.support.cases.clicks import BUSY, CLICKS, QUICK, START, TIMES, VISITS, land
from tests.support.checks.ledgers import as_ever, expected, on, run

TYPES = {"_epoch": "bigint", "_source": "string", "_offset": "bigint"}
"""Where a record came from."""


def test_X2_computations_come_and_go_and_change_their_engine_and_their_ledgers_are_those_of_one_run(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "landing", Lake(settings)
    land(folder, 0, 2)
    (*_, report) = run(plain, lake, folder, VISITS)
    assert report.folded["visits"].engine == "duckdb"
    # New ones catch up from the log, while the one that is there goes on.
    land(folder, 2, 2)
    reports = run(plain, on(lake, "spark"), folder, BUSY, QUICK)
    assert reports[-1].folded["visits"].engine == "spark"
    assert [report.epoch for report in reports if report.recovered] == [0, 1]
    assert all(set(report.folded) == {"busy", "quick"} for report in reports if report.recovered)
    for one in (report.folded["visits"] for report in reports if "visits" in report.folded):
        kinds = plain.sql(f"SELECT kind FROM visits__ledger WHERE epoch = {one.clock.epoch}").collect()
        counted = Counter(row["kind"] for row in kinds)
        assert (one.productions, one.late) == (counted["production"], counted["late"]), "what is told of an epoch"
    as_ever(plain, lake, [VISITS, BUSY, QUICK])
    # Some are left out for a while: the others do not wait for them.
    land(folder, 4, 2)
    run(plain, lake, folder, QUICK)
    token = lake.head("busy__ledger").number("token")
    assert lake.head("busy__ledger").number("epoch") == 3
    # What reads weak productions has them computed again, from the state of before, epoch by epoch.
    land(folder, 6, 2)
    run(plain, lake, folder, TIMES, BUSY)
    assert lake.head("busy__ledger").number("token") == token + 1
    as_ever(plain, lake, [VISITS, BUSY, QUICK, TIMES])
    assert all(plain.sql(f"SELECT 1 FROM {one}__ledger WHERE kind = 'pane'").count() > 3 for one in ("busy", "times"))
    assert "production" not in {row["kind"] for row in plain.sql("SELECT kind FROM quick__ledger").collect()}


def brittle_on(flag: str) -> Computation:
    """It is made here, as that of a definition file is, and so travels to the workers by value."""

    @dataclass(frozen=True, kw_only=True)
    class Brittle(Computation):
        """It fails where a file says so, and takes no sevens."""

        flag: str = ""

        state = {"total": "bigint"}
        produces = {"total": "bigint", "clicks": "bigint"}

        def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
            if record["id"] == 25:
                context.set_timer("due", context.processing_time, PROCESSING)
            context.state.total = (context.state.total or 0) + 1
            if record["id"] % 7 == 0:
                raise RecordError("seven")
            context.produce({"total": context.state.total})

        def process_timer(self, context: Context, timer: Timer) -> None:
            if Path(self.flag).exists():
                raise KeyError("no such thing")

    return Brittle(name="brittle", log=CLICKS, key="who", flag=flag, allowed_lateness=timedelta(hours=1))


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_computation_that_fails_commits_nothing_and_goes_on_when_it_is_mended(
    plain: SparkSession, settings: Settings, tmp_path: Path, engine: str
) -> None:
    settings = settings.model_copy(update={"poison": "stop"})
    folder, lake, broken = tmp_path / "landing", on(Lake(settings), engine), tmp_path / "broken"
    broken.touch()
    land(folder, 0, 2)
    brittle = brittle_on(str(broken))
    with pytest.raises(ComputationError, match=r"brittle: process_timer raised KeyError: 'no such thing' \(key \('"):
        run(plain, lake, folder, brittle)
    assert lake.head("brittle__ledger").number("epoch") == 0
    assert lake.head("clicks").number("epoch") >= 1
    broken.unlink()
    run(plain, lake, folder, brittle)
    last = expected(plain, lake, brittle)[-1]
    rows = plain.sql("SELECT who, epoch, total, source_offset FROM brittle__ledger WHERE kind = 'production'").collect()
    assert Counter(map(tuple, rows)) == Counter((*p.key, p.epoch, p.values["total"], p.place) for p in last.productions)
    reasons = plain.sql("SELECT reason, source_epoch FROM brittle__ledger WHERE kind = 'rejected'").collect()
    assert Counter(map(tuple, reasons)) == Counter((one.reason, one.epoch) for one in last.rejected)
    assert len(last.rejected) == 6


@dataclass(frozen=True, kw_only=True)
class Totals(Computation):
    """How many records each key had."""

    state = {"total": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.total = (context.state.total or 0) + 1


def test_L1_keys_at_rest_stay_as_they_are_and_their_partitions_do_not_grow_with_the_epochs(
    plain: SparkSession, settings: Settings
) -> None:
    totals, spark = Totals(name="totals", log=CLICKS, key="who"), EngineChoice(Engine.SPARK, "a test")
    execution, schema = SparkKeys(plain, Lake(settings), totals, spark), schema_of({**CLICKS.columns, **TYPES})
    keys, state, partitions = execution.nothing(), computation_state.KeysState(), list[int]()
    for epoch in range(6):
        who = [None, *map(str, range(40))] if epoch == 0 else [str(epoch), None, f"new {epoch}"]
        records = [
            {"id": place, "who": one, "at": START, "seen": START, "_epoch": epoch, "_source": "a", "_offset": place}
            for place, one in enumerate(who)
        ]
        clock = Clock(epoch, 0, epoch)
        computed = execution.step(keys, plain.createDataFrame(records, schema), clock)
        assert computed.rows.where("kind = 'partial'").count() == len(who), "those that had something to do"
        keys.forget()
        keys, state = computed.state, computation_step.step(totals, state, records, clock).state
        held = {(row["who"],): row["state"]["total"] for row in keys.frame.collect()}
        assert held == {key: one.fields["total"] for key, one in state.keys.items()}
        partitions.append(keys.frame.rdd.getNumPartitions())
    assert len(held) == 46
    assert len(set(partitions[1:])) == 1

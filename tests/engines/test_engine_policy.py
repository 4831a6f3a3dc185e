"""The policy of engines by itself, without any engine: what fits, when a fold goes over, and for which reasons."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tailrace import Map, SparkColumns
from tailrace.engines import choose
from tailrace.engines.batch import run_engine
from tailrace.engines.choose import Engine, EnginePolicy
from tailrace.engines.duckdb.database.connection import RoomError
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.definition import Definition, KindError
from tailrace.settings import Settings
from tests.support.cases.clicks import VISITS
from tests.support.lakes.rides import HOURLY

GIGABYTE = EnginePolicy(None, 10**9)
DUCKDB, SPARK = (EnginePolicy(one, 10**9, named=f"it is {one.value}") for one in Engine)


def never() -> int:
    raise AssertionError("the bytes were asked for")


def test_what_fits_is_said_by_the_settings(settings: Settings) -> None:
    policy = EnginePolicy.of(settings.model_copy(update={"memory": "1GB"}))
    assert policy.holds(bytes=10**9, rows=10**6)
    assert not policy.holds(bytes=10**9 + 1)
    assert not policy.holds(rows=10**8)
    for engine, holds in (("duckdb", True), ("spark", False)):
        named = EnginePolicy.of(settings.model_copy(update={"engine": engine}))
        assert named.holds(bytes=10**15) is holds
        assert named.for_run(1).why == f"TAILRACE_ENGINE is {engine}"


def test_an_epoch_is_read_here_up_to_a_quarter_of_the_memory_and_for_spark_while_it_is_small() -> None:
    quarter = 10**9 // 4
    assert [GIGABYTE.takes(partial(int, size), ids=True) for size in (quarter, quarter + 1)] == [True, False]
    assert DUCKDB.takes(never, ids=True)
    small = [SPARK.takes(partial(int, size), ids=False) for size in (choose.BROUGHT, choose.BROUGHT + 1)]
    assert small == [True, False]
    # The ids that are remembered on Spark may be too many for this process.
    assert not SPARK.takes(never, ids=True)
    assert [policy.reads(quarter + 1) for policy in (GIGABYTE, DUCKDB)] == [False, True]


def test_a_fold_goes_over_for_an_epoch_that_is_elsewhere_and_for_a_state_that_is_too_large() -> None:
    assert GIGABYTE.goes_over(HOURLY, here=True, rows=10**7) is None
    gone = GIGABYTE.goes_over(HOURLY, here=False, rows=0)
    assert str(gone) == "spark: an epoch's records are more than a quarter of TAILRACE_MEMORY, 1,000 MB"
    for definition, kept in ((HOURLY, "open windows"), (VISITS, "keys")):
        gone = GIGABYTE.goes_over(definition, here=True, rows=10**8)
        assert str(gone) == f"spark: 100,000,000 {kept}, too many for TAILRACE_MEMORY, 1,000 MB"
    assert DUCKDB.goes_over(HOURLY, here=True, rows=10**12) is None


def test_a_stream_and_a_run_go_by_the_definition_then_the_settings_then_the_size() -> None:
    stepped = replace(HOURLY, each=(SparkColumns({"more": ("bigint", "cents + 1")}),))
    assert str(GIGABYTE.for_run(10**9 + 1, HOURLY)).startswith("spark: the files to read, 1,000 MB, are more than")
    assert GIGABYTE.for_run(10**9, HOURLY).engine is Engine.DUCKDB
    assert GIGABYTE.for_run(1, stepped).why == DUCKDB.for_run(1, stepped).why == "a step is written for Spark"
    assert GIGABYTE.for_stream(stepped).why.endswith("; Spark takes its steps before")
    assert (DUCKDB.for_stream(HOURLY).why, SPARK.for_run(1, HOURLY).why) == ("it is duckdb", "it is spark")
    assert GIGABYTE.for_stream(VISITS).why == "while epochs and keys are within TAILRACE_MEMORY, 1,000 MB"


def test_what_is_not_added_up_comes_to_this_process_from_smaller_inputs() -> None:
    plain = Map(name="plain", log=HOURLY.log)
    assert GIGABYTE.comes_here(10**9, HOURLY)
    assert not GIGABYTE.comes_here(10**8, plain)


def test_the_driver_has_as_many_windows_as_do_not_spill_unless_the_settings_say(settings: Settings) -> None:
    few = settings.model_copy(update={"windows_in_driver": 3})
    assert (EnginePolicy.of(few).driver_windows, GIGABYTE.driver_windows) == (3, 2_500_000)


def test_a_run_that_duckdb_had_no_room_for_says_so_and_not_that_the_settings_name_spark(settings: Settings) -> None:
    lake, seen = Lake(settings.model_copy(update={"memory": "1GB"})), list[str]()

    def run(lake: Lake) -> str:
        seen.append(str(EnginePolicy.of(lake.settings).for_run(1, HOURLY)))
        if len(seen) == 1:
            raise RoomError("no more room")
        return seen[-1]

    why = "spark: DuckDB had no room for it within TAILRACE_MEMORY, 1,000 MB, and TAILRACE_SCRATCH"
    assert run_engine.run_with_fallback(lake, run) == why
    assert seen[0].startswith("duckdb: the files to read")
    seen.clear()
    with pytest.raises(RoomError):
        run_engine.run_with_fallback(Lake(settings.model_copy(update={"engine": "duckdb"})), run)


def test_a_kind_without_an_entry_is_refused_by_name() -> None:
    class Sketch(Definition):
        kind_name = "sketch"

    with pytest.raises(KindError, match="Sketch: no kind of definition that there is a demand on an engine for"):
        GIGABYTE.for_stream(Sketch())

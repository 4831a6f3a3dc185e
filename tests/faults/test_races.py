"""Races of real processes: of two that write the same, one wins, and the other stops and says so (X1, X4, V4)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.cli.terminal.usage import ExitStatus
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import BACKFILLED
from tailrace.lake.commit.runs_table import Runs
from tailrace.settings import Settings
from tests.support.depth import deep
from tests.support.faults.racing import Race, next_epoch, racing
from tests.support.waiting import PATIENT


@pytest.fixture
def race(settings: Settings, tmp_path: Path) -> Iterator[Race]:
    with racing(settings, tmp_path) as made:
        yield made


@deep
@pytest.mark.slow
def test_X1_a_writer_that_was_paused_and_goes_on_publishes_nothing(race: Race, spark: SparkSession) -> None:
    race.landing.land(4)
    zombie = race.stream()
    next_epoch(zombie)
    race.tell(zombie, signal.SIGSTOP)
    race.landing.land(2)
    race.drained()
    heads = {table: Lake(race.settings).head(table) for table in ("clicks", "visits__ledger")}
    race.landing.land(2)
    race.tell(zombie, signal.SIGCONT)
    _, err = race.ended(zombie, ExitStatus.GAVE_WAY)
    assert "another stream took the lease" in err
    assert "Traceback" not in err
    lake = Lake(race.settings)
    assert {table: lake.head(table).properties.get("epoch") for table in heads} == {
        table: head.properties["epoch"] for table, head in heads.items()
    }, "it was fenced off before it could publish an epoch"
    race.drained(here=True)
    race.ends_clean(spark)


@deep
@pytest.mark.slow
def test_X1_of_two_streams_that_start_at_once_one_goes_on(race: Race, spark: SparkSession) -> None:
    race.landing.land(4)
    both = [race.stream(), race.stream()]
    end = time.monotonic() + PATIENT
    while all(one.poll() is None for one in both) and time.monotonic() < end:
        # The one that lost finds out when it has something to publish.
        race.landing.land(1)
        time.sleep(3)
    ended = [one for one in both if one.poll() is not None]
    assert len(ended) == 1, [(one.returncode, *one.communicate()) for one in ended]
    (loser,) = ended
    (winner,) = [one for one in both if one is not loser]
    _, err = race.ended(loser, ExitStatus.GAVE_WAY)
    assert "run only one stream of a pipeline" in err
    race.tell(winner, signal.SIGINT)
    race.ended(winner, ExitStatus.INTERRUPTED)
    race.drained()
    race.ends_clean(spark)


@deep
@pytest.mark.slow
def test_X4_a_backfill_of_open_and_closed_windows_beside_a_stream(race: Race, spark: SparkSession) -> None:
    race.landing.land(3)
    stream = race.stream()
    next_epoch(stream)
    run = race.backfill("--from", "2023-12-31", "--reason", "beside a stream")
    while run.poll() is None:
        if race.landing.count < 12:
            race.landing.land(1)
        time.sleep(2)
    race.ended(run, ExitStatus.OK)
    assert stream.poll() is None, "the stream goes on"
    race.tell(stream, signal.SIGINT)
    race.ended(stream, ExitStatus.INTERRUPTED)
    race.drained()
    made = [run for run in Runs(Lake(race.settings), race.pipeline).all() if run.kind == "backfill"]
    assert {run.status for run in made} == {"committed"}
    race.ends_clean(spark)


@deep
@pytest.mark.slow
def test_V4_of_two_backfills_that_overlap_the_later_one_stands(race: Race, spark: SparkSession) -> None:
    race.landing.land(40)
    race.drained()
    both = [race.backfill("--from", "2023-12-31", "--to", "2024-01-01T00:01:00") for _ in range(2)]
    both.append(race.backfill("--from", "2024-01-01T00:00:20", "--to", "2024-01-01T00:01:20"))
    for one in both:
        race.ended(one, ExitStatus.OK, ExitStatus.GAVE_WAY)
    lake, first = Lake(race.settings), race.pipeline
    runs = [run for run in Runs(lake, first).all() if run.kind == "backfill"]
    assert {run.status for run in runs} <= {"committed", "gave_way"}
    made = [said[BACKFILLED].split()[0] for _, said in lake.commits("visits__ledger") if BACKFILLED in said]
    assert len(made) == len(set(made)) >= 1, "a run commits once"
    changed = sum(run.changed or 0 for run in runs)
    ledger = lake.table("visits__ledger").scan(row_filter="kind = 'pane'").to_arrow().to_pylist()
    corrections = [row for row in ledger if row["timing"] == "correction" and not row["retraction"]]
    assert changed == len(corrections) > 0, "the first changed the windows, and the others found them right"
    race.ends_clean(spark)

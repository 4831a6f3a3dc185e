"""The times of commits are in order whatever clocks say, and what is wrong already is found and mended."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as tried
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import metadata as pyiceberg_metadata
from pyiceberg.table import update
from pyiceberg.table.metadata import TableMetadata
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.cli.commands.run.maintain import _done_lines
from tailrace.doctor import lake_checks
from tailrace.doctor.findings import Finding, run_check
from tailrace.lake.catalog.lake import MAIN, Lake, no_rows, ref_of
from tailrace.lake.commit.pins import pin_snapshots
from tailrace.lake.commit.retention import find_expired
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.metadata.commit_times import (
    EARLIEST,
    explain_refusal,
    milliseconds_ahead,
    now_milliseconds,
    out_of_order,
    put_in_order,
)
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.upkeep.leftovers import leftover_names, leftover_tables
from tailrace.lake.upkeep.orphans import orphans
from tailrace.lake.upkeep.time_mending import SERVED, mend_times
from tailrace.operate.maintenance import maintain
from tailrace.settings import Settings
from tests.support.lakes.small_lake import HOURLY, RIDES, make
from tests.support.services.catalogs import Servers

LOG = "rides"
HOUR = 3_600_000
THEN = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
clocks = st.one_of(
    st.just(0.0), st.integers(-30 * 24, 30 * 24).map(lambda hours: THEN + 3600.0 * hours), st.just(THEN + 3.2e9)
)
"""What a machine's clock may say: 1970, a month more or less, a hundred years on."""


@contextmanager
def clock(at: float) -> Iterator[None]:
    """This process's clock, wherever pyiceberg and Tailrace read it."""

    class Moved(dt.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return dt.datetime.fromtimestamp(at, tz)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: at)
        patch.setattr(time, "time_ns", lambda: int(at * 1e9))
        patch.setattr(update, "datetime", Moved)
        patch.setattr(pyiceberg_metadata, "datetime", SimpleNamespace(datetime=Moved))
        yield


def sorted_logs(metadata: TableMetadata) -> bool:
    """What Iceberg of Java asks, without its tolerance, and that no snapshot is before its parent."""
    at = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    logs: list[list[Any]] = [metadata.snapshot_log, metadata.metadata_log]
    times = [[*(one.timestamp_ms for one in log), metadata.last_updated_ms] for log in logs]
    parents = all(
        at[one.parent_snapshot_id or 0] <= one.timestamp_ms for one in metadata.snapshots if one.parent_snapshot_id
    )
    return parents and all(earlier <= later for log in times for earlier, later in itertools.pairwise(log))


def head(lake: Lake) -> int:
    found = ref_of(lake.table(LOG), MAIN)
    assert found is not None
    return found


def first(lake: Lake) -> int:
    return lake.table(LOG).metadata.snapshots[0].snapshot_id


def append(lake: Lake) -> None:
    lake.table(LOG).append(no_rows(lake.table(LOG).schema()))


def branch(lake: Lake) -> None:
    name = f"stream_{uuid.uuid4().hex[:6]}"
    lake.move(LOG, name, head(lake), None)
    lake.table(LOG).append(no_rows(lake.table(LOG).schema()), branch=name)
    lake.move(LOG, MAIN, lake.refs(LOG)[name], head(lake))


def properties(lake: Lake) -> None:
    with lake.table(LOG).transaction() as transaction:
        transaction.set_properties({f"own.{uuid.uuid4().hex[:4]}": "1"})


CHANGES: tuple[Callable[[Lake], object], ...] = (
    append,
    branch,
    properties,
    lambda lake: lake.mark(LOG, {"epoch": "1"}, head(lake)),
    lambda lake: lake.move(LOG, MAIN, first(lake), head(lake)),
    lambda lake: lake.name(LOG, f"t{uuid.uuid4().hex[:6]}", head(lake)),
    lambda lake: lake.forget(LOG, [first(lake)]),
)


# A branch that moves back to a snapshot, by a clock that says the snapshot's own time once more.
@example([(append, THEN), (CHANGES[4], 0.0)], 0.0)
@tried(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(CHANGES), clocks), max_size=8), clocks)
def test_X3_no_commit_is_dated_before_its_parent_whatever_clocks_say(
    changes: list[tuple[Callable[[Lake], object], float]], made: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Settings(warehouse=Path(folder)))
        with clock(made):
            lake.ensure(log_contract(RIDES), {"epoch": "-1"})
        for change, at in changes:
            with clock(at):
                change(lake)
            assert sorted_logs(lake.table(LOG).metadata)


@pytest.mark.parametrize("catalog", ["sqlite", "postgres", "rest"])
def test_X3_commits_are_dated_in_order_in_every_kind_of_catalog(
    catalog: str, settings: Settings, tmp_path: Path
) -> None:
    with Servers(tmp_path) as servers:
        told, _ = servers.lake(catalog, settings)
        lake = Lake(told)
        lake.ensure(log_contract(RIDES), {"epoch": "-1"})
        for hours in (3, 0, -24, -500_000):
            with clock(max(0.0, time.time() + 3600.0 * hours)):
                append(lake)
        assert sorted_logs(lake.table(LOG).metadata)


@pytest.fixture
def lake(settings: Settings) -> Lake:
    make(settings)
    return Lake(settings)


def damage(lake: Lake, *hours: float, table: str = LOG) -> None:
    """Commits as pyiceberg dates them by itself, by clocks that are so many hours off."""
    settings = lake.settings
    plain = SqlCatalog(
        settings.catalog, uri=f"sqlite:///{settings.warehouse}/catalog.db", warehouse=settings.warehouse_uri
    )
    now = time.time()
    for off in hours:
        with clock(now + 3600 * off):
            loaded = plain.load_table((settings.namespace, table))
            said = {"tailrace.epoch": "1", "tailrace.watermark": "1", "tailrace.processing_time": "1"}
            loaded.append(no_rows(loaded.schema()), snapshot_properties=said)


times = st.integers(-4 * 24 * HOUR, 4 * 24 * HOUR)


@tried(max_examples=100)
@given(st.lists(times, min_size=1, max_size=6), st.integers(0, 48))
def test_X3_mending_makes_nothing_old_enough_to_expire(shifts: list[int], kept: int) -> None:
    now = int(THEN * 1000)
    metadata = _made([now + shift for shift in shifts])
    right = put_in_order(metadata, now)
    assert sorted_logs(right)
    assert not out_of_order(right)
    assert not milliseconds_ahead(right, now)
    before = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    for one in right.snapshots:
        assert min(before[one.snapshot_id], now) <= one.timestamp_ms <= now
    assert put_in_order(right, now) == right


def _made(at: list[int]) -> TableMetadata:
    """A table of commits at these times, and no files."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Settings(warehouse=Path(folder)))
        lake.ensure(log_contract(RIDES), {"epoch": "-1"})
        metadata = lake.table(LOG).metadata
    (one,) = metadata.snapshots
    numbers = range(1, len(at) + 1)
    snapshots = [
        one.model_copy(
            update={
                "snapshot_id": number,
                "parent_snapshot_id": number - 1 or None,
                "sequence_number": number,
                "timestamp_ms": moment,
            }
        )
        for number, moment in zip(numbers, at, strict=True)
    ]
    entry = metadata.snapshot_log[0]
    log = [
        entry.model_copy(update={"snapshot_id": number, "timestamp_ms": moment})
        for number, moment in zip(numbers, at, strict=True)
    ]
    return metadata.model_copy(
        update={"snapshots": snapshots, "snapshot_log": log, "metadata_log": [], "last_updated_ms": at[-1]}
    )


def times_found(settings: Settings) -> Finding:
    return run_check("times", lambda: lake_checks.check_times(settings))


@pytest.mark.slow
def test_X3_times_that_are_wrong_are_found_and_mended_and_spark_goes_on(spark: SparkSession, lake: Lake) -> None:
    ledger = ledger_name(HOURLY.name)
    wrong = {LOG: (3.0, 0.0), ledger: (0.0, 48.0), HOURLY.name: (2.0, -24.0, 5.0)}
    before = {table: lake.table(table).metadata for table in wrong}
    assert times_found(lake.settings).state == "ok"
    for table, hours in wrong.items():
        damage(lake, *hours, table=table)

    def write(table: str) -> None:
        name = lake.spark_name(table)
        spark.sql(f"INSERT INTO {name} SELECT * FROM {name} LIMIT 0").collect()

    # Iceberg of Java tries to read a table for a minute and a half, so what it reads is given to it.
    parse: Any = vars(spark)["_jvm"].org.apache.iceberg.TableMetadataParser
    for table in wrong:
        with pytest.raises(PySparkException) as refused:
            write(table) if table == ledger else parse.fromJson(lake.table(table).metadata.model_dump_json())
        assert explain_refusal(str(refused.value)) is not None
    assert times_found(lake.settings).state == "wrong"
    left_over = dated_files(lake)
    done = maintain(spark, lake, HOURLY)
    assert {name: file.exists() for name, file in left_over.items()} == {"old": False, "odd": True, "young": True}
    assert {one.table for one in done.times} == {*wrong}
    assert times_found(lake.settings).state == "ok"
    for table in wrong:
        write(table)
        left = {one.snapshot_id for one in lake.table(table).metadata.snapshots}
        assert {one.snapshot_id for one in before[table].snapshots} <= left


def test_X3_at_a_rest_catalog_wrong_times_are_told_with_who_can_mend_them(settings: Settings, tmp_path: Path) -> None:
    with Servers(tmp_path) as servers:
        told, _ = servers.lake("rest", settings)
        make(told)
        lake = Lake(told)
        assert times_found(told).state == "ok"
        with clock(time.time() + 48 * 3600):
            append(lake)
        found = times_found(told)
        assert (found.state, found.mend.startswith(SERVED)) == ("wrong", True)
        assert mend_times(lake, [LOG]) == []
        done = maintain(no_spark, lake, HOURLY)
        assert [one.table for one in done.times_left] == [LOG]
        assert not done.times
        text = "".join(str(one) for one in _done_lines(done))
        assert SERVED in text


def no_spark() -> SparkSession:
    raise AssertionError("there is nothing for Spark to do")


def test_X3_a_clock_that_is_not_believed_mends_nothing(lake: Lake) -> None:
    damage(lake, 3.0, 0.0)
    before = lake.table(LOG).metadata_location
    with clock(0.0):
        assert mend_times(lake, [LOG]) == []
        assert "clock" in times_found(lake.settings).found
    assert lake.table(LOG).metadata_location == before


def test_X3_a_commit_between_the_look_and_the_mending_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(lake, 3.0, 0.0)
    catalog: Any = lake.catalog
    commit, others = catalog.whole.commit_table, [1]

    def beside(*given: Any) -> Any:
        if others:
            others.pop()
            append(Lake(lake.settings))
        return commit(*given)

    monkeypatch.setattr(catalog.whole, "commit_table", beside)
    count = len(lake.table(LOG).metadata.snapshots)
    assert mend_times(lake, [LOG])
    assert len(lake.table(LOG).metadata.snapshots) == count + 1
    assert sorted_logs(lake.table(LOG).metadata)


def test_X3_no_snapshot_expires_since_a_clock_was_wrong(lake: Lake) -> None:
    damage(lake, -1.0, -400_000.0, -0.5, -400_000.0)
    now, kept = now_milliseconds(), timedelta(hours=3)
    assert find_expired(lake.table(LOG), now, kept).removed == ()
    damage(lake, 400_000.0)
    assert find_expired(lake.table(LOG), now, kept).removed == ()
    # Of a clock that is behind, and of one of 1970, nothing is old.
    assert find_expired(lake.table(LOG), 0, kept).removed == ()


def test_X3_nothing_is_left_over_for_a_date_of_a_clock_that_was_wrong(lake: Lake) -> None:
    with clock(0.0):
        run = Runs(lake, HOURLY).start("backfill", 0, 1, log_epoch=0)
    name = f"backfill_{run.run}"
    lake.move(LOG, name, head(lake), None)
    append(lake)
    with clock(0.0), pin_snapshots(lake, {LOG: head(lake)}):
        runs = {one.run: one for one in Runs(lake, HOURLY).all()}
        kept = timedelta(days=7)
        assert leftover_names(lake.table(LOG), runs, now_milliseconds() + 10**12, kept) == []
        now = int(dt.datetime.now(UTC).timestamp() * 1000)
        assert leftover_names(lake.table(LOG), runs, now, kept) == []


def dated_files(lake: Lake) -> dict[str, Path]:
    """Files that no snapshot of the log names: one of some days ago, one of 1970 and one of just now."""
    folder = Path(lake.table(LOG).location().removeprefix("file://")) / "data"
    folder.mkdir(exist_ok=True)
    made = {}
    for name, at in (("old", time.time() - 9 * 86_400), ("odd", 60.0), ("young", time.time())):
        made[name] = folder / f"{name}.parquet"
        made[name].write_bytes(b"")
        os.utime(made[name], (at, at))
    return made


def test_X3_a_file_of_1970_may_be_about_to_be_committed(lake: Lake) -> None:
    made = dated_files(lake)
    assert orphans(lake, LOG, datetime.now(UTC) - timedelta(days=3)) == [f"file://{made['old']}"]


def test_V4_a_run_that_ended_by_a_clock_that_was_put_right_has_ended(lake: Lake) -> None:
    runs = Runs(lake, HOURLY)
    with clock(THEN + 10 * 3600):
        run = runs.start("backfill", 0, 10, log_epoch=0)
    runs.note(run, status="committed")
    assert [one.status for one in runs.all() if one.run == run.run] == ["committed"]


def test_X3_the_table_of_a_replay_is_not_dropped_for_a_date_of_1970(lake: Lake) -> None:
    name = f"{HOURLY.name}__replay_0123abcd"
    with clock(60.0):
        lake.ensure(replace(log_contract(RIDES), table=name))
    assert lake.table(name).metadata.last_updated_ms < EARLIEST
    assert leftover_tables(lake, HOURLY, [name], now_milliseconds(), timedelta(days=7)) == []

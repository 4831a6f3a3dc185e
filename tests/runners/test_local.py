"""Runs on a machine, in the process or its warm session: checked, cancelled, killed, never of code that changed."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy

import pytest
from pyspark.sql import SparkSession

from tailrace.engines.duckdb.database.connection import RoomError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.model.base.time import instant
from tailrace.runners.jobs import BackfillJob, Cancelled, JobOutcome, MaintainJob, RunnerError
from tailrace.runners.local import Local
from tailrace.settings import Settings
from tests.support.depth import deep
from tests.support.lakes import rides

MIDNIGHT = instant(datetime(2026, 1, 1, tzinfo=UTC))
HOUR = 3_600_000_000


@dataclass
class Bench:
    """A lake in which three hours of rides were streamed, the last of each too late; and a runner on it."""

    settings: Settings
    definition: Path
    lake: Lake
    told: list[str] = field(default_factory=list)
    workers: int = 0

    def job(self, first: int, last: int, **more: object) -> BackfillJob:
        return BackfillJob.of(
            definition=str(self.definition), first=MIDNIGHT + first * HOUR, last=MIDNIGHT + last * HOUR, **more
        )

    def run(self, first: int, last: int, **more: object) -> JobOutcome:
        (found,) = Local(self.settings).backfill(self.job(first, last, **more), self.told.append)
        return found

    def on_spark(self) -> Bench:
        """Have what runs from now on be Spark's, and so the worker's."""
        self.settings, self.workers = self.settings.model_copy(update={"engine": "spark"}), 1
        return self

    @property
    def worker(self) -> int:
        """The worker that had the last run."""
        return [int(found[1]) for told in self.told if (found := re.match(r"worker (\d+) has it", told))][-1]

    @property
    def snapshots(self) -> dict[str, int | None]:
        return {name: self.lake.head(name).snapshot for name in ("hourly", "hourly__ledger", "hourly__runs")}


@pytest.fixture
def bench(settings: Settings, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Stream some rides, 2 seconds; a worker that a test asks for on Spark takes 7 more to start."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    case = rides.Case(spark, settings, tmp_path / "landing")
    case.land(*[("ann", 1, f"{hour:02}:05") for hour in (8, 9, 10)])
    case.land(("zoe", 1, "20:00"))
    case.land(*[("ann", 2, f"{hour:02}:15") for hour in (8, 9, 10)])
    case.drain(rides.HOURLY)
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    copy(Path(rides.__file__), definitions / "neighbour.py")
    (definitions / "hourly.py").write_text("from neighbour import HOURLY\n")
    made = Bench(settings, definitions / "hourly.py", case.lake)
    yield made
    assert Local.stop_all(settings.warehouse) == made.workers


def at_once(bench: Bench) -> list[JobOutcome]:
    """Three runs at once, an hour each."""
    found: list[JobOutcome] = []
    threads = [threading.Thread(target=lambda at=at: found.append(bench.run(at, at + 1))) for at in (8, 9, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def check_at_once(bench: Bench) -> None:
    before = bench.snapshots
    tried = bench.run(8, 9, dry_run=True)
    assert (tried.changed, tried.untouched, tried.retracted) == (1, 0, 0)
    assert bench.snapshots == before, "a dry run changes nothing"
    found = at_once(bench)
    assert {one.changed for one in found} == {1}
    assert len({one.generation for one in found}) == 3, "V2: each run has a generation of its own"
    again = bench.run(8, 11, reason="'; DROP TABLE hourly; --")
    assert (again.changed, again.untouched, again.retracted) == (0, 3, 0), "V5: any cut gives the rows of one run"
    assert "DROP" in (Runs(bench.lake, rides.HOURLY).all()[-1].reason or "")
    with pytest.raises(RunnerError, match="no such file") as refused:
        Local(bench.settings).backfill(
            BackfillJob.of(definition=str(bench.definition.parent / "none.py"), first=0, last=1), print
        )
    assert not refused.value.again


def test_runs_that_duckdb_does_are_done_in_the_process_that_asks(bench: Bench) -> None:
    check_at_once(bench)
    assert not any("worker" in one for one in bench.told)
    before, runner = bench.snapshots, Local(bench.settings)

    def computing(doing: str) -> None:
        runner.cancel()

    with pytest.raises(Cancelled):
        runner.backfill(bench.job(8, 11), computing)
    assert bench.snapshots == before


def test_a_run_for_which_there_turns_out_to_be_no_room_goes_to_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> JobOutcome:
        raise RoomError("there is no more room")

    monkeypatch.setattr("tailrace.runners.local.run_backfill", full)
    assert bench.run(8, 9).changed == 1
    assert any("Spark takes it" in one for one in bench.told)
    bench.workers = 1


@deep
@pytest.mark.slow
def test_runs_share_one_session_and_do_what_the_command_does(bench: Bench) -> None:
    check_at_once(bench.on_spark())
    first = bench.worker
    assert len({one for one in bench.told if one.startswith("worker")}) == 1, "nobody started another session"

    neighbour = bench.definition.parent / "neighbour.py"
    neighbour.write_text(neighbour.read_text() + "\n")
    assert bench.run(8, 9, dry_run=True).untouched == 1
    assert bench.worker != first, "code that has changed is loaded by another worker"


@pytest.mark.slow
def test_a_run_that_is_cancelled_or_killed_is_done_by_the_next_one(bench: Bench) -> None:
    runner = Local(bench.on_spark().settings)

    def computing(doing: str) -> None:
        if doing.startswith("computing"):
            runner.cancel()

    with pytest.raises(Cancelled):
        runner.backfill(bench.job(8, 11), computing)
    bench.run(8, 9, dry_run=True)

    def kill(doing: str) -> None:
        bench.told.append(doing)
        if doing.startswith("computing"):
            os.kill(bench.worker, signal.SIGKILL)

    with pytest.raises(RunnerError, match="died") as died:
        Local(bench.settings).backfill(bench.job(8, 11), kill)
    assert died.value.again
    bench.run(8, 11)
    done = bench.run(8, 11)
    assert (done.changed, done.untouched, done.retracted) == (0, 3, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"first": 5, "last": 5}, "is empty"),
        ({"first": "2013-03-08"}, "first: "),
        ({"reason": "two\nlines"}, "reason: "),
        ({"reason": "x" * 201}, "reason: "),
        ({"dry_run": "yes"}, "dry_run: "),
        ({"definition": "pipelines/flights.py"}, "definition: "),
        ({"shell": "rm"}, "shell: "),
    ],
)
def test_a_job_that_does_not_hold_is_refused_in_one_line(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(RunnerError, match=re.escape(said)) as refused:
        BackfillJob.of(**{"definition": "/pipelines/flights.py", "first": 0, "last": 1} | wrong)
    assert "\n" not in str(refused.value)
    assert not refused.value.again


def test_a_folder_of_sockets_that_others_can_reach_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = tmp_path / f"tailrace-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(RunnerError, match="of this user alone"):
        Local(settings).maintain(MaintainJob(definition="/pipelines/flights.py"), print)

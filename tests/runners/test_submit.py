"""Runs on a real cluster: a Spark master with two workers, to which each run is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy

import pytest
from pyspark.sql import SparkSession

from tailrace.model.base.time import instant
from tailrace.runners.jobs import BackfillJob, MaintainJob, RunnerError
from tailrace.runners.submit import Submit
from tailrace.settings import Settings
from tests.support.depth import deep
from tests.support.lakes import rides
from tests.support.services.cluster import SUBMIT, Cluster, cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture
def spark_cluster(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Start a cluster of a master and two workers, 10 seconds."""
    with cluster(tmp_path / "cluster", settings) as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        yield made


@deep
@pytest.mark.slow
def test_runs_that_are_submitted_to_a_cluster_do_what_those_of_one_machine_do(
    spark_cluster: Cluster, settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    case = rides.Case(spark, settings, tmp_path / "landing")
    case.land(("ann", 1, "08:05"))
    case.land(("zoe", 1, "20:00"))
    case.land(("ann", 2, "08:15"))
    case.drain(rides.HOURLY)
    copy(Path(rides.__file__), tmp_path / "neighbour.py")
    definition = tmp_path / "hourly.py"
    definition.write_text("from neighbour import HOURLY\n")

    words = spark_cluster.options[2:]
    runner = Submit(spark_cluster.address, ROOT / "spark" / "jobs", options=words, command=SUBMIT, settings=settings)
    first = instant(datetime(2026, 1, 1, tzinfo=UTC))
    job = BackfillJob.of(
        definition=str(definition), first=first, last=first + 43_200_000_000, reason='$(touch no); "--dry-run" `'
    )
    (done,) = runner.backfill(job, print)
    assert (done.changed, done.untouched, done.retracted) == (1, 0, 0)
    assert case.answers(rides.HOURLY)[("ann", "08:00")] == (2, 3)
    assert not list(tmp_path.rglob("no"))

    kept = runner.maintain(MaintainJob(definition=str(definition)), print)
    assert {"rides", "hourly"} <= {one["table"] for one in kept["tables"]}

    with pytest.raises(RunnerError, match="no such file") as refused:
        runner.backfill(job.model_copy(update={"definition": str(tmp_path / "none.py")}), print)
    assert not refused.value.again

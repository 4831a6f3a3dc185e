"""Streams and backfills of real processes on each kind of lake that is not the embedded one (rules X1, X2, X4)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.cli.terminal.usage import ExitStatus
from tailrace.engines.duckdb.file_query import FileQuery
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.settings import Settings
from tests.support.faults.racing import next_epoch, racing
from tests.support.services.catalogs import Servers
from tests.support.waiting import PATIENT, until

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.mark.parametrize("kind", ["postgres", "rest", "glue"])
def test_X4_a_stream_a_backfill_and_a_stream_that_takes_over_lose_and_double_nothing(
    kind: str, servers: Servers, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, env = servers.lake(kind, settings)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with racing(told, tmp_path, env) as race:
        race.landing.land(3)
        first = race.stream()
        next_epoch(first)
        run = race.backfill("--from", "2023-12-31", "--reason", "beside a stream")
        while run.poll() is None:
            if race.landing.count < 6:
                race.landing.land(1)
            time.sleep(2)
        race.ended(run, ExitStatus.OK)
        heir = race.stream()

        def gave_way() -> bool:
            # It finds out when it has something to publish.
            race.landing.land(1)
            return first.poll() is not None

        until(gave_way, every=3)
        _, said = race.ended(first, ExitStatus.GAVE_WAY)
        assert "another stream took the lease" in said
        next_epoch(heir)
        race.tell(heir, signal.SIGKILL)
        heir.wait(PATIENT)
        race.landing.land(2)
        race.drained()
        counts = race.audited()["counts"]
        assert (counts["records"], counts["rejected"]) == (race.landing.records, race.landing.broken)
        lake = Lake(told)
        made = [one for one in Runs(lake, race.pipeline).all() if one.kind == "backfill"]
        assert {one.status for one in made} == {"committed"}
        assert counted_by_an_executor(lake, race.pipeline.log.name) == counts["records"]


def counted_by_an_executor(lake: Lake, log: str) -> int:
    """How many records an executor's Python finds in a log's files, on this machine or in S3."""
    table, schema = lake.table(log), pa.schema({"n": pa.int64()})
    columns = pa.schema({"_epoch": pa.int64()})
    asked = FileQuery("SELECT COUNT(*) AS n FROM rows", "rows", columns, schema, dict(table.io.properties), "256MB")
    batches = asked.over([task.file.file_path for task in table.scan().plan_files()])
    return sum(sum(batch["n"].to_pylist()) for batch in batches)


def test_X2_a_stream_whose_catalog_dies_ends_and_the_next_one_goes_on_where_it_was(
    servers: Servers, settings: Settings, tmp_path: Path
) -> None:
    """With Spark as its engine, which DuckDB is above."""
    told, env = servers.lake("rest", settings)
    with racing(told, tmp_path, env | {"TAILRACE_ENGINE": "spark"}) as race:
        race.landing.land(3)
        stream = race.stream()
        next_epoch(stream)
        servers.rest.server.kill()
        try:
            race.landing.land(1)
            _, said = race.ended(stream, ExitStatus.FAILED)
        finally:
            servers.rest.server.start()
        assert f"the catalog {told.catalog_uri} answers that it cannot (503)" in said
        assert "Traceback" not in said
        assert servers.rest.token not in said
        race.drained()
        race.env["TAILRACE_ENGINE"] = "auto"
        counts = race.audited()["counts"]
        assert (counts["records"], counts["rejected"]) == (race.landing.records, race.landing.broken)

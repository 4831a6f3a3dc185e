"""A real stream and a real backfill, watched from outside: what is scraped is what the tables hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from pyspark.sql import SparkSession

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, days, hours, minutes
from tailrace.backfill.backfill import backfill
from tailrace.backfill.result import Backfilled
from tailrace.cli.terminal.console import Output
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import progress_of
from tailrace.lake.read.status import status
from tailrace.model.base.time import instant
from tailrace.model.logs.watermark_strategies import Injected
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.telemetry.observation import observe_run
from tailrace.telemetry.run_events import Subject, Watcher
from tailrace.verify.audit import audit
from tests.support.services.scraping import Scraped, collecting, scraped

ROOT = Path(__file__).parents[2]
DROPS = Log(
    name="drops", columns={"id": "string", "who": "string", "at": "timestamp"}, event_time="at",
    record_id="id", remembered=days(1),
    watermark=Injected(files=r"(?P<partition>eu|us)-(?P<until>[0-9T-]+)\.json", partitions=("eu", "us")),
)  # fmt: skip
COUNTED = Pipeline(
    name="counted", log=DROPS, key="who", what={"n": Count()}, where=Fixed(minutes(60)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), how=RETRACTING, allowed_lateness=hours(1),
)  # fmt: skip
OWN = {"log": "drops", "pipeline": "counted"}
BROKEN = '{"id": "x", "who": \n'


def land(folder: Path, place: int, name: str, *records: tuple[str, str, str], more: str = "") -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"id": id, "who": who, "at": f"2026-01-01T{at}:00Z"} for id, who, at in records]
    file = folder / f".{name}"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + more)
    os.utime(file, (1_700_000_000 + place, 1_700_000_000 + place))
    file.rename(folder / name)


def land_first(folder: Path) -> None:
    """Three files: with a broken record, with one that came before, and with one that is too late."""
    land(
        folder,
        0,
        "eu-2026-01-01T05.json",
        ("a", "ann", "01:10"),
        ("b", "ann", "02:10"),
        ("c", "bob", "04:10"),
        more=BROKEN,
    )
    land(folder, 1, "us-2026-01-01T03.json", ("d", "ann", "01:20"), ("a", "ann", "01:10"))
    land(folder, 2, "us-2026-01-01T03-30.json", ("e", "ann", "01:30"), ("f", "ann", "02:30"))


def rows(spark: SparkSession, text: str) -> Counter[Any]:
    return Counter({tuple(row)[:-1]: row[-1] for row in spark.sql(text).collect()})


def same_as_the_tables(found: Scraped, spark: SparkSession, lake: Lake) -> None:
    """What was scraped of one run that made all of the tables is what they hold."""
    assert found.value("records_total") == spark.table("drops").count()
    assert found.value("rejected_records_total") == spark.table("drops__rejected").count()
    panes = rows(spark, "SELECT timing, COUNT(*) FROM counted__ledger WHERE kind='pane' AND NOT retraction GROUP BY 1")
    assert {one: found.value("panes_total", timing=one, **OWN) for one in ("early", "on_time", "late")} == {
        one: panes[(one,)] for one in ("early", "on_time", "late")
    }
    taken = spark.sql("SELECT * FROM counted__ledger WHERE kind = 'pane' AND retraction").count()
    assert found.value("retractions_total", **OWN) == taken
    late = rows(spark, "SELECT reason, COUNT(*) FROM counted__ledger WHERE kind = 'late' GROUP BY 1")
    assert found.value("late_records_total", reason="expired", **OWN) == late[("expired",)]
    own = status(lake, COUNTED).own
    assert own is not None
    assert own.windows is not None
    assert found.value("open_windows", **OWN) == own.windows.count
    assert found.value("last_epoch", **OWN) == own.epoch
    assert found.value("answers_epochs_behind", **OWN) == own.epoch - own.answers_epoch
    assert found.value("watermark_timestamp_seconds", **OWN) == own.watermark / 1e6
    assert found.value("watermark_lag_seconds", **OWN) == (own.lag or 0) / 1e6
    progress = progress_of(lake, "drops")
    assert progress is not None
    for name, partition in progress.partitions.items():
        of = {"log": "drops", "partition": name}
        assert found.value("partition_lag_seconds", **of) == (progress.now - partition.watermark) / 1e6
        assert found.value("partition_holds_watermark", **of) == (name in progress.behind)
        assert found.value("partition_idle", **of) == progress.is_idle(name)


def test_what_is_scraped_of_a_stream_is_what_its_tables_hold(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.sql("SET TIME ZONE 'UTC'")
    lineage, log = tmp_path / "lineage.json", tmp_path / "run.json"
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(lineage), "APPEND": "true"}.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    folder = tmp_path / "landing"
    land_first(folder)
    source = Files(str(folder), per_epoch=1)
    watched = settings.model_copy(update={"log_format": "json", "log_file": log, "metrics_file": tmp_path})
    subject = Subject("stream", watched, COUNTED.stages, {COUNTED.log.name: source})
    said: list[str] = []
    monkeypatch.setattr(Output, "say", lambda self, text: said.append(text))
    with observe_run(subject, Output().say, 0) as observed:
        (url,) = [text.rpartition(" ")[2] for text in said]
        lake = Lake(settings, observed.tell)
        running = Stream(plain, lake, [COUNTED], source, watch=observed.tell, follow_every=2)
        running.start(once=True)
        running.wait()
        found = scraped(url)
        same_as_the_tables(found, plain, lake)
        # Each of them is one that this input must have made.
        assert [found.value(f"{one}_records_total") for one in ("rejected", "duplicate")] == [1, 1]
        assert found.value("late_records_total", reason="expired") == 1
        assert found.value("partition_holds_watermark", partition="us") == 1
        assert found.value("open_windows", **OWN) == 2
        assert min(found.total("panes_total", timing=one) for one in ("early", "on_time", "late")) > 0
        assert found.value("epochs_total") == 3
        phases = {"trigger", "read", "land", "consume", "step", "wait", "publish", "follow"}
        assert {phase: found.value("epoch_phase_seconds_count", phase=phase) for phase in phases} == dict.fromkeys(
            phases, 3
        )
        for table, writer in {"drops": "stream", "counted__ledger": "stream"}.items():
            assert found.value("commits_total", table=table, writer=writer) == 3
        assert found.value("commits_total", table="drops__rejected") == 1
        assert found.total("conflicts_total") == 0
        running.close()
        found = scraped(url)
        assert found.value("answers_epochs_behind", **OWN) == 0
        same_as_the_tables(found, plain, lake)
    at_the_end = Scraped((tmp_path / "tailrace_stream_drops.prom").read_text())
    assert at_the_end.samples == {**found.samples, ("tailrace_stream_running", frozenset({("log", "drops")})): 0}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["run"] for line in lines} == {subject.run}
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert [line["epoch"] for line in epochs] == [0, 1, 2]
    assert all(line["pipelines"]["counted"].items() >= {"generation": 1, "token": 1}.items() for line in epochs)
    assert [line["late"] for line in lines if line["event"] == "late_records"] == [1]
    events = [json.loads(line) for line in lineage.read_text().splitlines()]
    says_one_start_and_one_completion(events)
    assert events[-1]["run"]["facets"]["tailrace"]["epochs"] == {"first": 0, "last": 2}
    assert [one["name"] for one in events[-1]["inputs"]] == [str(folder)]


def test_X1_a_backfill_that_moves_the_ledger_is_a_conflict_and_its_windows_are_counted(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.sql("SET TIME ZONE 'UTC'")
    folder = tmp_path / "landing"
    land_first(folder)
    source = Files(str(folder), per_epoch=1)

    def drained(tell: Watcher) -> None:
        running = Stream(plain, Lake(settings, tell), [COUNTED], source, watch=tell)
        running.start(once=True)
        running.wait()
        running.close()

    drained(lambda _: None)
    land(folder, 3, "us-2026-01-01T04.json", ("e", "ann", "01:30"), ("g", "bob", "04:20"))
    said: list[str] = []
    monkeypatch.setattr(Output, "say", lambda self, text: said.append(text))
    log, file = tmp_path / "run.json", tmp_path / "backfill.prom"
    of_stream = settings.model_copy(update={"log_format": "json", "log_file": log})
    of_backfill = settings.model_copy(update={"metrics_file": file})
    publish, done = PipelineFold.publish, list[Backfilled]()

    def beside_a_backfill(fold: PipelineFold) -> bool:
        """The backfill commits after the epoch was written and before it is published."""
        if not done:
            with observe_run(Subject("backfill", of_backfill, COUNTED.stages), Output().say) as observed:
                lake = Lake(settings, observed.tell)
                done.extend(backfill(lake, COUNTED, instant_of(1), instant_of(2)))
        return publish(fold)

    monkeypatch.setattr(PipelineFold, "publish", beside_a_backfill)
    with observe_run(
        Subject("stream", of_stream, COUNTED.stages, {COUNTED.log.name: source}), Output().say, 0
    ) as observed:
        drained(observed.tell)
        found = scraped(said[0].rpartition(" ")[2])
    ledger = {"log": "drops", "table": "counted__ledger", "writer": "stream"}
    assert [found.value(name, **ledger) for name in ("conflicts_total", "commits_total")] == [1, 1]
    assert found.value("commits_total", table="counted", writer="follow") == 1
    assert found.total("fenced_total") == 0
    warned = [json.loads(line) for line in log.read_text().splitlines() if '"WARNING"' in line]
    assert [(one["event"], one["table"]) for one in warned if "table" in one] == [("commit_retried", "counted__ledger")]
    head = Lake(settings).head("counted__ledger")
    assert found.value("last_epoch", **OWN) == head.number("epoch") == 3
    of_run = Scraped(file.read_text())
    (run,) = done
    # The one that came too late.
    assert run.changed == 1
    counts = {"changed": run.changed, "untouched": run.untouched, "retracted": run.retracted}
    assert {one: of_run.value("backfill_windows_total", outcome=one, **OWN) for one in counts} == counts
    assert of_run.value("backfill_runs_total", status="committed", **OWN) == 1
    assert of_run.value("commits_total", table="counted__ledger", writer="backfill") == 1
    assert audit(Lake(settings), COUNTED).ok


def instant_of(hour: int) -> int:
    return instant(datetime(2026, 1, 1, hour, tzinfo=UTC))


def valid(event: dict[str, Any]) -> RunEvent:
    """An event as the client's own classes have it; they refuse one that is none."""
    run, job = event["run"], event["job"]
    return RunEvent(
        eventType=RunState[event["eventType"]],
        eventTime=event["eventTime"],
        run=Run(run["runId"], run["facets"]),
        job=Job(job["namespace"], job["name"], job["facets"]),
        inputs=[InputDataset(one["namespace"], one["name"], facets=one["facets"]) for one in event["inputs"]],
        outputs=[OutputDataset(one["namespace"], one["name"], facets=one["facets"]) for one in event["outputs"]],
        producer=event["producer"],
    )


def says_one_start_and_one_completion(events: list[dict[str, Any]]) -> None:
    first, *between, last = (valid(one).eventType for one in events)
    assert (first, last) == (RunState.START, RunState.COMPLETE)
    # A run that takes longer than a minute says now and then that it is running.
    assert set(between) <= {RunState.RUNNING}


@pytest.mark.slow
def test_the_command_is_scraped_while_it_runs_logs_json_and_sends_its_lineage(tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    land_first(folder)
    definition = tmp_path / "counted.py"
    definition.write_text("from tests.telemetry.test_observed_streams import COUNTED\n")
    with collecting() as (url, events):
        env = os.environ | {
            "TAILRACE_JARS": str(ROOT / "build" / "jars"), "TAILRACE_LOG_FORMAT": "json", "OPENLINEAGE_URL": url,
            "TAILRACE_METRICS_PORT": "0", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = [sys.executable, "-m", "tailrace.cli.main", "stream", str(definition), "--from", "landing"]
        running = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert running.stderr is not None
        lines: list[dict[str, Any]] = []
        try:
            for text in running.stderr:
                if not text.startswith("{"):
                    continue
                lines.append(json.loads(text))
                if lines[-1]["event"] == "epoch":
                    address = next(line["url"] for line in lines if line["event"] == "metrics_served")
                    assert address.startswith("http://127.0.0.1:")
                    assert scraped(address).value("epochs_total", log="drops") == 1
                    running.send_signal(signal.SIGINT)
            assert running.wait(120) == 130
        finally:
            running.kill()
            running.wait()
            running.stderr.close()
            assert running.stdout is not None
            running.stdout.close()
    assert [line["event"] for line in lines if line["level"] == "INFO"] == [
        "metrics_served", "began", "stream_started", "epoch", "ended"
    ]  # fmt: skip
    assert lines[-1]["stopped"] is True
    says_one_start_and_one_completion(events)
    assert {one["run"]["runId"] for one in events} == {lines[0]["run"]}

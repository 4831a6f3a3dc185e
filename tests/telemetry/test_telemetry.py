"""Metrics, structured logs and lineage of a run, from what the engine says of it."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.terminal.console import Output, output_for
from tailrace.cli.terminal.usage import ExitStatus, status_of
from tailrace.fold.fold import EpochResult
from tailrace.ingest.row_landing import LandedCounts
from tailrace.ingest.sources import Files, Kafka
from tailrace.lake.catalog.events import AnswersAdvanced, Outcome, Publication
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.pipeline_tables import part_types
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.step.progress import Partition, Progress
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.telemetry.endpoint import Endpoint
from tailrace.telemetry.lineage import Lineage
from tailrace.telemetry.log_lines import LOGGER, Logs
from tailrace.telemetry.metrics import METRICS, Metrics
from tailrace.telemetry.observation import observe_run, wants_lineage
from tailrace.telemetry.run_events import (
    CheckpointRepair,
    ObserveError,
    ObserveMissingError,
    RunEnd,
    RunEvent,
    RunStart,
    Subject,
    Watcher,
    join_watchers,
)
from tests.support.lakes import small_lake
from tests.support.services.scraping import Scraped, collecting, scraped

MINUTE = 60_000_000
NOW = instant(small_lake.at(14))
WATERMARK = instant(small_lake.at(12))


def report(epoch: int, **changes: Any) -> EpochReport:
    """An epoch of 100 records, 2 of which were late, with two partitions of which the first lags."""
    folded = EpochResult(
        3, 1, {"early": 4, "on_time": 2, "late": 1}, {"expired": 2, "finished": 0}, late=2,
        clock=Clock(epoch, WATERMARK, NOW), open=5, generation=1, token=4, unanswered=2,
    )  # fmt: skip
    partitions = {"rides-0": Partition(WATERMARK, WATERMARK, NOW - 10 * MINUTE), "rides-1": Partition(NOW, NOW, NOW)}
    whole = EpochReport(
        epoch, LandedCounts(100, 6, 9), {"hourly_rides": folded}, 0.5, {"trigger": 9.0, "step": 0.2},
        progress=Progress(WATERMARK, partitions, {}, NOW, 60 * MINUTE),
    )  # fmt: skip
    return replace(whole, **changes)


def stream(settings: Settings, source: Files | Kafka | None = None) -> Subject:
    return Subject(
        "stream", settings, small_lake.HOURLY.stages, {small_lake.HOURLY.log.name: source or Files("/landing")}
    )


def served(metrics: Metrics) -> Scraped:
    """What a scrape gives, over HTTP."""
    with Endpoint(metrics, "127.0.0.1", 0) as endpoint:
        return scraped(endpoint.url)


def test_a_stream_s_metrics_say_what_its_epochs_came_to(settings: Settings) -> None:
    metrics = Metrics(stream(settings))
    for happening in (
        RunStart(),
        report(0),
        replace(report(1), recovered=True, landed=LandedCounts(0, 0), progress=None),
    ):
        metrics(happening)
    found = served(metrics)
    assert [found.value(f"{name}_total", log="rides") for name in ("epochs", "recovered_epochs", "records")] == [
        2,
        1,
        100,
    ]
    assert [found.value(f"{name}_records_total", log="rides") for name in ("rejected", "duplicate")] == [6, 9]
    own = {"log": "rides", "pipeline": "hourly_rides"}
    assert [found.value("panes_total", timing=one, **own) for one in ("early", "on_time", "late")] == [8, 4, 2]
    assert [found.value("late_records_total", reason=one, **own) for one in ("expired", "finished")] == [4, 0]
    assert [found.value(f"{name}_total", **own) for name in ("retractions", "unanswered", "step_rejected_records")] == [
        6,
        4,
        2,
    ]
    assert [found.value(name, **own) for name in ("open_windows", "last_epoch")] == [5, 1]
    assert found.value("watermark_timestamp_seconds", **own) == WATERMARK / 1e6
    assert found.value("watermark_lag_seconds", **own) == 7200
    assert found.value("epoch_phase_seconds_count", phase="step") == 2
    assert found.value("epoch_phase_seconds_sum", phase="trigger") == 18


def test_a_partition_says_how_far_it_lags_and_whether_it_is_waited_for(settings: Settings) -> None:
    metrics = Metrics(stream(settings))
    metrics(report(0))
    found = served(metrics)
    names = ("partition_lag_seconds", "partition_silent_seconds", "partition_idle", "partition_holds_watermark")
    assert [found.value(name, partition="rides-0") for name in names] == [7200, 600, 0, 1]
    assert [found.value(name, partition="rides-1") for name in names] == [0, 0, 0, 0]
    progress = report(1).progress
    assert progress is not None
    metrics(report(1, progress=replace(progress, idle=5 * MINUTE)))
    found = served(metrics)
    assert [found.value(name, partition="rides-0") for name in names] == [7200, 600, 1, 0]
    assert found.value("partition_holds_watermark", partition="rides-1") == 1
    alone = Progress(BEGINNING, {"": Partition(BEGINNING, None, NOW)}, {}, NOW)
    metrics = Metrics(stream(settings))
    metrics(report(0, progress=alone))
    found = served(metrics)
    # It has no watermark yet, so that it lags behind nothing.
    assert [found.value(name, partition="all") for name in names] == [None, 0, 0, 1]


def test_a_watermark_that_is_not_there_yet_has_no_lag_and_complete_input_lags_behind_nothing(
    settings: Settings,
) -> None:
    metrics = Metrics(stream(settings))
    folded = report(0).folded["hourly_rides"]
    metrics(report(0, folded={"hourly_rides": replace(folded, clock=Clock(0, BEGINNING, NOW))}))
    assert served(metrics).value("watermark_lag_seconds") is None
    metrics(report(1, folded={"hourly_rides": replace(folded, clock=Clock(1, END_OF_TIME, NOW))}))
    assert served(metrics).value("watermark_lag_seconds") == 0


def test_commits_conflicts_and_a_lost_lease_are_counted_by_table(settings: Settings) -> None:
    metrics = Metrics(stream(settings))
    metrics(RunStart())
    for outcome in (Outcome.MOVED, Outcome.MOVED, Outcome.PUBLISHED, Outcome.FENCED):
        metrics(Publication("hourly_rides__ledger", "stream", outcome, 4))
    found = served(metrics)
    ledger = {"log": "rides", "table": "hourly_rides__ledger"}
    names = ("commits_total", "conflicts_total", "fenced_total")
    assert [found.value(name, **ledger) for name in names] == [1, 2, 1]
    assert [found.value(name, table="rides") for name in names] == [0, 0, 0]
    assert found.value("commits_total", table="hourly_rides", writer="follow") == 0


def test_answers_are_as_far_behind_as_the_tables_say(settings: Settings) -> None:
    small_lake.make(settings)
    metrics = Metrics(stream(settings))
    metrics(RunStart())
    steps: list[tuple[RunEvent, float]] = [
        (report(3), 2), (AnswersAdvanced("hourly_rides", 3), 0), (report(4), 1), (report(5), 2),
        (AnswersAdvanced("hourly_rides", 5), 0),
    ]  # fmt: skip
    with Endpoint(metrics, "127.0.0.1", 0) as endpoint:
        found = scraped(endpoint.url)
        assert (found.value("answers_epochs_behind"), found.value("last_epoch")) == (1, 2)
        for happening, behind in steps:
            metrics(happening)
            assert scraped(endpoint.url).value("answers_epochs_behind", pipeline="hourly_rides") == behind


def test_a_stream_that_ended_says_so(settings: Settings) -> None:
    metrics = Metrics(stream(settings))
    metrics(RunStart())
    assert served(metrics).value("stream_running") == 1
    metrics(RunEnd())
    assert served(metrics).value("stream_running") == 0


def test_every_metric_is_one_that_is_declared_and_what_it_says_it_is(settings: Settings) -> None:
    small_lake.make(settings)
    for command in ("stream", "backfill"):
        metrics = Metrics(replace(stream(settings), command=command))
        for happening in (RunStart(), report(0) if command == "stream" else RunStart(), RunEnd()):
            metrics(happening)
        found = served(metrics)
        declared = {one.name.removesuffix("_total"): one for one in METRICS if command in one.commands}
        assert set(found.families) == set(declared)
        for name, family in found.families.items():
            one = declared[name]
            assert (family.type, family.documentation) == (one.kind, one.doc)
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == set(one.labels), sample


def test_a_port_that_is_taken_is_named(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ObserveError, match=rf"127\.0\.0\.1:{port} .*--metrics-port"):
            Endpoint(Metrics(stream(settings)), "127.0.0.1", port)


def backfilled(settings: Settings, tell: Watcher) -> Runs:
    """Three backfills of a lake: one that another process committed, one that gave way, and one that failed."""
    small_lake.make(settings)
    others = Runs(Lake(settings), small_lake.HOURLY)
    span = (instant(small_lake.at(9)), instant(small_lake.at(11)))
    others.note(others.start("backfill", *span, log_epoch=2), status="committed", changed=1, untouched=2, retracted=3)
    runs = Runs(Lake(settings, tell), small_lake.HOURLY)
    runs.note(runs.start("backfill", *span, log_epoch=2), status="gave_way", reason="a newer one")
    runs.note(runs.start("backfill", *span, log_epoch=2), status="failed", reason="the disk is full")
    counts = {"changed": 10, "untouched": 20, "retracted": 0}
    runs.note(runs.start("backfill", *span, log_epoch=2, reason="a storm"), status="committed", **counts)
    return runs


def test_a_backfill_puts_the_totals_of_the_table_of_runs_into_a_file_at_once(
    settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"metrics_file": tmp_path})
    subject = Subject("backfill", settings, small_lake.HOURLY.stages)
    with observe_run(subject, Output().say) as observed:
        backfilled(settings, observed.tell)
    (file,) = tmp_path.glob("*.prom*")
    assert file.name == "tailrace_backfill_hourly_rides.prom"
    found = Scraped(file.read_text())
    own = {"log": "rides", "pipeline": "hourly_rides"}
    assert [found.value("backfill_runs_total", status=one, **own) for one in ("committed", "gave_way", "failed")] == [
        2,
        1,
        1,
    ]
    outcomes = ("changed", "untouched", "retracted")
    assert [found.value("backfill_windows_total", outcome=one, **own) for one in outcomes] == [11, 22, 3]
    seconds = found.value("backfill_seconds", **own)
    assert seconds is not None
    assert seconds > 0


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def logged(settings: Settings, tmp_path: Path, *happenings: RunEvent, command: Any = "stream") -> list[dict[str, Any]]:
    file = tmp_path / "logs" / "run.json"
    logs = Logs(replace(stream(settings), command=command, run="r1"), "json", file)
    for happening in happenings:
        logs(happening)
    logs.close()
    return lines(file)


def test_an_epoch_is_a_line_with_its_run_generation_and_token(settings: Settings, tmp_path: Path) -> None:
    began, epoch, ended = logged(
        settings, tmp_path, RunStart(), report(3, folded={}, progress=None), RunEnd(stopped=True)
    )
    same = {"log": "rides", "run": "r1", "command": "stream", "level": "INFO"}
    for line in (began, epoch, ended):
        assert same.items() <= line.items()
        assert line["time"].endswith("+00:00")
    assert (began["event"], began["pipelines"]) == ("began", ["hourly_rides"])
    assert (ended["event"], ended["stopped"]) == ("ended", True)
    assert (epoch["event"], epoch["epoch"], epoch["records"], epoch["phases"]["step"]) == ("epoch", 3, 100, 0.2)
    epoch, *_ = logged(settings, tmp_path, report(4))[3:]
    own = epoch["pipelines"]["hourly_rides"]
    assert {name: own[name] for name in ("panes", "open", "generation", "token", "watermark")} == {
        "panes": 7, "open": 5, "generation": 1, "token": 4, "watermark": "2026-01-01T12:00:00Z"
    }  # fmt: skip


def test_what_somebody_should_look_at_is_a_warning(settings: Settings, tmp_path: Path) -> None:
    said = logged(
        settings, tmp_path, CheckpointRepair("is lost"), report(0), report(1),
        Publication("rides", "stream", Outcome.PUBLISHED),
        Publication("hourly_rides__ledger", "stream", Outcome.MOVED), Publication("rides", "stream", Outcome.FENCED, 4),
        RunEnd(ValueError("no\nmore")),
    )  # fmt: skip
    found = [(line["level"], line["event"]) for line in said if line["level"] != "INFO"]
    # The partition is told of once, as long as it is the same.
    assert found == [
        ("WARNING", "checkpoint_rebuilt"), ("WARNING", "late_records"), ("WARNING", "watermark_held_back"),
        ("WARNING", "late_records"), ("WARNING", "commit_retried"), ("ERROR", "lease_lost"), ("ERROR", "failed"),
    ]  # fmt: skip
    by_event = {line["event"]: line for line in said}
    assert by_event["late_records"] | {"late": 2, "reasons": {"expired": 2}, "token": 4} == by_event["late_records"]
    assert by_event["watermark_held_back"]["partitions"] == {"rides-0": 600.0}
    assert by_event["lease_lost"]["token"] == 4
    assert (by_event["failed"]["error"], by_event["failed"]["reason"]) == ("ValueError", "no")


def test_a_backfill_s_runs_are_lines(settings: Settings, tmp_path: Path) -> None:
    heard: list[RunEvent] = []
    runs = backfilled(settings, heard.append)
    said = logged(settings, tmp_path, *heard, command="backfill")
    assert [(line["level"], line["event"]) for line in said] == [
        ("INFO", "backfill_started"), ("WARNING", "backfill_gave_way"), ("INFO", "backfill_started"),
        ("ERROR", "backfill_failed"), ("INFO", "backfill_started"), ("INFO", "backfill_committed"),
    ]  # fmt: skip
    last = runs.all()[-1]
    assert said[-1].items() >= {
        "pipeline": "hourly_rides", "run": last.run, "generation": last.generation, "epoch": 2, "reason": "a storm",
        "range": ["2026-01-01T09:00:00Z", "2026-01-01T11:00:00Z"], "changed": 10, "untouched": 20, "retracted": 0,
    }.items()  # fmt: skip


def test_text_says_the_same_to_people(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    logs = Logs(replace(stream(settings), run="r1"), "text", None)
    logs(CheckpointRepair("is lost"))
    logs.close()
    logs(CheckpointRepair("is not said any more"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.split(" ", 1)[1] == 'WARNING checkpoint_rebuilt command=stream log=rides run=r1 flaw="is lost"'


def test_a_file_that_cannot_be_written_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ObserveError, match="TAILRACE_LOG_FILE"):
        Logs(stream(settings), "text", tmp_path / "file" / "run.log")


def test_logs_on_standard_error_take_the_place_of_news(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    for changes in ({}, {"log_format": "json", "log_file": Path("x")}, {"log_file": Path("x")}):
        output_for(settings.model_copy(update=changes), json=False).say("news")
        assert capsys.readouterr().err == "news\n"
    hushed = output_for(settings.model_copy(update={"log_format": "json"}), json=False)
    hushed.say("news")
    hushed.text("report")
    assert capsys.readouterr() == ("report\n", "")


def test_only_what_is_asked_for_is_observed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("prometheus_client", "pythonjsonlogger.json", "openlineage.client.event_v2"):
        monkeypatch.setitem(sys.modules, module, None)
    with observe_run(stream(settings), Output().say) as observed:
        observed.tell(report(0))


@pytest.mark.parametrize(
    ("module", "make", "asked"),
    [
        ("prometheus_client", Metrics, "--metrics-port"),
        ("pythonjsonlogger.json", lambda subject: Logs(subject, "json", None), "TAILRACE_LOG_FORMAT"),
        ("openlineage.client.event_v2", lambda subject: Lineage(subject, print), "OPENLINEAGE_URL"),
    ],
)
def test_without_the_extra_one_is_told_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, module: str, make: Callable[[Subject], Any], asked: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ObserveMissingError, match=r"pip install 'tailrace\[observe\]'") as caught:
        make(stream(settings))
    assert asked in str(caught.value)
    assert status_of(caught.value) is ExitStatus.USAGE


def test_a_run_does_not_fail_by_what_is_observed_of_it() -> None:
    heard: list[RunEvent] = []
    warned: list[str] = []

    def broken(happening: RunEvent) -> None:
        raise OSError("no space\nleft")

    tell = join_watchers([broken, heard.append], warned.append)
    tell(RunStart())
    tell(RunEnd())
    assert heard == [RunStart(), RunEnd()]
    assert len(warned) == 1
    assert "OSError: no space" in warned[0]


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def to_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Lineage goes to a file, as the client's own variables say."""
    file = tmp_path / "lineage.json"
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(file), "APPEND": "true"}.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return file


def test_lineage_of_a_stream_says_what_it_reads_and_writes(settings: Settings, to_file: Path) -> None:
    subject = stream(settings, Kafka("rides", "broker:9092,other:9092"))
    lineage = Lineage(subject, pytest.fail, every=0)
    for happening in (RunStart(), report(3), report(4), RunEnd()):
        lineage(happening)
    lineage.close()
    found = events(to_file)
    assert [one["eventType"] for one in found] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert {one["run"]["runId"] for one in found} == {subject.run}
    last = found[-1]
    assert (last["job"]["namespace"], last["job"]["name"]) == ("tailrace", "stream.rides")
    assert last["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert [(one["namespace"], one["name"]) for one in last["inputs"]] == [("kafka://broker:9092", "rides")]
    tables = ["rides", "rides__rejected", "hourly_rides__ledger", "hourly_rides"]
    where = settings.warehouse_uri
    assert [(one["namespace"], one["name"]) for one in last["outputs"]] == [(where, f"main.{name}") for name in tables]
    fields = {field["name"]: field for field in last["outputs"][-1]["facets"]["schema"]["fields"]}
    assert (fields["city"]["type"], fields["city"]["description"]) == ("string", "key")
    nested = {field["name"]: field for field in last["outputs"][-2]["facets"]["schema"]["fields"]}["pending"]
    assert (nested["type"], len(nested["fields"])) == ("struct", len(part_types(small_lake.HOURLY)))
    own = last["run"]["facets"]["tailrace"]
    assert own["epochs"] == {"first": 3, "last": 4}
    assert own["pipelines"] == {"hourly_rides": {"fingerprint": small_lake.HOURLY.fingerprint, "generation": 1}}
    assert last["producer"] == own["_producer"]
    assert last["producer"].startswith("urn:tailrace:")


def test_lineage_of_a_backfill_is_a_run_each(settings: Settings, to_file: Path) -> None:
    lineage = Lineage(Subject("backfill", settings, small_lake.HOURLY.stages), pytest.fail)
    lineage(RunStart())
    runs = backfilled(settings, lineage)
    lineage(RunEnd())
    lineage.close()
    found = events(to_file)
    states = [one["eventType"] for one in found]
    assert states == ["START", "ABORT", "START", "FAIL", "START", "COMPLETE"]
    ids = [one["run"]["runId"] for one in found]
    assert ids[::2] == ids[1::2]
    assert len(set(ids)) == 3
    assert found[3]["run"]["facets"]["errorMessage"]["message"] == "the disk is full"
    last = found[-1]
    facets, run = last["run"]["facets"], runs.all()[-1]
    assert facets["nominalTime"]["nominalStartTime"] == "2026-01-01T09:00:00Z"
    assert facets["nominalTime"]["nominalEndTime"] == "2026-01-01T11:00:00Z"
    assert facets["tailrace"]["run"] == run.run
    assert facets["tailrace"]["pipelines"]["hourly_rides"]["generation"] == run.generation
    assert facets["tailrace"]["windows"] == {"changed": 10, "untouched": 20, "retracted": 0}
    assert facets["tailrace"]["epochs"] == {"first": 0, "last": 2}
    assert [one["name"] for one in last["inputs"]] == ["main.rides"]
    assert [one["name"] for one in last["outputs"]] == ["main.hourly_rides__ledger", "main.hourly_rides"]


def test_lineage_that_fails_to_be_sent_is_said_once_and_fails_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    with collecting(status=400) as (url, sent):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        lineage = Lineage(stream(settings), warned.append, every=0)
        for happening in (RunStart(), report(0), RunEnd(OSError("gone"))):
            lineage(happening)
        lineage.close()
    assert [one["eventType"] for one in sent] == ["START", "RUNNING", "FAIL"]
    assert len(warned) == 1
    assert "the run goes on without" in warned[0]


def test_lineage_is_off_unless_it_is_configured() -> None:
    assert not wants_lineage({})
    assert not wants_lineage({"OPENLINEAGE_NAMESPACE": "prod"})
    assert wants_lineage({"OPENLINEAGE_CONFIG": "openlineage.yml"})
    assert wants_lineage({"OPENLINEAGE__TRANSPORT__TYPE": "file"})
    assert not wants_lineage({"OPENLINEAGE_URL": "http://x", "OPENLINEAGE_DISABLED": "True"})


def test_a_source_of_files_is_named_as_lineage_has_it(settings: Settings, to_file: Path, tmp_path: Path) -> None:
    places = {str(tmp_path): ("file", str(tmp_path)), "s3://bucket/drops": ("s3://bucket", "drops")}
    for folder in places:
        lineage = Lineage(stream(settings, Files(folder)), pytest.fail)
        lineage(RunStart())
        lineage.close()
    found = [(one["inputs"][0]["namespace"], one["inputs"][0]["name"]) for one in events(to_file)]
    assert found == list(places.values())


def test_nothing_is_left_behind(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"log_file": tmp_path / "run.log"})
    with pytest.raises(ZeroDivisionError), observe_run(stream(settings), Output().say):
        raise ZeroDivisionError
    assert not [one for one in logging.getLogger(LOGGER).handlers if isinstance(one, logging.FileHandler)]
    assert "failed" in (tmp_path / "run.log").read_text()


def test_a_folder_for_metrics_that_is_not_there_is_named(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"metrics_file": tmp_path / "none" / "x.prom"})
    with pytest.raises(ObserveError, match="TAILRACE_METRICS_FILE"), observe_run(stream(settings), Output().say):
        pass

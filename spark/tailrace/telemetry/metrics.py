"""Metrics for Prometheus, of a run's epochs, commits and backfills, served over HTTP or put into a file.

Nothing is counted per record here: an epoch's numbers come with its report, from the jobs that it runs anyway. Labels
are names that a definition or a source has (log, pipeline, table, partition), or words of a small set; never a key.
Needs the extra `observe` (prometheus-client).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tailrace.engines.choose import Engine
from tailrace.engines.protocol import FIRED, REASONS
from tailrace.fold.fold import EpochResult
from tailrace.lake.catalog.events import (
    UNREAD,
    AnswersAdvanced,
    FolderChecked,
    NearName,
    Outcome,
    Publication,
    RunRecorded,
)
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.stage_progress import StageProgress, stage_progress
from tailrace.lake.schema.table_names import ledger_name, rejected_name
from tailrace.model.base.clock import behind
from tailrace.model.base.time import BEGINNING
from tailrace.model.step.progress import Progress
from tailrace.stream.epoch_report import EpochReport
from tailrace.telemetry.run_events import OUTCOMES, Began, Ended, Happening, Subject, missing

Kind = Literal["counter", "gauge", "histogram"]

BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets, in seconds."""

WHOLE = "all"
"""The label of the one partition of a source that does not tell partitions apart."""

ENDS = ("committed", "gave_way", "failed")
"""The statuses in which a backfill's run ends."""


@dataclass(frozen=True)
class Metric:
    """A metric: its name in Prometheus, its kind, its labels, its meaning, and the commands that have it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    commands: tuple[str, ...] = ("stream",)


_LOG, _PIPELINE, _PARTITION = ("log",), ("log", "pipeline"), ("log", "partition")
_BOTH, _BACKFILL = ("stream", "backfill"), ("backfill",)

METRICS = (
    Metric("tailrace_stream_running", "gauge", _LOG, "1 while the stream runs, 0 once it has ended"),
    Metric("tailrace_epochs_total", "counter", _LOG, "epochs folded, including epochs recovered from the log"),
    Metric("tailrace_recovered_epochs_total", "counter", _LOG, "epochs recovered from the log"),
    Metric(
        "tailrace_epoch_phase_seconds", "histogram", ("log", "phase"),
        "time of an epoch by phase; trigger waits for input, wait is the fold's wait for the log; phases overlap",
    ),
    Metric("tailrace_last_epoch", "gauge", _PIPELINE, "the last epoch in the ledger; -1 before the first"),
    Metric("tailrace_last_epoch_timestamp_seconds", "gauge", _LOG, "publication of the last epoch, Unix time"),
    Metric("tailrace_answers_epochs_behind", "gauge", _PIPELINE, "number of epochs that table p is behind the ledger"),
    Metric("tailrace_records_total", "counter", _LOG, "records landed in the log"),
    Metric("tailrace_rejected_records_total", "counter", _LOG, "records that do not fit the log"),
    Metric("tailrace_duplicate_records_total", "counter", _LOG, "records dropped as duplicates"),
    Metric(
        "tailrace_unread_files", "gauge", ("log", "kind"),
        "unread files in a landing folder: changed after reading, moved (so they count twice), or hidden",
    ),
    Metric(
        "tailrace_near_names_total", "counter", _LOG,
        "dropped fields whose name is close to a column that their record lacks",
    ),
    Metric("tailrace_watermark_timestamp_seconds", "gauge", _PIPELINE, "the watermark in Unix time"),
    Metric(
        "tailrace_watermark_lag_seconds", "gauge", _PIPELINE,
        "the last epoch's processing time less its watermark; below zero it is ahead",
    ),
    Metric(
        "tailrace_partition_lag_seconds", "gauge", _PARTITION,
        "the last epoch's processing time less the watermark of one partition of the source",
    ),
    Metric("tailrace_partition_silent_seconds", "gauge", _PARTITION, "time since a partition's last new record"),
    Metric("tailrace_partition_idle", "gauge", _PARTITION, "1 if the partition is idle, so the watermark ignores it"),
    Metric("tailrace_partition_holds_watermark", "gauge", _PARTITION, "1 if the partition holds the watermark back"),
    Metric("tailrace_panes_total", "counter", (*_PIPELINE, "timing"), "panes fired, without retractions"),
    Metric("tailrace_retractions_total", "counter", _PIPELINE, "answers retracted"),
    Metric(
        "tailrace_unanswered_total", "counter", _PIPELINE,
        "panes with a null result, because no value of its type is right",
    ),
    Metric("tailrace_late_records_total", "counter", (*_PIPELINE, "reason"), "late records, once for each window"),
    Metric("tailrace_step_rejected_records_total", "counter", _PIPELINE, "records that a step rejected"),
    Metric("tailrace_productions_total", "counter", _PIPELINE, "records that a computation produced"),
    Metric("tailrace_claimed_total", "counter", _PIPELINE, "productions that another computation had claimed"),
    Metric("tailrace_in_flight_records", "gauge", _PIPELINE, "records in flight on a computation's loop"),
    Metric(
        "tailrace_engine", "gauge", (*_PIPELINE, "engine"), "1 for the engine of the last epoch, 0 for the other"
    ),
    Metric("tailrace_open_windows", "gauge", _PIPELINE, "open windows: rows of state after the last epoch"),
    Metric("tailrace_commits_total", "counter", ("log", "table", "writer"), "publications to a table", _BOTH),
    Metric(
        "tailrace_conflicts_total", "counter", ("log", "table", "writer"),
        "publications that were tried again because the table had moved", _BOTH,
    ),
    Metric(
        "tailrace_fenced_total", "counter", ("log", "table"),
        "publications refused because another stream has the lease",
    ),
    Metric(
        "tailrace_backfill_runs_total", "counter", (*_PIPELINE, "status"),
        "all backfills in the table of runs, by their outcome", _BACKFILL,
    ),
    Metric(
        "tailrace_backfill_windows_total", "counter", (*_PIPELINE, "outcome"),
        "windows that all committed backfills changed, left untouched or retracted", _BACKFILL,
    ),
    Metric("tailrace_backfill_seconds", "gauge", _PIPELINE, "duration of this backfill", _BACKFILL),
    Metric(
        "tailrace_backfill_timestamp_seconds", "gauge", _PIPELINE, "end of this backfill, Unix time", _BACKFILL
    ),
)  # fmt: skip
"""Every metric, in the order in which docs and dashboards list them."""


class Metrics:
    """The metrics of one run: a watcher with a registry of its own.

    Raises `ObserveMissingError` where prometheus-client is not installed.
    """

    def __init__(self, subject: Subject) -> None:
        try:
            import prometheus_client as client
        except ImportError as error:
            raise missing("metrics (--metrics-port, TAILRACE_METRICS_PORT, TAILRACE_METRICS_FILE)", error) from None
        # The time at which a counter was made adds nothing to its first sample.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.subject, self.log = subject, subject.log
        self.registry = client.CollectorRegistry()
        self._made: dict[str, Any] = {}
        kinds: dict[Kind, Any] = {"counter": client.Counter, "gauge": client.Gauge, "histogram": client.Histogram}
        for metric in METRICS:
            if subject.command in metric.commands:
                more = {"buckets": BUCKETS} if metric.kind == "histogram" else {}
                self._made[metric.name] = kinds[metric.kind](
                    metric.name, metric.doc, metric.labels, registry=self.registry, **more
                )
        self._answers: dict[str, int] = {}
        self._ledgers: dict[str, int] = {}
        self._since: dict[str, float] = {}

    def __call__(self, happening: Happening) -> None:
        match happening:
            case Began():
                self._begin()
            case EpochReport():
                self._epoch(happening)
            case Publication():
                self._publication(happening)
            case FolderChecked(log, counts=counts):
                for kind in UNREAD:
                    self._set("tailrace_unread_files", counts.get(kind, 0), log, kind)
            case NearName(log):
                self._add("tailrace_near_names_total", 1, log)
            case AnswersAdvanced(pipeline, epoch):
                self._answers[pipeline] = epoch
                self._behind(pipeline)
            case RunRecorded() if self.subject.command == "backfill":
                self._run(happening)
            case Ended() if self.subject.command == "stream":
                self._set("tailrace_stream_running", 0, self.log)
            case Ended():
                self._backfills()

    def write(self, path: Path) -> None:
        """Write the metrics as they are now to a file, atomically; in a folder, to a file of this run's own.

        Raises `OSError` where the file cannot be written.
        """
        from prometheus_client import write_to_textfile

        subject = self.subject
        name = self.log if subject.command == "stream" else subject.stages[-1].name
        write_to_textfile(
            str(path / f"tailrace_{subject.command}_{name}.prom" if path.is_dir() else path), self.registry
        )

    def _begin(self) -> None:
        """Set the metrics that exist before the first epoch; counters start at zero, so that rates start there."""
        if self.subject.command != "stream":
            return
        lake, log = Lake(self.subject.settings), self.log
        self._set("tailrace_stream_running", 1, log)
        for name in ("epochs", "recovered_epochs", "records", "rejected_records", "duplicate_records"):
            self._add(f"tailrace_{name}_total", 0, log)
        tables = {log: "stream", rejected_name(log): "stream"}
        tables |= {ledger_name(stage.name): "stream" for stage in self.subject.stages}
        answered = self.subject.answered(lake)
        for stage in self.subject.pipelines:
            name, ledger = stage.name, ledger_name(stage.name)
            for timing in FIRED:
                self._add("tailrace_panes_total", 0, log, name, timing)
            for reason in REASONS:
                self._add("tailrace_late_records_total", 0, log, name, reason)
            for counter in ("retractions", "unanswered", "step_rejected_records"):
                self._add(f"tailrace_{counter}_total", 0, log, name)
            tables[ledger] = "stream"
            progress = stage_progress(lake, name) or StageProgress(name=name)
            self._ledgers[name] = progress.epoch
            if name in answered:
                tables[name] = "follow"
                self._answers[name] = progress.answers_epoch
            self._behind(name)
        for table, writer in tables.items():
            for counter in ("commits", "conflicts"):
                self._add(f"tailrace_{counter}_total", 0, log, table, writer)
            self._add("tailrace_fenced_total", 0, log, table)

    def _epoch(self, report: EpochReport) -> None:
        log, landed = self.log, report.landed
        self._add("tailrace_epochs_total", 1, log)
        self._add("tailrace_recovered_epochs_total", report.recovered, log)
        self._add("tailrace_records_total", landed.records, log)
        self._add("tailrace_rejected_records_total", landed.rejected, log)
        self._add("tailrace_duplicate_records_total", landed.duplicates, log)
        self._set("tailrace_last_epoch_timestamp_seconds", time.time(), log)
        for phase, seconds in report.phases.items():
            self._made["tailrace_epoch_phase_seconds"].labels(log, phase).observe(seconds)
        for name, folded in report.folded.items():
            self._folded(name, folded)
            self._ledgers[name] = report.epoch
            self._behind(name)
        if report.progress is not None:
            self._partitions(report.progress)

    def _folded(self, name: str, folded: EpochResult) -> None:
        log, clock = self.log, folded.clock
        for timing, count in folded.timings.items():
            self._add("tailrace_panes_total", count, log, name, timing)
        for reason, count in folded.reasons.items():
            self._add("tailrace_late_records_total", count, log, name, reason)
        self._add("tailrace_retractions_total", folded.retractions, log, name)
        self._add("tailrace_unanswered_total", folded.unanswered, log, name)
        self._add("tailrace_step_rejected_records_total", folded.rejected, log, name)
        self._add("tailrace_productions_total", folded.productions, log, name)
        self._add("tailrace_claimed_total", folded.claimed, log, name)
        self._set("tailrace_in_flight_records", folded.fed_back, log, name)
        for engine in Engine:
            self._set("tailrace_engine", folded.engine == engine.value, log, name, engine.value)
        if folded.open is not None:
            self._set("tailrace_open_windows", folded.open, log, name)
        if clock.watermark > BEGINNING:
            self._set("tailrace_watermark_timestamp_seconds", clock.watermark / 1e6, log, name)
            self._set("tailrace_watermark_lag_seconds", _lag(clock.watermark, clock.processing_time), log, name)

    def _partitions(self, progress: Progress) -> None:
        held = set(progress.behind)
        for name, partition in progress.partitions.items():
            labels = (self.log, name or WHOLE)
            if partition.watermark > BEGINNING:
                self._set("tailrace_partition_lag_seconds", _lag(partition.watermark, progress.now), *labels)
            self._set("tailrace_partition_silent_seconds", (progress.now - partition.active) / 1e6, *labels)
            self._set("tailrace_partition_idle", progress.is_idle(name), *labels)
            self._set("tailrace_partition_holds_watermark", name in held, *labels)

    def _publication(self, publication: Publication) -> None:
        match publication.outcome:
            case Outcome.PUBLISHED:
                self._add("tailrace_commits_total", 1, self.log, publication.table, publication.writer)
            case Outcome.MOVED:
                self._add("tailrace_conflicts_total", 1, self.log, publication.table, publication.writer)
            case Outcome.FENCED if self.subject.command == "stream":
                self._add("tailrace_fenced_total", 1, self.log, publication.table)

    def _behind(self, name: str) -> None:
        if self.subject.command == "stream":
            ledger = self._ledgers.get(name, -1)
            self._set("tailrace_last_epoch", ledger, self.log, name)
            if (answers := self._answers.get(name)) is not None:
                self._set("tailrace_answers_epochs_behind", max(0, ledger - answers), self.log, name)

    def _run(self, noted: RunRecorded) -> None:
        if noted.run.status == "started":
            self._since[noted.run.run] = time.monotonic()
        elif noted.run.run in self._since:
            seconds = time.monotonic() - self._since[noted.run.run]
            self._set("tailrace_backfill_seconds", seconds, self.log, noted.pipeline)
            self._set("tailrace_backfill_timestamp_seconds", time.time(), self.log, noted.pipeline)

    def _backfills(self) -> None:
        """Count how all backfills ended, from the tables of runs: a process sees only its own runs."""
        lake = Lake(self.subject.settings)
        for stage in (one for one in self.subject.stages if one.recomputable):
            runs = Runs(lake, stage)
            all_ = [run for run in runs.all() if run.kind == "backfill"] if lake.has(runs.table) else []
            for status in ENDS:
                count = sum(run.status == status for run in all_)
                self._add("tailrace_backfill_runs_total", count, self.log, stage.name, status)
            for outcome in OUTCOMES:
                count = sum(getattr(run, outcome) or 0 for run in all_ if run.status == "committed")
                self._add("tailrace_backfill_windows_total", count, self.log, stage.name, outcome)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        self._made[name].labels(*labels).inc(amount)

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._made[name].labels(*labels).set(value)


def _lag(watermark: int, now: int) -> float:
    """Return the seconds by which the watermark is behind; 0 for input that is complete."""
    return (behind(watermark, now) or 0) / 1e6

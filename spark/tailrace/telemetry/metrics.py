"""Metrics for Prometheus about a run's epochs, commits and backfills, served over HTTP or written to a file.

Updating the metrics needs no work per record, because an epoch's numbers are taken from the epoch's report. Label
values are names from a definition or a source (log, pipeline, table, partition) or words from a small fixed set, but
never keys of records. Needs the extra `observe` (prometheus-client).
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
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
from tailrace.model.step.progress import Progress
from tailrace.stream.epoch_report import EpochReport
from tailrace.telemetry.run_events import OUTCOMES, RunEnd, RunEvent, RunStart, Subject, lag_seconds, missing_library

BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the histogram's buckets, in seconds."""

WHOLE = "all"
"""The value of the label `partition` for a source that does not distinguish partitions."""

ENDS = ("committed", "gave_way", "failed")
"""The possible final statuses of a backfill run."""


@dataclass(frozen=True)
class Metric:
    """A metric: its name in Prometheus, its kind, its labels, its meaning, and the commands that report it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Sequence[str]
    doc: str
    commands: Sequence[str] = ("stream",)


METRICS = tuple(
    Metric(name, **values)
    for name, values in tomllib.loads(files("tailrace.telemetry").joinpath("metrics.toml").read_text("utf-8")).items()
)
"""All metrics, in the order of the docs and of the dashboard."""


class Metrics:
    """A watcher that keeps the metrics of one run, in a separate registry.

    Raises `ObserveMissingError` if prometheus-client is not installed.
    """

    def __init__(self, subject: Subject) -> None:
        try:
            import prometheus_client as client
        except ImportError as error:
            raise missing_library(
                "metrics (--metrics-port, TAILRACE_METRICS_PORT, TAILRACE_METRICS_FILE)", error
            ) from None
        # Do not export the time when each counter was created, because the counter's first sample already shows this
        # time.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.subject, self.log = subject, subject.log
        self.registry = client.CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        for one in (metric for metric in METRICS if subject.command in metric.commands):
            make, more = getattr(client, one.kind.capitalize()), {"buckets": BUCKETS} if one.kind == "histogram" else {}
            self._metrics[one.name] = make(one.name, one.doc, one.labels, registry=self.registry, **more)
        self._answers: dict[str, int] = {}
        self._ledgers: dict[str, int] = {}
        self._since: dict[str, float] = {}

    def __call__(self, event: RunEvent) -> None:
        match event:
            case RunStart():
                self._begin()
            case EpochReport():
                self._epoch(event)
            case Publication():
                self._publication(event)
            case FolderChecked(log, counts=counts):
                for kind in UNREAD:
                    self._metrics["tailrace_unread_files"].labels(log, kind).set(counts.get(kind, 0))
            case NearName(log):
                self._metrics["tailrace_near_names_total"].labels(log).inc()
            case AnswersAdvanced(pipeline, epoch):
                self._answers[pipeline] = epoch
                self._behind(pipeline)
            case RunRecorded() if self.subject.command == "backfill":
                self._run(event)
            case RunEnd() if self.subject.command == "stream":
                self._set("tailrace_stream_running", 0)
            case RunEnd():
                self._backfills()

    def write(self, path: Path) -> None:
        """Write the current metrics to a file, atomically.

        If `path` is a folder, the file's name contains the command and a second name: the log's name for a stream, or
        the last stage's name for a backfill. Raises `OSError` if the file cannot be written.
        """
        from prometheus_client import write_to_textfile

        subject = self.subject
        name = self.log if subject.command == "stream" else subject.stages[-1].name
        write_to_textfile(
            str(path / f"tailrace_{subject.command}_{name}.prom" if path.is_dir() else path), self.registry
        )

    def _begin(self) -> None:
        """Set the metrics that must exist before the first epoch.

        Counters start at zero, so that a rate over a counter includes the first epoch.
        """
        if self.subject.command != "stream":
            return
        lake = Lake(self.subject.settings)
        self._set("tailrace_stream_running", 1)
        for name in ("epochs", "recovered_epochs", "records", "rejected_records", "duplicate_records"):
            self._add(f"tailrace_{name}_total", 0)
        ledgers = (ledger_name(stage.name) for stage in self.subject.stages)
        tables = dict.fromkeys((self.log, rejected_name(self.log), *ledgers), "stream")
        stages_with_answers = self.subject.stages_with_answers(lake)
        for stage in self.subject.pipelines:
            name = stage.name
            for timing in FIRED:
                self._add("tailrace_panes_total", 0, name, timing)
            for reason in REASONS:
                self._add("tailrace_late_records_total", 0, name, reason)
            for counter in ("retractions", "unanswered", "step_rejected_records"):
                self._add(f"tailrace_{counter}_total", 0, name)
            progress = stage_progress(lake, name) or StageProgress(name=name)
            self._ledgers[name] = progress.epoch
            if name in stages_with_answers:
                tables[name] = "follow"
                self._answers[name] = progress.answers_epoch
            self._behind(name)
        for table, writer in tables.items():
            for counter in ("commits", "conflicts"):
                self._add(f"tailrace_{counter}_total", 0, table, writer)
            self._add("tailrace_fenced_total", 0, table)

    def _epoch(self, report: EpochReport) -> None:
        landed = report.landed
        self._add("tailrace_epochs_total", 1)
        self._add("tailrace_recovered_epochs_total", report.recovered)
        self._add("tailrace_records_total", landed.records)
        self._add("tailrace_rejected_records_total", landed.rejected)
        self._add("tailrace_duplicate_records_total", landed.duplicates)
        self._add("tailrace_rounded_values_total", landed.rounded)
        self._set("tailrace_last_epoch_timestamp_seconds", time.time())
        for phase, seconds in report.phases.items():
            self._metrics["tailrace_epoch_phase_seconds"].labels(self.log, phase).observe(seconds)
        for name, folded in report.folded.items():
            self._folded(name, folded)
            self._ledgers[name] = report.epoch
            self._behind(name)
        if report.progress is not None:
            self._partitions(report.progress)

    def _folded(self, name: str, folded: EpochResult) -> None:
        for timing, count in folded.timings.items():
            self._add("tailrace_panes_total", count, name, timing)
        for reason, count in folded.reasons.items():
            self._add("tailrace_late_records_total", count, name, reason)
        self._add("tailrace_retractions_total", folded.retractions, name)
        self._add("tailrace_unanswered_total", folded.unanswered, name)
        self._add("tailrace_step_rejected_records_total", folded.rejected, name)
        self._add("tailrace_productions_total", folded.productions, name)
        self._add("tailrace_claimed_total", folded.claimed, name)
        self._set("tailrace_in_flight_records", folded.fed_back, name)
        for engine in Engine:
            self._set("tailrace_engine", folded.engine == engine.value, name, engine.value)
        if folded.open is not None:
            self._set("tailrace_open_windows", folded.open, name)
        watermark = folded.clock.watermark
        if (lag := lag_seconds(watermark, folded.clock.processing_time)) is not None:
            self._set("tailrace_watermark_timestamp_seconds", watermark / 1e6, name)
            self._set("tailrace_watermark_lag_seconds", lag, name)

    def _partitions(self, progress: Progress) -> None:
        held = set(progress.behind)
        for name, partition in progress.partitions.items():
            label = name or WHOLE
            if (lag := lag_seconds(partition.watermark, progress.now)) is not None:
                self._set("tailrace_partition_lag_seconds", lag, label)
            self._set("tailrace_partition_silent_seconds", (progress.now - partition.active) / 1e6, label)
            self._set("tailrace_partition_idle", progress.is_idle(name), label)
            self._set("tailrace_partition_holds_watermark", name in held, label)

    def _publication(self, publication: Publication) -> None:
        match publication.outcome:
            case Outcome.PUBLISHED:
                self._add("tailrace_commits_total", 1, publication.table, publication.writer)
            case Outcome.MOVED:
                self._add("tailrace_conflicts_total", 1, publication.table, publication.writer)
            case Outcome.FENCED if self.subject.command == "stream":
                self._add("tailrace_fenced_total", 1, publication.table)

    def _behind(self, name: str) -> None:
        if self.subject.command == "stream":
            ledger = self._ledgers.get(name, -1)
            self._set("tailrace_last_epoch", ledger, name)
            if (answers := self._answers.get(name)) is not None:
                self._set("tailrace_answers_epochs_behind", max(0, ledger - answers), name)

    def _run(self, noted: RunRecorded) -> None:
        if noted.run.status == "started":
            self._since[noted.run.run] = time.monotonic()
        elif noted.run.run in self._since:
            seconds = time.monotonic() - self._since[noted.run.run]
            self._set("tailrace_backfill_seconds", seconds, noted.pipeline)
            self._set("tailrace_backfill_timestamp_seconds", time.time(), noted.pipeline)

    def _backfills(self) -> None:
        """Read the tables of runs and count the outcomes of all backfills, including backfills of other processes."""
        lake = Lake(self.subject.settings)
        for stage in (one for one in self.subject.stages if one.recomputable):
            runs = Runs(lake, stage)
            all_ = [run for run in runs.all() if run.kind == "backfill"] if lake.has(runs.table) else []
            for status in ENDS:
                count = sum(run.status == status for run in all_)
                self._add("tailrace_backfill_runs_total", count, stage.name, status)
            for outcome in OUTCOMES:
                count = sum(getattr(run, outcome) or 0 for run in all_ if run.status == "committed")
                self._add("tailrace_backfill_windows_total", count, stage.name, outcome)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        self._metrics[name].labels(self.log, *labels).inc(amount)

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._metrics[name].labels(self.log, *labels).set(value)

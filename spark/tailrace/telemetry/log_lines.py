"""Write structured logs: a line for each epoch, a line for each run, and a line for each event that needs attention.

The log lines go through the standard library's logging, with a separate logger for Tailrace. The format is JSON (by
python-json-logger from the extra `observe`) or text. Every line names the log and the run. A line also names the
pipeline, epoch, generation and token if these are known.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tailrace.lake.catalog.events import (
    CompactionFailed,
    DefinitionDropped,
    EngineSwitched,
    FilesCompacted,
    FolderChecked,
    NearName,
    Outcome,
    Publication,
    RecordsSetAside,
    RunRecorded,
)
from tailrace.model.base.time import text
from tailrace.stream.epoch_report import EpochReport
from tailrace.telemetry.json_fields import fields
from tailrace.telemetry.run_events import (
    HELD_BACK,
    OUTCOMES,
    CheckpointRepair,
    ObserveError,
    RunEnd,
    RunEvent,
    RunStart,
    Subject,
    epoch_data,
    lag_seconds,
    missing_library,
)

LOGGER = "tailrace.run"


class Logs:
    """A watcher that writes the log lines of one run. `close` closes the log file.

    Raises `ObserveMissingError` if the format is JSON and python-json-logger is not installed, and `ObserveError` if
    the file cannot be written.
    """

    def __init__(self, subject: Subject, format: Literal["json", "text"], file: Path | None) -> None:
        self.subject = subject
        self._handler: logging.Handler = _handler(file)
        self._handler.setFormatter(_json() if format == "json" else _Text())
        self._logger = logging.getLogger(LOGGER)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self._handler)
        self._held: tuple[str, ...] = ()

    def close(self) -> None:
        """Stop logging, and close the file."""
        self._logger.removeHandler(self._handler)
        self._handler.close()

    def __call__(self, event: RunEvent) -> None:
        match event:
            case RunStart():
                self._say(logging.INFO, "began", pipelines=[stage.name for stage in self.subject.stages])
            case EpochReport():
                self._epoch(event)
            case Publication(outcome=Outcome.MOVED):
                self._say(logging.WARNING, "commit_retried", table=event.table, writer=event.writer)
            case Publication(outcome=Outcome.FENCED):
                self._say(logging.ERROR, "lease_lost", table=event.table, token=event.token)
            case CheckpointRepair(flaw):
                self._say(logging.WARNING, "checkpoint_rebuilt", flaw=flaw)
            case DefinitionDropped(definition, reason):
                self._say(logging.WARNING, "dropped", definition=definition, reason=reason)
            case EngineSwitched(definition, engine, why):
                self._say(logging.WARNING, "went_over", definition=definition, engine=engine, reason=why)
            case RecordsSetAside(definition, epoch, records, why):
                self._say(logging.ERROR, "set_aside", definition=definition, epoch=epoch, records=records, reason=why)
            case FolderChecked(log, changed, moved, counts) if changed or moved:
                of = {"changed": list(changed), "moved": list(moved), "counts": dict(counts)}
                self._say(logging.WARNING, "files_not_read", landed=log, **of)
            case NearName(log, field, column):
                self._say(logging.WARNING, "field_dropped", landed=log, field=field, column=column)
            case FilesCompacted(table, files, into):
                self._say(logging.INFO, "compacted", table=table, files=files, into=into)
            case CompactionFailed(table, why):
                self._say(logging.WARNING, "not_compacted", table=table, reason=why)
            case RunRecorded():
                self._run(event)
            case RunEnd(None, stopped):
                self._say(logging.INFO, "ended", stopped=stopped)
            case RunEnd(error):
                reason = next(iter(str(error).splitlines()), "")
                self._say(logging.ERROR, "failed", error=type(error).__name__, reason=reason)

    def log_endpoint(self, url: str) -> None:
        """Log the address at which metrics are served."""
        self._say(logging.INFO, "metrics_served", url=url)

    def log_warning(self, text: str) -> None:
        """Log a warning that the run cannot be fully observed. The text states the reason."""
        self._say(logging.WARNING, "not_observed", reason=text)

    def _epoch(self, report: EpochReport) -> None:
        data = epoch_data(report)
        for name, folded in report.folded.items():
            data["pipelines"][name] |= {"open": folded.open, "generation": folded.generation, "token": folded.token}
        lags = [
            lag
            for folded in report.folded.values()
            if (lag := lag_seconds(folded.clock.watermark, folded.clock.processing_time)) is not None
        ]
        if lags:
            # Report a single lag for tools that read log lines: the lag of the stage that is furthest behind.
            data["watermark_lag_seconds"] = round(max(lags), 3)
        self._say(logging.INFO, data.pop("event"), **data)
        for name, folded in report.folded.items():
            if folded.late:
                reasons = {reason: count for reason, count in folded.reasons.items() if count}
                more = {"generation": folded.generation, "token": folded.token, "reasons": reasons}
                self._say(logging.WARNING, "late_records", pipeline=name, epoch=report.epoch, late=folded.late, **more)
        if report.progress is not None:
            stalled = report.progress.stalled(HELD_BACK)
            if stalled and tuple(stalled) != self._held:
                seconds = {name: round(length / 1e6, 3) for name, length in stalled.items()}
                self._say(logging.WARNING, "watermark_held_back", epoch=report.epoch, partitions=seconds)
            self._held = tuple(stalled)

    def _run(self, noted: RunRecorded) -> None:
        run = noted.run
        values: dict[str, Any] = {"pipeline": noted.pipeline, "generation": run.generation}
        if run.kind == "backfill":
            values |= {"run": run.run, "range": [text(run.first), text(run.last)]}
            values |= fields(run, "epoch=log_epoch", "reason", *(OUTCOMES if run.status == "committed" else ()))
        level = {"failed": logging.ERROR, "gave_way": logging.WARNING}.get(run.status, logging.INFO)
        self._say(level, f"{run.kind}_{run.status}", **values)

    def _say(self, level: int, event: str, **values: Any) -> None:
        same = {"command": self.subject.command, "log": self.subject.log, "run": self.subject.run}
        self._logger.log(level, event, extra={**same, **values})


def _handler(file: Path | None) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(sys.stderr)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise ObserveError(
            f"{file} cannot be written ({error.strerror}): set TAILRACE_LOG_FILE to one that can"
        ) from None


def _json() -> logging.Formatter:
    try:
        from pythonjsonlogger.json import JsonFormatter
    except ImportError as error:
        raise missing_library("TAILRACE_LOG_FORMAT=json", error) from None
    return JsonFormatter(
        ["levelname", "message"], rename_fields={"levelname": "level", "message": "event"}, timestamp="time",
        json_ensure_ascii=False,
    )  # fmt: skip


_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _Text(logging.Formatter):
    """Formats log lines for people: time, level, event, and the event's values as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = (f"{name}={_plain(value)}" for name, value in vars(record).items() if name not in _OWN)
        return " ".join([at, record.levelname, record.getMessage(), *values])


def _plain(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    plain = str(value)
    return json.dumps(plain, ensure_ascii=False) if " " in plain or not plain else plain

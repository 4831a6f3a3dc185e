"""Build the Grafana dashboard of the metrics; `python -m tailrace.telemetry.dashboard` writes its file.

The data source, logs and pipelines are chosen in the dashboard itself. Durations are in seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).parent / "grafana" / "tailrace.json"
"""The dashboard's file, which Grafana imports."""

_LOG, _PIPELINE = '{log=~"$log"}', '{log=~"$log", pipeline=~"$pipeline"}'
_RATE = "$__rate_interval"


@dataclass(frozen=True)
class Series:
    """A query of Prometheus, and the name of each resulting line; `{{label}}` stands for a label's value."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A panel: title, description (`tells`), queries, unit as Grafana names it, kind, and width out of 24."""

    title: str
    tells: str
    queries: tuple[Series, ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table", "bargauge"] = "timeseries"
    width: int = 8


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str, of: str = _LOG) -> str:
    return f"sum by ({by}) (rate({metric}{of}[{_RATE}]))"


def _increase(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase({metric}{_LOG}[{_RATE}]))"


ROWS = (
    Row("Is it well?", (
        Panel("Running", "1 while the stream runs.", (
            Series(f"max by (log) (tailrace_stream_running{_LOG})", "{{log}}"),
        ), kind="stat", width=4),
        Panel("Last epoch", "The last epoch in each ledger.", (
            Series(f"max by (pipeline) (tailrace_last_epoch{_PIPELINE})", "{{pipeline}}"),
        ), kind="stat", width=4),
        Panel("Since the last epoch", "A stream with no input has none.", (
            Series(f"time() - max by (log) (tailrace_last_epoch_timestamp_seconds{_LOG})", "{{log}}"),
        ), "s", "stat", 4),
        Panel("Answers behind", "Epochs that table p has yet to take in.", (
            Series(f"max by (pipeline) (tailrace_answers_epochs_behind{_PIPELINE})", "{{pipeline}}"),
        ), kind="stat", width=4),
        Panel("Fenced", "Another stream took the lease: run one alone.", (
            Series(f"sum by (table) (tailrace_fenced_total{_LOG})", "{{table}}"),
        ), kind="stat", width=4),
        Panel("Epochs again", "Epochs taken again from the log after a restart.", (
            Series(f"sum by (log) (tailrace_recovered_epochs_total{_LOG})", "{{log}}"),
        ), kind="stat", width=4),
    )),
    Row("Watermark", (
        Panel("Watermark lag", "Processing time less watermark, as of the last epoch.", (
            Series(f"max by (pipeline) (tailrace_watermark_lag_seconds{_PIPELINE})", "{{pipeline}}"),
        ), "s"),
        Panel("Watermark", "Where the watermark is; a flat line is one that stands still.", (
            Series(f"1000 * max by (pipeline) (tailrace_watermark_timestamp_seconds{_PIPELINE})", "{{pipeline}}"),
        ), "dateTimeAsIso"),
        Panel("Lag by partition", "Processing time less each partition's own watermark.", (
            Series(f"max by (log, partition) (tailrace_partition_lag_seconds{_LOG})", "{{log}} {{partition}}"),
        ), "s"),
        Panel("Holds the watermark back", "The partition that lags most of those that are waited for.", (
            Series(f"max by (log, partition) (tailrace_partition_holds_watermark{_LOG}) > 0", "{{log}} {{partition}}"),
        )),
        Panel("Silent partitions", "For how long each has had nothing new.", (
            Series(f"max by (log, partition) (tailrace_partition_silent_seconds{_LOG})", "{{log}} {{partition}}"),
        ), "s"),
        Panel("Idle partitions", "Those that the watermark does not wait for.", (
            Series(f"sum by (log) (tailrace_partition_idle{_LOG})", "{{log}}"),
        )),
    )),
    Row("Epochs", (
        Panel("Time by phase", "Seconds of an epoch on average; trigger is the wait for input.", (
            Series(
                f"{_rate('tailrace_epoch_phase_seconds_sum', 'log, phase')} / "
                f"{_rate('tailrace_epoch_phase_seconds_count', 'log, phase')}",
                "{{log}} {{phase}}",
            ),
        ), "s"),
        Panel("Slowest phases", "The 95th percentile of each phase.", (
            Series(
                f"histogram_quantile(0.95, {_rate('tailrace_epoch_phase_seconds_bucket', 'le, log, phase')})",
                "{{log}} {{phase}}",
            ),
        ), "s"),
        Panel("Epochs", "How many a second.", (
            Series(_rate("tailrace_epochs_total", "log"), "{{log}}"),
        ), "ops"),
    )),
    Row("Records", (
        Panel("Records", "Landed a second.", (
            Series(_rate("tailrace_records_total", "log"), "{{log}}"),
        ), "rps"),
        Panel("Not landed", "Rejected, refused by a step, or dropped because they came again; a second.", (
            Series(_rate("tailrace_rejected_records_total", "log"), "{{log}} rejected"),
            Series(_rate("tailrace_step_rejected_records_total", "pipeline", _PIPELINE), "{{pipeline}} refused"),
            Series(_rate("tailrace_duplicate_records_total", "log"), "{{log}} again"),
        ), "rps"),
        Panel("Late", "Too late for a window, a second, by why.", (
            Series(_rate("tailrace_late_records_total", "pipeline, reason", _PIPELINE), "{{pipeline}} {{reason}}"),
        ), "rps"),
        Panel("Not read", "Files that were changed, moved or are hidden; fields nearly named as a missing column.", (
            Series("max by (log, kind) (tailrace_unread_files)", "{{log}} {{kind}} files"),
            Series("sum by (log) (tailrace_near_names_total)", "{{log}} near names"),
        )),
    )),
    Row("Windows and panes", (
        Panel("Panes", "Fired a second, by timing.", (
            Series(_rate("tailrace_panes_total", "pipeline, timing", _PIPELINE), "{{pipeline}} {{timing}}"),
        ), "ops"),
        Panel("Retractions", "Answers taken back a second, and panes with a result that is null for its type.", (
            Series(_rate("tailrace_retractions_total", "pipeline", _PIPELINE), "{{pipeline}}"),
            Series(_rate("tailrace_unanswered_total", "pipeline", _PIPELINE), "{{pipeline}} unanswered"),
        ), "ops"),
        Panel("Open windows", "Rows of state, and 1 for the engine that has them.", (
            Series(f"max by (pipeline) (tailrace_open_windows{_PIPELINE})", "{{pipeline}}"),
            Series(f"max by (pipeline, engine) (tailrace_engine{_PIPELINE}) > 0", "{{pipeline}} on {{engine}}"),
        )),
        Panel("Computations", "Records produced a second, and those in flight on a loop.", (
            Series(_rate("tailrace_productions_total", "pipeline", _PIPELINE), "{{pipeline}} produced a second"),
            Series(_rate("tailrace_claimed_total", "pipeline", _PIPELINE), "{{pipeline}} claimed elsewhere a second"),
            Series(f"max by (pipeline) (tailrace_in_flight_records{_PIPELINE})", "{{pipeline}} in flight"),
        ), width=24),
    )),
    Row("Tables", (
        Panel("Commits", "Publications a second, by table and writer.", (
            Series(_rate("tailrace_commits_total", "table, writer"), "{{table}} {{writer}}"),
        ), "ops", width=12),
        Panel("Conflicts", "Publications that found the table moved, and were tried again.", (
            Series(_increase("tailrace_conflicts_total", "table, writer"), "{{table}} {{writer}}"),
        ), width=12),
    )),
    Row("Backfills", (
        Panel("Runs", "How backfills ended, of all time.", (
            Series(f"max by (pipeline, status) (tailrace_backfill_runs_total{_PIPELINE})", "{{pipeline}} {{status}}"),
        ), kind="bargauge", width=6),
        Panel("Windows", "What backfills made of their ranges' windows, of all time.", (
            Series(
                f"max by (pipeline, outcome) (tailrace_backfill_windows_total{_PIPELINE})", "{{pipeline}} {{outcome}}"
            ),
        ), kind="bargauge", width=6),
        Panel("Time of the last", "How long the last backfill took.", (
            Series(f"max by (pipeline) (tailrace_backfill_seconds{_PIPELINE})", "{{pipeline}}"),
        ), "s", "stat", 6),
        Panel("Since the last", "How long ago the last backfill ended.", (
            Series(f"time() - max by (pipeline) (tailrace_backfill_timestamp_seconds{_PIPELINE})", "{{pipeline}}"),
        ), "s", "stat", 6),
    )),
)  # fmt: skip

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHT = {"stat": 4}


def dashboard() -> dict[str, Any]:
    """Build the dashboard as the data that Grafana imports."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        panels.append(_placed({"type": "row", "title": row.title, "collapsed": False, "panels": []}, 0, top, 24, 1))
        top, left, tallest = top + 1, 0, 0
        for panel in row.panels:
            height = _HEIGHT.get(panel.kind, 8)
            if left + panel.width > 24:
                top, left, tallest = top + tallest, 0, 0
            panels.append(_placed(_panel(panel), left, top, panel.width, height))
            left, tallest = left + panel.width, max(tallest, height)
        top += tallest
    return {
        "title": "Tailrace",
        "uid": "tailrace",
        "tags": ["tailrace"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _variable("log", "tailrace_.+"), _variable("pipeline", "tailrace_.+")]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def dashboard_text() -> str:
    """Write the JSON text of the dashboard's file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query.expression, "legendFormat": query.legend}
        for place, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.tells,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
    }


def _placed(panel: dict[str, Any], left: int, top: int, width: int, height: int) -> dict[str, Any]:
    return {**panel, "gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(label: str, metrics: str) -> dict[str, Any]:
    query = f'label_values({{__name__=~"{metrics}"}}, {label})'
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    FILE.write_text(dashboard_text())
    print(FILE)

"""Read the demo's tables without Spark, as any reader of Iceberg would."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.schema.contracts import LATE, PANE
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, moment
from tailrace.model.definition.pipeline import Pipeline

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Span:
    """The windows of one airport that start in `[first, last)`."""

    origin: str
    first: datetime
    last: datetime

    def within(self, column: str) -> str:
        """Write the span as a filter on a table: windows by their start, the log's records by their event time."""
        first, last = self.first.isoformat(), self.last.isoformat()
        return f"origin = '{self.origin}' and {column} >= '{first}' and {column} < '{last}'"


@dataclass(frozen=True)
class Fired:
    """A row of the ledger: a pane or, with `retraction`, the retraction of the previous answer."""

    start: datetime
    end: datetime
    at: datetime
    watermark: datetime
    timing: Any
    retraction: bool
    version: Version
    flights: int
    mean_delay: float | None


@dataclass(frozen=True)
class Flight:
    """A record of the log. `late` says that it came too late for its window, and is in the ledger as late."""

    id: str
    scheduled: datetime
    known: datetime
    delay: int | None
    late: bool


@dataclass(frozen=True)
class Answer:
    """A row of the current answers, with its version."""

    flights: int
    departures: int
    mean_delay: float | None
    timing: str
    version: Version


Answers = Mapping[tuple[str, datetime], Answer]


@dataclass(frozen=True)
class Reads:
    """The tables of the demo's pipeline."""

    lake: Lake
    pipeline: Pipeline

    @property
    def ledger(self) -> str:
        return ledger_name(self.pipeline.name)

    def panes(self, span: Span, since: int | None = None) -> tuple[list[Fired], int | None]:
        """Read the panes and retractions of the span in the order of firing; return the snapshot, too.

        With `since`, read only rows that were committed after that snapshot; no other file is opened.
        """
        table = self.lake.table(self.ledger)
        now = head_of(table).snapshot
        if now == since:
            return [], now
        rows = f"kind = '{PANE}' and {span.within('window_start')}"
        scan = table.scan(rows) if since is None else table.incremental_append_scan(
            from_snapshot_id_exclusive=since, to_snapshot_id_inclusive=now, row_filter=rows
        )  # fmt: skip
        panes = [_fired(row) for row in scan.to_arrow().to_pylist()]
        return sorted(panes, key=lambda pane: (pane.version, not pane.retraction, pane.start)), now

    def late(self) -> list[dict[str, Any]]:
        """Read the ledger's rows of records that came too late, in the whole table."""
        return list(self.lake.table(self.ledger).scan(f"kind = '{LATE}'").to_arrow().to_pylist())

    def flights(self, span: Span) -> list[Flight]:
        """Read the log's records of the span in the order in which they became known."""
        late = {
            (row["source_epoch"], row["source_partition"], row["source_offset"])
            for row in self.late()
            if row["origin"] == span.origin and span.first <= row["window_start"] < span.last
        }
        log = self.pipeline.log
        rows = self.lake.table(log.name).scan(span.within(log.event_time)).to_arrow().to_pylist()
        flights = [
            Flight(
                row["flight_id"],
                row["scheduled"],
                row["known"],
                row["delay"],
                (row["_epoch"], row["_source"], row["_offset"]) in late,
            )
            for row in rows
        ]
        return sorted(flights, key=lambda flight: (flight.known, flight.scheduled, flight.id))

    def watermarks(self) -> list[tuple[datetime, datetime]]:
        """Read the epochs' processing times and the watermarks from then on, in order, from the ledger's commits."""
        clocks = (epoch.clock for epoch in epoch_commits(self.lake, self.ledger).values())
        steps = {(epoch.processing_time, epoch.watermark) for epoch in clocks if epoch.watermark > BEGINNING}
        return [(moment(at), moment(watermark)) for at, watermark in sorted(steps)]

    def snapshot(self) -> int:
        """Return the snapshot of the current answers; 0 if there is none."""
        return self.lake.head(self.pipeline.name).snapshot or 0

    def answers(self, snapshot: int) -> Answers:
        """Read the answers as of a snapshot, row by row."""
        rows = self.lake.table(self.pipeline.name).scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return {
            (row["origin"], row["window_start"]): Answer(
                row["flights"], row["departures"], row["mean_delay"], row["timing"], _version(row)
            )
            for row in rows
        }

    def by_duckdb(self, query: str) -> list[dict[str, Any]] | None:
        """Run a query over the current answers by DuckDB on the same files; None if DuckDB is not installed."""
        extensions = [_extension(name) for name in ("avro", "iceberg")]
        if importlib.util.find_spec("duckdb") is None or None in extensions:
            return None
        import duckdb

        table = self.lake.table(self.pipeline.name)
        with duckdb.connect() as connection:
            for path in extensions:
                connection.execute(f"LOAD '{path}'")
            connection.execute("SET TimeZone = 'UTC'")
            source = f"iceberg_scan('{table.metadata_location}')"
            connection.execute(f"CREATE VIEW {self.pipeline.name} AS SELECT * FROM {source}")
            return list(connection.execute(query).to_arrow_table().to_pylist())


def _fired(row: Mapping[str, Any]) -> Fired:
    return Fired(
        row["window_start"],
        row["window_end"],
        row["processing_time"],
        row["watermark"],
        row["timing"],
        row["retraction"],
        _version(row),
        row["flights"],
        row["mean_delay"],
    )


def _version(row: Mapping[str, Any]) -> Version:
    return (row["generation"], row["epoch"], row["pane_index"])


def _extension(name: str) -> Path | None:
    """Find the file of a DuckDB extension that was installed as a package: nothing is downloaded."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.rglob("*.duckdb_extension"), None)

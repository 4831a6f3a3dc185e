"""Read the tables of the demo without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, instant, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.trace.key_history import History, LedgerPane, history

Answers = Mapping[tuple[str, datetime], Mapping[str, Any]]
"""The current answers: a mapping from airport and window start to the row of the answer."""


@dataclass(frozen=True)
class Span:
    """The windows of one airport that start in `[first, last)`. Each window is one hour long."""

    origin: str
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Flight:
    """A flight from the log. `late` is true if the record came too late for its window."""

    id: str
    scheduled: datetime
    known: datetime
    delay: int | None
    late: bool


@dataclass(frozen=True)
class DemoTables:
    """The tables of the demo's pipeline."""

    lake: Lake
    pipeline: Pipeline

    def _histories(self, span: Span) -> list[History]:
        hours = range((span.last - span.first) // timedelta(hours=1))
        starts = (instant(span.first + timedelta(hours=hour)) for hour in hours)
        return [history(self.lake, self.pipeline, (span.origin,), start) for start in starts]

    def panes(self, span: Span) -> list[LedgerPane]:
        """Read the panes and retractions of the windows in `span`, in the order of firing."""
        panes = [pane for past in self._histories(span) for pane in past.panes]
        return sorted(panes, key=lambda pane: (pane.version, not pane.retraction, pane.window))

    def flights(self, span: Span) -> list[Flight]:
        """Read the log's records with an event time in `span`, in the order in which they became known."""
        late = {one.source for past in self._histories(span) for one in past.late}
        at, table = self.pipeline.log.event_time, self.lake.table(self.pipeline.log.name)
        first, last = span.first.isoformat(), span.last.isoformat()
        rows = table.scan(f"origin = '{span.origin}' and {at} >= '{first}' and {at} < '{last}'").to_arrow().to_pylist()
        places = [(row["_epoch"], row["_source"], row["_offset"]) for row in rows]
        flights = [
            Flight(row["flight_id"], row["scheduled"], row["known"], row["delay"], place in late)
            for row, place in zip(rows, places, strict=True)
        ]
        return sorted(flights, key=lambda flight: (flight.known, flight.scheduled, flight.id))

    def watermarks(self) -> list[tuple[datetime, datetime]]:
        """Read each epoch's processing time and watermark from the ledger's commits; return one pair per epoch."""
        clocks = (epoch.clock for epoch in epoch_commits(self.lake, ledger_name(self.pipeline.name)).values())
        steps = {(epoch.processing_time, epoch.watermark) for epoch in clocks if epoch.watermark > BEGINNING}
        return [(moment(at), moment(watermark)) for at, watermark in sorted(steps)]

    def snapshot(self) -> int:
        """Return the id of the current snapshot of the table of answers, or 0 if the table has no snapshot."""
        return self.lake.head(self.pipeline.name).snapshot or 0

    def answers(self, snapshot: int) -> Answers:
        """Read the answers in a snapshot; return a mapping from airport and window start to the answer."""
        rows = self.lake.table(self.pipeline.name).scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return {(row["origin"], row["window_start"]): row for row in rows}


def version_of(row: Mapping[str, Any]) -> str:
    """Return the version of an answer as text: generation, epoch and pane index, separated by dots."""
    return f"{row['generation']}.{row['epoch']}.{row['pane_index']}"

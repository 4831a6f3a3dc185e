"""Define the data of a plot that shows the panes, records and watermark of one key (Dataflow Model, 2.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import moment
from tailrace.model.windows import panes

if TYPE_CHECKING:
    from tailrace.model.windows.panes import Pane
    from tailrace.trace.key_history import LedgerPane

Value = float | int | str | None
Timing = Literal["early", "on_time", "late", "correction"]


class PlotError(TailraceError, ValueError):
    """Raised if a plot cannot be drawn, because it has neither panes nor records."""


class PlotMissingError(TailraceError, ImportError):
    """Raised if the drawing libraries are not installed. The extra `plot` installs these libraries."""


@dataclass(frozen=True)
class PlotPane:
    """A pane of the key: an answer of one window, or the retraction of an earlier answer.

    `value` is the pane's value or, for a retraction, the retracted value (not negated: the plot adds the minus sign).
    `window_start` (inclusive) and `window_end` (exclusive) bound the window in event time; the years 1 and 9999 mean
    that there is no bound. `fired_at` is in processing time. `generation`, `epoch` and `index` are the pane's version
    (V1).
    """

    window_start: datetime
    window_end: datetime
    fired_at: datetime
    value: Value
    timing: Timing
    retraction: bool = False
    index: int = 0
    epoch: int = 0
    generation: int = 0

    @classmethod
    def of(cls, pane: Pane | LedgerPane, value: Value) -> PlotPane:
        """Convert a pane from a fold or from a ledger. `value` is the result that the plot shows."""
        return cls(
            window_start=moment(pane.window.start),
            window_end=moment(pane.window.end),
            fired_at=moment(pane.processing_time),
            value=value,
            timing=panes.Timing(pane.timing).value,
            retraction=pane.retraction,
            index=pane.version.index,
            epoch=pane.version.epoch,
            generation=pane.version.generation,
        )


@dataclass(frozen=True)
class PlotRecord:
    """A record of the key, with its event time and its arrival time.

    `label` is the value that the record adds to the answer; if there are few records, the record's dot shows the label.
    `too_late` is True if the record arrived too late for all its windows.
    """

    event_time: datetime
    arrived_at: datetime
    label: str
    too_late: bool = False


@dataclass(frozen=True)
class PlotProduction:
    """An output record of a computation for the key, with the record's event time and production time."""

    event_time: datetime
    produced_at: datetime
    label: str


@dataclass(frozen=True)
class PlotTable:
    """A table under the chart. A cell may be text, a number, an instant or `None`.

    `written` contains the cells as text.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


@dataclass(frozen=True)
class PanePlot:
    """The data of a plot of one key.

    `key` names the key (`origin = EWR`). `value` names the result that the plot shows (`departures`); for a
    computation, `value` is the column whose values label the productions. `watermark` contains pairs: a processing
    time, and the watermark that applies from that time on. `facts` contains the names and texts of the cards that
    appear above the chart. `tables` contains the tables that appear below the chart.
    """

    title: str
    subtitle: str
    key: str
    value: str
    panes: Sequence[PlotPane] = ()
    records: Sequence[PlotRecord] = ()
    watermark: Sequence[tuple[datetime, datetime]] = ()
    tables: Sequence[PlotTable] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    productions: Sequence[PlotProduction] = ()


def is_bounded(moment: datetime) -> bool:
    """Return True unless the instant stands for the beginning or the end of time (the years 1 and 9999)."""
    return 1 < moment.year < 9999


def format_value(value: object) -> str:
    """Format a value as text: numbers with thousands separators and at most four decimal places, instants in UTC.

    >>> format_value(12345), format_value(2.50000), format_value(None)
    ('12,345', '2.5', '–')
    >>> format_value(datetime(2013, 3, 8, 15, tzinfo=UTC))
    '2013-03-08 15:00:00'
    """
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.4f}".rstrip("0").rstrip(".") if abs(value) >= 0.001 or value == 0 else f"{value:.3g}"
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            text = moment.replace(tzinfo=None).isoformat(" ")
            return text.rstrip("0") if moment.microsecond else text
        case _:
            return str(value)

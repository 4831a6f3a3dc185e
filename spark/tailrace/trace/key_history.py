"""The history of one key: all panes of its windows, in version order, and the records that were too late for a window.

The history is read from the ledger without a JVM. The statistics of the ledger's files show which files need not be
read. Instants are in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.read.late_records import window_of
from tailrace.lake.schema.contracts import LATE, PANE
from tailrace.lake.schema.filters import after, among, equal, every, up_to
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.pipeline_tables import key_columns
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.base.types import INTEGERS, decimal_parts
from tailrace.model.definition.pipeline import UNANSWERED, Pipeline
from tailrace.model.windows.panes import Version, settled_indexes
from tailrace.model.windows.windows import Window

KeyValue: TypeAlias = "str | bool | int | Decimal | date | datetime | None"


class KeyValueError(LakeError, ValueError):
    """The error for a text that is not a valid value of a key column."""


@dataclass(frozen=True)
class LedgerPane:
    """A pane as the ledger stores it.

    `values` contains the results that the pane emitted. `answer` contains the results of all records of the window up
    to this pane.
    """

    window: Window
    version: Version
    timing: str
    retraction: bool
    values: Mapping[str, Any]
    answer: Mapping[str, Any]
    processing_time: int
    watermark: int
    writer: str
    is_last: bool | None = None
    settled_index: int | None = None
    event_time: int | None = None
    """The event time of the answer; None stands for the last microsecond of the window."""


@dataclass(frozen=True)
class LedgerLate:
    """A record that was too late for a window, by `behind` microseconds; `source` is the record's position in the
    log.
    """

    window: Window
    event_time: int
    epoch: int
    behind: int
    reason: str
    source: tuple[int, str, int]


@dataclass(frozen=True)
class History:
    """The panes of a key's windows, in version order, and the key's late records.

    `watermark` and `epoch` are the current watermark and epoch of the ledger.
    """

    key: tuple[KeyValue, ...]
    panes: tuple[LedgerPane, ...]
    late: tuple[LedgerLate, ...]
    watermark: int
    epoch: int

    @property
    def windows(self) -> list[Window]:
        """The windows for which the history has panes or late records, sorted by start."""
        return sorted({pane.window for pane in self.panes} | {late.window for late in self.late})

    def answer(self, window: Window) -> LedgerPane | None:
        """Return the pane with a window's current answer, or None if the window has no current answer."""
        own = [pane for pane in self.panes if pane.window == window]
        return own[-1] if own and not own[-1].retraction else None


def history(lake: Lake, pipeline: Pipeline, key: Sequence[KeyValue], at: int | None = None) -> History:
    """Read the history of a key's windows that contain the instant `at`, or of all its windows if `at` is None.

    If windows do not merge and a window starts at `at`, only that window is read. Raises `LakeError` if the pipeline
    has no ledger.
    """
    ledger = lake.table(ledger_name(pipeline.name))
    where = [among("kind", (PANE, LATE))]
    where += [equal(name, filter_value(value)) for name, value in zip(pipeline.key, key, strict=True)]
    if at is not None:
        where += [up_to("window_start", at), after("window_end", at)]
    rows = ledger.scan(row_filter=every(*where)).to_arrow().to_pylist()
    if at is not None and not pipeline.where.merges and any(instant(row["window_start"]) == at for row in rows):
        rows = [row for row in rows if instant(row["window_start"]) == at]
    panes = sorted((ledger_pane(pipeline, row) for row in rows if row["kind"] == PANE), key=_order)
    places = settled_indexes(((one.window, one.version.generation), one.timing, one.retraction) for one in panes)
    panes = [replace(one, settled_index=place) for one, place in zip(panes, places, strict=True)]
    late = sorted(
        (ledger_late(row) for row in rows if row["kind"] == LATE), key=lambda one: (one.epoch, one.event_time)
    )
    head = head_of(ledger)
    return History(tuple(key), tuple(panes), tuple(late), head.number("watermark", BEGINNING), head.number("epoch"))


def key_values(pipeline: Pipeline, texts: Sequence[str]) -> tuple[KeyValue, ...]:
    """Parse a key from one text for each key column. Raises `KeyValueError` if a text does not fit its column."""
    types = key_columns(pipeline)
    return tuple(key_value(name, type, text) for (name, type), text in zip(types.items(), texts, strict=True))


def key_value(name: str, type: str, text: str) -> KeyValue:
    """Parse a text as a value of a column. Raises `KeyValueError` if the text does not fit the column's type."""
    try:
        if type in INTEGERS:
            return int(text)
        if type == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if type == "date":
            return date.fromisoformat(text)
        if type == "timestamp":
            at = datetime.fromisoformat(text)
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        if parts := decimal_parts(type):
            exact = Decimal(text).quantize(Decimal(1).scaleb(-parts[1]))
            if exact == Decimal(text):
                return exact
            raise ValueError
    except (ValueError, KeyError, InvalidOperation):
        raise KeyValueError(f"key {name} = {text!r}: expected a {type}, the type of the column") from None
    return text


def filter_value(value: KeyValue) -> KeyValue:
    """Convert a value to the form that pyiceberg's filters accept."""
    return value.isoformat() if isinstance(value, date) else value


def _order(pane: LedgerPane) -> tuple[Version, bool, Window]:
    """Return the sort key of a pane: the version comes first.

    Within a version, a retraction sorts before the pane that replaces the old answer.
    """
    return (pane.version, not pane.retraction, pane.window)


def ledger_pane(pipeline: Pipeline, row: Mapping[str, Any]) -> LedgerPane:
    """Create a pane from a row of the ledger; the row must have the columns of a pane and of the results."""
    values = _said({name: row.get(name) for name in pipeline.answer_columns})
    return LedgerPane(
        window=window_of(row),
        version=Version(row["generation"], row["epoch"], row["pane_index"]),
        timing=row["timing"],
        retraction=row["retraction"],
        values=values,
        answer=_said(row.get("answer") or values),
        processing_time=instant(row["processing_time"]),
        watermark=instant(row["watermark"]),
        writer=row["writer"],
        is_last=row.get("is_last"),
        event_time=None if row.get("event_time") is None else instant(row["event_time"]),
    )


def _said(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove the column with the reasons for null results if the column is null.

    The panes that the model's reference code computes lack the column, too, so both kinds of panes can be compared.
    """
    return {name: value for name, value in row.items() if name != UNANSWERED or value is not None}


def ledger_late(row: Mapping[str, Any]) -> LedgerLate:
    """Create a late record from a row of the ledger."""
    return LedgerLate(
        window=window_of(row),
        event_time=instant(row["event_time"]),
        epoch=row["epoch"],
        behind=row["behind"],
        reason=row["reason"],
        source=(row["source_epoch"], row["source_partition"], row["source_offset"]),
    )

"""Find records that a person asks for, in a log and among the records that it rejected, without a JVM.

A record is named by its id, by its place in the source, or by a condition on columns, which files' statistics narrow
down. At most so many are returned as are asked for; one batch of a file is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import parser
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import DUPLICATES
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.filters import EVERYTHING, Filter, equal, every
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.table_names import rejected_name
from tailrace.model.base.time import instant
from tailrace.model.logs.log import PLACE, SIGN, Log
from tailrace.trace.key_history import filter_value, key_value


class WantedError(LakeError, ValueError):
    """Records that cannot be looked for as they are named. The message says what is expected."""


@dataclass(frozen=True)
class Wanted:
    """Name records as a person knows them: by id, by their place in the source, or by a condition; one of the three.

    `id` has a text for each column of the log's `record_id`. `source` is a partition of the source, a file or one of a
    topic, or the end of its name, and `offset` the place in it. `where` is a condition on the log's columns, as
    pyiceberg's row filters are written: `carrier = 'AA' and flight > 12`.
    """

    id: tuple[str, ...] = ()
    source: str | None = None
    offset: int | None = None
    where: str | None = None

    @classmethod
    def at(cls, place: str) -> Wanted:
        """Read a place, SOURCE:OFFSET or SOURCE.

        >>> Wanted.at("00003.json:15").offset, Wanted.at("00003.json").source
        (15, '00003.json')
        """
        source, colon, offset = place.rpartition(":")
        numbered = bool(colon) and offset.isascii() and offset.isdigit()
        return cls(source=source, offset=int(offset)) if numbered else cls(source=place)


def place_text(source: str | None, offset: int | None) -> str:
    """Write a place in a source for people: the file's own name, and the offset.

    >>> place_text("file:/landing/00003.json", 15)
    '00003.json:15'
    """
    name = "" if source is None else source.rsplit("/", 1)[-1]
    return name if offset is None else f"{name}:{offset}"


@dataclass(frozen=True)
class LandedRecord:
    """A record of a log: its columns, where it came from, and when it reached the log, in microseconds."""

    log: str
    values: Mapping[str, Any]
    epoch: int
    source: str
    offset: int | None
    arrival: int | None

    @property
    def place(self) -> tuple[int, str, int | None]:
        """The record's place, as ledgers have it."""
        return self.epoch, self.source, self.offset

    @property
    def record(self) -> dict[str, Any]:
        """The record as definitions read it."""
        return {**self.values, **dict(zip(PLACE, self.place, strict=True))}


@dataclass(frozen=True)
class RejectedRecord:
    """A record that a log rejected as it was read: its bytes, and why."""

    log: str
    raw: bytes
    error: str
    epoch: int
    source: str
    offset: int | None


@dataclass(frozen=True)
class FoundRecords:
    """The records of a log that were found, and those that it rejected; `more` says that there are further ones.

    `dropped` counts the records of the log that were dropped as they came again, those of all ids.
    """

    log: str
    landed: tuple[LandedRecord, ...]
    rejected: tuple[RejectedRecord, ...]
    more: bool
    dropped: int


Rows: TypeAlias = Callable[[Table, Filter], Iterable[Mapping[str, Any]]]
"""Reads the rows of a table that a filter selects, or a few more."""


def find_in_logs(
    lake: Lake, logs: Iterable[Log], wanted: Wanted, limit: int, rows: Rows | None = None
) -> list[FoundRecords]:
    """Find up to `limit` records of each log that has what they are named by; an engine may read the logs by `rows`.

    Raises `WantedError` where no log has it.
    """
    found, refused = list[FoundRecords](), list[WantedError]()
    for log in logs:
        try:
            found.append(find_records(lake, log, wanted, limit, rows))
        except WantedError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return found


def find_records(lake: Lake, log: Log, wanted: Wanted, limit: int, rows: Rows | None = None) -> FoundRecords:
    """Find up to `limit` records of a log, and as many rejected ones.

    Rejected records are found by their place, or as their bytes have all texts of an id. Raises `WantedError` where the
    log has no such columns, and `LakeError` where there is no such log.
    """
    where, accepts = _in_log(log, wanted)
    try:
        # Before the scan, whose own errors are not about the condition.
        expression_to_pyarrow(bind(lake.table(log.name).schema(), where, case_sensitive=True))
    except (ValueError, TypeError, ArithmeticError, ValidationError) as error:
        raise _no_condition(log, wanted.where, str(error)) from error
    try:
        landed = tuple(islice(_landed(lake, log, where, accepts, rows or scanned_rows), limit + 1))
    except ArithmeticError as error:
        # A number that is no instant, as which the condition's column has it.
        raise _no_condition(log, wanted.where, str(error)) from error
    rejected = tuple(islice(_rejected(lake, log, wanted), limit + 1))
    more = max(len(landed), len(rejected)) > limit
    dropped = lake.head(log.name).number(DUPLICATES, 0)
    return FoundRecords(log.name, landed[:limit], rejected[:limit], more, dropped)


def _in_log(log: Log, wanted: Wanted) -> tuple[Filter, Callable[[Mapping[str, Any]], bool]]:
    """Return the filter of a log's records, and a condition that those which pass it have to meet as well."""
    if wanted.where is not None:
        try:
            return parser.parse(wanted.where), lambda row: True
        except Exception as error:
            raise _no_condition(log, wanted.where, "it cannot be read") from error
    if wanted.source is not None:
        at = EVERYTHING if wanted.offset is None else equal("_offset", wanted.offset)
        return at, lambda row: _of_source(row["_source"], str(wanted.source))
    if not log.id_columns:
        raise WantedError(f"log {log.name} has no record_id: name the record by its place or by a condition on columns")
    if len(wanted.id) != len(log.id_columns):
        raise WantedError(f"the id of log {log.name} is ({', '.join(log.id_columns)}): expected a value for each")
    values = {
        name: key_value(name, log.columns[name], text) for name, text in zip(log.id_columns, wanted.id, strict=True)
    }
    return every(*(equal(name, filter_value(value)) for name, value in values.items())), lambda row: True


def _no_condition(log: Log, where: str | None, why: str) -> WantedError:
    columns = ", ".join([*log.columns, *PLACE])
    return WantedError(f"where = {where!r}: {why}; of log {log.name} expected a condition on its columns {columns}, "
                       f"such as {log.event_time} >= '2024-01-01T00:00:00+00:00' and _offset = 3")  # fmt: skip


def _of_source(source: str | None, text: str) -> bool:
    return source is not None and (source == text or source.endswith(f"/{text}"))


def _landed(
    lake: Lake, log: Log, where: Filter, accepts: Callable[[Mapping[str, Any]], bool], rows: Rows
) -> Iterator[LandedRecord]:
    table = lake.table(log.name)
    names = match_names(table, log.columns, {field.name for field in table.schema().fields})
    return (landed_of(log, names, row) for row in rows(table, where) if accepts(row))


def _rejected(lake: Lake, log: Log, wanted: Wanted) -> Iterator[RejectedRecord]:
    if wanted.where is not None or not lake.has(rejected_name(log.name)):
        return
    where = EVERYTHING if wanted.offset is None else equal("_offset", wanted.offset)
    for batch in lake.table(rejected_name(log.name)).scan(row_filter=where).to_arrow_batch_reader():
        for text in () if wanted.source is not None else wanted.id:
            batch = batch.filter(pc.match_substring(batch["raw"], text.encode()))
        for row in batch.to_pylist():
            if wanted.source is None or _of_source(row["_source"], wanted.source):
                raw = row["raw"] or b""
                yield RejectedRecord(log.name, raw, row["error"], row["_epoch"], row["_source"], row["_offset"])


def landed_of(log: Log, names: Mapping[str, str | None], row: Mapping[str, Any]) -> LandedRecord:
    """Read a record off a row of a log's table; `names` maps the declared columns to those of the table."""
    values = {name: None if own is None else row[own] for name, own in names.items()}
    # Only a log of changes has it: it says whether the row was added or taken back.
    values |= {SIGN: row[SIGN]} if SIGN in row else {}
    arrival = None if row["_arrival"] is None else instant(row["_arrival"])
    return LandedRecord(log.name, values, row["_epoch"], row["_source"], row["_offset"], arrival)


def scanned_rows(table: Table, where: Filter) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table that a filter selects, some files in memory at a time."""
    return rows_of(table.scan(row_filter=where).to_arrow_batch_reader())


def rows_of(batches: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches, one batch in memory at a time."""
    for batch in batches:
        yield from batch.to_pylist()

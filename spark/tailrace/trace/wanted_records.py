"""Find the records that a user requests, in a log and among the log's rejected records, without a JVM.

A request names a record by its id, by its position in the source, or by a condition on columns. A file is not read if
its statistics show that the file contains no requested record. The number of returned records is limited, and only one
batch of a file is in memory at a time.
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
from tailrace.model.logs.log import PLACE, SCANNED, SIGN, Log
from tailrace.trace.key_history import filter_value, key_value


class WantedError(LakeError, ValueError):
    """The error for a request for records that is not valid for the log; the message states what is expected."""


@dataclass(frozen=True)
class Wanted:
    """A request for records: by id, by position in the source, or by a condition. Exactly one of these must be set.

    `id` has one string for each column of the log's `record_id`. `source` is a partition of the source (a file or a
    topic's partition), or the end of the partition's name, and `offset` is the position in that partition. `where` is a
    condition on the log's columns in the syntax of pyiceberg's row filters: `carrier = 'AA' and flight > 12`. `raw` are
    the bytes that a rejected record must have.
    """

    id: tuple[str, ...] = ()
    source: str | None = None
    offset: int | None = None
    where: str | None = None
    raw: bytes | None = None

    @classmethod
    def at(cls, place: str) -> Wanted:
        """Parse a position in the source, written as SOURCE:OFFSET or SOURCE.

        >>> Wanted.at("00003.json:15").offset, Wanted.at("00003.json").source
        (15, '00003.json')
        """
        source, colon, offset = place.rpartition(":")
        numbered = bool(colon) and offset.isascii() and offset.isdigit()
        return cls(source=source, offset=int(offset)) if numbered else cls(source=place)

    @classmethod
    def at_line(cls, place: str) -> Wanted:
        """Parse the place of a line, written as FILE:LINE; the first line of a file is line 1.

        >>> Wanted.at_line("00003.json:16").offset
        15
        """
        asked = cls.at(place)
        if not asked.offset:
            raise WantedError(f"line {place!r}: expected a file and the number of a line, such as 00003.json:16")
        return cls(source=asked.source, offset=asked.offset - 1)


def line_number(source: str | None, offset: int | None) -> int | None:
    """Return the number of a record in its file, the first one being 1; in a file of lines it is the line's number.

    Returns None for a record of a topic, and for a line that Spark has scanned, whose offset is no index (`SCANNED`).

    >>> line_number("file:/landing/00003.json", 15), line_number("rides-0", 15)
    (16, None)
    """
    known = source is not None and "/" in source and offset is not None and offset < SCANNED
    return offset + 1 if known and offset is not None else None


def place_text(source: str | None, offset: int | None) -> str:
    """Format a position in a source for people: the file's name without its folder, and the offset.

    >>> place_text("file:/landing/00003.json", 15)
    '00003.json:15'
    """
    name = "" if source is None else source.rsplit("/", 1)[-1]
    return name if offset is None else f"{name}:{offset}"


@dataclass(frozen=True)
class LandedRecord:
    """A record of a log: its columns, its position, and the time at which it reached the log, in microseconds."""

    log: str
    values: Mapping[str, Any]
    epoch: int
    source: str
    offset: int | None
    arrival: int | None

    @property
    def place(self) -> tuple[int, str, int | None]:
        """The record's position: epoch, source and offset, as in ledgers."""
        return self.epoch, self.source, self.offset

    @property
    def record(self) -> dict[str, Any]:
        """The record in the form in which definitions read it."""
        return {**self.values, **dict(zip(PLACE, self.place, strict=True))}


@dataclass(frozen=True)
class RejectedRecord:
    """A record that was rejected when it was read into a log: the record's bytes, and the reason for the rejection."""

    log: str
    raw: bytes
    error: str
    epoch: int
    source: str
    offset: int | None


@dataclass(frozen=True)
class FoundRecords:
    """The result of a search in a log: the matching records of the log, and the matching records that the log rejected.

    `more` is True if there are further matches. `dropped` is the number of all records that the log has dropped as
    duplicates, whether they match or not.
    """

    log: str
    landed: tuple[LandedRecord, ...]
    rejected: tuple[RejectedRecord, ...]
    more: bool
    dropped: int


Rows: TypeAlias = Callable[[Table, Filter], Iterable[Mapping[str, Any]]]
"""A function that returns the rows of a table that match a filter; it may also return rows that do not match."""


def find_in_logs(
    lake: Lake, logs: Iterable[Log], wanted: Wanted, limit: int, rows: Rows | None = None
) -> list[FoundRecords]:
    """Find up to `limit` requested records in each log; logs to which the request does not apply are skipped.

    For example, a request by id does not apply to a log without record ids. `rows` is the function that reads a log's
    table; an engine may pass its own function. Raises `WantedError` if the request applies to no log.
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
    """Find up to `limit` records of a log, and up to `limit` of the log's rejected records.

    A rejected record matches if it has the requested position, or if its bytes contain all strings of the requested id.
    Raises `WantedError` if the request does not fit the log's columns, and `LakeError` if the log does not exist.
    """
    where, accepts = _in_log(log, wanted)
    try:
        # Check the condition before the scan, because an error during the scan may have another cause.
        expression_to_pyarrow(bind(lake.table(log.name).schema(), where, case_sensitive=True))
    except (ValueError, TypeError, ArithmeticError, ValidationError) as error:
        raise _no_condition(log, wanted.where, str(error)) from error
    try:
        landed = tuple(islice(_landed(lake, log, where, accepts, rows or scanned_rows), limit + 1))
    except ArithmeticError as error:
        # This error occurs if the condition compares a timestamp column with a number that is not a valid instant.
        raise _no_condition(log, wanted.where, str(error)) from error
    rejected = tuple(islice(_rejected(lake, log, wanted), limit + 1))
    more = max(len(landed), len(rejected)) > limit
    dropped = lake.head(log.name).number(DUPLICATES, 0)
    return FoundRecords(log.name, landed[:limit], rejected[:limit], more, dropped)


def _in_log(log: Log, wanted: Wanted) -> tuple[Filter, Callable[[Mapping[str, Any]], bool]]:
    """Return a filter for a log's records, and a function that decides whether a filtered record is requested."""
    if wanted.where is not None:
        try:
            return parser.parse(wanted.where), lambda row: True
        except Exception as error:
            raise _no_condition(log, wanted.where, "it cannot be read") from error
    if wanted.source is not None:
        at = EVERYTHING if wanted.offset is None else equal("_offset", wanted.offset)
        return at, lambda row: of_source(row["_source"], str(wanted.source))
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


def of_source(source: str | None, text: str) -> bool:
    """Return True if a source has a name, or if its name ends with it after a slash."""
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
            raw = row["raw"] or b""
            if wanted.raw not in (None, raw):
                continue
            if wanted.source is None or of_source(row["_source"], wanted.source):
                yield RejectedRecord(log.name, raw, row["error"], row["_epoch"], row["_source"], row["_offset"])


def landed_of(log: Log, names: Mapping[str, str | None], row: Mapping[str, Any]) -> LandedRecord:
    """Create a record from a row of a log's table; `names` maps declared columns to the table's columns."""
    values = {name: None if own is None else row[own] for name, own in names.items()}
    # Only a log of changes has this column, which states whether the row was added or retracted.
    values |= {SIGN: row[SIGN]} if SIGN in row else {}
    arrival = None if row["_arrival"] is None else instant(row["_arrival"])
    return LandedRecord(log.name, values, row["_epoch"], row["_source"], row["_offset"], arrival)


def scanned_rows(table: Table, where: Filter) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table that match a filter; only some of the files are in memory at a time."""
    return rows_of(table.scan(row_filter=where).to_arrow_batch_reader())


def rows_of(batches: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Yield the rows of some record batches one by one; only one batch is in memory at a time."""
    for batch in batches:
        yield from batch.to_pylist()

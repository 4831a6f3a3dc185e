"""Define the columns of records that were read, and find the records with valid times and all required values.

If a record does not fit the log, `ingest.parsing` determines the reason.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.base.time import BEGINNING, END_OF_TIME, FIRST_DAY, LAST_DAY, duration, instant
from tailrace.model.base.types import decimal_parts
from tailrace.model.definition.source_text import length
from tailrace.model.logs.log import SIGN, Log

_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def schema_of(log: Log) -> pa.Schema:
    """Return the schema of records that were read: the declared columns, the record's position, and the record's
    error.
    """
    return _schema(tuple(log.columns.items()), log.signed)


@lru_cache(maxsize=64)
def _schema(columns: tuple[tuple[str, str], ...], signed: bool) -> pa.Schema:
    fields = [pa.field(name, _type(type)) for name, type in columns]
    fields += [pa.field(SIGN, pa.int32())] if signed else []
    place = {"_source": pa.string(), "_offset": pa.int64(), "_arrival": _TYPES["timestamp"]}
    return pa.schema([*fields, *place.items(), ("_error", pa.string()), ("_raw", pa.binary())])


def _type(type: str) -> pa.DataType:
    parts = decimal_parts(type)
    return _TYPES[type] if parts is None else pa.decimal128(*parts)


def row_bytes(log: Log, source: str) -> int:
    """Return the number of bytes of memory that a record of a source takes in addition to its texts."""
    return len(source) + sum(field.type.bit_width // 8 or 1 if _is_fixed(field.type) else 4 for field in schema_of(log))


def _is_fixed(type: pa.DataType) -> bool:
    return not pa.types.is_string(type) and not pa.types.is_binary(type)


def fit_mask(log: Log, records: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the records that fit: their times are within bounds, and all required values are present.

    If the arrival time is known, the event time may be later than the arrival time by at most the log's bound. All
    other instants and dates must be within the years 1 to 9999, which is the range of tables and calendars.
    """
    fits = pc.is_valid(records[log.event_time])
    for column in (log.event_time, log.arrival_time):
        if column is not None:
            at = records[column].cast(pa.int64())
            inside = pc.and_(
                pc.greater_equal(at, instant(log.earliest)),
                pc.less(at, instant(log.latest)),
            )
            fits = pc.and_(fits, pc.fill_null(inside, False))
    if (bound := maximum_ahead(log)) is not None:
        # The subtraction may overflow for a time outside the log's bounds, but a record with such a time is rejected
        # anyway.
        by = pc.subtract(*(records[name].cast(pa.int64()) for name in (log.event_time, "_arrival")))
        fits = pc.and_(fits, pc.fill_null(pc.less_equal(by, bound), True))
    for column in log.never_missing:
        fits = pc.and_(fits, pc.is_valid(records[column]))
    for column, ends in ends_of_time(log).items():
        given = records[column].cast(pa.int64() if ends == INSTANTS_END else pa.int32())
        if not _all_within(given, *ends):
            inside = pc.and_(pc.greater_equal(given, ends[0]), pc.less_equal(given, ends[1]))
            fits = pc.and_(fits, pc.fill_null(inside, True))
    return fits


def maximum_ahead(log: Log) -> int | None:
    """Return the maximum number of microseconds by which an event time may be after the record's arrival.

    Returns None if there is no maximum.
    """
    return None if log.bound_ahead is None else duration(log.bound_ahead)


def outside_bounds(log: Log) -> str:
    """Return the reason for rejecting an instant outside the log's bounds; the text includes the remedy."""
    return f" lies outside [{log.earliest:%Y-%m-%d}, {log.latest:%Y-%m-%d}): set earliest and latest in the log"


def too_far_ahead(bound: int) -> str:
    """Return the reason for rejecting an event time that is too far after the record's arrival.

    The caller appends the arrival time to the text.
    """
    return f" is more than {length(bound)} (ahead in the log) after its arrival at "


def _all_within(numbers: pa.ChunkedArray, first: int, last: int) -> bool:
    """Return True if all numbers are within bounds.

    The check takes one pass over the numbers. In nearly all cases, the result is True.
    """
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or (first <= ends["min"] and ends["max"] <= last)


INSTANTS_END = (BEGINNING, END_OF_TIME)
DAYS_END = (FIRST_DAY, LAST_DAY)
"""The first and the last day that tables can store, counted from 1970.

`INSTANTS_END` contains the first and the last instant that tables can store, in microseconds since 1970.
"""


def ends_of_time(log: Log) -> dict[str, tuple[int, int]]:
    """Return the range that tables can store for each instant or date column for which the log sets no bounds."""
    ends = {"timestamp": INSTANTS_END, "date": DAYS_END}
    own = (log.event_time, log.arrival_time)
    return {name: ends[type] for name, type in log.columns.items() if type in ends and name not in own}

"""Name the columns of read records, and tell which records have the times and values that none may lack.

`ingest.parsing` says why the other records do not fit.
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
    """Return the schema of read records: the declared columns, where each came from, and its error, null here."""
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
    """Return the bytes of memory that a record of a source takes besides its texts."""
    return len(source) + sum(field.type.bit_width // 8 or 1 if _is_fixed(field.type) else 4 for field in schema_of(log))


def _is_fixed(type: pa.DataType) -> bool:
    return not pa.types.is_string(type) and not pa.types.is_binary(type)


def fitting(log: Log, records: pa.Table) -> pa.ChunkedArray:
    """Tell which records have their times, within the log's bounds, their ids and what else is required.

    An event time may be ahead of its arrival, where that is known, by as much as the log says. No other instant or date
    may be beyond the years 1 to 9999: tables and calendars end there.
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
    if (bound := most_ahead(log)) is not None:
        # What is outside the log's bounds may wrap around here, and does not fit already.
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


def most_ahead(log: Log) -> int | None:
    """Return the microseconds by which an event time may be ahead of its arrival; None where there is no bound."""
    return None if log.bound_ahead is None else duration(log.bound_ahead)


def outside(log: Log) -> str:
    """Say of an instant that it lies outside the log's bounds, and what mends it."""
    return f" lies outside [{log.earliest:%Y-%m-%d}, {log.latest:%Y-%m-%d}): set earliest and latest in the log"


def too_far(bound: int) -> str:
    """Say of an event time that it is too far ahead of its arrival, which follows."""
    return f" is more than {length(bound)} (ahead in the log) after its arrival at "


def _all_within(numbers: pa.ChunkedArray, first: int, last: int) -> bool:
    """Tell whether all numbers are within bounds: one pass, for nearly always they are."""
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or (first <= ends["min"] and ends["max"] <= last)


INSTANTS_END = (BEGINNING, END_OF_TIME)
DAYS_END = (FIRST_DAY, LAST_DAY)
"""The first and the last instant, in microseconds since 1970, and day, in days since 1970, that tables can hold."""


def ends_of_time(log: Log) -> dict[str, tuple[int, int]]:
    """Return the first and last values of the columns of instants and dates that the log sets no bounds of its own."""
    ends = {"timestamp": INSTANTS_END, "date": DAYS_END}
    own = (log.event_time, log.arrival_time)
    return {name: ends[type] for name, type in log.columns.items() if type in ends and name not in own}

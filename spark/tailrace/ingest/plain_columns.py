"""Define the columns of records that were read, and find the records with valid times and all required values.

If a record does not fit the log, `ingest.parsing` or `ingest.framed` determines the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import INSTANTS, TimeScale, column_type, time_scale
from tailrace.model.base.time import duration, instant
from tailrace.model.base.types import is_plain
from tailrace.model.logs.log import ROUNDED, SIGN, Log

Mask: TypeAlias = npt.NDArray[np.bool_]
"""A mask of values or records."""


OF_READING = ("_error", "_raw", ROUNDED)
"""The columns of records that were read (`schema_of`) that the log's own records do not have."""


def own_columns(records: pa.Table) -> pa.Table:
    """Return valid records without the columns of reading them."""
    return records.select([name for name in records.column_names if name not in OF_READING])


def schema_of(log: Log) -> pa.Schema:
    """Return the schema of records that were read: the declared columns, the record's position, and the record's
    error. If the log rounds decimals, the last column is the number of the record's rounded values (`ROUNDED`).
    """
    return _schema(tuple(log.columns.items()), log.signed, log.rounds)


@lru_cache(maxsize=64)
def _schema(columns: tuple[tuple[str, str], ...], signed: bool, rounds: bool) -> pa.Schema:
    fields = [pa.field(name, column_type(type).arrow) for name, type in columns]
    fields += [pa.field(SIGN, pa.int32())] if signed else []
    place = {"_source": pa.string(), "_offset": pa.int64(), "_arrival": pa.timestamp("us", "UTC")}
    counted = [(ROUNDED, pa.int32())] if rounds else []
    return pa.schema([*fields, *place.items(), ("_error", pa.string()), ("_raw", pa.binary()), *counted])


def row_bytes(log: Log, source: str) -> int:
    """Return the number of bytes of memory that a record of a source takes in addition to its texts."""
    return len(source) + sum(_fixed_bytes(field.type) for field in schema_of(log))


def _fixed_bytes(type: pa.DataType) -> int:
    """Return the number of bytes of a value, without its texts and without the elements of its lists."""
    if pa.types.is_struct(type):
        return sum(_fixed_bytes(field.type) for field in type)
    varies = pa.types.is_list(type) or pa.types.is_string(type) or pa.types.is_binary(type)
    return 4 if varies else type.bit_width // 8 or 1


@dataclass(frozen=True)
class TimeCheck:
    """The check that the instants or dates in a column are between `first` and `last`, both included."""

    column: str
    scale: TimeScale
    first: int
    last: int


def own_time_checks(log: Log) -> Iterator[TimeCheck]:
    """Yield the checks of the log's event time and arrival time, whose bounds the log sets."""
    first, last = instant(log.earliest), instant(log.latest) - 1
    for column in filter(None, (log.event_time, log.arrival_time)):
        yield TimeCheck(column, INSTANTS, first, last)


def other_time_checks(log: Log) -> Iterator[TimeCheck]:
    """Yield the checks of all other columns of instants and dates. Their bounds are the range that tables can store."""
    for column, type in log.columns.items():
        scale = column_type(type).times
        if scale is not None and column not in (log.event_time, log.arrival_time):
            yield TimeCheck(column, scale, scale.first, scale.last)


def fit_mask(log: Log, records: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the records that fit: their times are within bounds, and all required values are present.

    If the arrival time is known, the event time may be later than the arrival time by at most the log's bound.
    """
    fits = pc.is_valid(records[log.event_time])
    for check in (*own_time_checks(log), *other_time_checks(log)):
        given = records[check.column].cast(check.scale.number)
        if not _all_within(given, check.first, check.last):
            inside = pc.and_(pc.greater_equal(given, check.first), pc.less_equal(given, check.last))
            fits = pc.and_(fits, pc.fill_null(inside, True))
    if (bound := maximum_ahead(log)) is not None:
        # The subtraction may overflow for a time outside the log's bounds, but a record with such a time is rejected
        # anyway.
        by = pc.subtract(*(records[name].cast(pa.int64()) for name in (log.event_time, "_arrival")))
        fits = pc.and_(fits, pc.fill_null(pc.less_equal(by, bound), True))
    for column in filter(None, (log.arrival_time, *log.never_missing)):
        fits = pc.and_(fits, pc.is_valid(records[column]))
    for column, type in log.columns.items():
        if not is_plain(type) and column_type(type).has_times:
            outside = [_has_time_outside(chunk) for chunk in records[column].chunks]
            fits = pc.and_(fits, pa.chunked_array([pa.array(~mask) for mask in outside], pa.bool_()))
    return fits


def _has_time_outside(values: pa.Array) -> Mask:
    """Return a mask of the values in which an instant or a date is outside the range that tables can store."""
    found = np.zeros(len(values), np.bool_)
    if pa.types.is_struct(values.type):
        for number in range(values.type.num_fields):
            found |= _has_time_outside(pc.struct_field(values, number))
    elif pa.types.is_list(values.type):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        found[np.repeat(np.arange(len(values)), lengths)[_has_time_outside(values.flatten())]] = True
    elif (scale := time_scale(values.type)) is not None:
        numbers = pc.fill_null(values.cast(scale.number), 0).to_numpy(zero_copy_only=False)
        found = (numbers < scale.first) | (numbers > scale.last)
    return found


def as_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert instants and dates, at any depth, to numbers since 1970, as the model has them."""
    return values.cast(_numbered(values.type))


def _numbered(type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, _numbered(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(_numbered(type.value_type))
    scale = time_scale(type)
    return type if scale is None else scale.number


def maximum_ahead(log: Log) -> int | None:
    """Return the maximum number of microseconds by which an event time may be after the record's arrival.

    Returns None if there is no maximum.
    """
    return None if log.bound_ahead is None else duration(log.bound_ahead)


def _all_within(numbers: pa.ChunkedArray, first: int, last: int) -> bool:
    """Return True if all numbers are within bounds.

    The check takes one pass over the numbers. In nearly all cases, the result is True.
    """
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or (first <= ends["min"] and ends["max"] <= last)

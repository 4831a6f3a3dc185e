"""Find the smallest and the largest value of a column in a set of files, from the files' statistics."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import LongType, NestedField, TimestamptzType


def bounds(files: Iterable[DataFile], column: NestedField) -> tuple[int, int] | None:
    """Return the smallest and the largest value of a column in some files; times are returned in microseconds.

    Returns None if there are no files, if a file's statistics lack one of the bounds, if the column may be null in some
    row, or if the column is neither a `bigint` nor a timestamp.
    """
    type, number = column.field_type, column.field_id
    if not isinstance(type, LongType | TimestamptzType):
        return None
    values: list[int] = []
    for file in files:
        low, high = ((held or {}).get(number) for held in (file.lower_bounds, file.upper_bounds))
        if low is None or high is None or (file.null_value_counts or {}).get(number) != 0:
            return None
        values += (int(from_bytes(type, low)), int(from_bytes(type, high)))
    return (min(values), max(values)) if values else None

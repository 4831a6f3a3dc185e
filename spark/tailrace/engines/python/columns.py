"""Convert Arrow columns to the model's Python values and back, one column at a time.

Arrow's own conversion of instants is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.base.time import moment

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def values(column: Column) -> list[Any]:
    """Convert a column to a list of Python values. Instants become datetimes in UTC.

    >>> values(pa.array([0, None], pa.timestamp("us", "UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None]
    """
    if pa.types.is_timestamp(column.type):
        return [None if one is None else moment(one) for one in micros(column)]
    found: list[Any] = column.to_pylist()
    return found


def micros(column: Column) -> list[Any]:
    """Convert a column of instants to a list of microseconds."""
    found: list[Any] = column.cast(pa.int64()).to_pylist()
    return found


def rows(columns: Iterable[Column], count: int) -> Iterator[tuple[Any, ...]]:
    """Iterate over the `count` rows of the columns as tuples. If there are no columns, the tuples are empty."""
    found = [values(column) for column in columns]
    return zip(*found, strict=True) if found else iter([()] * count)


def mappings(table: pa.Table) -> list[dict[str, Any]]:
    """Convert each row of a table to a new dictionary."""
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in rows(table.columns, table.num_rows)]


def batch_of(records: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Build a batch with a given schema from mappings. A column is null if no mapping contains the column's name.

    >>> schema = pa.schema({"n": pa.int64(), "at": pa.timestamp("us", "UTC"), "told": pa.string()})
    >>> mappings(pa.Table.from_batches([batch_of([{"n": 1, "at": None}], schema)]))
    [{'n': 1, 'at': None, 'told': None}]
    """
    there = set().union(*records)
    made = {
        field.name: pa.array([one.get(field.name) for one in records], field.type)
        for field in schema
        if field.name in there
    }
    return batch(made, len(records), schema)


def fields(column: Column) -> Iterator[Column]:
    """Iterate over the fields of a struct column, in order. Each field is returned as a column."""
    return (pc.struct_field(column, place) for place in range(column.type.num_fields))


def group_by_row(column: Column, elements: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Group the elements of a list column into one tuple per row.

    `elements` contains the elements of all rows, in order, already converted to Python values.
    """
    left = iter(elements)
    return (tuple(islice(left, length or 0)) for length in pc.list_value_length(column).to_pylist())


def instants(microseconds: Sequence[int | None], type: pa.DataType) -> pa.Array:
    """Build a column of instants from microseconds."""
    return pa.array(microseconds, pa.int64()).cast(type)


def repeat_value(value: Any, count: int, type: pa.DataType) -> pa.Array:
    """Build a column that repeats one value."""
    return pa.repeat(pa.scalar(value, type), count)


def structs(columns: Sequence[pa.Array], type: pa.StructType) -> pa.Array:
    """Build a struct column from one column per field."""
    return pa.StructArray.from_arrays(columns, fields=list(type))


def structs_of(rows: Sequence[Mapping[str, Any]], type: pa.StructType) -> pa.Array:
    """Build a struct column from one mapping per row. A field is null if the mapping does not contain its name."""
    return structs([pa.array([row.get(field.name) for row in rows], field.type) for field in type], type)


def lists(lengths: Iterable[int], of: pa.Array, type: pa.DataType) -> pa.Array:
    """Build a list column from the length of each list and a column with the elements of all lists, in order."""
    ends = [0, *accumulate(lengths)]
    if pa.types.is_large_list(type):
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), of, type=type)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), of, type=type)


def batch(columns: Mapping[str, pa.Array], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Build a batch of `count` rows with a given schema. Columns that are missing from `columns` are null."""
    made = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)

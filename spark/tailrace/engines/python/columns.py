"""Convert Arrow columns to the model's values and back, a column at a time: Arrow itself is slow with instants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.base.time import moment

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def values(column: Column) -> list[Any]:
    """Convert a column to Python values; instants are in UTC.

    >>> values(pa.array([0, None], pa.timestamp("us", "UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None]
    """
    if pa.types.is_timestamp(column.type):
        return [None if one is None else moment(one) for one in micros(column)]
    found: list[Any] = column.to_pylist()
    return found


def micros(column: Column) -> list[Any]:
    """Convert a column of instants to microseconds."""
    found: list[Any] = column.cast(pa.int64()).to_pylist()
    return found


def rows(columns: Iterable[Column], count: int) -> Iterator[tuple[Any, ...]]:
    """Iterate over the `count` rows of the columns; without columns, the rows are empty tuples."""
    found = [values(column) for column in columns]
    return zip(*found, strict=True) if found else iter([()] * count)


def mappings(table: pa.Table) -> list[dict[str, Any]]:
    """Convert each row of a table to a new dictionary."""
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in rows(table.columns, table.num_rows)]


def batch_of(records: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of a schema from mappings; a column that is in no mapping is null.

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
    """Iterate over the columns of a struct's fields, in order."""
    return (pc.struct_field(column, place) for place in range(column.type.num_fields))


def group_by_row(column: Column, elements: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Group the converted elements of a list column by row, as tuples.

    `elements` has the elements of all rows, in order.
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
    """Build a column of structs from the columns of the structs' fields."""
    return pa.StructArray.from_arrays(columns, fields=list(type))


def lists(lengths: Iterable[int], of: pa.Array, type: pa.DataType) -> pa.Array:
    """Build a column of lists from the lists' lengths and the elements of all lists, in order."""
    ends = [0, *accumulate(lengths)]
    if pa.types.is_large_list(type):
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), of, type=type)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), of, type=type)


def batch(columns: Mapping[str, pa.Array], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of `count` rows of a schema; missing columns are null."""
    made = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)

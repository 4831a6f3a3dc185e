"""Convert a few rows to a human-readable form that is the same for each engine."""

from __future__ import annotations

import base64
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tailrace.model.base.time import moment


def readable_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Convert rows to dictionaries, with instants as UTC datetimes, and structs and lists as parsed JSON.

    Instants may be of any year.

    >>> rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "of": [{"n": [1.5]}]})
    >>> readable_rows(rows)[0]["at"].year, readable_rows(rows)[0]["of"]
    (1970, {'n': [Decimal('1.5')]})
    """
    # Python's datetime cannot represent the latest instants, so instants are first read as microseconds.
    plain = rows.cast(pa.schema([(field.name, _numbered(field.type)) for field in rows.schema]))
    types = {field.name: field.type for field in rows.schema}
    return [{name: _value(one, types[name]) for name, one in row.items()} for row in plain.to_pylist()]


def _numbered(type: pa.DataType) -> pa.DataType:
    """Return a type in which integers replace instants, at any nesting depth."""
    if pa.types.is_timestamp(type):
        return pa.int64()
    if pa.types.is_struct(type):
        return pa.struct([(field.name, _numbered(field.type)) for field in type])
    return pa.list_(_numbered(type.value_type)) if pa.types.is_list(type) else type


def _value(value: Any, type: pa.DataType) -> Any:
    if value is not None and pa.types.is_timestamp(type):
        return moment(value)
    return _inner(value, type) if pa.types.is_nested(type) else value


def _inner(value: Any, type: pa.DataType) -> Any:
    """Convert a value inside a struct or a list to its JSON form, without null fields."""
    if value is None:
        return None
    if pa.types.is_struct(type):
        return {field.name: _inner(value[field.name], field.type) for field in type if value[field.name] is not None}
    if pa.types.is_list(type):
        return [_inner(one, type.value_type) for one in value]
    if pa.types.is_timestamp(type):
        return moment(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value

"""Find a table's columns by field id, so that a reader or writer can also use a column's former name.

Iceberg assigns an id to each column and keeps every schema that a table has had, so a former name still identifies its
column. If columns of a log are renamed, a definition that is already running continues to use the former names. A
definition that reads an old snapshot can likewise use the column names of that snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, NestedField, StructType

from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.iceberg_types import type_name
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.base.types import widens
from tailrace.model.logs.log import Log


def schema_at(table: Table, snapshot: int | None) -> Schema:
    """Return the schema that a loaded table had in a snapshot, or its present schema if `snapshot` is None."""
    at = None if snapshot is None else table.snapshot_by_id(snapshot)
    return table.schema() if at is None or at.schema_id is None else table.schemas()[at.schema_id]


def current_columns(table: Table, snapshot: int | None) -> list[str] | None:
    """Return SQL terms that convert the columns of a snapshot to the present columns of a loaded table.

    Columns and fields that the snapshot lacks are null. The terms are in the common SQL dialect. Returns None if no
    conversion is needed, because the columns are the same. Also returns None if no conversion is possible, because one
    of the snapshot's columns was renamed, retyped or dropped.
    """
    before, now = schema_at(table, snapshot), table.schema()
    if before.schema_id == now.schema_id or not has_grown(table, before):
        return None
    return [f"{_filled(f'`{f.name}`', _held(before.as_struct(), f), f.field_type)} AS `{f.name}`" for f in now.fields]


def has_grown(table: Table, before: Schema) -> bool:
    """Return True if a table still has all columns of the schema `before`, under the same names.

    The table may have further columns, and the columns may have wider types.
    """
    return _has_grown(before.as_struct(), table.schema().as_struct())


def _held(before: StructType, field: NestedField) -> IcebergType | None:
    return next((one.field_type for one in before.fields if one.field_id == field.field_id), None)


def _has_grown(before: IcebergType, now: IcebergType) -> bool:
    """Return True if the type `now` has all fields of the type `before`, under the same names.

    The type `now` may have further fields, and wider types of fields.
    """
    if isinstance(before, StructType) and isinstance(now, StructType):
        there = {field.field_id: field for field in now.fields}
        return all(
            (own := there.get(field.field_id)) is not None
            and own.name == field.name
            and _has_grown(field.field_type, own.field_type)
            for field in before.fields
        )
    if isinstance(before, ListType) and isinstance(now, ListType):
        return _has_grown(before.element_type, now.element_type)
    return widens(type_name(before), type_name(now))


def _filled(term: str, before: IcebergType | None, now: IcebergType) -> str:
    """Return an SQL term that converts `term` from an earlier column type to the current type.

    If there is no earlier type, the returned term is a null of the current type.
    """
    if before is None:
        return f"CAST(NULL AS {type_name(now)})"
    if before == now:
        return term
    if isinstance(before, ListType) and isinstance(now, ListType):
        return f"TRANSFORM({term}, _one -> {_filled('_one', before.element_type, now.element_type)})"
    if not isinstance(before, StructType) or not isinstance(now, StructType):
        return f"CAST({term} AS {type_name(now)})"
    inner = (f"'{f.name}', {_filled(f'{term}.`{f.name}`', _held(before, f), f.field_type)}" for f in now.fields)
    return f"IF({term} IS NULL, CAST(NULL AS {type_name(now)}), NAMED_STRUCT({', '.join(inner)}))"


def declared_types(log: Log) -> dict[str, str]:
    """Return the Spark SQL types of the columns that a log's table should have according to the log's declaration."""
    return log_contract(log).types


def has_only_declared(table: Table, log: Log) -> bool:
    """Return True if a log's table has exactly the declared columns, in order.

    Returns False if a column's name has characters that data files cannot store unchanged.
    """
    schema = table.schema()
    declared = [field.name for field in schema.fields] == [*log_contract(log).columns]
    return declared and sanitize_column_names(schema) == schema


def match_names(table: Table, columns: Iterable[str], present: Collection[str]) -> dict[str, str | None]:
    """Map each column in `columns` to the name that this column has in `present`, or to None if it is not in `present`.

    `present` contains the column names of one of the table's schemas: the present schema, or the schema of a snapshot.
    """
    schemas = sorted(table.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    found: dict[str, str | None] = {}
    for name in columns:
        if name in present:
            found[name] = name
            continue
        numbers = [field.field_id for schema in schemas for field in schema.fields if field.name == name]
        names = {field.name for schema in schemas for field in schema.fields if field.field_id in numbers[:1]}
        found[name] = next((one for one in names if one in present), None)
    return found


def conform_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Convert rows to exactly the present columns of a table, with the columns' present names.

    Columns that the rows lack are null. Raises `LakeError` if the rows have a column that the table does not have any
    more.
    """
    schema = _arrow_of(table)
    names = match_names(table, rows.column_names, set(schema.names))
    if gone := [name for name, live in names.items() if live is None]:
        raise LakeError(
            f"{'.'.join(table.name())} has no column {', '.join(gone)} any more: take it out of the definition, or add "
            "it to the table again with `tailrace tables apply`"
        )
    own = {names[name]: rows[name] for name in rows.column_names}
    columns = [own.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in schema]
    return pa.Table.from_arrays(
        [
            # The fields inside a nested column get their ids from a cast, even if the types are equal.
            column if column.type == field.type and not pa.types.is_nested(field.type) else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


_KEPT = 2048
"""The maximum number of schemas that are cached: one for each table that a process writes."""

_arrows = dict[tuple[UUID, int], pa.Schema]()


def _arrow_of(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table's present columns. A schema never changes its id, so it is made only once."""
    key = table.metadata.table_uuid, table.schema().schema_id
    found = _arrows.get(key)
    if found is None:
        if len(_arrows) >= _KEPT:
            _arrows.clear()
        found = _arrows[key] = table.schema().as_arrow()
    return found

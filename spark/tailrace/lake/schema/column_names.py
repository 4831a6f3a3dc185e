"""Columns by their numbers: whoever knows a column by a name that it had before finds it by what it is called now.

Iceberg numbers columns and keeps every schema that a table had, so a name that is gone still says which column it was.
A definition that runs while its log's columns are renamed goes on with the names it has; so does one that is handed
an old snapshot, with the names of then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tailrace.lake.schema.lake_errors import LakeError


def schema_at(table: Table, snapshot: int | None) -> Schema:
    """The columns that a loaded table had as of a snapshot; those of today where none is named."""
    at = None if snapshot is None else table.snapshot_by_id(snapshot)
    return table.schema() if at is None or at.schema_id is None else table.schemas()[at.schema_id]


def known_as(table: Table, columns: Iterable[str], present: Collection[str]) -> dict[str, str | None]:
    """What each column is called among the names that are present; None for one that is not among them at all.

    `present` are the names of one of the table's schemas: that of today, or of a snapshot.
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


def conformed(table: Table, rows: pa.Table) -> pa.Table:
    """Rows with just the columns that a table has now, by the names that it has for them; null where there is none.

    Raises `LakeError` for a column that the table has no more.
    """
    schema: pa.Schema = table.schema().as_arrow()
    names = known_as(table, rows.column_names, set(schema.names))
    if gone := [name for name, live in names.items() if live is None]:
        raise LakeError(
            f"{'.'.join(table.name())} has no column {', '.join(gone)} any more: take it out of the definition, or add "
            "it to the table again with `tailrace tables apply`"
        )
    own = {names[name]: rows[name] for name in rows.column_names}
    columns = [own.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in schema]
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )

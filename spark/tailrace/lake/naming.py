"""Columns by their numbers: whoever knows a column by a name that it had before finds it by what it is called now.

Iceberg numbers columns and keeps every schema that a table had, so a name that is gone still says which column it was.
A definition that runs while its log's columns are renamed goes on with the names it has; so does one that is handed
an old snapshot, with the names of then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyiceberg.table import Table


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

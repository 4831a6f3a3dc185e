"""Read a log's rows with the declared column names, even if columns were renamed (`lake.schema.column_names`)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import declared_types, match_names, schema_at
from tailrace.lake.schema.iceberg_types import type_name
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Relation, quoted


def log_relation(lake: Lake, log: Log, snapshot: int | None = None) -> Relation:
    """Return a relation of a log's rows, with the columns that the log declares.

    If `snapshot` is None, the log's current snapshot is read.
    """
    table, as_of = lake.table(log.name), "" if snapshot is None else f" VERSION AS OF {snapshot}"
    fields = schema_at(table, snapshot).fields
    items = _items(lake, log, {field.name: type_name(field.field_type) for field in fields})
    relation = Relation(f"{lake.spark_name(log.name)}{as_of}")
    return relation if items is None else Relation(f"(SELECT {', '.join(items)} FROM {relation})")


def as_declared(lake: Lake, log: Log, rows: DataFrame) -> DataFrame:
    """Convert a data frame of the log's table to the column names and types that the log declares."""
    items = _items(lake, log, {field.name: field.dataType.simpleString() for field in rows.schema.fields})
    return rows if items is None else rows.selectExpr(*items)


def _items(lake: Lake, log: Log, present: Mapping[str, str]) -> list[str] | None:
    """Return the SQL select-list items that convert the columns of `present` to the columns that the log declares.

    Returns None if the columns of `present` already have the declared names and types, and there are no others.
    """
    declared = declared_types(log)
    if present == declared:
        return None
    names = match_names(lake.table(log.name), declared, present)
    return [
        f"CAST({'NULL' if (live := names[name]) is None else quoted(live)} AS {type}) AS {quoted(name)}"
        for name, type in declared.items()
    ]


def as_live(lake: Lake, table: str, rows: DataFrame) -> DataFrame:
    """Rename the columns of a data frame to the current names of the table's columns.

    If the names are already current, the data frame itself is returned. If the table no longer has a column, the column
    keeps its name, so the error that the write raises contains this name.
    """
    loaded = lake.table(table)
    names = match_names(loaded, rows.columns, {field.name for field in loaded.schema().fields})
    if all(names[name] in (name, None) for name in rows.columns):
        return rows
    return rows.selectExpr(*(f"{quoted(name)} AS {quoted(names[name] or name)}" for name in rows.columns))

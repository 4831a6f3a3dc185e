"""A log's rows as a definition declares them, whatever its table calls them by now (`lake.schema.column_names`)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import known_as, schema_at
from tailrace.lake.schema.contracts import log_contract, spark_type
from tailrace.lake.schema.shapes import said
from tailrace.model.definition.log import Log
from tailrace.sql.terms import quoted


def logged(lake: Lake, log: Log, snapshot: int | None = None) -> str:
    """The log's rows as a table or a query in brackets; as of a snapshot, where one is given."""
    table, as_of = lake.table(log.name), "" if snapshot is None else f" VERSION AS OF {snapshot}"
    fields = schema_at(table, snapshot).fields
    items = _items(lake, log, {field.name: said(field.field_type) for field in fields})
    relation = f"{lake.spark_name(log.name)}{as_of}"
    return relation if items is None else f"(SELECT {', '.join(items)} FROM {relation})"


def as_declared(lake: Lake, log: Log, rows: DataFrame) -> DataFrame:
    """Give the rows of a frame of the log's table by the names that the log declares."""
    items = _items(lake, log, {field.name: field.dataType.simpleString() for field in rows.schema.fields})
    return rows if items is None else rows.selectExpr(*items)


def _items(lake: Lake, log: Log, present: Mapping[str, str]) -> list[str] | None:
    """What is selected of columns with these names and types; None where they are all as the log declares them."""
    declared = {name: spark_type(column.shape) for name, column in log_contract(log).columns.items()}
    if all(present.get(name) == type for name, type in declared.items()):
        return None
    names = known_as(lake.table(log.name), declared, present)
    return [
        f"CAST({'NULL' if (live := names[name]) is None else quoted(live)} AS {type}) AS {quoted(name)}"
        for name, type in declared.items()
    ]


def as_live(lake: Lake, table: str, rows: DataFrame) -> DataFrame:
    """Rows with the names that their columns have in a table now; as they are where that has them all.

    A column that the table has no more keeps its name, for the write to say so.
    """
    loaded = lake.table(table)
    names = known_as(loaded, rows.columns, {field.name for field in loaded.schema().fields})
    if all(names[name] in (name, None) for name in rows.columns):
        return rows
    return rows.selectExpr(*(f"{quoted(name)} AS {quoted(names[name] or name)}" for name in rows.columns))

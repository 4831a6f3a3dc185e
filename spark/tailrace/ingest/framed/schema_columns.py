"""Match the fields of a registered schema with a log's columns, by the columns' names and aliases.

If the schema has no field for a column, the column is null. A column that is missing in a line of JSON is null, too.
All mismatches are found together, before any record is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tailrace.ingest.framed.column_values import Kind, Misfits, as_declared, as_instants, can_hold
from tailrace.ingest.plain_columns import schema_of
from tailrace.model.logs.log import Log


class UnreadableSchemaError(Exception):
    """The error for a schema with which no record can be read; the message states the reason."""


@dataclass(frozen=True)
class SchemaColumns:
    """The schema fields from which a log's columns are read, and the kinds of these fields."""

    log: Log
    fields: Mapping[str, str]
    kinds: Mapping[str, Kind]

    @classmethod
    def of(cls, log: Log, there: Mapping[str, Kind | str]) -> SchemaColumns:
        """Match the log's columns with the fields `there`, a mapping from field name to kind.

        If no column can hold a field's values, the mapping has a description for users instead of the field's kind.

        In a log of changes, the event time is not read from a field of the row. If there are mismatches,
        `UnreadableSchemaError` is raised, with a list of all mismatches.
        """
        fields, kinds, wrong = dict[str, str](), dict[str, Kind](), list[str]()
        for column, type in log.columns.items():
            if log.signed and column == log.event_time:
                continue
            name = next((name for name in log.names_of(column) if name in there), None)
            if name is None:
                if column in (log.event_time, log.arrival_time):
                    wrong.append(f"no field {column!r}")
                continue
            kind = there[name]
            if type == "timestamp" and isinstance(kind, Kind):
                kind = as_instants(kind, log.unit_of(column))
            fields[column] = name
            if isinstance(kind, str) or not can_hold(kind, type):
                wrong.append(f"field {name!r} is {kind}, column {column!r} is declared as {type}")
            else:
                kinds[column] = kind
        if log.unknown == "reject":
            extra = [name for name in there if name not in fields.values()]
            declare = 'declare it in the log, or set unknown="ignore"'
            wrong += [f"unknown column {name!r}: {declare}" for name in extra]
        if wrong:
            raise UnreadableSchemaError("; ".join(wrong))
        return cls(log, fields, kinds)

    @property
    def raw(self) -> dict[str, pa.DataType]:
        """The Arrow type of the raw values of each field that is read, by the name of the field."""
        return {self.fields[column]: kind.raw for column, kind in self.kinds.items()}

    def columns(self, values: Mapping[str, pa.Array], rows: int) -> tuple[dict[str, pa.Array], Misfits]:
        """Convert raw values, by field name, to the log's columns; return the columns and the misfits."""
        schema, made, misfits = schema_of(self.log), dict[str, pa.Array](), Misfits()
        for column, type in self.log.columns.items():
            to = schema.field(column).type
            if column not in self.kinds:
                made[column] = pa.nulls(rows, to)
                continue
            made[column], wrong = as_declared(values[self.fields[column]], self.kinds[column], type, to, column)
            for place, reason in wrong.items():
                misfits[place] = f"{misfits[place]}; {reason}" if place in misfits else reason
        return made, misfits

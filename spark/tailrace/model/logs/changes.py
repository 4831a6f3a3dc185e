"""A log of the changes to a database table: if a row changes, the old row is retracted, and the new row is added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tailrace.model.base.errors import Fault
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.log import Log
from tailrace.model.logs.shapes import AS_TEXT


@dataclass(frozen=True, kw_only=True)
class Changes(Log):
    """The changes of a database table, in the form in which Debezium writes them to a topic.

    A record of the log is a row of the table. If a row is inserted, or is in the initial snapshot, its record is added.
    If a row is deleted, its record is retracted. If a row is updated, the record with the old values is retracted, and
    a record with the new values is added. So a pipeline over these records has the same results as a query over the
    table. `columns` are the columns of the table, and `event_time` names an additional column with the time of the
    change. The time at which a row is retracted differs from the time at which the row was added. So a pipeline over
    changes must use a single window for all records.

    `messages` is "json" (with or without the schema in each message) or "avro". `instants` is the unit of the times, if
    Debezium writes times as numbers. In this case, Debezium also writes a date as a number of days. If the times have
    different units, `instants` maps each column to its unit. If `instants` is left out for JSON, times must be written
    in ISO 8601. A place (`fields`), and the column `rest`, are inside the row of the table.

    >>> orders = Changes(
    ...     name="orders",
    ...     columns={"id": "bigint", "city": "string", "cents": "bigint", "changed": "timestamp"},
    ...     event_time="changed",
    ... )
    >>> orders.takes_back
    True
    """

    takes_back = True
    signed = True

    unknown: Literal["reject", "ignore"] = "ignore"

    def form_of(self, path: str, type: str) -> str | None:
        """Return the form of values. In JSON, Debezium may write a decimal as a text, and a date as days since 1970."""
        if self.messages == "json" and decimal_parts(type) is not None:
            return AS_TEXT
        if self.messages == "json" and isinstance(self.instants, str) and type in ("date", "time"):
            return "days" if type == "date" else self.instants
        return super().form_of(path, type)

    def _faults(self) -> Iterable[Fault]:
        yield from super()._faults()
        if self.messages == "protobuf":
            yield Fault("log.messages", self.messages, '"json" or "avro"', "have Debezium write one of them")
        if self.messages == "json" and self.unknown == "reject":
            yield Fault("log.unknown", self.unknown, '"ignore" for changes in JSON', "leave it out")
        if self.id_columns:
            expected = "no record id: a row comes again, to be taken back, and a change is known by its place"
            yield Fault("log.record_id", self.record_id, expected, "leave it out")
        if self.arrival_time is not None:
            yield Fault("log.arrival_time", self.arrival_time, "none, as the table has no such column", "leave it out")
        if self.event_time in self.required or self.event_time in self.aliases:
            yield Fault("log.event_time", self.event_time, "no column of the table", "it is the time of the change")

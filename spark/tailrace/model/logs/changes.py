"""The change records of a database table, as a log of the table's rows: a changed row is retracted and added again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tailrace.model.base.errors import Fault
from tailrace.model.logs.log import Log


@dataclass(frozen=True, kw_only=True)
class Changes(Log):
    """The changes of a database table, in the form in which Debezium writes them to a topic.

    A record is a row of the table. A row that is inserted, or found in the initial snapshot, is added. A deleted row is
    retracted. An updated row is retracted with its old values and added with its new values. So a pipeline over the
    records has the same results as a query over the table. `columns` are the columns of the table, and `event_time`
    names an additional column with the time of the change. A row is retracted at a different time than it was added, so
    a pipeline over changes must have a single window for all records.

    `messages` is "json" (with or without the schema in each message) or "avro". `instants` is the unit of the times
    that Debezium writes as numbers; dates are then numbers of days. If `instants` is omitted for JSON, times are ISO
    8601 texts.

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

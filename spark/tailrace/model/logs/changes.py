"""The change records of a database's table as a log of its rows: a changed row is taken back and added again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tailrace.model.base.errors import Fault
from tailrace.model.logs.log import Log


@dataclass(frozen=True, kw_only=True)
class Changes(Log):
    """The changes of a database's table, as Debezium writes them into a topic.

    A record is a row of the table. A row that is inserted, or found at first, is added; a deleted row is taken back; an
    updated row is taken back as it was, and added as it is. So a pipeline over the records has the results of a query
    over the table. `columns` are the table's columns, and `event_time` names one more, with the time of the change. A
    row is taken back at another time than it was added, so pipelines over changes have one window for all records.

    `messages` is "json" (with the schema in each message, or without) or "avro". `instants` is the unit of the times
    that Debezium writes as numbers, with days for dates; where it is left out of JSON, they are texts of ISO 8601.

    >>> orders = Changes(
    ...     name="orders",
    ...     columns={"id": "bigint", "city": "string", "cents": "bigint", "changed": "timestamp"},
    ...     event_time="changed",
    ... )
    >>> orders.takes_back
    True
    """

    unknown: Literal["reject", "ignore"] = "ignore"

    @property
    def takes_back(self) -> bool:
        return True

    @property
    def signed(self) -> bool:
        return True

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

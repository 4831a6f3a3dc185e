"""Read control tables, to which users add rows for a log: signals, and declarations that the input is complete.

A stream reads the new rows of a control table when it lands an epoch. The log's commit then names the last snapshot of
the control table that was read. So a replay and a catch-up see each row in the same epoch as the stream, whatever rows
users add later (rule T2).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar

from tailrace.lake.catalog.lake import Lake, head_of, lineage
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import complete_contract, signals_contract
from tailrace.model.base.time import instant, moment
from tailrace.model.logs.log import Log

NAMES = "signals"
"""The name of the property in which a log's commit lists the signals of the epoch."""


@dataclass(frozen=True)
class ControlTable:
    """A control table for a log: users add rows to the table, and the log's stream reads them.

    `seen` is the name of a property in the log's commits. The value of this property is the id of the last snapshot
    that a stream has read from the control table.
    """

    seen: ClassVar[str]

    lake: Lake
    log: Log

    @cached_property
    def contract(self) -> Contract:
        raise NotImplementedError

    @property
    def table(self) -> str:
        return self.contract.table

    def enter(self, **values: Any) -> None:
        """Add a row with these values and the current time to the table."""
        self.lake.ensure(self.contract)
        row = {"at": datetime.now(UTC), **values}
        while True:
            with suppress(MovedError):
                self.lake.enter(self.table, [row], {}, self.lake.head(self.table).snapshot)
                return

    def new_rows(self, properties: Mapping[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the rows that were added since the log's last commit, and a property for the log's next commit.

        `properties` are the properties of the log's last commit. The name of the returned property is `seen`, and its
        value is the id of the snapshot that was read now.
        """
        if not self.lake.has(self.table):
            return [], {}
        loaded = self.lake.table(self.table)
        head, seen = head_of(loaded).snapshot, properties.get(self.seen, "")
        if head is None or seen == str(head):
            return [], ({self.seen: seen} if seen else {})
        rows = loaded.scan().to_arrow().to_pylist()
        if any(str(snapshot.snapshot_id) == seen for snapshot in lineage(loaded, head)):
            before = loaded.scan(snapshot_id=int(seen)).to_arrow().to_pylist()
            rows = [row for row in rows if row not in before]
        return sorted(rows, key=lambda row: row["at"]), {self.seen: str(head)}


class Signals(ControlTable):
    """The table of signals of one log. A signal is a named event that users send and for which triggers can wait."""

    seen = "signals_seen"

    @cached_property
    def contract(self) -> Contract:
        return signals_contract(self.log)

    def send(self, name: str, note: str | None = None) -> None:
        """Add a signal to the table. The signal takes effect in the next epoch of the stream that lands the log."""
        self.enter(name=name, note=note)

    def new_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties for the log's next commit, with the signals since the last commit.

        `properties` are the properties of the log's last commit.
        """
        rows, seen = self.new_rows(properties)
        names = sorted({row["name"] for row in rows})
        return {**seen, **({NAMES: ",".join(names)} if names else {})}


class Completions(ControlTable):
    """The table in which users declare that a log's input is complete up to a time (MillWheel's injectors, 5.2)."""

    seen = "complete_seen"

    @cached_property
    def contract(self) -> Contract:
        return complete_contract(self.log)

    def say(self, until: int, partition: str | None = None, note: str | None = None) -> None:
        """Declare that all records before time `until` (in microseconds) have arrived, for a partition or the whole
        log.
        """
        self.enter(complete_until=moment(until), partition=partition, note=note)

    def new_times(self, properties: Mapping[str, str]) -> tuple[dict[str | None, int], dict[str, str]]:
        """Return the times up to which the input was newly declared complete, and the properties for the log's next
        commit.

        The times are in microseconds. They are in a dict whose keys are partitions, or None for the whole log.
        `properties` are the properties of the log's last commit, which record the declarations that a stream has
        already read.
        """
        rows, seen = self.new_rows(properties)
        found: dict[str | None, int] = {}
        for row in rows:
            until = instant(row["complete_until"])
            found[row["partition"]] = max(until, found.get(row["partition"], until))
        return found, seen


def names_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Read an epoch's signals from the properties of the epoch's commit.

    >>> names_of({"signals": "close,open"}), names_of({})
    (('close', 'open'), ())
    """
    return tuple(name for name in properties.get(NAMES, "").split(",") if name)

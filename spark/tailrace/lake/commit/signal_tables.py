"""Read control tables, into which users enter rows for a log: signals, and declarations of complete input.

A stream reads new rows when it lands an epoch, and the log's commit names the last snapshot that the stream read. So a
replay and a catch-up see each row in the same epoch, whatever rows are entered later (rule T2).
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
"""The property of a log's commit with the signals of its epoch."""


@dataclass(frozen=True)
class ControlTable:
    """A control table; the property `seen` of the log's commits names the table's last snapshot that was read."""

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
        """Enter a row with the current time."""
        self.lake.ensure(self.contract)
        row = {"at": datetime.now(UTC), **values}
        while True:
            with suppress(MovedError):
                self.lake.enter(self.table, [row], {}, self.lake.head(self.table).snapshot)
                return

    def new_rows(self, properties: Mapping[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the rows that are new since the log's last commit, whose properties are given.

        The second result has the property `seen` for the log's next commit.
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
    """The table of signals of one log."""

    seen = "signals_seen"

    @cached_property
    def contract(self) -> Contract:
        return signals_contract(self.log)

    def send(self, name: str, note: str | None = None) -> None:
        """Enter a signal. The signal takes effect with the next epoch of the stream that lands the log."""
        self.enter(name=name, note=note)

    def new_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties for the log's next commit: the signals since the commit with these `properties`."""
        rows, seen = self.new_rows(properties)
        names = sorted({row["name"] for row in rows})
        return {**seen, **({NAMES: ",".join(names)} if names else {})}


class Completions(ControlTable):
    """The table of declarations that a log's input is complete up to a time (MillWheel's injectors, 5.2)."""

    seen = "complete_seen"

    @cached_property
    def contract(self) -> Contract:
        return complete_contract(self.log)

    def say(self, until: int, partition: str | None = None, note: str | None = None) -> None:
        """Declare that a partition, or the whole log, now has all records before `until`, in microseconds."""
        self.enter(complete_until=moment(until), partition=partition, note=note)

    def new_times(self, properties: Mapping[str, str]) -> tuple[dict[str | None, int], dict[str, str]]:
        """Return the new times of complete input, in microseconds, and the properties for the log's next commit.

        The keys of the times are partitions, or None for the whole log. `properties` are the properties of the log's
        last commit, which record the declarations that were already read.
        """
        rows, seen = self.new_rows(properties)
        found: dict[str | None, int] = {}
        for row in rows:
            until = instant(row["complete_until"])
            found[row["partition"]] = max(until, found.get(row["partition"], until))
        return found, seen


def names_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Read the signals of an epoch from its commit's properties.

    >>> names_of({"signals": "close,open"}), names_of({})
    (('close', 'open'), ())
    """
    return tuple(name for name in properties.get(NAMES, "").split(",") if name)

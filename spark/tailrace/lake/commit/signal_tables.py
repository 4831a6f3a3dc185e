"""Messages to a log from outside: signals, which open the triggers that wait for them, and complete input.

Both come with an epoch, and the log's commit of that epoch says so (`tailrace.lake.commit.control_table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.control_table import ControlTable
from tailrace.lake.schema.owned_tables import complete_contract, signals_contract
from tailrace.model.base.time import instant, moment
from tailrace.model.logs.log import Log

NAMES = "signals"
"""The property of a log's commit with the signals that came with its epoch."""


@dataclass(frozen=True)
class Signals:
    """The table of signals of one log."""

    lake: Lake
    log: Log

    @cached_property
    def control(self) -> ControlTable:
        return ControlTable(self.lake, signals_contract(self.log), "signals_seen")

    @property
    def table(self) -> str:
        return self.control.contract.table

    def send(self, name: str, note: str | None = None) -> None:
        """Enter a signal. It comes with the next epoch of the stream that lands the log."""
        self.control.enter(name=name, note=note)

    def come(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of the log's next commit: the signals since the last commit, which has `properties`."""
        rows, seen = self.control.come(properties)
        names = sorted({row["name"] for row in rows})
        return {**seen, **({NAMES: ",".join(names)} if names else {})}


@dataclass(frozen=True)
class Completions:
    """The table that says until when a log's input is complete: the injector's word (MillWheel, 5.2)."""

    lake: Lake
    log: Log

    @cached_property
    def control(self) -> ControlTable:
        return ControlTable(self.lake, complete_contract(self.log), "complete_seen")

    @property
    def table(self) -> str:
        return self.control.contract.table

    def say(self, until: int, partition: str | None = None, note: str | None = None) -> None:
        """Say that a partition, or the whole log, has all its records before `until`, in microseconds."""
        self.control.enter(complete_until=moment(until), partition=partition, note=note)

    def come(self, properties: Mapping[str, str]) -> tuple[dict[str | None, int], dict[str, str]]:
        """Return the new instants of complete input, in microseconds, and the properties of the log's next commit.

        The instants are by partition, None for the whole log; the last commit's properties say what was seen before.
        """
        rows, seen = self.control.come(properties)
        found: dict[str | None, int] = {}
        for row in rows:
            until = instant(row["complete_until"])
            found[row["partition"]] = max(until, found.get(row["partition"], until))
        return found, seen


def names_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Read the signals that came with an epoch off its commit's properties.

    >>> names_of({"signals": "close,open"}), names_of({})
    (('close', 'open'), ())
    """
    return tuple(name for name in properties.get(NAMES, "").split(",") if name)

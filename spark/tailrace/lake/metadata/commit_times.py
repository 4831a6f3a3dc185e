"""Keep the times of a table's commits in order, whatever the clocks of the machines that commit say.

Iceberg of Java, and with it Spark and Trino, refuses a table whose log of snapshots goes back by more than a minute,
and a commit whose time is so much before the table's last. pyiceberg stamps commits by the machine's clock and looks at
neither. So the time of a commit is never before its parent's, and each time that pyiceberg writes passes through here.

A time says nothing about what an epoch holds (rule T2). Only the ages of snapshots, pins and files are told by times.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate, _apply_table_update
from pyiceberg.typedef import IcebergBaseModel

if TYPE_CHECKING:
    from pyiceberg.table import StagedTable, Table

EARLIEST = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""The time before which no clock is believed, in milliseconds: a machine whose clock has stopped begins at 1970."""

TOLERANCE = 60_000
"""The milliseconds by which Iceberg of Java lets times go back, since machines' clocks differ a little."""


def milliseconds() -> int:
    """Return the current time, in milliseconds."""
    return time.time_ns() // 1_000_000


def last_time(metadata: TableMetadata) -> int:
    """Return the latest time that a table's logs of commits have, in milliseconds."""
    logged: Iterable[Any] = (*metadata.snapshot_log[-1:], *metadata.metadata_log[-1:])
    return int(max(metadata.last_updated_ms, *(one.timestamp_ms for one in logged), 0))


def never_earlier(table: Table, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Give the snapshots that a commit adds times that are not before those of the table as it was loaded."""
    least = last_time(table.metadata)
    return tuple(
        one.model_copy(update={"snapshot": _at_least(one.snapshot, least)})
        if isinstance(one, AddSnapshotUpdate)
        else one
        for one in updates
    )


def in_order(catalog: Catalog) -> Catalog:
    """Have a catalog that writes the tables' metadata itself write times in order; a server writes its own."""
    if isinstance(catalog, MetastoreCatalog):
        stage = catalog._update_and_stage_table

        def staged(
            current: Table | None, name: Any, requirements: Any, updates: tuple[TableUpdate, ...]
        ) -> StagedTable:
            made = stage(current, name, requirements, updates)
            if any(isinstance(one, MendTimesUpdate) for one in updates):
                made.metadata = mended(made.metadata, milliseconds())
            elif current is not None:
                made.metadata = _after(current.metadata, made.metadata)
            return made

        vars(catalog)["_update_and_stage_table"] = staged
    return catalog


def _after(base: TableMetadata, made: TableMetadata) -> TableMetadata:
    """Give what a commit adds to a table's logs times that are not before the base's."""
    # A move of a branch back to a snapshot makes an entry that the log may have already, so entries are counted.
    least, known, log = last_time(base), Counter(map(_entry, base.snapshot_log)), list[SnapshotLogEntry]()
    for one in made.snapshot_log:
        if known[_entry(one)]:
            known[_entry(one)] -= 1
            log.append(one)
        else:
            log.append(_at_least(one, least))
    return made.model_copy(update={"snapshot_log": log, "last_updated_ms": max(made.last_updated_ms, least)})


def _entry(one: SnapshotLogEntry) -> tuple[int, int]:
    return one.snapshot_id, one.timestamp_ms


def _at_least(one: Any, least: int) -> Any:
    return one if one.timestamp_ms >= least else one.model_copy(update={"timestamp_ms": least})


class MendTimesUpdate(IcebergBaseModel):
    """A change of a table's metadata that puts the times of all its commits in order, made by `in_order` alone."""

    action: Literal["tailrace-mend-times"] = "tailrace-mend-times"


def _noted(update: MendTimesUpdate, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    context.add_update(update)
    return base_metadata


# The function's own type knows pyiceberg's changes alone.
cast("Any", _apply_table_update).register(MendTimesUpdate, _noted)


def mended(metadata: TableMetadata, now: int) -> TableMetadata:
    """Put the times of a table's commits in order, none of them after `now`, in milliseconds.

    A time that is before an earlier commit's is raised to that commit's, and only those of the future are lowered, to
    `now`: so nothing becomes old enough to expire.
    """
    snapshots = sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)
    times = dict(zip((one.snapshot_id for one in snapshots), running(snapshots, now), strict=True))
    # A snapshot became current at its own time, or later by a move of the branch.
    entries = [
        one.model_copy(update={"timestamp_ms": max(min(one.timestamp_ms, now), times.get(one.snapshot_id, 0))})
        for one in metadata.snapshot_log
    ]
    return metadata.model_copy(
        update={
            "snapshots": [_at(one, times[one.snapshot_id]) for one in metadata.snapshots],
            "snapshot_log": _raised(entries, now),
            "metadata_log": _raised(metadata.metadata_log, now),
            "last_updated_ms": now,
        }
    )


def _raised(entries: Sequence[Any], now: int) -> list[Any]:
    return [_at(one, at) for one, at in zip(entries, running(entries, now), strict=True)]


def _at(one: Any, at: int) -> Any:
    return one if one.timestamp_ms == at else one.model_copy(update={"timestamp_ms": at})


def running(entries: Iterable[Snapshot | SnapshotLogEntry | MetadataLogEntry], now: int | None = None) -> Iterator[int]:
    """Yield the time of each commit in order: none before the one before it, and none after `now` if that is given."""
    times = (one.timestamp_ms if now is None else min(one.timestamp_ms, now) for one in entries)
    return itertools.accumulate(times, max)


def out_of_order(metadata: TableMetadata) -> bool:
    """Tell whether the times of a table's commits go back by more than Iceberg of Java takes."""
    logs: tuple[Sequence[Any], ...] = (metadata.snapshot_log, metadata.metadata_log)
    for log in logs:
        times = [*(one.timestamp_ms for one in log), metadata.last_updated_ms]
        if any(later < earlier - TOLERANCE for earlier, later in itertools.pairwise(times)):
            return True
    return False


def ahead(metadata: TableMetadata, now: int) -> int:
    """Return by how many milliseconds a table's last commit is ahead of `now`; 0 where that is within the tolerance."""
    over = last_time(metadata) - now
    return over if over > TOLERANCE else 0


_REFUSAL = re.compile(r"Expected sorted (?:snapshot|previous metadata) log entries|Invalid update timestamp")


def refusal(message: str) -> str | None:
    """Say what to do where Spark refused a table or a commit for the times of commits; None for other errors.

    >>> refusal("java.lang.IllegalArgumentException: [BUG] Expected sorted snapshot log entries.")[:63]
    'Spark refuses a table whose commits are dated out of order or i'
    """
    if _REFUSAL.search(message) is None:
        return None
    return (
        "Spark refuses a table whose commits are dated out of order or in the future, as the clock of a machine was or "
        "is wrong: put this machine's clock right if it is behind; `tailrace doctor` names the tables, "
        "and `tailrace maintain DEFINITION` puts the times in order"
    )

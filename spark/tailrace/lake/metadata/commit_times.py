"""Keep the times of a table's commits in order, even if the clocks of the committing machines are wrong.

Iceberg's Java library rejects a table if the times in its snapshot log go back by more than a minute. The library also
rejects a commit that is more than a minute earlier than the table's last commit. Spark and Trino use this library.
pyiceberg takes commit times from the machine's clock and does not check whether the times are in order. This module
therefore adjusts all commit times in metadata that pyiceberg writes: no commit is earlier than its parent.

The content of an epoch never depends on these times (rule T2). Only the ages of snapshots, pins and files depend on
these times.
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
"""The earliest plausible time of a commit, in milliseconds.

A clock that has lost its time starts at 1970, which is earlier.
"""

TOLERANCE = 60_000
"""The maximum time in milliseconds by which Iceberg's Java library lets commit times go back.

The library allows this because the clocks of machines differ a little.
"""


def now_milliseconds() -> int:
    """Return the current time, in milliseconds."""
    return time.time_ns() // 1_000_000


def last_time(metadata: TableMetadata) -> int:
    """Return the latest time, in milliseconds, that a table's metadata records for a commit."""
    logged: Iterable[Any] = (*metadata.snapshot_log[-1:], *metadata.metadata_log[-1:])
    return int(max(metadata.last_updated_ms, *(one.timestamp_ms for one in logged), 0))


def raise_times(table: Table, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Raise the times of a commit's new snapshots to at least the latest time in the loaded table's metadata."""
    least = last_time(table.metadata)
    return tuple(
        one.model_copy(update={"snapshot": _at_least(one.snapshot, least)})
        if isinstance(one, AddSnapshotUpdate)
        else one
        for one in updates
    )


def order_commit_times(catalog: Catalog) -> Catalog:
    """Make a catalog keep commit times in order, if the catalog writes metadata files itself.

    A catalog whose server writes the metadata files is not changed.
    """
    if isinstance(catalog, MetastoreCatalog):
        stage = catalog._update_and_stage_table

        def staged(
            current: Table | None, name: Any, requirements: Any, updates: tuple[TableUpdate, ...]
        ) -> StagedTable:
            made = stage(current, name, requirements, updates)
            if any(isinstance(one, MendTimesUpdate) for one in updates):
                made.metadata = put_in_order(made.metadata, now_milliseconds())
            elif current is not None:
                made.metadata = _after(current.metadata, made.metadata)
            return made

        vars(catalog)["_update_and_stage_table"] = staged
    return catalog


def _after(base: TableMetadata, made: TableMetadata) -> TableMetadata:
    """Raise the times of the snapshot log's new entries to at least the latest time in the earlier metadata, `base`."""
    # Moving a branch back to a snapshot adds an entry that may equal an existing entry, so equal entries are counted.
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
    """A metadata change that puts the times of all existing commits in order (see `order_commit_times`)."""

    action: Literal["tailrace-mend-times"] = "tailrace-mend-times"


def _noted(update: MendTimesUpdate, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    context.add_update(update)
    return base_metadata


# The cast is needed because `_apply_table_update` is declared to accept only pyiceberg's own metadata changes.
cast("Any", _apply_table_update).register(MendTimesUpdate, _noted)


def put_in_order(metadata: TableMetadata, now: int) -> TableMetadata:
    """Change the times of a table's commits so that the times are in order and not after `now` (in milliseconds).

    A time that is earlier than the previous commit's time is raised to the previous commit's time. Only times in the
    future are lowered, to `now`. So this function never makes a snapshot old enough to expire.
    """
    snapshots = sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)
    times = dict(zip((one.snapshot_id for one in snapshots), running_times(snapshots, now), strict=True))
    # The time of a log entry must not be earlier than the time of its snapshot. The entry's time is later if a branch
    # was moved back to the snapshot.
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
    return [_at(one, at) for one, at in zip(entries, running_times(entries, now), strict=True)]


def _at(one: Any, at: int) -> Any:
    return one if one.timestamp_ms == at else one.model_copy(update={"timestamp_ms": at})


def running_times(
    entries: Iterable[Snapshot | SnapshotLogEntry | MetadataLogEntry], now: int | None = None
) -> Iterator[int]:
    """Yield the time of each commit; a time that is earlier than the previous commit's time is raised to that time.

    If `now` is given, times after `now` are lowered to `now`.
    """
    times = (one.timestamp_ms if now is None else min(one.timestamp_ms, now) for one in entries)
    return itertools.accumulate(times, max)


def out_of_order(metadata: TableMetadata) -> bool:
    """Return True if the times of a table's commits go back by more than Iceberg's Java library allows."""
    logs: tuple[Sequence[Any], ...] = (metadata.snapshot_log, metadata.metadata_log)
    for log in logs:
        times = [*(one.timestamp_ms for one in log), metadata.last_updated_ms]
        if any(later < earlier - TOLERANCE for earlier, later in itertools.pairwise(times)):
            return True
    return False


def milliseconds_ahead(metadata: TableMetadata, now: int) -> int:
    """Return the number of milliseconds by which a table's last commit is later than `now`.

    Returns 0 if the difference is at most `TOLERANCE`.
    """
    over = last_time(metadata) - now
    return over if over > TOLERANCE else 0


_REFUSAL = re.compile(r"Expected sorted (?:snapshot|previous metadata) log entries|Invalid update timestamp")


def explain_refusal(message: str) -> str | None:
    """Return an explanation of Spark's error message if Spark rejected a table or a commit because of commit times.

    Returns None for other messages.

    >>> explain_refusal("java.lang.IllegalArgumentException: [BUG] Expected sorted snapshot log entries.")[:63]
    'Spark refuses a table whose commits are dated out of order or i'
    """
    if _REFUSAL.search(message) is None:
        return None
    return (
        "Spark refuses a table whose commits are dated out of order or in the future, as the clock of a machine was or "
        "is wrong: put this machine's clock right if it is behind; `tailrace doctor` names the tables, "
        "and `tailrace maintain DEFINITION` puts the times in order"
    )

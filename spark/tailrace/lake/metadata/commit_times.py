"""Keep the times of a table's commits in order, even if the clocks of the committing machines are wrong.

Iceberg's Java library, and so Spark and Trino, refuses a table whose log of snapshots goes back by more than a minute,
and a commit that is earlier than the table's last one by as much. pyiceberg takes the machine's clock and checks
neither. So each time that pyiceberg writes passes through here, and a commit is never earlier than its parent.

The content of an epoch never depends on these times (rule T2); only the ages of snapshots, pins and files do.
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
"""The earliest credible time, in milliseconds: a machine whose clock has stopped begins at 1970."""

TOLERANCE = 60_000
"""The milliseconds by which Iceberg's Java library lets times go back, because machines' clocks differ a little."""


def now_milliseconds() -> int:
    """Return the current time, in milliseconds."""
    return time.time_ns() // 1_000_000


def last_time(metadata: TableMetadata) -> int:
    """Return the latest time in a table's logs of commits, in milliseconds."""
    logged: Iterable[Any] = (*metadata.snapshot_log[-1:], *metadata.metadata_log[-1:])
    return int(max(metadata.last_updated_ms, *(one.timestamp_ms for one in logged), 0))


def raise_times(table: Table, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Raise the times of a commit's new snapshots to at least the last time of the loaded table."""
    least = last_time(table.metadata)
    return tuple(
        one.model_copy(update={"snapshot": _at_least(one.snapshot, least)})
        if isinstance(one, AddSnapshotUpdate)
        else one
        for one in updates
    )


def order_commit_times(catalog: Catalog) -> Catalog:
    """Make a catalog that writes metadata itself write times in order; a server's catalog stays as it is."""
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
    """Raise the times of a commit's new log entries to at least the last time of the base."""
    # Moving a branch back to a snapshot adds an entry that the log may have already, so entries are counted.
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
    """A change of metadata that puts the times of all commits in order (see `order_commit_times`)."""

    action: Literal["tailrace-mend-times"] = "tailrace-mend-times"


def _noted(update: MendTimesUpdate, base_metadata: TableMetadata, context: Any) -> TableMetadata:
    context.add_update(update)
    return base_metadata


# The function's type allows pyiceberg's own changes only.
cast("Any", _apply_table_update).register(MendTimesUpdate, _noted)


def put_in_order(metadata: TableMetadata, now: int) -> TableMetadata:
    """Put the times of a table's commits in order, with none after `now` (in milliseconds).

    A time before an earlier commit's time is raised to it, and only future times are lowered, to `now`. So no snapshot
    becomes old enough to expire.
    """
    snapshots = sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)
    times = dict(zip((one.snapshot_id for one in snapshots), running_times(snapshots, now), strict=True))
    # A snapshot became current at its own time, or later if the branch was moved to it.
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
    """Yield each commit's time, raised to at least the previous time, and lowered to `now` if that is given."""
    times = (one.timestamp_ms if now is None else min(one.timestamp_ms, now) for one in entries)
    return itertools.accumulate(times, max)


def out_of_order(metadata: TableMetadata) -> bool:
    """Tell whether the times of a table's commits go back by more than Iceberg's Java library allows."""
    logs: tuple[Sequence[Any], ...] = (metadata.snapshot_log, metadata.metadata_log)
    for log in logs:
        times = [*(one.timestamp_ms for one in log), metadata.last_updated_ms]
        if any(later < earlier - TOLERANCE for earlier, later in itertools.pairwise(times)):
            return True
    return False


def milliseconds_ahead(metadata: TableMetadata, now: int) -> int:
    """Return how many milliseconds a table's last commit is ahead of `now`; 0 within the tolerance."""
    over = last_time(metadata) - now
    return over if over > TOLERANCE else 0


_REFUSAL = re.compile(r"Expected sorted (?:snapshot|previous metadata) log entries|Invalid update timestamp")


def explain_refusal(message: str) -> str | None:
    """Explain an error by which Spark refuses a table or a commit for its times; None for other errors.

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

"""Find the snapshots of a table that may be removed (rule X3).

On the main branch, the following snapshots are kept: Tailrace's last commit with properties and all later commits; the
snapshots that answers still have to follow, or that a log still has to read from a control table; and the snapshots
that were current within the configured retention time, so that their readers can finish. A snapshot with a branch or a
tag is also kept: it belongs to a writer, to a running backfill, or to a reader's pin. The kept part of main is always
its latest part. So the removed snapshots are the oldest snapshots of main, and the snapshots of writers that were
overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tailrace.lake.catalog.lake import MAIN, Lake, lineage, properties_of, ref_of
from tailrace.lake.metadata.commit_times import running_times


@dataclass(frozen=True)
class Removal:
    """The snapshots to remove: the `cut` part of main, which is archived first, and the ids of all `removed` snapshots.

    A snapshot of the `cut` part that has a branch or a tag is not removed.
    """

    cut: tuple[Snapshot, ...]
    removed: tuple[int, ...]


def find_expired(table: Table, now: int, retention: timedelta, needed: Iterable[int] = ()) -> Removal:
    """Find the snapshots of a loaded table that have been superseded for longer than the retention time.

    `now` is in milliseconds. On main, the snapshots in `needed` and all later snapshots are kept.
    """
    before = now - retention // timedelta(milliseconds=1)
    main = lineage(table, ref_of(table, MAIN))
    # A snapshot remains current until the next snapshot is committed, however old it becomes. A commit never counts as
    # older than its parent, even if a wrong clock dated the commit.
    aged = sum(1 for at in [*running_times(main[::-1])][1:] if at >= before)
    return _going(table, main, aged, needed, before)


def find_surplus(table: Table, most: int, needed: Iterable[int] = ()) -> Removal:
    """Find main's snapshots beyond the latest `most` snapshots, and the snapshots of writers that were overtaken."""
    main = lineage(table, ref_of(table, MAIN))
    return _going(table, main, most - 1, needed, None)


def _going(table: Table, main: Sequence[Snapshot], last: int, needed: Iterable[int], before: int | None) -> Removal:
    """Find the snapshots to remove if main keeps its snapshots up to index `last` (index 0 is the latest snapshot).

    Snapshots outside main are removed if they are older than `before`, in milliseconds, or always if `before` is None.
    """
    spoken = next((place for place, snapshot in enumerate(main) if properties_of(snapshot)), 0)
    wanted = {*needed}
    floor = max((place for place, snapshot in enumerate(main) if snapshot.snapshot_id in wanted), default=0)
    keep = max(last, spoken, floor) + 1
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    own = {snapshot.snapshot_id for snapshot in main}
    # The snapshots that writers have staged on their branches, back to the point where the branches left main.
    staged = {
        snapshot.snapshot_id
        for name, ref in table.metadata.refs.items()
        if name != MAIN and ref.snapshot_ref_type == "branch"
        for snapshot in lineage(table, ref.snapshot_id)
        if snapshot.snapshot_id not in own
    }
    apart = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in own | staged | named]
    apart = [snapshot for snapshot in apart if before is None or snapshot.timestamp_ms < before]
    cut = tuple(main[keep:])
    return Removal(cut, tuple(snapshot.snapshot_id for snapshot in [*cut, *apart] if snapshot.snapshot_id not in named))


def snapshots_needed_by(lake: Lake, reader: str, named: str) -> list[int]:
    """Return the last snapshot that a reader has read, as recorded in property `named` of the reader's last commit.

    The list is empty if the reader does not exist, or has not read a snapshot yet.
    """
    if not lake.has(reader):
        return []
    found = lake.head(reader).properties.get(named, "")
    return [int(found)] if found else []

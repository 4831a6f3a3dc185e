"""Find the snapshots of a table that may be removed (rule X3).

The main branch keeps Tailrace's last commit with properties, and all later commits. The main branch also keeps every
snapshot that a reader still needs: answers read panes from snapshots of a ledger, and a log reads rows from snapshots
of a control table. Snapshots that were current within the configured retention time are kept, so that readers of these
snapshots can finish. A snapshot with a branch or a tag is kept, too, because it belongs to a writer, to a running
backfill, or to a reader's pin. If the main branch keeps a snapshot, it also keeps all later snapshots. So the removed
snapshots are the oldest snapshots of main, and the unpublished snapshots of writers that have given up.
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
    """The snapshots to remove: `cut` has the oldest snapshots of main, and `removed` has the ids of all removed
    snapshots.

    The snapshots in `cut` are archived before they are removed. A snapshot in `cut` that has a branch or a tag is not
    removed.
    """

    cut: tuple[Snapshot, ...]
    removed: tuple[int, ...]


def find_expired(table: Table, now: int, retention: timedelta, needed: Iterable[int] = ()) -> Removal:
    """Find the expired snapshots of a loaded table.

    A snapshot on main is expired if a later snapshot replaced it longer ago than the retention time. An unpublished
    snapshot without a branch or tag is expired if it is older than the retention time. `now` is in milliseconds. On
    main, the snapshots in `needed` and all later snapshots are kept.
    """
    before = now - retention // timedelta(milliseconds=1)
    main = lineage(table, ref_of(table, MAIN))
    # A snapshot remains current until the next snapshot is committed, even if the next commit is made much later. A
    # commit never counts as older than its parent, even if a wrong clock gave it an earlier time.
    aged = sum(1 for at in [*running_times(main[::-1])][1:] if at >= before)
    return _going(table, main, aged, needed, before)


def find_surplus(table: Table, most: int, needed: Iterable[int] = ()) -> Removal:
    """Find the snapshots to remove: main's older snapshots, and unpublished snapshots without a branch.

    The latest `most` snapshots of main are kept. On main, the snapshots in `needed` and all later snapshots are also
    kept.
    """
    main = lineage(table, ref_of(table, MAIN))
    return _going(table, main, most - 1, needed, None)


def _going(table: Table, main: Sequence[Snapshot], last: int, needed: Iterable[int], before: int | None) -> Removal:
    """Find the snapshots to remove. `main` lists the snapshots of main, the latest first.

    At least the snapshots at the indexes 0 to `last` of this list are kept. A snapshot that is not on main is removed
    if it is older than `before` (in milliseconds), and if no branch or tag keeps it. If `before` is None, such a
    snapshot is removed whatever its age is.
    """
    spoken = next((place for place, snapshot in enumerate(main) if properties_of(snapshot)), 0)
    wanted = {*needed}
    floor = max((place for place, snapshot in enumerate(main) if snapshot.snapshot_id in wanted), default=0)
    keep = max(last, spoken, floor) + 1
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    own = {snapshot.snapshot_id for snapshot in main}
    # Collect the snapshots that writers have staged on their branches, except the snapshots that are also on main.
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
    """Return a list with the id of the last snapshot that the table `reader` has read.

    The id is the value of the property `named` in the reader's last commit. The list is empty if the reader does not
    exist, or has not read a snapshot yet.
    """
    if not lake.has(reader):
        return []
    found = lake.head(reader).properties.get(named, "")
    return [int(found)] if found else []

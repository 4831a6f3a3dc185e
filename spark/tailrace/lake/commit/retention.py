"""Find the snapshots of a table that may be removed (rule X3).

On the main branch, these snapshots stay: our last commit with properties and all later ones; the snapshots that answers
still have to follow, or that a log still has to read from a control table; and the snapshots that were current within
the configured time, so that their readers can finish. A snapshot with a branch or a tag also stays: a writer's, a
running backfill's, or a reader's pin. The part of main that stays is always its latest part. So the removed snapshots
are the oldest of main, and the snapshots of overtaken writers.
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

    A cut snapshot with a branch or a tag is not removed.
    """

    cut: tuple[Snapshot, ...]
    removed: tuple[int, ...]


def find_expired(table: Table, now: int, retention: timedelta, needed: Iterable[int] = ()) -> Removal:
    """Find the snapshots of a loaded table that have not been current for longer than the retention time.

    `now` is in milliseconds. On main, the snapshots in `needed` and all later ones stay.
    """
    before = now - retention // timedelta(milliseconds=1)
    main = lineage(table, ref_of(table, MAIN))
    # A snapshot was current until the next one came, however old it is. A commit counts as no older than its parent,
    # even if a wrong clock dated it.
    aged = sum(1 for at in [*running_times(main[::-1])][1:] if at >= before)
    return _going(table, main, aged, needed, before)


def find_surplus(table: Table, most: int, needed: Iterable[int] = ()) -> Removal:
    """Find the snapshots of a loaded table beyond the latest `most` of main, and the snapshots of overtaken writers."""
    main = lineage(table, ref_of(table, MAIN))
    return _going(table, main, most - 1, needed, None)


def _going(table: Table, main: Sequence[Snapshot], last: int, needed: Iterable[int], before: int | None) -> Removal:
    """Find the snapshots to remove if main keeps its snapshots up to place `last` (the latest is at place 0).

    Of the snapshots outside main, remove all that are older than `before`, in milliseconds; all of them if it is None.
    """
    spoken = next((place for place, snapshot in enumerate(main) if properties_of(snapshot)), 0)
    wanted = {*needed}
    floor = max((place for place, snapshot in enumerate(main) if snapshot.snapshot_id in wanted), default=0)
    keep = max(last, spoken, floor) + 1
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    own = {snapshot.snapshot_id for snapshot in main}
    # The snapshots that writers have staged on their branches, down to where the branches left main.
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
    """Return the last snapshot that a reader has read, from property `named` of its last commit; empty if none."""
    if not lake.has(reader):
        return []
    found = lake.head(reader).properties.get(named, "")
    return [int(found)] if found else []

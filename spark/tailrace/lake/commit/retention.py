"""Find the snapshots of a table that may go, and keep the others (rule X3).

Kept of the main branch are the last commit with properties of ours and all after it; the snapshots that the answers
have yet to follow, or that a log has yet to read of a control table; and the snapshots that were current within the
time that the settings say, so that readers of one of them can finish. A snapshot that a branch or a tag names is kept,
too: a writer's, a running backfill's, or one that a reader has pinned. The kept part of main is always its newest, so
the snapshots that go are its oldest, and those that overtaken writers left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tailrace.lake.catalog.lake import MAIN, lineage, properties_of, ref_of
from tailrace.lake.metadata.commit_times import running


@dataclass(frozen=True)
class Going:
    """The snapshots that go: the part of main that is `cut` off, to be archived, and the ids of all `removed` ones.

    A snapshot that is cut off but has a branch or a tag is not removed: it stays for those who know the name.
    """

    cut: tuple[Snapshot, ...]
    removed: tuple[int, ...]


def expired(table: Table, now: int, retention: timedelta, needed: Iterable[int] = ()) -> Going:
    """Find the snapshots of a loaded table that have not been current for the time that they are kept.

    `now` is in milliseconds. Of main's lineage, the snapshots in `needed` and all that came after them are kept.
    """
    before = now - retention // timedelta(milliseconds=1)
    main = lineage(table, ref_of(table, MAIN))
    # A snapshot was current until the next one came, however old it is itself; and no commit is older than its parent,
    # whatever the clock said by which it is dated.
    aged = sum(1 for at in [*running(main[::-1])][1:] if at >= before)
    return _going(table, main, aged, needed, before)


def surplus(table: Table, most: int, needed: Iterable[int] = ()) -> Going:
    """Find the snapshots of a loaded table beyond the latest `most` of main, and those that overtaken writers left."""
    main = lineage(table, ref_of(table, MAIN))
    return _going(table, main, most - 1, needed, None)


def _going(table: Table, main: Sequence[Snapshot], last: int, needed: Iterable[int], before: int | None) -> Going:
    """Find the snapshots that go where main is kept down to place `last`; the latest is at place 0.

    Of the snapshots that are not on main, those older than `before` go, in milliseconds; all where that is None.
    """
    spoken = next((place for place, snapshot in enumerate(main) if properties_of(snapshot)), 0)
    wanted = {*needed}
    floor = max((place for place, snapshot in enumerate(main) if snapshot.snapshot_id in wanted), default=0)
    keep = max(last, spoken, floor) + 1
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    own = {snapshot.snapshot_id for snapshot in main}
    # The snapshots that a writer has staged on its branch, down to where the branch left main.
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
    return Going(cut, tuple(snapshot.snapshot_id for snapshot in [*cut, *apart] if snapshot.snapshot_id not in named))

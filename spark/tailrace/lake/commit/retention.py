"""Which snapshots of a table are kept, and which may go (rule X3).

Kept are, of the main branch, the last commit that says something of itself and all after it; what table `p` has yet to
follow, and what a log has yet to read of a control table; the snapshots that were current within the time that the
settings say, so that whoever began to read one of them can end. A snapshot that a branch or a tag names is kept, too: a
writer's, a running backfill's, or one that a reader has pinned. What has been kept is always the newest part of main,
so the snapshots that go are its oldest, and those that writers left who were overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tailrace.lake.catalog.lake import MAIN, lineage, properties_of, ref_of


@dataclass(frozen=True)
class Going:
    """What goes: the part of main that is `cut` off, for it to be archived, and of all snapshots those `removed`.

    One that is cut off and has a name stays for those who know that.
    """

    cut: tuple[Snapshot, ...]
    removed: tuple[int, ...]


def expired(table: Table, now: int, kept: timedelta, needed: Iterable[int] = ()) -> Going:
    """The snapshots of a loaded table that have not been current for the time that they are kept.

    `now` is in milliseconds. Of main's lineage all of the snapshots in `needed` are kept, and what came after them.
    """
    before = now - kept // timedelta(milliseconds=1)
    main = lineage(table, ref_of(table, MAIN))
    # A snapshot was current until the next one came, however old it is itself.
    aged = sum(1 for one in main[:-1] if one.timestamp_ms >= before)
    return _going(table, main, aged, needed, before)


def surplus(table: Table, most: int, needed: Iterable[int] = ()) -> Going:
    """The snapshots of a loaded table beyond the latest `most` of main, and those that overtaken writers left."""
    main = lineage(table, ref_of(table, MAIN))
    return _going(table, main, most - 1, needed, None)


def _going(table: Table, main: Sequence[Snapshot], last: int, needed: Iterable[int], before: int | None) -> Going:
    """What goes where main is kept up to its snapshot at place `last`, of those that are not on it what is older."""
    spoken = next((place for place, one in enumerate(main) if properties_of(one)), 0)
    wanted = {*needed}
    floor = max((place for place, one in enumerate(main) if one.snapshot_id in wanted), default=0)
    keep = max(last, spoken, floor) + 1
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    own = {one.snapshot_id for one in main}
    # What a writer has staged on its branch, down to where it left main.
    staged = {
        one.snapshot_id
        for name, ref in table.metadata.refs.items()
        if name != MAIN and ref.snapshot_ref_type == "branch"
        for one in lineage(table, ref.snapshot_id)
        if one.snapshot_id not in own
    }
    apart = [one for one in table.metadata.snapshots if one.snapshot_id not in own | staged | named]
    apart = [one for one in apart if before is None or one.timestamp_ms < before]
    cut = tuple(main[keep:])
    return Going(cut, tuple(one.snapshot_id for one in [*cut, *apart] if one.snapshot_id not in named))

"""Find leftovers of crashed writers and readers: branches, pins, and separate tables.

The separate tables are for replays and for resting windows (open windows that a fold keeps in files). The name of a
stream's branch contains the token of the stream's lease. A stream with an older token cannot publish anything (rule
X1), so this stream's branch is a leftover. The branch of a restore with an older token is also a leftover. A run's
branch is a leftover when the run has ended. Other branches, pins, unfinished runs and tables become leftovers when they
reach a certain age. A branch, pin or table whose recorded time is before `EARLIEST` is kept: the clock was wrong, so
the age is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import MAIN, Head, Lake, head_of, lineage, ref_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.lease import LENDER, TOKEN
from tailrace.lake.commit.pins import pin_time
from tailrace.lake.metadata.commit_times import EARLIEST
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.definition.definition import Definition

_STREAM = re.compile(r"stream_(\d+)")
_RUN = re.compile(r"(?:follow_)?backfill_([0-9a-f]{12})(?:_\d+)?")
_RESTORE = re.compile(r"backfill_restore_\d+_[0-9a-f]{8}_(\d+)")
_ALONE = re.compile(r"(?:follow|claim)_\w+")
"""A pattern for the branches of writers without a lease.

An old branch of this kind can be removed, because its writer creates it again if necessary.
"""


def leftover_names(table: Table, runs: Mapping[str, Run], now: int, after: timedelta) -> list[str]:
    """List the branches and tags of a loaded table that are no longer used.

    `runs` maps the ids of the definition's runs to the runs, and `now` is in milliseconds. Three kinds of names count
    as unused only when they reach the age `after`: pins, branches of unfinished runs, and branches whose snapshot is no
    longer main's latest.
    """
    before = now - after // timedelta(milliseconds=1)
    head = head_of(table)
    return sorted(name for name in table.metadata.refs if _left(table, name, head, runs, before))


def _left(table: Table, name: str, head: Head, runs: Mapping[str, Run], before: int) -> bool:
    made = pin_time(name)
    if made is not None:
        return EARLIEST <= made < before
    if found := _STREAM.fullmatch(name):
        # A stream that has lent its lease to a run continues when the run returns the lease, so the lender's branch is
        # kept.
        return TOKEN in head.properties and int(found[1]) < head.number(LENDER, head.number(TOKEN))
    if found := _RESTORE.fullmatch(name):
        return int(found[1]) < head.number(TOKEN)
    if (found := _RUN.fullmatch(name)) and (run := runs.get(found[1])) is not None:
        ended = run.status != "started"
        return ended or (run.at is not None and EARLIEST <= run.at.timestamp() * 1000 < before)
    return bool(_ALONE.fullmatch(name)) and EARLIEST <= _superseded(table, name) < before


def _superseded(table: Table, branch: str) -> float:
    """Return the time, in milliseconds, since which a branch's snapshot is no longer the latest on main.

    Returns infinity if the branch's snapshot is still the latest snapshot of main.
    """
    stands, later = ref_of(table, branch), None
    for one in lineage(table, ref_of(table, MAIN)):
        if one.snapshot_id == stands:
            return float("inf") if later is None else later
        later = one.timestamp_ms
    # The snapshot is not on main: either a follower staged the snapshot and crashed, or the snapshot is older than all
    # snapshots of main that are kept.
    at = table.metadata.snapshot_by_id(stands) if stands is not None else None
    return at.timestamp_ms if at else float("inf")


def leftover_tables(lake: Lake, definition: Definition, tables: Iterable[str], now: int, after: timedelta) -> list[str]:
    """Return those of the given tables that crashed replays or crashed streams of a definition left behind.

    A table is also returned if it belongs to a running stream but has not changed for a long time; such a table stores
    resting windows (open windows that are kept in files). If it is removed, the stream restores these windows from the
    ledger.
    """
    before = now - after // timedelta(milliseconds=1)
    name = re.compile(rf"{definition.name}__(?:replay|{RESTING}|replay_{RESTING})_[0-9a-f]{{8}}")
    return [
        one for one in tables if name.fullmatch(one) and EARLIEST <= lake.table(one).metadata.last_updated_ms < before
    ]

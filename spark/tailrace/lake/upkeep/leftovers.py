"""Leftovers of writers and readers that died, which nobody uses any more: branches, pins, tables of replays and of
resting windows.

A stream's branch of a log or ledger has the token of its lease in its name, and with an older token nothing can be
published (rule X1); so has a restore's. A run's branch goes once the run has ended. Of the rest only age can tell: a
branch that main left behind so long ago, a pin so old, a run that has not ended for so long. Nothing is told by a time
of before `EARLIEST`, since the clock that gave it was wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import MAIN, Head, Lake, head_of, lineage, ref_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.lease import LENDER, TOKEN
from tailrace.lake.commit.pins import pinned_at
from tailrace.lake.metadata.commit_times import EARLIEST
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.definition.definition import Definition

_STREAM = re.compile(r"stream_(\d+)")
_RUN = re.compile(r"(?:follow_)?backfill_([0-9a-f]{12})(?:_\d+)?")
_RESTORE = re.compile(r"backfill_restore_\d+_[0-9a-f]{8}_(\d+)")
_ALONE = re.compile(r"(?:follow|claim)_\w+")
"""The branches of writers without a lease: each writer makes its branch anew where it is gone."""


def leftover_names(table: Table, runs: Mapping[str, Run], now: int, after: timedelta) -> list[str]:
    """List the branches and tags of a loaded table that nobody uses any more.

    `runs` are the definition's runs by their id, and `now` is in milliseconds. From age `after` on, a pin, a run and a
    branch that main left behind count as dead.
    """
    before = now - after // timedelta(milliseconds=1)
    head = head_of(table)
    return sorted(name for name in table.metadata.refs if _left(table, name, head, runs, before))


def _left(table: Table, name: str, head: Head, runs: Mapping[str, Run], before: int) -> bool:
    made = pinned_at(name)
    if made is not None:
        return EARLIEST <= made < before
    if found := _STREAM.fullmatch(name):
        # A stream that lent its lease to a run goes on when the lease is given back.
        return TOKEN in head.properties and int(found[1]) < head.number(LENDER, head.number(TOKEN))
    if found := _RESTORE.fullmatch(name):
        return int(found[1]) < head.number(TOKEN)
    if (found := _RUN.fullmatch(name)) and (run := runs.get(found[1])) is not None:
        ended = run.status != "started"
        return ended or (run.at is not None and EARLIEST <= run.at.timestamp() * 1000 < before)
    return bool(_ALONE.fullmatch(name)) and EARLIEST <= _superseded(table, name) < before


def _superseded(table: Table, branch: str) -> float:
    """Return the time at which main went on from a branch's snapshot, in milliseconds; infinite where it has not."""
    stands, later = ref_of(table, branch), None
    for one in lineage(table, ref_of(table, MAIN)):
        if one.snapshot_id == stands:
            return float("inf") if later is None else later
        later = one.timestamp_ms
    # The snapshot is not on main: a follower staged it and died, or it is too old for main's lineage to reach it.
    at = table.metadata.snapshot_by_id(stands) if stands is not None else None
    return at.timestamp_ms if at else float("inf")


def leftover_tables(lake: Lake, definition: Definition, tables: Iterable[str], now: int, after: timedelta) -> list[str]:
    """List which of some tables replays and streams of a definition left behind when they died.

    A stream that runs, but has not changed its resting windows for so long, restores them from the ledger.
    """
    before = now - after // timedelta(milliseconds=1)
    name = re.compile(rf"{definition.name}__(?:replay|{RESTING}|replay_{RESTING})_[0-9a-f]{{8}}")
    return [
        one for one in tables if name.fullmatch(one) and EARLIEST <= lake.table(one).metadata.last_updated_ms < before
    ]

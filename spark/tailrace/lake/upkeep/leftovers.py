"""What writers and readers left behind that died: branches, pins, tables of replays. Nobody uses them any more.

A stream's branch of a log or ledger has the token of its lease in its name, and with an older token nothing can be
published (rule X1). A run's branch goes once the run has ended. Of what else there is only age can tell: a branch that
main has left behind for so long, a pin so old, a run that has not ended for so long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import MAIN, Head, Lake, head_of, lineage, ref_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.lease import LENDER, TOKEN
from tailrace.lake.commit.pins import pinned_at
from tailrace.lake.commit.runs_table import Runs
from tailrace.model.definition.pipeline import Pipeline

_STREAM = re.compile(r"stream_(\d+)")
_RUN = re.compile(r"(?:follow_)?backfill_([0-9a-f]{12})(?:_\d+)?")
_ALONE = re.compile(r"(?:follow|claim)_\w+")
"""The branches of those who have no lease: each makes its own anew where it is gone."""


def leftover_names(table: Table, runs: Mapping[str, Run], now: int, after: timedelta) -> list[str]:
    """The branches and tags of a loaded table that nobody uses any more.

    `runs` are the pipeline's by their id, `now` is in milliseconds, and `after` so long what died may have been used.
    """
    before = now - after // timedelta(milliseconds=1)
    head = head_of(table)
    return sorted(name for name in table.metadata.refs if _left(table, name, head, runs, before))


def _left(table: Table, name: str, head: Head, runs: Mapping[str, Run], before: int) -> bool:
    made = pinned_at(name)
    if made is not None:
        return made < before
    if found := _STREAM.fullmatch(name):
        # The one that a run has borrowed the lease from goes on when it is given back.
        return TOKEN in head.properties and int(found[1]) < head.number(LENDER, head.number(TOKEN))
    if (found := _RUN.fullmatch(name)) and (run := runs.get(found[1])) is not None:
        ended = run.status != "started"
        return ended or (run.at is not None and run.at.timestamp() * 1000 < before)
    return bool(_ALONE.fullmatch(name)) and _superseded(table, name) < before


def _superseded(table: Table, branch: str) -> float:
    """When main went on from where a branch stands, in milliseconds; infinite where it has not."""
    stands, later = ref_of(table, branch), None
    for one in lineage(table, ref_of(table, MAIN)):
        if one.snapshot_id == stands:
            return float("inf") if later is None else later
        later = one.timestamp_ms
    # Not on main: what was staged by a follower that died, or so old that main's lineage does not reach it.
    at = table.metadata.snapshot_by_id(stands) if stands is not None else None
    return at.timestamp_ms if at else float("inf")


def leftover_tables(lake: Lake, pipeline: Pipeline, tables: Iterable[str], now: int, after: timedelta) -> list[str]:
    """The tables, of those that there are, that replays of a pipeline left behind which died."""
    before = now - after // timedelta(milliseconds=1)
    name = re.compile(rf"{pipeline.name}__replay_[0-9a-f]{{8}}")
    return [one for one in tables if name.fullmatch(one) and lake.table(one).metadata.last_updated_ms < before]


def runs_of(lake: Lake, pipeline: Pipeline) -> dict[str, Run]:
    """The runs of a pipeline by their id, as they stand."""
    runs = Runs(lake, pipeline)
    return {one.run: one for one in runs.all()} if lake.has(runs.table) else {}


def milliseconds() -> int:
    """Now."""
    return round(datetime.now(UTC).timestamp() * 1000)

"""Create the plan of a join.

In each epoch, the join combines new records with one another, and with the kept records of the other side.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.model.base.time import BEGINNING, length
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Panes
from tailrace.plan.stages import Beginning, Execution, KindPlan, PlannedQuery, Stage, ledger_stage, reader, stage
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Relation


def join_plan(join: Join, begin: Beginning) -> KindPlan:
    """Return the plan of a join for a stream that begins under the conditions `begin`."""
    held, gone, stay, new = (
        {side: Relation(f"{which}_{side}") for side in SIDES} for which in ("kept", "gone", "staying", "new")
    )
    stay = {side: stay[side] if join.side(side).takes_back else held[side] for side in SIDES}
    given = join_rows.given_rows(join, join_rows.EpochEntries(held, gone, stay, new), BEGINNING, 0)
    query = PlannedQuery("pairs", "what an epoch gives, here of the first", given, begin.sql)
    return KindPlan(tuple(_stages(join, begin)), (query,), None, join.produced.columns)


def _stages(join: Join, begin: Beginning) -> Iterator[Stage]:
    sql = begin.sql
    kinds = {side: "panes of" if isinstance(join.side(side), Panes) else "log" for side in SIDES}
    logs = ", ".join(f"{kind} {join.side(side).name} {side}" for side, kind in kinds.items())
    yield stage("read", reader(join.log, begin), f"{logs}; the epoch is one cut over both")
    late = f"{f'more than {length(join.lateness)} behind' if join.lateness else 'behind'} the watermark before it"
    if join.where:
        late = f"whose window the watermark had passed{' so far' if join.lateness else ''}"
    yield stage("judge", sql, f"too late is a record {late}")
    keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in join.keys.values())
    before, after = map(length, join.reach)
    near = f"the right record from {before} before the left one to {after} after it"
    left, right = (length(join.kept(side)) for side in SIDES)
    kept = f"left records for {left}, right ones for {right}, of event time"
    if join.where is not None:
        near, kept = f"in one window of {written(join.where)}", "each side's records until their window is closed"
    yield stage("pairs", sql, f"by {keys}, {near}; each comes with its later record", query="pairs")
    if join.kind != "inner":
        which = "either side" if join.kind == "full" else f"the {join.kind} side"
        when = "at once" if join.unmatched == "tell" else "once none in time can come any more"
        yield stage("alone", sql, f"records of {which} without a partner, {when}", query="pairs")
    if join.takes_back:
        back = ["the pairs of records that a side takes back"] if join.log.takes_back else []
        back += ["a record without a partner, as it gets one"] if join.kind != "inner" else []
        says = f"{'; '.join(back)}: up to {length(join.trails)} behind a reader's watermark"
        yield stage("retract", sql, says, query="pairs")
    why = "nowhere: each epoch reads them from the logs"
    if begin.here:
        why = "in tables of DuckDB, in this process; a restart reads them from the logs"
    yield stage("keep", sql, kept, why=why)
    held = f" less {length(join.hold)}" if join.hold else ""
    yield stage("watermark", Execution.PROCESS, f"readers of the pairs get the lesser watermark of the two logs{held}")
    yield ledger_stage(join, begin.commit, PRODUCTION, LATE)

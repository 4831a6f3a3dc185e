"""Create the plan of a computation. On DuckDB and on Spark, the computation's Python code is called for each key."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.lake.schema.contracts import FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.model.base.time import length
from tailrace.model.definition.computation import Computation
from tailrace.plan.stages import (
    Beginning,
    Execution,
    KeptState,
    KindPlan,
    Stage,
    StateColumn,
    ledger_stage,
    read_stage,
    stage,
)


def computation_plan(computation: Computation, begin: Beginning) -> KindPlan:
    """Return the plan of a computation for a stream that begins under the conditions `begin`."""
    columns = tuple(
        StateColumn(name, field.type, "" if field.default is None else f"{field.default!r} before one was set")
        for name, field in computation.fields.items()
    )
    place = "in a table of DuckDB, in this process" if begin.here else "on Spark's executors"
    state = KeptState("each key that has anything but defaults, with its pending timers", place, columns)
    return KindPlan(tuple(_stages(computation, begin)), (), state, computation.produced.columns)


def _stages(computation: Computation, begin: Beginning) -> Iterator[Stage]:
    log, kind, python = computation.log, type(computation).__name__, Execution.PYTHON
    yield read_stage(log, begin)
    behind = f"more than {length(computation.lateness)} behind" if computation.lateness else "behind"
    where = "" if begin.here else ", on the executors, a bucket of keys at a time"
    called = f"called for keys with a record or something due{where}"
    yield stage("judge", python, f"too late is a record {behind} the watermark before the epoch", why=called)
    order = "they wait until the watermark has passed them, and come by event time, timers in between"
    if not computation.ordered:
        order = "those of an epoch come by event time, then the timers that are due"
    key = f"by {', '.join(computation.key)}" if computation.key else "of one key"
    yield stage("records", python, f"{kind}.process_record, {key}; {order}", why=called)
    if computation.loops:
        fed = "before them: what was fed back in the epoch before"
        yield stage("loop", python, f"{kind}.process_feedback, {fed}", why=called)
    order = "of processing time first, then of event time, by instant"
    yield stage("timers", python, f"{kind}.process_timer: {order}", why=called)
    kept = "kept in the ledger, in the commit of the state that they come from"
    if computation.productions == "weak":
        kept = "not kept: computed again for readers that have to catch up"
    yield stage("productions", python, f"{computation.productions}: {kept}", why=called)
    flying = " or that is in flight" if computation.loops else ""
    less = f" less {length(computation.lateness)}" if computation.lateness else ""
    held = f"the oldest event time that a timer holds{flying}, or the watermark{less}"
    yield stage("watermark", Execution.PROCESS, f"readers of the productions get {held}")
    strong, loop = [PRODUCTION] * (computation.productions == "strong"), [FEEDBACK] * computation.loops
    yield ledger_stage(computation, begin.commit, PARTIAL, *strong, *loop, LATE, REJECTED)

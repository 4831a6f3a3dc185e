"""The builder of a definition's plan. The plan's SQL texts come from the functions that run (`tailrace.sql`)."""

from __future__ import annotations

from datetime import timedelta

from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL, REJECTED
from tailrace.lake.schema.owned_tables import contracts
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import duration, instant, text
from tailrace.model.base.types import decimal_parts
from tailrace.model.combiners.basic import Merge
from tailrace.model.definition.pipeline import NET, Pipeline
from tailrace.model.definition.record_steps import Each
from tailrace.model.definition.source_text import length, written
from tailrace.model.logs.derived_logs import Arrivals, Productions, Union
from tailrace.model.logs.log import log_names
from tailrace.model.logs.watermark_strategies import BoundedDisorder
from tailrace.model.step.transition import Transition
from tailrace.model.windows.panes import EARLIEST, END_OF_WINDOW, LATEST
from tailrace.model.windows.windows import Global, Sliding
from tailrace.plan.plan_stages import (
    AdvanceWatermark,
    Aggregate,
    Assign,
    Choice,
    Close,
    DataTriggers,
    Execution,
    Follow,
    Judge,
    KeptState,
    Meet,
    Plan,
    PlannedCommit,
    PlannedQuery,
    Prepare,
    Read,
    Stage,
    StateColumn,
    Take,
    WatermarkTriggers,
)
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.epoch.partials import late, partials, refused
from tailrace.sql.epoch.state_merge import met
from tailrace.sql.epoch.transition_rows import transitions
from tailrace.sql.records.assignment import NATIVE
from tailrace.sql.records.ways import Way, may_reject, reasons, way
from tailrace.sql.terms import Relation, Sql

PARTIALS, TRANSITIONS, LEDGER, TOO_LATE, REFUSED, STATE, RESTORE = (
    "partials",
    "transitions",
    "ledger",
    "too_late",
    "refused",
    "state",
    "restore",
)
"""The names of the plan's SQL texts."""

_BUNDLE, _CLOCK, _STATE, _PARTIALS, _TRANSITIONS, _LEDGER = map(
    Relation, ("bundle", "clock", "state", "partials", "transitions", "ledger")
)
"""The names of the views that the plan's SQL texts read."""

_READERS = {
    "json": "Arrow's reader of JSON",
    "avro": "fastavro, by the schemas of a registry",
    "protobuf": "Google's Protobuf, by the schemas of a registry",
}
"""What reads a topic's messages, by their format."""


def build(pipeline: Pipeline, *, answers: bool = True) -> Plan:
    """Build the plan of a definition; without `answers` no table of the answers is kept."""
    return Plan(
        pipeline=pipeline.name,
        fingerprint=pipeline.fingerprint,
        stages=tuple(stage for stage in _stages(pipeline) if answers or not isinstance(stage, Follow)),
        state=_state(pipeline),
        tables=tuple(contract for contract in contracts(pipeline) if answers or contract.table != pipeline.name),
        queries=tuple(queries(pipeline)),
    )


def queries(pipeline: Pipeline) -> list[PlannedQuery]:
    """Write the SQL texts of an epoch as `engines.spark.executions.native` composes them, over views with plain names.

    Where the model's own step runs, the only text is the one by which a restart reads the open windows.
    """
    rows = Rows(pipeline)
    restore = PlannedQuery(RESTORE, "the open windows as a restart finds them in the ledger", rows.restored(_LEDGER))
    if way(pipeline) is Way.PYTHON:
        return [restore]
    texts = [
        PlannedQuery(
            PARTIALS,
            "a row for each key and window that the bundle touches",
            partials(pipeline, _BUNDLE, _CLOCK),
        ),
        PlannedQuery(
            TRANSITIONS,
            "each open or touched window after the epoch, and what came out of it on the way",
            transitions(pipeline, met(pipeline, _STATE, _PARTIALS, _CLOCK)),
        ),
        PlannedQuery(LEDGER, "the partials and panes that the ledger gains", rows.of_transitions(_TRANSITIONS)),
        PlannedQuery(TOO_LATE, "the late records that the ledger gains", rows.of_late(late(pipeline, _BUNDLE, _CLOCK))),
    ]
    if pipeline.finishing == "close":
        text_ = rows.of_late(refused(pipeline, _BUNDLE, _CLOCK, _TRANSITIONS))
        texts.append(PlannedQuery(REFUSED, "the records that came to a window whose trigger is done", text_))
    texts.append(PlannedQuery(STATE, "the open windows that the next epoch starts from", rows.state(_TRANSITIONS)))
    return [*texts, restore]


def _stages(pipeline: Pipeline) -> tuple[Stage, ...]:
    where, kind = pipeline.where, type(pipeline.where).__name__
    combiners = ", ".join(dict.fromkeys(type(combiner).__name__ for combiner in pipeline.what.values()))
    late_kinds = (PARTIAL, PANE, LATE, *([REJECTED] if may_reject(pipeline) else []))
    why, taken = "; ".join(reasons(pipeline)), way(pipeline)
    costs = "Python reads every record, in Arrow batches, and an epoch takes about twice as long"
    model = Choice(Execution.PYTHON, f"{why}: the model's own step, a bucket of keys at a time; {costs}")
    called = Choice(
        Execution.PYTHON, f"{why}: its code is called for each record, in Arrow batches, and the rest is SQL"
    )

    def ours(reason: str) -> Choice:
        return model if taken is Way.PYTHON else _native(reason)

    def text_of(query: str) -> str:
        return "" if taken is Way.PYTHON else query

    prepared = (_prepare(pipeline),) if pipeline.each or pipeline.keep is not None else ()
    expression = "a window is an expression of the event time"
    rules = ours("the rules of a window are one text for every execution, here compiled to SQL")
    return (
        _read(pipeline),
        *prepared,
        Assign(
            choice=called if taken is Way.ASSIGNED else ours(f"{kind} is built in: {expression}"),
            query=text_of(PARTIALS),
            where=written(where),
            per_record=_per_record(pipeline),
        ),
        Judge(
            choice=ours("a comparison with the clock, which comes in as a column"),
            query=text_of(PARTIALS),
            allowed_lateness=pipeline.lateness,
            by="record, before windows merge" if where.merges else "window, for all of its records are judged alike",
        ),
        Aggregate(
            choice=ours(f"{combiners}: accumulators of parts, each added up, or the smaller or larger kept"),
            query=text_of(PARTIALS),
            key=pipeline.key,
            parts={name: _merges(part.merge, part.type) for name, part in pipeline.parts.items()},
        ),
        Meet(
            choice=ours(
                "spans are gathered by window functions"
                if where.merges
                else "state and bundle are grouped where they lie"
            ),
            query=text_of(TRANSITIONS),
            merges=where.merges,
        ),
        DataTriggers(
            choice=rules, query=text_of(TRANSITIONS), when=written(pipeline.when), accumulation=pipeline.how.value
        ),
        _watermark(pipeline),
        WatermarkTriggers(choice=rules, query=text_of(TRANSITIONS), on_time=pipeline.on_time),
        Close(
            choice=rules,
            query=text_of(TRANSITIONS),
            after=pipeline.lateness,
            reach=where.reach,
            closing=pipeline.closing,
            finishing=pipeline.finishing,
        ),
        PlannedCommit(
            choice=_native("one append of one query's rows, published by moving a branch"),
            query=text_of(LEDGER),
            table=ledger_name(pipeline.name),
            kinds=late_kinds,
        ),
        Follow(
            choice=_native("one MERGE of the panes since the snapshot that the table is stamped with"),
            table=pipeline.name,
            version=("generation", "epoch", "pane_index"),
        ),
    )


def _read(pipeline: Pipeline) -> Stage:
    log, earlier = pipeline.log, pipeline.earlier
    if isinstance(log, Productions):
        why = "the production rows that the definition before it writes, or makes for it in the same epoch"
        return Take(_native(why), log.name, dict(log.columns), "the event time that it was produced with")
    if earlier is not None:
        at = {
            END_OF_WINDOW: "its window's end",
            EARLIEST: "its window's first record",
            LATEST: "its window's last record",
        }
        why = "the rows that the stage before it writes into its ledger, read again where they are checkpointed"
        return Take(_native(why), earlier.name, dict(log.columns), at[earlier.timestamp])
    readers = ["Spark's own JSON, CSV and Parquet readers, checked by SQL expressions"]
    readers += sorted({_READERS[one.messages] for one in log.parts if one.messages != "json"})
    if log.signed:
        readers = [f"a table's changes, added and taken back: {_READERS[log.messages]}"]
    return Read(
        choice=_native("; of topics ".join(readers)),
        log=log_names(log.parts),
        columns=dict(log.columns),
        event_time=log.event_time,
        arrival_time=log.arrival_time,
        earliest=text(instant(log.earliest)),
        latest=text(instant(log.latest)),
        ahead={one.name: length(duration(one.bound_ahead)) for one in log.parts if one.bound_ahead is not None},
        unknown=log.unknown,
    )


def _prepare(pipeline: Pipeline) -> Prepare:
    why = [type(one).__name__ for one in pipeline.each if isinstance(one, Each)]
    choice = _native("SQL expressions of the record's columns")
    if why:
        choice = Choice(Execution.PYTHON, "a function of one's own is called for every record, in Arrow batches")
    keep = None if pipeline.keep is None else written(pipeline.keep)
    return Prepare(choice, tuple(written(one) for one in pipeline.each), keep)


def _watermark(pipeline: Pipeline) -> AdvanceWatermark:
    log, earlier, strategy = pipeline.log, pipeline.earlier, pipeline.log.strategy
    if isinstance(log, Productions):
        driver = Choice(Execution.DRIVER, "one number an epoch, which the definition before it gives on")
        held = "the oldest event time that a pending timer holds"
        return AdvanceWatermark(driver, f"that of {log.name}", earlier=log.name, held=held)
    if earlier is not None:
        held = "the oldest answer of a session that merged away and has not been taken back"
        if earlier.stamp is not None:
            kind = "that is open" if earlier.where.merges else "that has not fired on time"
            held = f"the {earlier.timestamp.value} record of a window {kind}"
        elif not earlier.where.merges:
            held = ""
        driver = Choice(Execution.DRIVER, "one number an epoch, which the stage before it gives on")
        clock = f"that of {earlier.name}"
        return AdvanceWatermark(driver, clock, earlier=earlier.name, held=held or None)
    if isinstance(log, Arrivals):
        driver = Choice(Execution.DRIVER, "the epoch's own processing time")
        return AdvanceWatermark(driver, "when the epoch was read", earlier="processing time")
    if isinstance(log, Union):
        driver = Choice(Execution.DRIVER, "one number an epoch, of the logs' own")
        furthest = f"the log that is furthest behind, of {log_names(log.parts)}, but for those that are idle"
        return AdvanceWatermark(driver, "the latest of theirs", earlier=furthest)
    return AdvanceWatermark(
        choice=Choice(Execution.DRIVER, "one number an epoch and partition; Spark finds the latest times"),
        strategy=written(strategy),
        behind=duration(strategy.behind) if isinstance(strategy, BoundedDisorder) else None,
        idle=None if strategy.idle is None else duration(strategy.idle),
        clock=f"the latest {log.arrival_time}" if log.arrival_time else "when the epoch was read",
    )


def _native(why: str) -> Choice:
    return Choice(Execution.NATIVE, why)


def _per_record(pipeline: Pipeline) -> str:
    where = pipeline.where
    if isinstance(where, Sliding):
        size, every = duration(where.size), duration(where.every)
        most, least = -(-size // every), size // every
        return f"{most} windows" if most == least else f"{least} or {most} windows"
    if type(where) not in NATIVE:
        return "the windows that it says"
    return "1 window, merged with those that it overlaps" if where.merges else "1 window"


def _merges(merge: Merge, type: str) -> str:
    return f"{type}, {_HOW[merge]}"


_HOW = {
    Merge.ADD: "added up",
    Merge.LEAST: "the smaller",
    Merge.GREATEST: "the larger",
    Merge.GATHER: "all of both",
    Merge.UNITE: "each of both once",
    Merge.TOP: "the largest of both",
    Merge.HIGHEST: "the highest of both",
    Merge.COUNT: "the values of both, each with how many there are",
    Merge.OWN: "its own way",
}


_SAYS = {
    "generation": "the generation it writes in (V2)",
    "fresh": "records in no pane yet",
    "fresh_on_time": "those of them that came before the watermark passed the window",
    "waiting_since": "processing time of the first of them",
    "panes": "panes fired so far",
    "settled": "whether one fired after the watermark passed",
}


def _state(pipeline: Pipeline) -> KeptState:
    rules = Transition(pipeline, Sql())
    types = {name: pipeline.columns[name] for name in pipeline.key}
    columns = [StateColumn(name, type, "key", _bytes(type)) for name, type in types.items()]
    columns += [StateColumn(f"window_{end}", "bigint", f"the window's {end}", 8) for end in ("start", "end")]
    for name, type in rules.columns().items():
        columns.append(StateColumn(name, type, _holds(name), _bytes(type)))
    if pipeline.where.merges:
        holds = "windows merged into this one that had fired, to be taken back (V3)"
        columns.append(StateColumn("predecessors", "array", holds, None))
    open_for = pipeline.lateness + pipeline.where.reach
    return KeptState(tuple(columns), open_for, _overlapping(pipeline))


def _holds(name: str) -> str:
    which, _, part = name.partition("_")
    if part == NET:
        return f"how many records there are, those taken back left out: {'in panes' if which == 'fired' else 'since'}"
    if which == "trigger":
        return "what the trigger remembers"
    if which in ("fired", "pending") and "__" in part:
        of = "records in panes" if which == "fired" else "records since"
        return f"{part.replace('__', ', ')}: of the {of}"
    return _SAYS[name]


def _bytes(type: str) -> int | None:
    parts = decimal_parts(type)
    if parts is not None:
        return 8 if parts[0] <= 18 else 16
    return {"boolean": 1, "int": 4, "date": 4, "bigint": 8, "double": 8, "timestamp": 8}.get(type)


def _overlapping(pipeline: Pipeline) -> int | None:
    """Estimate how many windows of a busy key are open at once; None where that depends on the data."""
    where, log = pipeline.where, pipeline.log
    if isinstance(where, Global):
        return 1
    if where.longest is None:
        return None
    every = duration(where.every) if isinstance(where, Sliding) else where.longest
    # From the start of the oldest open window to the latest event: the window's size, its lateness, and the disorder.
    alive = where.longest + pipeline.lateness + duration(log.strategy.bound or timedelta(0))
    return -(-alive // every)

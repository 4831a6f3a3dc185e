"""Create the plan of a pipeline.

The plan's SQL texts come from the same functions that streams use (`tailrace.sql`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL, REJECTED
from tailrace.model.base.time import duration, instant, length, text
from tailrace.model.base.types import decimal_parts
from tailrace.model.definition.pipeline import NET, Pipeline
from tailrace.model.definition.record_steps import Each
from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Arrivals, Productions, Union
from tailrace.model.logs.log import Log, log_names
from tailrace.model.logs.watermark_strategies import BoundedDisorder
from tailrace.model.step.transition import Transition
from tailrace.model.windows.windows import Global, Sliding
from tailrace.plan.stages import (
    TEXTS,
    Beginning,
    Commit,
    Execution,
    KeptState,
    KindPlan,
    PlannedQuery,
    Stage,
    StateColumn,
    ledger_stage,
    stage,
)
from tailrace.sql.epoch.epoch_texts import VIEWS, EpochTexts
from tailrace.sql.epoch.partials import combine_partials
from tailrace.sql.records.assignment import NATIVE
from tailrace.sql.records.selections import needs_spark
from tailrace.sql.records.traced_steps import called_because
from tailrace.sql.records.ways import Way, combines_in_sql, may_reject, reasons_for_python, sql_alone, way
from tailrace.sql.terms import Query, Relation, Sql


def pipeline_plan(pipeline: Pipeline, begin: Beginning) -> KindPlan:
    """Return the plan of a pipeline for a stream that begins under the conditions `begin`."""
    made = _PipelinePlan(pipeline, begin)
    follow = (made.follow(),) if begin.answers else ()
    return KindPlan((*made.stages(), *follow), tuple(made.queries()), made.state())


@dataclass(frozen=True)
class _PipelinePlan:
    """The plan of a pipeline for a stream that begins under the conditions `begin`."""

    pipeline: Pipeline
    begin: Beginning

    @cached_property
    def way(self) -> Way:
        return way(self.pipeline)

    @property
    def in_driver(self) -> bool:
        """Whether this process (Spark's driver) keeps the open windows, while Spark's executors only aggregate
        records.
        """
        return not self.begin.here and self.begin.windows_in_driver and sql_alone(self.pipeline)

    @property
    def here(self) -> bool:
        """Whether DuckDB keeps the open windows, in this process."""
        return self.begin.here or self.in_driver

    @property
    def combined(self) -> bool:
        """Whether the step is SQL that calls custom combiners, in this process."""
        return self.here and combines_in_sql(self.pipeline)

    @property
    def in_python(self) -> bool:
        """Whether the model's own step runs in Python."""
        return self.way is Way.PYTHON and not self.combined

    @property
    def commit(self) -> Commit:
        if self.here:
            return Commit.FILES
        return Commit.BRANCH if self.in_python else Commit.BY_SIZE

    def stages(self) -> Iterator[Stage]:
        """Yield the stages of an epoch in order; the last of these stages commits to the ledger."""
        pipeline, where, python = self.pipeline, self.pipeline.where, self.in_python
        # `for_records` is the executor of the stages that process an epoch's records. `for_windows` is the executor of
        # the stages that process windows.
        for_records = Execution.PYTHON if python else self.begin.sql
        for_windows = Execution.PYTHON if python else Execution.DUCKDB if self.here else Execution.SPARK
        place = "with the windows that it touches" if self.here else "on the executors, a bucket of keys at a time"
        costs = "Python reads every record, in Arrow batches, and an epoch takes about twice as long"
        own = "; ".join(reasons_for_python(pipeline))
        model = f"{own}: the model's own step, {place}; {costs}"

        def why(reason: str) -> str:
            return model if python else reason

        def by(query: str) -> str:
            return "" if python else query

        yield self._read()
        yield from self._prepare()
        assigned = self.way is Way.ASSIGNED
        called = f"{own}: its code is called for each record, in Arrow batches, and the rest is SQL"
        built_in = f"{type(where).__name__} is built in: a window is an expression of the event time"
        per_record = _per_record(pipeline)
        yield stage(
            "assign", Execution.PYTHON if assigned else for_records,
            f"{written(where)}: each record is in {per_record}",
            why=called if assigned else why(built_in), query=by(PARTIALS), where=written(where), per_record=per_record,
        )  # fmt: skip
        passed = f"was {length(pipeline.lateness)} past" if pipeline.lateness else "had reached"
        judged = "record, before windows merge" if where.merges else "window, for all of its records are judged alike"
        yield stage(
            "judge", for_records,
            f"too late once the watermark {passed} the window's end", f"judged by {judged}",
            why=why("a comparison with the clock, which comes in as a column"),
            query=by(PARTIALS), allowed_lateness=pipeline.lateness, by=judged,
        )  # fmt: skip
        combiners = ", ".join(dict.fromkeys(type(combiner).__name__ for combiner in pipeline.what.values()))
        parts = {name: f"{part.type}, {TEXTS['merge'][part.merge.value]}" for name, part in pipeline.parts.items()}
        adds_up = f"{combiners}: accumulators of parts, each added up, or the smaller or larger kept"
        if self.in_driver:
            adds_up += "; executors add up, and a row for each key and window comes to this process"
        if self.combined:
            adds_up = f"{own}: its code is called for the values of whole windows, and the rest is SQL"
        yield stage(
            "aggregate", Execution.PYTHON if self.combined else for_records,
            f"by {', '.join(pipeline.key) or 'window alone'}" + (" and window" if pipeline.key else ""),
            ", ".join(f"{name} ({how})" for name, how in parts.items()),
            why=why(adds_up), query=by(PARTIALS), key=pipeline.key, parts=parts,
        )  # fmt: skip
        alone = "state and bundle are grouped where they lie"
        if self.here:
            alone = "only windows that a record or the clock touches; the others stay where they are"
        if where.merges:
            alone = "spans are gathered by window functions"
        yield stage(
            "merge" if where.merges else "join", for_windows,
            "overlapping windows become one, which starts over" if where.merges
            else "with the open window of the same key and span",
            why=why(alone), query=by(TRANSITIONS), merges=where.merges,
        )  # fmt: skip
        rules = why("the rules of a window are one text for every execution, here compiled to SQL")
        yield stage(
            "data triggers", for_windows, written(pipeline.when), TEXTS["accumulation"][pipeline.how.value],
            why=rules, query=by(TRANSITIONS), when=written(pipeline.when), accumulation=pipeline.how.value,
        )  # fmt: skip
        yield _watermark(pipeline)
        some = "even with nothing new" if pipeline.on_time == "always" else "only with something new"
        yield stage(
            "on time", for_windows, f"a window that the watermark passes fires on time, {some}",
            why=rules, query=by(TRANSITIONS), on_time=pipeline.on_time,
        )  # fmt: skip
        out = pipeline.lateness + where.reach
        yield stage(
            "close", for_windows,
            f"at the watermark, {length(out)} past the window's end" if out else "at the watermark",
            "a last pane for what is pending" + (", or with nothing" if pipeline.closing == "always" else ""),
            "a window whose trigger is done takes no more records" if pipeline.finishing == "close" else "",
            why=rules, query=by(TRANSITIONS), after=pipeline.lateness, reach=where.reach, closing=pipeline.closing,
            finishing=pipeline.finishing,
        )  # fmt: skip
        kinds = (PARTIAL, PANE, LATE, *([REJECTED] if may_reject(pipeline) else []))
        yield ledger_stage(pipeline, self.commit, *kinds, query=by(LEDGER))

    def follow(self) -> Stage:
        """Return the stage that updates the answers from the ledger.

        The stage replaces a row of the answers only by a row with a higher version (V1, X2).
        """
        version = ("generation", "epoch", "pane_index")
        why = "files of changed windows are rewritten, in one commit"
        if not self.begin.here:
            why += "; a merge of more than TAILRACE_MEMORY is one MERGE by Spark on a branch"
        says = f"to {self.pipeline.name}, by ({', '.join(version)})"
        return stage("answers", Execution.DUCKDB, says, why=why, table=self.pipeline.name, version=version)

    def _read(self) -> Stage:
        log, earlier = self.pipeline.log, self.pipeline.earlier
        by = Execution.DUCKDB if self.here else Execution.SPARK
        if isinstance(log, Productions) or earlier is not None:
            name, at = log.name, "the event time that it was produced with"
            why = "the production rows that the definition before it writes, or makes for it in the same epoch"
            if earlier is not None:
                name, at = earlier.name, TEXTS["timestamp"][earlier.timestamp.value]
                why = "the rows that the stage before it writes into its ledger, handed on in the same epoch"
            back = f"what {name} takes back is taken out again" if log.takes_back else ""
            return stage(
                "take", by, f"{len(log.columns)} columns of what {name} fires; an answer happened at {at}", back,
                why=why, earlier=name, columns=dict(log.columns), timestamp=at,
            )  # fmt: skip
        ahead = {one.name: length(duration(one.bound_ahead)) for one in log.parts if one.bound_ahead is not None}
        earliest, latest = text(instant(log.earliest)), text(instant(log.latest))
        known = f", a record becomes known at {log.arrival_time}" if log.arrival_time else ""
        doubles = ", ".join(name for name, type in log.columns.items() if type == "double")
        return stage(
            "read", Execution.PROCESS if self.begin.here else Execution.SPARK,
            f"{len(log.columns)} columns of log {log_names(log.parts)}; its event time is {log.event_time}{known}",
            f"rejected: event times outside [{earliest:.10}, {latest:.10})",
            *(f"rejected: event times of {one} more than {bound} ahead of the record's arrival"
              for one, bound in ahead.items()),
            f"a record with an unknown column is {_of_unknown(log)}",
            f"of a number in {doubles} 15 digits are always kept, and 17 at most" if doubles else "",
            why=self._readers(), log=log_names(log.parts), columns=dict(log.columns), event_time=log.event_time,
            arrival_time=log.arrival_time, earliest=earliest, latest=latest, ahead=ahead, unknown=log.unknown,
        )  # fmt: skip

    def _readers(self) -> str:
        """Return a text that names the readers of a log's files and topics."""
        log = self.pipeline.log
        if log.signed:
            return f"a table's changes, added and taken back: {TEXTS['reader'][log.messages]}"
        spark = "Spark's own readers, checked by SQL expressions"
        files = f"JSON and Parquet that are plainly as declared are read in this process, all else by {spark}"
        if not self.begin.here:
            files = f"{spark}; small epochs in this process"
        of_topics = sorted({TEXTS["reader"][one.messages] for one in log.parts if one.messages != "json"})
        return "; of topics ".join([files, *of_topics])

    def _prepare(self) -> Iterator[Stage]:
        pipeline = self.pipeline
        if not pipeline.each and pipeline.keep is None:
            return
        by, why = self.begin.sql, "SQL expressions of the record's columns"
        if needs_spark(pipeline):
            by, why = Execution.SPARK, "a step is written for Spark, which takes the records before all else"
        if (called := called_because(pipeline)) is not None:
            by, why = Execution.PYTHON, called
        elif any(isinstance(one, Each) for one in pipeline.each):
            why = "a function of one's own is compiled to SQL, and called for the records of which SQL is not sure"
        steps, keep = tuple(map(written, pipeline.each)), None if pipeline.keep is None else written(pipeline.keep)
        kept = "" if keep is None else f"kept are records with {keep}"
        yield stage("prepare", by, *steps, kept, why=why, steps=steps, keep=keep)

    def queries(self) -> Iterator[PlannedQuery]:
        """Yield the SQL texts of an epoch.

        The engine runs the same texts, with other names of views. If Python code folds the windows, there are no SQL
        texts that compute windows.
        """
        pipeline, here = self.pipeline, self.here
        texts = EpochTexts(pipeline, _NAMES, in_process=here)
        by = Execution.DUCKDB if here else Execution.SPARK
        records = self.begin.sql
        by_key = self.in_python or pipeline.where.merges
        touches = _query(TOUCHED, texts.touched(by_key=by_key), by)
        restored = texts.rows.within_reach(_LEDGER, 0) if here else texts.rows.restored(_LEDGER)
        restore = _query(RESTORE, restored, by)
        if self.in_python:
            yield from (touches, restore) if here else (restore,)
            return
        yield _query(PARTIALS, texts.partials, records)
        if self.in_driver and not pipeline.where.merges:
            yield _query(TOGETHER, combine_partials(pipeline, _NAMES["partials"], counted=True), by)
        if here:
            yield touches
        yield _query(TRANSITIONS, texts.transitions, by)
        names = {LEDGER: "partials", PANES: "panes"} if here else {LEDGER: "partials and panes"}
        for (name, kinds), query in zip(names.items(), texts.ledger, strict=True):
            yield PlannedQuery(name, f"the {kinds} that the ledger gains", query, by)
        yield _query(TOO_LATE, texts.late, records)
        if texts.refused is not None:
            yield _query(REFUSED, texts.refused, by)
        yield _query(STATE, texts.remaining, by)
        yield restore

    def state(self) -> KeptState:
        """Return a description of the state that is kept for each key and window."""
        pipeline, rules = self.pipeline, Transition(self.pipeline, Sql())
        types = {name: pipeline.columns[name] for name in pipeline.key}
        columns = [StateColumn(name, type, "key", _bytes(type)) for name, type in types.items()]
        columns += [StateColumn(f"window_{end}", "bigint", f"the window's {end}", 8) for end in ("start", "end")]
        columns += [StateColumn(name, type, _holds(name), _bytes(type)) for name, type in rules.columns().items()]
        if pipeline.where.merges:
            holds = "windows merged into this one that had fired, to be taken back (V3)"
            columns.append(StateColumn("predecessors", "array", holds))
        open_for, overlapping = pipeline.lateness + pipeline.where.reach, _overlapping(pipeline)
        many = "as many windows of a key as the data makes"
        if overlapping is not None:
            many = f"{overlapping} window{'s' if overlapping > 1 else ''} of a busy key at a time"
        stays = "until the watermark reaches its end"
        if open_for:
            stays = f"until the watermark is {length(open_for)} past its end"
        place = "in a table of DuckDB, in this process" if self.here else "on Spark's executors"
        if self.in_driver:
            place += ", Spark's driver, while they are within TAILRACE_WINDOWS_IN_DRIVER"
            if pipeline.each or pipeline.finishing == "close":
                place += " and up to the first epoch that executors read"
        return KeptState(
            "each key and window while it is open", place, tuple(columns), f"it stays {stays}: {many}",
            {"open_for": open_for, "overlapping": overlapping},
        )  # fmt: skip


PARTIALS, TOGETHER, TOUCHED, TRANSITIONS = "partials", "together", "touched", "transitions"
LEDGER, PANES, TOO_LATE, REFUSED, STATE, RESTORE = "ledger", "panes", "too_late", "refused", "state", "restore"
"""The names of the plan's SQL texts."""

_NAMES, _LEDGER = {name: Relation(name) for name in VIEWS}, Relation("ledger")
"""The relations that the plan's SQL texts read: a view for each name, and the ledger."""


def _query(name: str, common: Query, by: Execution) -> PlannedQuery:
    return PlannedQuery(name, TEXTS["query"][name], common, by)


def _watermark(pipeline: Pipeline) -> Stage:
    """Return the stage that advances the watermark to the minimum of the partitions' watermarks (T3).

    The watermark of a later stage follows the watermark of the preceding stage. The later stage's watermark is never
    later than the oldest timestamp that an open window of the preceding stage can still output.
    """
    log, earlier, strategy = pipeline.log, pipeline.earlier, pipeline.log.strategy

    def after(of: str, clock: str, why: str, held: str = "") -> Stage:
        no_further = f", but no further than {held}" if held else ""
        says = f"the one of {of}{no_further}; the processing time is {clock}"
        return stage("watermark", Execution.PROCESS, says, why=why, clock=clock, earlier=of, held=held or None)

    if isinstance(log, Productions):
        why = "one number an epoch, which the definition before it gives on"
        return after(log.name, f"the one of {log.name}", why, "the oldest event time that it may still give")
    if earlier is not None:
        held = "the oldest answer of a session that merged away and has not been taken back"
        if earlier.stamp is not None:
            kind = "that is open" if earlier.where.merges else "that has not fired on time"
            held = f"the {earlier.timestamp.value} record of a window {kind}"
        elif not earlier.where.merges:
            held = ""
        why = "one number an epoch, which the stage before it gives on"
        return after(earlier.name, f"the one of {earlier.name}", why, held)
    if isinstance(log, Arrivals):
        return after("processing time", "when the epoch was read", "the epoch's own processing time")
    if isinstance(log, Union):
        furthest = f"the log that is furthest behind, of {log_names(log.parts)}, idle ones left out"
        return after(furthest, "the latest one of the logs", "one number an epoch, the least of the logs'")
    behind = duration(strategy.behind) if isinstance(strategy, BoundedDisorder) else None
    idle = None if strategy.idle is None else duration(strategy.idle)
    clock = f"the latest {log.arrival_time}" if log.arrival_time else "when the epoch was read"
    follows = f"by {written(strategy)}" if behind is None else "the latest event time"
    waits = "however long it has nothing new" if idle is None else f"until it has nothing new for {length(idle)}"
    return stage(
        "watermark", Execution.PROCESS,
        f"{f'{length(behind)} behind ' if behind else ''}{follows}; the processing time is {clock}",
        f"of several partitions the least counts; each is waited for, {waits}",
        why="one number an epoch and partition, the latest time of its records",
        clock=clock, strategy=written(strategy), behind=behind, idle=idle,
    )  # fmt: skip


def _per_record(pipeline: Pipeline) -> str:
    where = pipeline.where
    if isinstance(where, Sliding):
        size, every = duration(where.size), duration(where.every)
        most, least = -(-size // every), size // every
        return f"{most} windows" if most == least else f"{least} or {most} windows"
    if type(where) not in NATIVE:
        return "the windows that it says"
    return "1 window, merged with those that it overlaps" if where.merges else "1 window"


def _holds(name: str) -> str:
    which, _, part = name.partition("_")
    if part == NET:
        return f"how many records there are, those taken back left out: {'in panes' if which == 'fired' else 'since'}"
    if which == "trigger":
        return "what the trigger remembers"
    if which in ("fired", "pending") and "__" in part:
        of = "records in panes" if which == "fired" else "records since"
        return f"{part.replace('__', ', ')}: of the {of}"
    return TEXTS["state"][name]


def _bytes(type: str) -> int | None:
    parts = decimal_parts(type)
    if parts is not None:
        return 8 if parts[0] <= 18 else 16
    return {"boolean": 1, "int": 4, "date": 4, "bigint": 8, "double": 8, "timestamp": 8}.get(type)


def _overlapping(pipeline: Pipeline) -> int | None:
    """Estimate how many windows of a busy key are open at once. Returns None if the number depends on the data."""
    where, log = pipeline.where, pipeline.log
    if isinstance(where, Global):
        return 1
    if where.longest is None:
        return None
    every = duration(where.every) if isinstance(where, Sliding) else where.longest
    # `alive` is the time from the start of the oldest open window to the latest event: the sum of the window's size,
    # the allowed lateness, and the maximum disorder.
    alive = where.longest + pipeline.lateness + duration(log.strategy.bound or timedelta(0))
    return -(-alive // every)


def _of_unknown(log: Log) -> str:
    if log.rest is not None:
        return f"read, and {log.rest} keeps the column"
    return "rejected" if log.unknown == "reject" else "read without it"

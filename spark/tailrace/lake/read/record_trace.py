"""Follow a record through the definitions that read it: in which windows it is, and which panes and answers count it.

The steps and windows of a record are those of the model; what became of them is read from the ledgers, without a JVM.
An answer that counts the record is a record of the stage after, and is followed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.epoch_properties import arrival_times
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.key_history import History, LedgerLate, LedgerPane, history, plain
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.read.wanted_records import LandedRecord
from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, PRODUCTION, REJECTED
from tailrace.lake.schema.filters import Filter, among, equal, every
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.chain import Definition, chain
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Place, SparkColumns, SparkFrame
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import PANE_TIME, PLACE, Log
from tailrace.model.step.stages import record_of
from tailrace.model.windows.panes import Accumulation, Key
from tailrace.model.windows.windows import Window

Record: TypeAlias = Mapping[str, Any]


class State(Enum):
    """The state of a record in a window.

    COUNTED: the current answer counts it. WAITING: no pane counts it yet. LATE: it came too late, and no run has taken
    it in. GONE: the window has no answer any more.
    """

    COUNTED = "counted"
    WAITING = "waiting"
    LATE = "late"
    GONE = "gone"


@dataclass(frozen=True)
class InWindow:
    """A record in one window of a pipeline.

    `late` says that it came too late, and `run` which backfill has then taken it in. `panes` are those that count it,
    without retractions, and `answer` is the window's current one.
    """

    definition: str
    key: Key
    window: Window
    state: State
    late: LedgerLate | None
    run: Run | None
    panes: tuple[LedgerPane, ...]
    answer: LedgerPane | None


@dataclass(frozen=True)
class LeftOut:
    """A record that a definition leaves out and why; `rejected` tells that it could not take the record."""

    definition: str
    reason: str
    rejected: bool = False


@dataclass(frozen=True)
class Row:
    """A row that a map or a join gave of a record, or a computation of the record's key in the same epoch.

    `place` is where its readers find it, as ledgers have that; `taken_back` says that it does not stand any more.
    """

    definition: str
    values: Record
    event_time: int
    epoch: int | None
    place: tuple[Any, ...]
    taken_back: bool = False


@dataclass(frozen=True)
class Passed:
    """A record that came too late for a join or a computation, or of which nothing has come out; `behind` of the late.

    `behind` is in microseconds.
    """

    definition: str
    epoch: int | None
    behind: int | None


Step: TypeAlias = InWindow | LeftOut | Row | Passed
"""The outcome of a record in one definition."""


class Tracing:
    """Follows records through a definition and those that it reads; it keeps what it has read of the ledgers.

    Raises `LakeError` where a step of a definition is written for Spark, or a ledger is not there.
    """

    def __init__(self, lake: Lake, definition: Definition) -> None:
        self.lake, self.chain = lake, [with_set_aside(lake, one) for one in chain(definition)]
        for one in self.chain:
            if any(isinstance(step, SparkColumns | SparkFrame) for step in getattr(one, "each", ())):
                raise LakeError(f"{one.name} has a step that is written for Spark: a record is followed without Spark")
        self._histories: dict[tuple[str, Key, int], History] = {}
        self._runs: dict[str, list[Run]] = {}

    @cached_property
    def _arrivals(self) -> dict[str, dict[int, int]]:
        logs = {one.log.of.name for one in self.chain if isinstance(one.log, Arrivals)}
        return {name: arrival_times(self.lake, name) for name in logs}

    def of(self, landed: LandedRecord) -> list[Step]:
        """Return what became of a record in each definition, in the order in which they read one another."""
        passed: dict[str, list[Record]] = {landed.log: [landed.record]}
        steps = list[Step]()
        for one in self.chain:
            made = passed.setdefault(one.name, [])
            for record in list(self._read(one.log, passed)):
                found = list(self._of(one, record))
                steps += found
                made += [given for step in found for given in _onward(one, step)]
        return steps

    def in_windows(self, landed: LandedRecord) -> list[InWindow]:
        """Return what became of a record in the windows of the last definition, a pipeline that reads its log."""
        (last,) = self.chain[-1:]
        assert isinstance(last, Pipeline)
        records = self._read(last.log, {landed.log: [landed.record]})
        return [one for record in records for one in self._in_windows(last, record) if isinstance(one, InWindow)]

    def _read(self, log: Log, passed: Mapping[str, Sequence[Record]]) -> Iterable[Record]:
        if isinstance(log, Union):
            return [
                one for member, part in log.members.items() for one in log.records(member, passed.get(part.name, ()))
            ]
        if isinstance(log, Arrivals):
            times = self._arrivals[log.of.name]
            return [one for record in passed.get(log.of.name, ())
                    for one in log.records([record], times[record["_epoch"]])]  # fmt: skip
        return passed.get(log.name, ())

    def _of(self, definition: Definition, record: Record) -> Iterator[Step]:
        if isinstance(definition, Pipeline):
            return self._in_windows(definition, record)
        if isinstance(definition, Map):
            return self._mapped(definition, record)
        return self._joined(definition, record) if isinstance(definition, Join) else self._taken(definition, record)

    def _in_windows(self, pipeline: Pipeline, record: Record) -> Iterator[Step]:
        made, reasons = pipeline.prepared(record)
        yield from (LeftOut(pipeline.name, reason, rejected=True) for reason in reasons)
        if not made and not reasons:
            yield LeftOut(pipeline.name, "a step or keep leaves it out")
        for one in made:
            key = tuple(one.get(name) for name in pipeline.key)
            at = instant(one[pipeline.log.event_time])
            for window in pipeline.windows_of(at, one):
                yield self._in_window(pipeline, record, key, window, at)

    def _in_window(self, pipeline: Pipeline, record: Record, key: Key, window: Window, at: int) -> InWindow:
        past = self._history(pipeline, key, at if pipeline.where.merges else window.start)
        place, epoch = tuple(record[name] for name in PLACE), record["_epoch"]
        late = next((one for one in past.late if one.source == place and one.window.start == window.start), None)
        if pipeline.where.merges:
            # The session that it is in now: the one with an answer, or the longest that there was.
            within = [one for one in past.windows if one.start <= at < one.end]
            standing = [one for one in within if past.answer(one) is not None]
            window = max(standing or within or [window], key=lambda one: one.end - one.start)
        run = self._taken_in(pipeline, window, epoch)
        answer, own = past.answer(window), [one for one in past.panes if one.window == window and not one.retraction]
        if late is None:
            panes = [one for one in own if one.version.epoch >= epoch]
            counted = answer is not None and (answer.version.epoch >= epoch or run is not None)
        else:
            panes = [one for one in own if run is not None and one.version.generation >= run.generation]
            counted = answer is not None and run is not None
        if pipeline.how is Accumulation.DISCARDING:
            panes = panes[:1]
        state = State.COUNTED if counted else State.LATE if late is not None and run is None else State.GONE
        if state is State.GONE and pipeline.closes(window.end) > past.watermark:
            state = State.WAITING
        return InWindow(
            pipeline.name, key, window, state, late, run if late is not None else None, tuple(panes), answer
        )

    def _history(self, pipeline: Pipeline, key: Key, at: int) -> History:
        place = pipeline.name, key, at
        if place not in self._histories:
            self._histories[place] = history(self.lake, pipeline, key, at)
        return self._histories[place]

    def _taken_in(self, pipeline: Pipeline, window: Window, epoch: int) -> Run | None:
        """Return the first run that has computed a window of the log with this epoch (rule V5)."""
        if pipeline.name not in self._runs:
            runs = Runs(self.lake, pipeline).all() if self.lake.has(runs_name(pipeline.name)) else []
            self._runs[pipeline.name] = [one for one in runs if one.kind == "backfill" and one.status == "committed"]
        return next((one for one in self._runs[pipeline.name]
                     if one.log_epoch is not None and one.log_epoch >= epoch
                     and one.first <= window.timestamp < one.last), None)  # fmt: skip

    def _mapped(self, definition: Map, record: Record) -> Iterator[Step]:
        made, reasons = definition.prepared(record)
        yield from (LeftOut(definition.name, reason, rejected=True) for reason in reasons)
        if not made and not reasons:
            yield LeftOut(definition.name, "a step or keep leaves it out")
        at = instant(record[definition.log.event_time])
        for one in made:
            values = {name: one[name] for name in definition.results}
            yield Row(definition.name, values, at, record["_epoch"], tuple(record[name] for name in PLACE))

    def _joined(self, join: Join, record: Record) -> Iterator[Step]:
        side = record["side"]
        place = dict(zip(JOIN_PLACE[side], PLACE, strict=True))
        of = {name: None if join.side(side).takes_back else record[own] for name, own in place.items()}
        if join.side(side).takes_back:
            # An answer is known by what it says.
            of |= {name: record[name] for name in join.taken(side)}
        if (reason := join.set_aside.get(Place.of(record))) is not None:
            yield LeftOut(join.name, reason, rejected=True)
            return
        found = self._ledger(join.name, (PRODUCTION, LATE), of)
        late = [row for row in found if row["kind"] == LATE and row["side"] == side]
        yield from (Passed(join.name, row["epoch"], row["behind"]) for row in late)
        rows = [row for row in found if row["kind"] == PRODUCTION]
        stand = _standing(join, rows)
        for row in sorted(rows, key=lambda row: (row["epoch"], not row["retraction"])):
            if not row["retraction"]:
                values = {name: row[name] for name in join.results}
                pair = row["epoch"], _pair_source(join, row), None
                yield Row(join.name, values, instant(row[PANE_TIME]), row["epoch"], pair, id(row) not in stand)
        if not late and not rows:
            yield Passed(join.name, None, None)

    def _taken(self, computation: Computation, record: Record) -> Iterator[Step]:
        place = dict(
            zip(("source_epoch", "source_partition", "source_offset"), (record[name] for name in PLACE), strict=True)
        )
        out = self._ledger(computation.name, (LATE, REJECTED), place)
        for row in out:
            if row["kind"] == LATE:
                yield Passed(computation.name, row["epoch"], row["behind"])
            else:
                yield LeftOut(computation.name, row["reason"], rejected=True)
        if out:
            return
        key = {name: record[name] for name in computation.key} | {"epoch": record["_epoch"]}
        rows = self._ledger(computation.name, (PRODUCTION,), key)
        names = [*computation.key, *type(computation).produces]
        for row in rows:
            values, at = {name: row[name] for name in names}, instant(row[PANE_TIME])
            made = row["epoch"], row["source_partition"], row["source_offset"]
            yield Row(computation.name, values, at, row["epoch"], made)
        if not rows:
            yield Passed(computation.name, None, None)

    def _ledger(self, name: str, kinds: Iterable[str], values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a ledger of these kinds that have these values."""
        where: list[Filter] = [among("kind", kinds), *(equal(name, plain(value)) for name, value in values.items())]
        found: list[dict[str, Any]] = (
            self.lake.table(ledger_name(name)).scan(row_filter=every(*where)).to_arrow().to_pylist()
        )
        return found


def _onward(definition: Definition, step: Step) -> Iterator[Record]:
    """Yield the record that a definition's readers have of a step."""
    if isinstance(step, InWindow) and isinstance(definition, Pipeline):
        if step.state is State.COUNTED and step.answer is not None:
            answer = step.answer
            at = step.window.timestamp if answer.event_time is None else answer.event_time
            made = record_of(definition, step.key, step.window, answer.answer, at)
            yield {**made, **dict(zip(PLACE, (answer.version.epoch, None, None), strict=True))}
    elif isinstance(step, Row) and not step.taken_back:
        yield {**step.values, PANE_TIME: moment(step.event_time), **dict(zip(PLACE, step.place, strict=True))}


def _pair_source(join: Join, row: Mapping[str, Any]) -> str:
    """Write the places of a pair's records as its readers have them (`sql.records.stage_records.pair_place`)."""
    texts = (":".join("" if row[name] is None else str(row[name]) for name in names) for names in JOIN_PLACE.values())
    return "|".join(texts) + ("" if join.where is None else f"@{instant(row['window_start'])}")


def _standing(join: Join, rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """Name, by their identity, the rows of a join's ledger that were given and not taken back."""
    names = [*join.results, PANE_TIME, *(name for names in JOIN_PLACE.values() for name in names)]
    given: dict[tuple[Any, ...], list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["generation"], row["epoch"], not row["retraction"])):
        own = given.setdefault(tuple(row[name] for name in names), [])
        if not row["retraction"]:
            own.append(id(row))
        elif own:
            own.pop(0)
    return {one for some in given.values() for one in some}


@dataclass(frozen=True)
class Outcome:
    """Tells what a definition did with a record: `state` in a word or two, `told` in a sentence for each thing."""

    state: str
    told: tuple[str, ...]


def outcome(step: Step, span: Callable[[int], str], value: Callable[[Any], str]) -> Outcome:
    """Tell what became of a record.

    `span` writes a length of time in microseconds, and `value` a value of a table, cut as there is room.
    """
    if isinstance(step, InWindow):
        return Outcome(step.state.value, tuple(_in_window(step, span, value)))
    if isinstance(step, LeftOut):
        return Outcome("rejected" if step.rejected else "left out", (value(step.reason),))
    if isinstance(step, Row):
        given = f"in epoch {step.epoch}: {values_told(step.values, value)}"
        return Outcome("taken back" if step.taken_back else "given", (given,))
    if step.behind is None:
        return Outcome("waiting", ("nothing has come out of it",))
    return Outcome("late", (f"{span(step.behind)} behind the watermark, in epoch {step.epoch}",))


def _in_window(step: InWindow, span: Callable[[int], str], value: Callable[[Any], str]) -> Iterator[str]:
    if step.late is not None:
        yield f"{span(step.late.behind)} too late, in epoch {step.late.epoch} ({value(step.late.reason)})"
        if step.run is None:
            yield "no backfill has taken it in"
        else:
            why = f": {value(step.run.reason)}" if step.run.reason else ""
            yield f"taken in by backfill {step.run.run} of generation {step.run.generation}{why}"
    if step.panes:
        first, count = step.panes[0], len(step.panes)
        named = f"in {count:,} pane{'s' * (count > 1)}, the first {first.timing.replace('_', ' ')}"
        yield f"{named} in epoch {first.version.epoch}, generation {first.version.generation}"
    if step.state is State.COUNTED and step.answer is not None:
        yield f"the answer counts it: {values_told(step.answer.answer, value)}"
    elif step.state is State.WAITING:
        yield "no pane with it has fired yet"
    elif step.state is State.GONE:
        yield "its window has no answer any more"


def values_told(values: Mapping[str, Any], value: Callable[[Any], str]) -> str:
    """Write the columns of a row one after the other."""
    return ", ".join(f"{name} {value(one)}" for name, one in values.items())

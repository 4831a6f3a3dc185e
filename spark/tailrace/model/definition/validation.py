"""Validation of a definition: the checks find all faults at once, each fault with its location and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from tailrace.model.base.conditions import Condition, condition_faults
from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.names import RESERVED, RESERVED_KEYS, name_faults, reserved
from tailrace.model.base.time import duration, waits
from tailrace.model.base.types import element_type, is_type
from tailrace.model.combiners.basic import Combiner, Count
from tailrace.model.combiners.first_last import ByTime
from tailrace.model.combiners.lists import Collect, Highest
from tailrace.model.combiners.own import OwnWindows
from tailrace.model.definition.record_steps import Derive, Each, ElementWise, element_faults
from tailrace.model.definition.source_text import length, written
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, taken_back
from tailrace.model.logs.log import PANE_TIME, Log
from tailrace.model.triggers.combinators import Trigger, trigger_faults
from tailrace.model.windows.panes import Accumulation, Timestamp
from tailrace.model.windows.windows import PHASE_TYPES, Fixed, Global, Windowing


class Declared(Protocol):
    """The properties that the checks need of both a `Map` and a `Pipeline`."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def each(self) -> tuple[ElementWise, ...]: ...

    @property
    def keep(self) -> Condition | None: ...

    @property
    def columns(self) -> Mapping[str, str]: ...


class DeclaredMap(Declared, Protocol):
    """The properties that the checks need of a `Map`."""

    @property
    def what(self) -> tuple[str, ...]: ...


class DeclaredPipeline(Declared, Protocol):
    """The properties that the checks need of a `Pipeline`."""

    @property
    def key(self) -> tuple[str, ...]: ...

    @property
    def what(self) -> Mapping[str, Combiner]: ...

    @property
    def where(self) -> Windowing: ...

    @property
    def when(self) -> Trigger: ...

    @property
    def how(self) -> Accumulation: ...

    @property
    def allowed_lateness(self) -> timedelta | None: ...

    @property
    def lateness(self) -> int: ...

    @property
    def finishing(self) -> str: ...

    @property
    def timestamp(self) -> Timestamp: ...

    @property
    def answers(self) -> bool | None: ...

    @property
    def earlier(self) -> DeclaredPipeline | None: ...

    @property
    def trails(self) -> int: ...

    def type_of(self, combiner: Combiner) -> str | None: ...


def pipeline_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    """Find all faults of a pipeline."""
    yield from name_faults("name", pipeline.name)
    log: object = pipeline.log
    if not isinstance(log, Log):
        remedy = 'write log=Log(name="rides", columns=..., event_time=...)'
        yield Fault("log", log, "a log", f"{remedy}, or log=earlier.panes for a later stage")
        return
    steps = list(_each_faults(pipeline))
    yield from steps
    if steps:
        # The other checks need valid steps, because they use the columns after the steps.
        return
    if log.signed:
        yield from _signed_faults(pipeline)
    yield from _key_faults(pipeline)
    if pipeline.keep is not None:
        yield from condition_faults("keep", pipeline.keep, pipeline.columns)
    yield from _what_faults(pipeline)
    if isinstance(pipeline.where, type) or not hasattr(pipeline.where, "assign"):
        yield Fault("where", pipeline.where, "a windowing", "write for example where=Fixed(hours(1))")
        return
    yield from pipeline.where.faults("where")
    yield from _where_faults(pipeline)
    if not isinstance(pipeline.how, Accumulation):
        yield Fault("how", pipeline.how, "an accumulation", "use DISCARDING, ACCUMULATING or RETRACTING")
    for option in ("on_time", "closing"):
        if getattr(pipeline, option) not in ("always", "if_non_empty"):
            yield Fault(option, getattr(pipeline, option), '"always" or "if_non_empty"', "leave it out")
    if pipeline.answers not in (True, None):
        yield Fault("answers", pipeline.answers, "True", "leave it out, and the last stage has them")
    yield from _timestamp_faults(pipeline)
    yield from _weak_faults(pipeline)
    later = list(_later_faults(pipeline)) if log.takes_back else []
    yield from later
    if not later:
        yield from _when_faults(pipeline)


def map_faults(definition: DeclaredMap) -> Iterable[Fault]:
    """Find all faults of a map."""
    yield from name_faults("name", definition.name)
    log: object = definition.log
    if not isinstance(log, Log):
        remedy = 'write log=Log(name="rides", columns=..., event_time=...)'
        yield Fault("log", log, "a log", f"{remedy}, or log=earlier.produced for what another one produces")
        return
    if log.takes_back:
        which = "panes" if isinstance(log, Panes) else "produced"
        remedy = f"read the log that {log.name} reads, or write the steps into a Pipeline over {log.name}.{which}"
        yield taken_back("log", log, remedy)
        return
    if isinstance(log, Arrivals):
        yield log.refused("log")
        return
    steps = list(_each_faults(definition))
    yield from steps
    if steps:
        return
    if definition.keep is not None:
        yield from condition_faults("keep", definition.keep, definition.columns)
    yield from _output_faults(definition)
    yield from _weak_step_faults(definition)


def _output_faults(definition: DeclaredMap) -> Iterable[Fault]:
    """Find the faults of a map's output columns."""
    columns = definition.columns
    for place, column in enumerate(definition.what or columns):
        path = f"what[{place}]"
        if column not in columns:
            yield unknown_column(path, column, columns)
        elif column in RESERVED | {"source_epoch"} and not column == PANE_TIME == definition.log.event_time:
            mend = f'leave it out of what, or let it go out as another: each=Derive({{"my_{column}": Col("{column}")}})'
            yield Fault(path, column, "a name that the tables do not use themselves", mend)
        elif not is_type(columns[column]):
            yield Fault(path, f"{column}: {columns[column]}", "a plain column", "name others: what=(...)")
    if len(set(definition.what)) < len(definition.what):
        yield Fault("what", definition.what, "each column once", "leave out the repeated one")


def _each_faults(definition: Declared) -> Iterable[Fault]:
    types = definition.log.columns
    for place, step in enumerate(definition.each):
        faults = list(element_faults(f"each[{place}]", step, types))
        yield from faults
        if faults:
            return
        types = step.columns(types)


def _signed_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    """Find the uses of the time of a change in a pipeline over the log of a table's changes.

    Using the time of a change is a fault, because the addition and the retraction of a row have different change times.
    """
    at = pipeline.log.event_time
    expected, remedy = f"nothing that goes by {at}, the time of a change", "use columns of the table"
    types = {name: type for name, type in pipeline.log.columns.items() if name != at}
    for place, step in enumerate(pipeline.each):
        path = f"each[{place}]"
        if not isinstance(step, Derive):
            yield Fault(path, written(step), "steps that say which columns they read", "write a Derive")
            return
        if list(element_faults(path, step, types)) or at in step.values:
            yield Fault(path, written(step), expected, remedy)
            return
        types = dict(step.columns(types))
    if at in pipeline.key:
        yield Fault("key", at, expected, remedy)
    for name, combiner in pipeline.what.items():
        own = getattr(combiner, "combiner", combiner)
        if getattr(own, "column", None) == at or isinstance(own, ByTime):
            yield Fault(f"what[{name!r}]", combiner, expected, remedy)


def _key_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    columns = pipeline.columns
    for place, column in enumerate(pipeline.key):
        if column not in columns:
            yield unknown_column(f"key[{place}]", column, columns)
        elif columns[column] == "double":
            yield Fault(f"key[{place}]", column, "a column that compares exactly", "declare it as decimal(p,s)")
        elif not is_type(columns[column]):
            yield Fault(f"key[{place}]", f"{column}: {columns[column]}", "a plain column", "take another column")
        elif column in RESERVED_KEYS:
            yield reserved(f"key[{place}]", column)
    if len(set(pipeline.key)) < len(pipeline.key):
        yield Fault("key", pipeline.key, "each column once", "leave out the repeated one")


def _where_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    where = pipeline.where
    if isinstance(where, OwnWindows) and where.merges and where.reach <= 0:
        expected = "how long after it closes a window can be reached through one that is open, in microseconds"
        yield Fault("where.reach", where.reach, expected, "give the longest gap that its windows merge over")
    for column in where.columns if isinstance(where, Fixed) else ():
        if column not in pipeline.key:
            expected = f"a column of the key ({', '.join(pipeline.key) or 'there is none'})"
            yield Fault("where.phase", column, expected, f"write key=({column!r},), or leave phase out")
        elif pipeline.columns.get(column) not in (*PHASE_TYPES, None):
            expected = f"a column of type {', '.join(PHASE_TYPES)}"
            yield Fault("where.phase", f"{column}: {pipeline.columns[column]}", expected, "take another column")


def _what_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    if not pipeline.what:
        yield Fault("what", {}, "at least one result", 'write what={"records": Count()}')
    for name, combiner in pipeline.what.items():
        path = f"what[{name!r}]"
        yield from name_faults(path, name)
        if name in RESERVED or "__" in str(name):
            yield reserved(path, name)
        if name in pipeline.key:
            yield Fault(path, name, "a name that the key does not have", "rename the result")
        if isinstance(combiner, type) or not hasattr(combiner, "parts"):
            yield Fault(path, combiner, "a combiner", 'write for example Sum("price")')
        elif combiner.column is not None and combiner.column not in pipeline.columns:
            yield unknown_column(f"{path}.column", combiner.column, pipeline.columns)
        elif not _combines(combiner, type_ := pipeline.type_of(combiner)):
            expected = "a plain column, or of several in one no more than Count, Collect and Highest"
            yield Fault(f"{path}.column", f"{combiner.column}: {type_}", expected, "take another column")
        else:
            yield from combiner.faults(path, type_)


def _combines(combiner: Combiner, type: str | None) -> bool:
    """Return True if a combiner can read a column of this type."""
    if type is None or is_type(type) or isinstance(combiner, Count):
        return True
    return isinstance(combiner, Collect | Highest) and not element_type(type)


def _timestamp_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    chosen, where = pipeline.timestamp, pipeline.where
    if not isinstance(chosen, Timestamp):
        yield Fault("timestamp", chosen, "when an answer happened", "use END_OF_WINDOW, EARLIEST or LATEST")
    elif chosen is not Timestamp.END_OF_WINDOW and not where.merges and where.longest is None:
        expected = "END_OF_WINDOW for windows that may be of any length"
        yield Fault("timestamp", chosen, expected, "a later stage would wait for them for ever: leave it out")


def _stage_faults(pipeline: DeclaredPipeline, earlier: DeclaredPipeline) -> Iterable[Fault]:
    """Find the faults of a stage that depend on the earlier stage whose panes it reads."""
    if earlier.how is not Accumulation.RETRACTING:
        remedy = f"set how=RETRACTING in {earlier.name}"
        yield Fault(
            "log", f"{earlier.name}, {earlier.how.value}", "a stage that takes back what it said before", remedy
        )
    endless = earlier.where.longest is None and not earlier.where.merges
    if endless and not pipeline.where.merges and pipeline.where.longest is not None:
        expected = "one window for all, as the earlier stage has"
        yield Fault("where", pipeline.where, expected, f"use Global(), or windows that end in {earlier.name}")


def _later_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    """Find the faults of a pipeline over a log whose records may be retracted.

    The pipeline is a later stage, or reads the rows of a join.
    """
    log, late = pipeline.log, pipeline.allowed_lateness
    if pipeline.earlier is not None:
        yield from _stage_faults(pipeline, pipeline.earlier)
    if log.signed and not isinstance(pipeline.where, Global):
        expected = "one window for all: a row is taken back at another time than it was added at"
        yield Fault("where", pipeline.where, expected, "use Global(), and a column of the table as a key")
    elif pipeline.where.merges:
        expected = "windows that stay apart, for a record that is taken back may be what joined two of them"
        yield Fault("where", pipeline.where, expected, "use Fixed, Sliding or Calendar, or merge in the first stage")
    if pipeline.how is Accumulation.DISCARDING:
        expected = "panes of everything so far, for what is fresh may be records taken back"
        yield Fault("how", pipeline.how, expected, "use ACCUMULATING or RETRACTING")
    if pipeline.finishing == "close":
        expected = '"refuse", for records that came too late would stay in no answer'
        yield Fault("finishing", pipeline.finishing, expected, "leave it out")
    if pipeline.timestamp is not Timestamp.END_OF_WINDOW:
        expected = "END_OF_WINDOW in a later stage, whose first or last record may be taken back"
        yield Fault("timestamp", pipeline.timestamp, expected, "leave it out")
    if late is not None and waits(late) and duration(late) < log.trails:
        expected = f"at least {length(log.trails)}, for so long {log.name} corrects what it gave"
        yield Fault("allowed_lateness", str(late), expected, "leave it out, and it waits just so long")


def _weak_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    """Find the options that need kept records in a pipeline over productions that are not kept (MillWheel, 6.1.3).

    For a rejected or late record, the ledger has only the record's position. A backfill or a person must be able to
    find the record in the log by this position.
    """
    if pipeline.finishing == "close" and _weak(pipeline.log):
        remedy = _STRONG.format(pipeline.log.name)
        yield Fault("finishing", "close", "records that are kept, for some may come too late", remedy)
    yield from _weak_step_faults(pipeline)


def _weak_step_faults(definition: Declared) -> Iterable[Fault]:
    for place, one in enumerate(definition.each):
        if isinstance(one, Each) and _weak(definition.log):
            expected = "records that are kept, for it may reject some"
            yield Fault(f"each[{place}]", one, expected, _STRONG.format(definition.log.name))


def _weak(log: Log) -> bool:
    """Return True if a log's records are productions that the ledger does not keep."""
    return isinstance(log, Productions) and not log.kept


_STRONG = 'leave productions="weak" out of {}'


def _when_faults(pipeline: DeclaredPipeline) -> Iterable[Fault]:
    late, log = pipeline.allowed_lateness, pipeline.log
    if late is not None and not waits(late):
        yield Fault("allowed_lateness", late, "a duration of zero or more", "write hours(3)")
        return
    if pipeline.finishing not in ("refuse", "close"):
        yield Fault("finishing", pipeline.finishing, '"refuse" or "close"', "leave it out")
    faults = list(trigger_faults("when", pipeline.when))
    if not faults:
        faults = list(pipeline.when.column_faults("when", pipeline.columns))
        faults += pipeline.when.percentile_faults("when", pipeline.log.percentiles)
    yield from faults
    if faults:
        return
    lateness = timedelta(microseconds=pipeline.lateness)
    if not pipeline.when.finishes or pipeline.finishing != "refuse":
        return
    if not pipeline.when.finishes_only_on_time:
        yield Fault(
            "when",
            pipeline.when,
            "a trigger that goes on for as long as records may come",
            "records after its last pane would be too late: put it in Repeat(...), or set "
            'finishing="close" if that is meant',
        )
    elif late is None and lateness > timedelta(0) and log.takes_back:
        yield Fault(
            "when",
            pipeline.when,
            f"a trigger with a late part, for {log.name} corrects what it gave for {length(pipeline.lateness)}",
            "write for example AfterWatermark(late=AfterCount(1))",
        )
    elif lateness > timedelta(0):
        yield Fault(
            "allowed_lateness",
            str(late),
            "a trigger with a late part, or no lateness",
            "late records would be accepted by the window and lost by its trigger: write "
            'AfterWatermark(late=AfterCount(1)), or set finishing="close" if that is meant',
        )

"""Pipelines, which define what is computed, where in event time, when in processing time, and how panes are related.

`Pipeline` answers the paper's four questions for the records of a log (Dataflow Model, 1 and 2). A source fills this
log, or the log contains the panes of another pipeline. A pipeline that reads the panes of another pipeline is a later
stage of the same definition. A pipeline is immutable. An invalid pipeline is refused with an error that lists all of
its faults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal, Self

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.conditions import Condition, condition_faults
from tailrace.model.base.errors import Fault, RecordError, failure, raise_faults, unknown_column
from tailrace.model.base.names import RESERVED, RESERVED_KEYS, key_faults, name_faults, plain_field, reserved
from tailrace.model.base.several import Several
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, instant, length, waits
from tailrace.model.base.types import column_of, is_single, type_at
from tailrace.model.combiners.basic import Combiner, Merge, Part, without_negative_zeros
from tailrace.model.combiners.first_last import ByTime
from tailrace.model.combiners.own import OwnCombiner, OwnWindows
from tailrace.model.combiners.retraction import taking_back
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.fingerprint import FOLLOWS, digest, of_log
from tailrace.model.definition.map import Map
from tailrace.model.definition.record_steps import (
    Derive,
    ElementWise,
    Prepared,
    Reasons,
    SetAside,
    columns_after,
    columns_read,
    element_faults,
    meets,
    own_steps,
    steps_faults,
    taken_through,
    unkept_faults,
)
from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions
from tailrace.model.logs.log import PANE_TIME, Log, missing_log
from tailrace.model.triggers.composite import trigger_faults
from tailrace.model.triggers.trigger import AtWatermark, Trigger
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import ACCUMULATING, EARLIEST, END_OF_WINDOW, Accumulation, Timestamp
from tailrace.model.windows.windows import (
    PHASE_TYPES,
    Fixed,
    Global,
    Sessions,
    Sliding,
    Window,
    Windowing,
    windows_within_time,
)

MEASURED = "when"
"""The prefix in the names of the accumulator parts for the trigger's measures, such as a number of bytes.

A part that belongs to a result has the name of the result as its prefix.
"""

NET = "answer__records"
"""The name of the accumulator part in which a later stage counts added records minus retracted records."""


UNANSWERED = "unanswered"
"""The name of the column, in panes and answers, that contains the reason why results are null.

The column exists only if a result may fail to fit its type (rule X7).
"""


def is_measure(part: str) -> bool:
    """Return True if a part of the accumulator is a measure of the trigger (such as a number of bytes), not a part of a
    result.

    >>> is_measure("when__bytes"), is_measure("total__n")
    (True, False)
    """
    return part.startswith(f"{MEASURED}__")


@dataclass(frozen=True, kw_only=True)
class Pipeline(Ranged):
    """A definition with windows. A stream, a backfill and the reference execution all use the same pipeline.

    `what` maps the name of each result to its combiner. `where` is the windowing, `when` the trigger, and `how` the
    accumulation. `each` has the steps that are applied to every record before records are grouped. `key` names the
    columns by which the records are grouped; if `key` is empty, all records are in one group. `keep` is a condition:
    records that do not meet the condition are dropped, but dropped records still advance the log's watermark. `on_time`
    says whether the on-time pane of a window fires even if the window has no new record. `closing` says whether the
    last pane of a window fires even if the window has no new record (rule M3). `finishing` must be "close" if the
    trigger can finish while records may still arrive; records that arrive after the trigger has finished are then too
    late (rule M4). `timestamp` sets the event time that an answer has as a record of a later stage. `answers=True`
    keeps the current answers of an earlier stage in a table. Without `answers=True`, only the last stage of a deployed
    definition has a table of answers, and an earlier stage has only a ledger. The option `answers` is not part of the
    definition's meaning.

    The log of a later stage is the property `panes` of the earlier stage. When the earlier stage retracts a pane, the
    later stage removes the record of that pane. So the later stage's answers are always computed from the earlier
    stage's current answers only. A later stage must wait as long as corrections from the earlier stage can arrive; this
    time is the default `allowed_lateness` of a later stage. For other pipelines, the default `allowed_lateness` is
    zero. A pipeline over the productions of a computation reads `computation.produced`, whose records are never
    retracted. If a pipeline reads a join whose rows may be retracted, the rules for a later stage apply to this
    pipeline.
    """

    kind_name, state_name, windowed, repairs_late = "pipeline", "open windows", True, True

    name: str
    log: Log
    what: Mapping[str, Combiner]
    where: Windowing
    key: Several[str] = Several()
    each: Several[ElementWise] = Several()
    keep: Condition | None = None
    when: Trigger = field(default_factory=AtWatermark)
    how: Accumulation = ACCUMULATING
    allowed_lateness: timedelta | None = None
    on_time: Literal["always", "if_non_empty"] = "always"
    closing: Literal["always", "if_non_empty"] = "if_non_empty"
    finishing: Literal["refuse", "close"] = "refuse"
    timestamp: Timestamp = END_OF_WINDOW
    answers: Literal[True] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", MappingProxyType(dict(self.what)))
        raise_faults(self.name, _faults(self))

    @property
    def earlier(self) -> Pipeline | None:
        """The stage whose panes this pipeline reads, or None for the first stage.

        The first stage reads a source's log or productions.
        """
        found: Pipeline | None = self.log.of if isinstance(self.log, Panes) else None
        return found

    @property
    def takes_back(self) -> bool:
        """Whether records of the pipeline's log may be retracted."""
        return self.log.takes_back

    @property
    def finished(self) -> Pipeline:
        """This pipeline, changed for an input that has ended: all records are there, and none is retracted later.

        >>> from tailrace.model.samples import examples
        >>> (first := examples.figure(10)).finished is first
        True
        """
        # A log of table changes contains retractions as ordinary records, even after the input has ended, so this
        # pipeline stays the same.
        if not self.log.takes_back or self.log.signed:
            return self
        return _Finished(**{one.name: getattr(self, one.name) for one in fields(self)})

    @property
    def stages(self) -> tuple[Pipeline, ...]:
        """The stages of the definition, in order; this pipeline is the last stage."""
        return (self,) if self.earlier is None else (*self.earlier.stages, self)

    @property
    def by_arrival(self) -> bool:
        """Whether processing time closes the windows, because the first stage reads a log of type `Arrivals`."""
        return isinstance(self.stages[0].log, Arrivals)

    @property
    def panes(self) -> Panes[Pipeline]:
        """The pipeline's panes, as the log that a later stage reads."""
        spans = {"window_start": "timestamp", "window_end": "timestamp"}
        columns = {name: self.columns[name] for name in self.key} | spans | self.results
        return Panes(name=self.name, columns=columns | {PANE_TIME: "timestamp"}, event_time=PANE_TIME, of=self)

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The columns of the pipeline's records after the steps, with their types."""
        return MappingProxyType(dict(columns_after(self.each, self.log.columns)))

    @cached_property
    def span(self) -> tuple[int, int]:
        """Two bounds in microseconds: no window of the definition starts before the first bound or ends after the
        second bound.

        A window that starts before the year 1 is cut to start with the year 1. A window that ends after the year 9999
        is cut to end with the year 9999 (rule T1).
        """
        if self.earlier is not None:
            low, high = self.earlier.span
        elif any(isinstance(one, Productions) and not isinstance(one.of, Map) for one in self.log.parts):
            # The bounds that logs declare for event times (`earliest`, `latest`) do not apply to productions, because
            # the code of a computation may set any event time.
            low, high = BEGINNING, END_OF_TIME
        else:
            low = min(instant(log.earliest) for log in self.sources)
            high = max(instant(log.latest) for log in self.sources)
        length = self.where.reach if self.where.merges else self.where.longest
        return (BEGINNING - 1, END_OF_TIME + 1) if length is None else (low - length, high + length)

    @cached_property
    def exceeds_time(self) -> bool:
        """Whether a window may extend beyond the years 1 to 9999, so that the window must be cut."""
        return not isinstance(self.where, Global) and (self.span[0] < BEGINNING or self.span[1] > END_OF_TIME)

    @cached_property
    def windows_of(self) -> Callable[[int, Mapping[str, Any]], list[Window]]:
        """A function that returns the windows of a record.

        The function has two arguments: the record's event time in microseconds, and the record after all steps.
        """
        if self.own_windows:
            return partial(_own_windows, self.where)
        return partial(windows_within_time, self.where) if self.exceeds_time else self.where.assign

    @cached_property
    def own_windows(self) -> bool:
        """Whether custom code assigns records to windows; if so, `windows_of` may raise `RecordError`."""
        return type(self.where) not in _BUILT_IN

    @cached_property
    def own_combiners(self) -> tuple[OwnCombiner, ...]:
        """The custom combiners, whose `lift` may raise `RecordError`."""
        return tuple(one for one in self.what.values() if isinstance(one, OwnCombiner))

    @cached_property
    def _own_reals(self) -> tuple[tuple[OwnCombiner, Mapping[str, str]], ...]:
        return tuple((one, one.reals(self.columns)) for one in self.own_combiners)

    def lifts(self, record: Mapping[str, Any], only: Sequence[OwnCombiner] | None = None) -> None:
        """Raise `RecordError` if a custom combiner cannot process a record that has gone through the steps.

        `only` limits the check to some of the custom combiners; the record then needs only their columns.
        """
        o = Scalars()
        for one, reals in self._own_reals:
            if only is not None and not any(one is other for other in only):
                continue
            one.lift(o, one.read(o, without_negative_zeros(o, record, reals), 0), self.type_of(one))

    def prepared(self, record: Mapping[str, Any]) -> Prepared:
        """Apply the steps to a record of the log, and drop the resulting records that do not meet `keep`.

        A resulting record is rejected if a custom windowing cannot assign the record to windows, or if a custom
        combiner cannot process the record.
        """
        made, reasons = taken_through(self.each, record, self.log.columns)
        kept = list(filter(self.keeps, made))
        if not self.own_windows and not self.own_combiners:
            return Prepared(kept, reasons)
        good = []
        for one in kept:
            try:
                self.windows_of(instant(one[self.log.event_time]), one)
                self.lifts(one)
                good.append(one)
            except RecordError as error:
                reasons.append(str(error))
        return Prepared(good, reasons)

    def closes(self, end: int) -> int:
        """Return the watermark, in microseconds, at which a window that ends at `end` closes (rule M1)."""
        return min(END_OF_TIME, end + self.lateness)

    def closed_until(self, watermark: int) -> int:
        """Return the event time, in microseconds, up to which windows are final at this watermark (rule X4).

        No further record can change a window that ends at or before the returned event time.
        """
        return END_OF_TIME if watermark >= END_OF_TIME else watermark - self.lateness - self.where.reach

    def open_from(self, watermark: int) -> int:
        """Return the event time, in microseconds, from which on a backfill must not change windows.

        The returned time is the end of time, because a backfill may also correct windows that are still open. The
        exception is a definition in which the answers of an earlier stage have the event time of a record
        (`timestamp`). For such a definition, this method returns the same time as `closed_until`.
        """
        stamped = any(one.stamp is not None for one in self.stages[:-1])
        return self.closed_until(watermark) if stamped else END_OF_TIME

    @cached_property
    def lateness(self) -> int:
        """The allowed lateness in microseconds."""
        if self.allowed_lateness is None:
            return self.log.trails
        return duration(self.allowed_lateness)

    @property
    def trails(self) -> int:
        """The maximum time, in microseconds, by which a new pane's timestamp may be behind a later stage's watermark.

        A window may be corrected as long as records for the window can arrive. If an answer's timestamp is before the
        end of its window, the timestamp may be behind the watermark by an additional time, which is at most the
        window's length. If windows merge, the later stage's watermark also waits until open windows have fired.
        """
        within = self.lateness + self.where.reach
        if self.timestamp is END_OF_WINDOW:
            return within
        return within + (self.where.reach if self.where.merges else self.where.longest or 0)

    def keeps(self, record: Mapping[str, Any]) -> bool:
        """Return True if a record that has gone through the steps meets `keep`."""
        return meets(self.keep, record, self.columns)

    @cached_property
    def combiners(self) -> Mapping[str, Combiner]:
        """The combiner of each result; in a later stage, each combiner can also remove retracted records."""
        if not self.takes_back:
            return self.what
        return {name: taking_back(combiner, self.type_of(combiner)) for name, combiner in self.what.items()}

    @cached_property
    def parts(self) -> dict[str, Part]:
        """A dict of all parts of the accumulator; a key combines the result's name and the part's name, as in
        `mean_delay__total`.

        The accumulator also contains the trigger's measures, the answer's timestamp (unless the timestamp is the
        window's end) and, in a later stage, the number of records.
        """
        parts = {
            f"{name}__{part.name}": part
            for name, combiner in self.combiners.items()
            for part in combiner.parts(self.type_of(combiner))
        }
        parts |= {f"{MEASURED}__{name}": Part(name, "bigint", Merge.ADD) for name in self.when.measures()}
        if self.takes_back:
            parts[NET] = Part("records", "bigint", Merge.ADD)
        if self.stamp is not None:
            merge = Merge.LEAST if self.timestamp is EARLIEST else Merge.GREATEST
            parts[self.stamp] = Part(self.timestamp.value, "bigint", merge)
        return parts

    @property
    def stamp(self) -> str | None:
        """The name of the accumulator part with an answer's timestamp; None if the timestamp is the window's end."""
        return None if self.timestamp is END_OF_WINDOW else f"{PANE_TIME}__{self.timestamp.value}"

    @property
    def results(self) -> dict[str, str]:
        """The names of the results, with their column types."""
        return {name: combiner.result_type(self.type_of(combiner)) for name, combiner in self.what.items()}

    @property
    def leaves(self) -> bool:
        """Whether a result may fail to fit its type. If so, panes and answers have the column `UNANSWERED`."""
        return any(combiner.leaves(self.type_of(combiner)) for combiner in self.combiners.values())

    @property
    def answer_columns(self) -> dict[str, str]:
        """The columns of an answer with their types: the results and, if `leaves` is true, `UNANSWERED`."""
        return self.results | ({UNANSWERED: "string"} if self.leaves else {})

    def columns_shown(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the names of the results, and `UNANSWERED` if at least one row has a value in this column.

        `rows` are panes or answers.
        """
        said = any(row.get(UNANSWERED) is not None for row in rows)
        return [*self.results, *([UNANSWERED] if said else [])]

    def type_of(self, combiner: Combiner) -> str | None:
        """Return the type of the values that a combiner reads, or None if the combiner reads no column."""
        return combiner.read_type(self.columns)

    def with_set_aside(self, reasons: Reasons) -> Self:
        return replace(self, each=(SetAside(reasons), *own_steps(self.each)))

    @cached_property
    def used(self) -> frozenset[str]:
        read = columns_read(self.each, self.log.columns).union(self.key, *self._columns_read_by_code)
        read |= {column_of(name) for one in self.what.values() for name in one.columns}
        read |= set() if self.keep is None else set(self.keep.columns)
        return read & self.log.columns.keys()

    @property
    def _columns_read_by_code(self) -> Iterator[Iterable[str]]:
        """The columns that the windowing and the trigger read; code that does not say what it reads may read all."""
        own: Iterable[str] | None = () if isinstance(self.where, _BUILT_IN) and not self.own_windows else None
        if own is None or isinstance(self.where, Fixed):
            own = self.where.columns
        yield self.columns if own is None else own
        for measure in self.when.measures().values():
            yield getattr(measure, "columns", self.columns)

    @property
    def meaning(self) -> dict[str, Any]:
        """The parts that determine the pipeline's meaning, as a dict from the part's name to its value.

        If the definition leaves out an optional part such as `keep`, the dict does not contain this part. So a new
        option of pipelines does not change the digests of existing definitions.
        """
        return self._meaning(self.used)

    def _meaning(self, used: Collection[str] | None) -> dict[str, Any]:
        log = self.log
        parts = of_log(log, used) | {
            "key": self.key,
            "what": sorted((name, written(combiner)) for name, combiner in self.what.items()),
            "where": written(self.where),
            "when": written(self.when),
            "how": self.how.value,
            "lateness": timedelta(microseconds=self.lateness),
            "on_time": self.on_time,
            "closing": self.closing,
            "finishing": self.finishing,
        }
        if self.keep is not None:
            parts["keep"] = written(self.keep)
        if own := own_steps(self.each):
            parts["each"] = tuple(map(written, own))
        if any(self.when.percentile_faults("when", ())):
            parts["percentiles"] = sorted(log.percentiles_ahead.items())
        if self.when.stops:
            # The part `stops` of the meaning says that the trigger's stop condition counts all records of the window,
            # even records in earlier panes (rule M6).
            parts["stops"] = "the whole window"
        if self.timestamp is not END_OF_WINDOW:
            parts["timestamp"] = self.timestamp.value
        return parts

    @property
    def fingerprint(self) -> str:
        """A digest of everything that determines the definition's meaning.

        The definition's name and its source do not affect the digest, and neither do the columns of the log that the
        definition does not use.
        """
        return self._digest(self.meaning)

    @property
    def former_fingerprint(self) -> str:
        return self._digest(self._meaning(None))

    def _digest(self, parts: Mapping[str, Any]) -> str:
        meaning: tuple[object, ...] = (
            parts["columns"],
            (parts["reads"], parts["of"]) if "reads" in parts else (parts["event_time"], parts[FOLLOWS]),
            (parts["key"], parts["what"]),
            (parts["where"], parts["when"], parts["how"], parts["lateness"]),
            (parts["on_time"], parts["closing"], parts["finishing"]),
        )
        # Do not change the order in which options are appended here, because the digest depends on the order. Append a
        # new option at the end. An option that the definition leaves out does not change the digest.
        meaning += (parts["keep"],) if "keep" in parts else ()
        meaning += parts.get("each", ())
        meaning += (parts["percentiles"],) if "percentiles" in parts else ()
        meaning += (parts["timestamp"],) if "timestamp" in parts else ()
        meaning += (("required", parts["required"]),) if "required" in parts else ()
        meaning += (("stops", parts["stops"]),) if "stops" in parts else ()
        meaning += ("signed",) if "signed" in parts else ()
        return digest(meaning)


_BUILT_IN = (Global, Fixed, Sliding, Sessions, Calendar)


def _own_windows(where: Windowing, at: int, record: Mapping[str, Any]) -> list[Window]:
    """Return the windows that custom code assigns to a record; windows are cut at the years 1 and 9999.

    Raises `RecordError` if the custom code fails or returns invalid windows.
    """
    name, own = type(where).__name__, where.columns
    try:
        given = list(where.assign(at, record if own is None else {column: record.get(column) for column in own}))
        windows = [Window(max(start, BEGINNING), min(end, END_OF_TIME)) for start, end in given]
    except Exception as error:
        raise RecordError(f"{name}: {failure(error)}") from error
    if all(isinstance(bound, int) for window in windows for bound in window) and all(a < b for a, b in windows):
        return windows
    raise RecordError(f"{name}: it gave {given!r:.200}: expected windows that end after they begin, in microseconds")


class _Finished(Pipeline):
    """A pipeline over input that has ended, in which no record is retracted any more."""

    takes_back = False


def _faults(pipeline: Pipeline) -> Iterable[Fault]:
    """Find all faults of a pipeline."""
    yield from name_faults("name", pipeline.name)
    log: object = pipeline.log
    if not isinstance(log, Log):
        yield missing_log(log, "log=earlier.panes for a later stage")
        return
    steps = list(steps_faults(pipeline.each, log.columns))
    yield from steps
    if steps:
        # The checks below need the columns after the steps, so they are skipped if a step has a fault.
        return
    if log.signed:
        yield from _signed_faults(pipeline)
    yield from key_faults(pipeline.key, pipeline.columns, RESERVED_KEYS)
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
    if pipeline.finishing == "close" and not log.kept:
        # With `finishing="close"`, records may be too late. For a late record, the ledger stores only the position, by
        # which a backfill or a person must be able to find the record in the log. So the log must keep its records.
        expected = "records that are kept, for some may come too late"
        yield Fault("finishing", "close", expected, f'leave productions="weak" out of {log.name}')
    yield from unkept_faults(pipeline.each, log)
    later = list(_later_faults(pipeline)) if log.takes_back else []
    yield from later
    if not later:
        yield from _when_faults(pipeline)


def _signed_faults(pipeline: Pipeline) -> Iterable[Fault]:
    """Find the places where a pipeline over a log of table changes uses the time of a change; each use is a fault.

    A pipeline must not use the time of a change, because the addition and the retraction of a row have different change
    times.
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
        if at in map(column_of, getattr(own, "columns", ())) or isinstance(own, ByTime):
            yield Fault(f"what[{name!r}]", combiner, expected, remedy)


def _where_faults(pipeline: Pipeline) -> Iterable[Fault]:
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


def _what_faults(pipeline: Pipeline) -> Iterable[Fault]:
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
        elif unknown := [one for one in combiner.columns if type_at(pipeline.columns, one) is None]:
            place = "column" if combiner.column in unknown else "by"
            yield unknown_column(f"{path}.{place}", unknown[0], pipeline.columns)
        elif not _combines(combiner, type_ := pipeline.type_of(combiner)):
            expected = "a plain column, or AnyValue, First, Last, Collect, Distinct, TopK or Count"
            mend = plain_field(combiner.column or "", type_)
            yield Fault(f"{path}.column", f"{combiner.column}: {type_}", expected, mend)
        else:
            yield from combiner.faults(path, type_)


def _combines(combiner: Combiner, type: str | None) -> bool:
    """Return True if a combiner can read values of this type."""
    return type is None or is_single(type) or combiner.takes_nested


def _timestamp_faults(pipeline: Pipeline) -> Iterable[Fault]:
    chosen, where = pipeline.timestamp, pipeline.where
    if not isinstance(chosen, Timestamp):
        yield Fault("timestamp", chosen, "when an answer happened", "use END_OF_WINDOW, EARLIEST or LATEST")
    elif chosen is not Timestamp.END_OF_WINDOW and not where.merges and where.longest is None:
        expected = "END_OF_WINDOW for windows that may be of any length"
        yield Fault("timestamp", chosen, expected, "a later stage would wait for them for ever: leave it out")


def _stage_faults(pipeline: Pipeline, earlier: Pipeline) -> Iterable[Fault]:
    """Check a later stage against the earlier stage whose panes it reads, and find the faults."""
    if earlier.how is not Accumulation.RETRACTING:
        remedy = f"set how=RETRACTING in {earlier.name}"
        yield Fault(
            "log", f"{earlier.name}, {earlier.how.value}", "a stage that takes back what it said before", remedy
        )
    endless = earlier.where.longest is None and not earlier.where.merges
    if endless and not pipeline.where.merges and pipeline.where.longest is not None:
        expected = "one window for all, as the earlier stage has"
        yield Fault("where", pipeline.where, expected, f"use Global(), or windows that end in {earlier.name}")


def _later_faults(pipeline: Pipeline) -> Iterable[Fault]:
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


def _when_faults(pipeline: Pipeline) -> Iterable[Fault]:
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
    if not pipeline.when.finishes or pipeline.finishing != "refuse":
        return
    otherwise, late_part = 'or set finishing="close" if that is meant', "AfterWatermark(late=AfterCount(1))"
    if not pipeline.when.finishes_only_on_time:
        expected = "a trigger that goes on for as long as records may come"
        remedy = f"records after its last pane would be too late: put it in Repeat(...), {otherwise}"
        yield Fault("when", pipeline.when, expected, remedy)
    elif late is None and pipeline.lateness > 0 and log.takes_back:
        corrects = f"{log.name} corrects what it gave for {length(pipeline.lateness)}"
        yield Fault(
            "when", pipeline.when, f"a trigger with a late part, for {corrects}", f"write for example {late_part}"
        )
    elif pipeline.lateness > 0:
        lost = "late records would be accepted by the window and lost by its trigger"
        expected = "a trigger with a late part, or no lateness"
        yield Fault("allowed_lateness", str(late), expected, f"{lost}: write {late_part}, {otherwise}")

"""A pipeline: what is computed, where in event time, when in processing time, and how panes relate.

`Pipeline` asks the paper's four questions of a log's records (Dataflow Model, 1 and 2). The log is a source's, or it is
another pipeline's panes, and then the pipeline is a later stage of one definition. A pipeline is frozen and checked as
a whole: a definition that makes no sense is refused with every fault at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal, Self

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.conditions import Condition
from tailrace.model.base.errors import DefinitionError, RecordError, failure
from tailrace.model.base.several import Several
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, instant
from tailrace.model.combiners.basic import Combiner, Merge, Part
from tailrace.model.combiners.own import OwnCombiner
from tailrace.model.combiners.retraction import taking_back
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.fingerprint import FOLLOWS, digest, of_log
from tailrace.model.definition.map import Map
from tailrace.model.definition.record_steps import (
    ElementWise,
    Prepared,
    Reasons,
    SetAside,
    columns_after,
    meets,
    own_steps,
    taken_through,
)
from tailrace.model.definition.source_text import written
from tailrace.model.definition.validation import pipeline_faults
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions
from tailrace.model.logs.log import PANE_TIME, Log
from tailrace.model.triggers.combinators import AtWatermark, Trigger
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import ACCUMULATING, EARLIEST, END_OF_WINDOW, Accumulation, Timestamp
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding, Window, Windowing, windows_within_time

MEASURED = "when"
"""The prefix of the accumulator's parts that the trigger measures; a result's parts begin with its name."""

NET = "answer__records"
"""The part of a later stage's accumulator that counts its records: records that came less records taken back."""


UNANSWERED = "unanswered"
"""The column of panes and answers that says why results are null, where a result may leave its type (rule X7)."""


def is_measure(part: str) -> bool:
    """Tell whether a part of the accumulator is one of the trigger's measures, and of no result.

    >>> is_measure("when__bytes"), is_measure("total__n")
    (True, False)
    """
    return part.startswith(f"{MEASURED}__")


@dataclass(frozen=True, kw_only=True)
class Pipeline(Ranged):
    """A windowed definition, the same for stream, backfill and reference.

    what: the named results and the combiner of each. where: the windowing. when: the trigger. how: the accumulation.
    `each` are the steps that every record goes through first. `key` names the columns that the records are grouped by;
    none for one group. `keep` leaves out the records that do not meet a condition; the watermark is the log's, and
    follows them all. `on_time` says whether the pane at the watermark fires with nothing fresh, `closing` whether a
    window's last pane does (rule M3). `finishing` must be "close" for a trigger that can be done while records may
    still come: these records are then too late (rule M4). `timestamp` says when an answer happened, for a later stage.
    `answers=True` keeps a stage's current answers in a table, though a later stage alone reads them: without it, only
    the last stage of a deployed definition has such a table, and an earlier stage has just its ledger. The option is no
    part of what a definition means.

    The log of a later stage is `earlier.panes`. The later stage takes records back as the earlier stage retracts them,
    so that its answers are always those of the earlier stage's current answers. It waits for corrections at least as
    long as they may come, which is its `allowed_lateness` if left out; that of any other pipeline is then none. The log
    of a pipeline over a computation's productions is `computation.produced`, and nothing of it is taken back; of that
    over a join, records may be, and it is as a later stage then.
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
        faults = list(pipeline_faults(self))
        if faults:
            raise DefinitionError(str(self.name), faults)

    @property
    def earlier(self) -> Pipeline | None:
        """The stage whose panes this one reads; None for the first stage, which reads a source's log or productions."""
        found: Pipeline | None = self.log.of if isinstance(self.log, Panes) else None
        return found

    @property
    def takes_back(self) -> bool:
        """Whether a record of the pipeline's log may be taken back."""
        return self.log.takes_back

    @property
    def finished(self) -> Pipeline:
        """The definition over finished input: all of it is there, and nothing of it is taken back.

        >>> from tailrace.model.samples import examples
        >>> (first := examples.figure(10)).finished is first
        True
        """
        # The log of a table's changes keeps the records that take rows back.
        if not self.log.takes_back or self.log.signed:
            return self
        return _Finished(**{one.name: getattr(self, one.name) for one in fields(self)})

    @property
    def stages(self) -> tuple[Pipeline, ...]:
        """The stages of the definition, the first one first and this one last."""
        return (self,) if self.earlier is None else (*self.earlier.stages, self)

    @property
    def by_arrival(self) -> bool:
        """Whether processing time closes the windows: the first stage reads `Arrivals`."""
        return isinstance(self.stages[0].log, Arrivals)

    @property
    def panes(self) -> Panes[Pipeline]:
        """The pipeline's panes as the log of a later stage."""
        spans = {"window_start": "timestamp", "window_end": "timestamp"}
        columns = {name: self.columns[name] for name in self.key} | spans | self.results
        return Panes(name=self.name, columns=columns | {PANE_TIME: "timestamp"}, event_time=PANE_TIME, of=self)

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The columns of the pipeline's records and their types, after the steps."""
        return MappingProxyType(dict(columns_after(self.each, self.log.columns)))

    @cached_property
    def span(self) -> tuple[int, int]:
        """The instants that its windows may begin and end at, as far as that is known before any record.

        Windows that begin before the year 1 or end after the year 9999 are cut there (rule T1).
        """
        if self.earlier is not None:
            low, high = self.earlier.span
        elif any(isinstance(one, Productions) and not isinstance(one.of, Map) for one in self.log.parts):
            # Code gives a production its event time.
            low, high = BEGINNING, END_OF_TIME
        else:
            low = min(instant(log.earliest) for log in self.sources)
            high = max(instant(log.latest) for log in self.sources)
        length = self.where.reach if self.where.merges else self.where.longest
        return (BEGINNING - 1, END_OF_TIME + 1) if length is None else (low - length, high + length)

    @cached_property
    def exceeds_time(self) -> bool:
        """Whether a window may have to be cut at an end of time."""
        return not isinstance(self.where, Global) and (self.span[0] < BEGINNING or self.span[1] > END_OF_TIME)

    @cached_property
    def windows_of(self) -> Callable[[int, Mapping[str, Any]], list[Window]]:
        """The function of an event time, in microseconds, and its record, after the steps, that returns its windows."""
        if self.own_windows:
            return partial(_own_windows, self.where)
        return partial(windows_within_time, self.where) if self.exceeds_time else self.where.assign

    @cached_property
    def own_windows(self) -> bool:
        """Whether custom code puts records into windows, in which case `windows_of` may raise `RecordError`."""
        return type(self.where) not in _BUILT_IN

    @cached_property
    def own_combiners(self) -> tuple[OwnCombiner, ...]:
        """The custom combiners, whose `lift` may raise `RecordError`."""
        return tuple(one for one in self.what.values() if isinstance(one, OwnCombiner))

    def lifts(self, record: Mapping[str, Any]) -> None:
        """Raise `RecordError` where a custom combiner cannot take a record, after the steps."""
        for one in self.own_combiners:
            one.lift(Scalars(), None if one.column is None else record.get(one.column), self.type_of(one))

    def prepared(self, record: Mapping[str, Any]) -> Prepared:
        """Take a record of the log through the steps, and leave out the results that do not meet `keep`.

        A record that custom code then cannot put into windows or combine is rejected, too.
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
        """Return the watermark that closes a window which ends at `end`, in microseconds (rule M1)."""
        return min(END_OF_TIME, end + self.lateness)

    def closed_until(self, watermark: int) -> int:
        """Return the latest end of windows that no record can reach at this watermark, in microseconds (rule X4)."""
        return END_OF_TIME if watermark >= END_OF_TIME else watermark - self.lateness - self.where.reach

    def open_from(self, watermark: int) -> int:
        """Return from where on windows are left to the stream: open ones, if they hold answers at a record's time."""
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
        """The maximum delay of a pane's timestamp behind a later stage's watermark as it comes, in microseconds.

        A window is corrected for as long as it is within reach. A timestamp before the window's end is further behind,
        by up to the window's length; where windows merge, the later stage's watermark waits for open windows.
        """
        within = self.lateness + self.where.reach
        if self.timestamp is END_OF_WINDOW:
            return within
        return within + (self.where.reach if self.where.merges else self.where.longest or 0)

    def keeps(self, record: Mapping[str, Any]) -> bool:
        """Tell whether a record, after the steps, meets `keep`."""
        return meets(self.keep, record, self.columns)

    @cached_property
    def combiners(self) -> Mapping[str, Combiner]:
        """The combiner of each result; in a later stage, one that can take records back."""
        if not self.takes_back:
            return self.what
        return {name: taking_back(combiner, self.type_of(combiner)) for name, combiner in self.what.items()}

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Every part of the accumulator, by the result's name and the part's: `mean_delay__total`.

        Further parts are the trigger's measures, the answer's timestamp (unless it is the window's end) and, in a later
        stage, the number of records.
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
        """The part of the accumulator that holds an answer's timestamp; None where that is the window's end."""
        return None if self.timestamp is END_OF_WINDOW else f"{PANE_TIME}__{self.timestamp.value}"

    @property
    def results(self) -> dict[str, str]:
        """The named results' column types."""
        return {name: combiner.result_type(self.type_of(combiner)) for name, combiner in self.what.items()}

    @property
    def leaves(self) -> bool:
        """Whether a result may leave its type, so that panes and answers say why (`UNANSWERED`)."""
        return any(combiner.leaves(self.type_of(combiner)) for combiner in self.combiners.values())

    @property
    def answer_columns(self) -> dict[str, str]:
        """The columns of an answer with their types: the results and, where a result may leave its type, the reason."""
        return self.results | ({UNANSWERED: "string"} if self.leaves else {})

    def columns_shown(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """List the results, and `UNANSWERED` after them where one of some panes' or answers' rows has it."""
        said = any(row.get(UNANSWERED) is not None for row in rows)
        return [*self.results, *([UNANSWERED] if said else [])]

    def type_of(self, combiner: Combiner) -> str | None:
        """Find the type of the column that a combiner reads; None if it reads none."""
        return None if combiner.column is None else self.columns[combiner.column]

    def with_set_aside(self, reasons: Reasons) -> Self:
        return replace(self, each=(SetAside(reasons), *own_steps(self.each)))

    @property
    def meaning(self) -> dict[str, Any]:
        """The parts that give the pipeline its meaning, by their names, without the options that are left out.

        So a new option of pipelines changes no digest.
        """
        log = self.log
        parts = of_log(log) | {
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
            # What a stop looks at was another thing before this was written here.
            parts["stops"] = "the whole window"
        if self.timestamp is not END_OF_WINDOW:
            parts["timestamp"] = self.timestamp.value
        return parts

    @property
    def fingerprint(self) -> str:
        """A digest of everything that gives the definition its meaning; its name and the source do not."""
        parts = self.meaning
        meaning: tuple[object, ...] = (
            parts["columns"],
            (parts["reads"], parts["of"]) if "reads" in parts else (parts["event_time"], parts[FOLLOWS]),
            (parts["key"], parts["what"]),
            (parts["where"], parts["when"], parts["how"], parts["lateness"]),
            (parts["on_time"], parts["closing"], parts["finishing"]),
        )
        # In the order in which these options were added; an option that is left out does not change the digest.
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
    """Have custom code assign a record to windows, cut at the ends of time; raises `RecordError` if it fails."""
    name = type(where).__name__
    try:
        given = list(where.assign(at, record))
        windows = [Window(max(start, BEGINNING), min(end, END_OF_TIME)) for start, end in given]
    except Exception as error:
        raise RecordError(f"{name}: {failure(error)}") from error
    if all(isinstance(bound, int) for window in windows for bound in window) and all(a < b for a, b in windows):
        return windows
    raise RecordError(f"{name}: it gave {given!r:.200}: expected windows that end after they begin, in microseconds")


class _Finished(Pipeline):
    """A pipeline over finished input, of which nothing is taken back."""

    @property
    def takes_back(self) -> bool:
        return False

"""The function that processes one epoch of a pipeline (rules T2 to T4, M1 to M5).

Streams, backfills and replays apply this function to one epoch after the other.

    step(pipeline, state, bundle, clock) -> state', panes, late, rejected

The function `step` is the reference execution: plain Python that processes one key at a time. The results of all other
executions are tested against this function. If each bundle has a single record, `step` corresponds to the paper's
element-at-a-time model (Dataflow Model, 2.2 to 2.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from tailrace.model.base.algebra import Scalars, Term
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import RecordError, failure
from tailrace.model.base.time import instant
from tailrace.model.combiners.basic import Combiner, without_negative_zeros
from tailrace.model.combiners.retraction import taken_back
from tailrace.model.definition.pipeline import MEASURED, NET, Pipeline, is_measure
from tailrace.model.logs.log import sign_of
from tailrace.model.step.transition import Row, Times, Transition
from tailrace.model.triggers.trigger import Measure, Phase
from tailrace.model.windows.panes import Key, Late, Pane, Rejected, Timing, Version
from tailrace.model.windows.windows import Window

Record = Mapping[str, Any]
"""A record of the log: a mapping from the log's columns to values.

An event time is a `datetime` with time zone, or a whole number of microseconds.
"""


class Predecessor(NamedTuple):
    """A window that fired a pane and was later merged into another window.

    If window A was merged into window B, the answer of A is retracted when B fires (rule V3).
    """

    window: Window
    generation: int
    panes: int
    fired: Row


@dataclass(frozen=True)
class WindowsState:
    """The open windows of a pipeline between two epochs, and the clock of the last epoch."""

    windows: Mapping[Key, Mapping[Window, Row]] = field(default_factory=dict)
    clock: Clock | None = None
    generation: int = 0


class StepOutcome(NamedTuple):
    """The result of a step: the new state, the panes in the order in which they fired, and late and rejected records.

    `late` contains the records that arrived too late for a window, and `rejected` contains the records that the
    definition's steps could not process.
    """

    state: WindowsState
    panes: list[Pane]
    late: list[Late]
    rejected: list[Rejected]


_Arrivals: TypeAlias = "list[tuple[Record, Sequence[Term]]]"
"""The records of a bundle for one key and window: pairs of a record and the accumulator's parts for this record."""


class _End(NamedTuple):
    """The effect of an epoch on all windows that have the same end.

    `open` says whether the windows are open at the start of the epoch, `closing` whether the epoch closes them, and
    `gone` whether the epoch removes them from the state.
    """

    open: bool
    closing: bool
    gone: bool


def step(
    pipeline: Pipeline, state: WindowsState, bundle: Iterable[Record], clock: Clock, *, prepared: bool = False
) -> StepOutcome:
    """Add one epoch's records to the open windows, and fire panes according to the epoch's clock.

    If `prepared` is True, the definition's steps have already been applied to the records. Raises `ClockError` if the
    clock goes back.
    """
    epoch = _Step(pipeline, state, clock.after(state.clock))
    if prepared or (not pipeline.each and pipeline.keep is None):
        records = list(bundle)
        return epoch.run(zip(records, records, strict=True))
    return epoch.run(epoch.prepared(bundle))


class _Step:
    """One execution of `step`; its results are collected in `panes`, `late` and `rejected`.

    The inputs are not changed.
    """

    def __init__(self, pipeline: Pipeline, state: WindowsState, clock: Clock) -> None:
        self.pipeline, self.state, self.clock = pipeline, state, clock
        self.rules = Transition(pipeline, Scalars())
        self.times = Times.of(pipeline, state.clock, clock)
        self._ends: dict[int, _End] = {}
        self._advancing: dict[tuple[object, ...], bool] = {}
        self.panes: list[Pane] = []
        self.late: list[Late] = []
        self.rejected: list[Rejected] = []

    def prepared(self, bundle: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
        """Yield a pair for each record that the definition's steps return: the log's record, and the returned record.

        The rejected records are collected in `rejected`.
        """
        for record in bundle:
            made, reasons = self.pipeline.prepared(record)
            self.rejected += [Rejected(record, reason, self.clock.epoch) for reason in reasons]
            yield from ((record, one) for one in made)

    def run(self, bundle: Iterable[tuple[Record, Record]]) -> StepOutcome:
        arrivals = self._judged(bundle)
        windows: dict[Key, Mapping[Window, Row]] = {}
        for key in {**self.state.windows, **arrivals}:
            touched = self._arrived(key, self.state.windows.get(key, {}), arrivals.get(key, {}))
            left = {w: row for w, row in self._fired(key, touched).items() if not self._at(w.end).gone}
            if left:
                windows[key] = left
        return StepOutcome(
            WindowsState(windows, self.clock, self.state.generation), self.panes, self.late, self.rejected
        )

    def _judged(self, bundle: Iterable[tuple[Record, Record]]) -> dict[Key, dict[Window, _Arrivals]]:
        """Group the records by key and window. The list `late` receives the records that are too late for a window
        (rule M1).

        An item of `bundle` is a pair: a record of the log, and a record that the definition's steps returned for it.
        """
        columns, at, assign = self.pipeline.key, self.pipeline.log.event_time, self.pipeline.windows_of
        lifted = lifter_of_parts(self.pipeline)
        arrivals: dict[Key, dict[Window, _Arrivals]] = {}
        for source, record in bundle:
            try:
                windows, parts = assign(instant(record[at]), record), lifted(record)
            except RecordError as error:
                self.rejected.append(Rejected(source, str(error), self.clock.epoch))
                continue
            key = tuple([record.get(column) for column in columns])
            for window in windows:
                if not self._at(window.end).open:
                    self._too_late(source, key, window, "expired")
                    continue
                if key not in arrivals:
                    arrivals[key] = {}
                own = arrivals[key]
                if window in own:
                    own[window].append((source, parts))
                else:
                    own[window] = [(source, parts)]
        return arrivals

    def _arrived(self, key: Key, held: Mapping[Window, Row], arrivals: Mapping[Window, _Arrivals]) -> dict[Window, Row]:
        """Add a key's new records to its windows: merge windows that overlap, and open new windows."""
        windows = dict(held)
        merges = self.pipeline.where.merges
        spans = self._spans(held, arrivals) if merges else {window: [window] for window in arrivals}
        for span, members in spans.items():
            brought = [one for member in members for one in arrivals.get(member, ())]
            if span not in held:
                windows[span] = self._opened({member: windows.pop(member) for member in members if member in held})
            elif self.rules.done(windows[span]):
                for source, _ in brought:
                    self._too_late(source, key, span, "finished")
                continue
            # The trigger sees all records of a bundle at once, because records that merge into one session may have
            # arrived in any order (rule M5).
            if brought:
                total = self.rules.total([parts for _, parts in brought])
                windows[span] = self.rules.arrived(windows[span], len(brought), total, span.end, self.times)
        return windows

    def _spans(self, held: Mapping[Window, Row], arrived: Mapping[Window, _Arrivals]) -> dict[Window, list[Window]]:
        """Return the merged windows to which new records belong.

        The result maps a merged window to the windows that were merged into it.
        """
        if not arrived:
            return {}
        spans = self.pipeline.where.gathered({*held, *arrived})
        return {span: members for span, members in spans.items() if any(member in arrived for member in members)}

    def _opened(self, absorbed: Mapping[Window, Row]) -> Row:
        """Create a new window with the contents of the windows that are merged into it (rules M2, V2, V3).

        The waiting time of the new window starts in this epoch, in which a record for the window has arrived.
        """
        generation = max([self.state.generation, *(row["generation"] for row in absorbed.values())])
        row = self.rules.opened(generation) | {"predecessors": ()}
        for window, old in sorted(absorbed.items()):
            everything, pending, fired = self.rules.contents(old)
            fresh, fresh_on_time = old["fresh"], old["fresh_on_time"]
            measured = {name: pending[name] for name in everything if is_measure(name)}
            row = row | self.rules.absorbed(row, 0, everything | measured, window.end, self.times)
            row["fresh"] += fresh
            row["fresh_on_time"] += fresh_on_time
            row["predecessors"] += old["predecessors"]
            if old["panes"]:
                row["predecessors"] += (Predecessor(window, old["generation"], old["panes"], fired),)
        return self.rules.carried(row)

    def _fired(self, key: Key, windows: Mapping[Window, Row]) -> dict[Window, Row]:
        """Evaluate the triggers of a key's windows in each phase, and fire the last panes of windows that close.

        Returns the new rows of the windows.
        """
        after = {}
        for window, row in sorted(windows.items()):
            at, fired, moved, before = self._at(window.end), False, row, len(self.panes)
            for phase in Phase:
                fired = False
                if at.open and self._advances(moved, window.end, phase):
                    moved, fired = self._moved(key, window, moved, phase)
            if self.rules.closes(moved, at.closing, fired):
                moved, _ = self._moved(key, window, moved, None)
            after[window] = moved
            if len(self.panes) > before and not self.panes[-1].retraction and self.rules.ends(moved, at.closing):
                self.panes[-1] = replace(self.panes[-1], is_last=True)
        return after

    def _advances(self, row: Row, end: int, phase: Phase) -> bool:
        """Return True if an open window's trigger fires in this phase.

        The result is cached, because many windows have the same end, number of fresh records, waiting time and trigger
        state. If the trigger has measures, the result is not cached.
        """
        if self.rules.measures:
            return bool(self.rules.advances(row, end, True, self.times, phase))
        slots = [row[column] for column in self.rules.slots.values()]
        alike = (phase, end, row["fresh"], row["waiting_since"], *slots)
        found = self._advancing.get(alike)
        if found is None:
            found = self._advancing[alike] = bool(self.rules.advances(row, end, True, self.times, phase))
        return found

    def _moved(self, key: Key, window: Window, row: Row, phase: Phase | None) -> tuple[Row, bool]:
        """Fire a window in a phase of an epoch; return two values: the window's new row, and whether a pane was
        emitted.

        `phase` says after which change the window's trigger fired: the arrival of the records or the watermark's
        advance. It is None if the window fires not by its trigger, but because it closes.
        """
        firing, predecessors = self.rules.firing(row, True, window.end, self.times, phase), row["predecessors"]
        emitted, contents = bool(firing["emits"] or firing["takes"]), self.rules.contents(row)
        if emitted:
            self._emit(key, window, row, firing, self.times.watermark_at(phase), contents)
            predecessors = ()
        after = self.rules.fired(row, True, firing, window.end, self.times, phase, contents[0])
        return after | {"predecessors": predecessors}, emitted

    def _at(self, end: int) -> _End:
        """Return the effect of the epoch on windows that end at `end`."""
        if end not in self._ends:
            rules, times = self.rules, self.times
            gone = rules.out_of_reach(end, times.watermark)
            self._ends[end] = _End(rules.open(end, times), rules.closing(end, times), gone)
        return self._ends[end]

    def _emit(
        self, key: Key, window: Window, row: Row, firing: Row, watermark: int, contents: tuple[Row, Row, Row]
    ) -> None:
        everything, fresh, fired = contents
        timing = Timing(firing["timing"])
        for old in row["predecessors"]:
            version = Version(old.generation, self.clock.epoch, old.panes)
            self._pane(key, old.window, old.fired, old.fired, timing, watermark, version, retraction=True)
        version = Version(row["generation"], self.clock.epoch, row["panes"])
        if firing["takes"]:
            self._pane(key, window, fired, fired, timing, watermark, version, retraction=True)
        if firing["emits"]:
            values = fresh if self.rules.discards else everything
            self._pane(key, window, values, everything, timing, watermark, version, retraction=False)

    def _pane(
        self, key: Key, window: Window, values: Row, answer: Row, timing: Timing, watermark: int, version: Version,
        *, retraction: bool,
    ) -> None:  # fmt: skip
        results = self.rules.results(values)
        total = results if answer is values else self.rules.results(answer)
        times = (watermark, self.times.now)
        stamp = None if self.pipeline.stamp is None else answer[self.pipeline.stamp]
        pane = Pane(
            key, window, results, total, timing, retraction, version, *times, timestamp=stamp, parts=values,
            is_last=None if retraction else False,
        )  # fmt: skip
        self.panes.append(pane)

    def _too_late(self, record: Record, key: Key, window: Window, reason: str) -> None:
        behind = self.times.watermark_before - window.end
        self.late.append(Late(record, key, window, behind, reason, self.clock.epoch))


def _measured(measure: Measure, o: Scalars, values: Record, types: Mapping[str, str]) -> Term:
    """Return the number that a record adds to a measure of the trigger. Raises `RecordError` if the measure fails."""
    try:
        made = measure.of(o, values, types)
        if not -(2**63) <= made < 2**63:
            raise OverflowError(f"{made} is out of bigint")
        return made
    except Exception as error:
        raise RecordError(f"{type(measure).__name__}: {failure(error)}") from error


def lifter(pipeline: Pipeline) -> Callable[[Record], Row]:
    """Return the function that converts a record to its accumulator, including the trigger's measures.

    The steps of the definition must have been applied to the record.
    """
    names, lifted = list(pipeline.parts), lifter_of_parts(pipeline)
    return lambda record: dict(zip(names, lifted(record), strict=True))


def lifter_of_parts(pipeline: Pipeline) -> Callable[[Record], Sequence[Term]]:
    """Return the function that converts a record to its accumulator's parts, in the order of the definition's parts.

    If the record is a retraction, the parts undo what the retracted record added.
    """
    o, types, measures = Scalars(), pipeline.columns, pipeline.when.measures()
    later, at, stamp = pipeline.takes_back, pipeline.log.event_time, pipeline.stamp
    own_way = any(
        type(one).read is not Combiner.read or one.reals(types) or one.column not in (None, *types)
        for one in pipeline.what.values()
    )
    readers = []
    for name, combiner in pipeline.combiners.items():
        type_ = pipeline.type_of(combiner)
        names = tuple(f"{name}__{part.name}" for part in combiner.parts(type_))
        readers.append((combiner.column, type_, combiner.lift, names, combiner, combiner.reals(types)))

    def plain(record: Record) -> Sequence[Term]:
        parts: list[Term] = []
        for column, type_, lift, _, _, _ in readers:
            parts += lift(o, None if column is None else record.get(column), type_)
        return parts

    everything = list(pipeline.parts)

    def lifted(record: Record) -> Sequence[Term]:
        parts: Row = {}
        taken = later and sign_of(record) < 0
        for _, type_, lift, names, combiner, reals in readers:
            terms = lift(o, combiner.read(o, without_negative_zeros(o, record, reals), instant(record[at])), type_)
            parts.update(zip(names, taken_back(o, combiner, terms, type_) if taken else terms, strict=True))
        if measures:
            values = {column: record.get(column) for column in types}
            parts |= {f"{MEASURED}__{name}": _measured(measure, o, values, types) for name, measure in measures.items()}
        if later:
            parts[NET] = -1 if taken else 1
        if stamp is not None:
            parts[stamp] = instant(record[at])
        return [parts[name] for name in everything]

    # Most definitions need only the columns that their combiners read. For these definitions, the function `plain` is
    # used: the function is called for every record, and `plain` is faster than `lifted`.
    return lifted if later or own_way or measures or stamp is not None else plain

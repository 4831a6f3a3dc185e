"""How a backfill corrects windows that are still open in the stream (rule X4).

The totals of a window's records in the log are compared with the totals in the window's state. If the totals are equal,
the window and its state stay unchanged. If the totals differ, the window is computed again from all of its records. The
window then has the generation number of the backfill, so its panes replace all earlier panes. The window's trigger is
then evaluated in the same way as in an epoch of the stream. If the window already has an answer, or has closed, the
window always fires, so that no wrong answer remains. The stream then continues from the corrected state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.model.base.algebra import Scalars, Term
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.pipeline import Pipeline, is_measure
from tailrace.model.step.reference import prepared
from tailrace.model.step.step import Record, WindowsState, lifter
from tailrace.model.step.transition import Row, Times, Transition
from tailrace.model.triggers.combinators import Phase
from tailrace.model.windows.panes import Answers, Key, Pane, Timing, Version
from tailrace.model.windows.windows import Window

Step = Callable[[Row], Row]
"""A step of a correction: a function that takes a row and returns the columns that it adds or changes."""


@dataclass(frozen=True)
class Correction:
    """The steps that compute a window's state again from all of its records, in the algebra of `rules`.

    The row that is passed to the first step has the column `window_end` and the following columns.

    `arrived` is the number of the window's records in the log. The columns for the accumulator's parts contain the
    totals of these records. `answered` says whether the window already has an answer. `new_generation` is the
    generation of the backfill. `watermark` and `now` are the watermark and the processing time of the last epoch. After
    the last step, the column `told` is true if the window fires a pane.
    """

    rules: Transition

    @property
    def steps(self) -> list[Step]:
        """The functions that are applied to a row, one after the other."""
        return [self._opened, *(step for phase in Phase for step in self._phase(phase)), *self._phase(None)]

    def compared(self, row: Row) -> dict[str, Term]:
        """Return the totals in a window's state, to be compared with the totals in the log, as a dict from part names
        to totals.
        """
        total = self.rules.levelled(self.rules.contents(row)[0])
        return {name: term for name, term in total.items() if not is_measure(name)}

    @property
    def nothing(self) -> Row:
        """The result of `compared` for a window whose records were all retracted."""
        return self.compared(self.rules.opened(self.rules.o.literal(0, "bigint")))

    def _opened(self, row: Row) -> Row:
        opened = self.rules.opened(row["new_generation"])
        parts = {name: row[name] for name in self.rules.parts}
        arrived = self.rules.arrived(opened, row["arrived"], parts, row["window_end"], self._times(row))
        return arrived | {"told": self.rules.o.literal(False, "boolean")}

    def _phase(self, phase: Phase | None) -> list[Step]:
        rules, o = self.rules, self.rules.o

        def asks(row: Row) -> Row:
            times, always = self._times(row), o.literal(True, "boolean")
            if phase is None:
                closed = rules.closed(row["window_end"], row["watermark"])
                return {"fires": o.every(o.some(row["answered"], closed), o.no(row["told"]))}
            return {"fires": rules.advances(row, row["window_end"], always, times, phase)}

        def moves(row: Row) -> Row:
            # A correction fires at most one pane per window. These steps emit no retraction, because the correction
            # itself writes the retraction of the current answer.
            never, state = o.literal(False, "boolean"), {name: row[name] for name in rules.columns()}
            firing = {"emits": o.every(row["fires"], o.no(row["told"])), "takes": never}
            fired = rules.fired(state, row["fires"], firing, row["window_end"], self._times(row), phase)
            return fired | {"told": o.some(row["told"], row["fires"])}

        return [asks, moves]

    def _times(self, row: Row) -> Times:
        """Return a clock that stays at the watermark and processing time of the last epoch, and in which no signal
        arrives.
        """
        silent = self.rules.o.literal(False, "boolean")
        signals = dict.fromkeys(self.rules.pipeline.when.signals(), silent)
        return Times(row["watermark"], row["watermark"], row["now"], row["now"], signals)


class Corrected(NamedTuple):
    """The result of a correction: the panes with corrected answers, and the state from which the stream continues.

    If the backfill corrected anything, new windows of the stream have the backfill's generation (the first number of a
    pane's version) from then on. The reason is that a window whose answer the backfill retracted may be opened again.
    The panes of the reopened window must have higher versions than the retraction (rule V1).
    """

    state: WindowsState
    panes: list[Pane]


def correct(
    pipeline: Pipeline,
    state: WindowsState,
    records: Iterable[Record],
    held: Answers,
    generation: int,
    first: int = BEGINNING,
    last: int = END_OF_TIME,
    *,
    closed: bool = False,
) -> Corrected:
    """Correct the windows that further records can still change and whose timestamp is in `[first, last)`.

    If `closed` is True, also correct the answers of windows that no further record can change and that the state does
    not contain.

    `records` are all records in the log up to the epoch of `state`. `held` contains the current answer of each key and
    window. If windows merge, overlapping windows form a group and are corrected together, whether they come from the
    log, the state or the answers. Otherwise, the corrected state could contain two overlapping windows. A group with
    windows from the log is corrected if at least one of these windows has a timestamp in the range. A group without
    windows from the log is corrected if any of its windows has a timestamp in the range. Several backfills that
    together cover a range thus make the same corrections as a single backfill of the whole range, in whatever order
    they run (rule V5).
    """
    return _Correcting(pipeline, state, held, generation, Window(first, last), closed).run(records)


class _Correcting:
    def __init__(
        self, pipeline: Pipeline, state: WindowsState, held: Answers, generation: int, range_: Window, closed: bool
    ) -> None:
        assert state.clock is not None
        self.beyond = closed
        self.pipeline, self.state, self.held, self.generation = pipeline, state, held, generation
        self.clock, self.range = state.clock, range_
        self.rules = Transition(pipeline, Scalars())
        self.correction = Correction(self.rules)
        self.panes: list[Pane] = []

    def run(self, records: Iterable[Record]) -> Corrected:
        found, answered = totals(self.pipeline, records), dict[Key, set[Window]]()
        for key, window in self.held:
            answered.setdefault(key, set()).add(window)
        after: dict[Key, Mapping[Window, Row]] = {}
        for key in {**self.state.windows, **found, **answered}:
            held = self.state.windows.get(key, {})
            own = {window: one for window, one in found.get(key, {}).items() if self._reached(window)}
            windows = self._corrected(key, held, own, answered.get(key, set()))
            if windows:
                after[key] = windows
            if self.beyond:
                self._replaced(key, held, found.get(key, {}), answered.get(key, set()))
        moved = after != self.state.windows or self.panes
        return Corrected(
            WindowsState(after, self.clock, self.generation if moved else self.state.generation), self.panes
        )

    def _reached(self, window: Window) -> bool:
        return not self.rules.out_of_reach(window.end, self.clock.watermark)

    def _meant(self, windows: Iterable[Window]) -> bool:
        return any(self.range.start <= window.timestamp < self.range.end for window in windows)

    def _corrected(
        self, key: Key, held: Mapping[Window, Row], own: Mapping[Window, tuple[int, Row]], answered: set[Window]
    ) -> Mapping[Window, Row]:
        wrong, waiting = set[Window](), answered & self._merged_away(held)
        for group in self._groups({*held, *own, *waiting, *filter(self._reached, answered)}):
            # If a window was merged into another window, its answer is retracted when the other window fires. So a
            # window that has only such an answer is not compared.
            compared = (window for window in group if window in held or window in own or window not in waiting)
            if self._meant(group & {*own} or group) and not all(self._same(held, own, window) for window in compared):
                wrong |= group
        after = {window: row for window, row in held.items() if window not in wrong}
        lost = self._merged_away({window: held[window] for window in wrong if window in held})
        for window in sorted(wrong | lost):
            total = own.get(window) if window in wrong else None
            answer = self.held.get((key, window))
            row = None if total is None else self._started(window, total, answered=answer is not None)
            if total is None or row is None:
                self._emit(key, window, answer, None)
                continue
            after[window] = {name: row[name] for name in self.rules.columns()} | {"predecessors": ()}
            if row["told"]:
                self._emit(key, window, answer, total[1])
        return after

    def _replaced(
        self, key: Key, held: Mapping[Window, Row], found: Mapping[Window, tuple[int, Row]], answered: set[Window]
    ) -> None:
        waiting = self._merged_away(held)
        for window in sorted({*found, *answered}):
            if not self._reached(window) and self._meant((window,)) and (window in found or window not in waiting):
                parts = found[window][1] if window in found else None
                self._emit(key, window, self.held.get((key, window)), parts, open_=False)

    def _groups(self, windows: set[Window]) -> Iterable[set[Window]]:
        """Divide windows into groups; a correction applies to all windows of a group or to no window of the group."""
        if not self.pipeline.where.merges:
            return ({window} for window in windows)
        return map(set, self.pipeline.where.gathered(windows).values())

    def _merged_away(self, held: Mapping[Window, Row]) -> set[Window]:
        """Return the windows that were merged into windows of `held` and whose answers must still be retracted (rule
        V3).

        If window A was merged into window B, the answer of A is retracted when B fires.
        """
        if not self.pipeline.where.merges:
            return set()
        return {old.window for row in held.values() for old in row["predecessors"]}

    def _same(self, held: Mapping[Window, Row], own: Mapping[Window, tuple[int, Row]], window: Window) -> bool:
        if window not in held:
            return False
        compared = self.correction.compared(held[window])
        if window not in own:
            # The log has no records for this window. The state is right only if records can be retracted and the
            # state's totals are those of a window without records.
            return self.rules.later and compared == self.correction.nothing
        computed = self.rules.levelled(own[window][1])
        return compared == {name: computed[name] for name in compared}

    def _started(self, window: Window, total: tuple[int, Row], *, answered: bool) -> Row:
        row: Row = {"arrived": total[0], **total[1], "answered": answered, "new_generation": self.generation}
        row |= {"window_end": window.end, "watermark": self.clock.watermark, "now": self.clock.processing_time}
        for step in self.correction.steps:
            row = row | step(row)
        return row

    def _emit(
        self, key: Key, window: Window, before: Mapping[str, object] | None, parts: Row | None, *, open_: bool = True
    ) -> None:
        after = None if parts is None else self.rules.results(parts)
        if before == after:
            return
        version = Version(self.generation, self.clock.epoch, 0)
        for values, retraction in ((before, True), (after, False)):
            if values is not None:
                stamp = None if parts is None or self.pipeline.stamp is None else parts[self.pipeline.stamp]
                times = (self.clock.watermark, self.clock.processing_time)
                pane = Pane(
                    key,
                    window,
                    values,
                    values,
                    Timing.CORRECTION,
                    retraction,
                    version,
                    *times,
                    "backfill",
                    stamp,
                    open=open_,
                )
                self.panes.append(pane)


def totals(pipeline: Pipeline, records: Iterable[Record]) -> dict[Key, dict[Window, tuple[int, Row]]]:
    """Compute the number of records and the accumulator for each key and window.

    If the definition's windows merge, the result contains the merged windows.
    """
    rules, lifted = Transition(pipeline, Scalars()), lifter(pipeline)
    found: dict[Key, dict[Window, tuple[int, Row]]] = {}
    for _, record in prepared(pipeline, records):
        own = found.setdefault(tuple(record.get(column) for column in pipeline.key), {})
        for window in pipeline.windows_of(instant(record[pipeline.log.event_time]), record):
            parts = lifted(record)
            own[window] = (own[window][0] + 1, rules.merged(own[window][1], parts)) if window in own else (1, parts)
    if not pipeline.where.merges:
        return found
    return {key: dict(_merged(pipeline, rules, own)) for key, own in found.items()}


def _merged(
    pipeline: Pipeline, rules: Transition, own: Mapping[Window, tuple[int, Row]]
) -> Iterator[tuple[Window, tuple[int, Row]]]:
    for span, members in pipeline.where.gathered(own).items():
        count, parts = own[members[0]]
        for member in members[1:]:
            more, others = own[member]
            count, parts = count + more, rules.merged(parts, others)
        yield span, (count, parts)

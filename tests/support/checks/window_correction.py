"""The reference correction, by a backfill, of the windows of one stage (rules V5 and X4).

The correction applies the steps of `model.step.correction` to Python values, without tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.correction import Correction
from tailrace.model.step.reference import prepared
from tailrace.model.step.step import Record, WindowsState, lifter
from tailrace.model.step.transition import Row, Transition
from tailrace.model.windows.panes import Answers, Key, Pane, Timing, Version
from tailrace.model.windows.windows import Window


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
        times = self.clock.watermark, self.clock.processing_time
        stamp = None if parts is None or self.pipeline.stamp is None else parts[self.pipeline.stamp]
        for values, retraction in ((before, True), (after, False)):
            if values is not None:
                self.panes.append(Pane(
                    key, window, values, values, Timing.CORRECTION, retraction, version, *times, "backfill", stamp,
                    open=open_,
                ))  # fmt: skip


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

"""The rules by which one window changes in one epoch; all executions share these rules (rule T4).

A window's state is a row of named terms: Python values or SQL expressions (`algebra.Term`). `STATE` names the fixed
columns, and the columns `trigger_*` are the trigger's slots (named values of its state). There are two accumulators:
`fired_*` for the records that are already in panes, and `pending_*` for all later records. The rules in this module
compute rows or conditions from rows, in the algebra that is passed to `Transition`. The reference execution applies the
rules to Python values. The native execution applies the rules to SQL expressions; each rule becomes one projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.combiners import balanced_merge
from tailrace.model.combiners.basic import Combiner, Part, sum_of_longs
from tailrace.model.combiners.own import FAILED, OwnPart, merged_all, merged_parts
from tailrace.model.definition.pipeline import MEASURED, NET, UNANSWERED, Pipeline
from tailrace.model.triggers.guarded import GuardedTrigger, has_own
from tailrace.model.triggers.trigger import Moment, Phase, Trigger, slot_types
from tailrace.model.windows.panes import Accumulation, Timing

Row = dict[str, Term]
"""A dict from column names to values or SQL expressions: a window's state, or other columns that a rule takes or
returns.
"""

STATE = {
    "generation": "bigint",
    "fresh": "bigint",
    "fresh_on_time": "bigint",
    "waiting_since": "bigint",
    "panes": "bigint",
    "settled": "boolean",
}
"""The columns of a window's state, without the trigger's slots and the accumulators.

`fresh` is the number of records that are not yet in a pane. `fresh_on_time` is the number of fresh records that arrived
before the watermark passed the window's end. `waiting_since` is the processing time at which the first fresh record
arrived. `panes` is the number of panes that the window has fired. `settled` says whether a pane has fired since the
watermark passed the window's end.
"""


@dataclass(frozen=True)
class Times:
    """The clock of an epoch, as values or SQL expressions: watermarks and processing times of the last epoch and this
    epoch.
    """

    watermark_before: Term
    watermark: Term
    before: Term
    now: Term
    signals: Mapping[str, Term] = field(default_factory=dict)
    """For each signal that the trigger waits for, by name: whether the signal arrived with the epoch."""

    @classmethod
    def of(cls, pipeline: Pipeline, before: Clock | None, clock: Clock) -> Times:
        """Return the clock of an epoch as Python values.

        `before` is the clock of the preceding epoch, or None for the first epoch.
        """
        signals = {name: name in clock.signals for name in pipeline.when.signals()}
        if before is None:
            return cls(BEGINNING, clock.watermark, clock.processing_time - 1, clock.processing_time, signals)
        return cls(before.watermark, clock.watermark, before.processing_time, clock.processing_time, signals)

    def watermark_at(self, phase: Phase | None) -> Term:
        """Return the watermark of a phase: in `Phase.DATA` the watermark from before the epoch, otherwise the new
        watermark.

        The phase is None when windows close.
        """
        return self.watermark_before if phase is Phase.DATA else self.watermark


@dataclass(frozen=True)
class Transition:
    """The rules by which the windows of one definition change in an epoch; the rules are computed in the algebra
    `o`.
    """

    pipeline: Pipeline
    o: Algebra

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The parts of the definition's accumulator."""
        return self.pipeline.parts

    @cached_property
    def _trigger(self) -> Trigger:
        """The definition's trigger.

        If the trigger contains custom code that is called for each window, the trigger is wrapped in a guard against
        errors.
        """
        when = self.pipeline.when
        return GuardedTrigger(when) if isinstance(self.o, Scalars) and has_own(when) else when

    @cached_property
    def slots(self) -> dict[str, str]:
        """A dict from each slot of the trigger (a named value of its state) to the name of the column that stores the
        slot.
        """
        return {name: f"trigger_{name}" for name in self.pipeline.when.slots()}

    @cached_property
    def later(self) -> bool:
        """Whether records of the definition's log may be retracted."""
        return self.pipeline.takes_back

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """The names of the trigger's measures, which are numbers that are summed over the fresh records (`Measure`)."""
        return tuple(self.pipeline.when.measures())

    @cached_property
    def _ahead(self) -> dict[int, int]:
        return self.pipeline.log.percentiles_ahead

    def columns(self) -> dict[str, str]:
        """Return the names and types of the columns of a state row."""
        slots = {f"trigger_{name}": type for name, type in slot_types(self.pipeline.when).items()}
        parts = {name: part.type for name, part in self.pipeline.parts.items()}
        fired = {f"fired_{name}": type for name, type in parts.items()}
        pending = {f"pending_{name}": type for name, type in parts.items()}
        return STATE | slots | fired | pending

    def opened(self, generation: Term) -> Row:
        """Return the state of a new window, which contains no records."""
        o = self.o
        nothing = o.literal(0, "bigint")
        row: Row = {
            "generation": generation,
            "fresh": nothing,
            "fresh_on_time": nothing,
            "waiting_since": o.literal(None, "bigint"),
            "panes": nothing,
            "settled": o.literal(False, "boolean"),
        }
        types = slot_types(self.pipeline.when)
        for name, start in self.pipeline.when.slots().items():
            row[f"trigger_{name}"] = o.literal(start, types[name])
        zero = self._zero
        return row | self._named("fired", zero) | self._named("pending", zero)

    def done(self, row: Row) -> Term:
        """Return whether a window's trigger has finished, so that further records are too late (rule M4)."""
        return self._trigger.done(self.o, self._slots(row))

    def arrived(self, row: Row, count: Term, parts: Mapping[str, Term], end: Term, times: Times) -> Row:
        """Add `count` records, whose accumulator is `parts`, to a window's row.

        If `count` is zero, the row stays unchanged.
        """
        after = self.absorbed(row, count, parts, end, times)
        return after | self._pattern(row, parts) if self.measures else after

    def absorbed(self, row: Row, count: Term, parts: Mapping[str, Term], end: Term, times: Times) -> Row:
        """Add `count` records to a window's row, but do not pass the records to the trigger; `carried` passes them
        later.
        """
        o = self.o
        some = o.at_least(count, o.literal(1, "bigint"))
        in_time = o.no(o.at_least(times.watermark_before, end))
        starts = o.every(some, o.missing(row["waiting_since"]))
        pending = self.merged(self._acc("pending", row), parts)
        return row | {
            "fresh": o.add(row["fresh"], count, "bigint"),
            "fresh_on_time": o.add(row["fresh_on_time"], o.choose(in_time, count, o.literal(0, "bigint")), "bigint"),
            "waiting_since": o.choose(starts, times.now, row["waiting_since"]),
            **self._named("pending", pending),
        }

    def carried(self, row: Row) -> Row:
        """Pass the fresh records of a newly merged window to its trigger, as if all these records had arrived in one
        bundle.
        """
        return row | self._pattern(row, self._acc("pending", row))

    def _pattern(self, row: Row, parts: Mapping[str, Term]) -> Row:
        """Return the new values of the trigger's slot columns after records with the accumulator `parts` have arrived.

        `parts` contains the sums of the trigger's measures over these records.
        """
        measures = {name: parts[f"{MEASURED}__{name}"] for name in self.measures}
        arrived = self._trigger.arrived(self.o, self._slots(row), measures)
        return {f"trigger_{name}": term for name, term in arrived.items()}

    @cached_property
    def _lateness(self) -> int:
        return self.pipeline.lateness

    def closed(self, end: Term, watermark: Term) -> Term:
        """Return whether a window that ends at `end` is closed at this watermark (rule M1)."""
        o = self.o
        late = o.add(end, o.literal(self._lateness, "bigint"), "bigint")
        return o.at_least(watermark, o.least(late, o.literal(END_OF_TIME, "bigint")))

    def out_of_reach(self, end: Term, watermark: Term) -> Term:
        """Return whether no further record can change a window, not even by a merge with the record's window.

        The state can then drop the window.
        """
        o = self.o
        margin = o.literal(self.pipeline.lateness + self.pipeline.where.reach, "bigint")
        return o.at_least(watermark, o.least(o.add(end, margin, "bigint"), o.literal(END_OF_TIME, "bigint")))

    def open(self, end: Term, times: Times) -> Term:
        """Return whether a window that ends at `end` is open in the epoch, that is, had not closed before the epoch."""
        return self.o.no(self.closed(end, times.watermark_before))

    def closing(self, end: Term, times: Times) -> Term:
        """Return whether a window that ends at `end` closes in this epoch (rule M3)."""
        return self.o.every(self.closed(end, times.watermark), self.open(end, times))

    def advances(self, row: Row, end: Term, open_: Term, times: Times, phase: Phase) -> Term:
        """Return whether a window's trigger fires in a phase; `open_` says whether the window is open."""
        o = self.o
        moment = self._moment(row, end, times.watermark_at(phase), times, phase)
        ready = self._trigger.ready(o, self._slots(row), moment)
        fresh = o.at_least(row["fresh"], o.literal(1, "bigint"))
        return o.every(open_, ready.fires, o.some(fresh, ready.on_time))

    def closes(self, row: Row, closing: Term, fired: Term) -> Term:
        """Return whether a window fires a last pane because it closes (rule M3).

        `fired` says whether the window has already fired a pane at this watermark.
        """
        o = self.o
        fresh = o.at_least(row["fresh"], o.literal(1, "bigint"))
        if self.pipeline.closing != "always":
            return o.every(closing, fresh)
        return o.every(closing, o.some(fresh, o.no(o.some(fired, self.done(row)))))

    def ends(self, row: Row, closing: Term) -> Term:
        """Return whether a window can fire no further pane, because it closes or its trigger has finished (rule M4)."""
        return self.o.some(closing, self.done(row)) if self.pipeline.finishing == "close" else closing

    def changes_without_records(self, row: Row, end: Term, times: Times) -> Term:
        """Return whether an epoch without new records makes a window fire a pane, or removes the window from the
        state.
        """
        o, open_ = self.o, self.open(end, times)
        last = self.closes(row, self.closing(end, times), o.literal(False, "boolean"))
        due = o.some(last, self.out_of_reach(end, times.watermark))
        for phase in Phase:
            due = o.some(due, self.advances(row, end, open_, times, phase))
        return due

    def firing(self, row: Row, advances: Term, end: Term, times: Times, phase: Phase | None) -> Row:
        """Return whether a pane is emitted, whether the window's preceding answer is retracted, and the timing of the
        pane.

        `phase` is None if the window is closing.

        `advances` says whether the window fires. The result has three columns: `emits` (whether a pane is emitted),
        `takes` (whether the preceding answer is retracted) and `timing` (the timing of the pane).

        In a later stage, a window has no answer if all of its records were retracted. In this case, the earlier answer
        is retracted and no pane is emitted (rule V4 states the same for backfills).
        """
        o, one, never = self.o, self.o.literal(1, "bigint"), self.o.literal(False, "boolean")
        wanted, timing = advances, self._timing(row, end, times.watermark_at(phase))
        if phase is not None and self.pipeline.on_time == "if_non_empty":
            wanted = o.every(advances, o.at_least(row["fresh"], one))
        if not self.later:
            before = o.at_least(row["panes"], one)
            return {"emits": wanted, "takes": o.every(wanted, before) if self.retracts else never, "timing": timing}
        fired = row[f"fired_{NET}"]
        some = o.at_least(o.add(fired, row[f"pending_{NET}"], "bigint"), one)
        takes = o.every(wanted, o.at_least(fired, one))
        takes = takes if self.retracts else o.every(takes, o.no(some))
        return {"emits": o.every(wanted, some), "takes": takes, "timing": timing}

    def contents(self, row: Row) -> tuple[Row, Row, Row]:
        """Return three accumulators of a window: for all records, for the fresh records, and for the records already in
        panes.
        """
        fired, pending = self._acc("fired", row), self._acc("pending", row)
        return self.merged(fired, pending), pending, fired

    def fired(
        self,
        row: Row,
        advances: Term,
        firing: Row,
        end: Term,
        times: Times,
        phase: Phase | None,
        everything: Row | None = None,
    ) -> Row:
        """Return a window's row after a phase.

        If `advances` is true, the window fires, and the accumulator `fired_*` of the new row covers all records.
        Otherwise, the row is unchanged.
        """
        o = self.o
        watermark, nothing = times.watermark_at(phase), o.literal(0, "bigint")
        # In a later stage, a retraction may be emitted alone, without a new pane that replaces the retracted answer.
        # Such a retraction is counted like a pane, because it has a version, as a pane does.
        emitted = firing["emits"] if not self.later else o.some(firing["emits"], firing["takes"])
        total = self.contents(row)[0] if everything is None else everything
        fired, pending, zero = self._acc("fired", row), self._acc("pending", row), self._zero
        after = row | {
            "fresh": o.choose(advances, nothing, row["fresh"]),
            "fresh_on_time": o.choose(advances, nothing, row["fresh_on_time"]),
            "waiting_since": o.choose(advances, o.literal(None, "bigint"), row["waiting_since"]),
            "panes": o.add(row["panes"], o.choose(emitted, o.literal(1, "bigint"), nothing), "bigint"),
            "settled": o.some(row["settled"], o.every(advances, o.at_least(watermark, end))),
            **self._named("fired", {name: o.choose(advances, total[name], fired[name]) for name in fired}),
            **self._named("pending", {name: o.choose(advances, zero[name], pending[name]) for name in pending}),
        }
        if phase is not None:
            moment = self._moment(row, end, watermark, times, phase)
            slots = self._slots(row)
            for name, value in self._trigger.fired(o, slots, moment).items():
                after[f"trigger_{name}"] = o.choose(advances, value, slots[name])
        return after

    def merged(self, a: Mapping[str, Term], b: Mapping[str, Term]) -> Row:
        """Merge two accumulators into one accumulator, which covers the records of both accumulators."""
        if not self._guarded:
            return {name: part.merged(self.o, a[name], b[name]) for name, part in self.parts.items()}
        names = list(self.parts)
        both = ([of[name] for name in names] for of in (a, b))
        return dict(zip(names, merged_parts(self.o, list(self.parts.values()), *both), strict=True))

    def total(self, lifted: Sequence[Sequence[Term]]) -> Row:
        """Merge the accumulator parts of records into one accumulator; there must be at least one record."""
        columns = dict(zip(self.parts, zip(*lifted, strict=True), strict=True))
        row: Row = {}
        for name, part, merged in self._merging:
            if isinstance(part, OwnPart) and part.fails:
                why = f"{name}{FAILED}"
                row[name], row[why] = merged_all(part, list(zip(columns[name], columns[why], strict=True)))
            elif name not in row:  # The reason for a failure comes with the state.
                total = sum_of_longs(part, columns[name])
                row[name] = balanced_merge.total(columns[name], merged) if total is None else total
        return row

    @cached_property
    def _guarded(self) -> bool:
        """Whether custom code merges some part of the accumulator. Such code may fail."""
        return any(f"{name}{FAILED}" in self.parts for name in self.parts)

    @cached_property
    def _merging(self) -> list[tuple[str, Part, Callable[[Term, Term], Term]]]:
        return [(name, part, partial(part.merged, self.o)) for name, part in self.parts.items()]

    def levelled(self, parts: Mapping[str, Term]) -> Row:
        """Return an accumulator in a form that does not depend on the order of its records (`Algebra.levelled`)."""
        row = dict(parts)
        for name, part in self.parts.items():
            if part.unit:
                high = f"{name}_high"
                row[high], row[name] = self.o.levelled(parts[high], parts[name], part.unit, part.type)
        return row

    def results(self, parts: Mapping[str, Term]) -> Row:
        """Compute the results from an accumulator; return a dict from the name of each result to its value.

        If a result is null because its value does not fit its type, the returned row also contains the reason.
        """
        row, whys = {}, []
        for name, combiner, type_, own in self._answering:
            named = {part: parts[column] for part, column in own}
            row[name] = combiner.result(self.o, named, type_)
            # The reason for a null result is needed only if the result is null. When a SQL expression is built, the
            # value of the result is not yet known, so the expression always computes the reason.
            if combiner.leaves(type_) and not (isinstance(self.o, Scalars) and row[name] is not None):
                of = self.o.literal(f"{name}: ", "string")
                whys.append(self.o.text(of, combiner.why_null(self.o, named, type_)))
        if whys and (why := self.o.listed(*whys)) is not None:
            row[UNANSWERED] = why
        return row

    @cached_property
    def _answering(self) -> list[tuple[str, Combiner, str | None, list[tuple[str, str]]]]:
        """A tuple per result: its name, its combiner, the type of the combiner's column, and pairs of a part and a
        column name.
        """
        found = []
        for name, combiner in self.pipeline.combiners.items():
            type_ = self.pipeline.type_of(combiner)
            own = [(part.name, f"{name}__{part.name}") for part in combiner.parts(type_)]
            found.append((name, combiner, type_, own))
        return found

    @property
    def retracts(self) -> bool:
        """Whether each pane of a window retracts the preceding pane."""
        return self.pipeline.how is Accumulation.RETRACTING

    @property
    def discards(self) -> bool:
        """Whether each pane of a window contains only the fresh records."""
        return self.pipeline.how is Accumulation.DISCARDING

    def _timing(self, row: Row, end: Term, watermark: Term) -> Term:
        o = self.o
        passed = o.at_least(watermark, end)
        nothing = o.literal(0, "bigint")
        in_time = o.some(o.equal(row["fresh"], nothing), o.at_least(row["fresh_on_time"], o.literal(1, "bigint")))
        on_time = o.every(o.no(row["settled"]), in_time)
        early, timely, late = (o.literal(t.value, "string") for t in (Timing.EARLY, Timing.ON_TIME, Timing.LATE))
        return o.choose(passed, o.choose(on_time, timely, late), early)

    def _moment(self, row: Row, end: Term, watermark: Term, times: Times, phase: Phase) -> Moment:
        measures = {name: row[f"pending_{MEASURED}__{name}"] for name in self.measures}
        return Moment(
            phase, row["fresh"], row["waiting_since"], end, watermark, times.now, times.before, measures,
            self._ahead, times.signals,
        )  # fmt: skip

    def _slots(self, row: Row) -> Row:
        return {name: row[column] for name, column in self.slots.items()}

    def _acc(self, which: str, row: Row) -> Row:
        return {name: row[column] for name, column in self._columns[which]}

    def _named(self, which: str, parts: Mapping[str, Term]) -> Row:
        return {column: parts[name] for name, column in self._columns[which]}

    @cached_property
    def _columns(self) -> dict[str, list[tuple[str, str]]]:
        """A dict from each accumulator (`fired`, `pending`) to pairs: the name of a part, and the name of the part's
        column.
        """
        return {which: [(name, f"{which}_{name}") for name in self.parts] for which in ("fired", "pending")}

    @cached_property
    def _zero(self) -> Row:
        return {name: part.zero(self.o) for name, part in self.parts.items()}

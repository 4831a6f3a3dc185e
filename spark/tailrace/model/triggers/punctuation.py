"""Triggers that depend on the contents of records: bytes, punctuation, patterns of arrivals (Dataflow Model, 2.3).

A trigger in this module does not read the records themselves. Instead, the trigger uses a `Measure`: a number that is
computed from each record and summed over the fresh records, in the same way as the accumulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.conditions import Condition, condition_faults
from tailrace.model.base.errors import Fault, whole_faults
from tailrace.model.triggers.trigger import Measure, Moment, Once, PositionalParts, Ready, Slots


@dataclass(frozen=True)
class _Bytes:
    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def of(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        term = record.get(self.column)
        given = o.choose(o.missing(term), o.literal("", "string"), term)
        return o.size(given)


@dataclass(frozen=True)
class AfterBytes(Once):
    """A trigger that fires once, when a string column of the fresh records contains at least `size` bytes of UTF-8 in
    total.
    """

    counts = False

    size: int
    column: str

    def measures(self) -> dict[str, Measure]:
        return {"bytes": _Bytes(self.column)}

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        reached = o.at_least(moment.measures["bytes"], o.literal(self.size, "bigint"))
        return Ready(reached, o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        return whole_faults(f"{path}.size", self.size, f"write AfterBytes(1_000_000, {self.column!r})")

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if types.get(self.column) != "string":
            strings = ", ".join(name for name, type in types.items() if type == "string") or "there is none"
            yield Fault(f"{path}.column", self.column, f"a string column of the log ({strings})", "name one of those")


@dataclass(frozen=True)
class _Matches:
    condition: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        return self.condition.columns

    def of(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        one, none = o.literal(1, "bigint"), o.literal(0, "bigint")
        return o.choose(self.condition.holds(o, record, types), one, none)


@dataclass(frozen=True)
class AfterMatch(Once):
    """A trigger that fires once, when a fresh record that meets the condition has arrived.

    The condition typically recognizes punctuation in the data (Dataflow Model, 2.3).
    """

    counts = False

    condition: Condition

    def measures(self) -> dict[str, Measure]:
        return {"matches": _Matches(self.condition)}

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        came = o.at_least(moment.measures["matches"], o.literal(1, "bigint"))
        return Ready(came, o.literal(False, "boolean"))

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        return condition_faults(f"{path}.condition", self.condition, types)


class AfterPattern(PositionalParts[Condition], Once):
    """A trigger that fires once, when records that meet the conditions have arrived in the order of the conditions.

    Other records may arrive in between. The trigger is evaluated once per bundle, so the order of the records within a
    bundle does not matter (rule M5). If each bundle contains one record, the trigger follows the exact order in which
    the records arrive. When windows merge, the pattern starts over with the fresh records.
    """

    counts = False

    def slots(self) -> dict[str, bool | int]:
        return {**super().slots(), "met": 0}

    def measures(self) -> dict[str, Measure]:
        return {f"met_{place}": _Matches(condition) for place, condition in enumerate(self.parts)}

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        met, one = slots["met"], o.literal(1, "bigint")
        for place in range(len(self.parts)):
            here = o.equal(met, o.literal(place, "bigint"))
            came = o.at_least(measures[f"met_{place}"], one)
            met = o.choose(o.every(here, came), o.literal(place + 1, "bigint"), met)
        return {**slots, "met": met}

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        whole = o.at_least(slots["met"], o.literal(len(self.parts), "bigint"))
        return Ready(o.every(o.no(slots["done"]), whole), o.literal(False, "boolean"))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        fires = self.ready(o, slots, moment).fires
        # The pattern also starts over if another trigger fires a pane, because this pane contains all records that have
        # met a condition of the pattern so far.
        return {"done": o.some(slots["done"], fires), "met": o.literal(0, "bigint")}

    def faults(self, path: str) -> Iterable[Fault]:
        if not self.parts:
            example = 'write for example AfterPattern(Match("kind", "==", "open"), Match("kind", "==", "close"))'
            yield Fault(path, self, "at least one condition", example)

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        for place, condition in enumerate(self.parts):
            yield from condition_faults(f"{path}[{place}]", condition, types)

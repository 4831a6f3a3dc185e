"""A map: a definition that converts records to records, without a key or windows (the ParDo of Dataflow Model, 2.1).

The output for a record depends on that record alone. So a map keeps no state, and no record is ever too late for a map.
The output for a record belongs to the same epoch as the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from tailrace.model.base.conditions import Condition, condition_faults
from tailrace.model.base.errors import Fault, raise_faults, unknown_column
from tailrace.model.base.names import RESERVED, duplicate_faults, name_faults
from tailrace.model.base.several import Several
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.definition import Windowless
from tailrace.model.definition.fingerprint import digest, of_log
from tailrace.model.definition.record_steps import (
    ElementWise,
    Prepared,
    Reasons,
    Record,
    SetAside,
    columns_after,
    columns_read,
    meets,
    own_steps,
    steps_faults,
    taken_through,
    unkept_faults,
)
from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, taken_back
from tailrace.model.logs.log import PANE_TIME, PLACE, Log, missing_log
from tailrace.model.windows.panes import Rejected


@dataclass(frozen=True, kw_only=True)
class Map(Windowless):
    """A definition that converts each record of a log, exactly once and in the record's epoch, to any number of
    records.

    `each` has the steps that are applied to every record. `keep` is a condition, and records that do not meet the
    condition are dropped. `what` names the output columns, by default all columns. The output always has the column
    `event_time`, too. If a step cannot process a record, the record is rejected, and the reason is stored.

    A map reads a source's log, or the productions of a computation or of another map. `produced` is the map's output as
    a log that other definitions can read.
    """

    kind_name = "map"

    name: str
    log: Log
    each: Several[ElementWise] = Several()
    keep: Condition | None = None
    what: Several[str] = Several()

    def __post_init__(self) -> None:
        raise_faults(self.name, _faults(self))

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The columns of the map's records after the steps, with their types."""
        return MappingProxyType(dict(columns_after(self.each, self.log.columns)))

    @property
    def results(self) -> dict[str, str]:
        """The output columns and their types, without the event time."""
        return {name: self.columns[name] for name in self.what or self.columns if name != PANE_TIME}

    def passed_on(self, column: str) -> tuple[Log, str] | None:
        types: Mapping[str, str] = self.log.columns
        for step in (None, *self.each):
            types = types if step is None else step.columns(types)
            if column not in types:
                return None
        return self.log, column

    @property
    def multiplies(self) -> bool:
        """Whether one record of the source's log may result in several output rows."""
        before = self.log.of if isinstance(self.log, Productions) else None
        return any(one.multiplies for one in self.each) or (isinstance(before, Map) and before.multiplies)

    def prepared(self, record: Record) -> Prepared:
        """Apply the steps to a record of the log, and drop the resulting records that do not meet `keep`."""
        made, reasons = taken_through(self.each, record, self.log.columns)
        return Prepared([one for one in made if meets(self.keep, one, self.columns)], reasons)

    def with_set_aside(self, reasons: Reasons) -> Self:
        return replace(self, each=(SetAside(reasons), *own_steps(self.each)))

    @cached_property
    def used(self) -> frozenset[str]:
        return self._used(self.results)

    def _used(self, wanted: Iterable[str]) -> frozenset[str]:
        """Return the columns of the log that the map uses to compute some of its output columns."""
        read = columns_read(self.each, self.log.columns).union(wanted, () if self.keep is None else self.keep.columns)
        return read & self.log.columns.keys()

    @property
    def meaning(self) -> dict[str, Any]:
        """The parts that determine the map's meaning, as a dict from the part's name to its value.

        If the definition leaves out an option, the dict has no part for that option.
        """
        return self._meaning(self.used, list(self.results))

    def _meaning(self, used: Collection[str] | None, what: list[str]) -> dict[str, Any]:
        found = of_log(self.log, used) | {"what": what}
        if self.keep is not None:
            found["keep"] = written(self.keep)
        if own := own_steps(self.each):
            found["each"] = list(map(written, own))
        return found

    @property
    def fingerprint(self) -> str:
        """A digest of everything that determines the map's meaning; compare `Pipeline.fingerprint`."""
        return self._digest(self.meaning)

    @property
    def former_fingerprint(self) -> str:
        return self._digest(self._meaning(None, list(self.results)))

    def fingerprint_of(self, columns: Collection[str]) -> str:
        what = [name for name in self.results if name in columns]
        return self._digest(self._meaning(self._used(what), what))

    def _digest(self, meaning: Mapping[str, Any]) -> str:
        return digest(("map", sorted(meaning.items())))


def _faults(definition: Map) -> Iterable[Fault]:
    """Find all faults of a map."""
    yield from name_faults("name", definition.name)
    log: object = definition.log
    if not isinstance(log, Log):
        yield missing_log(log, "log=earlier.produced for what another one produces")
        return
    if log.takes_back:
        which = "panes" if isinstance(log, Panes) else "produced"
        remedy = f"read the log that {log.name} reads, or write the steps into a Pipeline over {log.name}.{which}"
        yield taken_back("log", log, remedy)
        return
    if isinstance(log, Arrivals):
        yield log.refused("log")
        return
    steps = list(steps_faults(definition.each, log.columns))
    yield from steps
    if steps:
        return
    if definition.keep is not None:
        yield from condition_faults("keep", definition.keep, definition.columns)
    yield from _output_faults(definition)
    yield from unkept_faults(definition.each, log)


def _output_faults(definition: Map) -> Iterable[Fault]:
    """Find the faults of a map's output columns."""
    columns = definition.columns
    for place, column in enumerate(definition.what or columns):
        path = f"what[{place}]"
        if column not in columns:
            yield unknown_column(path, column, columns)
        elif column in RESERVED | {"source_epoch"} and not column == PANE_TIME == definition.log.event_time:
            mend = f'leave it out of what, or let it go out as another: each=Derive({{"my_{column}": Col("{column}")}})'
            yield Fault(path, column, "a name that the tables do not use themselves", mend)
    yield from duplicate_faults("what", definition.what)


@dataclass(frozen=True)
class Mapped:
    """A record that a map outputs.

    `at` is the event time in microseconds; `place` is the position of the input record in its log.
    """

    values: Mapping[str, Any]
    at: int
    epoch: int
    place: tuple[Any, ...]


def step(definition: Map, bundle: Iterable[Record], epoch: int) -> tuple[list[Mapped], list[Rejected]]:
    """Apply a map to an epoch's records, and return the output records and the rejected records.

    Tests compare the results of every engine with the results of this function.

    >>> from tailrace.model.base.expressions import Col
    >>> from tailrace.model.definition.record_steps import Derive
    >>> log = Log(name="sales", columns={"at": "timestamp", "cents": "bigint"}, event_time="at")
    >>> euros = Map(name="euros", log=log, each=Derive({"euros": Col("cents") // 100}), what="euros")
    >>> [dict(one.values) for one in step(euros, [{"at": moment(0), "cents": 250}], 0)[0]]
    [{'euros': 2}]
    """
    made: list[Mapped] = []
    rejected: list[Rejected] = []
    for record in bundle:
        at, place = instant(record[definition.log.event_time]), tuple(record.get(name) for name in PLACE)
        given, reasons = definition.prepared(record)
        made += [Mapped({name: one[name] for name in definition.results}, at, epoch, place) for one in given]
        rejected += [Rejected(record, reason, epoch) for reason in reasons]
    return made, rejected


def record_of(mapped: Mapped) -> dict[str, Any]:
    """Convert an output record of a map to an input record for the definitions that read the map."""
    return {**mapped.values, PANE_TIME: moment(mapped.at), **dict(zip(PLACE, mapped.place, strict=True))}

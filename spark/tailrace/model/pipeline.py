"""A definition: what is computed, where in event time, when in processing time, and how panes relate.

`Log` says what the records look like, `Pipeline` asks the paper's four questions of them (Dataflow Model, 1 and 2).
Both are frozen and checked as a whole: a definition that makes no sense is refused with every fault at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from tailrace.model.algebra import Scalars
from tailrace.model.clock import BoundedDisorder
from tailrace.model.combiners import Combiner, Merge, Part
from tailrace.model.errors import DefinitionError, Fault, unknown_column
from tailrace.model.matching import Condition, condition_faults
from tailrace.model.own import OwnWindows
from tailrace.model.panes import ACCUMULATING, Accumulation
from tailrace.model.time import END_OF_TIME, duration
from tailrace.model.triggers import AtWatermark, Sequence, Trigger, trigger_faults
from tailrace.model.types import is_type
from tailrace.model.windows import PHASE_TYPES, Fixed, Windowing
from tailrace.model.written import written

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

# fmt: off
RESERVED = frozenset({
    "kind", "window_start", "window_end", "generation", "epoch", "pane_index", "timing", "retraction", "watermark",
    "processing_time", "writer", "answer", "fired", "pending", "trigger", "predecessors", "gone", "fresh",
    "fresh_on_time", "waiting_since", "panes", "settled", "arrived", "latest", "event_time", "behind", "reason",
    "source_partition", "source_offset", "when",
})
# fmt: on
"""Column names that the tables of a pipeline use themselves."""

MEASURED = "when"
"""What stands before those parts of the accumulator that the trigger measures, as a result's name before its own."""


def is_measure(part: str) -> bool:
    """Whether a part of the accumulator is one of the trigger's measures, and of no result.

    >>> is_measure("when__bytes"), is_measure("total__n")
    (True, False)
    """
    return part.startswith(f"{MEASURED}__")


EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Log:
    """What the records of a log look like, and how far out of order they may come.

    `columns` maps names to types; `event_time` names the timestamp column that says when a record happened, and
    `arrival_time` one that says when it became known, where the source has such a column (else the epoch's
    processing time stands). Records with an event time outside `[earliest, latest)` are rejected, for one of them
    would carry the watermark to the end of time. `disorder` bounds how far the watermark trails the latest event.
    `unknown` says what happens to a record with a column that is not declared: "reject" or "ignore".
    """

    name: str
    columns: Mapping[str, str]
    event_time: str
    arrival_time: str | None = None
    disorder: timedelta = timedelta(0)
    earliest: datetime = EARLIEST
    latest: datetime = LATEST
    unknown: Literal["reject", "ignore"] = "reject"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        faults = list(self._faults())
        if faults:
            raise DefinitionError(str(self.name), faults)

    @property
    def watermark(self) -> BoundedDisorder:
        """How the log's watermark follows its records."""
        return BoundedDisorder(self.disorder)

    def _faults(self) -> Iterable[Fault]:
        yield from _name_faults("log.name", self.name)
        if not self.columns:
            yield Fault("log.columns", {}, "at least one column", 'write columns={"at": "timestamp"}')
        for name, type in self.columns.items():
            yield from _name_faults(f"log.columns[{name!r}]", name)
            if not is_type(type):
                yield Fault(
                    f"log.columns[{name!r}]",
                    type,
                    "a column type",
                    "use string, boolean, int, bigint, double, decimal(p,s), date or timestamp",
                )
        for role in ("event_time", "arrival_time"):
            column = getattr(self, role)
            if column is None and role == "arrival_time":
                continue
            if column not in self.columns:
                yield unknown_column(f"log.{role}", column, self.columns)
            elif self.columns[column] != "timestamp":
                yield Fault(f"log.{role}", column, "a timestamp column", f"declare {column!r} as timestamp")
        if not _waits(self.disorder):
            yield Fault("log.disorder", self.disorder, "a duration of zero or more", "write minutes(10)")
        yield from self._bounds_faults()
        if self.unknown not in ("reject", "ignore"):
            yield Fault("log.unknown", self.unknown, '"reject" or "ignore"', 'leave it out for "reject"')

    def _bounds_faults(self) -> Iterable[Fault]:
        zoned = True
        for bound in ("earliest", "latest"):
            value = getattr(self, bound)
            if not isinstance(value, datetime) or value.tzinfo is None:
                zoned = False
                yield Fault(
                    f"log.{bound}", value, "an instant", "write datetime(2020, 1, 1, tzinfo=UTC), or leave it out"
                )
        if zoned and not self.earliest < self.latest:
            yield Fault("log.earliest", str(self.earliest), "before latest", "swap earliest and latest")


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One windowed definition, the same for stream, backfill and reference.

    what: the named results and the combiner of each. where: the windowing. when: the trigger. how: the accumulation.
    `key` names the columns that the records are grouped by; none for one group. `keep` leaves out the records that do
    not meet a condition; the watermark is the log's, and follows them all. `on_time` says whether the pane at
    the watermark fires with nothing fresh, `closing` whether a window's last pane does (rule M3). `finishing` must be
    "close" for a trigger that can be done while records may still come: they are then too late (rule M4).
    """

    name: str
    log: Log
    what: Mapping[str, Combiner]
    where: Windowing
    key: tuple[str, ...] = ()
    keep: Condition | None = None
    when: Trigger = field(default_factory=AtWatermark)
    how: Accumulation = ACCUMULATING
    allowed_lateness: timedelta = timedelta(0)
    on_time: Literal["always", "if_non_empty"] = "always"
    closing: Literal["always", "if_non_empty"] = "if_non_empty"
    finishing: Literal["refuse", "close"] = "refuse"

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", MappingProxyType(dict(self.what)))
        one: object = self.key
        key = (one,) if isinstance(one, str) else tuple(self.key)
        object.__setattr__(self, "key", key)
        faults = list(self._faults())
        if faults:
            raise DefinitionError(str(self.name), faults)

    def closes(self, end: int) -> int:
        """When the watermark closes a window that ends at `end`, in microseconds (rule M1)."""
        return min(END_OF_TIME, end + self.lateness)

    @property
    def lateness(self) -> int:
        """The allowed lateness in microseconds."""
        return duration(self.allowed_lateness)

    def keeps(self, record: Mapping[str, Any]) -> bool:
        """Whether a record of the log is one of the definition's."""
        if self.keep is None:
            return True
        values = {column: record.get(column) for column in self.keep.columns}
        return bool(self.keep.holds(Scalars(), values, self.log.columns))

    @property
    def parts(self) -> dict[str, Part]:
        """Every part of the accumulator, by the result's name and the part's: `mean_delay__total`.

        What the trigger measures is added up beside them.
        """
        parts = {
            f"{name}__{part.name}": part
            for name, combiner in self.what.items()
            for part in combiner.parts(self.type_of(combiner))
        }
        measures = {f"{MEASURED}__{name}": Part(name, "bigint", Merge.ADD) for name in self.when.measures()}
        return parts | measures

    @property
    def results(self) -> dict[str, str]:
        """The named results' column types."""
        return {name: combiner.result_type(self.type_of(combiner)) for name, combiner in self.what.items()}

    def type_of(self, combiner: Combiner) -> str | None:
        """The type of the column that a combiner reads, None if it reads none."""
        return None if combiner.column is None else self.log.columns[combiner.column]

    @property
    def fingerprint(self) -> str:
        """A digest of everything that gives the definition its meaning. Its name and the source do not.

        Parts are taken as they are written, without what they leave out: a new option changes no digest.
        """
        meaning: tuple[object, ...] = (
            sorted(self.log.columns.items()),
            (self.log.event_time, self.log.disorder),
            (self.key, sorted((name, written(combiner)) for name, combiner in self.what.items())),
            (written(self.where), written(self.when), self.how.value, self.allowed_lateness),
            (self.on_time, self.closing, self.finishing),
        )
        meaning += () if self.keep is None else (written(self.keep),)
        return hashlib.sha256(repr(meaning).encode()).hexdigest()[:16]

    def _faults(self) -> Iterable[Fault]:
        yield from _name_faults("name", self.name)
        log: object = self.log
        if not isinstance(log, Log):
            yield Fault("log", log, "a log", 'write log=Log(name="rides", columns=..., event_time=...)')
            return
        yield from self._key_faults()
        if self.keep is not None:
            yield from condition_faults("keep", self.keep, self.log.columns)
        yield from self._what_faults()
        if isinstance(self.where, type) or not hasattr(self.where, "assign"):
            yield Fault("where", self.where, "a windowing", "write for example where=Fixed(hours(1))")
        else:
            yield from self.where.faults("where")
            yield from self._where_faults()
        if not isinstance(self.how, Accumulation):
            yield Fault("how", self.how, "an accumulation", "use DISCARDING, ACCUMULATING or RETRACTING")
        for option in ("on_time", "closing"):
            if getattr(self, option) not in ("always", "if_non_empty"):
                yield Fault(option, getattr(self, option), '"always" or "if_non_empty"', "leave it out")
        yield from self._when_faults()

    def _key_faults(self) -> Iterable[Fault]:
        for place, column in enumerate(self.key):
            if column not in self.log.columns:
                yield unknown_column(f"key[{place}]", column, self.log.columns)
            elif self.log.columns[column] == "double":
                yield Fault(f"key[{place}]", column, "a column that compares exactly", "declare it as decimal(p,s)")
            elif column in RESERVED:
                yield _reserved(f"key[{place}]", column)
        if len(set(self.key)) < len(self.key):
            yield Fault("key", self.key, "each column once", "leave out the repeated one")

    def _where_faults(self) -> Iterable[Fault]:
        if isinstance(self.where, OwnWindows) and self.where.merges and self.where.reach <= 0:
            expected = "how long after it closes a window can be reached through one that is open, in microseconds"
            yield Fault("where.reach", self.where.reach, expected, "give the longest gap that its windows merge over")
        for column in self.where.columns if isinstance(self.where, Fixed) else ():
            if column not in self.key:
                expected = f"a column of the key ({', '.join(self.key) or 'there is none'})"
                yield Fault("where.phase", column, expected, f"write key=({column!r},), or leave phase out")
            elif self.log.columns.get(column) not in (*PHASE_TYPES, None):
                expected = f"a column of type {', '.join(PHASE_TYPES)}"
                yield Fault("where.phase", f"{column}: {self.log.columns[column]}", expected, "take another column")

    def _what_faults(self) -> Iterable[Fault]:
        if not self.what:
            yield Fault("what", {}, "at least one result", 'write what={"records": Count()}')
        for name, combiner in self.what.items():
            path = f"what[{name!r}]"
            yield from _name_faults(path, name)
            if name in RESERVED or "__" in str(name):
                yield _reserved(path, name)
            if name in self.key:
                yield Fault(path, name, "a name that the key does not have", "rename the result")
            if isinstance(combiner, type) or not hasattr(combiner, "parts"):
                yield Fault(path, combiner, "a combiner", 'write for example Sum("price")')
            elif combiner.column is not None and combiner.column not in self.log.columns:
                yield unknown_column(f"{path}.column", combiner.column, self.log.columns)
            else:
                yield from combiner.faults(path, self.type_of(combiner))

    def _when_faults(self) -> Iterable[Fault]:
        late = self.allowed_lateness
        if not _waits(late):
            yield Fault("allowed_lateness", late, "a duration of zero or more", "write hours(3)")
            return
        if self.finishing not in ("refuse", "close"):
            yield Fault("finishing", self.finishing, '"refuse" or "close"', "leave it out")
        faults = list(trigger_faults("when", self.when))
        if not faults:
            faults = list(self.when.column_faults("when", self.log.columns))
        yield from faults
        if faults:
            return
        yield from _never_in_time("when", self.when, late)
        if self.when.finishes and self.finishing == "refuse":
            if not self.when.finishes_only_on_time:
                yield Fault(
                    "when",
                    self.when,
                    "a trigger that goes on for as long as records may come",
                    "records after its last pane would be too late: put it in Repeat(...), or set "
                    'finishing="close" if that is meant',
                )
            elif late > timedelta(0):
                yield Fault(
                    "allowed_lateness",
                    str(late),
                    "a trigger with a late part, or no lateness",
                    "late records would be accepted by the window and lost by its trigger: write "
                    'AfterWatermark(late=AfterCount(1)), or set finishing="close" if that is meant',
                )


def _never_in_time(path: str, trigger: Trigger, late: timedelta) -> Iterable[Fault]:
    """Parts of a sequence that get their turn only when the window is closed."""
    if isinstance(trigger, Sequence) and late == timedelta(0):
        for place, part in enumerate(trigger.parts[:-1]):
            if part.finishes_only_on_time:
                yield Fault(
                    f"{path}[{place + 1}]",
                    trigger.parts[place + 1],
                    "a trigger that gets its turn before the window closes",
                    "it can never fire, for with no lateness the window closes at the watermark: set "
                    "allowed_lateness, or leave the late part out",
                )
                return


def _waits(value: object) -> bool:
    return isinstance(value, timedelta) and value >= timedelta(0)


def _name_faults(path: str, name: object) -> Iterable[Fault]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "a name of up to 63 lower-case letters, digits and _"
        yield Fault(path, name, expected, "rename it, for example hourly_rides")


def _reserved(path: str, name: object) -> Fault:
    other = "my_" + str(name).replace("__", "_")
    return Fault(path, name, "a name that the tables do not use themselves", f"rename it, for example {other}")

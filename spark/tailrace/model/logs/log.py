"""Logs: the columns of their records, and how far out of order the records may come.

A log is a source's, or it is the panes of a stage as a later one reads them (`Panes`): answers, each with its event
time, and retractions, each of which takes an answer back. The productions of a computation or a map are a log, too
(`Productions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from tailrace.model.base.errors import DefinitionError, Fault, unknown_column
from tailrace.model.base.names import name_faults
from tailrace.model.base.several import Several
from tailrace.model.base.time import duration, waits
from tailrace.model.base.types import is_type
from tailrace.model.logs.watermark_strategies import BoundedDisorder, WatermarkStrategy

UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
"""The units of instants that are given as whole numbers."""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

AHEAD = timedelta(days=1)
"""How far an event time may be ahead of its arrival, where a log has a column of arrivals and sets no bound itself."""

FARTHEST_AHEAD = LATEST - EARLIEST


LARGEST = 100 * 2**20
"""The bytes that a record may have where the log says so: Spark has no room for a value of 128 MB."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """The columns of a log's records, and how far out of order the records may come.

    `columns` maps names to types; `event_time` names the timestamp column that says when a record happened, and
    `arrival_time` one that says when it became known, where the source has such a column (else a record arrives when
    its file was written, or at its message's timestamp). Records with an event time outside `[earliest, latest)` are
    rejected, for a single one could carry the watermark to the end of time. So are records whose event time is more
    than `ahead` after their arrival: by default a day where there is an `arrival_time`, else no bound; None sets none.
    `disorder` bounds how far the watermark trails the latest event of each partition,
    and is short for `watermark=BoundedDisorder(...)`; other strategies are in `model.logs.watermark_strategies`.
    `percentiles` says of a share of the records, in per cent, that they trail by less (Dataflow Model, 2.3). `unknown`
    says what happens to a record with a column that is not declared: "reject" or "ignore". `record_id` names the
    columns that identify a record, where a source may bring one again: a record that comes again within `remembered`
    of processing time is dropped before the log, and counted (rule X5; MillWheel, 6.1). Without `record_id`, a record
    is known by its place in the source. `required` names further columns without which a record is rejected.
    `messages` is the format of a topic's messages: JSON objects, or Avro or Protobuf in Confluent's wire format, whose
    schemas are in the registry that the settings name; `aliases` has the other names of columns in those schemas, such
    as those from before they were renamed: `aliases={"cents": "price_cents"}`, or a tuple of several. `instants` is the
    unit, since 1970, of whole numbers that are instants though their schema does not say so; else they are refused.
    `record_bytes` bounds the size of a line or message: a larger one is rejected.
    """

    name: str
    columns: Mapping[str, str]
    event_time: str
    arrival_time: str | None = None
    disorder: timedelta = timedelta(0)
    watermark: WatermarkStrategy | None = None
    percentiles: Mapping[int, timedelta] = field(default_factory=dict)
    earliest: datetime = EARLIEST
    latest: datetime = LATEST
    ahead: timedelta | Literal["default"] | None = "default"
    unknown: Literal["reject", "ignore"] = "reject"
    record_id: str | tuple[str, ...] = ()
    remembered: timedelta = timedelta(days=1)
    required: Several[str] = Several()
    messages: Literal["json", "avro", "protobuf"] = "json"
    aliases: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    instants: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] | None = None
    record_bytes: int = 20 * 2**20

    def __post_init__(self) -> None:
        for name in ("columns", "percentiles", "aliases"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        faults = list(self._faults())
        if faults:
            raise DefinitionError(str(self.name), faults)

    @property
    def landed(self) -> bool:
        """Whether a source fills the log, so that a table has its records."""
        return True

    @property
    def takes_back(self) -> bool:
        """Whether a record of the log may be taken back: it comes again, with the sign -1."""
        return False

    @property
    def signed(self) -> bool:
        """Whether the log's own table says of each record if it adds or takes back."""
        return False

    @property
    def trails(self) -> int:
        """The maximum delay of a record that is taken back, or given again, behind the watermark, in microseconds.

        Zero for a log whose records are never taken back; they may be late.
        """
        return 0

    @property
    def sources(self) -> tuple[Log, ...]:
        """The logs that sources fill and that this log is made of, directly or through other definitions."""
        return (self,)

    @property
    def parts(self) -> tuple[Log, ...]:
        """The logs that this log is made of: itself alone, or the logs of a union."""
        return (self,)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that identify a record; none where its place in the source identifies it."""
        return (self.record_id,) if isinstance(self.record_id, str) else self.record_id

    def names_of(self, column: str) -> tuple[str, ...]:
        """Return the names that a column has in schemas: its own, and the others after it."""
        others = self.aliases.get(column, ())
        return (column, *((others,) if isinstance(others, str) else others))

    @property
    def never_missing(self) -> dict[str, str]:
        """The columns without which a record is rejected, each with the reason that is then given.

        The event time and the arrival time are not among them: these have to lie within bounds, too.
        """
        ids = {name: f"the record id {name} is missing" for name in self.id_columns}
        return ids | {name: f"the required column {name} is missing" for name in self.required if name not in ids}

    @property
    def strategy(self) -> WatermarkStrategy:
        """The strategy by which the watermark of each of the source's partitions follows its records."""
        return BoundedDisorder(self.disorder) if self.watermark is None else self.watermark

    @property
    def bound_ahead(self) -> timedelta | None:
        """How far a record's event time may be ahead of its arrival; None where there is no bound."""
        if isinstance(self.ahead, timedelta):
            return self.ahead
        return AHEAD if self.ahead == "default" and self.arrival_time is not None else None

    @property
    def percentiles_ahead(self) -> dict[int, int]:
        """The microseconds by which each percentile's watermark is ahead of the log's."""
        return {share: duration(self.disorder - bound) for share, bound in self.percentiles.items()}

    def _faults(self) -> Iterable[Fault]:
        yield from name_faults("log.name", self.name)
        if not self.columns:
            yield Fault("log.columns", {}, "at least one column", 'write columns={"at": "timestamp"}')
        for name, type in self.columns.items():
            yield from name_faults(f"log.columns[{name!r}]", name)
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
        yield from self._id_faults()
        if not waits(self.disorder):
            yield Fault("log.disorder", self.disorder, "a duration of zero or more", "write minutes(10)")
        yield from self._watermark_faults()
        for share, bound in self.percentiles.items():
            path = f"log.percentiles[{share!r}]"
            if not isinstance(share, int) or isinstance(share, bool) or not 0 < share < 100:
                yield Fault(path, share, "a whole number of per cent between 1 and 99", "write {90: minutes(1)}")
            if not waits(bound) or (waits(self.disorder) and bound > self.disorder):
                yield Fault(path, bound, "a duration of no more than disorder", "write {90: minutes(1)}")
        yield from self._bounds_faults()
        if self.unknown not in ("reject", "ignore"):
            yield Fault("log.unknown", self.unknown, '"reject" or "ignore"', 'leave it out for "reject"')
        yield from self._message_faults()
        size: object = self.record_bytes
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= LARGEST:
            expected = f"a number of bytes, {LARGEST} at most"
            yield Fault("log.record_bytes", size, expected, "write record_bytes=100 * 2**20, or leave it out")

    def _id_faults(self) -> Iterable[Fault]:
        names: object = self.id_columns
        if not isinstance(names, tuple):
            yield Fault("log.record_id", names, "a column or several", 'write record_id="id"')
            return
        for column in self.id_columns:
            if column not in self.columns:
                yield unknown_column("log.record_id", column, self.columns)
        for place, column in enumerate(self.required):
            if column not in self.columns:
                yield unknown_column(f"log.required[{place}]", column, self.columns)
        if not (waits(self.remembered) and self.remembered):
            yield Fault("log.remembered", self.remembered, "a duration above zero", "write remembered=days(1)")

    def _message_faults(self) -> Iterable[Fault]:
        if self.messages not in ("json", "avro", "protobuf"):
            yield Fault("log.messages", self.messages, '"json", "avro" or "protobuf"', 'leave it out for "json"')
        elif self.messages == "json" and not self.signed:
            for name, given in (("aliases", dict(self.aliases)), ("instants", self.instants)):
                if given:
                    expected = "nothing for messages of JSON"
                    yield Fault(f"log.{name}", given, expected, 'write messages="avro", or leave it out')
        if self.instants not in (None, *UNITS):
            yield Fault("log.instants", self.instants, f"one of {', '.join(UNITS)}", "leave it out")
        taken = {column: column for column in self.columns}
        for column, others in self.aliases.items():
            path, names = f"log.aliases[{column!r}]", self.names_of(column)[1:] if _names(others) else ()
            if column not in self.columns:
                yield unknown_column(path, column, self.columns)
            if not names:
                yield Fault(path, others, "a name or several", 'write aliases={"cents": "price_cents"}')
            for name in names:
                if name in taken:
                    yield Fault(
                        path, name, f"a name that column {taken[name]!r} does not have", "leave one of them out"
                    )
                taken[name] = column

    def _watermark_faults(self) -> Iterable[Fault]:
        strategy: object = self.watermark
        if strategy is None:
            return
        if not isinstance(strategy, WatermarkStrategy):
            yield Fault(
                "log.watermark", strategy, "a watermark strategy", "write watermark=BoundedDisorder(minutes(10))"
            )
            return
        yield from strategy.faults("log.watermark")
        if self.disorder:
            yield Fault("log.disorder", self.disorder, "nothing beside watermark", "say it in the strategy")
        if self.percentiles:
            found, mend = dict(self.percentiles), "write disorder=minutes(10) in its place"
            yield Fault("log.percentiles", found, "nothing beside watermark", mend)

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
        ahead: object = self.ahead
        if ahead not in ("default", None) and not (
            isinstance(ahead, timedelta) and timedelta(0) < ahead <= FARTHEST_AHEAD
        ):
            expected = "a duration above zero, of 300 years at most, or None for no bound"
            yield Fault("log.ahead", ahead, expected, "write ahead=days(1), or leave it out")


PANE_TIME = "event_time"
"""The column of a stage's panes that says when an answer happened: its timestamp (`Pipeline.timestamp`)."""

SIGN = "_sign"
"""A field of a stage's panes besides the columns: 1 for an answer, -1 for an answer that is taken back."""

PLACE = ("_epoch", "_source", "_offset")
"""The fields of a record besides its columns: where it came from."""


def too_large(log: Log) -> str:
    """Say of a record that it is larger than its log allows, and what mends it."""
    return f"the record has more than {log.record_bytes} bytes: set record_bytes in the log"


def _names(given: object) -> bool:
    some = (given,) if isinstance(given, str) else given
    return isinstance(some, tuple) and all(isinstance(name, str) and name for name in some)


def log_names(logs: Iterable[Log]) -> str:
    """Name logs for people."""
    return ", ".join(log.name for log in logs)


def sign_of(record: Mapping[str, Any]) -> int:
    """Return 1 for a record that adds, -1 for one that takes back; a record of a source's log adds.

    >>> sign_of({"value": 1}), sign_of({"value": 1, SIGN: -1})
    (1, -1)
    """
    return int(record.get(SIGN, 1))

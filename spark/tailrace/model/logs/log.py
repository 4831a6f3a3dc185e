"""Logs: the columns of their records, and how far out of order the records may arrive.

A log is filled by a source, or it is the panes of a stage as a later stage reads them (`Panes`): answers, each with its
event time, and retractions, each of which retracts an answer. The productions of a computation, a map or a join are
also a log (`Productions`).
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
from tailrace.model.base.types import type_faults
from tailrace.model.logs.watermark_strategies import BoundedDisorder, WatermarkStrategy

UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
"""The units of instants that are written as whole numbers."""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

AHEAD = timedelta(days=1)
"""How far an event time may be ahead of the arrival if the log has an arrival column and sets no bound itself."""

FARTHEST_AHEAD = LATEST - EARLIEST


LARGEST = 100 * 2**20
"""The largest record size that a log may allow, in bytes: Spark cannot handle a value of 128 MB."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """The columns of a log's records, and how far out of order the records may arrive.

    `columns` maps names to types. `event_time` names the timestamp column with the time when a record happened.
    `arrival_time` names the column with the time when the record became known, if the source has such a column;
    otherwise, a record arrives when its file was written, or at the timestamp of its message.

    Records with an event time outside `[earliest, latest)` are rejected, because a single such record could move the
    watermark to the end of time. Records whose event time is more than `ahead` after their arrival are rejected as
    well. By default, `ahead` is one day if there is an `arrival_time`, and otherwise there is no bound; None means no
    bound.

    `disorder` bounds how far the watermark trails the latest event of each partition; the option is short for
    `watermark=BoundedDisorder(...)`. Other strategies are in `model.logs.watermark_strategies`. `percentiles` declares
    a smaller bound for a share of the records, in per cent (Dataflow Model, 2.3).

    `unknown` is what happens to a record with an undeclared column: "reject" or "ignore". `required` names further
    columns without which a record is rejected. `record_id` names the columns that identify a record, if the source may
    deliver a record again. A record that is delivered again within `remembered` of processing time is dropped before
    the log, and counted (rule X5; MillWheel, 6.1). Without `record_id`, a record is identified by its position in the
    source.

    `messages` is the format of a topic's messages: JSON objects, or Avro or Protobuf in Confluent's wire format, with
    the schemas in the registry that the settings name. `aliases` has other names of columns in those schemas, for
    example from before a column was renamed: `aliases={"cents": "price_cents"}`, or a tuple of several names.
    `instants` is the unit of whole numbers that are instants since 1970 although their schema does not declare it;
    without `instants`, such numbers are refused. `record_bytes` is the maximum size of a line or message, in bytes: a
    larger one is rejected.
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
        """Whether a source fills the log, so that there is a table with the log's records."""
        return True

    @property
    def takes_back(self) -> bool:
        """Whether records of the log may be retracted: a retracted record occurs again, with the sign -1."""
        return False

    @property
    def signed(self) -> bool:
        """Whether the log's table states for each record whether the record is added or retracted."""
        return False

    @property
    def trails(self) -> int:
        """The maximum delay behind the watermark, in microseconds, of a record that is retracted or output again.

        Zero for a log whose records are never retracted; such records may be late.
        """
        return 0

    @property
    def kept(self) -> bool:
        """Whether a table keeps the log's records; if not, they are computed again whenever they are needed."""
        return True

    @property
    def sources(self) -> tuple[Log, ...]:
        """The source logs from which this log is derived, directly or through other definitions."""
        return (self,)

    @property
    def parts(self) -> tuple[Log, ...]:
        """The logs that this log consists of: the log itself, or the logs of a union."""
        return (self,)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that identify a record; empty if a record is identified by its position in the source."""
        return (self.record_id,) if isinstance(self.record_id, str) else self.record_id

    def names_of(self, column: str) -> tuple[str, ...]:
        """Return the names that a column may have in schemas: the column's name first, and then its aliases."""
        others = self.aliases.get(column, ())
        return (column, *((others,) if isinstance(others, str) else others))

    @property
    def never_missing(self) -> dict[str, str]:
        """The columns without which a record is rejected, each with the reason for the rejection.

        The event time and the arrival time are not included, because they must also be within bounds.
        """
        ids = {name: f"the record id {name} is missing" for name in self.id_columns}
        return ids | {name: f"the required column {name} is missing" for name in self.required if name not in ids}

    @property
    def strategy(self) -> WatermarkStrategy:
        """The strategy by which the watermark of each partition of the source follows the partition's records."""
        return BoundedDisorder(self.disorder) if self.watermark is None else self.watermark

    @property
    def bound_ahead(self) -> timedelta | None:
        """How far the event time of a record may be ahead of its arrival; None if there is no bound."""
        if isinstance(self.ahead, timedelta):
            return self.ahead
        return AHEAD if self.ahead == "default" and self.arrival_time is not None else None

    @property
    def percentiles_ahead(self) -> dict[int, int]:
        """The lead of each percentile's watermark over the log's watermark, in microseconds."""
        return {share: duration(self.disorder - bound) for share, bound in self.percentiles.items()}

    def _faults(self) -> Iterable[Fault]:
        yield from name_faults("log.name", self.name)
        if not self.columns:
            yield Fault("log.columns", {}, "at least one column", 'write columns={"at": "timestamp"}')
        for name, type in self.columns.items():
            yield from name_faults(f"log.columns[{name!r}]", name)
            yield from type_faults(f"log.columns[{name!r}]", type)
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
"""The column of a stage's panes with the event time of an answer: its timestamp (`Pipeline.timestamp`)."""

SIGN = "_sign"
"""A field of a stage's panes in addition to the columns: 1 for an answer, -1 for a retracted answer."""

PLACE = ("_epoch", "_source", "_offset")
"""The fields of a record, in addition to its columns, that state its epoch and its position in the source."""


def too_large(log: Log) -> str:
    """Return the reason for rejecting a record that is larger than its log allows, with the remedy."""
    return f"the record has more than {log.record_bytes} bytes: set record_bytes in the log"


def _names(given: object) -> bool:
    some = (given,) if isinstance(given, str) else given
    return isinstance(some, tuple) and all(isinstance(name, str) and name for name in some)


def log_names(logs: Iterable[Log]) -> str:
    """Return the names of logs, for messages to users."""
    return ", ".join(log.name for log in logs)


def sign_of(record: Mapping[str, Any]) -> int:
    """Return 1 for an added record and -1 for a retracted record. A record without the field `_sign` is added.

    >>> sign_of({"value": 1}), sign_of({"value": 1, SIGN: -1})
    (1, -1)
    """
    return int(record.get(SIGN, 1))

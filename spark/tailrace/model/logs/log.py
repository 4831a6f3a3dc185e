"""The declaration of a log: the columns of its records, and how far out of order the records may arrive.

A source fills a log, or the log contains the output of another definition. A `Panes` log contains the panes of a
pipeline stage: answers with their event times, and retractions of answers. A later stage reads this log. A
`Productions` log contains the output of a computation, a map or a join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tailrace.model.base.errors import Fault, raise_faults, unknown_column
from tailrace.model.base.json_limits import DEPTH
from tailrace.model.base.json_scalars import ROUNDINGS
from tailrace.model.base.names import name_faults
from tailrace.model.base.several import Several
from tailrace.model.base.time import duration, waits
from tailrace.model.base.types import decimal_parts, innermost_type, is_plain, stored_type, type_faults
from tailrace.model.logs.csv_options import RFC_4180, Csv
from tailrace.model.logs.shapes import Field, fields_of, may_round, paths_of, place_of
from tailrace.model.logs.watermark_strategies import BoundedDisorder, WatermarkStrategy

UNITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "days": (86_400 * 10**6, 1), "seconds": (10**6, 1), "milliseconds": (1000, 1), "microseconds": (1, 1),
        "nanoseconds": (1, 1000),
    }
)  # fmt: skip
"""The units in which whole numbers may represent instants since 1970, and times since the beginning of a day.

Each unit has the factor and the divisor that convert a number to microseconds.
"""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

AHEAD = timedelta(days=1)
"""The default of `ahead` for a log with an `arrival_time`: the maximum time by which an event time may exceed the
arrival time.
"""

FARTHEST_AHEAD = LATEST - EARLIEST


LARGEST = 100 * 2**20
"""The largest value that `record_bytes` may have, in bytes; Spark cannot handle a value of 128 MB."""


ELEMENTS = 100_000
"""The default of `elements`: the maximum number of elements of a list, and of entries of a map."""


class Columns(Mapping[str, str]):
    """The columns of a log, with the types that tables store; `declared` has the types that the log declares.

    >>> columns = Columns({"at": "timestamp", "tags": "map<string,int>"})
    >>> columns["tags"], columns.declared["tags"]
    ('array<struct<key:string,value:int>>', 'map<string,int>')
    """

    def __init__(self, declared: Mapping[str, Any]) -> None:
        own = declared.declared if isinstance(declared, Columns) else declared
        self.declared: dict[str, Any] = {
            n: type.replace(" ", "") if _is_nested(type) else type for n, type in own.items()
        }
        self._stored = {n: stored_type(type) if isinstance(type, str) else type for n, type in self.declared.items()}

    def __getitem__(self, name: str) -> str:
        return self._stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**other, **self}

    def __repr__(self) -> str:
        return repr(self.declared)


def _is_nested(type: object) -> bool:
    return isinstance(type, str) and "<" in type


@dataclass(frozen=True, kw_only=True)
class Log:
    """The declaration of a log: the columns of its records, and how far out of order the records may arrive.

    `columns` maps names to types. `event_time` names the timestamp column with the time when a record happened.
    `arrival_time` names the column with the time when the record became known, if the source has such a column. Without
    `arrival_time`, the arrival time of a record is the time when its file was written, or the timestamp of its message.

    Records with an event time outside `[earliest, latest)` are rejected, because a single such record could move the
    watermark to the end of time. A record whose event time is later than its arrival time by more than `ahead` is
    rejected as well. The default of `ahead` is one day for a log with an `arrival_time`, and None, which means no
    bound, for any other log.

    `disorder` is the time by which the watermark of each partition is behind the partition's latest event time; the
    option is short for `watermark=BoundedDisorder(...)`. Other strategies are in `model.logs.watermark_strategies`.
    `percentiles` maps a percentage to the disorder that is expected for this percentage of the records; this disorder
    is smaller than `disorder` (Dataflow Model, 2.3).

    `unknown` decides what happens if a record has an undeclared column: "reject" rejects the record, and "ignore"
    ignores the column. `required` names columns that must have a value; a record without a value in such a column is
    rejected. The event time is always required. `record_id` names the columns that identify a record, if the source may
    deliver the same record more than once. If a record is delivered again within the time `remembered` (processing
    time), the repeated record is counted but not written to the log (rule X5; MillWheel, 6.1). Without `record_id`, a
    record is identified by its position in the source.

    `fields` maps a column to its place in the record, if the place has another name than the column, or is inside an
    object: `fields={"event_id": "eventId", "country": "user.country"}`. The fields of a struct are placed in the same
    way, relative to their struct: `fields={"items.price": "unitPrice"}`. `rest` names an additional column of type
    `json`, which keeps all undeclared fields of a record, as they were written. `elements` is the maximum number of
    elements of a list, and `depth` is the maximum number of levels of nested objects and lists; a record beyond a limit
    is rejected.

    Columns may be added to a log later. With `grows`, the stream that lands the log adds the columns that the log's
    table does not have yet, and widens types of columns. Without `grows`, a user does this with `tailrace tables
    apply`. The records that are already there have nulls in the new columns. Definitions may declare one log with
    different columns; a stream then lands the columns of all its definitions.

    `messages` is the format of a topic's messages: JSON objects, or Avro or Protobuf in Confluent's wire format. For
    Avro and Protobuf, the schemas are in the schema registry that the settings name. `aliases` maps a column to the
    other name, or a tuple of other names, that the column may have in these schemas. An example is the old name of a
    renamed column: `aliases={"cents": "price_cents"}`. `instants` is the unit of whole numbers that represent instants
    since 1970 although their schema does not say so; without `instants`, such numbers are refused. To declare the
    form of some columns only, pass a mapping: `instants={"at": "milliseconds", "paid": "%d.%m.%Y %H:%M"}`; a form is
    a unit, or a format of `strptime`. `zone` is the time zone of instants that are written without one; without
    `zone`, such texts are in UTC, and Parquet columns of such instants are refused. If the clocks of the zone show a
    time twice, the first of the two instants is used. If the clocks skip a time, the time is read with the offset
    before the skip. `rounding` is the way to round decimals that have more digits after the point than their column:
    "half_even", "half_up" or "down"; without it, records with such numbers are rejected. To round some columns only,
    pass a mapping: `rounding={"total": "half_even"}`. `record_bytes` is the maximum size of a line or message in
    bytes; a larger line or message is rejected. `csv` has the options of the log's CSV files. In CSV, the place of a
    column is the name in the header.

    `folders` names the columns whose values are in the names of the folders of files, such as `country=DE`. A
    folder's value is read like a cell of CSV. Without such a folder, or if its value is `__HIVE_DEFAULT_PARTITION__`,
    the value is the record's own. A record with another value than its folder is rejected.
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
    instants: str | Mapping[str, str] | None = None
    record_bytes: int = 20 * 2**20
    fields: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    rest: str | None = None
    rounding: str | Mapping[str, str] | None = None
    elements: int = ELEMENTS
    depth: int = DEPTH
    csv: Csv = RFC_4180
    folders: Several[str] = Several()
    grows: bool = False

    landed: ClassVar[bool] = True
    """Whether a source fills the log, so that the lake has a table with the log's records."""

    signed: ClassVar[bool] = False
    """Whether the log's table has a sign for each record, which says whether the record is added or retracted."""

    def __post_init__(self) -> None:
        for name in ("percentiles", "aliases", "fields"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        for name in ("instants", "rounding"):
            if isinstance(given := getattr(self, name), Mapping):
                object.__setattr__(self, name, MappingProxyType(dict(given)))
        columns = Columns(self.columns)
        if self.rest is not None and self.rest not in columns:
            columns = Columns({**columns.declared, self.rest: "json"})
        object.__setattr__(self, "columns", columns)
        raise_faults(self.name, self._faults())

    @property
    def takes_back(self) -> bool:
        """Whether records of the log may be retracted. The retraction of a record is a further record with the sign
        -1.
        """
        return False

    @property
    def trails(self) -> int:
        """The maximum time by which a corrected or retracted record may be behind the log's watermark, in microseconds.

        For a log whose records are never retracted, this time is zero, although the log's records may be late.
        """
        return 0

    @property
    def kept(self) -> bool:
        """Whether a table keeps the log's records. If not, the records are computed again whenever they are needed."""
        return True

    @property
    def sources(self) -> tuple[Log, ...]:
        """The logs that are filled by a source and from which this log is derived, directly or through other
        definitions.
        """
        return (self,)

    @property
    def parts(self) -> tuple[Log, ...]:
        """The logs of which this log consists.

        A union consists of several logs, and an `Arrivals` log consists of the log that it reads. Any other log
        consists only of itself.
        """
        return (self,)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that identify a record; empty if a record is identified by its position in the source."""
        return (self.record_id,) if isinstance(self.record_id, str) else self.record_id

    @property
    def declared(self) -> Mapping[str, str]:
        """The columns with the types that the log declares; `columns` has the types that tables store."""
        return self.columns.declared if isinstance(self.columns, Columns) else self.columns

    @cached_property
    def shape(self) -> tuple[Field, ...]:
        """The place and the shape of each column's values in a record of the source, except the column `rest`."""
        types = {name: type for name, type in self.declared.items() if name != self.rest}
        return fields_of(types, self.fields, self.form_of, rounding=self.rounding_of)

    @cached_property
    def rounds(self) -> bool:
        """Whether decimals of the log may be rounded; then the rounded values are counted."""
        return any(map(may_round, self.shape))

    def form_of(self, path: str, type: str) -> str | None:
        """Return the form of the values of a column or field of a declared type (`Plain.form`)."""
        if isinstance(self.instants, Mapping):
            return self.instants.get(path)
        return self.instants if type == "timestamp" else None

    def rounding_of(self, path: str, type: str) -> str | None:
        """Return the way to round the values of a column or field of a declared type; None if they are not rounded."""
        given = self.rounding.get(path) if isinstance(self.rounding, Mapping) else self.rounding
        return given if decimal_parts(type) is not None else None

    def __getstate__(self) -> dict[str, Any]:
        """Return the options of the log, without the values that are computed from them."""
        own = {one.name for one in dataclass_fields(self)}
        return {name: value for name, value in self.__dict__.items() if name in own}

    def names_of(self, column: str) -> tuple[str, ...]:
        """Return the names that a column may have in schemas: the name of its place first, and then its aliases."""
        others = self.aliases.get(column, ())
        first = self.fields.get(column, column)
        return (first, *((others,) if isinstance(others, str) else others))

    @property
    def never_missing(self) -> dict[str, str]:
        """A dict from the name of each column that must have a value to the reason for rejecting a record without this
        value.

        The columns for the event time and the arrival time are not included, because they are checked separately,
        together with their bounds.
        """
        ids = {name: f"the record id {name} is missing" for name in self.id_columns}
        return ids | {name: f"the required column {name} is missing" for name in self.required if name not in ids}

    @property
    def strategy(self) -> WatermarkStrategy:
        """The strategy that computes the watermark of each partition of the source from the partition's records."""
        return BoundedDisorder(self.disorder) if self.watermark is None else self.watermark

    @property
    def bound_ahead(self) -> timedelta | None:
        """The maximum time by which a record's event time may be after its arrival; None if there is no bound."""
        if isinstance(self.ahead, timedelta):
            return self.ahead
        return AHEAD if self.ahead == "default" and self.arrival_time is not None else None

    @property
    def percentiles_ahead(self) -> dict[int, int]:
        """A dict from each percentile to the time by which the percentile's watermark is ahead of the log's watermark.

        The time is in microseconds. The watermark of a percentile waits for only this percentage of the records.
        """
        return {share: duration(self.disorder - bound) for share, bound in self.percentiles.items()}

    def _faults(self) -> Iterable[Fault]:
        yield from name_faults("log.name", self.name)
        if not self.columns:
            yield Fault("log.columns", {}, "at least one column", 'write columns={"at": "timestamp"}')
        for name, type in self.columns.items():
            yield from name_faults(f"log.columns[{name!r}]", name)
            yield from type_faults(f"log.columns[{name!r}]", self.declared.get(name, type))
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
        for place, column in enumerate(self.folders):
            if column not in self.declared or column == self.rest:
                yield unknown_column(f"log.folders[{place}]", column, self.declared)
            elif not is_plain(self.declared[column]):
                yield Fault(f"log.folders[{place}]", column, "a column of a plain type", "declare it as string")
        if not isinstance(self.csv, Csv):
            yield Fault("log.csv", self.csv, "options of CSV", 'write for example csv=Csv(delimiter=";")')
        if not isinstance(self.grows, bool):
            yield Fault(
                "log.grows", self.grows, "True or False", "leave it out, and `tailrace tables apply` adds columns"
            )
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
        elif self.messages == "json" and not self.signed and self.aliases:
            expected = "nothing for messages of JSON"
            yield Fault("log.aliases", dict(self.aliases), expected, 'name the place: fields={"cents": "price_cents"}')
        yield from self._place_faults()
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

    def _place_faults(self) -> Iterable[Fault]:
        known = dict(paths_of({name: type for name, type in self.declared.items() if isinstance(type, str)}))
        for column, text in self.fields.items():
            path = f"log.fields[{column!r}]"
            if column not in known or column == self.rest:
                yield unknown_column(path, column, known)
            if place_of(text) is None:
                expected = "a place in the record: names with dots between them"
                yield Fault(path, text, expected, 'write for example "user.country", or "`a name`.country"')
            elif column in known and (other := self._overlapping(column, known)) is not None:
                expected = f"a place that {other!r} does not have, and that is not inside the place of {other!r}"
                yield Fault(path, text, expected, "take one of the columns, and derive the other")
        forms: object = self.instants
        if isinstance(forms, str):
            forms = {self.event_time: forms}
        for column, form in forms.items() if isinstance(forms, Mapping) else ():
            path = "log.instants" if isinstance(self.instants, str) else f"log.instants[{column!r}]"
            if known.get(column) not in ("timestamp", "date", "time") and isinstance(self.instants, Mapping):
                yield Fault(path, column, "a column of instants, dates or times", "declare it as timestamp")
            elif form not in UNITS and not (isinstance(form, str) and "%" in form):
                expected = f"one of {', '.join(UNITS)}, or a format of strptime"
                yield Fault(path, form, expected, 'write for example "milliseconds" or "%d.%m.%Y %H:%M:%S"')
        if forms is not None and not isinstance(forms, Mapping):
            yield Fault("log.instants", forms, f"one of {', '.join(UNITS)}, or a mapping", "leave it out")
        try:
            ZoneInfo("UTC" if self.zone is None else self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            yield Fault("log.zone", self.zone, "the name of a time zone", 'write for example zone="Europe/Berlin"')
        yield from self._rounding_faults(known)
        if self.rest is not None and self.declared.get(self.rest) != "json":
            yield Fault("log.rest", self.rest, "a column of its own, of type json", 'write rest="extra"')
        size: object = self.elements
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            yield Fault("log.elements", size, "a number of elements", f"leave it out for {ELEMENTS:,}")
        levels: object = self.depth
        if not isinstance(levels, int) or isinstance(levels, bool) or not 1 <= levels <= DEPTH:
            yield Fault("log.depth", levels, f"a number of levels, {DEPTH} at most", f"leave it out for {DEPTH}")

    def _rounding_faults(self, known: Mapping[str, str]) -> Iterable[Fault]:
        given: object = self.rounding
        several = isinstance(given, Mapping)
        for path, mode in given.items() if isinstance(given, Mapping) else () if given is None else [("", given)]:
            place = f"log.rounding[{path!r}]" if several else "log.rounding"
            if several and decimal_parts(innermost_type(known.get(path, ""))) is None:
                yield Fault(place, path, "a decimal column", "declare it as decimal(p,s), or leave it out")
            if mode not in ROUNDINGS:
                yield Fault(place, mode, f"one of {', '.join(ROUNDINGS)}", 'write rounding="half_even"')

    def _overlapping(self, column: str, known: Iterable[str]) -> str | None:
        """Return one of the `known` columns and fields whose place overlaps with the place of `column`, if any."""
        level, _, name = column.rpartition(".")
        beside = [path for path in known if path.rpartition(".")[0] == level and path != column]
        own = place_of(self.fields[column]) or (name,)
        for other in beside:
            place = place_of(self.fields.get(other, f"`{other.rpartition('.')[2]}`")) or (None,)
            if place[: len(own)] == own or own[: len(place)] == place:
                return other
        return None

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
"""The name of the event time column in a log that contains a definition's output (`Pipeline.timestamp`)."""

SIGN = "_sign"
"""The name of a record's field for its sign: 1 if the record is added, -1 if it is retracted. This field is not a
declared column of the log.
"""

ROUNDED = "_rounded"
"""The name of a record's field that counts its rounded values, while the record is read (`Log.rounding`)."""

PLACE = ("_epoch", "_source", "_offset")
"""The names of a record's fields for its epoch and its position in the source. These fields are not declared columns of
the log.
"""

SCANNED = 2**33
"""The `_offset` from which on a number is not the index of a record in its file.

If Spark scans plain lines of text, in parts of files and on several machines, no part knows how many lines are before
it. Then the number of the part and the place in the part are the offset, which is at least this number. In all other
cases, the offset of a record of a file is its index: the first line, row or record has the offset 0.
"""


def missing_log(log: object, other: str) -> Fault:
    """Return the fault of a definition whose `log` is not a log.

    `other` is the source text of an argument that the user may write instead of a new log, such as `log=earlier.panes`.
    """
    return Fault("log", log, "a log", f'write log=Log(name="rides", columns=..., event_time=...), or {other}')


def too_large(log: Log) -> str:
    """Return the reason for rejecting a record that is larger than its log allows; the reason includes a remedy."""
    return f"the record has more than {log.record_bytes} bytes: set record_bytes in the log"


def _names(given: object) -> bool:
    some = (given,) if isinstance(given, str) else given
    return isinstance(some, tuple) and all(isinstance(name, str) and name for name in some)


def log_names(logs: Iterable[Log]) -> str:
    """Return a text with the names of logs, for messages to users."""
    return ", ".join(log.name for log in logs)


def sign_of(record: Mapping[str, Any]) -> int:
    """Return the sign of a record: 1 for an added record, -1 for a retracted record.

    Returns 1 if the record has no field `_sign`.

    >>> sign_of({"value": 1}), sign_of({"value": 1, SIGN: -1})
    (1, -1)
    """
    return int(record.get(SIGN, 1))

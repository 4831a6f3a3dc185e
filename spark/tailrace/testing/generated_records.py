"""A strategy of Hypothesis that generates the records of a log from its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import duration, hours, instant, moment
from tailrace.model.base.types import decimal_parts
from tailrace.model.base.values import in_utc
from tailrace.model.logs.log import Log
from tailrace.model.logs.shapes import Field, Listed, Mapped, Plain, Shape, Struct, paths_of
from tailrace.testing.given_records import source_value

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

SINCE = datetime(2026, 3, 1, tzinfo=UTC)
"""The earliest event time of generated records, if a test names none and the log allows it."""

SPAN = hours(6)
"""The time within which generated records happen, if a test names none."""

Given: TypeAlias = "Mapping[str, SearchStrategy[Any] | Sequence[Any]]"
"""What a test says of columns: a strategy of values, or the values themselves."""


class GeneratedColumnError(TailraceError, ValueError):
    """The error for `values` of columns that the log does not have."""


def records_of(
    log: Log,
    *,
    values: Given | None = None,
    since: datetime | None = None,
    span: timedelta = SPAN,
    min_size: int = 0,
    max_size: int = 10,
    repeats: bool = False,
) -> SearchStrategy[list[dict[str, Any]]]:
    """Return a strategy of Hypothesis for lists of records of a log, as the log's source writes them.

    Each column has values of its type at its place in the record (`Log.fields`), and instants in their form. A column
    that must have a value has one; any other column may be null or left out. Event times are from `since` on, for the
    length `span`; an arrival time is at most the log's disorder later. The record ids differ; with `repeats`, whole
    records are repeated as well.

    `values` maps a column, or the path of a field such as `items.price`, to a strategy or to a list of values, as the
    source writes them; a `datetime` gets the form of its column. Without it, texts and numbers are small and few, so
    that records meet in a window.
    """
    from hypothesis import strategies as st

    drawing = _Drawing(log, dict(values or {}), _since(log, since), duration(span))
    drawing.check()
    numbered = drawing.numbered_column
    unique = None if numbered is not None or not log.id_columns else drawing.id_of
    many = st.lists(drawing.record(), min_size=min_size, max_size=max_size, unique_by=unique).map(drawing.numbered)
    if not repeats:
        return many
    again = st.lists(st.tuples(st.integers(0, max_size), st.integers(0, max_size)), max_size=3)
    return st.tuples(many, again).map(lambda both: _repeated(*both))


def _since(log: Log, since: datetime | None) -> int:
    return instant(max(SINCE, log.earliest) if since is None else in_utc(since))


def _repeated(records: list[dict[str, Any]], again: list[tuple[int, int]]) -> list[dict[str, Any]]:
    made = list(records)
    for which, place in again if records else ():
        made.insert(place % (len(made) + 1), records[which % len(records)])
    return made


@dataclass
class _Drawing:
    """How the records of one log are drawn."""

    log: Log
    values: dict[str, Any]
    since: int
    span: int

    def check(self) -> None:
        """Raise `GeneratedColumnError` if `values` names what is no column of the log."""
        known = [path for path, _ in paths_of(self.log.declared)]
        if unknown := [name for name in self.values if name not in known]:
            raise GeneratedColumnError(f"values of {', '.join(unknown)}: expected columns of {', '.join(known)}")

    @property
    def numbered_column(self) -> Field | None:
        """The column of the record id that numbers the records; None if its values are drawn."""
        free = (one for one in self.log.shape if one.name in self.log.id_columns and one.name not in self.values)
        return next((one for one in free if isinstance(one.shape, Plain) and one.shape.type in _NUMBERED), None)

    def numbered(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Give each record an id of its own."""
        column = self.numbered_column
        if column is not None:
            assert isinstance(column.shape, Plain)
            for number, record in enumerate(records, 1):
                _put(record, column.place, f"id-{number}" if column.shape.type == "string" else number)
        return records

    def id_of(self, record: Mapping[str, Any]) -> str:
        """Return what identifies a record."""
        ids = (one for one in self.log.shape if one.name in self.log.id_columns)
        return repr([_got(record, one.place) for one in ids])

    def record(self) -> SearchStrategy[dict[str, Any]]:
        from hypothesis import strategies as st

        columns = [(one, self._strategy(one.shape, one.name)) for one in self.log.shape]
        times = self._given(self.log.event_time) if self.log.event_time in self.values else self._times().map(moment)
        delays = st.integers(0, duration(self.log.strategy.bound or timedelta(0)))
        kinds = st.sampled_from(("value", "value", "value", "null", "left out"))
        more = st.sampled_from(({}, {}, {"not_declared": 1}))

        @st.composite
        def drawn(draw: DrawFn) -> dict[str, Any]:
            made, happened = dict[str, Any](), draw(times)
            at = instant(in_utc(happened)) if isinstance(happened, datetime) else self.since
            for column, strategy in columns:
                if column.name == self.log.event_time:
                    _put(made, column.place, _time(column.shape, happened))
                elif column.name == self.log.arrival_time and column.name not in self.values:
                    _put(made, column.place, _time(column.shape, moment(at + draw(delays))))
                else:
                    kind = "value" if self._is_needed(column.name) else draw(kinds)
                    if kind != "left out":
                        _put(made, column.place, draw(strategy) if kind == "value" else None)
            return made | draw(more) if self.log.rest is not None else made

        return drawn()

    def _is_needed(self, column: str) -> bool:
        """Return True if a column is never null. Values that a test gives are all that a column has."""
        times = (self.log.event_time, self.log.arrival_time)
        return column in self.log.never_missing or column in times or column in self.values

    def _times(self) -> SearchStrategy[int]:
        """Return a strategy of event times: most on a whole minute, so that some are at the edges of windows."""
        from hypothesis import strategies as st

        whole = st.integers(0, max(0, self.span - 1) // 60_000_000).map(lambda minute: minute * 60_000_000)
        return (whole | st.integers(0, max(0, self.span - 1))).map(lambda after: self.since + after)

    def _given(self, path: str) -> SearchStrategy[Any]:
        """Return the strategy that a test gives for a column or a field."""
        from hypothesis import strategies as st

        given = self.values[path]
        return st.sampled_from(given) if isinstance(given, Sequence) else given

    def _strategy(self, shape: Shape, path: str) -> SearchStrategy[Any]:
        """Return a strategy of the values of a column or field, as the source writes them."""
        from hypothesis import strategies as st

        if path in self.values:
            return self._given(path).map(lambda value: source_value(shape, value))
        if isinstance(shape, Plain):
            return self._plain(shape.type).map(lambda value: source_value(shape, value))
        if isinstance(shape, Listed):
            return st.lists(self._strategy(shape.element, path), max_size=3)
        if isinstance(shape, Mapped):
            return st.dictionaries(st.sampled_from("ab"), self._strategy(shape.value, path), max_size=2)
        return self._struct(shape, path)

    def _struct(self, shape: Struct, path: str) -> SearchStrategy[dict[str, Any]]:
        from hypothesis import strategies as st

        fields = [(one, self._strategy(one.shape, f"{path}.{one.name}")) for one in shape.fields]
        drawn = st.fixed_dictionaries(
            {one.name: own if f"{path}.{one.name}" in self.values else st.none() | own for one, own in fields}
        )

        def placed(values: Mapping[str, Any]) -> dict[str, Any]:
            made: dict[str, Any] = {}
            for one, _ in fields:
                _put(made, one.place, values[one.name])
            return made

        return drawn.map(placed)

    def _plain(self, type: str) -> SearchStrategy[Any]:
        from hypothesis import strategies as st

        parts = decimal_parts(type)
        if parts is not None:
            most = 10 ** min(parts[0], 5) - 1
            return st.integers(-most, most).map(lambda units: Decimal(units).scaleb(-parts[1]))
        match type:
            case "string":
                return st.sampled_from("abc") | st.text("aé 東🙂", max_size=3)
            case "boolean":
                return st.booleans()
            case "int" | "bigint":
                return st.integers(-3, 9) | st.integers(-1_000_000, 1_000_000)
            case "double":
                return st.integers(-300, 900).map(lambda cents: cents / 100) | _doubles(64)
            case "float":
                return _doubles(32)
            case "date":
                return st.integers(0, 3).map(lambda days: moment(self.since + days * 86_400_000_000).date())
            case "time":
                return st.integers(0, 1439).map(lambda minute: time(minute // 60, minute % 60))
            case "timestamp":
                return self._times().map(lambda micros: moment(micros // 1_000_000 * 1_000_000))
            case "binary":
                return st.binary(max_size=4)
        return st.sampled_from(({"a": 1}, [1, None], "a", 1, True))


def _time(shape: Shape, at: Any) -> Any:
    """Return an instant as the source writes it, in whole units."""
    value = source_value(shape, at)
    return int(value) if isinstance(value, Decimal) else value


_NUMBERED = ("string", "int", "bigint")


def _doubles(width: Any) -> SearchStrategy[float]:
    from hypothesis import strategies as st

    return st.floats(-1_000_000, 1_000_000, width=width, allow_nan=False, allow_subnormal=False)


def _put(record: dict[str, Any], place: Sequence[str], value: Any) -> None:
    """Put a value at its place in a record."""
    for name in place[:-1]:
        record = record.setdefault(name, {})
    record[place[-1]] = value


def _got(record: Mapping[str, Any], place: Sequence[str]) -> Any:
    for name in place:
        record = record[name]
    return record
